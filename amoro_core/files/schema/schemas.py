"""Schemas, specs, sort orders and name mappings from and to JSON and Arrow; columns of row lineage."""

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote_plus

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError
from pyiceberg.conversions import from_bytes
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.transforms import HourTransform, IdentityTransform
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
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from amoro_core.errors import TableRefused
from amoro_core.model.files import FORMAT_WITH_LINEAGE, LINEAGE_IDS, LINEAGE_NAMES, DataFile, Partition

FIELD_ID = b"PARQUET:field_id"

_PRIMITIVES: dict[type[IcebergType], pa.DataType] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    DateType: pa.date32(),
    TimeType: pa.time64("us"),
    TimestampType: pa.timestamp("us"),
    TimestamptzType: pa.timestamp("us", tz="UTC"),
    TimestampNanoType: pa.timestamp("ns"),
    TimestamptzNanoType: pa.timestamp("ns", tz="UTC"),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    UUIDType: pa.uuid(),
    UnknownType: pa.null(),
}


def parse_schema(text: str) -> Schema:
    """The schema from its JSON."""
    return Schema.model_validate_json(text)


def parse_rows_schema(text: str) -> Schema:
    """The schema from its JSON as rows are held and written: without columns of the type unknown, which files lack."""
    return without_unknown(parse_schema(text))


def parse_spec(text: str) -> PartitionSpec:
    """The partition spec from its JSON."""
    return PartitionSpec.model_validate_json(text)


def parse_name_mapping(text: str | None) -> NameMapping | None:
    """The name mapping from its JSON. Raises TableRefused(reason="configuration") when it is none."""
    if text is None:
        return None
    try:
        return NameMapping.model_validate_json(text)
    except ValidationError as error:
        raise TableRefused(
            f"schema.name-mapping.default is not a name mapping: {text[:200]}", reason="configuration"
        ) from error


def with_dropped(schema: Schema, dropped: Iterable[str]) -> Schema:
    """The schema with the fields of `dropped` (as JSON) that it lacks appended to its columns.

    To a struct that it has, only missing members are added. Dropped fields are named by their id, not their old names.
    """
    return Schema(
        *_with_fields(schema.fields, (NestedField.model_validate_json(text) for text in dropped)),
        schema_id=schema.schema_id,
    )


def _with_fields(fields: tuple[NestedField, ...], dropped: Iterable[NestedField]) -> tuple[NestedField, ...]:
    for one in dropped:
        place = next((at for at, field in enumerate(fields) if field.field_id == one.field_id), None)
        if place is None:
            kind = one.field_type
            if isinstance(kind, StructType):
                kind = StructType(*_with_fields((), kind.fields))
            name = f"dropped-{one.field_id}"
            fields = (*fields, NestedField(one.field_id, name, kind, initial_default=one.initial_default))
            continue
        nested_field = fields[place]
        if isinstance(nested_field.field_type, StructType) and isinstance(one.field_type, StructType):
            kind = StructType(*_with_fields(nested_field.field_type.fields, one.field_type.fields))
            whole = NestedField(nested_field.field_id, nested_field.name, kind, required=nested_field.required)
            fields = (*fields[:place], whole, *fields[place + 1 :])
    return fields


def without_unknown(schema: Schema) -> Schema:
    """The schema without the fields of the type unknown, at every level; itself if it has none."""
    if not any(isinstance(schema.find_type(field_id), UnknownType) for field_id in schema.field_ids):
        return schema
    return Schema(*_written_fields(schema.fields), schema_id=schema.schema_id)


def _written_fields(fields: Iterable[NestedField]) -> list[NestedField]:
    return [
        with_type(one, _written_type(one.field_type)) for one in fields if not isinstance(one.field_type, UnknownType)
    ]


def _written_type(kind: IcebergType) -> IcebergType:
    match kind:
        case StructType():
            return StructType(*_written_fields(kind.fields))
        case ListType():
            return ListType(kind.element_id, _written_type(kind.element_type), kind.element_required)
        case MapType():
            value = _written_type(kind.value_type)
            return MapType(kind.key_id, _written_type(kind.key_type), kind.value_id, value, kind.value_required)
    return kind


