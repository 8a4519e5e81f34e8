"""Projection of a file's columns to the table's schema: type promotion, initial defaults, casts."""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_json, to_bytes
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField, NameMapping
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
    UUIDType,
)

from amoro_core.errors import TableRefused, UnreadableFile
from amoro_core.files.schema.schemas import FIELD_ID, Constants, arrow_schema, values_array

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
    known = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    known = known or pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    known = known or (pa.types.is_fixed_size_binary(kind) and pa.types.is_binary(target))
    return array.cast(options=pc.CastOptions(target, allow_invalid_utf8=True)) if known else array


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


@dataclass(frozen=True, slots=True)
class FileField:
    """A field of a file with its Iceberg id; children as Arrow orders them (list: element, map: key and value)."""

    field_id: int | None
    children: tuple["FileField", ...] = ()

    def child(self, field_id: int) -> int | None:
        """The index of the child with that id."""
        return _index_of(self.children, field_id)


@dataclass(frozen=True, slots=True)
class Projection:
    """The projection of batches of files with one schema onto a table's schema."""

    schema: Schema
    columns: tuple[str, ...]  # the files' columns to read
    mapping: NameMapping | None  # None: the files have field ids
    constants: Constants = field(default_factory=dict)
    arrow: pa.Schema = field(init=False)

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
        one = waiting.pop()
        waiting += one.children
        if one.field_id is None:
            continue
        if one.field_id in seen and one.field_id in schema.field_ids:
            raise TableRefused(
                f"{path} has two columns with the field id {one.field_id} ({schema.find_column_name(one.field_id)})",
                reason="field-ids",
                hint="Rewrite the file with the engine that wrote it.",
            )
        seen.add(one.field_id)


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
    known = {name: entry for entry in mapped for name in entry.names}
    result = []
    for column in columns:
        entry = known.get(column.name)
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
    found: FileField,
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
        return _projected_struct(array, found, kind, wanted.required, target, constants, nulls, outer_nulls)
    if isinstance(kind, ListType) and _is_list(array.type):
        return _projected_list(array, found, kind, wanted.required, target)
    if isinstance(kind, MapType) and pa.types.is_map(array.type):
        return _projected_map(array, found, kind, wanted.required, target)
    return converted(array, wanted, target.type, drop_nulls=wanted.required and nulls is not None)


def _require_none(nulls: pa.Array, outer_nulls: pa.Array | None, wanted: NestedField) -> None:
    covered = outer_nulls is not None and not pc.any(pc.and_not(nulls, outer_nulls)).as_py()
    if not covered:
        raise UnreadableFile(f"the required column {wanted.name} (id {wanted.field_id}) has nulls")


def _projected_struct(
    array: pa.Array,
    found: FileField,
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
        position = found.child(nested_field.field_id)
        if position is None:
            children.append(_missing(nested_field, inner, len(array), constants))
        else:
            below = array.field(position)
            children.append(_projected(below, found.children[position], nested_field, inner, constants, hidden))
    mask = None if required else nulls
    return pa.StructArray.from_arrays(children, fields=list(target.type), mask=mask)


def _projected_list(array: pa.Array, found: FileField, kind: ListType, required: bool, target: pa.Field) -> pa.Array:
    if not pa.types.is_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    validity, offsets = array.buffers()[:2]
    element = target.type.value_field
    values = _element(array.values, found.children[0], kind.element_field, element)
    return pa.Array.from_buffers(
        target.type, len(array), [None if required else validity, offsets], offset=array.offset, children=[values]
    )


def _projected_map(array: pa.Array, found: FileField, kind: MapType, required: bool, target: pa.Field) -> pa.Array:
    validity, offsets = array.buffers()[:2]
    key_field, item_field = target.type.key_field, target.type.item_field
    keys = _element(array.keys, found.children[0], kind.key_field, key_field)
    items = _element(array.items, found.children[1], kind.value_field, item_field)
    entries = pa.StructArray.from_arrays([keys, items], fields=[key_field, item_field])
    return pa.Array.from_buffers(
        target.type, len(array), [None if required else validity, offsets], offset=array.offset, children=[entries]
    )


def _element(values: pa.Array, found: FileField, wanted: NestedField, target: pa.Field) -> pa.Array:
    if found.field_id != wanted.field_id:
        raise UnreadableFile(f"the {wanted.name} of a list or map has id {found.field_id}, not {wanted.field_id}")
    return _projected(values, found, wanted, target, _NO_CONSTANTS, None)
