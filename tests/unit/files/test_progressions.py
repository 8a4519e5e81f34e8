"""Columns of numbers in a row, written from their figures: independent readers find numbers, bounds and pages."""

from __future__ import annotations

from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from amoro_core.files.copy_pages import verify_pages
from amoro_core.files.copy_source import open_source, page_index
from amoro_core.files.parquet_format import MAGIC, Bytes, FileMetaData, RowGroup, Struct, decoded, encoded
from amoro_core.files.progressions import Progression, progression_chunk

LARGE = 2**62


def written(path: Path, numbers: Progression, rows: int, page_rows: int = 20_000) -> Struct:
    """A file of that one column; its footer."""
    kind = pa.schema([pa.field("n", pa.int64())])
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, kind, store_schema=False).close()
    empty = sink.getvalue().to_pybytes()
    plain = decoded(FileMetaData, empty[-8 - int.from_bytes(empty[-8:-4], "little") : -8])
    made = progression_chunk(numbers, rows, (b"n",), page_rows, len(MAGIC))
    content = MAGIC + made.content
    index = encoded(made.offset_index)
    vars(made.chunk).update(column_index_offset=len(content), column_index_length=len(made.column_index))
    content += made.column_index
    vars(made.chunk).update(offset_index_offset=len(content), offset_index_length=len(index))
    content += index
    size = len(made.content)
    group = RowGroup(columns=[made.chunk], total_byte_size=size, num_rows=rows, total_compressed_size=size, ordinal=0)
    footer = FileMetaData(
        version=plain.version,
        schema=plain.schema,
        num_rows=rows,
        row_groups=[group],
        created_by=plain.created_by,
        column_orders=plain.column_orders,
    )
    text = encoded(footer)
    path.write_bytes(content + text + len(text).to_bytes(4, "little") + MAGIC)
    return footer


@pytest.mark.parametrize("first", [0, 1, -1, 7_000, LARGE, -LARGE])
@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("rows", [1, 2, 128, 129, 130, 5_000])
def test_readers_find_the_numbers_and_their_bounds(tmp_path: Path, first: int, step: int, rows: int) -> None:
    path = tmp_path / "n.parquet"
    written(path, Progression(first, step), rows, 1_000)
    expected = [first + step * number for number in range(rows)]
    file = pq.ParquetFile(path, page_checksum_verification=True)
    assert file.read().column("n").to_pylist() == expected
    told = file.metadata.row_group(0).column(0).statistics
    assert (told.min, told.max, told.null_count, told.num_values) == (expected[0], expected[-1], 0, rows)
    assert [one for (one,) in duckdb.sql(f"select n from read_parquet('{path}')").fetchall()] == expected
    assert polars.read_parquet(path)["n"].to_list() == expected


@pytest.mark.parametrize("first", [0, -1, LARGE])
def test_pages_are_those_that_both_indexes_and_their_checksums_say(tmp_path: Path, first: int) -> None:
    path = tmp_path / "n.parquet"
    written(path, Progression(first, 1), 4_500, 2_000)
    content = path.read_bytes()
    source = open_source(lambda at, length: content[at : at + length], len(content), content)
    (leaf,), (group,) = source.leaves, source.footer.row_groups
    (chunk,) = group.columns
    index = page_index(source, leaf, chunk, 4_500)
    assert index is not None
    assert [one.first_row_index for one in index[0].page_locations] == [0, 2_000, 4_000]
    verify_pages(Bytes(content), memoryview(content), leaf, chunk.meta_data, len(MAGIC), index[0])
    found = duckdb.sql(f"select count(*) from read_parquet('{path}') where n >= {first + 4_000}").fetchall()
    assert found == [(500,)]


def test_small_pages_are_not_wanted(tmp_path: Path) -> None:
    path = tmp_path / "n.parquet"
    footer = written(path, Progression(5, 1), 2_500, 1)
    assert footer.row_groups[0].columns[0].meta_data.encoding_stats[0].count == 3
    assert pq.read_table(path).column("n").to_pylist() == list(range(5, 2_505))


def test_a_block_takes_five_bytes_and_the_first_row_is_in_none() -> None:
    sizes = [
        len(progression_chunk(Progression(5, 1), rows, (b"n",), 1_000, 0).content) for rows in (129, 130, 257, 258)
    ]
    assert [size - sizes[0] for size in sizes] == [0, 5, 5, 10]
