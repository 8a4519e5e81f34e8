"""A rewrite made by simple means, for tests of commits: planned by hand, rows taken from the slow reader."""

import uuid
from collections.abc import Collection
from pathlib import Path

import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from amoro_core.iceberg.commit import committing, rewrite_files
from amoro_core.iceberg.commit.validation_history import read_head
from amoro_core.iceberg.manifest.manifest_cache import ManifestReader
from amoro_core.iceberg.manifest.reading import read_manifest
from amoro_core.iceberg.metadata import context, data_location, equality_ids, read_locations
from amoro_core.iceberg.scan import scan
from amoro_core.model.commits import Group, Head, PlanRecord, StagedCommit, Validation
from amoro_core.model.files import ColumnMetrics, DataFile, DeleteFile, DeleteKind, FileFormat, ScannedFile, TableScan
from amoro_core.model.location_policy import Grant
from amoro_core.model.tables import TableIdentifier
from amoro_core.model.task_payload import InputFile, RewriteInput, RewriteOutput
from amoro_core.validation import validate
from amoro_core.validation.view import build_view
from tests.engine import oracle
from tests.engine.files import FULL_METRICS, POSITION_SCHEMA, Records, file_statistics, to_arrow
from tests.engine.parquet_rows import local_path

PROCESS = "0197c0de"


def scanned(table: Table, read: ManifestReader = read_manifest) -> TableScan:
    """The scan of the table as it was loaded, which has a snapshot."""
    found = scan(table, read_locations(table.metadata, Grant((table.metadata.location,))), read)
    assert found is not None
    return found


def loaded(table: Table) -> Table:
    """The table as it is now, as another object."""
    return table.catalog.load_table(table.name())


def head_of(table: Table, planned_snapshot_id: int) -> Head:
    """The table's head as it is now."""
    return read_head(loaded(table), planned_snapshot_id, scanned)


def rewritten(table: Table, converted: Collection[str] = (), only: Collection[str] | None = None) -> PlanRecord:
    """Plan the table's head with one task for each partition, and rewrite the files (all, or only some paths)."""
    fresh = loaded(table)
    found = scanned(fresh)
    places: dict[object, list[ScannedFile]] = {}
    for file in found.files:
        if only is None or file.data.path in (*only, *converted):
            places.setdefault((file.data.spec_id, file.data.partition), []).append(file)
    groups = [_group(fresh, found, at, files, converted) for at, files in enumerate(places.values(), 1)]
    return PlanRecord(
        process_id=PROCESS,
        table_uuid=str(fresh.metadata.table_uuid),
        format_version=fresh.metadata.format_version,
        snapshot_id=found.snapshot_id,
        sequence_number=found.sequence_number,
        last_column_id=fresh.metadata.last_column_id,
        groups=tuple(groups),
    )


def _group(table: Table, found: TableScan, number: int, files: list[ScannedFile], converted: Collection[str]) -> Group:
    spec_id, sequence = files[0].data.spec_id, found.sequence_number
    deletes = tuple(dict.fromkeys(delete for file in files for delete in file.deletes))

    def inputs(are_converted: bool) -> tuple[InputFile, ...]:
        return tuple(
            InputFile(file.data, tuple(deletes.index(delete) for delete in file.deletes))
            for file in files
            if (file.data.path in converted) == are_converted
        )

    identifier = TableIdentifier("cat", table.name()[:-1], table.name()[-1])
    readable = read_locations(table.metadata, Grant((table.metadata.location,)))
    about = context(table, identifier, spec_id, equality_ids(found), readable)
    work = RewriteInput(about, inputs(False), inputs(True), deletes, sequence, 2**27, 1)
    live = oracle.rows_in(table.metadata, found.snapshot_id)
    sources = {given.data.path for given in work.rewritten}
    rows = [one.record for one in live if one.path in sources]
    read = sum(given.data.record_count for given in work.rewritten)
    data = (write_data(table, files[0].data, sequence, number, rows),) if rows else ()
    new_deletes = []
    for given in work.converted:
        kept = {one.position for one in live if one.path == given.data.path}
        if gone := sorted(set(range(given.data.record_count)) - kept):
            new_deletes.append(write_positions(table, given.data, sequence, number, gone))
    positions = sum(one.record_count for one in new_deletes)
    return Group(
        number, work, RewriteOutput(data, tuple(new_deletes), read, read - len(rows), len(rows), positions, 0, 0, 0)
    )


def write_data(table: Table, like: DataFile, sequence_number: int, number: int, rows: Records) -> DataFile:
    """Write the rows as one data file in the partition of another."""
    path, size, metrics, offsets = _write(table, number, table.schema(), rows)
    return DataFile(
        path,
        FileFormat.PARQUET,
        like.spec_id,
        like.partition,
        len(rows),
        size,
        sequence_number,
        metrics,
        split_offsets=offsets,
    )


def write_positions(
    table: Table, target: DataFile, sequence_number: int, number: int, positions: list[int]
) -> DeleteFile:
    """Write a position delete file for one data file."""
    rows = [{"file_path": target.path, "pos": position} for position in positions]
    path, size, metrics, offsets = _write(table, number, POSITION_SCHEMA, rows)
    return DeleteFile(
        path,
        DeleteKind.POSITION,
        FileFormat.PARQUET,
        target.spec_id,
        target.partition,
        len(rows),
        size,
        sequence_number,
        referenced_data_file=target.path,
        metrics=metrics,
        split_offsets=offsets,
    )


def _write(table: Table, number: int, schema: Schema, rows: Records) -> tuple[str, int, ColumnMetrics, tuple[int, ...]]:
    path = f"{data_location(table.metadata)}/{PROCESS}-{number}-1-{uuid.uuid4()}.parquet"
    arrow = to_arrow(schema, rows)
    local = Path(local_path(path))
    pq.write_table(arrow, local, store_schema=False, store_decimal_as_integer=True)
    found = file_statistics(pq.read_metadata(local), schema, FULL_METRICS, arrow)
    kinds = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
    metrics = ColumnMetrics(**{kind: dict(found[kind]) for kind in kinds})
    return path, local.stat().st_size, metrics, tuple(found["split_offsets"])


def staged(table: Table, record: PlanRecord) -> tuple[Table, StagedCommit]:
    """The rewrite validated and staged on the head as it is now; the table it was staged on goes along."""
    fresh = loaded(table)
    head = read_head(fresh, record.snapshot_id, scanned)
    done = validate(build_view(record, head))
    assert done.conflict is None, done.conflict
    assert done.content is not None, done.dropped
    return fresh, rewrite_files.stage(fresh, head, done.content, {"amoro.process-id": record.process_id})


def optimized(table: Table, record: PlanRecord) -> Validation:
    """Validate the rewrite on the head as it is now and commit what may be; returns the verdict."""
    fresh = loaded(table)
    head = read_head(fresh, record.snapshot_id, scanned)
    done = validate(build_view(record, head))
    if done.content is not None:
        attempt = rewrite_files.stage(fresh, head, done.content, {"amoro.process-id": record.process_id})
        committing.send(fresh.catalog, fresh, attempt.payload)
    return done
