"""Avro and ORC files as another engine writes and reads them: rows as Python dictionaries, fields by id."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, time
from typing import Any

import fastavro
import pyarrow as pa
from pyarrow import orc
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyiceberg.utils.datetime import datetime_to_micros, time_to_micros

from tests.engine.parquet_rows import Node, Rows, open_input, rows_of_columns

_AVRO: Mapping[type[IcebergType], Any] = {
    BooleanType: "boolean",
    IntegerType: "int",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    StringType: "string",
    BinaryType: "bytes",
    DateType: {"type": "int", "logicalType": "date"},
    TimeType: {"type": "long", "logicalType": "time-micros"},
    TimestampType: {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False},
    TimestamptzType: {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True},
}
_IDS = ("field-id", "element-id", "key-id", "value-id")


def fits_orc(schema: Schema) -> bool:
    """Whether pyarrow writes and reads every value of the schema's types in ORC.

    It reads moments only from 1677 to 2262. Of a struct within a struct it writes values in the place of others once
    some are null (Java reads the same wrong values from the file); it reads right what Java writes.
    """
    kinds = [schema.find_type(field_id) for field_id in schema.field_ids]
    return not any(isinstance(kind, TimestampType | TimestamptzType) or _nests_structs(kind) for kind in kinds)


def _nests_structs(kind: IcebergType) -> bool:
    if not isinstance(kind, StructType):
        return False
    inner = Schema(*kind.fields)
    return any(isinstance(inner.find_type(field_id), StructType) for field_id in inner.field_ids)


# Avro


def write_avro(io: FileIO, path: str, schema: Schema, rows: pa.Table, *, with_field_ids: bool, codec: str) -> None:
    """Write the rows in several blocks, records as Java makes them of a schema."""
    written = {"type": "record", "name": "rows", "fields": _avro_schema(schema.fields, set())}
    parsed = fastavro.parse_schema(written if with_field_ids else _without_ids(written))
    kind = schema.as_struct()
    records = [_avro_struct(kind, list(record.values())) for record in rows.to_pylist()]
    with io.new_output(path).create(overwrite=False) as out:
        fastavro.writer(out, parsed, records, codec=codec, sync_interval=500)


def read_avro_rows(path: str, name_mapping: str | None, constants: Mapping[int, Any]) -> Rows:
    """Read the whole file; raises ValueError where it has neither field ids nor a name mapping."""
    with open_input(path) as source:
        reader = fastavro.reader(source)
        written: Any = reader.writer_schema
        records = list(reader)
    nodes = _avro_fields(written["fields"], {})
    columns = {node.name: [record[node.name] for record in records] for node in nodes}
    return rows_of_columns(path, nodes, columns, len(records), name_mapping, constants)


def _avro_schema(fields: Iterable[NestedField], named: set[str]) -> list[dict[str, Any]]:
    return [
        {"name": one.name, "field-id": one.field_id, "type": _avro_type(one, named), **_default(one)} for one in fields
    ]


def _default(field: NestedField) -> dict[str, None]:
    return {} if field.required else {"default": None}


def _avro_type(field: NestedField, named: set[str]) -> Any:
    """The field's type; a name that came before stands for its type."""
    own = _avro_required(field, named)
    return own if field.required else ["null", own]


def _avro_required(field: NestedField, named: set[str]) -> Any:
    match field.field_type:
        case StructType(fields=inner):
            return {"type": "record", "name": f"r{field.field_id}", "fields": _avro_schema(inner, named)}
        case ListType() as kind:
            return {"type": "array", "element-id": kind.element_id, "items": _avro_type(kind.element_field, named)}
        case MapType(key_type=StringType()) as kind:
            values = _avro_type(kind.value_field, named)
            return {"type": "map", "key-id": kind.key_id, "value-id": kind.value_id, "values": values}
        case MapType() as kind:
            pair = _avro_schema((kind.key_field, kind.value_field), named)
            record = {"type": "record", "name": f"k{kind.key_id}_v{kind.value_id}", "fields": pair}
            return {"type": "array", "logicalType": "map", "items": record}
        case FixedType() as kind:
            return _fixed(f"fixed_{len(kind)}", len(kind), {}, named)
        case UUIDType():
            return _fixed("uuid_fixed", 16, {"logicalType": "uuid"}, named)
        case DecimalType(precision=precision, scale=scale):
            size = (10**precision).bit_length() // 8 + 1
            more = {"logicalType": "decimal", "precision": precision, "scale": scale}
            return _fixed(f"decimal_{precision}_{scale}", size, more, named)
        case kind:
            return _AVRO[type(kind)]


def _fixed(name: str, size: int, more: dict[str, Any], named: set[str]) -> Any:
    if name in named:
        return name
    named.add(name)
    return {"type": "fixed", "name": name, "size": size, **more}


def _without_ids(written: Any) -> Any:
    if isinstance(written, list):
        return [_without_ids(one) for one in written]
    if isinstance(written, dict):
        return {key: _without_ids(value) for key, value in written.items() if key not in _IDS}
    return written


def _avro_struct(kind: StructType, values: Sequence[Any]) -> dict[str, Any]:
    """Values by the names of the fields, whatever names they had."""
    pairs = zip(kind.fields, values, strict=True)
    return {field.name: _avro_value(field.field_type, value) for field, value in pairs}