def with_type(field: NestedField, kind: IcebergType) -> NestedField:
    """The field with another type; its default for files that lack it stays."""
    return NestedField(field.field_id, field.name, kind, field.required, initial_default=field.initial_default)


def select_ids(schema: Schema, ids: Collection[int]) -> Schema:
    """The schema with only the columns of `ids` and the structs that contain them."""
    return Schema(*_selected(schema.fields, ids))


def key_path(fields: Iterable[NestedField], field_id: int) -> tuple[int, ...] | None:
    """The path to a primitive field: its index in `fields`, then in each struct; None when it does not exist."""
    for index, field in enumerate(fields):
        if field.field_id == field_id:
            return (index,) if field.field_type.is_primitive else None
        if isinstance(field.field_type, StructType):
            inner = key_path(field.field_type.fields, field_id)
            if inner is not None:
                return (index, *inner)
    return None


def arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema in which the table's rows are held and written: field ids at each level, names like Java's."""
    return pa.schema([arrow_field(field) for field in sanitize_column_names(schema).fields])


def arrow_field(field: NestedField) -> pa.Field:
    """The Arrow field of an Iceberg field, with its field id."""
    return pa.field(
        field.name,
        arrow_type(field.field_type),
        nullable=not field.required,
        metadata={FIELD_ID: str(field.field_id).encode()},
    )


def arrow_type(kind: IcebergType) -> pa.DataType:
    """The Arrow type of an Iceberg type. Raises TableRefused(reason="type") for an unsupported one."""
    match kind:
        case StructType():
            return pa.struct([arrow_field(field) for field in kind.fields])
        case ListType():
            return pa.list_(arrow_field(kind.element_field))
        case MapType():
            return pa.map_(arrow_field(kind.key_field), arrow_field(kind.value_field))
        case DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case FixedType():
            return pa.binary(len(kind))
    simple = _PRIMITIVES.get(type(kind))
    if simple is None:
        raise TableRefused(f"columns of type {kind} are not handled", reason="type")
    return simple


def _selected(fields: Iterable[NestedField], ids: Collection[int]) -> list[NestedField]:
    kept = []
    for field in fields:
        if field.field_id in ids:
            kept.append(field)
        elif isinstance(field.field_type, StructType):
            inner = _selected(field.field_type.fields, ids)
            if inner:
                kept.append(NestedField(field.field_id, field.name, StructType(*inner), required=field.required))
    return kept


#: Values of columns known from a file's partition: one-value Arrow arrays of the column's type, by field id.
Constants = Mapping[int, pa.Array]


def partition_path(spec: PartitionSpec, partition: Partition, schema: Schema) -> str:
    """The partition as Iceberg writes it in paths; "" when unpartitioned."""
    return path_of_values(spec, [field.field_type for field in spec.partition_type(schema).fields], partition)


def path_of_values(spec: PartitionSpec, types: Sequence[IcebergType], partition: Partition) -> str:
    """The partition as Iceberg writes it in paths, its fields having these types; "" when unpartitioned."""
    parts = []
    for field, kind, value in zip(spec.fields, types, partition, strict=True):
        shown = _value_text(field.transform, kind, value)
        parts.append(f"{quote_plus(field.name, safe='')}={quote_plus(shown, safe='')}")
    return "/".join(parts)


def identity_constants(spec: PartitionSpec, partition: Partition, schema: Schema) -> Constants:
    """The values of identity-partitioned columns, for files that lack these columns."""
    constants = {}
    for field, value in zip(spec.fields, partition, strict=True):
        if isinstance(field.transform, IdentityTransform) and field.source_id in schema.field_ids:
            kind = schema.find_type(field.source_id)
            if isinstance(kind, PrimitiveType):
                constants[field.source_id] = values_array(kind, [value])
    return constants


def _value_text(transform: Any, kind: Any, value: bytes | None) -> str:
    if value is None:
        return "null"
    if isinstance(kind, UnknownType):
        return value.hex()  # the source column was dropped, so the value's type is unknown
    decoded = _decoded(kind, value)
    if isinstance(kind, TimestampNanoType | TimestamptzNanoType):  # pyiceberg shows the mere number
        return _moment(transform, kind, decoded)
    try:
        return str(transform.to_human_string(kind, decoded))
    except OverflowError:  # outside the years 1 to 9999, the range of Python's dates but not of Iceberg's
        return _moment(transform, kind, decoded)


def _moment(transform: Any, kind: Any, value: int) -> str:
    unit: Literal["D", "h", "us", "ns"]
    if isinstance(kind, TimestampNanoType | TimestamptzNanoType):
        unit = "ns"
    else:
        unit = "h" if isinstance(transform, HourTransform) else "us" if "time" in str(kind) else "D"
    shown = str(np.datetime64(value, unit))
    if unit == "h":
        return shown.replace("T", "-")
    return f"{shown}+00:00" if isinstance(kind, TimestamptzType | TimestamptzNanoType) else shown


def _decoded(kind: PrimitiveType, value: bytes) -> Any:
    if isinstance(kind, UUIDType):
        return uuid.UUID(bytes=value)
    return from_bytes(kind, value)


def values_array(kind: PrimitiveType, values: Sequence[bytes | None]) -> pa.Array:
    """The serialized values of one partition field as an array of its type."""
    wanted = arrow_type(kind)
    if isinstance(kind, UUIDType):
        return pa.ExtensionArray.from_storage(wanted, pa.array(values, pa.binary(16)))
    if isinstance(kind, StringType):
        return pa.array(values, pa.binary()).cast(wanted)
    decoded = [None if value is None else from_bytes(kind, value) for value in values]
    if pa.types.is_temporal(wanted):
        stored = pa.int32() if wanted.bit_width == 32 else pa.int64()
        return pa.array(decoded, stored).view(wanted)
    return pa.array(decoded, wanted)


Positions = npt.NDArray[np.int64]


def written_schema(schema: Schema, format_version: int) -> Schema:
    """The columns of the data files that are written for a table: its own, with lineage from format 3 on.

    Readers know the two by their field ids; their names get longer where the table has columns of these names.
    """
    if format_version < FORMAT_WITH_LINEAGE:
        return schema
    taken = {field.name for field in schema.fields}
    fields = []
    for field_id, name in zip(LINEAGE_IDS, LINEAGE_NAMES, strict=True):
        while name in taken:
            name += "_"
        fields.append(NestedField(field_id, name, LongType(), required=False))
    return Schema(*schema.fields, *fields, schema_id=schema.schema_id)


def has_lineage(schema: Schema) -> bool:
    """Whether the schema is one of files that hold lineage."""
    return tuple(field.field_id for field in schema.fields[-len(LINEAGE_IDS) :]) == LINEAGE_IDS


def lineage_of(schema: Schema) -> Schema:
    """The two columns of a schema that has them."""
    return Schema(*schema.fields[-len(LINEAGE_IDS) :])


def with_lineage(batch: pa.RecordBatch, positions: Positions, file: DataFile) -> pa.RecordBatch:
    """The file's rows, whose last columns are lineage as it is stored or null, with the lineage that they have.

    `positions`: of the rows in the file. Without a first row id of the file, rows get their ids by the next commit.
    """
    *columns, ids, numbers = batch.columns
    if file.first_row_id is not None and ids.null_count:
        ids = _completed(ids, pa.array(positions + file.first_row_id))
    if numbers.null_count:
        numbers = _completed(numbers, pa.array(np.full(len(numbers), file.sequence_number, np.int64)))
    return pa.RecordBatch.from_arrays([*columns, ids, numbers], schema=batch.schema)


def _completed(stored: pa.Array, made: pa.Array) -> pa.Array:
    return made if stored.null_count == len(stored) else pc.coalesce(stored, made)
