"""Another engine: catalogs, tables and commits as Flink, Spark and others make them, beside a live optimizer too.

Every operation loads the head anew, commits by compare-and-set and tries again after a conflict. The given table
is refreshed. Operations return the new snapshot, or None where there was nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotsUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)

from tests.engine import oracle
from tests.engine.commits import ATTEMPTS, MAIN, Change, commit, moved_ref
from tests.engine.files import (
    PLAIN,
    Layout,
    Records,
    partition_of,
    stored_partition,
    write_data_files,
    write_equality_deletes,
    write_position_deletes,
)
from tests.engine.values import canonical, path_in_history, value_at
from tests.engine.writer3 import raw_row, upgrade

Predicate = Callable[[Mapping[str, Any]], bool]
Key = Sequence[str | int]


@dataclass(frozen=True, slots=True)
class EqualityDelete:
    """Keys to delete: under the current spec unless another is named, in one partition or in those of the rows.

    `key` names columns (`a.b` within a struct) or field ids; `rows` may have more columns, as they tell the partition.
    A partition is a tuple in Iceberg's stored form (days, microseconds, bytes).
    """

    key: Key
    rows: Records | pa.Table
    partition: tuple[Any, ...] | None = None
    spec_id: int | None = None


def make_catalog(tmp_path: Path, name: str = "cat") -> SqlCatalog:
    """A catalog in `catalog.db` of the directory, with its warehouse beside it; a second call opens the same one."""
    warehouse = tmp_path / "warehouse"
    warehouse.mkdir(parents=True, exist_ok=True)
    # The timeout keeps a busy database from failing a test on a slow machine.
    uri = f"sqlite:///{tmp_path / 'catalog.db'}?timeout=60"
    return SqlCatalog(name, uri=uri, warehouse=warehouse.as_uri())


def make_table(
    catalog: Catalog,
    identifier: str | tuple[str, ...],
    schema: Schema | pa.Schema,
    partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    format_version: int = 2,
    properties: Mapping[str, str] | None = None,
    location: str | None = None,
) -> Table:
    """A new table, its namespace made if need be. The catalog numbers the fields anew: take ids from the table."""
    with suppress(NamespaceAlreadyExistsError):
        catalog.create_namespace(Catalog.namespace_from(identifier))
    every = {"format-version": str(min(format_version, 2)), **(properties or {})}
    table = catalog.create_table(identifier, schema, location, partition_spec, properties=every)
    return table if format_version < 3 else upgrade(table)


def unpartitioned_spec_id(table: Table) -> int:
    """The newest spec without partition fields, whose equality deletes are global; raises ValueError without one."""
    found = [spec_id for spec_id, spec in table.specs().items() if oracle.is_unpartitioned(spec)]
    if not found:
        raise ValueError("the table never had an unpartitioned spec")
    return max(found)


def append(
    table: Table,
    rows: Records | pa.Table,
    files: int = 1,
    *,
    layout: Layout = PLAIN,
    branch: str = MAIN,
    summary: Mapping[str, str] | None = None,
) -> Snapshot | None:
    """Append the rows as up to so many data files for each partition they fall into."""
    table.refresh()
    added = tuple(write_data_files(table, rows, files, layout))
    return commit(table, lambda head: Change(added, summary=summary or {}) if added else None, branch)


def row_delta(
    table: Table,
    appends: Records | pa.Table = (),
    equality_deletes: Iterable[EqualityDelete | tuple[Any, ...]] = (),
    position_deletes: Iterable[tuple[str, Sequence[int]]] = (),
    *,
    per_file: bool = False,
    sort: bool = True,
) -> Snapshot | None:
    """Add data and deletes in one snapshot, so with one sequence number.

    Position deletes are written as one file for each partition, or `per_file` one for each data file, in the order
    given unless sorted. Raises ValueError where a data file to be deleted from is not live (any more).
    """
    table.refresh()
    added = write_data_files(table, appends)
    for one in equality_deletes:
        added += _equality_files(table, one if isinstance(one, EqualityDelete) else EqualityDelete(*one))
    wanted = [(path, position) for path, positions in position_deletes for position in positions]

    def build(head: Table) -> Change | None:
        every = (*added, *_position_files(head, wanted, per_file, sort))
        return Change(every) if every else None

    return commit(table, build)


def upsert(table: Table, rows: Records | pa.Table, key: Key, *, branch: str = MAIN) -> Snapshot | None:
    """Write the rows and delete, by equality, what had their keys in the partitions they fall into.

    A row with the same key in another partition stays, as with Flink. Where one key comes several times the last row
    wins: the earlier ones are written too and deleted by position in the same snapshot, as Flink does.
    """
    table.refresh()
    if not len(rows):
        return None
    records = rows.to_pylist() if isinstance(rows, pa.Table) else rows
    last, superseded = _split_superseded(table, records, key)
    added = write_data_files(table, last)
    for file in write_data_files(table, superseded):
        deletes = [(file.file_path, position) for position in range(file.record_count)]
        partition = tuple(file.partition[at] for at in range(len(file.partition)))
        added += [file, write_position_deletes(table, file.spec_id, partition, deletes)]
    added += _equality_files(table, EqualityDelete(key, records))
    return commit(table, lambda head: Change(tuple(added)), branch)


def delete_where(
    table: Table, predicate: Predicate, *, per_file: bool = False, with_bounds: bool = True, with_rows: bool = False
) -> Snapshot | None:
    """Delete by position the live rows for which the predicate of a dictionary holds, seen on the head committed on.

    The delete files may hold the deleted rows, too, in their optional column `row`.
    """

    def build(head: Table) -> Change | None:
        live = oracle.rows_in(head.metadata, _head_of(head.metadata))
        wanted = {(one.path, one.position): one.record for one in live if predicate(one.record)}
        rows = wanted if with_rows else None
        files = _position_files(head, list(wanted), per_file, True, with_bounds, rows)
        return Change(tuple(files)) if files else None

    return commit(table, build)


def copy_on_write(
    table: Table, predicate: Predicate, update: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
) -> Snapshot | None:
    """Rewrite the data files that hold matching live rows, without those rows or with their updated versions.

    Rows that were deleted before stay deleted; delete files are left as they are and may dangle. The new files have
    the current schema and spec and the snapshot's own sequence number.
    """

    def build(head: Table) -> Change | None:
        live = oracle.rows_in(head.metadata, _head_of(head.metadata))
        touched = {one.path for one in live if predicate(one.record)}
        added: list[DataFile] = []
        for _, group in groupby((one for one in live if one.path in touched), key=lambda one: one.path):
            kept = [row for one in group if (row := _after(one.record, predicate, update)) is not None]
            added += write_data_files(head, kept)
        return Change(tuple(added), frozenset(touched)) if touched else None

    return commit(table, build)


def _after(
    record: Mapping[str, Any], predicate: Predicate, update: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None
) -> Mapping[str, Any] | None:
    if not predicate(record):
        return record
    return update(record) if update else None


def remove_files(table: Table, paths: Iterable[str]) -> Snapshot | None:
    """Remove live files, data or deletes, from the table's metadata; raises ValueError where one is not live."""
    gone = frozenset(paths)
    return commit(table, lambda head: Change(removed_paths=gone) if gone else None)


