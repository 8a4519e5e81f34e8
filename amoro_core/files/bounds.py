"""Least and greatest values of written columns, as manifests hold them: made of what Parquet chunks say, unparsed.

Values go from the file's bytes to the manifest's without becoming Python's dates or decimals, which do not reach as
far as Iceberg's. Where a chunk does not say its own there are none: bounds made of the other chunks would be wrong.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow.parquet as pq
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
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

Bound = bytes | None

_SURROGATES = range(0xD800, 0xE000)
_LAST_CODE_POINT = 0x10FFFF


def column_bounds(
    kind: IcebergType, chunks: Sequence[pq.ColumnChunkMetaData], length: int | None
) -> tuple[Bound, Bound]:
    """The bounds of a column's chunks as single values; strings and binary ones are cut to `length`, if there is one.

    Parquet says nothing of chunks that hold a value above 4,096 bytes, or NaN alone: then both are None. A greatest
    value that is cut is raised to one above it, and None where there is none above.
    """
    least, greatest = [], []
    for chunk in chunks:
        statistics = chunk.statistics
        if statistics is not None and statistics.has_min_max:
            least.append(_number(kind, statistics.min_raw))
            greatest.append(_number(kind, statistics.max_raw))
        elif not _only_nulls(statistics, chunk.num_values):
            return None, None
    if not least:
        return None, None
    lower, upper = min(least), max(greatest)
    if isinstance(kind, StringType):
        return _string_bounds(lower, upper, length)
    if isinstance(kind, BinaryType):
        return lower if length is None else lower[:length], _raised_bytes(upper, length)
    to_bytes = _TO_BYTES[type(kind)]
    return to_bytes(lower), to_bytes(upper)


def _only_nulls(statistics: pq.Statistics | None, values: int) -> bool:
    return statistics is not None and bool(statistics.has_null_count and statistics.null_count == values)


def _number(kind: IcebergType, raw: Any) -> Any:
    """The raw value in a form that orders as the values do: decimals of any width as whole numbers."""
    if isinstance(kind, DecimalType) and isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    return raw


def _string_bounds(lower: bytes, upper: bytes, length: int | None) -> tuple[Bound, Bound]:
    """Cut between characters; none for what is no text: readers differ in what they make of it."""
    try:
        first, last = lower.decode(), upper.decode()
    except UnicodeDecodeError:
        return None, None
    return first[:length].encode(), _raised_text(last, length)


def _raised_text(text: str, length: int | None) -> Bound:
    if length is None or len(text) <= length:
        return text.encode()
    for end in range(length, 0, -1):
        following = ord(text[end - 1]) + 1
        if following in _SURROGATES:
            following = _SURROGATES.stop
        if following <= _LAST_CODE_POINT:
            return (text[: end - 1] + chr(following)).encode()
    return None


def _raised_bytes(value: bytes, length: int | None) -> Bound:
    if length is None or len(value) <= length:
        return value
    for end in range(length, 0, -1):
        if value[end - 1] < 0xFF:
            return value[: end - 1] + bytes([value[end - 1] + 1])
    return None


def _unscaled(value: int) -> bytes:
    """In as few bytes as hold it, the sign included."""
    return value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, "big", signed=True)


def _boolean(value: bool) -> bytes:
    return b"\1" if value else b"\0"


_INT, _LONG, _FLOAT, _DOUBLE = (struct.Struct(code).pack for code in ("<i", "<q", "<f", "<d"))
_TO_BYTES: Mapping[type[IcebergType], Callable[[Any], bytes]] = {
    BooleanType: _boolean,
    IntegerType: _INT,
    DateType: _INT,
    LongType: _LONG,
    TimeType: _LONG,
    TimestampType: _LONG,
    TimestamptzType: _LONG,
    FloatType: _FLOAT,
    DoubleType: _DOUBLE,
    DecimalType: _unscaled,
    FixedType: bytes,
    UUIDType: bytes,
}
