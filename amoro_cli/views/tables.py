"""Tables and their health."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from amoro_cli.encoding import encode, encode_all
from amoro_cli.output import Document, Grid, Pairs
from amoro_cli.quantities import format_bytes, format_count, format_time

if TYPE_CHECKING:
    from amoro_core.protocol import admin_pb2 as pb

_NUMBERS = frozenset({"HEALTH", "FILES", "SIZE", "SMALL", "DELETES"})


def table_list(tables: "Sequence[pb.Table]") -> Document:
    """Schema amoro.tables/v1: `tables`."""
    if not tables:
        nothing = "No tables. Add a catalog with: amoro catalog add NAME key=value …"
        return Document("amoro.tables/v1", {"tables": []}, (), (nothing,))
    grid = Grid(
        ("TABLE", "STATUS", "OPTIMIZED", "HEALTH", "FILES", "SIZE", "SMALL", "DELETES", "LAST OPTIMIZED"),
        tuple(_row(table) for table in tables),
        _NUMBERS,
    )
    names = tuple(table.table for table in tables)
    return Document("amoro.tables/v1", {"tables": encode_all(tables)}, names, (grid,))


def table_detail(table: "pb.Table") -> Document:
    """Schema amoro.table/v1: the fields of the table."""
    files = table.files
    status = f"{table.status} since {format_time(table.status_since_ms)}" if table.status_since_ms else table.status
    pairs = (
        ("table", table.table),
        ("status", f"{status}: {table.status_reason}" if table.status_reason else status),
        ("optimized", _enabled(table)),
        ("health", health(table.health_score)),
        ("snapshot", str(table.snapshot_id) if table.snapshot_id else "none yet"),
        ("files", f"{format_count(files.data_files)}, {format_bytes(files.data_bytes)}"),
        ("small", f"{format_count(files.fragment_files)} fragments, {format_count(files.undersized_files)} undersized"),
        ("deletes", _deletes(table)),
        ("records", f"{format_count(files.records)}, deletes not subtracted"),
        ("group", table.group),
        ("last optimized", format_time(table.last_optimized_ms)),
        *((("next try", format_time(table.retry_at_ms)),) if table.retry_at_ms else ()),
        *((("process", table.process_id),) if table.process_id else ()),
        ("evaluated", format_time(table.evaluated_ms)),
        ("format", f"Iceberg, version {table.format_version}"),
        ("location", table.location),
        ("uuid", table.table_uuid),
    )
    return Document("amoro.table/v1", encode(table), (table.table,), (Pairs(pairs),))


def health(score: int) -> str:
    return f"{score}/100" if score >= 0 else "not evaluated yet"


def _row(table: "pb.Table") -> tuple[str, ...]:
    files = table.files
    known = table.health_score >= 0
    return (
        table.table,
        table.status,
        "yes" if table.enabled else "no",
        str(table.health_score) if known else "-",
        format_count(files.data_files) if known else "-",
        format_bytes(files.data_bytes) if known else "-",
        format_count(files.fragment_files + files.undersized_files) if known else "-",
        format_count(files.equality_delete_files + files.position_delete_files) if known else "-",
        format_time(table.last_optimized_ms),
    )


def _enabled(table: "pb.Table") -> str:
    word = "yes" if table.enabled else "no"
    return f"{word}: {table.enabled_origin}" if table.enabled_origin else word


def _deletes(table: "pb.Table") -> str:
    files = table.files
    dangling = f", {format_count(files.dangling_delete_files)} dangling" if files.dangling_delete_files else ""
    return (
        f"{format_count(files.equality_delete_files)} equality, {format_count(files.position_delete_files)} position, "
        f"{format_bytes(files.delete_bytes)}{dangling}"
    )
