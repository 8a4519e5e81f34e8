"""Parquet outputs of copied row groups, with a footer, page indexes and bloom filters of their own."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from importlib.metadata import version
from io import BytesIO
from itertools import chain, pairwise
from operator import attrgetter
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema

from amoro_core.errors import CheckFailed
from amoro_core.files.parquet.metrics import CopiedFile, column_metrics, merged_metrics
from amoro_core.files.parquet.writing import CheckedStream, ParquetOutput, WrittenFile, bloom_filter_options
from amoro_core.files.row_groups.checks import (
    ColumnLayout,
    CopySource,
    Leaf,
    NotCopied,
    OtherLayout,
    bloom_filter,
    column_meanings,
    extent,
    open_source,
    page_index,
    verify_pages,
)
from amoro_core.files.row_groups.parquet_format import (
    MAGIC,
    Bytes,
    ColumnChunk,
    ColumnMetaData,
    FileMetaData,
    RowGroup,
    Struct,
    encoded,
)
from amoro_core.files.schema.schemas import has_lineage
from amoro_core.files.schema.write_options import WriterOptions
from amoro_core.files.storage.io import FileAccess, reading_file, translated
from amoro_core.model.clustering import is_copied
from amoro_core.model.files import LINEAGE_IDS
from amoro_core.model.task_payload import CopyRule

#: Memory of a column chunk's place in a footer, with its statistics and page index.
_CHUNK_BYTES = 4096
#: Written at once: most indexes are too small for a write of their own.
_FOOTER_PIECE_BYTES = 8 << 20


class CopiedChunk(NamedTuple):
    """A column chunk to copy, and what is written for it behind all rows."""

    number: int  # in its row group
    leaf: Leaf
    chunk: Struct
    begin: int  # where it is in its file
    length: int
    indexes: tuple[Struct, bytes] | None  # offset index, column index
    filter: bytes | None


def memory_bytes(group: Struct) -> int:
    """About the memory that is taken by what a row group has behind the rows."""
    filters = sum(chunk.meta_data.bloom_filter_length or 0 for chunk in group.columns)
    return len(group.columns) * _CHUNK_BYTES + int(filters)


class FooterBuilder:
    """Collects row groups with what is written behind the rows of all of them, and writes it."""

    def __init__(self) -> None:
        self._groups: list[Struct] = []
        self._behind: list[_Behind] = []  # of all column chunks
        self.memory_bytes = 0
        self._tail = bytearray()

    def __len__(self) -> int:
        """The number of row groups."""
        return len(self._groups)

    @property
    def rows(self) -> list[int]:
        """The number of rows of each row group."""
        return [group.num_rows for group in self._groups]

    def add(self, group: Struct, begin: int, parts: Sequence[tuple[CopiedChunk, int]]) -> None:
        """Take over a row group that begins there; each part comes with the bytes by which it has moved."""
        metas = [part.chunk.meta_data for part, _ in parts]
        behind = [_moved(part, shift) for part, shift in parts]
        self._behind += behind
        self._groups.append(
            RowGroup(
                columns=[part.chunk for part in behind],
                total_byte_size=sum(meta.total_uncompressed_size for meta in metas),
                num_rows=group.num_rows,
                sorting_columns=group.sorting_columns,
                file_offset=begin,
                total_compressed_size=sum(meta.total_compressed_size for meta in metas),
                ordinal=len(self._groups),
            )
        )
        self.memory_bytes += sum(_CHUNK_BYTES + len(part.filter or b"") for part, _ in parts)

    def write(self, stream: CheckedStream, plain: Struct, created_by: bytes) -> bytes:
        """Write all of it at the end of the stream; returns the footer, whose schema is that of the footer `plain`."""
        for chunk, content, _, _ in self._behind:
            if content is not None:
                chunk.meta_data.bloom_filter_offset, chunk.meta_data.bloom_filter_length = self._put(stream, content)
        for chunk, _, columns, _ in self._behind:
            if columns:
                chunk.column_index_offset, chunk.column_index_length = self._put(stream, columns)
        for chunk, _, _, offsets in self._behind:
            if offsets:
                chunk.offset_index_offset, chunk.offset_index_length = self._put(stream, offsets)
        text = encoded(
            FileMetaData(
                version=plain.version,
                schema=plain.schema,
                num_rows=sum(self.rows),
                row_groups=self._groups,
                created_by=created_by,
                column_orders=plain.column_orders,
            )
        )
        footer = text + len(text).to_bytes(4, "little") + MAGIC
        self._put(stream, footer)
        stream.write(self._tail)
        return footer

    def _put(self, stream: CheckedStream, content: bytes) -> tuple[int, int]:
        """Write it, with what follows; where it begins, and its length."""
        begin = stream.tell() + len(self._tail)
        self._tail += content
        if len(self._tail) >= _FOOTER_PIECE_BYTES:
            stream.write(self._tail)
            self._tail = bytearray()
        return begin, len(content)


class _Behind(NamedTuple):
    """A column chunk of the output with what is still to be written for it."""

    chunk: Struct
    filter: bytes | None
    column_index: bytes  # empty for none
    offset_index: bytes


def _moved(part: CopiedChunk, shift: int) -> _Behind:
    """The chunk as far behind as `shift` says; what is not carried along is not pointed to any more."""
    meta = ColumnMetaData(**vars(part.chunk.meta_data))
    meta.data_page_offset += shift
    meta.dictionary_page_offset = meta.dictionary_page_offset + shift if meta.dictionary_page_offset else None
    meta.index_page_offset = meta.bloom_filter_offset = meta.bloom_filter_length = None
    # 0 as the specification wants it: other values point to a copy of the metadata that is not carried along.
    chunk = ColumnChunk(file_offset=0, meta_data=meta)
    if part.indexes is None:
        return _Behind(chunk, part.filter, b"", b"")
    offsets, columns = part.indexes
    for location in offsets.page_locations:
        location.offset += shift
    return _Behind(chunk, part.filter, columns, encoded(offsets))


#: The writer of an output whose parts are of several writers, in the form that readers parse.
CREATED_BY = f"amoro version {version('amoro')} (build unknown)".encode()
#: Physical types by their numbers in the format.
_TYPES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
#: Row groups are numbered in 16 bits.
MOST_ROW_GROUPS = 32_767
#: Written at once, so that an attempt that is cancelled ends soon.
_PIECE_BYTES = 8 << 20
#: Manifests tell where splits may begin. Iceberg's reader in Spark opens a file and parses its footer for each of them.
_SPLIT_BYTES = 32 << 20

#: Chunks that adjoin, and their bytes.
_Content = tuple[Sequence[CopiedChunk], memoryview]


class SplicedOutput(ParquetOutput):
    """One Parquet file being written; row groups of files that agree with the schema can be copied into it.

    Rows that are encoded instead make row groups of their own between them, encoded in memory and copied from there.
    """

    def __init__(
        self,
        access: FileAccess,
        path: str,
        schema: Schema,
        options: WriterOptions,
        *,
        memory_bytes: int,
        checkpoint: Callable[[], None],
        copied_path: str | None,
        rule: CopyRule,
    ) -> None:
        """`copied_path`: the file's path if a row group is copied into it before one of full size is encoded.

        `memory_bytes`: for the rows collected, a column chunk of a large file, and the footer. `checkpoint` may raise.
        """
        super().__init__(access, path, schema, options, memory_bytes=memory_bytes, checkpoint=checkpoint)
        self._max_bytes = memory_bytes
        self._checkpoint = checkpoint
        self._copied_path = copied_path or path
        self._max_row_groups = min(rule.max_row_groups, MOST_ROW_GROUPS)
        self._verifies = rule.verifies
        self._plain = self._encoded(pa.Table.from_batches([], self._arrow))
        self._form: CopySource | None = None  # whose columns are stored like the output's, once it has a row group
        self.takes_rows = True  # rows can be encoded so
        self._with_lineage = has_lineage(schema)
        self._filtered = {path.encode() for path in bloom_filter_options(schema, options, 1)}
        self._behind = FooterBuilder()
        self._origins: list[CopiedFile | None] = []
        self._writers: set[bytes] = set()

    def copy(self, source: CopySource, number: int, file: CopiedFile) -> None:
        """Copy one row group behind what was written. Raises NotCopied before anything was added, and StorageFull."""
        group = source.footer.row_groups[number]
        if group.num_rows == 0:
            return
        self._require_room(group)
        if self._with_lineage and not _stores_lineage(source, group):
            raise NotCopied("it does not store the lineage of every row")
        self._require_layout(source.layout)
        parts = _parts(source, group)
        for part, plain in zip(parts, self._plain.leaves, strict=True):
            if part.filter is None and b".".join(plain.path) in self._filtered:
                raise NotCopied("it lacks a bloom filter that the table wants")
        if self._verifies and source.content is not None and source.structs is not None:
            view = memoryview(source.content)
            for part in parts:
                verify_pages(source.structs, view, part.leaf, part.chunk.meta_data, part.begin, _pages_of(part))
        contents = self._contents(source, parts)
        # The first is read before the file has a name: what refuses a large file is mostly seen there.
        contents = chain([next(contents)], contents)
        if not self.written_bytes:
            self.path = self._copied_path
        if self._form is None:
            self.takes_rows = self._encodes(source.layout)
            self._form = replace(source, read=self._plain.read, content=None, structs=None)
        if self._pending_rows:
            self._write_pending()
        self._splice(group, contents)
        self._origins.append(file)
        self._writers.add(source.created_by)

    def _require_layout(self, layout: ColumnLayout) -> None:
        if column_meanings(layout) != column_meanings(self._plain.layout):
            raise NotCopied(_difference(layout, self._plain.layout))
        if self._form.layout != layout if self._form else self._pending_rows and not self._encodes(layout):
            raise OtherLayout(layout)

    def _encodes(self, layout: ColumnLayout) -> bool:
        """Whether rows can be encoded as in that layout; if so, the next ones are."""
        for self._integer_decimals in (True, False):
            own = self._encoded(pa.Table.from_batches([], self._arrow)).layout
            if [item[1:] for item in own] == [one[1:] for one in layout]:
                return True
        return False

    def close(self) -> WrittenFile:
        """Write the remaining rows and the footer. Raises StorageFull, CheckFailed; the file is then deleted."""
        try:
            if self._pending_rows:
                self._write_pending()
            self._begin()
            end = self.written_bytes
            with translated(self.path):
                writer = next(iter(self._writers)) if len(self._writers) == 1 else CREATED_BY
                footer = self._behind.write(self._stream, (self._form or self._plain).footer, writer)
                size_bytes = self.written_bytes
                self._stream.close()
            metadata = _checked(self.path, footer, end, self._behind.rows)
            metrics, offsets = column_metrics(
                metadata, self._schema, self._options, self._nan_counts, with_bounds=False
            )
            splits = split_offsets(offsets) if is_copied(self.path) else offsets
            metrics = merged_metrics(metrics, metadata, self._schema, self._options, self._origins)
        except BaseException:
            self.discard()
            raise
        return WrittenFile(self.path, size_bytes, int(metadata.num_rows), metrics, splits)

    def _require_room(self, group: Struct) -> None:
        if len(self._behind) >= self._max_row_groups:
            raise NotCopied(f"its output has {len(self._behind)} row groups already")
        if self._behind.memory_bytes + memory_bytes(group) > self._max_bytes:
            raise NotCopied("its output's footer would exceed the memory")

    def _write_pending(self) -> None:
        self._write_table(pa.Table.from_batches(self._pending, self._arrow))
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0

    def _write_table(self, table: pa.Table) -> None:
        if self._form is None:
            self._form, self._integer_decimals = self._plain, True
        try:
            source = self._encoded(table)
            for group in source.footer.row_groups:
                for leaf, chunk in zip(self._form.leaves, group.columns, strict=True):
                    chunk.meta_data.path_in_schema = list(leaf.path)
                self._splice(group, self._contents(source, _parts(source, group)))
                self._origins.append(None)
        except NotCopied as error:
            raise CheckFailed(f"the rows encoded for {self.path} can't be read again: {error}") from error
        self._writers.add(source.created_by)

    def _encoded(self, table: pa.Table) -> CopySource:
        """The rows, encoded in memory as a Parquet file of their own."""
        buffer = BytesIO()
        sink = CheckedStream(lambda: buffer, self._checkpoint)
        with self._open_writer(table, sink) as writer:
            try:
                if table.num_rows:
                    writer.write_table(table, row_group_size=table.num_rows)
            finally:
                sink.checkpoint = None
        content = buffer.getvalue()
        return open_source(lambda at, length: content[at : at + length], len(content), content)

    def _begin(self) -> None:
        if not self.written_bytes:
            with translated(self.path):
                self._stream.write(MAGIC)

    def _contents(self, source: CopySource, parts: Sequence[CopiedChunk]) -> Iterator[_Content]:
        """The chunks in the order of the file, each read when it is needed. Raises NotCopied."""
        for run in _runs(parts, whole=source.content is not None):
            first, last = run[0], run[-1]
            if source.content is None:
                yield run, memoryview(self._chunk(source, first))
            else:
                yield run, memoryview(source.content)[first.begin : last.begin + last.length]

    def _splice(self, group: Struct, contents: Iterable[_Content]) -> None:
        """Write a row group like `group` with these chunks."""
        self._begin()
        begin = self.written_bytes
        parts: list[tuple[CopiedChunk, int]] = []
        for run, content in contents:
            shift = self.written_bytes - run[0].begin
            with translated(self.path):
                self._write_all(content)
            parts += [(part, shift) for part in run]
            del content  # a large one is released before the next is read
        self._behind.add(group, begin, sorted(parts, key=lambda item: item[0].number))

    def _write_all(self, content: memoryview) -> None:
        for begin in range(0, len(content), _PIECE_BYTES):
            self._stream.write(content[begin : begin + _PIECE_BYTES])

    def _chunk(self, source: CopySource, part: CopiedChunk) -> bytes:
        """A column chunk of a large file, verified. Raises NotCopied: what its row group left is dead space."""
        if part.length > self._max_bytes:
            raise NotCopied("a column exceeds the memory")
        content = source.read(part.begin, part.length)
        if len(content) != part.length:
            raise NotCopied("the file is shorter than it was")
        if self._verifies:
            verify_pages(Bytes(content), memoryview(content), part.leaf, part.chunk.meta_data, 0, _pages_of(part))
        return content


def split_offsets(offsets: Sequence[int]) -> tuple[int, ...]:
    """Of the sorted offsets of small row groups those at which a split of a copied file may begin."""
    result = list(offsets[:1])
    for offset in offsets[1:]:
        if offset - result[-1] >= _SPLIT_BYTES:
            result.append(offset)
    return tuple(result)


def _stores_lineage(source: CopySource, group: Struct) -> bool:
    """Whether the last two columns are the lineage and, by their statistics, hold it for every row of the row group."""
    count = len(LINEAGE_IDS)
    statistics = [chunk.meta_data.statistics for chunk in group.columns[-count:]]
    ids = tuple(element.field_id for element in source.footer.schema[-count:])
    return ids == LINEAGE_IDS and all(statistic is not None and statistic.null_count == 0 for statistic in statistics)


def _parts(source: CopySource, group: Struct) -> list[CopiedChunk]:
    """The row group's column chunks with their indexes. Raises NotCopied."""
    result = []
    for number, (leaf, chunk) in enumerate(zip(source.leaves, group.columns, strict=True)):
        index = page_index(source, leaf, chunk, group.num_rows)
        filter_ = bloom_filter(source, chunk.meta_data)
        result.append(CopiedChunk(number, leaf, chunk, *extent(chunk.meta_data), index, filter_))
    return result