def _avro_value(kind: IcebergType, value: Any) -> Any:
    if value is None:
        return None
    match kind, value:
        case StructType(), _:
            return _avro_struct(kind, list(value.values()))
        case ListType(), _:
            return [_avro_value(kind.element_type, one) for one in value]
        case MapType(), _:
            pairs = [(_avro_value(kind.key_type, key), _avro_value(kind.value_type, item)) for key, item in value]
            return (
                dict(pairs)
                if isinstance(kind.key_type, StringType)
                else [{"key": key, "value": item} for key, item in pairs]
            )
        case _, datetime():
            return datetime_to_micros(value)
        case _, time():
            return time_to_micros(value)
        case _, uuid.UUID():
            return value.bytes
        case _:
            return value


def _avro_fields(written: Iterable[Mapping[str, Any]], known: dict[str, Any]) -> tuple[Node, ...]:
    return tuple(_avro_node(one.get("field-id"), one["name"], one["type"], known) for one in written)


def _avro_node(field_id: int | None, name: str, written: Any, known: dict[str, Any]) -> Node:
    if isinstance(written, list):
        (written,) = (one for one in written if one != "null")
    written = known.get(written, written) if isinstance(written, str) else written
    if not isinstance(written, dict):
        return Node(field_id, name, ())
    if "name" in written:
        known[written["name"]] = written
    match written["type"]:
        case "record":
            return Node(field_id, name, _avro_fields(written["fields"], known))
        case "array" if written.get("logicalType") == "map":
            return Node(field_id, name, _avro_fields(written["items"]["fields"], known))
        case "array":
            return Node(field_id, name, (_avro_node(written.get("element-id"), "element", written["items"], known),))
        case "map":
            item = _avro_node(written.get("value-id"), "value", written["values"], known)
            return Node(field_id, name, (Node(written.get("key-id"), "key", ()), item))
        case _:
            return Node(field_id, name, ())


# ORC


def write_orc(io: FileIO, path: str, schema: Schema, rows: pa.Table, *, with_field_ids: bool) -> None:
    """Write the rows with ids as Iceberg's attributes; times as numbers, fixed values and uuids as binary ones."""
    fields = [_orc_field(field, column.type, with_field_ids) for field, column in zip(schema.fields, rows, strict=True)]
    columns = [_orc_column(column, field.type) for column, field in zip(rows, fields, strict=True)]
    table = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    with io.new_output(path).create(overwrite=False) as out:
        orc.write_table(table, out, stripe_size=1024, batch_size=16)


def read_orc_rows(path: str, name_mapping: str | None, constants: Mapping[int, Any]) -> Rows:
    """Read the whole file; raises ValueError where it has neither field ids nor a name mapping."""
    with open_input(path) as source:
        table = orc.ORCFile(source).read()
    nodes = tuple(_orc_node(field) for field in table.schema)
    columns = {node.name: table.column(place).to_pylist() for place, node in enumerate(nodes)}
    return rows_of_columns(path, nodes, columns, table.num_rows, name_mapping, constants)


def _orc_column(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    values = [_orc_value(value) for value in column.to_pylist()]
    return pa.chunked_array([pa.array([_renamed(kind, value) for value in values], kind)])


def _orc_value(value: Any) -> Any:
    match value:
        case time():
            return time_to_micros(value)
        case uuid.UUID():
            return value.bytes
        case dict():
            return {key: _orc_value(one) for key, one in value.items()}
        case list() | tuple():
            return type(value)(_orc_value(one) for one in value)
        case _:
            return value


def _renamed(kind: pa.DataType, value: Any) -> Any:
    """Members of structs under the names of the type, which come in the same order."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        members = zip(kind, value.values(), strict=True)
        return {field.name: _renamed(field.type, one) for field, one in members}
    if pa.types.is_map(kind):
        return [(_renamed(kind.key_type, key), _renamed(kind.item_type, item)) for key, item in value]
    if pa.types.is_list(kind):
        return [_renamed(kind.value_type, one) for one in value]
    return value


def _orc_field(field: NestedField, stored: pa.DataType, with_ids: bool) -> pa.Field:
    metadata = {b"iceberg.id": str(field.field_id).encode()} if with_ids else None
    return pa.field(field.name, _orc_type(field.field_type, stored, with_ids), metadata=metadata)


def _orc_type(kind: IcebergType, stored: pa.DataType, with_ids: bool) -> pa.DataType:
    match kind:
        case StructType():
            inner = zip(kind.fields, (field.type for field in stored), strict=True)
            return pa.struct([_orc_field(field, one, with_ids) for field, one in inner])
        case ListType():
            return pa.list_(_orc_field(kind.element_field, stored.value_type, with_ids))
        case MapType():
            key = _orc_field(kind.key_field, stored.key_type, with_ids).with_nullable(False)
            return pa.map_(key, _orc_field(kind.value_field, stored.item_type, with_ids))
        case _ if pa.types.is_time(stored):
            return pa.int64()
        case _ if (
            isinstance(stored, pa.BaseExtensionType)
            or pa.types.is_fixed_size_binary(stored)
            or pa.types.is_large_binary(stored)
        ):
            return pa.binary()
        case _:
            return pa.string() if pa.types.is_large_string(stored) else stored


def _orc_node(field: pa.Field, name: str | None = None) -> Node:
    found = (field.metadata or {}).get(b"iceberg.id")
    kind = field.type
    if pa.types.is_map(kind):
        inner: tuple[Node, ...] = (_orc_node(kind.key_field, "key"), _orc_node(kind.item_field, "value"))
    elif pa.types.is_list(kind):
        inner = (_orc_node(kind.value_field, "element"),)
    elif pa.types.is_struct(kind):
        inner = tuple(_orc_node(one) for one in kind)
    else:
        inner = ()
    return Node(None if found is None else int(found), name or field.name, inner)
