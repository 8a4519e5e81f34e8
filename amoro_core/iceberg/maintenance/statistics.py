"""Partition statistics and column sketches of a snapshot, and the commits that set or remove them.

Partition statistics have a row for each partition of each spec, as in the specification ("Partition Statistics") and as
Iceberg's Java library computes them from scratch; but the number of rows is null, too, where deletes of another spec
apply.
"""

import re
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFileContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.statistics import BlobMetadata, PartitionStatisticsFile, StatisticsFile
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import (
    FixedType,
    GeographyType,
    GeometryType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StructType,
    UnknownType,
    UUIDType,
)

from amoro_core.errors import CommitConflict
from amoro_core.files.deletes.vectors import NDV, THETA, Blob, PuffinFile, puffin_of
from amoro_core.files.schema.schemas import arrow_schema, values_array
from amoro_core.files.storage.io import FileAccess, translated
from amoro_core.iceberg.manifest.manifest_cache import ManifestReader
from amoro_core.iceberg.manifest.reading import (
    is_unpartitioned,
    partition_types,
    read_list,
    read_manifest,
    to_partition,
)
from amoro_core.iceberg.metadata import (
    Json,
    commit_request,
    metadata_location,
    snapshot_facts,
    statistics_paths,
    statistics_removals,
)
from amoro_core.model.commits import ColumnSketch, StagedStatistics, StatisticsEntries, StatisticsEntry
from amoro_core.model.files import Partition
from amoro_core.model.tables import ancestors

#: Field ids, names and types of the specification, after the partition (id 1); required ones first.
_REQUIRED = {
    "spec_id": (2, IntegerType()),
    "data_record_count": (3, LongType()),
    "data_file_count": (4, IntegerType()),
    "total_data_file_size_in_bytes": (5, LongType()),
}
_OPTIONAL = {
    "position_delete_record_count": (6, LongType()),
    "position_delete_file_count": (7, IntegerType()),
    "equality_delete_record_count": (8, LongType()),
    "equality_delete_file_count": (9, IntegerType()),
    "total_record_count": (10, LongType()),
    "last_updated_at": (11, LongType()),
    "last_updated_snapshot_id": (12, LongType()),
}


@dataclass(slots=True)
class PartitionRow:
    """One partition of one spec; names are the columns of the file."""

    spec_id: int
    data_record_count: int = 0
    data_file_count: int = 0
    total_data_file_size_in_bytes: int = 0
    position_delete_record_count: int = 0
    position_delete_file_count: int = 0
    equality_delete_record_count: int = 0
    equality_delete_file_count: int = 0
    total_record_count: int | None = None  # live rows; None if only reading the files could tell
    last_updated_at: int | None = None  # ms, of the snapshot; None: it has expired
    last_updated_snapshot_id: int | None = None

    def add(self, entry: ManifestEntry) -> None:
        """Count a live file."""
        file = entry.data_file
        match file.content:
            case DataFileContent.DATA:
                self.data_record_count += file.record_count
                self.data_file_count += 1
                self.total_data_file_size_in_bytes += file.file_size_in_bytes
            case DataFileContent.POSITION_DELETES:
                self.position_delete_record_count += file.record_count
                self.position_delete_file_count += 1
            case _:
                self.equality_delete_record_count += file.record_count
                self.equality_delete_file_count += 1

    def touched(self, snapshot: Snapshot | None) -> None:
        """Note that a snapshot has added or removed files; the latest one counts."""
        if snapshot is None or (self.last_updated_at is not None and self.last_updated_at >= snapshot.timestamp_ms):
            return
        self.last_updated_at, self.last_updated_snapshot_id = snapshot.timestamp_ms, snapshot.snapshot_id


Rows = Mapping[tuple[int, Partition], PartitionRow]


def unified_type(metadata: TableMetadata) -> StructType:
    """All fields of any spec by id, with their newest names; without those of dropped columns."""
    current = metadata.schema().field_ids
    fields: dict[int, NestedField] = {}
    void: set[int] = set()
    for _, spec in sorted(metadata.specs().items(), reverse=True):
        for part, kind in zip(spec.fields, partition_types(metadata, spec), strict=True):
            if part.source_id not in current or isinstance(kind, UnknownType):
                continue
            is_void = isinstance(part.transform, VoidTransform)
            nested_field = fields.get(part.field_id)
            if nested_field is None:
                fields[part.field_id] = NestedField(part.field_id, part.name, kind, required=False)
                void |= {part.field_id} if is_void else set()
            elif part.field_id in void and not is_void:
                # Format 1 keeps a dropped part in its place as void; it has the type of its column.
                fields[part.field_id] = NestedField(part.field_id, nested_field.name, kind, required=False)
                void.discard(part.field_id)
    return StructType(*(fields[field_id] for field_id in sorted(fields)))


