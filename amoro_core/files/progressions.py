"""Parquet column chunks of numbers that stay the same or grow by one from row to row, written from three figures.

They are written as differences (DELTA_BINARY_PACKED), which all are the same and take no bits (Parquet's format,
encodings): nothing is done for each row. Not compressed: a block of 128 rows takes five bytes.
"""

import struct

from amoro_core.files.checksums import crc32
from amoro_core.files.parquet_format import (
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
from amoro_core.records import record

_INT64, _UNCOMPRESSED, _DATA_PAGE = 2, 0, 0
_RLE, _DELTA_BINARY_PACKED = 3, 5
_ASCENDING = 1  # the order of the pages' bounds
#: Rows of a block, and its parts, as all writers have them.
_BLOCK_ROWS, _PARTS = 128, 4
#: A page has at least so many rows, whatever the table says: smaller ones only cost.
_LEAST_PAGE_ROWS = 1000


@record
class Progression:
    """The numbers of an optional column of 64 bits: the first one, and by how much each is above the one before."""

    first: int
    step: int  # 0 or 1


@record
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
