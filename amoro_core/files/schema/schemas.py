"""Schemas, specs, sort orders and name mappings from and to JSON and Arrow; files' columns projected to a schema."""

import dataclasses
import struct
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote_plus

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError
from pyiceberg.conversions import from_bytes, from_json, to_bytes
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table.name_mapping import MappedField, NameMapping
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

from amoro_core.errors import TableRefused, UnreadableFile, misconfigured
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
        raise misconfigured(f"schema.name-mapping.default is not a name mapping: {text[:200]}") from error


def with_dropped(schema: Schema, dropped: Iterable[str]) -> Schema:
    """The schema with the fields of `dropped` (as JSON) that it lacks appended to its columns.

    To a struct that it has, only missing members are added. Dropped fields are named by their id, not their old names.
    """
    return Schema(
        *_with_fields(schema.fields, (NestedField.model_validate_json(text) for text in dropped)),
        schema_id=schema.schema_id,
    )


def _with_fields(fields: tuple[NestedField, ...], dropped: Iterable[NestedField]) -> tuple[NestedField, ...]:
    for column in dropped:
        place = next((at for at, field in enumerate(fields) if field.field_id == column.field_id), None)
        if place is None:
            kind = column.field_type
            if isinstance(kind, StructType):
                kind = StructType(*_with_fields((), kind.fields))
            name = f"dropped-{column.field_id}"
            fields = (*fields, NestedField(column.field_id, name, kind, initial_default=column.initial_default))
            continue
        nested_field = fields[place]
        if isinstance(nested_field.field_type, StructType) and isinstance(column.field_type, StructType):
            kind = StructType(*_with_fields(nested_field.field_type.fields, column.field_type.fields))
            whole = NestedField(nested_field.field_id, nested_field.name, kind, required=nested_field.required)
            fields = (*fields[:place], whole, *fields[place + 1 :])
    return fields


def without_unknown(schema: Schema) -> Schema:
    """The schema without the fields of the type unknown, at every level; itself if it has none."""
    if not any(isinstance(schema.find_type(field_id), UnknownType) for field_id in schema.field_ids):
        return schema
    return Schema(*_written_fields(schema.fields), schema_id=schema.schema_id)


def _written_fields(fields: Iterable[NestedField]) -> list[NestedField]:
    stored = (field for field in fields if not isinstance(field.field_type, UnknownType))
    return [with_type(field, _written_type(field.field_type)) for field in stored]


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
    result = []
    for field in fields:
        if field.field_id in ids:
            result.append(field)
        elif isinstance(field.field_type, StructType):
            inner = _selected(field.field_type.fields, ids)
            if inner:
                result.append(NestedField(field.field_id, field.name, StructType(*inner), required=field.required))
    return result


#: Values of columns known from a file's partition: one-value Arrow arrays of the column's type, by field id.
Constants = Mapping[int, pa.Array]


def partition_path(spec: PartitionSpec, partition: Partition, schema: Schema) -> str:
    """The partition as Iceberg writes it in paths; "" when unpartitioned."""
    return path_of_values(spec, [field.field_type for field in spec.partition_type(schema).fields], partition)


def path_of_values(spec: PartitionSpec, types: Sequence[IcebergType], partition: Partition) -> str:
    """The partition as Iceberg writes it in paths, its fields having these types; "" when unpartitioned."""
    parts = []
    for field, kind, value in zip(spec.fields, types, partition, strict=True):
        text = _value_text(field.transform, kind, value)
        parts.append(f"{quote_plus(field.name, safe='')}={quote_plus(text, safe='')}")
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
    text = str(np.datetime64(value, unit))
    if unit == "h":
        return text.replace("T", "-")
    return f"{text}+00:00" if isinstance(kind, TimestamptzType | TimestamptzNanoType) else text


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
    names = {field.name for field in schema.fields}
    fields = []
    for field_id, name in zip(LINEAGE_IDS, LINEAGE_NAMES, strict=True):
        while name in names:
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


def _completed(stored: pa.Array, values: pa.Array) -> pa.Array:
    return values if stored.null_count == len(stored) else pc.coalesce(stored, values)


#: Of a timestamp's units, those in a day.
_A_DAY = {"us": 86_400_000_000, "ns": 86_400_000_000_000}
_UNITS: Mapping[type[IcebergType], str] = {TimestampType: "us", TimestampNanoType: "ns"}
_INT, _LONG, _FLOAT, _DOUBLE = (struct.Struct(code) for code in ("<i", "<q", "<f", "<d"))