def count_partitions(table: Table, snapshot: Snapshot, read: ManifestReader) -> Rows:
    """The rows of the snapshot's partitions, including those whose last file it removed. Raises DataFileMissing,
    UnreadableFile or CatalogUnavailable (a manifest list or manifest), TableRefused."""
    metadata = table.metadata
    specs = metadata.specs()
    types = {spec_id: partition_types(metadata, spec) for spec_id, spec in specs.items()}
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    rows: dict[tuple[int, Partition], PartitionRow] = {}
    holds_everywhere = False
    for manifest in read_list(table.io, snapshot.manifest_list):
        spec_id = manifest.partition_spec_id
        for entry in read(table.io, manifest).entries:
            partition = to_partition(entry.data_file.partition, types[spec_id], entry.data_file.file_path)
            row = rows.setdefault((spec_id, partition), PartitionRow(spec_id))
            row.touched(snapshots.get(entry.snapshot_id or 0))
            if entry.status == ManifestEntryStatus.DELETED:
                continue
            row.add(entry)
            # An equality delete of an unpartitioned spec applies to the rows of every partition.
            is_equality = entry.data_file.content == DataFileContent.EQUALITY_DELETES
            holds_everywhere = holds_everywhere or (is_equality and is_unpartitioned(specs[spec_id]))
    for row in rows.values():
        has_deletes = row.position_delete_file_count or row.equality_delete_file_count
        row.total_record_count = None if has_deletes or holds_everywhere else row.data_record_count
    return rows


def partitions_table(metadata: TableMetadata, rows: Rows) -> pa.Table:
    """The rows of the file, sorted by the unified partition, nulls first, then by spec."""
    unified = unified_type(metadata)
    places = {spec_id: _places(spec, unified) for spec_id, spec in metadata.specs().items()}
    values = {key: tuple(None if at is None else key[1][at] for at in places[key[0]]) for key in rows}
    kinds: list[Any] = [field.field_type for field in unified.fields]  # primitive ones
    ordered = sorted(rows, key=lambda key: ([_order(*pair) for pair in zip(kinds, values[key], strict=True)], key[0]))
    columns = [values_array(kind, [values[key][at] for key in ordered]) for at, kind in enumerate(kinds)]
    counts = (
        NestedField(number, name, kind, required=name in _REQUIRED)
        for name, (number, kind) in (_REQUIRED | _OPTIONAL).items()
    )
    schema = arrow_schema(Schema(NestedField(1, "partition", unified, required=True), *counts))
    partition = pa.StructArray.from_arrays(columns, fields=list(schema.field("partition").type))
    counted = [
        pa.array([getattr(rows[key], name) for key in ordered], schema.field(name).type)
        for name in (*_REQUIRED, *_OPTIONAL)
    ]
    return pa.Table.from_arrays([partition, *counted], schema=schema)


def _places(spec: PartitionSpec, unified: StructType) -> list[int | None]:
    """The index of each field of the unified partition in partitions of the spec; None if absent."""
    at = {field.field_id: place for place, field in enumerate(spec.fields)}
    return [at.get(field.field_id) for field in unified.fields]


def _order(kind: PrimitiveType, value: bytes | None) -> tuple[int, object]:
    """The sort key of a value: nulls first, NaN last."""
    if value is None:
        return 0, 0
    if isinstance(kind, (UUIDType, FixedType)):
        return 1, value
    decoded = from_bytes(kind, value)
    return (1, decoded) if decoded == decoded else (2, 0)


def is_partitioned(metadata: TableMetadata) -> bool:
    """Whether any spec partitions by a column that still exists."""
    return any(not is_unpartitioned(spec) for spec in metadata.specs().values()) and bool(unified_type(metadata).fields)


#: Primitive types whose values are not counted.
_UNCOUNTED = (GeographyType, GeometryType, UnknownType)


def statistics_of(metadata: TableMetadata) -> StatisticsEntries:
    """The statistics in the metadata."""
    return StatisticsEntries(
        tuple(_entry(file, frozenset(field_id for field_id, _ in _sketches(file))) for file in metadata.statistics),
        tuple(_entry(statistics_file) for statistics_file in metadata.partition_statistics),
    )


def _entry(file: StatisticsFile | PartitionStatisticsFile, ndv: frozenset[int] = frozenset()) -> StatisticsEntry:
    return StatisticsEntry(file.snapshot_id, file.statistics_path, file.file_size_in_bytes, ndv)


