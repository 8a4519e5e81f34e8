"""Tables to be optimized, and what must hold of them afterwards."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from amoro_core.model.processes import CatalogConfig
from tests.acceptance.processes import wait_until
from tests.engine import oracle, writer
from tests.engine.builders import BY_PART, SCHEMA, by_content, row
from tests.engine.parquet_rows import local_path
from tests.engine.values import Row

_NUMBERS = itertools.count(1)
PARTS = ("a", "b", "c")
#: Two small files are work.
EAGER = {"self-optimizing.minor.trigger.file-count": "2"}


@dataclass(frozen=True, slots=True)
class Seen:
    """What another reader sees of a table."""

    rows: Counter[Row]
    snapshots: int
    files: Mapping[int, int]  # by content
    size_bytes: int
    snapshot_id: int | None


def config_of(catalog: SqlCatalog) -> CatalogConfig:
    """How coordinators know the catalog."""
    return CatalogConfig(catalog.name, tuple({**catalog.properties, "type": "sql"}.items()))


def name_of(table: Table, catalog: str = "cat") -> str:
    return ".".join((catalog, *table.name()))


def messy_table(catalog: Catalog, properties: Mapping[str, str] | None = None, *, name: str = "") -> Table:
    """Six small files with two equality deletes and a position delete: 59 rows in one partition."""
    table = writer.make_table(catalog, name or _new_name(), SCHEMA, properties=properties)
    for first in range(0, 60, 10):
        writer.append(table, [row(first + number) for number in range(10)])
    writer.upsert(table, [row(3), row(25)], ["id"])
    writer.delete_where(table, lambda record: record["id"] == 41)
    return table


def small_table(catalog: Catalog, properties: Mapping[str, str] | None = None) -> Table:
    """Three small files in one partition."""
    table = writer.make_table(catalog, _new_name(), SCHEMA, properties=properties)
    for first in (0, 10, 20):
        writer.append(table, [row(first + number) for number in range(10)])
    return table


def partitioned_table(catalog: Catalog, properties: Mapping[str, str] | None = None) -> Table:
    """Three partitions, each with three small files and deletes: a task for each of them."""
    table = writer.make_table(catalog, _new_name(), SCHEMA, BY_PART, properties=properties)
    for first in (0, 10, 20):
        writer.append(table, [row(first + number, part) for number in range(10) for part in PARTS])
    writer.upsert(table, [row(3, part, "new") for part in PARTS], ["id"])
    writer.delete_where(table, lambda record: record["id"] == 21)
    return table


def look(table: Table) -> Seen:
    """The table as it is now, by the slow reader."""
    table.refresh()
    return Seen(
        rows=oracle.live_rows(table),
        snapshots=len(table.metadata.snapshots),
        files=by_content(table),
        size_bytes=sum(file.file_size_bytes for file in oracle.live_files(table)),
        snapshot_id=table.metadata.current_snapshot_id,
    )


def assert_optimized_once(table: Table, before: Seen, files: int = 1) -> Seen:
    """Fail unless one snapshot came, with the same rows in that many data files and no delete; returns what is seen."""
    after = look(table)
    oracle.assert_same_rows(before.rows, after.rows)
    assert (after.snapshots, after.files) == (before.snapshots + 1, {oracle.DATA: files})
    head = table.current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert (head.parent_snapshot_id, head.summary.operation.value) == (before.snapshot_id, "replace")
    assert head.summary["snapshot.producer"] == "OPTIMIZE"
    return after


def is_optimized(table: Table) -> bool:
    """Whether the head is a commit of ours."""
    head = table.refresh().current_snapshot()
    return head is not None and head.summary is not None and head.summary.get("snapshot.producer") == "OPTIMIZE"


def unreferenced_files(table: Table) -> set[str]:
    """Names of files in the table's data directory that no snapshot refers to."""
    metadata = table.refresh().metadata
    known = {
        Path(local_path(entry.data_file.file_path))
        for snapshot in metadata.snapshots
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
    }
    data = Path(local_path(metadata.location), "data")
    return {path.name for path in data.rglob("*") if path.is_file() and path not in known}


def assert_nothing_is_left(table: Table) -> None:
    """What a process wrote beside its outputs is removed once it has ended, which is after its commit."""
    wait_until(lambda: not unreferenced_files(table), "no file is left over", 120.0)


def _new_name() -> str:
    return f"db.t{next(_NUMBERS):03}"  # in the order of their names, and none part of another
