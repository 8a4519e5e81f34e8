"""Position deletes while rewriting, and files whose deletes become positions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from amoro_core.errors import UnreadableFile
from amoro_core.model.files import DELETE_PATH_FIELD_ID, DELETE_POS_FIELD_ID, DeleteKind

from .builders import (
    NS,
    NS_COLUMNS,
    SEQUENCE,
    col,
    context,
    data_file,
    equality_deletes,
    numbered,
    numbers_of,
    position_deletes,
    renamed,
    run,
    task,
)


@pytest.mark.parametrize("spelling", ["file:{}", "file://{}", "{}"])
def test_paths_are_the_same_however_the_scheme_is_written(tmp_path: Path, spelling: str) -> None:
    file = numbered(tmp_path, 3)
    delete = position_deletes(tmp_path, [(spelling.format(file.path), 1)])

    output = run(task(context(tmp_path, NS), [renamed(file, f"file:{file.path}")], [delete]))

    assert numbers_of(output) == [0, 2]


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ((None, 1), "without a path or a position"),
        (("p", None), "without a path or a position"),
        (("p", -1), "negative position"),
    ],
)
def test_an_entry_that_can_be_none_makes_the_delete_file_unreadable_and_one_behind_the_end_deletes_nothing(
    tmp_path: Path, entry: tuple[str | None, int | None], why: str
) -> None:
    file = numbered(tmp_path, 3)
    behind = position_deletes(tmp_path, [(file.path, 3), (file.path, 2**40)])
    assert run(task(context(tmp_path, NS), [file], [behind])).rows_deleted == 0
    with pytest.raises(UnreadableFile, match=why):
        run(task(context(tmp_path, NS), [file], [position_deletes(tmp_path, [(file.path, 1), entry])]))


def test_a_converted_file_gets_one_delete_file_of_all_its_deleted_positions(tmp_path: Path) -> None:
    file = numbered(tmp_path, 100, row_group_size=40)
    old = position_deletes(tmp_path, [(file.path, 99), (file.path, 3)])
    by_value = equality_deletes(tmp_path, [2], [NS_COLUMNS[1]], {"s": ["50", "3", "no such"]})

    output = run(task(context(tmp_path, NS), [], [old, by_value], converted=[file]))

    (delete,) = output.delete_files
    assert pq.read_table(delete.path).to_pydict() == {"file_path": [file.path] * 3, "pos": [3, 50, 99]}
    assert (delete.kind, delete.record_count, delete.referenced_data_file) == (DeleteKind.POSITION, 3, file.path)
    assert (delete.sequence_number, delete.spec_id, delete.partition) == (SEQUENCE, 0, ())
    assert delete.path_bounds == (file.path, file.path)
    assert delete.metrics.lower_bounds[DELETE_PATH_FIELD_ID] == file.path.encode()
    assert delete.metrics.upper_bounds[DELETE_PATH_FIELD_ID] == file.path.encode()
    assert delete.metrics.lower_bounds[DELETE_POS_FIELD_ID] == (3).to_bytes(8, "little")
    assert delete.metrics.upper_bounds[DELETE_POS_FIELD_ID] == (99).to_bytes(8, "little")
    assert delete.size_bytes == Path(delete.path).stat().st_size
    assert delete.path.endswith("-deletes.parquet")
    assert (output.positions_written, output.rows_read, output.data_files) == (3, 0, ())
    schema = pq.read_schema(delete.path)
    assert [(f.name, f.nullable, f.metadata) for f in schema] == [
        ("file_path", False, {b"PARQUET:field_id": b"2147483546"}),
        ("pos", False, {b"PARQUET:field_id": b"2147483545"}),
    ]


def test_a_converted_file_without_deleted_rows_is_marked_where_its_deletes_stay(tmp_path: Path) -> None:
    file = numbered(tmp_path, 3)
    by_value = equality_deletes(tmp_path, [1], [NS_COLUMNS[0]], {"n": [77]})

    work = task(context(tmp_path, NS), [], [by_value], converted=[file])
    output = run(replace(work, marks_converted=True))

    (mark,) = output.delete_files
    assert (mark.record_count, mark.referenced_data_file, output.positions_written) == (0, file.path, 0)
    assert (mark.sequence_number, mark.named_file, mark.is_converted) == (SEQUENCE, file.path, True)
    assert pq.read_table(mark.path).to_pydict() == {"file_path": [], "pos": []}
    assert numbers_of(run(task(context(tmp_path, NS), [file], [mark]))) == [0, 1, 2]


def test_the_row_column_and_other_columns_of_a_delete_file_are_ignored(tmp_path: Path) -> None:
    file = numbered(tmp_path, 3)
    columns = [
        col("row", pa.struct([col("n", pa.int64(), 1)]), 2147483544),
        col("where", pa.string(), DELETE_POS_FIELD_ID - 10),
        col("position", pa.int64(), DELETE_POS_FIELD_ID),
        col("of", pa.string(), DELETE_PATH_FIELD_ID),
    ]
    rows = {"row": [{"n": 1}], "where": ["x"], "position": [1], "of": [file.path]}
    empty = position_deletes(tmp_path, [])
    written = data_file(tmp_path, columns, rows)
    delete = type(empty)(written.path, DeleteKind.POSITION, written.file_format, 0, (), 1, written.size_bytes, 2)

    assert numbers_of(run(task(context(tmp_path, NS), [file], [delete]))) == [0, 2]
