"""Parquet column chunks of numbers that stay the same or grow by one from row to row, written from three figures.

They are written as differences (DELTA_BINARY_PACKED), which all are the same and take no bits (Parquet's format,
encodings): nothing is done for each row. Not compressed: a block of 128 rows takes five bytes.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from amoro_core.files.deletes.vectors import crc32
from amoro_core.files.parquet.writing import column_encodings
from amoro_core.files.row_groups.checks import Agreement, CopySource, NotCopied
from amoro_core.files.row_groups.parquet_format import (
    ColumnChunk,
    ColumnIndex,
    ColumnMetaData,
    DataPage,
    EncodingStats,
    OffsetIndex,
    PageHeader,
    PageLocation,
    Statistics,
    Struct,
    encoded,
    varint,
)
from amoro_core.files.schema.schemas import with_lineage
from amoro_core.files.schema.write_options import WriterOptions
from amoro_core.model.files import LINEAGE_IDS, DataFile

_INT64, _UNCOMPRESSED, _DATA_PAGE = 2, 0, 0
_RLE, _DELTA_BINARY_PACKED = 3, 5
_ASCENDING = 1  # the order of the pages' bounds
#: Rows of a block, and its parts, as all writers have them.
_BLOCK_ROWS, _PARTS = 128, 4
#: A page has at least so many rows, whatever the table says: smaller ones only cost.
_LEAST_PAGE_ROWS = 1000


@dataclass(frozen=True, slots=True)
class Progression:
    """The numbers of an optional column of 64 bits: the first one, and by how much each is above the one before."""

    first: int
    step: int  # 0 or 1


@dataclass(frozen=True, slots=True)
class MadeChunk:
    """A column chunk whose offsets count from the begin of its content."""

    content: bytes
    chunk: Struct
    offset_index: Struct
    column_index: bytes


def progression_chunk(numbers: Progression, rows: int, path: tuple[bytes, ...], page_rows: int, at: int) -> MadeChunk:
    """The numbers of so many rows, at least one, as a chunk of the column at that path that begins at offset `at`."""
    content = bytearray()
    places, lowest, highest, counts = [], [], [], []
    page_rows = max(page_rows, _LEAST_PAGE_ROWS)
    for begin in range(0, rows, page_rows):
        count = min(page_rows, rows - begin)
        first = numbers.first + numbers.step * begin
        page = _page(first, numbers.step, count)
        places.append(PageLocation(offset=at + len(content), compressed_page_size=len(page), first_row_index=begin))
        lowest.append(_plain(first))
        highest.append(_plain(first + numbers.step * (count - 1)))
        counts.append(count)
        content += page
    pages = len(counts)
    meta = ColumnMetaData(
        type=_INT64,
        encodings=[_DELTA_BINARY_PACKED, _RLE],
        path_in_schema=list(path),
        codec=_UNCOMPRESSED,
        num_values=rows,
        total_uncompressed_size=len(content),
        total_compressed_size=len(content),
        data_page_offset=at,
        statistics=Statistics(null_count=0, min_value=lowest[0], max_value=highest[-1]),
        encoding_stats=[EncodingStats(page_type=_DATA_PAGE, encoding=_DELTA_BINARY_PACKED, count=pages)],
    )
    index = ColumnIndex(
        null_pages=[False] * pages,
        min_values=lowest,
        max_values=highest,
        boundary_order=_ASCENDING,
        null_counts=[0] * pages,
    )
    chunk = ColumnChunk(file_offset=0, meta_data=meta)
    return MadeChunk(bytes(content), chunk, OffsetIndex(page_locations=places), encoded(index))


def _page(first: int, step: int, rows: int) -> bytes:
    """A data page with its header and checksum."""
    levels = varint(rows << 1) + b"\1"  # one run: no row is null
    block = bytes([step << 1]) + bytes(_PARTS)  # the least difference, and that others need no bits
    header = varint(_BLOCK_ROWS) + varint(_PARTS) + varint(rows) + varint(first << 1 ^ first >> 63)
    body = struct.pack("<i", len(levels)) + levels + header + block * -(-(rows - 1) // _BLOCK_ROWS)
    checksum = crc32(body)
    told = PageHeader(
        type=_DATA_PAGE,
        uncompressed_page_size=len(body),
        compressed_page_size=len(body),
        crc=checksum - (checksum >> 31 << 32),
        data_page_header=DataPage(
            num_values=rows,
            encoding=_DELTA_BINARY_PACKED,
            definition_level_encoding=_RLE,
            repetition_level_encoding=_RLE,
        ),
    )
    return encoded(told) + body


def _plain(number: int) -> bytes:
    return struct.pack("<q", number)


#: What the lineage of a row takes in memory while it is made.
_ROW_BYTES = 64


@dataclass(frozen=True, slots=True)
class GroupLineage:
    """Where the lineage of a row group's rows comes from."""

    file: DataFile
    first: int  # the position in the file of the row group's first row
    rows: int
    stored: Callable[[], pa.Table]  # reads both columns of these rows: what the file stores, else null


