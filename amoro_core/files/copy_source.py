"""Parquet files whose row groups can be copied byte for byte: what must be true of them, and their pages verified.

Everything here reads files of any writer, damaged ones among them: nothing is believed that was not checked. What is
not as expected raises `NotCopied` with the reason, and is then decoded.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

from amoro_core.files.parquet_format import (
    MAGIC,
    MAGIC_ENCRYPTED,
    MISSING_CODEC,
    BloomFilterHeader,
    Bytes,
    ColumnIndex,
    FileMetaData,
    OffsetIndex,
    Struct,
    encoded,
)
from amoro_core.records import record

S = TypeVar("S", bound=Struct)

_TAIL_BYTES = 8
#: What a footer's number of rows begins with where nothing is before it (field 3, of 64 bits), and how an encoded one
#: ends after that mark if it is 0 and nothing is behind it.
_NUM_ROWS, _NO_ROWS = b"\x36", b"\0\0"
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
Agreement = tuple[object, ...]


class NotCopied(ValueError):
    """The reason why something can't be copied."""


@record
class Leaf:
    """A leaf column of a file."""

    path: tuple[bytes, ...]
    type: int
    definition: int  # the highest levels
    repetition: int


@record
class FooterSchema:
    """The begin of a footer, and what it says: files of a table mostly have the same."""

    text: bytes  # up to the number of rows, of which it has the field's mark
    version: int
    elements: Sequence[Struct]
    leaves: tuple[Leaf, ...]
    meanings: Agreement