def promoted(kind: IcebergType, value: bytes) -> bytes | None:
    """A value in binary form, of the type `kind` or of the one that the column had before, as a value of `kind`.

    Four bytes are an int of a long, a float of a double, a date of a timestamp. None: beyond the present type.
    """
    if len(value) != 4:
        return value
    if isinstance(kind, LongType):
        return _LONG.pack(*_INT.unpack(value))
    if isinstance(kind, DoubleType):
        return _DOUBLE.pack(*_FLOAT.unpack(value))
    unit = _UNITS.get(type(kind))
    if unit is None:
        return value
    moment = _INT.unpack(value)[0] * _A_DAY[unit]
    return _LONG.pack(moment) if -(2**63) <= moment < 2**63 else None


def default_array(field: NestedField) -> pa.Array | None:
    """The field's initial default as an array of one value of its Arrow type; None without one."""
    kind, value = field.field_type, field.initial_default
    if value is None or not isinstance(kind, PrimitiveType):
        return None
    return values_array(kind, [to_bytes(kind, value)])


def unusable_default(kind: PrimitiveType, value: Any) -> str | None:
    """Why a default, as JSON has it, is no value of the type that can be read here; None when it is one."""
    try:
        values_array(kind, [to_bytes(kind, from_json(kind, value))])
    except Exception as error:  # whatever a value of a wrong type or range makes of the conversions
        return f"{type(error).__name__}: {error}"
    return None


_SMALL_INTS = (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16())
_LONGS = (*_SMALL_INTS, pa.int64(), pa.uint32())


def converted(array: pa.Array, wanted: NestedField, target: pa.DataType, *, drop_nulls: bool = False) -> pa.Array:
    """The array as `target`, the Arrow type of `wanted`, promoted where Iceberg's specification allows it.

    With `drop_nulls`, nulls become arbitrary values: a struct around them is null. Raises UnreadableFile for a type
    that can't be read as the wanted one, and for a value beyond its range.
    """
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    change = _CHANGES.get(type(wanted.field_type))
    stored = pa.binary(16) if isinstance(wanted.field_type, UUIDType) else target
    try:
        changed = array if array.type == stored else change(array, stored) if change is not None else None
    except OverflowError as error:
        raise UnreadableFile(
            f"the column {wanted.name} (id {wanted.field_id}) has the value {error}, which is beyond the range of"
            f" {wanted.field_type}"
        ) from error
    if changed is None or changed.type != stored:
        raise UnreadableFile(
            f"the column {wanted.name} (id {wanted.field_id}) is {array.type} in the file "
            f"and cannot be read as {wanted.field_type}"
        )
    if drop_nulls:
        changed = without_validity(changed)
    return changed if stored == target else pa.ExtensionArray.from_storage(target, changed)


