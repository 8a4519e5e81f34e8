"""Partition statistics from the manifests of a snapshot: a row for each partition of each spec.

As in the specification ("Partition Statistics"), and as Iceberg's Java library computes them from scratch; except that
the number of rows is also left null where deletes of another spec apply.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFileContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import (
    FixedType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StructType,
    UnknownType,
    UUIDType,
)

from amoro_core.files.partitions import values_array
from amoro_core.files.schema import arrow_schema
from amoro_core.iceberg.caching import ManifestReader
from amoro_core.iceberg.entries import is_unpartitioned, partition_types, to_partition
from amoro_core.iceberg.manifests import read_list
from amoro_core.model.files import Partition

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
    found: dict[int, NestedField] = {}
    void: set[int] = set()
    for _, spec in sorted(metadata.specs().items(), reverse=True):
        for field, kind in zip(spec.fields, partition_types(metadata, spec), strict=True):
            if field.source_id not in current or isinstance(kind, UnknownType):
                continue
            is_void = isinstance(field.transform, VoidTransform)
            known = found.get(field.field_id)
            if known is None:
                found[field.field_id] = NestedField(field.field_id, field.name, kind, required=False)
                void |= {field.field_id} if is_void else set()
            elif field.field_id in void and not is_void:
                # Format 1 keeps a dropped field in its place as void; it has the type of its column.
                found[field.field_id] = NestedField(field.field_id, known.name, kind, required=False)
                void.discard(field.field_id)
    return StructType(*(found[field_id] for field_id in sorted(found)))


def count_partitions(table: Table, snapshot: Snapshot, read: ManifestReader) -> Rows:
    """The rows of the snapshot's partitions, including those whose last file it removed.

    Raises DataFileMissing, UnreadableFile or CatalogUnavailable (a manifest list or manifest), TableRefused.
    """
    metadata = table.metadata
    specs = metadata.specs()
    types = {spec_id: partition_types(metadata, spec) for spec_id, spec in specs.items()}
    snapshots = {one.snapshot_id: one for one in metadata.snapshots}
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
            holds_everywhere = holds_everywhere or _holds_everywhere(entry, specs[spec_id])
    for row in rows.values():
        has_deletes = row.position_delete_file_count or row.equality_delete_file_count
        row.total_record_count = None if has_deletes or holds_everywhere else row.data_record_count
    return rows


def _holds_everywhere(entry: ManifestEntry, spec: PartitionSpec) -> bool:
    """Whether it is an equality delete of an unpartitioned spec, which applies to the rows of every partition."""
    return entry.data_file.content == DataFileContent.EQUALITY_DELETES and is_unpartitioned(spec)


def partitions_table(metadata: TableMetadata, rows: Rows) -> pa.Table:
    """The rows of the file, sorted by the unified partition, nulls first, then by spec."""
    unified = unified_type(metadata)
    places = {spec_id: _places(spec, unified) for spec_id, spec in metadata.specs().items()}
    known = {key: tuple(None if at is None else key[1][at] for at in places[key[0]]) for key in rows}
    kinds = [_primitive(field.field_type) for field in unified.fields]
    ordered = sorted(rows, key=lambda key: ([_order(*one) for one in zip(kinds, known[key], strict=True)], key[0]))
    columns = [values_array(kind, [known[key][at] for key in ordered]) for at, kind in enumerate(kinds)]
    schema = arrow_schema(_file_schema(unified))
    partition = pa.StructArray.from_arrays(columns, fields=list(schema.field("partition").type))
    counted = [
        pa.array([getattr(rows[key], name) for key in ordered], schema.field(name).type)
        for name in (*_REQUIRED, *_OPTIONAL)
    ]
    return pa.Table.from_arrays([partition, *counted], schema=schema)


def _file_schema(unified: StructType) -> Schema:
    required = (NestedField(number, name, kind, required=True) for name, (number, kind) in _REQUIRED.items())
    optional = (NestedField(number, name, kind, required=False) for name, (number, kind) in _OPTIONAL.items())
    return Schema(NestedField(1, "partition", unified, required=True), *required, *optional)


def _places(spec: PartitionSpec, unified: StructType) -> list[int | None]:
    """The index of each field of the unified partition in partitions of the spec; None if absent."""
    at = {field.field_id: place for place, field in enumerate(spec.fields)}
    return [at.get(field.field_id) for field in unified.fields]


def _primitive(kind: object) -> PrimitiveType:
    if not isinstance(kind, PrimitiveType):
        raise TypeError(f"partition values are primitive, not {kind}")
    return kind


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
