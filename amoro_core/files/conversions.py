"""Conversion of primitive Arrow arrays from a file's types to the table's: exact, or refused."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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
    LongType,
    NestedField,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from amoro_core.errors import UnreadableFile

_SMALL_INTS = (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16())
_LONGS = (*_SMALL_INTS, pa.int64(), pa.uint32())
#: Of a timestamp's units, those in a day.
_A_DAY = {"us": 86_400_000_000, "ns": 86_400_000_000_000}


def converted(array: pa.Array, wanted: NestedField, target: pa.DataType, *, drop_nulls: bool = False) -> pa.Array:
    """The array as `target`, the Arrow type of `wanted`, promoted where Iceberg's specification allows it.

    With `drop_nulls`, nulls become arbitrary values: the caller knows that a struct around them is null.
    Raises UnreadableFile for a type that can't be read as the wanted one, and for a value that is beyond its range.
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