@dataclass(frozen=True, slots=True)
class Columns:
    """The leaf columns of a file by their numbers: the table's, and the lineage that it stores."""

    own: tuple[int, ...]
    agreement: Agreement  # of the table's columns
    lineage: tuple[int, ...] = ()  # in the order of the ids; a file may store one of the two
    lineage_agreement: Agreement = ()

    @classmethod
    def of(cls, source: CopySource, *, with_lineage: bool) -> "Columns":
        """Those of the file; without lineage all are the table's.

        Raises NotCopied where it has one of the two twice, or before a column of the table: row groups name the columns
        that they are sorted by with their numbers.
        """
        if not with_lineage:
            return cls(tuple(range(len(source.leaves))), source.agreement)
        own: list[int] = []
        kept: list[object] = []
        found: dict[int, tuple[int, object]] = {}
        leaf = -1
        for element, said in zip(source.footer.schema[1:], source.agreement, strict=True):
            leaf += not element.num_children
            if element.field_id in LINEAGE_IDS and not element.num_children:
                if element.field_id in found:
                    raise NotCopied(f"two of its columns have the field id {element.field_id}")
                found[element.field_id] = (leaf, said)
                continue
            if found:
                raise NotCopied("the lineage that it stores is not behind its columns")
            kept.append(said)
            if not element.num_children:
                own.append(leaf)
        ordered = [found[field_id] for field_id in LINEAGE_IDS if field_id in found]
        return cls(tuple(own), tuple(kept), tuple(one for one, _ in ordered), tuple(said for _, said in ordered))

    def tell_every_row(self, group: Struct, written: "Columns") -> bool:
        """Whether the row group stores lineage as it is written, and by its statistics for every row."""
        if self.lineage_agreement != written.lineage_agreement:
            return False
        told = [group.columns[leaf].meta_data.statistics for leaf in self.lineage]
        return all(one is not None and one.null_count == 0 for one in told)


def made_lineage(given: GroupLineage, names: Sequence[bytes], page_rows: int) -> tuple[MadeChunk, MadeChunk] | None:
    """Both columns of a row group whose file stores neither, to be written one after the other; None without ids."""
    if given.file.first_row_id is None:
        return None
    ids = Progression(given.file.first_row_id + given.first, 1)
    one = progression_chunk(ids, given.rows, (names[0],), page_rows, 0)
    updates = Progression(given.file.sequence_number, 0)
    return one, progression_chunk(updates, given.rows, (names[1],), page_rows, len(one.content))


def encoded_lineage(
    given: GroupLineage, columns: Columns, kind: pa.Schema, options: WriterOptions, memory_bytes: int
) -> bytes:
    """A Parquet file of one row group, which has both columns of a row group's rows alone, in the schema `kind`.

    Raises NotCopied beyond the memory, and what reading the stored ones raises.
    """
    if given.rows * _ROW_BYTES > memory_bytes:
        raise NotCopied("the lineage of its rows exceeds the memory")
    if columns.lineage:
        (stored,) = given.stored().combine_chunks().to_batches()
    else:
        stored = pa.RecordBatch.from_arrays([pa.nulls(given.rows, pa.int64())] * len(kind), schema=kind)
    rows = pa.Table.from_batches([with_lineage(stored, np.arange(given.rows) + given.first, given.file)])
    encodings = column_encodings(kind)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        kind,
        compression=options.codec,
        compression_level=options.level,
        max_rows_per_page=options.page_rows,
        use_dictionary=[name for name in kind.names if name not in encodings],
        column_encoding=encodings,
        store_schema=False,
        write_page_index=True,
        write_page_checksum=True,
    ) as writer:
        writer.write_table(rows, row_group_size=given.rows)
    return bytes(sink.getvalue().to_pybytes())
