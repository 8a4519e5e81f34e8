"""Parquet files whose row groups can be copied byte for byte: what must be true of them, and their pages verified.

Files may be of any writer, and damaged: what is not as expected raises `NotCopied`, and is then decoded.
"""

import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
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

from amoro_core.files.deletes.vectors import crc32
from amoro_core.files.parquet.metrics import raised_bytes, raised_text
from amoro_core.files.row_groups.parquet_format import (
    MAGIC,
    MAGIC_ENCRYPTED,
    MISSING_CODEC,
    BloomFilterHeader,
    Bytes,
    ColumnIndex,
    FileMetaData,
    OffsetIndex,
    PageHeader,
    Struct,
    encoded,
)
from amoro_core.model.files import LINEAGE_IDS, ColumnMetrics

S = TypeVar("S", bound=Struct)

TAIL_BYTES = 8
_DEEPEST = 100
#: Page indexes up to this size are read at once, with what lies between them.
_INDEX_BYTES = 4 << 20
_REQUIRED, _REPEATED = 0, 2
#: Room for a bloom filter's header where its length is not told.
_FILTER_HEADER_BYTES = 64
#: parquet-mr wrote wrong bounds of binary columns before 1.8 (PARQUET-251), and in signed order before 1.10; the first
#: parquet-cpp did so too. Readers go by the writer's name, which an output of several writers does not keep.
_DISTRUSTED = {"parquet-mr": (1, 10, 0), "parquet-cpp": (1, 3, 0)}
_WRITER = re.compile(r"(.*?)\s+version\s+(\d+)\.(\d+)\.(\d+)")
#: Converted types that say what a logical type says, by their number; older writers set them alone.
_CONVERTED = {0: "string", 1: "map", 3: "list", 4: "enum", 6: "date", 19: "json", 20: "bson"}
_TIMES = {7: ("time", "millis"), 8: ("time", "micros"), 9: ("timestamp", "millis"), 10: ("timestamp", "micros")}
_DECIMAL = 5
#: INT_32 of an INT32 and INT_64 of an INT64 say nothing.
_PLAIN_INTEGERS = {(1, 17): 32, (2, 18): 64}

Read = Callable[[int, int], bytes]
#: What a file's columns are, whatever words its writer has for it: equal values can share an output.
ColumnLayout = tuple[tuple[Any, ...], ...]


class NotCopied(ValueError):
    """The reason why something can't be copied."""


