"""Statistics files, and the commit that adds them to the metadata."""

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from amoro_core.errors import CommitConflict
from amoro_core.files.io import FileAccess, translated
from amoro_core.files.puffin import NDV, THETA, Blob, PuffinFile, puffin_of
from amoro_core.iceberg.caching import ManifestReader
from amoro_core.iceberg.manifests import read_manifest
from amoro_core.iceberg.metadata import metadata_location
from amoro_core.iceberg.partition_statistics import count_partitions, is_partitioned, partitions_table
from amoro_core.model.statistics import ColumnSketch, KnownStatistics, StagedStatistics, StatisticsEntry

_COUNTED = (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)


def known_statistics(metadata: TableMetadata) -> KnownStatistics:
    """The statistics in the metadata."""
    return KnownStatistics(
        tuple(_entry(one) for one in metadata.statistics),
        tuple(_partition_entry(one) for one in metadata.partition_statistics),
    )


def _entry(one: StatisticsFile) -> StatisticsEntry:
    ndv = (
        field_id
        for blob in one.blob_metadata
        if blob.type == THETA and len(blob.fields) == 1
        for field_id in blob.fields
    )
    return StatisticsEntry(one.snapshot_id, one.statistics_path, one.file_size_in_bytes, frozenset(ndv))


def _partition_entry(one: PartitionStatisticsFile) -> StatisticsEntry:
    return StatisticsEntry(one.snapshot_id, one.statistics_path, one.file_size_in_bytes)


def distinct_values(metadata: TableMetadata) -> dict[int, int]:
    """About how many values columns have, by field id, as the statistics of the newest snapshots that have any tell."""
    order = {one.snapshot_id: one.sequence_number or 0 for one in metadata.snapshots}
    found: dict[int, int] = {}
    for one in sorted(metadata.statistics, key=lambda one: order.get(one.snapshot_id, -1)):
        for blob in one.blob_metadata:
            told = (blob.properties or {}).get(NDV, "")
            if blob.type == THETA and len(blob.fields) == 1 and told.isascii() and told.isdigit() and len(told) < 19:
                found[blob.fields[0]] = int(told)
    return found


def countable_columns(schema: Schema) -> dict[str, int]:
    """The ids of the top-level columns whose distinct values can be counted, by name."""
    return {field.name: field.field_id for field in schema.fields if isinstance(field.field_type, _COUNTED)}


@dataclass(slots=True)
class _Staging:
    """The files of one commit being written."""

    metadata: TableMetadata
    access: FileAccess
    written: list[str] = field(default_factory=list)

    def create(self, name: str, content: bytes) -> str:
        path = f"{metadata_location(self.metadata)}/{name}"
        # Before the first byte, so that a partly written file is cleaned up too.
        self.written.append(path)
        with translated(path), self.access.create_output(path) as stream:
            stream.write(content)
        return path

    def discard(self) -> None:
        for path in self.written:
            with suppress(Exception):  # the error of staging matters more
                self.access.delete(path)


def stage_statistics(
    table: Table,
    access: FileAccess,
    snapshot_id: int,
    sketches: Sequence[ColumnSketch],
    *,
    partitions: bool,
    read: ManifestReader = read_manifest,
) -> StagedStatistics:
    """Write a Puffin file of the sketches and, with `partitions`, a Parquet file of the snapshot's partitions.

    For the table as just loaded. Nothing references the files before the payload is sent, which also removes the
    entries of snapshots that are gone; on failure the files written are deleted. Raises CommitConflict when the
    snapshot is gone, ValueError when there is nothing to write, and errors of reading manifests and of writing.
    """
    metadata = table.metadata
    snapshot = metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise CommitConflict(f"snapshot {snapshot_id} is not in the table any more")
    staging = _Staging(metadata, access)
    try:
        return _stage(staging, table, snapshot, sketches, partitions and is_partitioned(metadata), read)
    except BaseException:
        staging.discard()
        raise