def without_validity(array: pa.Array) -> pa.Array:
    """The array with arbitrary values where it has nulls."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, without_validity(array.storage))
    if pa.types.is_struct(kind):
        children = [array.field(index) for index in range(kind.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(kind))
    if pa.types.is_map(kind):
        entries = pa.StructArray.from_arrays([array.keys, array.items], fields=[kind.key_field, kind.item_field])
        return _nested_without_validity(array, entries)
    if pa.types.is_list(kind):
        return _nested_without_validity(array, array.values)
    return pa.Array.from_buffers(kind, len(array), [None, *array.buffers()[1:]], offset=array.offset)


def _nested_without_validity(array: pa.Array, values: pa.Array) -> pa.Array:
    return pa.Array.from_buffers(
        array.type, len(array), [None, array.buffers()[1]], offset=array.offset, children=[values]
    )


def _integer(array: pa.Array, target: pa.DataType) -> pa.Array:
    return array.cast(target) if array.type in _SMALL_INTS else array


def _long(array: pa.Array, target: pa.DataType) -> pa.Array:
    return array.cast(target) if array.type in _LONGS else array


def _double(array: pa.Array, target: pa.DataType) -> pa.Array:
    return array.cast(target) if array.type == pa.float32() else array


def _decimal(array: pa.Array, target: pa.DataType) -> pa.Array:
    same_scale = pa.types.is_decimal(array.type) and array.type.scale == target.scale
    return array.cast(target) if same_scale else array


def _date(array: pa.Array, target: pa.DataType) -> pa.Array:
    return array.view(target) if array.type == pa.int32() else array


def _time(array: pa.Array, target: pa.DataType) -> pa.Array:
    if array.type == pa.int64():
        return array.view(target)
    return array.cast(target) if pa.types.is_time(array.type) else array


def _timestamp(array: pa.Array, target: pa.DataType) -> pa.Array:
    """The same instants; the table's type decides about the zone, not the file's "adjusted to UTC".

    Only nanoseconds are read as such: of other units it is not known what was cut off (those of INT96 are cut here).
    """
    if pa.types.is_date32(array.type) and target.tz is None:
        return _midnights(array, target)
    if pa.types.is_timestamp(array.type) and (target.unit != "ns" or array.type.unit == "ns"):
        return array.cast(pa.timestamp(target.unit, array.type.tz)).view(pa.int64()).view(target)
    return array.view(target) if array.type == pa.int64() else array


def _midnights(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Dates as the beginnings of their days. Raises OverflowError with the first date beyond the target's range."""
    units = _A_DAY[target.unit]
    days = array.view(pa.int32()).cast(pa.int64())
    beyond = pc.or_(pc.less(days, -(2**63 // units)), pc.greater(days, (2**63 - 1) // units))
    if pc.any(beyond).as_py():
        first = days.filter(beyond.fill_null(False))[0].as_py()
        raise OverflowError(str(np.datetime64(first, "D")))
    return pc.multiply(days, units).view(target)


def _bytes(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Strings and binary values convert to each other byte by byte: old writers do not annotate strings."""
    kind = array.type
    is_binary = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    is_binary = is_binary or pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    is_binary = is_binary or (pa.types.is_fixed_size_binary(kind) and pa.types.is_binary(target))
    return array.cast(options=pc.CastOptions(target, allow_invalid_utf8=True)) if is_binary else array


def _fixed(array: pa.Array, target: pa.DataType) -> pa.Array:
    return array.cast(target) if pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type) else array


def _same(array: pa.Array, target: pa.DataType) -> pa.Array:
    return array


_CHANGES: dict[type[IcebergType], Callable[[pa.Array, pa.DataType], pa.Array]] = {
    BooleanType: _same,
    IntegerType: _integer,
    LongType: _long,
    FloatType: _same,
    DoubleType: _double,
    DecimalType: _decimal,
    DateType: _date,
    TimeType: _time,
    TimestampType: _timestamp,
    TimestamptzType: _timestamp,
    TimestampNanoType: _timestamp,
    TimestamptzNanoType: _timestamp,
    StringType: _bytes,
    BinaryType: _bytes,
    FixedType: _fixed,
    UUIDType: _fixed,
}


_NO_CONSTANTS: Constants = {}


@dataclasses.dataclass(frozen=True, slots=True)
class FileField:
    """A field of a file with its Iceberg id; children as Arrow orders them (list: element, map: key and value)."""

    field_id: int | None
    children: tuple["FileField", ...] = ()

    def child(self, field_id: int) -> int | None:
        return _index_of(self.children, field_id)


@dataclasses.dataclass(frozen=True, slots=True)
class Projection:
    """The projection of batches of files with one schema onto a table's schema."""

    schema: Schema
    columns: tuple[str, ...]  # the files' columns to read
    mapping: NameMapping | None  # None: the files have field ids
    constants: Constants = dataclasses.field(default_factory=dict)
    arrow: pa.Schema = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "arrow", arrow_schema(self.schema))

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows in the schema's columns and types. Raises UnreadableFile, also for a missing required value."""
        identified = FileField(None, _identified(batch.schema, self.mapping))
        arrays = []
        for nested_field, target in zip(self.schema.fields, self.arrow, strict=True):
            index = identified.child(nested_field.field_id)
            if index is None:
                arrays.append(_missing(nested_field, target, batch.num_rows, self.constants))
            else:
                result = identified.children[index]
                arrays.append(_projected(batch.column(index), result, nested_field, target, self.constants, None))
        if not arrays:
            return batch.select([])
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)


def bind(
    schema: Schema, file_schema: pa.Schema, mapping: NameMapping | None, constants: Constants, path: str
) -> Projection:
    """The projection of the file at `path`, with `file_schema`, onto `schema`.

    A file with any field id is read by ids; one without ids, by the mapping. Raises TableRefused(reason="field-ids")
    when there are neither, or when two of its columns have the same id of the schema.
    """
    used = None if _has_ids(file_schema) else mapping
    if used is None and not _has_ids(file_schema):
        raise TableRefused(
            f"{path} has no field ids, and the table has no name mapping to read it by",
            reason="field-ids",
            hint="set schema.name-mapping.default on the table",
        )
    _refuse_twice(_identified(file_schema, used), schema, path)
    wanted = {column.field_id for column in schema.fields}
    names = zip(file_schema.names, _identified(file_schema, used), strict=True)
    columns = tuple(name for name, result in names if result.field_id in wanted)
    return Projection(schema, columns, used, constants)


def _refuse_twice(fields: Sequence[FileField], schema: Schema, path: str) -> None:
    """Refuse two columns with the same id: some readers take the first, others the last."""
    seen: set[int] = set()
    waiting = list(fields)
    while waiting:
        column = waiting.pop()
        waiting += column.children
        if column.field_id is None:
            continue
        if column.field_id in seen and column.field_id in schema.field_ids:
            name = schema.find_column_name(column.field_id)
            raise TableRefused(
                f"{path} has two columns with the field id {column.field_id} ({name})",
                reason="field-ids",
                hint="Rewrite the file with the engine that wrote it.",
            )
        seen.add(column.field_id)


def field_ids_in(projection: Projection, file_schema: pa.Schema) -> frozenset[int]:
    """The ids of all fields, nested ones included, that a file with this schema holds."""
    ids: set[int] = set()
    open_fields = list(_identified(file_schema, projection.mapping))
    while open_fields:
        file_field = open_fields.pop()
        if file_field.field_id is not None:
            ids.add(file_field.field_id)
        open_fields.extend(file_field.children)
    return frozenset(ids)


def leaf_ids(file_schema: pa.Schema) -> tuple[tuple[int | None, bool], ...]:
    """The field id of each leaf column in the file's order, and whether it is repeated (in a list or map)."""
    return tuple(leaf for column in file_schema for leaf in _leaves(column, False))


def _leaves(column: pa.Field, repeated: bool) -> list[tuple[int | None, bool]]:
    inner = _children(column.type)
    if not inner:
        return [(_own_id(column), repeated)]
    below = repeated or not pa.types.is_struct(column.type)
    return [leaf for child in inner for leaf in _leaves(child, below)]


def _children(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_struct(kind):
        return [kind.field(index) for index in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    if _is_list(kind):
        return [kind.value_field]
    return []


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _own_id(column: pa.Field) -> int | None:
    text = (column.metadata or {}).get(FIELD_ID)
    return int(text) if text is not None else None


def _has_ids(columns: pa.Schema) -> bool:
    return any(_own_id(column) is not None or _has_ids(_children(column.type)) for column in columns)


def _identified(columns: pa.Schema, mapping: NameMapping | None) -> tuple[FileField, ...]:
    if mapping is None:
        return tuple(_by_id(column) for column in columns)
    return _by_name(columns, mapping.root)


def _by_id(column: pa.Field) -> FileField:
    return FileField(_own_id(column), tuple(_by_id(child) for child in _children(column.type)))


def _by_name(columns: pa.Schema, mapped: Sequence[MappedField]) -> tuple[FileField, ...]:
    by_name = {name: entry for entry in mapped for name in entry.names}
    result = []
    for column in columns:
        entry = by_name.get(column.name)
        inner = _children(column.type)
        if not pa.types.is_struct(column.type):
            # writers name elements, keys and values differently; a mapping only knows these names
            names = ("element",) if len(inner) == 1 else ("key", "value")
            inner = [child.with_name(name) for child, name in zip(inner, names, strict=False)]
        below = _by_name(inner, entry.fields if entry is not None else ())
        result.append(FileField(entry.field_id if entry is not None else None, below))
    return tuple(result)


def _index_of(fields: Sequence[FileField], field_id: int) -> int | None:
    for index, file_field in enumerate(fields):
        if file_field.field_id == field_id:
            return index
    return None


def _missing(wanted: NestedField, target: pa.Field, rows: int, constants: Constants) -> pa.Array:
    """The partition's value, else the column's default, else nulls."""
    constant = constants.get(wanted.field_id)
    if constant is None:
        constant = default_array(wanted)
    if constant is not None:
        return constant.take(pa.array(np.zeros(rows, np.int64)))
    if wanted.required and rows:
        raise UnreadableFile(f"the required column {wanted.name} (id {wanted.field_id}) is missing")
    return _nulls(rows, target.type)


def _nulls(rows: int, kind: pa.DataType) -> pa.Array:
    """Nulls whose required members are not null themselves: the Parquet writer checks each level separately."""
    if not pa.types.is_struct(kind):
        return pa.nulls(rows, kind)
    children = [
        _nulls(rows, inner.type) if inner.nullable else without_validity(_nulls(rows, inner.type)) for inner in kind
    ]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=pa.array(np.ones(rows, np.bool_)))


def _projected(
    array: pa.Array,
    stored: FileField,
    wanted: NestedField,
    target: pa.Field,
    constants: Constants,
    outer_nulls: pa.Array | None,
) -> pa.Array:
    """The array as `wanted`. Where `outer_nulls` is true an enclosing struct is null, so the value may be null too."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    nulls = array.is_null() if array.null_count else None
    if wanted.required and nulls is not None:
        _require_none(nulls, outer_nulls, wanted)
    kind = wanted.field_type
    if isinstance(kind, StructType) and pa.types.is_struct(array.type):
        return _projected_struct(array, stored, kind, wanted.required, target, constants, nulls, outer_nulls)
    if isinstance(kind, ListType) and _is_list(array.type):
        return _projected_list(array, stored, kind, wanted.required, target)
    if isinstance(kind, MapType) and pa.types.is_map(array.type):
        return _projected_map(array, stored, kind, wanted.required, target)
    return converted(array, wanted, target.type, drop_nulls=wanted.required and nulls is not None)


def _require_none(nulls: pa.Array, outer_nulls: pa.Array | None, wanted: NestedField) -> None:
    covered = outer_nulls is not None and not pc.any(pc.and_not(nulls, outer_nulls)).as_py()
    if not covered:
        raise UnreadableFile(f"the required column {wanted.name} (id {wanted.field_id}) has nulls")


def _projected_struct(
    array: pa.Array,
    stored: FileField,
    kind: StructType,
    required: bool,
    target: pa.Field,
    constants: Constants,
    nulls: pa.Array | None,
    outer_nulls: pa.Array | None,
) -> pa.Array:
    hidden = nulls if outer_nulls is None else outer_nulls if nulls is None else pc.or_(nulls, outer_nulls)
    children = []
    for index, nested_field in enumerate(kind.fields):
        inner = target.type.field(index)
        position = stored.child(nested_field.field_id)
        if position is None:
            children.append(_missing(nested_field, inner, len(array), constants))
        else:
            below = array.field(position)
            children.append(_projected(below, stored.children[position], nested_field, inner, constants, hidden))
    mask = None if required else nulls
    return pa.StructArray.from_arrays(children, fields=list(target.type), mask=mask)


def _projected_list(array: pa.Array, stored: FileField, kind: ListType, required: bool, target: pa.Field) -> pa.Array:
    if not pa.types.is_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    validity, offsets = array.buffers()[:2]
    element = target.type.value_field
    values = _element(array.values, stored.children[0], kind.element_field, element)
    return pa.Array.from_buffers(
        target.type, len(array), [None if required else validity, offsets], offset=array.offset, children=[values]
    )


def _projected_map(array: pa.Array, stored: FileField, kind: MapType, required: bool, target: pa.Field) -> pa.Array:
    validity, offsets = array.buffers()[:2]
    key_field, item_field = target.type.key_field, target.type.item_field
    keys = _element(array.keys, stored.children[0], kind.key_field, key_field)
    items = _element(array.items, stored.children[1], kind.value_field, item_field)
    entries = pa.StructArray.from_arrays([keys, items], fields=[key_field, item_field])
    return pa.Array.from_buffers(
        target.type, len(array), [None if required else validity, offsets], offset=array.offset, children=[entries]
    )


def _element(values: pa.Array, stored: FileField, wanted: NestedField, target: pa.Field) -> pa.Array:
    if stored.field_id != wanted.field_id:
        raise UnreadableFile(f"the {wanted.name} of a list or map has id {stored.field_id}, not {wanted.field_id}")
    return _projected(values, stored, wanted, target, _NO_CONSTANTS, None)