@record
class CopySource:
    """An open Parquet file, of whose footer everything needed was checked."""

    read: Read  # so many bytes at an offset
    content: bytes | None  # the whole file, if it is in memory
    structs: Bytes | None  # the same; else its page indexes, if they are few enough
    structs_at: int  # where these begin in the file
    footer: Struct
    schema: FooterSchema

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaf columns."""
        return self.schema.leaves

    @property
    def agreement(self) -> Agreement:
        """What the columns are."""
        return self.schema.meanings

    @property
    def created_by(self) -> bytes:
        """The name of the writer."""
        found: bytes = self.footer.created_by
        return found

    @property
    def rows(self) -> tuple[int, ...]:
        """The number of rows of each row group."""
        return tuple(group.num_rows for group in self.footer.row_groups)

    def struct(self, kind: type[S], at: int, length: int) -> tuple[S, bytes] | None:
        """The struct that these bytes are, and they themselves; None where it is not all of them. Raises ValueError."""
        if self.structs is not None and at >= self.structs_at:
            return self.structs.known(kind, at - self.structs_at, length)
        return Bytes(self.read(at, length)).known(kind, 0, length)


def open_source(read: Read, size: int, content: bytes | None = None, like: FooterSchema | None = None) -> CopySource:
    """The file of that size as a source of copies. Raises NotCopied.

    `like` spares the work for a schema that is byte for byte that of a file that was opened before.
    """
    if MISSING_CODEC:
        raise NotCopied(MISSING_CODEC)
    if size < 2 * _TAIL_BYTES:
        raise NotCopied("the file is too short")
    tail = read(size - _TAIL_BYTES, _TAIL_BYTES)
    if tail[4:] == MAGIC_ENCRYPTED:
        raise NotCopied("its footer is encrypted")
    begin = size - _TAIL_BYTES - int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or begin < len(MAGIC) or read(0, len(MAGIC)) != MAGIC:
        raise NotCopied("its marks are not those of a Parquet file")
    footer, schema = _footer(read(begin, size - _TAIL_BYTES - begin), like)
    try:
        source = CopySource(read, content, None if content is None else Bytes(content), 0, footer, schema)
        _require_orders(footer, len(schema.leaves))
        _require_sound(source, begin)
        if content is None:
            source = _with_indexes(source, begin)
    except (TypeError, AttributeError, ValueError) as error:
        raise error if isinstance(error, NotCopied) else NotCopied("its footer lacks a required field") from error
    _require_trusted(footer.created_by)
    return source


def _footer(text: bytes, like: FooterSchema | None) -> tuple[Struct, FooterSchema]:
    """The footer, and what its begin says. Raises NotCopied unless it is the same bytes when it is encoded again."""
    is_like = like is not None and text.startswith(like.text)
    if is_like and like is not None:
        text = _NUM_ROWS + text[len(like.text) :]
    try:
        found = Bytes(text).known(FileMetaData, 0, len(text))
    except (ValueError, TypeError) as error:
        raise NotCopied(f"its footer can't be read: {error}") from error
    if found is None:
        raise NotCopied("its footer has fields that are not known here")
    footer = found[0]
    if is_like and like is not None:
        footer.version, footer.schema = like.version, like.elements
        return footer, like
    try:
        return footer, _schema_of(footer)
    except (TypeError, AttributeError, ValueError) as error:
        raise error if isinstance(error, NotCopied) else NotCopied("its footer lacks a required field") from error


def _schema_of(footer: Struct) -> FooterSchema:
    begin = encoded(FileMetaData(version=footer.version, schema=footer.schema, num_rows=0))
    return FooterSchema(
        begin.removesuffix(_NO_ROWS),
        footer.version,
        footer.schema,
        _leaves(footer.schema),
        tuple(_meaning(element) for element in footer.schema[1:]),
    )


def _with_indexes(source: CopySource, end: int) -> CopySource:
    """The file that is not in memory with its page indexes, read at once: writers put them before the footer."""
    chunks = [chunk for group in source.footer.row_groups if group.num_rows for chunk in group.columns]
    begin = min((at for one in chunks for at in (one.offset_index_offset, one.column_index_offset) if at), default=end)
    if not 0 < end - begin <= _INDEX_BYTES:
        return source
    return replace(source, structs=Bytes(source.read(begin, end - begin)), structs_at=begin)


def _leaves(schema: Sequence[Struct]) -> tuple[Leaf, ...]:
    found: list[Leaf] = []
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
                found.append(Leaf(own, element.type, *levels))

    root = next(waiting, None)
    if root is None:
        raise NotCopied("it has no schema")
    descend(root.num_children or 0, (), 0, 0)
    if next(waiting, None) is not None:
        raise NotCopied("its schema has more elements than its tree")
    return tuple(found)


def _require_orders(footer: Struct, leaves: int) -> None:
    orders = footer.column_orders
    if orders is None or len(orders) != leaves or any(one.type_order is None for one in orders):
        raise NotCopied("its columns have no order, so their bounds must stay unused")


def _meaning(element: Struct) -> tuple[object, ...]:
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
    found = _WRITER.match(created_by.decode(errors="replace"))
    if found is not None:
        least = _DISTRUSTED.get(found[1].strip())
        if least is not None and tuple(map(int, found.groups()[1:])) < least:
            raise NotCopied(f"statistics of {found[0]} are not believed")


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
    if any(length < 0 for _, length in used) or any(one[0] + one[1] > other[0] for one, other in pairwise(used)):
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
    _require_levels(leaf, meta.size_statistics)
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


def _require_levels(leaf: Leaf, sizes: Struct | None) -> None:
    """Raise NotCopied for histograms of other levels than the column has: Arrow ends the process on them."""
    if sizes is None:
        return
    for histogram, highest in (
        (sizes.repetition_level_histogram, leaf.repetition),
        (sizes.definition_level_histogram, leaf.definition),
    ):
        if histogram and len(histogram) != highest + 1:
            raise NotCopied("a column has a histogram of other levels")


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
        firsts = [one.first_row_index for one in index.page_locations]
        pages = len(firsts)
        if firsts[:1] != [0] or firsts != sorted(set(firsts)) or firsts[-1] >= rows:
            raise NotCopied("its offset index is not understood")
        if not chunk.column_index_offset:
            return None
        found = source.struct(ColumnIndex, chunk.column_index_offset, chunk.column_index_length)
        if found is None:
            raise NotCopied("its column index is not understood")
        columns, text = found
        for one in (columns.null_pages, columns.min_values, columns.max_values, columns.null_counts):
            if one is not None and len(one) != pages:
                raise NotCopied("its column index has another number of pages")
        for one, highest in (
            (columns.repetition_level_histograms, leaf.repetition),
            (columns.definition_level_histograms, leaf.definition),
        ):
            if one and len(one) != pages * (highest + 1):
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
    found = begin if length else source.read(at, whole)
    if len(found) != whole:
        raise NotCopied("a bloom filter is cut short")
    return found