def _sketches(file: StatisticsFile) -> Iterator[tuple[int, BlobMetadata]]:
    """The sketches of single columns by field id."""
    return ((blob.fields[0], blob) for blob in file.blob_metadata if blob.type == THETA and len(blob.fields) == 1)


def distinct_values(metadata: TableMetadata) -> dict[int, int]:
    """About how many values columns have, by field id, by the newest statistics; those of main's history come first."""
    by_id = {item.snapshot_id: item for item in snapshot_facts(metadata)}
    order = {item.snapshot_id: item.sequence_number for item in ancestors(by_id, metadata.current_snapshot_id)}
    result: dict[int, int] = {}
    for file in sorted(metadata.statistics, key=lambda item: order.get(item.snapshot_id, -1)):
        for field_id, blob in _sketches(file):
            number = (blob.properties or {}).get(NDV, "")
            if re.fullmatch("[0-9]{1,18}", number):
                result[field_id] = int(number)
    return result


def countable_columns(schema: Schema) -> dict[str, int]:
    """The ids of the top-level columns whose distinct values can be counted, by name."""
    primitive = [field for field in schema.fields if isinstance(field.field_type, PrimitiveType)]
    return {field.name: field.field_id for field in primitive if not isinstance(field.field_type, _UNCOUNTED)}


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
    present = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    updates = statistics_removals(metadata, lambda item: item.snapshot_id not in present)
    written, count = list[StatisticsEntry](), 0
    with _created_files(metadata, access) as create:
        if sketches:
            puffin, blobs = _puffin(snapshot, sketches)
            path = create(f"{snapshot_id}-{uuid.uuid4()}.stats", puffin.content)
            fields = frozenset(sketch.field_id for sketch in sketches)
            written.append(StatisticsEntry(snapshot_id, path, len(puffin.content), fields))
            more = {"file-footer-size-in-bytes": puffin.footer_bytes, "blob-metadata": blobs}
            updates.append({"action": "set-statistics", "statistics": _json_of(written[-1]) | more})
        if partitions and is_partitioned(metadata):
            rows = partitions_table(metadata, count_partitions(table, snapshot, read))
            sink, count = pa.BufferOutputStream(), rows.num_rows
            pq.write_table(rows, sink, compression="zstd", store_schema=False)
            content = bytes(sink.getvalue())
            path = create(f"partition-stats-{snapshot_id}-{uuid.uuid4()}.parquet", content)
            written.append(StatisticsEntry(snapshot_id, path, len(content)))
            updates.append({"action": "set-partition-statistics", "partition-statistics": _json_of(written[-1])})
        if not written:
            raise ValueError("no statistics to be staged")
    return StagedStatistics(commit_request(table, updates), tuple(written), count)


@contextmanager
def _created_files(metadata: TableMetadata, access: FileAccess) -> Iterator[Callable[[str, bytes], str]]:
    """Yields a function that writes a metadata file and returns its path; all are deleted when the block fails."""
    paths = list[str]()

    def create(name: str, content: bytes) -> str:
        path = f"{metadata_location(metadata)}/{name}"
        # Before the first byte, so that a partly written file is deleted too.
        paths.append(path)
        with translated(path), access.create_output(path) as stream:
            stream.write(content)
        return path

    with access.deleted_on_failure(paths):
        yield create


def stage_removal(table: Table, paths: Collection[str]) -> bytes:
    """The payload that removes these statistics files from the table as just loaded. Raises CommitConflict when one is
    not referenced."""
    if missing := set(paths) - statistics_paths(table.metadata):
        raise CommitConflict(f"the table does not name the statistics {min(missing)} any more")
    return commit_request(table, statistics_removals(table.metadata, lambda item: item.statistics_path in paths))


def _puffin(snapshot: Snapshot, sketches: Sequence[ColumnSketch]) -> tuple[PuffinFile, list[Json]]:
    """The file of the sketches, and the description of its blobs in the metadata."""
    number = snapshot.sequence_number or 0
    blobs = [
        Blob(THETA, (sketch.field_id,), snapshot.snapshot_id, number, sketch.payload, {NDV: str(sketch.ndv)})
        for sketch in sketches
    ]
    described: list[Json] = [
        {
            "type": THETA,
            "snapshot-id": snapshot.snapshot_id,
            "sequence-number": number,
            "fields": list(blob.fields),
            "properties": blob.properties,
        }
        for blob in blobs
    ]
    return puffin_of(blobs, f"Amoro in Python {version('amoro')}"), described


def _json_of(file: StatisticsEntry) -> dict[str, Any]:
    return {"snapshot-id": file.snapshot_id, "statistics-path": file.path, "file-size-in-bytes": file.size_bytes}