def _pages_of(part: CopiedChunk) -> Struct | None:
    return None if part.indexes is None else part.indexes[0]


def _runs(parts: Sequence[CopiedChunk], *, whole: bool) -> Iterator[list[CopiedChunk]]:
    """The chunks in the order of the file, those that adjoin together if `whole`."""
    run: list[CopiedChunk] = []
    end = 0
    for part in sorted(parts, key=attrgetter("begin", "length")):
        if run and (part.begin != end or not whole):
            yield run
            run = []
        run.append(part)
        end = part.begin + part.length
    yield run


def _difference(layout: ColumnLayout, wanted: ColumnLayout) -> str:
    """What the file's columns lack to be copied."""
    for column, other in zip(layout, wanted, strict=False):
        if column_meanings((column,)) != column_meanings((other,)):
            return f"its columns are not those of the table's schema: {_words(column)} instead of {_words(other)}"
    return f"it has {len(layout)} columns, levels within them included, instead of {len(wanted)}"


def _words(element: tuple[Any, ...]) -> str:
    name, fields, kind, _, _, field_id, logical = element
    meant = "" if logical is None else f" as {' '.join(str(part) for part in logical if part != b'')}"
    stored = f"{fields} fields" if fields else _TYPES[kind]
    return f"{name.decode(errors='replace')} ({stored}{meant}, field id {field_id})"


def _checked(path: str, footer: bytes, end: int, rows: Sequence[int]) -> pq.FileMetaData:
    """The footer as an independent reader reads it. Raises CheckFailed unless it describes what was written."""
    with reading_file(path):
        metadata = pq.read_metadata(pa.BufferReader(MAGIC + footer))
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    places = sorted(_place(group.column(number)) for group in groups for number in range(metadata.num_columns))
    if [group.num_rows for group in groups] != list(rows) or metadata.num_rows != sum(rows):
        raise CheckFailed(f"the footer of {path} does not have the rows that were written")
    places = [(0, len(MAGIC)), *places, (end, 0)]
    if any(part[0] + part[1] > other[0] for part, other in pairwise(places)):
        raise CheckFailed(f"parts of {path} overlap, or lie outside of it")
    return metadata


def _place(chunk: pq.ColumnChunkMetaData) -> tuple[int, int]:
    """Where the chunk begins, and its length."""
    begin = chunk.data_page_offset
    if chunk.has_dictionary_page:
        begin = min(begin, chunk.dictionary_page_offset)
    return begin, chunk.total_compressed_size
