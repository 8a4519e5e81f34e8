"""Statistics in the footer of a file that is to be copied, compared with the bounds that its manifest tells.

No checksum covers a footer, and readers skip row groups by it: a wrong minimum would hide rows that decoding finds.
"""

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

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
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

from amoro_core.files.bounds import raised_bytes, raised_text
from amoro_core.files.copy_source import CopySource, FooterSchema, NotCopied
from amoro_core.files.parquet_format import Struct
from amoro_core.model.files import ColumnMetrics
from amoro_core.model.lineage import LINEAGE_IDS

#: Types of Parquet by their numbers.
_BOOLEAN, _INT32, _INT64, _FLOAT, _DOUBLE, _BYTE_ARRAY, _FIXED = 0, 1, 2, 4, 5, 6, 7
#: How a type is stored, and the begin of what the file must say that it means.
_STORED: Mapping[type[IcebergType], tuple[int, tuple[object, ...]]] = {
    BooleanType: (_BOOLEAN, ()),
    IntegerType: (_INT32, ()),
    LongType: (_INT64, ()),
    DateType: (_INT32, ("date",)),
    TimeType: (_INT64, ("time", "micros")),
    TimestampType: (_INT64, ("timestamp", "micros")),
    TimestamptzType: (_INT64, ("timestamp", "micros")),
    TimestampNanoType: (_INT64, ("timestamp", "nanos")),
    TimestamptzNanoType: (_INT64, ("timestamp", "nanos")),
    FloatType: (_FLOAT, ()),
    DoubleType: (_DOUBLE, ()),
    StringType: (_BYTE_ARRAY, ("string",)),
    BinaryType: (_BYTE_ARRAY, ()),
    FixedType: (_FIXED, ()),
}
_FLOATS = FloatType, DoubleType
_CODECS = {
    number: struct.Struct(code)
    for number, code in ((_BOOLEAN, "<b"), (_INT32, "<i"), (_INT64, "<q"), (_FLOAT, "<f"), (_DOUBLE, "<d"))
}
_SINGLE_BYTES = 4  # the width of a bound from before the column was promoted to double
#: Older fields of statistics are believed by readers for these: others were written in a wrong order.
_ORDERED_ALWAYS = BooleanType, IntegerType, LongType, DateType, TimeType, TimestampType, TimestamptzType


class ComparedColumn(NamedTuple):
    """A column whose statistics can be compared with bounds."""

    number: int  # of the leaf
    field_id: int
    kind: IcebergType
    parse: Callable[[bytes], Any]  # a value in the statistics into what sorts as the values do; NaN into None


def compared_columns(footer: FooterSchema, schema: Schema) -> tuple[ComparedColumn, ...]:
    """The file's columns that are stored as the table's are, without those within lists and maps.

    UUIDs are left out, since writers do not agree on their order, and lineage, which files may tell of some rows alone.
    """
    meanings = (one for one in footer.meanings if isinstance(one, tuple) and not one[1])
    found, known = [], set(schema.field_ids)
    for number, (leaf, meaning) in enumerate(zip(footer.leaves, meanings, strict=True)):
        field_id, logical = meaning[-2], meaning[-1] or ()
        if leaf.repetition or field_id in LINEAGE_IDS or field_id not in known:
            continue
        kind = schema.find_type(field_id)
        if isinstance(kind, DecimalType):
            is_stored = leaf.type in (_INT32, _INT64, _FIXED) and logical[:1] == ("decimal",)
        else:
            wanted, words = _STORED.get(type(kind), (None, ()))
            is_stored = leaf.type == wanted and logical[: len(words) or None] == words
        if is_stored:
            found.append(ComparedColumn(number, field_id, kind, _parse_of(kind, leaf.type)))
    return tuple(found)


def _parse_of(kind: IcebergType, stored: int) -> Callable[[bytes], Any]:
    if stored in _CODECS:
        return partial(_number, _CODECS[stored])
    return partial(int.from_bytes, byteorder="big", signed=True) if isinstance(kind, DecimalType) else bytes