def _stage(
    staging: _Staging,
    table: Table,
    snapshot: Snapshot,
    sketches: Sequence[ColumnSketch],
    partitions: bool,
    read: ManifestReader,
) -> StagedStatistics:
    updates, written, count = _removals(table.metadata), list[StatisticsEntry](), 0
    if sketches:
        puffin = _puffin(snapshot, sketches)
        path = staging.create(f"{snapshot.snapshot_id}-{uuid.uuid4()}.stats", puffin.content)
        fields = frozenset(one.field_id for one in sketches)
        written.append(StatisticsEntry(snapshot.snapshot_id, path, len(puffin.content), fields))
        updates.append({"action": "set-statistics", "statistics": _described(snapshot, path, puffin, sketches)})
    if partitions:
        rows = partitions_table(table.metadata, count_partitions(table, snapshot, read))
        content, count = _parquet(rows), rows.num_rows
        path = staging.create(f"partition-stats-{snapshot.snapshot_id}-{uuid.uuid4()}.parquet", content)
        written.append(StatisticsEntry(snapshot.snapshot_id, path, len(content)))
        updates.append(
            {"action": "set-partition-statistics", "partition-statistics": _named(snapshot, path, len(content))}
        )
    if not written:
        raise ValueError("no statistics to be staged")
    requirement = {"type": "assert-table-uuid", "uuid": str(table.metadata.table_uuid)}
    request = {"requirements": [requirement], "updates": updates}
    payload = json.dumps(request, separators=(",", ":")).encode()
    return StagedStatistics(payload, tuple(written), count)


def stage_removal(table: Table, paths: Collection[str]) -> bytes:
    """The payload that removes these statistics files from the metadata of the table as just loaded.

    Raises CommitConflict when one is not referenced.
    """
    metadata, updates = table.metadata, list[dict[str, Any]]()
    left = set(paths)
    for action, entries in (
        ("remove-statistics", metadata.statistics),
        ("remove-partition-statistics", metadata.partition_statistics),
    ):
        for one in entries:
            if one.statistics_path in left:
                left.discard(one.statistics_path)
                updates.append({"action": action, "snapshot-id": one.snapshot_id})
    if left:
        raise CommitConflict(f"the table does not name the statistics {min(left)} any more")
    requirement = {"type": "assert-table-uuid", "uuid": str(metadata.table_uuid)}
    return json.dumps({"requirements": [requirement], "updates": updates}, separators=(",", ":")).encode()


def outdated(metadata: TableMetadata) -> tuple[StatisticsEntry, ...]:
    """The entries of snapshots that are gone."""
    known = {one.snapshot_id for one in metadata.snapshots}
    return tuple(one for one in known_statistics(metadata).every if one.snapshot_id not in known)


def _removals(metadata: TableMetadata) -> list[dict[str, Any]]:
    columns = {one.snapshot_id for one in metadata.statistics}
    partitions = {one.snapshot_id for one in metadata.partition_statistics}
    gone = {one.snapshot_id for one in outdated(metadata)}
    return [
        *({"action": "remove-statistics", "snapshot-id": one} for one in sorted(gone & columns)),
        *({"action": "remove-partition-statistics", "snapshot-id": one} for one in sorted(gone & partitions)),
    ]


def _puffin(snapshot: Snapshot, sketches: Sequence[ColumnSketch]) -> PuffinFile:
    number = snapshot.sequence_number or 0
    blobs = [
        Blob(THETA, (one.field_id,), snapshot.snapshot_id, number, one.payload, {NDV: str(one.ndv)}) for one in sketches
    ]
    return puffin_of(blobs, f"Amoro in Python {version('amoro')}")


def _named(snapshot: Snapshot, path: str, size_bytes: int) -> dict[str, Any]:
    return {"snapshot-id": snapshot.snapshot_id, "statistics-path": path, "file-size-in-bytes": size_bytes}


def _described(
    snapshot: Snapshot, path: str, puffin: PuffinFile, sketches: Sequence[ColumnSketch]
) -> Mapping[str, Any]:
    blobs = [
        {
            "type": THETA,
            "snapshot-id": snapshot.snapshot_id,
            "sequence-number": snapshot.sequence_number or 0,
            "fields": [one.field_id],
            "properties": {NDV: str(one.ndv)},
        }
        for one in sketches
    ]
    named = _named(snapshot, path, len(puffin.content))
    return {**named, "file-footer-size-in-bytes": puffin.footer_bytes, "blob-metadata": blobs}


def _parquet(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd", store_schema=False)
    return bytes(sink.getvalue())
