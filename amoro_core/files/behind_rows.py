"""What a Parquet output has behind the rows that were copied into it: bloom filters, page indexes, and the footer."""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from amoro_core.files.copy_source import Leaf, extent
from amoro_core.files.parquet_format import (
    MAGIC,
    ColumnChunk,
    ColumnMetaData,
    FileMetaData,
    RowGroup,
    Struct,
    continued,
    encoded,
    filled,
)
from amoro_core.files.writing import CheckedStream
from amoro_core.records import record

#: Memory of a column chunk's place in a footer, with its statistics and page index.
_CHUNK_BYTES = 4096
#: Written at once: most indexes are too small for a write of their own.
_PIECE_BYTES = 8 << 20
#: The numbers of fields: of a footer's before its row groups, of a column chunk's before the places of its indexes.
_NUM_ROWS = _META_DATA = 3


class Part(NamedTuple):
    """A column chunk to copy, and what is written for it behind all rows."""

    leaf: Leaf
    chunk: Struct
    begin: int  # where it is in its file
    length: int
    indexes: tuple[Struct, bytes] | None  # offset index, column index
    filter: bytes | None


def part_of(leaf: Leaf, chunk: Struct, indexes: tuple[Struct, bytes] | None, content: bytes | None = None) -> Part:
    """The chunk with its indexes and the content of its filter."""
    return Part(leaf, chunk, *extent(chunk.meta_data), indexes, content)


def memory_bytes(group: Struct) -> int:
    """About the memory that is taken by what a row group has behind the rows."""
    filters = sum(chunk.meta_data.bloom_filter_length or 0 for chunk in group.columns)
    return len(group.columns) * _CHUNK_BYTES + int(filters)


class BehindRows:
    """Collects what is written behind the rows, and writes it."""

    def __init__(self) -> None:
        self._groups: list[_Group] = []
        self.memory_bytes = 0
        self._tail = bytearray()

    def __len__(self) -> int:
        """The number of row groups."""
        return len(self._groups)

    @property
    def rows(self) -> list[int]:
        """The number of rows of each row group."""
        return [group.rows for group in self._groups]

    def add(self, group: Struct, begin: int, parts: Sequence[tuple[Part, int]]) -> None:
        """Take over a row group like that one which begins there; each part has been moved by so many bytes."""
        metas = [part.chunk.meta_data for part, _ in parts]
        told = RowGroup(
            columns=[],
            total_byte_size=sum(meta.total_uncompressed_size for meta in metas),
            num_rows=group.num_rows,
            sorting_columns=group.sorting_columns,
            file_offset=begin,
            total_compressed_size=sum(meta.total_compressed_size for meta in metas),
            ordinal=len(self._groups),
        )
        self._groups.append(_Group.of(told, [_moved(part, shift) for part, shift in parts]))
        self.memory_bytes += sum(_CHUNK_BYTES + len(part.filter or b"") for part, _ in parts)

    def write(self, stream: CheckedStream, plain: Struct, created_by: bytes) -> bytes:
        """Write all of it at the end of the stream; returns the footer, whose schema is that of the footer `plain`."""
        for group in self._groups:
            for chunk, content in zip(group.chunks, group.filters, strict=True):
                if content is not None and isinstance(chunk, Struct):
                    meta = chunk.meta_data
                    ((meta.bloom_filter_offset, meta.bloom_filter_length),) = self._put(stream, [content])
        columns = [self._put(stream, group.column_indexes) for group in self._groups]
        offsets = [self._put(stream, group.offset_indexes) for group in self._groups]
        groups = [
            filled(group.text, list(map(_with_indexes, group.chunks, *places)))
            for group, *places in zip(self._groups, offsets, columns, strict=True)
        ]
        front = FileMetaData(version=plain.version, schema=plain.schema, num_rows=sum(self.rows))
        back = FileMetaData(row_groups=[], created_by=created_by, column_orders=plain.column_orders)
        text = continued(encoded(front), _NUM_ROWS, filled(encoded(back), groups))
        footer = text + len(text).to_bytes(4, "little") + MAGIC
        self._put(stream, [footer])
        stream.write(self._tail)
        return footer

    def _put(self, stream: CheckedStream, contents: Sequence[bytes]) -> list[tuple[int, int]]:
        """Write them with what follows; where each begins, and its length."""
        begin = stream.tell() + len(self._tail)
        lengths = list(map(len, contents))
        self._tail += b"".join(contents)
        if len(self._tail) >= _PIECE_BYTES:
            stream.write(self._tail)
            self._tail = bytearray()
        return list(zip(accumulate(lengths, initial=begin), lengths, strict=False))


class _Behind(NamedTuple):
    """A column chunk of the output with what is still to be written for it."""

    chunk: Struct | bytes  # encoded, except one in which its filter's place is to be told
    filter: bytes | None
    column_index: bytes  # empty for none
    offset_index: bytes


@record
class _Group:
    """A row group of the output, with what is still to be written for its column chunks.

    In lists of bytes: structs, or objects for each of thousands of chunks, would be walked by the garbage collector.
    """

    rows: int
    text: bytes  # encoded, without its chunks
    chunks: Sequence[Struct | bytes]
    filters: Sequence[bytes | None]
    column_indexes: Sequence[bytes]
    offset_indexes: Sequence[bytes]

    @classmethod
    def of(cls, told: Struct, behind: Sequence[_Behind]) -> "_Group":
        """That row group with these column chunks."""
        return cls(told.num_rows, encoded(told), *(list(one) for one in zip(*behind, strict=True)))


def _moved(part: Part, shift: int) -> _Behind:
    """The chunk as far behind as `shift` says; what is not carried along is not pointed to any more."""
    meta = ColumnMetaData(**vars(part.chunk.meta_data))
    meta.data_page_offset += shift
    meta.dictionary_page_offset = meta.dictionary_page_offset + shift if meta.dictionary_page_offset else None
    meta.index_page_offset = meta.bloom_filter_offset = meta.bloom_filter_length = None
    # 0 as the specification wants it: other values point to a copy of the metadata that is not carried along.
    struct = ColumnChunk(file_offset=0, meta_data=meta)
    chunk = encoded(struct) if part.filter is None else struct
    if part.indexes is None:
        return _Behind(chunk, part.filter, b"", b"")
    offsets, columns = part.indexes
    for location in offsets.page_locations:
        location.offset += shift
    return _Behind(chunk, part.filter, columns, encoded(offsets))


def _with_indexes(chunk: Struct | bytes, offsets: tuple[int, int], columns: tuple[int, int]) -> bytes:
    """The encoded chunk with where its indexes begin, and their lengths: 0 for one that it has not."""
    places = ColumnChunk()
    if offsets[1]:
        places.offset_index_offset, places.offset_index_length = offsets
    if columns[1]:
        places.column_index_offset, places.column_index_length = columns
    text = chunk if isinstance(chunk, bytes) else encoded(chunk)
    return continued(text, _META_DATA, encoded(places)) if vars(places) else text
