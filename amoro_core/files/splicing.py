"""Parquet outputs made of row groups of other files, copied byte for byte, and of rows encoded anew between them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema

from amoro_core.errors import CheckFailed
from amoro_core.files.bound_merging import CopiedFile, with_told
from amoro_core.files.copy_pages import verify_pages
from amoro_core.files.copy_source import (
    Agreement,
    CopySource,
    Leaf,
    NotCopied,
    bloom_filter,
    extent,
    open_source,
    page_index,
)
from amoro_core.files.encoding import bloom_filter_options
from amoro_core.files.io import FileAccess, reading_parquet, translated
from amoro_core.files.lineage import has_lineage
from amoro_core.files.lineage_chunks import Columns, GroupLineage, encoded_lineage, made_lineage
from amoro_core.files.metrics import column_metrics
from amoro_core.files.options import WriterOptions
from amoro_core.files.parquet_format import (
    MAGIC,
    Bytes,
    ColumnChunk,
    ColumnMetaData,
    FileMetaData,
    RowGroup,
    Struct,
    continued,
    encoded,
    filled,
)
from amoro_core.files.writing import CheckedStream, ParquetOutput, WrittenFile

#: The writer of an output whose parts are of several writers, in the form that readers parse.
CREATED_BY = f"amoro version {version('amoro')} (build unknown)".encode()
#: Row groups are numbered in 16 bits.
MOST_ROW_GROUPS = 32_767
#: Written at once, so that an attempt that is cancelled ends soon.
_PIECE_BYTES = 8 << 20
#: The numbers of fields: of a footer's before its row groups, of a column chunk's before the places of its indexes.
_NUM_ROWS = _META_DATA = 3
#: Memory of a column chunk's place in a footer, with its statistics and page index.
_CHUNK_BYTES = 4096


@dataclass(frozen=True, slots=True)
class _Part:
    """A column chunk to copy, and what is written for it behind all rows."""

    leaf: Leaf
    chunk: Struct
    index: tuple[Struct, bytes] | None  # offset index, column index
    filter: bytes | None


#: Parts of a row group, and the file that has them or their bytes.
_Piece = tuple[CopySource | bytes, Sequence[_Part]]


@dataclass(frozen=True, slots=True)
class _Behind:
    """A column chunk of the output with what is still to be written for it."""

    chunk: Struct | bytes  # encoded, except one in which its filter's place is to be told
    filter: bytes | None
    column_index: bytes | None
    offset_index: bytes | None


@dataclass(frozen=True, slots=True)
class _Group:
    """A row group of the output, with what is still to be written for its column chunks.

    In lists of bytes: structs, or objects for each of thousands of chunks, would be walked by the garbage collector.
    """

    rows: int
    text: bytes  # encoded, without its chunks
    chunks: Sequence[Struct | bytes]
    filters: Sequence[bytes | None]
    column_indexes: Sequence[bytes | None]
    offset_indexes: Sequence[bytes | None]

    @classmethod
    def of(cls, told: Struct, behind: Sequence[_Behind]) -> "_Group":
        """That row group with these column chunks."""
        return cls(
            told.num_rows,
            encoded(told),
            [one.chunk for one in behind],
            [one.filter for one in behind],
            [one.column_index for one in behind],
            [one.offset_index for one in behind],
        )


class SplicedOutput(ParquetOutput):
    """One Parquet file being written; row groups of files that agree with the schema can be copied into it."""

    def __init__(
        self,
        access: FileAccess,
        path: str,
        schema: Schema,
        options: WriterOptions,
        *,
        memory_bytes: int,
        checkpoint: Callable[[], None],
        max_row_groups: int = MOST_ROW_GROUPS,
        verifies: bool = True,
    ) -> None:
        """Create the file. `verifies`: pages are compared with checksums and indexes before they are copied.

        `memory_bytes` holds for the rows collected, for a column chunk copied from a large file, and for the footer.
        `checkpoint` is called for each piece that is written, and may raise. Raises StorageFull.
        """
        super().__init__(access, path, schema, options, memory_bytes=memory_bytes, checkpoint=checkpoint)
        self._max_bytes = memory_bytes
        self._checkpoint = checkpoint
        self._max_row_groups = min(max_row_groups, MOST_ROW_GROUPS)
        self._verifies = verifies
        self._plain = _source_of(self._encoded(pa.Table.from_batches([], self._arrow)))
        self._with_lineage = has_lineage(schema)
        self._columns = Columns.of(self._plain, with_lineage=self._with_lineage)
        self._filtered = {path.encode() for path in bloom_filter_options(schema, options, 1)}
        self._groups: list[_Group] = []
        self._chunk_count = 0
        self._filter_bytes = 0
        self._tail = bytearray()  # of indexes, most of which are too small for a write of their own
        self._origins: list[CopiedFile | None] = []
        self._writers: set[bytes] = set()
        with translated(path):
            self._stream.write(MAGIC)

    @property
    def agreement(self) -> Agreement:
        """The agreement of files that can be copied."""
        return self._columns.agreement

    def copy(self, source: CopySource, number: int, file: CopiedFile, lineage: GroupLineage | None = None) -> None:
        """Copy one row group of the file behind what was written; one without rows is left out.

        Its rows get their lineage where the schema has that. Raises NotCopied with the reason, before anything of it
        was added, and StorageFull.
        """
        group = source.footer.row_groups[number]
        if group.num_rows == 0:
            return
        self._require_room(group)
        columns = Columns.of(source, with_lineage=self._with_lineage)
        if columns.agreement != self.agreement:
            raise NotCopied(_difference(columns.agreement, self.agreement))
        leaves = columns.own
        made: list[_Piece] = []
        if self._with_lineage and columns.tell_every_row(group, self._columns):
            leaves = (*leaves, *columns.lineage)
        elif self._with_lineage:
            made.append(self._made_lineage(columns, lineage))
        parts = _parts(source, group, leaves)
        for part in parts:
            if part.filter is None and b".".join(part.leaf.path) in self._filtered:
                raise NotCopied("it lacks a bloom filter that the table wants")
        if self._verifies and source.content is not None and source.structs is not None:
            view = memoryview(source.content)
            for part in parts:
                meta = part.chunk.meta_data
                verify_pages(source.structs, view, part.leaf, meta, extent(meta)[0], _pages_of(part))
        if self._pending_rows:
            self._write_pending()
        with translated(self.path):
            self._splice(group, [(source, parts), *made])
        self._origins.append(file)
        self._writers.add(source.created_by)

    def close(self) -> WrittenFile:
        """Write the remaining rows and the footer. Raises StorageFull, CheckFailed; the file is then deleted."""
        try:
            if self._pending_rows:
                self._write_pending()
            end = self.written_bytes
            with translated(self.path):
                footer = self._write_footer()
                size_bytes = self.written_bytes
                self._stream.close()
            metadata = _checked(self.path, footer, end, [group.rows for group in self._groups])
            metrics, split_offsets = column_metrics(
                metadata, self._schema, self._options, self._nan_counts, with_bounds=False
            )
            metrics = with_told(metrics, metadata, self._schema, self._options, self._origins)
        except BaseException:
            self.discard()
            raise
        return WrittenFile(self.path, size_bytes, int(metadata.num_rows), metrics, split_offsets)

    def _require_room(self, group: Struct) -> None:
        if len(self._groups) >= self._max_row_groups:
            raise NotCopied(f"its output has {len(self._groups)} row groups already")
        filters = sum(chunk.meta_data.bloom_filter_length or 0 for chunk in group.columns)
        chunks = (self._chunk_count + len(group.columns)) * _CHUNK_BYTES
        if chunks + self._filter_bytes + filters > self._max_bytes:
            raise NotCopied("its output's footer would exceed the memory")

    def _write_pending(self) -> None:
        self._write_table(pa.Table.from_batches(self._pending, self._arrow))
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0

    def _write_table(self, table: pa.Table) -> None:
        source = _source_of(self._encoded(table))
        with translated(self.path):
            for group in source.footer.row_groups:
                self._splice(group, [(source, _parts(source, group, range(len(source.leaves))))])
                self._origins.append(None)
        self._writers.add(source.created_by)

    def _encoded(self, table: pa.Table) -> bytes:
        sink = pa.BufferOutputStream()
        writer = self._open_writer(table, CheckedStream(sink, self._checkpoint))
        if table.num_rows:
            writer.write_table(table, row_group_size=table.num_rows)
        writer.close()
        return bytes(sink.getvalue().to_pybytes())

    def _made_lineage(self, columns: Columns, lineage: GroupLineage | None) -> _Piece:
        if lineage is None:
            raise ValueError(f"the rows copied to {self.path} have no lineage")
        leaves = [self._plain.leaves[number] for number in self._columns.lineage]
        if not columns.lineage:
            made = made_lineage(lineage, [leaf.path[0] for leaf in leaves], self._options.page_rows)
            if made is not None:
                return b"".join(one.content for one in made), [
                    _Part(leaf, one.chunk, (one.offset_index, one.column_index), None)
                    for leaf, one in zip(leaves, made, strict=True)
                ]
        kind = pa.schema(list(self._arrow)[-len(leaves) :])
        source = _source_of(encoded_lineage(lineage, columns, kind, self._options, self._max_bytes))
        return source, _parts(source, source.footer.row_groups[0], range(len(source.leaves)))

    def _splice(self, group: Struct, pieces: Sequence[_Piece]) -> None:
        """Write a row group like `group`, with the parts of several files one after the other."""
        begin, chunks = self.written_bytes, {}
        for source, parts in pieces:
            for run in _runs(parts, whole=isinstance(source, bytes) or source.content is not None):
                first, last = (extent(part.chunk.meta_data) for part in (run[0], run[-1]))
                length = last[0] + last[1] - first[0]
                shift = self.written_bytes - first[0]
                self._write_all(self._chunks(source, run[0], first[0], length))
                for part in run:
                    chunks[id(part)] = _moved(part, shift)
        moved = [chunks[id(part)] for _, parts in pieces for part in parts]
        metas = [part.chunk.meta_data for _, parts in pieces for part in parts]
        told = RowGroup(
            columns=[],
            total_byte_size=sum(meta.total_uncompressed_size for meta in metas),
            num_rows=group.num_rows,
            sorting_columns=group.sorting_columns,
            file_offset=begin,
            total_compressed_size=sum(meta.total_compressed_size for meta in metas),
            ordinal=len(self._groups),
        )
        self._groups.append(_Group.of(told, moved))
        self._chunk_count += len(moved)
        self._filter_bytes += sum(len(one.filter) for one in moved if one.filter is not None)

    def _write_all(self, content: memoryview) -> None:
        for begin in range(0, len(content), _PIECE_BYTES):
            self._stream.write(content[begin : begin + _PIECE_BYTES])

    def _chunks(self, source: CopySource | bytes, part: _Part, begin: int, length: int) -> memoryview:
        """The bytes of adjoining chunks that begin with that part: of several only where these are in memory."""
        if isinstance(source, bytes):
            return memoryview(source)[begin : begin + length]
        if source.content is None:
            return memoryview(self._chunk(source, part, begin, length))
        return memoryview(source.content)[begin : begin + length]

    def _chunk(self, source: CopySource, part: _Part, begin: int, length: int) -> bytes:
        """A column chunk of a large file, verified. Raises NotCopied: what its row group left is dead space."""
        if length > self._max_bytes:
            raise NotCopied("a column exceeds the memory")
        content = source.read(begin, length)
        if len(content) != length:
            raise NotCopied("the file is shorter than it was")
        if self._verifies:
            verify_pages(Bytes(content), memoryview(content), part.leaf, part.chunk.meta_data, 0, _pages_of(part))
        return content

    def _write_footer(self) -> bytes:
        for group in self._groups:
            for chunk, content in zip(group.chunks, group.filters, strict=True):
                if content is not None and isinstance(chunk, Struct):
                    meta = chunk.meta_data
                    meta.bloom_filter_offset, meta.bloom_filter_length = self._put(content)
        columns = [[self._put(one) for one in group.column_indexes] for group in self._groups]
        offsets = [[self._put(one) for one in group.offset_indexes] for group in self._groups]
        groups = [
            filled(group.text, list(map(_with_indexes, group.chunks, *places)))
            for group, *places in zip(self._groups, offsets, columns, strict=True)
        ]
        plain, rows = self._plain.footer, sum(group.rows for group in self._groups)
        writer = next(iter(self._writers)) if len(self._writers) == 1 else CREATED_BY
        front = FileMetaData(version=plain.version, schema=plain.schema, num_rows=rows)
        back = FileMetaData(row_groups=[], created_by=writer, column_orders=plain.column_orders)
        text = continued(encoded(front), _NUM_ROWS, filled(encoded(back), groups))
        footer = text + len(text).to_bytes(4, "little") + MAGIC
        self._put(footer)
        self._stream.write(self._tail)
        return footer

    def _put(self, content: bytes | None) -> tuple[int, int]:
        """Write it with what follows; where it begins, and its length: 0 for None."""
        if content is None:
            return 0, 0
        begin = self.written_bytes + len(self._tail)
        self._tail += content
        if len(self._tail) >= _PIECE_BYTES:
            self._stream.write(self._tail)
            self._tail = bytearray()
        return begin, len(content)


def _source_of(content: bytes) -> CopySource:
    view = memoryview(content)
    return open_source(lambda at, length: bytes(view[at : at + length]), len(content), content)


def _parts(source: CopySource, group: Struct, leaves: Iterable[int]) -> list[_Part]:
    """The row group's column chunks of these leaves with their indexes. Raises NotCopied."""
    chosen = [(source.leaves[number], group.columns[number]) for number in leaves]
    return [
        _Part(leaf, chunk, page_index(source, leaf, chunk, group.num_rows), bloom_filter(source, chunk.meta_data))
        for leaf, chunk in chosen
    ]


