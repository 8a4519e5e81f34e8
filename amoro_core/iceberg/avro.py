"""The Avro form of manifest entries: pyiceberg's, with its errors corrected."""

import json
from typing import Any, Literal

from pyiceberg.avro.codecs import AvroCompressionCodec
from pyiceberg.avro.file import MAGIC, META_SCHEMA, AvroFileHeader, AvroOutputFile
from pyiceberg.avro.resolver import construct_writer
from pyiceberg.manifest import MANIFEST_ENTRY_SCHEMAS, ManifestEntry
from pyiceberg.schema import Schema
from pyiceberg.typedef import TableVersion
from pyiceberg.types import IntegerType, ListType, NestedField, StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

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


def names_each_type_once(schema: Any) -> bool:
    """Whether no two named types of the Avro schema share a name: other readers refuse such a schema."""
    return bool(_named_once(schema, set()) == schema)


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
