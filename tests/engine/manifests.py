"""Manifests and manifest lists as other engines write them, in formats 1, 2 and 3, and read with their row ids."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any
from unittest.mock import patch

from pyiceberg.avro.file import AvroFile, AvroOutputFile
from pyiceberg.io import OutputFile
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    UNASSIGNED_SEQ,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    ManifestWriterV1,
    ManifestWriterV2,
    PartitionFieldSummary,
    _inherit_from_manifest,
    write_manifest_list,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import IntegerType, ListType, NestedField, StructType, TimestampNanoType, TimestamptzNanoType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

FILE_FIELDS = [field.name for field in MANIFEST_ENTRY_SCHEMAS[3].find_type("data_file").fields]
FIRST_ROW_ID = FILE_FIELDS.index("first_row_id")
CONTENT_OFFSET = FILE_FIELDS.index("content_offset")
_LISTED = 15  # the fields of a list's entry before the first row id


class _JavaSchema(ManifestWriter):
    """Writes `equality_ids` as the ints that Java reads, and the schema's id into the header."""

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "schema-id": str(self._schema.schema_id)}

    def _with_partition(self, format_version: Any) -> Schema:
        schema = super()._with_partition(format_version)
        return Schema(*(_with_int_equality_ids(field) for field in schema.fields))


def _with_int_equality_ids(entry_field: NestedField) -> NestedField:
    if entry_field.name != "data_file":
        return entry_field
    ids = ListType(element_id=136, element_type=IntegerType(), element_required=True)
    fields = [
        NestedField(135, "equality_ids", ids, required=False, doc=one.doc) if one.field_id == 135 else one
        for one in entry_field.field_type.fields
    ]
    return NestedField(entry_field.field_id, entry_field.name, StructType(*fields), required=True)


class _Deletes(ManifestWriter):
    """Says that it lists deletes."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class DataManifestV1(_JavaSchema, ManifestWriterV1):
    """A manifest of data files in format 1."""


class DataManifestV2(_JavaSchema, ManifestWriterV2):
    """A manifest of data files in format 2."""


class DeleteManifestV2(_Deletes, DataManifestV2):
    """A manifest of delete files."""


class DataManifestV3(_JavaSchema, ManifestWriterV2):
    """Writes every field of format 3; pyiceberg's own files lack the last ones, which are then null."""

    @property
    def version(self) -> Any:
        return 3

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        return AvroOutputFile[ManifestEntry](
            output_file=self._output_file,
            file_schema=self._with_partition(3),
            record_schema=self._with_partition(3),
            schema_name="manifest_entry",
            metadata=self._meta,
        )

    def prepare_entry(self, entry: ManifestEntry) -> ManifestEntry:
        entry = super().prepare_entry(entry)
        entry.data_file = in_format_3(entry.data_file)
        return entry


class DeleteManifestV3(_Deletes, DataManifestV3):
    """A manifest of delete files and deletion vectors in format 3."""


WRITERS: dict[tuple[int, ManifestContent], type[ManifestWriter]] = {
    (1, ManifestContent.DATA): DataManifestV1,
    (2, ManifestContent.DATA): DataManifestV2,
    (2, ManifestContent.DELETES): DeleteManifestV2,
    (3, ManifestContent.DATA): DataManifestV3,
    (3, ManifestContent.DELETES): DeleteManifestV3,
}


def in_format_3(file: DataFile) -> DataFile:
    """The file with the fields of format 3, null where it has none."""
    done = DataFile(*file._data, *[None] * (len(FILE_FIELDS) - len(file)))
    done.spec_id = file.spec_id
    return done


def manifests_in(table: Table, snapshot: Snapshot) -> list[ManifestFile]:
    """The snapshot's manifests; in format 3 with their first row ids, which pyiceberg leaves out."""
    if table.metadata.format_version < 3:
        return snapshot.manifests(table.io)
    with AvroFile[ManifestFile](
        table.io.new_input(snapshot.manifest_list),
        MANIFEST_LIST_FILE_SCHEMAS[3],
        read_types={-1: ManifestFile, 508: PartitionFieldSummary},
        read_enums={517: ManifestContent},
    ) as reader:
        return list(reader)


_convert = AvroSchemaConversion._convert_logical_type


def _with_nanoseconds(conversion: AvroSchemaConversion, kind: dict[str, Any]) -> Any:
    """pyiceberg reads no nanoseconds, though it writes them."""
    if kind["logicalType"] != "timestamp-nanos":
        return _convert(conversion, kind)
    return TimestamptzNanoType() if kind["adjust-to-utc"] else TimestampNanoType()


def entries_of(table: Table, manifest: ManifestFile) -> list[ManifestEntry]:
    """The manifest's live entries; in format 3 with all fields and inherited row ids."""
    if table.metadata.format_version < 3:
        return manifest.fetch_manifest_entry(table.io)
    with (
        patch.object(AvroSchemaConversion, "_convert_logical_type", _with_nanoseconds),
        AvroFile[ManifestEntry](
            table.io.new_input(manifest.manifest_path),
            MANIFEST_ENTRY_SCHEMAS[3],
            read_types={-1: ManifestEntry, 2: DataFile},
            read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
        ) as reader,
    ):
        entries = [_inherit_from_manifest(entry, manifest) for entry in reader]
    live = [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]
    number = manifest[_LISTED]
    for entry in live:
        file = entry.data_file
        if number is None:
            file[FIRST_ROW_ID] = None
        elif file[FIRST_ROW_ID] is None:
            file[FIRST_ROW_ID], number = number, number + file.record_count
    return live


def write_list(
    metadata: TableMetadata, out: OutputFile, ids: tuple[int, int | None, int], manifests: Sequence[ManifestFile]
) -> dict[str, int]:
    """Write the list of the snapshot (its id, its parent's, its sequence number); returns its row ids, if any."""
    snapshot_id, parent_id, sequence = ids
    if metadata.format_version < 3:
        with write_manifest_list(metadata.format_version, out, snapshot_id, parent_id, sequence, "deflate") as writer:
            writer.add_manifests(list(manifests))
        return {}
    number = metadata.next_row_id
    if number is None:
        raise ValueError("the table has no next row id")
    listed = []
    for one in manifests:
        done = copy(one)
        known = one[_LISTED] if len(one) > _LISTED else None
        own = None
        if one.content == ManifestContent.DATA and known is None:
            own, number = number, number + one.added_rows_count + one.existing_rows_count
        done._data = [*one._data[:_LISTED], own if known is None else known]
        for field in ("sequence_number", "min_sequence_number"):
            if getattr(done, field) == UNASSIGNED_SEQ:
                setattr(done, field, sequence)
        listed.append(done)
    said = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_id is None else str(parent_id),
        "sequence-number": str(sequence),
        "first-row-id": str(metadata.next_row_id),
        "format-version": "3",
        "avro.codec": "deflate",
    }
    schema = MANIFEST_LIST_FILE_SCHEMAS[3]
    with AvroOutputFile[ManifestFile](out, schema, "manifest_file", record_schema=schema, metadata=said) as writer:
        writer.write_block(listed)
    return {"first_row_id": metadata.next_row_id, "added_rows": number - metadata.next_row_id}
