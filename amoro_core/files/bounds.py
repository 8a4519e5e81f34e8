"""Lower and upper bounds of written columns, as manifests hold them, taken from the raw statistics of Parquet chunks.

Values are not converted to Python's dates or decimals, whose ranges are smaller than Iceberg's. If any chunk lacks
statistics the column has no bounds: those of the other chunks would be wrong.
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
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
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
    """The bounds of a column's chunks in single-value serialization; strings and binary truncated to `length` if given.

    Both are None without statistics: Parquet has none for a chunk with a value above 4,096 bytes, or with NaN only. A
    truncated upper bound is rounded up, and None where that is impossible.
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
        return lower if length is None else lower[:length], raised_bytes(upper, length)
    to_bytes = _TO_BYTES[type(kind)]
    return to_bytes(lower), to_bytes(upper)


def _only_nulls(statistics: pq.Statistics | None, values: int) -> bool:
    return statistics is not None and bool(statistics.has_null_count and statistics.null_count == values)


def _number(kind: IcebergType, raw: Any) -> Any:
    """The raw value in a form that sorts as the values do: decimals of any width as integers."""
    if isinstance(kind, DecimalType) and isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    return raw


def _string_bounds(lower: bytes, upper: bytes, length: int | None) -> tuple[Bound, Bound]:
    """Truncated between characters; none for invalid UTF-8, which readers treat differently."""
    try:
        first, last = lower.decode(), upper.decode()
    except UnicodeDecodeError:
        return None, None
    return first[:length].encode(), raised_text(last, length)


def raised_text(text: str, length: int | None) -> Bound:
    """The least text of so many characters above all that begin as this one; itself if it is no longer."""
    if length is None or len(text) <= length:
        return text.encode()
    for end in range(length, 0, -1):
        following = ord(text[end - 1]) + 1
        if following in _SURROGATES:
            following = _SURROGATES.stop
        if following <= _LAST_CODE_POINT:
            return (text[: end - 1] + chr(following)).encode()
    return None


def raised_bytes(value: bytes, length: int | None) -> Bound:
    """The least bytes of that length above all that begin as these; themselves if they are no longer."""
    if length is None or len(value) <= length:
        return value
    for end in range(length, 0, -1):
        if value[end - 1] < 0xFF:
            return value[: end - 1] + bytes([value[end - 1] + 1])
    return None


def _unscaled(value: int) -> bytes:
    """The integer in the fewest bytes that hold it, big-endian two's complement."""
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
    TimestampNanoType: _LONG,
    TimestamptzNanoType: _LONG,
    FloatType: _FLOAT,
    DoubleType: _DOUBLE,
    DecimalType: _unscaled,
    FixedType: bytes,
    UUIDType: bytes,
}