class OtherLayout(NotCopied):
    """The columns are stored in another way than those of the output: they can be copied into another one."""

    def __init__(self, layout: ColumnLayout) -> None:
        super().__init__("its columns are stored in another way than those of the other files")
        self.layout = layout


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf column of a file."""

    path: tuple[bytes, ...]
    type: int
    width: int  # bytes of a value; 0: they differ
    definition: int  # the highest levels
    repetition: int


@dataclass(frozen=True, slots=True)
class CopySource:
    """An open Parquet file, of whose footer everything needed was checked."""

    read: Read  # a number of bytes at an offset
    content: bytes | None  # the whole file, if it is in memory
    structs: Bytes | None  # the same; else its page indexes, if they are few enough
    structs_at: int  # where these begin in the file
    footer: Struct
    leaves: tuple[Leaf, ...]
    layout: ColumnLayout

    @property
    def created_by(self) -> bytes:
        """The name of the writer."""
        result: bytes = self.footer.created_by
        return result

    @property
    def rows(self) -> tuple[int, ...]:
        """The number of rows of each row group."""
        return tuple(group.num_rows for group in self.footer.row_groups)

    def struct(self, kind: type[S], at: int, length: int) -> tuple[S, bytes] | None:
        """The struct that these bytes are, and they themselves; None where it is not all of them. Raises ValueError."""
        if self.structs is not None and at >= self.structs_at:
            return self.structs.decode(kind, at - self.structs_at, length)
        return Bytes(self.read(at, length)).decode(kind, 0, length)


def open_source(
    read: Read, size: int, content: bytes | None = None, names: Mapping[bytes, int | None] = MappingProxyType({})
) -> CopySource:
    """The file of that size as a source of copies. Raises NotCopied.

    `names` has the field ids of columns by name, for a file without any field id and without nested columns.
    """
    if MISSING_CODEC:
        raise NotCopied(MISSING_CODEC)
    if size < 2 * TAIL_BYTES:
        raise NotCopied("the file is too short")
    tail = read(size - TAIL_BYTES, TAIL_BYTES)
    if tail[4:] == MAGIC_ENCRYPTED:
        raise NotCopied("its footer is encrypted")
    begin = size - TAIL_BYTES - int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or begin < len(MAGIC) or read(0, len(MAGIC)) != MAGIC:
        raise NotCopied("its marks are not those of a Parquet file")
    footer = _footer(read(begin, size - TAIL_BYTES - begin))
    try:
        if all(element.field_id is None and not element.num_children for element in footer.schema[1:]):
            for element in footer.schema[1:]:
                element.field_id = names.get(element.name)
        leaves, layout = _leaves(footer.schema), tuple(_column_layout(element) for element in footer.schema[1:])
        source = CopySource(read, content, None if content is None else Bytes(content), 0, footer, leaves, layout)
        orders = footer.column_orders
        if orders is None or len(orders) != len(leaves) or any(order.type_order is None for order in orders):
            raise NotCopied("its columns have no order, so their bounds must stay unused")
        _require_sound(source, begin)
        if content is None:
            source = _with_indexes(source, begin)
    except (TypeError, AttributeError, ValueError) as error:
        raise error if isinstance(error, NotCopied) else NotCopied("its footer lacks a required field") from error
    _require_trusted(footer.created_by)
    return source


def _footer(text: bytes) -> Struct:
    """The footer. Raises NotCopied unless it is the same bytes when it is encoded again."""
    try:
        result = Bytes(text).decode(FileMetaData, 0, len(text))
    except (ValueError, TypeError) as error:
        raise NotCopied(f"its footer can't be read: {error}") from error
    if result is None:
        raise NotCopied("its footer has fields that are not known here")
    return result[0]


def _with_indexes(source: CopySource, end: int) -> CopySource:
    """The file that is not in memory with its page indexes, read at once: writers put them before the footer."""
    chunks = [chunk for group in source.footer.row_groups if group.num_rows for chunk in group.columns]
    offsets = (at for chunk in chunks for at in (chunk.offset_index_offset, chunk.column_index_offset) if at)
    begin = min(offsets, default=end)
    if not 0 < end - begin <= _INDEX_BYTES:
        return source
    return replace(source, structs=Bytes(source.read(begin, end - begin)), structs_at=begin)


def _leaves(schema: Sequence[Struct]) -> tuple[Leaf, ...]:
    result: list[Leaf] = []
    waiting = iter(schema)

    def descend(count: int, path: tuple[bytes, ...], definition: int, repetition: int) -> None:
        if len(path) > _DEEPEST:
            raise NotCopied("its schema is nested too deeply")
        for _ in range(count):
            element = next(waiting, None)
            if element is None:
                raise NotCopied("its schema ends early")
            own, kind = (*path, element.name), element.repetition_type
            levels = definition + (kind != _REQUIRED), repetition + (kind == _REPEATED)
            if element.num_children:
                descend(element.num_children, own, *levels)
            elif element.type is None:
                raise NotCopied(f"its column {element.name!r} has no type")
            else:
                width = _WIDTHS.get(element.type, 1 if element.type == _BOOLEAN else element.type_length or 0)
                result.append(Leaf(own, element.type, width, *levels))

    root = next(waiting, None)
    if root is None:
        raise NotCopied("it has no schema")
    descend(root.num_children or 0, (), 0, 0)
    if next(waiting, None) is not None:
        raise NotCopied("its schema has more elements than its tree")
    return tuple(result)


def _column_layout(element: Struct) -> tuple[object, ...]:
    """What the element says, in one way for all writers; a time is local whatever its writer says of it."""
    return (
        element.name,
        element.num_children or 0,
        element.type,
        element.type_length if element.type_length else None,
        element.repetition_type,
        element.field_id,
        _logical(element),
    )


def column_meanings(layout: ColumnLayout) -> ColumnLayout:
    """What readers find by field ids, whatever the names, nullability, and decimals in any type that holds them."""
    return tuple(_meaning(*element) for element in layout)


def _meaning(_: bytes, fields: int, kind: int | None, length: int, repetition: int, *more: Any) -> tuple[Any, ...]:
    if more[1] is not None and more[1][0] == "decimal":
        bits = {_INT32: 31, _INT64: 63, _FIXED: 8 * (length or 0) - 1, _BYTE_ARRAY: 127}.get(kind or 0, 0)
        if 10 ** more[1][1] <= 1 << max(0, bits):
            kind, length = _FIXED, 0
    return fields, kind, length, repetition == _REPEATED, *more


def _logical(element: Struct) -> object:
    logical = element.logical_type
    if logical is None:
        return _by_converted(element, element.converted_type)
    name, value = _only(logical)
    match name:
        case "decimal":
            return name, value.precision, value.scale
        case "time":
            return name, _unit(value)
        case "timestamp":
            return name, _unit(value), value.is_adjusted_to_utc
        case "integer" if value.is_signed and {1: 32, 2: 64}.get(element.type) == value.bit_width:
            return None
    return name, encoded(logical) if vars(value) else b""


def _only(union: Struct) -> tuple[str, Struct]:
    """The only field of a union that is set, and its value."""
    ((name, value),) = vars(union).items()
    return name, value


def _by_converted(element: Struct, converted: int | None) -> object:
    if converted is None or (element.type, converted) in _PLAIN_INTEGERS:
        return None
    if converted in _CONVERTED:
        return _CONVERTED[converted], b""
    if converted == _DECIMAL:
        return "decimal", element.precision, element.scale or 0
    if converted in _TIMES:
        name, unit = _TIMES[converted]
        return (name, unit) if name == "time" else (name, unit, True)
    return "converted", converted


def _unit(moment: Struct) -> str:
    return _only(moment.unit)[0]


def _require_trusted(created_by: bytes | None) -> None:
    if not created_by:
        raise NotCopied("its footer does not say who wrote it")
    match = _WRITER.match(created_by.decode(errors="replace"))
    if match is not None:
        least = _DISTRUSTED.get(match[1].strip())
        if least is not None and tuple(map(int, match.groups()[1:])) < least:
            raise NotCopied(f"statistics of {match[0]} are not believed")


def _require_sound(source: CopySource, footer_begin: int) -> None:
    """Raise NotCopied unless counts agree, and all that the footer points to lies before it without overlap."""
    footer = source.footer
    used: list[tuple[int, int]] = [(0, len(MAGIC))]
    for group in footer.row_groups:
        if len(group.columns) != len(source.leaves):
            raise NotCopied("a row group has other columns than the schema")
        for leaf, chunk in zip(source.leaves, group.columns, strict=True):
            used += _places(leaf, chunk, group.num_rows)
    if sum(source.rows) != footer.num_rows or min(source.rows, default=0) < 0:
        raise NotCopied("its row groups do not have the rows that the footer says")
    used.sort()
    if any(length < 0 for _, length in used) or any(part[0] + part[1] > other[0] for part, other in pairwise(used)):
        raise NotCopied("its parts overlap")
    if used[-1][0] + used[-1][1] > footer_begin:
        raise NotCopied("it ends before a part that the footer names")


def _places(leaf: Leaf, chunk: Struct, rows: int) -> list[tuple[int, int]]:
    """Where the parts of a column chunk lie; of a row group without rows, none."""
    meta = chunk.meta_data
    if chunk.file_path is not None:
        raise NotCopied("a column lies in another file")
    if meta.type != leaf.type or tuple(meta.path_in_schema) != leaf.path:
        raise NotCopied("a column is not the one that the schema says")
    if meta.num_values < rows or (meta.num_values != rows and not leaf.repetition):
        raise NotCopied("a column has another number of values than of rows")
    if flaw := _statistics_flaw(leaf, meta):
        raise NotCopied(flaw)
    if rows == 0:
        return []
    begin, length = extent(meta)
    if length <= 0 or (meta.index_page_offset or 0) > 0:
        raise NotCopied("a column has no pages, or an index page")
    places = [(begin, length)]
    for at, size in (
        (chunk.offset_index_offset, chunk.offset_index_length),
        (chunk.column_index_offset, chunk.column_index_length),
        (meta.bloom_filter_offset, meta.bloom_filter_length or (meta.bloom_filter_offset and 1)),
    ):
        if (at is None) != (size is None):
            raise NotCopied("an index has an offset without a length")
        if at:
            places.append((at, size))
    return places


def _statistics_flaw(leaf: Leaf, meta: Struct) -> str:
    """How statistics of the chunk contradict its column, so that Arrow ends the process which asks for them; "": not.

    These are what `SizeStatistics::Validate` and the decoding of bounds throw for, which pyarrow does not catch.
    """
    sizes, stored = meta.size_statistics, meta.statistics
    if sizes is not None:
        for histogram, highest in (
            (sizes.repetition_level_histogram, leaf.repetition),
            (sizes.definition_level_histogram, leaf.definition),
        ):
            if histogram and len(histogram) != highest + 1:
                return "a column has a histogram of other levels"
        if sizes.unencoded_byte_array_data_bytes is not None and leaf.type != _BYTE_ARRAY:
            return "a column has sizes of byte arrays, and holds none"
    bounds = (stored.min, stored.max, stored.min_value, stored.max_value) if stored is not None else ()
    if meta.type != leaf.type or any(bound is not None and len(bound) < leaf.width for bound in bounds):
        return "a column has statistics of another width than its values"
    return ""


def sound_metadata(metadata: pq.FileMetaData, footer: bytes) -> pq.FileMetaData:
    """The metadata with that footer, without the statistics on which Arrow would end the process.

    Raises ValueError, TypeError or AttributeError for a footer that Arrow takes although it contradicts itself.
    """
    if MISSING_CODEC:
        return metadata
    read, _ = Bytes(footer).read(FileMetaData, 0)
    leaves = _leaves(read.schema)
    flawed = [
        chunk.meta_data
        for group in read.row_groups
        for leaf, chunk in zip(leaves, group.columns, strict=True)
        if _statistics_flaw(leaf, chunk.meta_data)
    ]
    if not flawed:
        return metadata
    for meta in flawed:
        meta.statistics = meta.size_statistics = None
    text = encoded(read)
    return pq.read_metadata(pa.BufferReader(MAGIC + text + len(text).to_bytes(4, "little") + MAGIC))


def extent(meta: Struct) -> tuple[int, int]:
    """Where a column chunk begins, and its length: some writers say 0 where there is no dictionary."""
    begin = meta.data_page_offset
    if meta.dictionary_page_offset:
        begin = min(begin, meta.dictionary_page_offset)
    return begin, meta.total_compressed_size


def page_index(source: CopySource, leaf: Leaf, chunk: Struct, rows: int) -> tuple[Struct, bytes] | None:  # noqa: C901 - a list of what an index must say
    """The chunk's offset index, and its column index as it is stored; None where it has not both. Raises NotCopied."""
    if not chunk.offset_index_offset:
        return None
    try:
        offsets = source.struct(OffsetIndex, chunk.offset_index_offset, chunk.offset_index_length)
        if offsets is None:
            raise NotCopied("its offset index is not understood")
        index = offsets[0]
        firsts = [location.first_row_index for location in index.page_locations]
        pages = len(firsts)
        if firsts[:1] != [0] or firsts != sorted(set(firsts)) or firsts[-1] >= rows:
            raise NotCopied("its offset index is not understood")
        if not chunk.column_index_offset:
            return None
        result = source.struct(ColumnIndex, chunk.column_index_offset, chunk.column_index_length)
        if result is None:
            raise NotCopied("its column index is not understood")
        columns, text = result
        for values in (columns.null_pages, columns.min_values, columns.max_values, columns.null_counts):
            if values is not None and len(values) != pages:
                raise NotCopied("its column index has another number of pages")
        for values, highest in (
            (columns.repetition_level_histograms, leaf.repetition),
            (columns.definition_level_histograms, leaf.definition),
        ):
            if values and len(values) != pages * (highest + 1):
                raise NotCopied("its column index has histograms of other levels")
    except (TypeError, ValueError) as error:
        raise error if isinstance(error, NotCopied) else NotCopied("its page index can't be read") from error
    return index, text


