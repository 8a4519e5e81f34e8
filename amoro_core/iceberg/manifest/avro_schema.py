"""The Avro form of manifest entries: pyiceberg's, with its errors corrected."""

import json
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal

from pyiceberg.avro.codecs import AvroCompressionCodec
from pyiceberg.avro.file import MAGIC, META_SCHEMA, AvroFileHeader, AvroOutputFile
from pyiceberg.avro.resolver import construct_writer
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataV3
from pyiceberg.typedef import TableVersion
from pyiceberg.types import IntegerType, ListType, NestedField, StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from amoro_core.errors import TableRefused

CODEC: AvroCompressionCodec = "deflate"
DATA_FILE, PARTITION = 2, 102
#: pyiceberg keeps its records in this form; it has the field 143 only for format 3.
RECORD_VERSION: Literal[3] = 3

_EQUALITY_IDS, _REFERENCED_DATA_FILE = 135, 143
#: The first format version with the field 143; pyiceberg writes it only from the next one on.
_REFERENCES_SINCE = 2


def entry_schema(version: TableVersion, partition_type: StructType) -> Schema:
    """The entries' schema of a format version, with equality ids as int and, from format 2, the field 143."""
    base = MANIFEST_ENTRY_SCHEMAS[version]
    fields = [_entry_field(field, partition_type) for field in data_file_fields(base)]
    if version == _REFERENCES_SINCE:
        known = data_file_fields(MANIFEST_ENTRY_SCHEMAS[RECORD_VERSION])
        fields.append(next(field for field in known if field.field_id == _REFERENCED_DATA_FILE))
    data_file = NestedField(DATA_FILE, "data_file", StructType(*fields), required=True)
    return Schema(*(data_file if field.field_id == DATA_FILE else field for field in base.fields))


def _entry_field(field: NestedField, partition_type: StructType) -> NestedField:
    if field.field_id == PARTITION:
        return NestedField(field.field_id, field.name, partition_type, required=True, doc=field.doc)
    if field.field_id == _EQUALITY_IDS:
        ids = ListType(element_id=136, element_type=IntegerType(), element_required=True)
        return NestedField(field.field_id, field.name, ids, required=False, doc=field.doc)
    return field


def data_file_fields(entries: Schema) -> tuple[NestedField, ...]:
    """The fields of the data file within a manifest entry."""
    data_file = entries.find_type(DATA_FILE)
    if not isinstance(data_file, StructType):
        raise ValueError(f"the data file has the type {data_file}")
    return data_file.fields


class EntryOutput(AvroOutputFile[ManifestEntry]):
    """A manifest being written, whose schema has a unique name for each named type.

    pyiceberg gives two partition fields of the same decimal or uuid type the same name, which no Avro reader accepts.
    """

    def _write_header(self) -> None:
        schema = AvroSchemaConversion().iceberg_to_avro(self.file_schema, schema_name=self.schema_name)
        meta = {**self.metadata, "avro.schema": json.dumps(_named_once(schema, set())), "avro.codec": CODEC}
        construct_writer(META_SCHEMA).write(self.encoder, AvroFileHeader(MAGIC, meta, self.sync_bytes))


def _named_once(schema: Any, taken: set[str]) -> Any:
    """The Avro schema with a number appended to repeated type names."""
    if isinstance(schema, list):
        return [_named_once(one, taken) for one in schema]
    if not isinstance(schema, dict):
        return schema
    done = dict(schema)
    if done.get("type") in ("record", "fixed", "enum"):
        done["name"] = _free(done["name"], taken)
        taken.add(done["name"])
    if "fields" in done:
        done["fields"] = [{**field, "type": _named_once(field["type"], taken)} for field in done["fields"]]
    for part in ("type", "items", "values"):
        if isinstance(done.get(part), dict | list):
            done[part] = _named_once(done[part], taken)
    return done


def _free(name: str, taken: set[str]) -> str:
    numbered = (f"{name}_{at}" for at in range(2, len(taken) + 3))
    return next(one for one in (name, *numbered) if one not in taken)


#: The first format whose rows have ids.
ROW_IDS_SINCE = 3

#: The indexes of the fields 520 in entries of manifest lists, and 142 in data files.
_IN_LIST = [field.field_id for field in MANIFEST_LIST_FILE_SCHEMAS[RECORD_VERSION].fields].index(520)
_IN_FILE = [field.field_id for field in DATA_FILE_TYPE[RECORD_VERSION].fields].index(142)


def first_row_id_of(manifest: ManifestFile) -> int | None:
    """The first row id of a data manifest, which its entries without one inherit; None: its rows have none.

    pyiceberg's own records of manifest lists lack the field.
    """
    values = manifest._data
    found: int | None = values[_IN_LIST] if len(values) > _IN_LIST else None
    return found


def with_first_row_id(manifest: ManifestFile, first_row_id: int | None) -> ManifestFile:
    """A copy of the manifest with that first row id."""
    done = copy(manifest)
    done._data = [*manifest._data[:_IN_LIST], first_row_id]
    return done


def has_no_row_id(entry: ManifestEntry) -> bool:
    """Whether the entry's file has no first row id."""
    return entry.data_file[_IN_FILE] is None


def set_row_id(entry: ManifestEntry, first_row_id: int | None) -> None:
    """Let the entry's file have that first row id."""
    entry.data_file[_IN_FILE] = first_row_id


def inherit_row_ids(entries: Iterable[ManifestEntry], manifest: ManifestFile) -> Iterator[ManifestEntry]:
    """All entries of the manifest, in its order, each changed to have its file's first row id.

    Files that are not deleted and have no id take the next one, which begins with the manifest's and grows by their
    rows. In a manifest without an id no file has one, whatever its entry says.
    """
    upcoming = first_row_id_of(manifest)
    for entry in entries:
        file = entry.data_file
        if upcoming is None:
            if file[_IN_FILE] is not None:
                file[_IN_FILE] = None
        elif entry.status != ManifestEntryStatus.DELETED and file[_IN_FILE] is None:
            file[_IN_FILE] = upcoming
            upcoming += file.record_count
        yield entry


def first_new_row_id(metadata: TableMetadata) -> int | None:
    """The first row id of the table's next snapshot; None before format 3. Raises TableRefused("metadata")."""
    if not isinstance(metadata, TableMetadataV3):
        return None
    row_id: int | None = metadata.next_row_id
    if row_id is None:
        raise TableRefused(
            f"the table's metadata of format {metadata.format_version} lacks next-row-id", reason="metadata"
        )
    return row_id


@dataclass(frozen=True, slots=True)
class Assigned:
    """A manifest list's entries with their first row ids, and the number of ids assigned to them."""

    first_row_ids: tuple[int | None, ...]
    rows: int


def assign_row_ids(manifests: Sequence[ManifestFile], first_row_id: int) -> Assigned:
    """The first row ids of the manifests of a new list, the table's next one being `first_row_id`.

    Data manifests keep theirs; those without one take the next, which grows by their added and existing rows. Delete
    manifests have none. It may skip ids, never give one twice. Raises ValueError for a data manifest without an id of
    which the number of rows is not known.
    """
    upcoming, given = first_row_id, list[int | None]()
    for one in manifests:
        known = first_row_id_of(one)
        if one.content != ManifestContent.DATA:
            given.append(None)
        elif known is not None:
            given.append(known)
        else:
            if one.added_rows_count is None or one.existing_rows_count is None:
                raise ValueError(f"the number of rows of the manifest {one.manifest_path} is not known")
            given.append(upcoming)
            upcoming += one.added_rows_count + one.existing_rows_count
    return Assigned(tuple(given), upcoming - first_row_id)
