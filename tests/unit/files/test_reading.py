"""Batches of Parquet files: as many rows as fit in memory, whatever the rows are."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from amoro_core.files.io import open_access
from amoro_core.files.parquet import BATCH_BYTES, MAX_BATCH_ROWS, open_parquet

ROWS = 20_000


def batches(root: Path, table: pa.Table, **options: object) -> list[pa.RecordBatch]:
    """The file's batches, of which all rows are those of the table."""
    path = f"{root}/in.parquet"
    pq.write_table(table, path, **options)
    access = open_access({}, str(root), read_locations=[str(root)], write_locations=[])
    with open_parquet(access, path, None) as source:
        found = [batch for _, batch in source.batches(table.column_names)]
    assert sum(batch.num_rows for batch in found) == table.num_rows
    return found


def repeated(length: int, different: int = 10) -> pa.Array:
    """Values of one length, each of them many times."""
    values = pa.array([f"{number:0{length}}" for number in range(different)])
    return values.take(pa.array(np.arange(ROWS) % different))


@pytest.mark.parametrize("length", [500, 3000, 6000])  # Parquet writers tell no bounds of values above 4,096 bytes
def test_values_of_a_dictionary_count_as_often_as_they_come_back(tmp_path: Path, length: int) -> None:
    table = pa.table({f"c{number}": repeated(length) for number in range(4)})

    found = batches(tmp_path, table)

    assert Path(tmp_path / "in.parquet").stat().st_size < table.nbytes / 100
    assert max(batch.nbytes for batch in found) < 2 * BATCH_BYTES
    assert found[0].num_rows > 500


def test_a_few_huge_rows_make_a_batch(tmp_path: Path) -> None:
    table = pa.table({"s": ["x" * (BATCH_BYTES // 4) + str(number) for number in range(9)]})

    assert max(batch.num_rows for batch in batches(tmp_path, table, use_dictionary=False)) <= 4


def test_small_rows_make_large_batches(tmp_path: Path) -> None:
    table = pa.table({"n": np.arange(100_000), "s": pa.array(["a", "b"]).take(np.arange(100_000) % 2)})

    assert [batch.num_rows for batch in batches(tmp_path, table)] == [MAX_BATCH_ROWS, 100_000 - MAX_BATCH_ROWS]


def test_a_file_without_row_groups_has_no_batches(tmp_path: Path) -> None:
    assert batches(tmp_path, pa.table({"n": pa.array([], pa.int64())})) == []


@pytest.mark.parametrize("pieces", [1, 2, 3, 7, 40])
def test_every_row_group_is_in_one_piece_of_a_file(tmp_path: Path, pieces: int) -> None:
    path = tmp_path / "pieces.parquet"
    sizes = [50, 1, 1, 400, 7, 50, 50]
    with pq.ParquetWriter(path, pa.schema([("id", pa.int64())])) as written:
        for size in sizes:
            written.write_table(pa.table({"id": range(size)}), row_group_size=size)
    access = open_access({}, str(tmp_path), read_locations=[str(tmp_path)], write_locations=[])
    with open_parquet(access, str(path)) as source:
        found = [source.piece(number, pieces) for number in range(pieces)]
    assert [group for groups, _ in found for group in groups] == list(range(len(sizes)))
    assert [rows for _, rows in found] == [sum(sizes[group] for group in groups) for groups, _ in found]
    assert pieces < 2 or max(rows for _, rows in found) < sum(sizes)