def compact_position_deletes(
    table: Table, *, per_file: bool = False, without: Predicate | None = None
) -> Snapshot | None:
    """Replace all live position delete files by others, one for each partition or data file, as Spark's procedure does.

    Rows for which `without` holds are live again afterwards.
    """

    def build(head: Table) -> Change | None:
        files = oracle.files_in(head.metadata, _head_of(head.metadata))
        old = frozenset(file.path for file in files if file.content == oracle.POSITION_DELETES)
        deleted = deleted_by_position(head)
        wanted = [place for place, record in deleted.items() if without is None or not without(record)]
        return Change(tuple(_position_files(head, wanted, per_file, True)), old) if old else None

    return commit(table, build, MAIN)


def deleted_by_position(table: Table) -> dict[tuple[str, int], dict[str, Any]]:
    """The rows that position deletes of main hide, as they stand in their live data files, by path and position."""
    files = oracle.files_in(table.metadata, _head_of(table.metadata))
    live = {file.path for file in files if file.content == oracle.DATA}
    paths = sorted(file.path for file in files if file.content == oracle.POSITION_DELETES)
    read = [pq.read_table(path.removeprefix("file://"), columns=["file_path", "pos"]).to_pylist() for path in paths]
    places = {(one["file_path"], one["pos"]) for rows in read for one in rows if one["file_path"] in live}
    return {place: raw_row(*place) for place in sorted(places)}


def expire_snapshots(table: Table, snapshot_ids: Iterable[int] | None = None) -> list[int]:
    """Remove snapshots from the metadata, all but the refs' heads by default; returns their ids. No file is deleted."""
    chosen = None if snapshot_ids is None else sorted(snapshot_ids)

    def build(metadata: TableMetadata) -> tuple[TableUpdate, ...]:
        return (RemoveSnapshotsUpdate(snapshot_ids=ids),) if (ids := _expired(metadata, chosen)) else ()

    before = {snapshot.snapshot_id for snapshot in table.refresh().metadata.snapshots}
    _update_refs(table, build)
    return sorted(before - {snapshot.snapshot_id for snapshot in table.metadata.snapshots})


