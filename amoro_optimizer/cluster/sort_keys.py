"""Sort keys of rows: values, transforms and orders of columns as words of 64 bits or bytes."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
    parse_transform,
)
from pyiceberg.types import IcebergType

from amoro_core.errors import misconfigured
from amoro_core.files.hashing import bucket_hashes, stored_bytes
from amoro_core.files.schema.schemas import arrow_type, key_path, select_ids
from amoro_core.model.clustering import CURVE_VERSION, MAX_CURVE_COLUMNS, Layout, LayoutKey, Strategy

Words = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]
#: Of rows in their file.
Positions = npt.NDArray[np.int64]
#: One value for each row: words, or an Arrow array of binary values; never null.
Part: TypeAlias = "Words | pa.Array"

_SIGN = np.uint64(1 << 63)
_WORD = 8
#: Decimals of so many digits fit into one word.
_WORD_DIGITS = 18


def value_parts(array: pa.Array) -> tuple[Part, ...]:
    """What orders the values of a primitive column, the first part deciding first. Nulls are as zero, or empty.

    Floats order as −NaN < −∞ < … < −0 < 0 < … < NaN, strings by their UTF-8 bytes, uuid, fixed and binary values by
    their bytes, decimals by value. Raises ValueError for a nested column.
    """
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        stored = array.view(pa.binary())
        return (stored.fill_null(b"") if stored.null_count else stored,)
    if pa.types.is_nested(kind):
        raise ValueError(f"a column of type {kind} has no order")
    parts = _fixed_parts(array)
    if array.null_count:
        nulls = array.is_null().to_numpy(zero_copy_only=False)
        for part in parts:
            part[nulls] = 0
    return parts


def signed_words(numbers: npt.NDArray[np.int64]) -> Words:
    """Signed numbers as words in the same order."""
    return numbers.astype(np.int64).view(np.uint64) ^ _SIGN


def unscaled(array: pa.Array) -> tuple[npt.NDArray[np.int64], Words]:
    """Decimals as whole numbers of 128 bits: the signed upper and the lower half."""
    words = _stored(array, np.dtype("<u8"), 2).reshape(-1, 2)
    return words[:, 1].view(np.int64).copy(), words[:, 0].copy()


def halves(upper: npt.NDArray[np.int64], lower: Words) -> tuple[Words, Words]:
    """What orders whole numbers of 128 bits."""
    return signed_words(upper), lower


def is_narrow(kind: pa.DataType) -> bool:
    """Whether decimals of the type fit into the lower half."""
    return bool(kind.precision <= _WORD_DIGITS)


def _fixed_parts(array: pa.Array) -> tuple[Words, ...]:
    kind = array.type
    if pa.types.is_boolean(kind):
        return (pc.fill_null(array.cast(pa.uint8()), 0).to_numpy().astype(np.uint64),)
    if pa.types.is_decimal(kind):
        upper, lower = unscaled(array)
        return (signed_words(lower.view(np.int64)),) if is_narrow(kind) else halves(upper, lower)
    if pa.types.is_fixed_size_binary(kind):
        return _big_endian(array)
    if pa.types.is_float32(kind):
        return (_float_words(_stored(array, np.dtype("<u4")), 31),)
    if pa.types.is_float64(kind):
        return (_float_words(_stored(array, np.dtype("<u8")), 63),)
    stored = _stored(array, np.dtype("<i4") if kind.bit_width == 32 else np.dtype("<i8"))
    return (signed_words(stored),)


def _float_words(bits: npt.NDArray[np.unsignedinteger], sign_bit: int) -> Words:
    """The IEEE total order: negative values by their complement, the others behind them."""
    sign = bits.dtype.type(1 << sign_bit)
    return np.where(bits & sign, ~bits, bits | sign).astype(np.uint64)


def _big_endian(array: pa.Array) -> tuple[Words, ...]:
    width = array.type.byte_width
    count = max(1, -(-width // _WORD))
    padded = np.zeros((len(array), count * _WORD), np.uint8)
    if width:
        padded[:, :width] = _stored(array, np.dtype(np.uint8), width).reshape(-1, width)
    words = padded.view(">u8").astype(np.uint64)
    return tuple(np.ascontiguousarray(words[:, number]) for number in range(count))


def _stored(array: pa.Array, kind: np.dtype[Any], values: int = 1) -> npt.NDArray[Any]:
    """The array's own buffer, of so many values a row; whatever stands where it is null."""
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array) * values, kind)
    return np.frombuffer(buffer, kind)[array.offset * values :][: len(array) * values]