def _pages_of(part: _Part) -> Struct | None:
    return None if part.index is None else part.index[0]


def _runs(parts: Sequence[_Part], *, whole: bool) -> Iterator[list[_Part]]:
    """The chunks in the order of the file, those that adjoin together if `whole`."""
    run: list[_Part] = []
    end = 0
    for part in sorted(parts, key=lambda part: extent(part.chunk.meta_data)):
        begin, length = extent(part.chunk.meta_data)
        if run and (begin != end or not whole):
            yield run
            run = []
        run.append(part)
        end = begin + length
    yield run


def _moved(part: _Part, shift: int) -> _Behind:
    """The chunk as far behind as `shift` says; what is not carried along is not pointed to any more."""
    meta = part.chunk.meta_data
    moved: dict[str, Any] = {
        **vars(meta),
        "data_page_offset": meta.data_page_offset + shift,
        "dictionary_page_offset": meta.dictionary_page_offset + shift if meta.dictionary_page_offset else None,
        "index_page_offset": None,
        "bloom_filter_offset": None,
        "bloom_filter_length": None,
    }
    # 0 as the specification wants it: other values point to a copy of the metadata that is not carried along.
    struct = ColumnChunk(file_offset=0, meta_data=ColumnMetaData(**moved))
    chunk = encoded(struct) if part.filter is None else struct
    if part.index is None:
        return _Behind(chunk, part.filter, None, None)
    offsets, columns = part.index
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