def _expired(metadata: TableMetadata, chosen: list[int] | None) -> list[int]:
    heads = {ref.snapshot_id for ref in metadata.refs.values()}
    if chosen is not None and (kept := heads.intersection(chosen)):
        raise ValueError(f"heads of refs can't be expired: {sorted(kept)}")
    if chosen is not None:
        return chosen
    return [one.snapshot_id for one in metadata.snapshots if one.snapshot_id not in heads]


def create_tag(table: Table, name: str, snapshot_id: int | None = None, max_ref_age_ms: int | None = None) -> None:
    """Name a snapshot, main's head by default."""
    _create_ref(table, name, SnapshotRefType.TAG, snapshot_id, max_ref_age_ms=max_ref_age_ms)


def create_branch(table: Table, name: str, snapshot_id: int | None = None, **retention: int) -> None:
    """Start a branch at a snapshot, main's head by default; retention by the names of `SetSnapshotRefUpdate`."""
    _create_ref(table, name, SnapshotRefType.BRANCH, snapshot_id, **retention)


def rollback(table: Table, snapshot_id: int) -> None:
    """Set main back to a snapshot; its retention stays."""
    _update_refs(table, lambda metadata: (moved_ref(MAIN, metadata.refs.get(MAIN), snapshot_id),))


def _create_ref(
    table: Table, name: str, kind: SnapshotRefType, snapshot_id: int | None, **retention: int | None
) -> None:
    def build(metadata: TableMetadata) -> tuple[TableUpdate, ...]:
        target = metadata.refs[MAIN].snapshot_id if snapshot_id is None else snapshot_id
        return (SetSnapshotRefUpdate(ref_name=name, type=kind, snapshot_id=target, **retention),)

    _update_refs(table, build)


def _update_refs(table: Table, build: Callable[[TableMetadata], tuple[TableUpdate, ...]]) -> None:
    """Commit updates of refs and snapshots, on condition that no ref moved meanwhile."""
    for attempt in range(1, ATTEMPTS + 1):
        head = table.catalog.load_table(table.name())
        metadata = head.metadata
        refs = (AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id) for name, ref in metadata.refs.items())
        if not (updates := build(metadata)):
            return
        try:
            table.catalog.commit_table(head, (AssertTableUUID(uuid=metadata.table_uuid), *refs), updates)
        except CommitFailedException:
            if attempt == ATTEMPTS:
                raise
            continue
        table.refresh()
        return


def _equality_files(table: Table, delete: EqualityDelete) -> list[DataFile]:
    ids = [table.schema().find_field(part).field_id for part in delete.key]
    spec_id = table.metadata.default_spec_id if delete.spec_id is None else delete.spec_id
    spec, partition = table.specs()[spec_id], delete.partition
    if partition == () and oracle.is_unpartitioned(spec):
        partition = (None,) * len(spec.fields)  # all of them void
    return write_equality_deletes(table, ids, delete.rows, partition, spec_id)


def _position_files(
    table: Table,
    wanted: Sequence[tuple[str, int]],
    per_file: bool,
    sort: bool,
    with_bounds: bool = True,
    rows: Mapping[tuple[str, int], Any] | None = None,
) -> list[DataFile]:
    """One delete file for each partition of the data files, or for each of them."""
    files = oracle.files_in(table.metadata, _head_of(table.metadata))
    homes = {file.path: file for file in files if file.content == oracle.DATA}
    if missing := {path for path, _ in wanted} - homes.keys():
        raise ValueError(f"data files to delete from are not live: {sorted(missing)}")
    groups: dict[Any, list[tuple[str, int]]] = {}
    for path, position in sorted(wanted) if sort else wanted:
        home = homes[path]
        groups.setdefault(path if per_file else (home.spec_id, home.partition), []).append((path, position))
    done = []
    for deletes in groups.values():
        home = homes[deletes[0][0]]
        partition = stored_partition(table.metadata, home.spec_id, home.partition)
        done.append(write_position_deletes(table, home.spec_id, partition, deletes, with_bounds, rows))
    return done


def _split_superseded(table: Table, records: Records, key: Key) -> tuple[Records, Records]:
    """The last row of each key within a partition, and the rows before them; both in their order."""
    metadata = table.metadata
    paths = [path_in_history(metadata, table.schema().find_field(part).field_id) for part in key]
    keys = [
        (
            repr(partition_of(metadata, table.spec(), record)),
            tuple(canonical(path[-1].field_type, value_at(record, path)) for path in paths),
        )
        for record in records
    ]
    newest = {one: at for at, one in enumerate(keys)}
    last = [record for at, record in enumerate(records) if newest[keys[at]] == at]
    return last, [record for at, record in enumerate(records) if newest[keys[at]] != at]


def _head_of(metadata: TableMetadata) -> int | None:
    """Main's head; None before its first snapshot."""
    ref = metadata.refs.get(MAIN)
    return None if ref is None else ref.snapshot_id
