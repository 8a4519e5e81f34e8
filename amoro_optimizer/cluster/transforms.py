"""Transforms of Iceberg's sort orders on whole columns: what they make of the values, in the form of `values`."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
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

from amoro_core.errors import TableRefused
from amoro_core.files.murmur import hashes_32
from amoro_core.files.sketches import stored_bytes
from amoro_optimizer.cluster.values import Part, Parts, Words, halves, is_narrow, signed_words, unscaled, value_parts

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
    known = _MADE.get(type(transform))
    if known is None or not kind.is_primitive or not transform.can_transform(kind):
        raise TableRefused(
            f"rows can't be ordered by {name} of a column of type {kind}",
            reason="configuration",
            hint="Known are identity, bucket[N], truncate[W], year, month, day and hour, on types that they take.",
        )
    make = known(transform)

    def parts(array: pa.Array) -> tuple[Part, ...]:
        if isinstance(array.type, pa.BaseExtensionType):
            array = array.storage
        made = make(array)
        if array.null_count and not isinstance(transform, IdentityTransform):
            nulls = array.is_null().to_numpy(zero_copy_only=False)
            for part in made:
                if isinstance(part, np.ndarray):
                    part[nulls] = 0
        return made

    return parts


def _parsed(name: str) -> Transform[Any, Any]:
    if not re.fullmatch(r"[a-z]+(\[\d+\])?", name):
        return parse_transform("unknown")
    return parse_transform(name)


def _bucketed(transform: BucketTransform[Any]) -> Parts:
    count = np.uint32(transform.num_buckets)

    def parts(array: pa.Array) -> tuple[Part, ...]:
        hashes = hashes_32(*stored_bytes(_widened(array)), 0)
        return (((hashes & np.uint32(0x7FFFFFFF)) % count).astype(np.uint64),)

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
    kept = np.minimum(ends, limits) - starts
    if (kept == lengths).all():
        return array
    offsets = np.concatenate([[0], np.cumsum(kept)])
    places = np.repeat(starts - offsets[:-1], kept) + np.arange(offsets[-1])
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data[places])]
    return pa.Array.from_buffers(pa.binary(), len(array), buffers)


def _units(make: Callable[[pa.Array], _Numbers]) -> Callable[[Transform[Any, Any]], Parts]:
    return lambda transform: lambda array: (signed_words(make(array)),)


def _days(array: pa.Array) -> _Numbers:
    stored = _widened(array).fill_null(0).to_numpy()
    days: _Numbers = stored if array.type.bit_width == 32 else stored // _DAY_US
    return days


def _months(array: pa.Array) -> _Numbers:
    return _days(array).astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)


def _years(array: pa.Array) -> _Numbers:
    return _days(array).astype("datetime64[D]").astype("datetime64[Y]").astype(np.int64)


def _hours(array: pa.Array) -> _Numbers:
    hours: _Numbers = _widened(array).fill_null(0).to_numpy() // _HOUR_US
    return hours


_MADE: dict[type, Callable[..., Parts]] = {
    IdentityTransform: lambda transform: value_parts,
    BucketTransform: _bucketed,
    TruncateTransform: _truncated,
    YearTransform: _units(_years),
    MonthTransform: _units(_months),
    DayTransform: _units(_days),
    HourTransform: _units(_hours),
}