def bloom_filter(source: CopySource, meta: Struct) -> bytes | None:
    """The chunk's bloom filter with its header, as it is stored. Raises NotCopied."""
    at, length = meta.bloom_filter_offset, meta.bloom_filter_length
    if not at:
        return None
    begin = source.read(at, length or _FILTER_HEADER_BYTES)
    try:
        header, end = Bytes(begin).read(BloomFilterHeader, 0)
        whole = end + header.num_bytes
    except (ValueError, TypeError) as error:
        raise NotCopied("a bloom filter can't be read") from error
    if header.num_bytes <= 0 or (length and whole != length):
        raise NotCopied("a bloom filter has another length than it says")
    result = begin if length else source.read(at, whole)
    if len(result) != whole:
        raise NotCopied("a bloom filter is cut short")
    return result


#: Types of Parquet by their numbers.
_BOOLEAN, _INT32, _INT64, _FLOAT, _DOUBLE, _BOUNDED_BYTE_ARRAY, _FIXED = 0, 1, 2, 4, 5, 6, 7
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
    StringType: (_BOUNDED_BYTE_ARRAY, ("string",)),
    BinaryType: (_BOUNDED_BYTE_ARRAY, ()),
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


def compared_columns(source: CopySource, schema: Schema) -> tuple[ComparedColumn, ...]:
    """The file's columns that are stored as the table's are, without those within lists and maps.

    UUIDs are left out, since writers do not agree on their order, and lineage, which files may tell of some rows alone.
    """
    layout = (level for level in source.layout if not level[1])
    result, field_ids = [], set(schema.field_ids)
    for number, (leaf, meaning) in enumerate(zip(source.leaves, layout, strict=True)):
        field_id, logical = meaning[-2], meaning[-1] or ()
        if leaf.repetition or field_id in LINEAGE_IDS or field_id not in field_ids:
            continue
        kind = schema.find_type(field_id)
        if isinstance(kind, DecimalType):
            is_stored = leaf.type in (_INT32, _INT64, _FIXED, _BYTE_ARRAY) and logical[:1] == ("decimal",)
        else:
            wanted, words = _STORED.get(type(kind), (None, ()))
            is_stored = leaf.type == wanted and logical[: len(words) or None] == words
        if is_stored:
            result.append(ComparedColumn(number, field_id, kind, _parse_of(kind, leaf.type)))
    return tuple(result)


