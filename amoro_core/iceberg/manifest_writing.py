"""Writing manifests (Iceberg specification, "Manifests").

pyiceberg's Avro encoder is used, but not its manifest writer: it puts every entry into a block of its own, writes
equality ids as longs, which Java can't read, and omits the schema id and the referenced data file.
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic_core import to_json
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    UNASSIGNED_SEQ,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.manifest import DataFile as EntryFile
from pyiceberg.manifest import FileFormat as EntryFormat
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record, TableVersion
from pyiceberg.types import NestedField, PrimitiveType, StructType

from amoro_core.errors import UnreadableFile
from amoro_core.iceberg.avro import CODEC, RECORD_VERSION, EntryOutput, entry_schema
from amoro_core.iceberg.entries import find_in_history, partition_types, schemas_newest_first
from amoro_core.iceberg.manifests import Manifest, ManifestHeader
from amoro_core.iceberg.row_ids import first_row_id_of
from amoro_core.model.files import DataFile, DeleteFile, DeleteKind, Partition

#: Readers decode a block as a whole: many entries are fast to read, few need little memory.
ENTRIES_IN_A_BLOCK = 500

_STATUS_NAMES = {
    ManifestEntryStatus.ADDED: "added",
    ManifestEntryStatus.EXISTING: "existing",
    ManifestEntryStatus.DELETED: "deleted",
}


def new_header(metadata: TableMetadata, spec_id: int) -> ManifestHeader:
    """The header for new files of a spec, with a schema that has the spec's source columns if there is one."""
    spec = metadata.specs()[spec_id]
    types = partition_types(metadata, spec)
    found = [one for field in spec.fields if (one := find_in_history(metadata, field.source_id))]
    sources = {one[0].field_id for one in found}
    schemas = schemas_newest_first(metadata)
    schema = next((one for one in schemas if sources <= one.field_ids), schemas[0])
    fields = [
        NestedField(field.field_id, field.name, kind, required=False)
        for field, kind in zip(spec.fields, types, strict=True)
    ]
    return ManifestHeader(
        spec_id=spec_id,
        spec_json=to_json(spec.fields, by_alias=True).decode(),
        schema_json=schema.model_dump_json(),
        schema_id=str(schema.schema_id),
        partition_type=StructType(*fields),
    )


def added_entry(file: DataFile | DeleteFile, header: ManifestHeader, snapshot_id: int) -> ManifestEntry:
    """The entry of a file that is new or comes back, with an explicit data sequence number, and its first row id if it
    has one; its file sequence number is inherited."""
    return ManifestEntry.from_args(
        _table_format_version=RECORD_VERSION,
        status=ManifestEntryStatus.ADDED,
        snapshot_id=snapshot_id,
        sequence_number=file.sequence_number,
        file_sequence_number=None,
        data_file=_entry_file(file, header),
    )


def _entry_file(file: DataFile | DeleteFile, header: ManifestHeader) -> EntryFile:
    metrics = file.metrics
    own = _data_fields(file) if isinstance(file, DataFile) else _delete_fields(file)
    done = EntryFile.from_args(
        _table_format_version=RECORD_VERSION,
        file_path=file.path,
        file_format=EntryFormat(file.file_format.value),
        partition=_to_record(file.partition, header.partition_type),
        record_count=file.record_count,
        file_size_in_bytes=file.size_bytes,
        column_sizes=dict(metrics.column_sizes) or None,
        value_counts=dict(metrics.value_counts) or None,
        null_value_counts=dict(metrics.null_value_counts) or None,
        nan_value_counts=dict(metrics.nan_value_counts) or None,
        lower_bounds=dict(metrics.lower_bounds) or None,
        upper_bounds=dict(metrics.upper_bounds) or None,
        split_offsets=list(file.split_offsets) or None,
        **own,
    )
    done.spec_id = file.spec_id
    return done


def _to_record(partition: Partition, kind: StructType) -> Record:
    return Record(
        *(
            None if value is None else from_bytes(_primitive(field.field_type), value)
            for field, value in zip(kind.fields, partition, strict=True)
        )
    )


def _primitive(kind: Any) -> PrimitiveType:
    if not isinstance(kind, PrimitiveType):
        raise UnreadableFile(f"a partition field has the type {kind}")
    return kind


def _data_fields(file: DataFile) -> dict[str, Any]:
    return {
        "content": DataFileContent.DATA,
        "sort_order_id": file.sort_order_id,
        # A file that comes back by an undo keeps its rows' ids; a new one has none before its commit.
        "first_row_id": file.first_row_id,
    }


def _delete_fields(file: DeleteFile) -> dict[str, Any]:
    if file.kind is DeleteKind.EQUALITY:
        return {"content": DataFileContent.EQUALITY_DELETES, "equality_ids": list(file.equality_ids)}
    return {
        "content": DataFileContent.POSITION_DELETES,
        "referenced_data_file": file.referenced_data_file,
        "content_offset": file.content_offset,
        "content_size_in_bytes": file.content_size_bytes,
    }


def existing_entry(entry: ManifestEntry) -> ManifestEntry:
    """The entry carried over from another manifest: its snapshot id, both sequence numbers and row ids are kept."""
    return _restated(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id)


