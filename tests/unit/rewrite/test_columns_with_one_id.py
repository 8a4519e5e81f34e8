"""Files with two columns of one id: readers disagree about which one counts, so nothing is written."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, NestedField, StructType

from amoro_core.errors import TableRefused
from amoro_core.model.files import DELETE_PATH_FIELD_ID, DELETE_POS_FIELD_ID, DataFile, DeleteFile, DeleteKind
from amoro_core.model.rewrite import TableContext
from tests.unit.rewrite.builders import (
    col,
    context,
    data_file,
    equality_deletes,
    rows_of,
    run,
    task,
    written_under,
)

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "inner", StructType(NestedField(3, "key", LongType(), required=False)), required=False),
    NestedField(4, "tags", ListType(5, LongType(), element_required=False), required=False),
)
ID = col("id", pa.int64(), 1)
ROWS = [{"id": 1, "inner": None, "tags": None}]


def refused(root: Path, file: DataFile, *deletes: DeleteFile, table: TableContext | None = None) -> str:
    with pytest.raises(TableRefused) as error:
        run(task(table or context(root, SCHEMA), [file], deletes))
    assert error.value.reason == "field-ids"
    assert written_under(root) == []
    return error.value.message


def test_two_columns_of_one_id_are_refused_by_the_files_name(tmp_path: Path) -> None:
    file = data_file(tmp_path, [ID, col("other", pa.int64(), 1)], {"id": [1], "other": [2]})
    assert refused(tmp_path, file) == f"{file.path} has two columns with the field id 1 (id)"


@pytest.mark.parametrize(
    "column",
    [
        col("inner", pa.struct([col("key", pa.int64(), 3), col("again", pa.int64(), 3)]), 2),
        col("inner", pa.struct([col("key", pa.int64(), 1)]), 2),
        col("tags", pa.list_(col("element", pa.int64(), 1)), 4),
    ],
)
def test_columns_within_structs_and_lists_count_too(tmp_path: Path, column: pa.Field) -> None:
    table = pa.table([pa.array([1]), pa.nulls(1, column.type)], schema=pa.schema([ID, column]))
    assert "two columns with the field id" in refused(tmp_path, data_file(tmp_path, [], table))


def test_an_id_that_the_table_does_not_have_may_stand_twice(tmp_path: Path) -> None:
    columns = [ID, col("a", pa.int64(), 9), col("b", pa.int64(), 9)]
    file = data_file(tmp_path, columns, {"id": [1], "a": [2], "b": [3]})
    assert rows_of(run(task(context(tmp_path, SCHEMA), [file]))) == ROWS


def test_two_columns_that_a_name_mapping_gives_one_id_are_refused(tmp_path: Path) -> None:
    table = context(tmp_path, SCHEMA, name_mapping='[{"field-id": 1, "names": ["id", "old"]}]')
    columns = [pa.field("id", pa.int64()), pa.field("old", pa.int64())]
    file = data_file(tmp_path, columns, {"id": [1], "old": [2]})
    assert "two columns with the field id 1" in refused(tmp_path, file, table=table)
    one = data_file(tmp_path, columns[1:], {"old": [1]})
    assert rows_of(run(task(table, [one]))) == ROWS


def test_an_equality_delete_with_two_columns_of_its_key_is_refused(tmp_path: Path) -> None:
    file = data_file(tmp_path, [ID], {"id": [1]})
    delete = equality_deletes(tmp_path, [1], [ID, col("other", pa.int64(), 1)], {"id": [5], "other": [1]})
    assert delete.path in refused(tmp_path, file, delete)


@pytest.mark.parametrize(
    "columns",
    [
        [("file_path", DELETE_PATH_FIELD_ID), ("pos", DELETE_POS_FIELD_ID), ("more", DELETE_POS_FIELD_ID)],
        [("file_path", DELETE_PATH_FIELD_ID), ("pos", DELETE_POS_FIELD_ID), ("pos", 7)],
        [("file_path", None), ("pos", None), ("pos", None)],
    ],
)
def test_a_position_delete_with_two_columns_for_positions_is_refused(
    tmp_path: Path, columns: list[tuple[str, int | None]]
) -> None:
    file = data_file(tmp_path, [ID], {"id": [1, 2]})
    kinds = [pa.string(), pa.int64(), pa.int64()]
    fields = [
        pa.field(name, kind) if field_id is None else col(name, kind, field_id)
        for (name, field_id), kind in zip(columns, kinds, strict=True)
    ]
    table = pa.table([pa.array([file.path]), pa.array([0]), pa.array([1])], schema=pa.schema(fields))
    made = data_file(tmp_path, [], table)
    delete = DeleteFile(made.path, DeleteKind.POSITION, made.file_format, 0, (), 1, made.size_bytes, 2)
    assert refused(tmp_path, file, delete) == (
        f"{made.path} has two columns for the path or the position of its deletes"
    )