def arrow_part(part: Part) -> pa.Array:
    """The part as an Arrow array."""
    return pa.array(part) if isinstance(part, np.ndarray) else part


def part_of(array: pa.Array | pa.ChunkedArray) -> Part:
    """The part that an array or a column of a table holds."""
    whole = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks)
    return whole if pa.types.is_binary(whole.type) else np.array(whole.to_numpy(), np.uint64)


def take_rows(part: Part, rows: npt.NDArray[np.int64]) -> Part:
    """The values of these rows, in their order."""
    return part[rows] if isinstance(part, np.ndarray) else part.take(pa.array(rows))


def sort_rows(parts: Sequence[Part], descending: Sequence[bool]) -> npt.NDArray[np.int64]:
    """The stable order of rows by at least one part; `descending` turns binary parts alone."""
    deciding = [
        part if isinstance(part, np.ndarray) else _codes(part, down)
        for part, down in zip(parts, descending, strict=True)
        if not is_constant(part)
    ]
    if not deciding:
        return np.arange(len(parts[0]), dtype=np.int64)
    if len(deciding) == 1:
        return np.argsort(deciding[0], kind="stable")
    return np.lexsort(deciding[::-1])


def joined(parts: Sequence[Part]) -> Part:
    """The rows of all, one after the other."""
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else pa.concat_arrays(parts)


def is_constant(part: Part) -> bool:
    """Whether all values are equal."""
    if len(part) < 2:
        return True
    if isinstance(part, np.ndarray):
        return bool(part[0] == part[-1]) and bool((part == part[0]).all())
    return part[0] == part[-1] and bool(pc.all(pc.equal(part, part[0])).as_py())


def _codes(values: pa.Array, descending: bool) -> npt.NDArray[np.int64]:
    """Numbers in the order of binary values."""
    ranks = pc.rank(values, "descending" if descending else "ascending", tiebreaker="dense")
    codes: npt.NDArray[np.int64] = ranks.to_numpy().astype(np.int64)
    return codes


#: How the parts of one column are made.
Parts = Callable[[pa.Array], tuple[Part, ...]]


_HOUR_US = 3_600_000_000
_DAY_US = 24 * _HOUR_US
_CONTINUES, _CONTINUED = 0xC0, 0x80  # bytes within a character of UTF-8 are 10xxxxxx

_Numbers = npt.NDArray[np.int64]


def transform_parts(name: str, kind: IcebergType) -> Parts:
    """What makes the parts of a column of that type under a transform as sort orders name it.

    Raises TableRefused(reason="configuration") for a transform that is not known, says nothing (void), or does not
    take the type.
    """
    transform = _parsed(name)
    maker = _MADE.get(type(transform))
    if maker is None or not kind.is_primitive or not transform.can_transform(kind):
        raise misconfigured(
            f"rows can't be ordered by {name} of a column of type {kind}",
            hint="Known are identity, bucket[N], truncate[W], year, month, day and hour, on types that they take.",
        )
    make = maker(transform)

    def parts(array: pa.Array) -> tuple[Part, ...]:
        if isinstance(array.type, pa.BaseExtensionType):
            array = array.storage
        output = make(array)
        if array.null_count and not isinstance(transform, IdentityTransform):
            nulls = array.is_null().to_numpy(zero_copy_only=False)
            for part in output:
                if isinstance(part, np.ndarray):
                    part[nulls] = 0
        return output

    return parts


def _parsed(name: str) -> Transform[Any, Any]:
    if not re.fullmatch(r"[a-z]+(\[\d+\])?", name):
        return parse_transform("unknown")
    return parse_transform(name)