def _parse_of(kind: IcebergType, stored: int) -> Callable[[bytes], Any]:
    if stored in _CODECS:
        return partial(_number, _CODECS[stored])
    return partial(int.from_bytes, byteorder="big", signed=True) if isinstance(kind, DecimalType) else bytes


def require_consistent_statistics(
    source: CopySource, columns: Sequence[ComparedColumn], schema: Schema, metrics: ColumnMetrics, *, are_reached: bool
) -> None:
    """Raise NotCopied unless all row groups' statistics lie within the bounds, and reach them if `are_reached`."""
    groups = [group for group in source.footer.row_groups if group.num_rows]
    for column in columns:
        lower, upper = metrics.lower_bounds.get(column.field_id), metrics.upper_bounds.get(column.field_id)
        if lower is None and upper is None:
            continue
        # Writers do not agree on the statistics of NaN values.
        is_exact = not isinstance(column.kind, _FLOATS) or metrics.nan_value_counts.get(column.field_id) == 0
        metas = [group.columns[column.number].meta_data for group in groups]
        try:
            is_consistent = _is_consistent(column, metas, lower, upper, are_reached and is_exact)
        except struct.error:  # a value of another width
            is_consistent = False
        if not is_consistent:
            raise NotCopied(f"statistics of column {schema.find_column_name(column.field_id)} contradict the manifest")