def require_told(
    source: CopySource, columns: Sequence[ComparedColumn], schema: Schema, told: ColumnMetrics, *, are_reached: bool
) -> None:
    """Raise NotCopied unless the statistics of all row groups are within the bounds that are told of the file.

    `are_reached`: the bounds are the least and the greatest of the file's values, so the statistics must have them.
    """
    groups = [group for group in source.footer.row_groups if group.num_rows]
    for column in columns:
        lower, upper = told.lower_bounds.get(column.field_id), told.upper_bounds.get(column.field_id)
        if lower is None and upper is None:
            continue
        # Writers do not agree on the statistics of NaN values.
        is_exact = not isinstance(column.kind, _FLOATS) or told.nan_value_counts.get(column.field_id) == 0
        metas = [group.columns[column.number].meta_data for group in groups]
        try:
            is_told = _is_told(column, metas, lower, upper, are_reached and is_exact)
        except struct.error:  # a value of another width
            is_told = False
        if not is_told:
            raise NotCopied(f"statistics of column {schema.find_column_name(column.field_id)} contradict the manifest")


def _is_told(
    column: ComparedColumn, metas: Sequence[Struct], lower: bytes | None, upper: bytes | None, is_exact: bool
) -> bool:
    lows, highs = [], []
    for meta in metas:
        low, high = _ends(column, meta.statistics)
        is_known = low is not None, high is not None
        if meta.statistics is not None and meta.statistics.null_count == meta.num_values:
            if any(is_known):
                return False  # readers would find nulls alone
            continue
        if all(is_known) and low > high:
            return False
        lows.append(low)
        highs.append(high)
    least, greatest = _bound(column.kind, lower), _bound(column.kind, upper)
    for end in (*lows, *highs):
        if end is not None and ((least is not None and end < least) or (greatest is not None and end > greatest)):
            return False
    if not is_exact:
        return True
    if least is not None and None not in lows and not (lows and _is_lower(min(lows), least)):
        return False
    return greatest is None or None in highs or bool(highs and _is_upper(column.kind, max(highs), greatest))


def _ends(column: ComparedColumn, statistics: Struct | None) -> tuple[Any, Any]:
    """The least and the greatest value, each None where it is not told, or where another is told in its place."""
    if statistics is None:
        return None, None
    low, high = statistics.min_value, statistics.max_value
    if low is None and high is None and isinstance(column.kind, _ORDERED_ALWAYS):
        low, high = statistics.min, statistics.max
    return (
        None if low is None or statistics.is_min_value_exact is False else column.parse(low),
        None if high is None or statistics.is_max_value_exact is False else column.parse(high),
    )


def _bound(kind: IcebergType, bound: bytes | None) -> Any:
    """The bound of a manifest (Iceberg specification, appendix D) as statistics are parsed."""
    if bound is None or isinstance(kind, StringType | BinaryType | FixedType):
        return bound
    if isinstance(kind, _FLOATS):
        return _number(_CODECS[_FLOAT if len(bound) == _SINGLE_BYTES else _DOUBLE], bound)
    return int.from_bytes(bound, "big" if isinstance(kind, DecimalType) else "little", signed=True)


def _is_lower(low: Any, bound: Any) -> bool:
    """Whether the bound is of that least value; of texts it may have the first characters alone."""
    return bool(low == bound or (isinstance(low, bytes) and bound and low.startswith(bound)))


def _is_upper(kind: IcebergType, high: Any, bound: Any) -> bool:
    """Whether the bound is of that greatest value; of texts it may have the first characters alone, rounded up."""
    if high == bound or not isinstance(high, bytes):
        return bool(high == bound)
    if not isinstance(kind, StringType):
        return bool(raised_bytes(high, len(bound)) == bound)
    try:
        return bool(raised_text(high.decode(), len(bound.decode())) == bound)
    except UnicodeDecodeError:
        return False


def _number(codec: struct.Struct, value: bytes) -> int | float | None:
    """The number in these bytes; None for NaN. Raises struct.error for another width."""
    (found,) = codec.unpack(value)
    return None if math.isnan(found) else found