def _bucketed(transform: BucketTransform[Any]) -> Parts:
    count = np.uint32(transform.num_buckets)

    def parts(array: pa.Array) -> tuple[Part, ...]:
        return (((bucket_hashes(_widened(array)) & np.uint32(0x7FFFFFFF)) % count).astype(np.uint64),)

    return parts


def _widened(array: pa.Array) -> pa.Array:
    """Whole numbers, dates and times as numbers of 64 bits, as which they are hashed: nanoseconds as microseconds."""
    kind = array.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return _microseconds(array)
    if pa.types.is_temporal(kind):
        array = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    return array.cast(pa.int64()) if pa.types.is_integer(array.type) else array


def _microseconds(array: pa.Array) -> pa.Array:
    """The whole microseconds before or at each nanosecond, also before 1970."""
    numbers = array.view(pa.int64())
    return pa.array(numbers.fill_null(0).to_numpy() // 1000, mask=numbers.is_null().to_numpy(zero_copy_only=False))


def _truncated(transform: TruncateTransform[Any]) -> Parts:
    width = transform.width

    def parts(array: pa.Array) -> tuple[Part, ...]:
        kind = array.type
        if pa.types.is_string(kind):
            return (first_characters(array.view(pa.binary()), width),)
        if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
            stored = array.cast(pa.binary())
            return (pc.binary_slice(stored.fill_null(b"") if stored.null_count else stored, 0, width),)
        if pa.types.is_decimal(kind):
            return _truncated_decimals(array, width)
        numbers = array.fill_null(0).to_numpy()
        # In the column's own width: the least values wrap around, as in Java.
        rest = np.mod(numbers, numbers.dtype.type(width))
        return (signed_words((numbers - rest).astype(np.int64)),)

    return parts


def _truncated_decimals(array: pa.Array, width: int) -> tuple[Words, ...]:
    upper, lower = unscaled(array)
    if is_narrow(array.type):
        numbers = lower.view(np.int64)
        return (signed_words(numbers - np.mod(numbers, width)),)
    of_word = np.uint64((1 << 64) % width)
    modulus = np.uint64(width)
    rest = (np.mod(upper, width).astype(np.uint64) * of_word + lower % modulus) % modulus
    return halves(upper - (lower < rest), lower - rest)


def first_characters(array: pa.Array, count: int) -> pa.Array:
    """The first so many code points of each value; bytes that are no UTF-8 count with what they follow. Null: empty."""
    array = array.fill_null(b"") if array.null_count else array
    data, starts, lengths = stored_bytes(array)
    begins = np.flatnonzero((data & _CONTINUES) != _CONTINUED)
    ends = starts + lengths
    following = np.searchsorted(begins, starts) + count
    limits = np.append(begins, len(data))[np.minimum(following, len(begins))]
    widths = np.minimum(ends, limits) - starts
    if (widths == lengths).all():
        return array
    offsets = np.concatenate([[0], np.cumsum(widths)])
    places = np.repeat(starts - offsets[:-1], widths) + np.arange(offsets[-1])
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data[places])]
    return pa.Array.from_buffers(pa.binary(), len(array), buffers)


def _units(make: Callable[[pa.Array], _Numbers]) -> Callable[[Transform[Any, Any]], Parts]:
    return lambda transform: lambda array: (signed_words(make(array)),)


def _days(array: pa.Array) -> _Numbers:
    stored = _widened(array).fill_null(0).to_numpy()
    days: _Numbers = stored if array.type.bit_width == 32 else stored // _DAY_US
    return days


def _calendar(unit: str) -> Callable[[pa.Array], _Numbers]:
    return lambda array: _days(array).astype("datetime64[D]").astype(f"datetime64[{unit}]").astype(np.int64)


def _hours(array: pa.Array) -> _Numbers:
    hours: _Numbers = _widened(array).fill_null(0).to_numpy() // _HOUR_US
    return hours