def _is_consistent(
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
    if least is not None and None not in lows:
        low = min(lows, default=None)
        # Of texts the bound may have the first characters alone.
        if low != least and not (isinstance(low, bytes) and least and low.startswith(least)):
            return False
    return greatest is None or None in highs or bool(highs and _is_upper(column.kind, max(highs), greatest))


def _ends(column: ComparedColumn, statistics: Struct | None) -> tuple[Any, Any]:
    """The least and the greatest value, each None where the footer lacks it, or holds another in its place."""
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
    (result,) = codec.unpack(value)
    return None if math.isnan(result) else result


_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
#: PLAIN and its older name; not every writer names a dictionary's in the footer.
_DICTIONARY_ENCODINGS = (0, 2)
#: Bytes of a value by type: of INT32, INT64, INT96, FLOAT and DOUBLE.
_WIDTHS = {1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
#: Before each value of a BYTE_ARRAY stands its length.
_BYTE_ARRAY, _LENGTH = 6, 4
#: The encoding of levels; what is said of levels that a column does not have is ignored by readers.
_RLE = 3
#: Codecs by their numbers in the format; Arrow's names of those whose bytes have no mark.
_UNCOMPRESSED, _SNAPPY, _GZIP, _ZSTD = 0, 1, 2, 6
_UNMARKED = {4: "brotli", 7: "lz4_raw"}
#: What a Zstandard frame begins with; at most descriptor, window, dictionary and size follow.
_ZSTD_MARK = b"\x28\xb5\x2f\xfd"
_ZSTD_HEAD = len(_ZSTD_MARK) + 1 + 1 + 4 + 8


def verify_pages(content: Bytes, view: memoryview, leaf: Leaf, meta: Struct, begin: int, index: Struct | None) -> None:  # noqa: C901, PLR0912 - one pass over the bytes
    """Raise NotCopied unless the chunk's pages fill it, have its values, and are as checksums, footer and index say.

    The chunk lies at `begin` in `content`, whose bytes `view` shows, and at `extent` in the file.
    """
    first, length = extent(meta)
    at, end, shift = begin, begin + length, first - begin
    values, nulls, data_pages, encodings = 0, 0, list[tuple[int, int]](), dict[int, int]()
    try:
        while at < end:
            header, body = content.read(PageHeader, at)
            after = body + header.compressed_page_size
            if header.compressed_page_size < 0 or after > end:
                raise NotCopied("a page ends behind its column")
            if not content.is_complete(header, at, body):
                raise NotCopied("a page header has fields that are not known here")
            count, encoding = _page(header, leaf, at == begin)
            if encoding not in (_DICTIONARY_ENCODINGS if header.type == _DICTIONARY_PAGE else meta.encodings):
                raise NotCopied("a page has an encoding that the footer does not name")
            page = view[body:after]
            if header.type == _DATA_PAGE_V2:
                _require_page_levels(header.data_page_header_v2, leaf, page)
            if header.crc is not None and crc32(page) != header.crc & 0xFFFFFFFF:
                raise NotCopied("a page is not as its checksum says")
            if header.type != _DICTIONARY_PAGE:
                data_pages.append((at + shift, after - at))
                values += count
                nulls += header.data_page_header_v2.num_nulls if header.type == _DATA_PAGE_V2 else 0
                encodings[encoding] = encodings.get(encoding, 0) + 1
            # To decompress is dear: where bytes have no mark, the first pages must do.
            if meta.codec not in _UNMARKED or at == begin or len(data_pages) == 1:
                _require_codec(header, page, meta.codec)
            at = after
    except (TypeError, AttributeError, OverflowError) as error:
        raise NotCopied("a page header lacks a required field") from error
    except ValueError as error:
        raise error if isinstance(error, NotCopied) else NotCopied("a page header can't be read") from error
    stored = meta.statistics
    if nulls and leaf.definition == 1 and not leaf.repetition and stored and stored.null_count not in (None, nulls):
        raise NotCopied("its pages have another number of nulls than the footer says")
    if meta.encoding_stats and encodings != _encodings(meta.encoding_stats):
        raise NotCopied("its pages have other encodings than the footer says")
    if values != meta.num_values or not data_pages or data_pages[0][0] != meta.data_page_offset:
        raise NotCopied("its pages are not those that the footer says")
    if index is not None and data_pages != [(item.offset, item.compressed_page_size) for item in index.page_locations]:
        raise NotCopied("its pages are not those that the offset index says")


def _encodings(stats: Sequence[Struct]) -> dict[int, int]:
    """The encodings of the data pages, of both versions: not every writer distinguishes them here."""
    result: dict[int, int] = {}
    for stat in stats:
        if stat.page_type != _DICTIONARY_PAGE and stat.count:
            result[stat.encoding] = result.get(stat.encoding, 0) + stat.count
    return result


def _page(header: Struct, leaf: Leaf, is_first: bool) -> tuple[int, int]:
    """Values and encoding of a page."""
    match header.type:
        case 0:
            page = header.data_page_header
            if (leaf.definition and page.definition_level_encoding != _RLE) or (
                leaf.repetition and page.repetition_level_encoding != _RLE
            ):
                raise NotCopied("a page has levels of an unknown encoding")
        case 3:
            page = header.data_page_header_v2
            sizes = page.definition_levels_byte_length, page.repetition_levels_byte_length
            if min(*sizes, page.num_nulls, page.num_rows) < 0 or sum(sizes) > header.compressed_page_size:
                raise NotCopied("a page has levels behind its end")
        case 2 if is_first:
            page = header.dictionary_page_header
            size, width = header.uncompressed_page_size, _WIDTHS.get(leaf.type)
            if (
                page.num_values * width != size
                if width
                else leaf.type == _BYTE_ARRAY and page.num_values * _LENGTH > size
            ):
                raise NotCopied("a dictionary has another size than its values")
        case _:
            raise NotCopied(f"it has a page of the type {header.type}")
    if page.num_values < 0:
        raise NotCopied("a page has a negative number of values")
    return page.num_values, page.encoding


def _require_page_levels(header: Struct, leaf: Leaf, page: memoryview) -> None:
    """Raise NotCopied unless the levels of a page of version 2, which are never compressed, end where it says."""
    begin = header.repetition_levels_byte_length
    end = begin + header.definition_levels_byte_length
    for levels, highest in ((page[:begin], leaf.repetition), (page[begin:end], leaf.definition)):
        if _levels(levels, highest.bit_length()) < (header.num_values if highest else 0):
            raise NotCopied("a page has fewer levels than values")


def _levels(runs: memoryview, bits: int) -> int:
    """How many levels the runs hold at most: packed ones come in eights. Raises NotCopied for runs cut short."""
    at = result = 0
    while at < len(runs):
        kind, length = _varint(runs[at:])
        count = kind >> 1
        at += length + (count * bits if kind & 1 else (bits + 7) // 8)
        result += 8 * count if kind & 1 else count
        if kind < 0 or at > len(runs):
            raise NotCopied("a page has levels that end early")
    return result


def _require_codec(header: Struct, page: memoryview, codec: int) -> None:
    """Raise NotCopied unless the page is compressed as the footer says, so far as its first bytes tell."""
    size = header.uncompressed_page_size
    if header.type == _DATA_PAGE_V2:
        two = header.data_page_header_v2
        levels = two.definition_levels_byte_length + two.repetition_levels_byte_length
        is_empty = levels == header.compressed_page_size and two.num_nulls == two.num_values
        if two.is_compressed is False or codec == _UNCOMPRESSED or is_empty:
            codec = _UNCOMPRESSED
        else:
            page, size = page[levels:], size - levels
    if codec == _UNCOMPRESSED:
        good = header.compressed_page_size == header.uncompressed_page_size
    elif codec == _SNAPPY:
        good = _varint(page)[0] == size
    elif codec == _GZIP:
        good = bytes(page[:2]) == b"\x1f\x8b" and int.from_bytes(page[-4:], "little") == size
    elif codec == _ZSTD:
        head = bytes(page[:_ZSTD_HEAD])
        good = head.startswith(_ZSTD_MARK) and len(head) > len(_ZSTD_MARK) and _zstd_size(head) in (None, size)
    else:
        good = codec in _UNMARKED and _decompresses(page, _UNMARKED[codec], size)
    if not good:
        raise NotCopied("a page is not compressed as the footer says")


def _decompresses(page: memoryview, codec: str, size: int) -> bool:
    try:
        return len(pa.Codec(codec).decompress(pa.py_buffer(page), size)) == size
    except (OSError, pa.ArrowException):
        return False


def _zstd_size(head: bytes) -> int | None:
    """The decompressed size in the begin of a Zstandard frame (RFC 8878, 3.1.1.1); None where it has none."""
    descriptor = head[4]
    is_single, kind = bool(descriptor & 0x20), descriptor >> 6
    begin = 5 + (not is_single) + (0, 1, 2, 4)[descriptor & 3]
    length = (1 if is_single else 0, 2, 4, 8)[kind]
    if not length:
        return None
    return int.from_bytes(head[begin : begin + length], "little") + (256 if length == 2 else 0)


def _varint(page: memoryview) -> tuple[int, int]:
    """The number at the begin, and its length in bytes; −1 for none."""
    result = 0
    for place, byte in enumerate(page[:5]):
        result |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return result, place + 1
    return -1, 0