def _difference(found: Agreement, wanted: Agreement) -> str:
    """What the file's columns lack to be copied."""
    for one, other in zip(found, wanted, strict=False):
        if one != other:
            return f"its columns are not as they would be written: {_words(one)} instead of {_words(other)}"
    return f"it has {len(found)} columns, levels within them included, instead of {len(wanted)}"


def _words(element: object) -> str:
    name, *more = element if isinstance(element, tuple) else (element,)
    shown = name.decode(errors="replace") if isinstance(name, bytes) else str(name)
    return f"{shown} {tuple(more)}"


def _checked(path: str, footer: bytes, end: int, rows: Sequence[int]) -> pq.FileMetaData:
    """The footer as an independent reader reads it. Raises CheckFailed unless it describes what was written."""
    with reading_parquet(path):
        metadata = pq.read_metadata(pa.BufferReader(MAGIC + footer))
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    chunks = [group.column(place) for group in groups for place in range(metadata.num_columns)]
    places = sorted((_begin(chunk), int(chunk.total_compressed_size)) for chunk in chunks)
    if [group.num_rows for group in groups] != list(rows) or metadata.num_rows != sum(rows):
        raise CheckFailed(f"the footer of {path} does not have the rows that were written")
    places = [(0, len(MAGIC)), *places, (end, 0)]
    if any(one[0] + one[1] > other[0] for one, other in pairwise(places)):
        raise CheckFailed(f"parts of {path} overlap, or lie outside of it")
    return metadata


def _begin(chunk: pq.ColumnChunkMetaData) -> int:
    first = int(chunk.data_page_offset)
    return min(first, int(chunk.dictionary_page_offset)) if chunk.has_dictionary_page else first