def deleted_entry(entry: ManifestEntry, snapshot_id: int) -> ManifestEntry:
    """The entry of a file that the snapshot removes; both sequence numbers and the row ids are kept."""
    return _restated(entry, ManifestEntryStatus.DELETED, snapshot_id)


def _restated(entry: ManifestEntry, status: ManifestEntryStatus, snapshot_id: int | None) -> ManifestEntry:
    return ManifestEntry.from_args(
        _table_format_version=RECORD_VERSION,
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )


def write_manifest(
    io: FileIO,
    path: str,
    format_version: TableVersion,
    content: ManifestContent,
    header: ManifestHeader,
    snapshot_id: int,
    entries: Sequence[ManifestEntry],
) -> ManifestFile:
    """Write a new manifest and return its entry for the manifest list. Raises ValueError without entries.

    Its min_sequence_number is that of the live entries, so that no commit drops a delete that they still need.
    """
    if not entries:
        raise ValueError("a manifest needs at least one entry")
    output = io.new_output(path)
    with EntryOutput(
        output_file=output,
        file_schema=entry_schema(format_version, header.partition_type),
        record_schema=entry_schema(RECORD_VERSION, header.partition_type),
        schema_name="manifest_entry",
        metadata=manifest_metadata(format_version, content, header),
    ) as writer:
        for block in _blocks(entries):
            writer.write_block(list(block))
    live = [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]
    return ManifestFile.from_args(
        manifest_path=path,
        manifest_length=len(io.new_input(path)),
        partition_spec_id=header.spec_id,
        content=content,
        sequence_number=UNASSIGNED_SEQ,
        min_sequence_number=min((_number(entry) for entry in live), default=UNASSIGNED_SEQ),
        added_snapshot_id=snapshot_id,
        **_counts(entries),
        partitions=partition_summaries(header.partition_type, (entry.data_file.partition for entry in entries)),
        key_metadata=None,
    )


def _number(entry: ManifestEntry) -> int:
    if entry.sequence_number is None:
        raise UnreadableFile(f"the manifest entry of {entry.data_file.file_path} lacks its sequence number")
    return entry.sequence_number


def _blocks(entries: Sequence[ManifestEntry]) -> Iterator[Sequence[ManifestEntry]]:
    for start in range(0, len(entries), ENTRIES_IN_A_BLOCK):
        yield entries[start : start + ENTRIES_IN_A_BLOCK]


def manifest_metadata(format_version: TableVersion, content: ManifestContent, header: ManifestHeader) -> dict[str, str]:
    """The metadata of a manifest file beside the schema of its entries."""
    schema_id = header.schema_id
    if schema_id is None:
        schema_id = str(json.loads(header.schema_json).get("schema-id", 0))
    common = {
        "schema": header.schema_json,
        "schema-id": schema_id,
        "partition-spec": header.spec_json,
        "partition-spec-id": str(header.spec_id),
        "format-version": str(format_version),
        "avro.codec": CODEC,
    }
    if format_version == 1:
        return common
    return common | {"content": "data" if content == ManifestContent.DATA else "deletes"}


def partition_summaries(partition_type: StructType, partitions: Iterable[Record]) -> list[PartitionFieldSummary]:
    """For each partition field, whether there are nulls and NaNs, and the bounds of the other values."""
    rows = list(partitions)
    return [
        _summary(_primitive(field.field_type), [row[at] for row in rows])
        for at, field in enumerate(partition_type.fields)
    ]


def _summary(kind: PrimitiveType, values: Iterable[Any]) -> PartitionFieldSummary:
    distinct = list(values)
    numbers = [value for value in distinct if value is not None and value == value]
    has_nan = any(value is not None and value != value for value in distinct)
    lower, upper = (min(numbers, key=_order), max(numbers, key=_order)) if numbers else (None, None)
    return PartitionFieldSummary(
        any(value is None for value in distinct),
        has_nan,
        None if lower is None else to_bytes(kind, lower),
        None if upper is None else to_bytes(kind, upper),
    )


def _order(value: Any) -> Any:
    """A sort key in Iceberg's order: −0.0 is below 0.0."""
    return (value, math.copysign(1.0, value)) if isinstance(value, float) else value


def counted(manifest: Manifest) -> ManifestFile:
    """The manifest's entry for a manifest list with its counts, which lists of format 1 may lack."""
    file = manifest.file
    return ManifestFile.from_args(
        _table_format_version=RECORD_VERSION,
        manifest_path=file.manifest_path,
        manifest_length=file.manifest_length,
        partition_spec_id=file.partition_spec_id,
        content=file.content,
        sequence_number=file.sequence_number,
        min_sequence_number=file.min_sequence_number,
        added_snapshot_id=file.added_snapshot_id,
        **_counts(manifest.entries),
        partitions=file.partitions,
        key_metadata=file.key_metadata,
        first_row_id=first_row_id_of(file),
    )


def _counts(entries: Iterable[ManifestEntry]) -> dict[str, Any]:
    """Numbers of files and rows by status, as a manifest list names them."""
    counts = {f"{status}_{what}_count": 0 for status in _STATUS_NAMES.values() for what in ("files", "rows")}
    for entry in entries:
        status = _STATUS_NAMES[entry.status]
        counts[f"{status}_files_count"] += 1
        counts[f"{status}_rows_count"] += entry.data_file.record_count
    return counts
