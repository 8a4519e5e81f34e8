"""Tables and their health."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from amoro_cli.encoding import encode, encode_all
from amoro_cli.output import Document, Grid, Pairs
from amoro_cli.quantities import format_bytes, format_count, format_time
from amoro_cli.views.blockers import blocked
from amoro_core.model.commits import PROCESS_ID

if TYPE_CHECKING:
    from amoro_core.protocol import admin_pb2 as pb

_NUMBERS = frozenset({"HEALTH", "FILES", "SIZE", "SMALL", "DELETES"})


def table_list(tables: "Sequence[pb.Table]") -> Document:
    """Schema amoro.tables/v1: `tables`."""
    if not tables:
        nothing = (
            "No tables are known. `amoro up` finds those of all catalogs; `amoro catalog list` shows these, "
            "`amoro catalog add` adds one."
        )
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
        *blocked(table.blockers),
        ("health", health(table.health_score)),
        *_health_parts(table),
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


def table_health(answer: "pb.TableHealth") -> Document:
    """Schema amoro.health/v1: `table`, `health_score`, the points of its three parts, `files`, `reason`."""
    files = answer.files
    small = f"{format_count(files.fragment_files)} fragments, {format_count(files.undersized_files)} undersized"
    pairs = (
        ("table", answer.table),
        ("health", health(answer.health_score)),
        ("small files", f"{answer.small_files}/40: {small} of {format_count(files.data_files)} files"),
        ("equality deletes", f"{answer.equality_deletes}/40: {format_count(files.equality_delete_files)} files"),
        ("position deletes", f"{answer.position_deletes}/20: {format_count(files.position_delete_files)} files"),
        ("evaluation", answer.reason),
    )
    return Document("amoro.health/v1", encode(answer), (answer.table,), (Pairs(pairs),))


def table_files(table: str, answer: "pb.ListTableFilesResponse") -> Document:
    """Schema amoro.files/v1: `table`, `files`, `total`, `snapshot_id`. The names are paths."""
    body = {"table": table, **encode(answer)}
    names = tuple(file.path for file in answer.files)
    if not answer.files:
        return Document("amoro.files/v1", body, names, ("No files.",))
    grid = Grid(
        ("PARTITION", "CONTENT", "RECORDS", "SIZE", "SEQUENCE", "DELETES", "PATH"),
        tuple(_file(file) for file in answer.files),
        frozenset({"RECORDS", "SIZE", "SEQUENCE", "DELETES"}),
    )
    left = answer.total - len(answer.files)
    rest = (f"and {format_count(left)} more: see --limit",) if left else ()
    return Document("amoro.files/v1", body, names, (grid, *rest))


def table_snapshots(table: str, answer: "pb.ListSnapshotsResponse") -> Document:
    """Schema amoro.snapshots/v1: `table`, `snapshots`, `total`. The names are snapshot ids."""
    body = {"table": table, **encode(answer)}
    names = tuple(str(snapshot.snapshot_id) for snapshot in answer.snapshots)
    if not answer.snapshots:
        return Document("amoro.snapshots/v1", body, names, ("No snapshots.",))
    grid = Grid(
        ("SNAPSHOT", "PARENT", "SEQUENCE", "COMMITTED", "OPERATION", "REFS", "PROCESS"),
        tuple(
            (
                str(item.snapshot_id),
                str(item.parent_snapshot_id or "-"),
                str(item.sequence_number),
                format_time(item.committed_ms),
                item.operation or "-",
                ", ".join(item.refs) or "-",
                item.summary.get(PROCESS_ID, "-"),
            )
            for item in answer.snapshots
        ),
        frozenset({"SNAPSHOT", "PARENT", "SEQUENCE"}),
    )
    left = answer.total - len(answer.snapshots)
    rest = (f"and {format_count(left)} more: see --limit",) if left else ()
    return Document("amoro.snapshots/v1", body, names, (grid, *rest))


def _file(file: "pb.TableFile") -> tuple[str, ...]:
    return (
        file.partition or "-",
        f"{file.content}, dangling" if file.dangling else file.content,
        format_count(file.records),
        format_bytes(file.bytes),
        str(file.sequence_number),
        format_count(file.deletes) if file.content == "data" else "-",
        file.path,
    )


def _health_parts(table: "pb.Table") -> "tuple[tuple[str, str], ...]":
    if not table.HasField("health_parts"):
        return ()
    parts = table.health_parts
    points = f"small files {parts.small_files}/40, equality deletes {parts.equality_deletes}/40"
    return (("health parts", f"{points}, position deletes {parts.position_deletes}/20"),)


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