_MADE: dict[type, Callable[..., Parts]] = {
    IdentityTransform: lambda transform: value_parts,
    BucketTransform: _bucketed,
    TruncateTransform: _truncated,
    YearTransform: _units(_calendar("Y")),
    MonthTransform: _units(_calendar("M")),
    DayTransform: _units(_days),
    HourTransform: _units(_hours),
}


@dataclass(frozen=True, slots=True)
class _Column:
    path: tuple[int, ...]
    is_optional: bool
    parts: Parts
    key: LayoutKey
    descending: tuple[bool, ...]  # of each part, for binary ones


class Order:
    """How rows of a schema are compared: column by column, each by one or several parts."""

    def __init__(self, schema: Schema, layout: Layout) -> None:
        """Raises TableRefused(reason="configuration") for columns, transforms or a curve that are not handled."""
        self.schema = schema
        self.layout = layout
        _refuse_unfit(layout)
        self._columns = [_column(schema, key) for key in layout.keys]
        #: For each column, of each of its parts, whether it orders from the greatest value on.
        self.descending = tuple(column.descending for column in self._columns)

    @property
    def is_curve(self) -> bool:
        """Whether the columns' ranks make a place on a curve."""
        return self.layout.strategy is not Strategy.LINEAR

    def of_keys(self) -> "Order":
        """The same order of rows that have the columns of `key_schema` alone."""
        return Order(self.key_schema(), self.layout)

    def key_schema(self) -> Schema:
        """The schema with the columns of the layout alone."""
        return select_ids(self.schema, {key.field_id for key in self.layout.keys})

    def parts(self, batch: pa.RecordBatch) -> list[list[Part]]:
        """What rows are compared by, for each column; never null, binary ones ascending whatever `descending` says."""
        return [_parts(column, batch) for column in self._columns]


def _refuse_unfit(layout: Layout) -> None:
    columns = len(layout.keys)
    if not columns:
        raise misconfigured("a layout without columns orders nothing")
    if layout.strategy is Strategy.LINEAR:
        return
    if columns > MAX_CURVE_COLUMNS:
        raise misconfigured(
            f"a curve takes at most {MAX_CURVE_COLUMNS} columns, not {columns}",
            hint="Name fewer columns, or set self-optimizing.cluster.strategy to linear.",
        )
    if layout.curve_version != CURVE_VERSION:
        raise misconfigured(
            f"curves of version {layout.curve_version} are not known, only those of version {CURVE_VERSION}",
            hint="Run optimizers of the coordinator's version.",
        )


def _column(schema: Schema, key: LayoutKey) -> _Column:
    path = key_path(schema.fields, key.field_id)
    if path is None:
        raise misconfigured(
            f"rows can't be ordered by column id {key.field_id}, which is no primitive column outside lists and maps"
        )
    fields, is_optional = schema.fields, False
    for index in path:
        field = fields[index]
        is_optional = is_optional or not field.required
        fields = getattr(field.field_type, "fields", ())
    parts = transform_parts(key.transform, field.field_type)
    kind = arrow_type(field.field_type)
    none = pa.array([], kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind)
    binary = [not isinstance(part, np.ndarray) for part in parts(none)]
    turned = [key.descending and flag for flag in binary]
    return _Column(path, is_optional, parts, key, (*([False] if is_optional else []), *turned))


def _parts(column: _Column, batch: pa.RecordBatch) -> list[Part]:
    array = batch.column(column.path[0])
    for index in column.path[1:]:
        array = array.flatten()[index]
    parts = [~part if column.key.descending and isinstance(part, np.ndarray) else part for part in column.parts(array)]
    if not column.is_optional:
        return parts
    if not array.null_count:
        flags = np.full(len(array), not column.key.nulls_last, np.uint64)
        return [flags, *parts]
    nulls = array.is_null().to_numpy(zero_copy_only=False)
    for part in parts:
        if isinstance(part, np.ndarray):
            part[nulls] = 0
    return [(nulls == column.key.nulls_last).astype(np.uint64), *parts]


def flat(parts: Sequence[Sequence[Part]]) -> list[Part]:
    """The parts of all columns, one after the other."""
    return [part for column in parts for part in column]
