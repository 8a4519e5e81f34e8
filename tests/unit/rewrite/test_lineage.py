"""The lineage of rewritten rows: each keeps its id and the number of its last update, whatever file it is in."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from amoro_core.errors import TableRefused
from amoro_core.model.files import LAST_UPDATED_FIELD_ID, LINEAGE_IDS, ROW_ID_FIELD_ID, DataFile, DeleteFile
from amoro_core.model.task_payload import RewriteOutput, TableContext
from tests.tiers import seeds

from .builders import (
    EVERYTHING,
    NS,
    NS_COLUMNS,
    avro_file,
    col,
    context,
    data_file,
    groups_of,
    orc_col,
    orc_file,
    position_deletes,
    run,
    task,
)

ROW_ID = col("_row_id", pa.int64(), ROW_ID_FIELD_ID)
UPDATED = col("_last_updated_sequence_number", pa.int64(), LAST_UPDATED_FIELD_ID)
#: Id, last update and value of a row.
Row = tuple[int | None, int | None, int]


def table(root: Path, schema: Schema = NS, **more: Any) -> TableContext:
    return replace(context(root, schema, **more), format_version=3)


def file(
    root: Path,
    numbers: list[int],
    first_row_id: int | None,
    sequence_number: int = 3,
    stored: dict[str, list[int | None]] | None = None,
    **options: Any,
) -> DataFile:
    """A file of these numbers, which stores the given lineage."""
    rows: dict[str, Any] = {"n": numbers, "s": [str(n) for n in numbers], **(stored or {})}
    columns = [*NS_COLUMNS, *(one for one in (ROW_ID, UPDATED) if one.name in rows)]
    made = data_file(root, columns, rows, **options)
    return replace(made, first_row_id=first_row_id, sequence_number=sequence_number)


def by_id(path: str) -> dict[int, list[Any]]:
    """The columns of a file by field id."""
    read = pq.read_table(path)
    ids = [int(field.metadata[b"PARQUET:field_id"]) for field in pq.ParquetFile(path).schema_arrow]
    return {field_id: column.to_pylist() for field_id, column in zip(ids, read.columns, strict=True)}


def rows_of(output: RewriteOutput) -> list[Row]:
    """The rows of the outputs in their order; each file stores lineage in its last two columns."""
    found: list[Row] = []
    for made in output.data_files:
        columns = by_id(made.path)
        assert list(columns)[-2:] == list(LINEAGE_IDS)
        found += zip(columns[ROW_ID_FIELD_ID], columns[LAST_UPDATED_FIELD_ID], columns[1], strict=True)
    return found


def test_lineage_is_no_column_of_the_manifest_nor_of_earlier_formats(tmp_path: Path) -> None:
    properties = {"write.metadata.metrics.default": "full"}
    (made,) = run(task(table(tmp_path, properties=properties), [file(tmp_path, [1, 2], 100)])).data_files
    told = made.metrics
    kinds = (told.column_sizes, told.value_counts, told.null_value_counts, told.lower_bounds, told.upper_bounds)
    assert [set(one) for one in kinds] == [{1, 2}] * 5
    assert made.first_row_id is None
    for version in (1, 2):
        output = run(task(replace(table(tmp_path), format_version=version), [file(tmp_path, [1], 100)]))
        assert [list(by_id(made.path)) for made in output.data_files] == [[1, 2]]


def test_ids_are_stored_as_differences(tmp_path: Path) -> None:
    count = 30_000
    (made,) = run(task(table(tmp_path), [file(tmp_path, list(range(count)), 100)])).data_files
    group = pq.ParquetFile(made.path).metadata.row_group(0)
    chunks = {group.column(place).path_in_schema: group.column(place) for place in range(group.num_columns)}
    assert set(chunks["_row_id"].encodings) == {"DELTA_BINARY_PACKED", "RLE"}
    assert chunks["_row_id"].total_compressed_size < count / 20
    assert chunks["_last_updated_sequence_number"].total_compressed_size < 500
    assert "RLE_DICTIONARY" in chunks["_last_updated_sequence_number"].encodings


def test_a_column_of_the_table_with_the_same_name_is_another_one(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "n", LongType()), NestedField(2, "_row_id", StringType()))
    rows = {"n": [1, 2], "_row_id": ["a", None]}
    own = data_file(tmp_path, [NS_COLUMNS[0], col("_row_id", pa.string(), 2)], rows)
    output = run(task(table(tmp_path, schema), [replace(own, first_row_id=10, sequence_number=3)]))
    (made,) = output.data_files
    assert by_id(made.path) == {1: [1, 2], 2: ["a", None], ROW_ID_FIELD_ID: [10, 11], LAST_UPDATED_FIELD_ID: [3, 3]}
    again = run(task(table(tmp_path, schema), [replace(made, first_row_id=90, sequence_number=8)]))
    assert by_id(again.data_files[0].path) == by_id(made.path)


def test_avro_and_orc_files_have_lineage_stored_or_by_position(tmp_path: Path) -> None:
    rows = [{"n": n, "_row_id": None if n % 2 else n * 7} for n in range(4)]
    ids = {"n": 1, "_row_id": ROW_ID_FIELD_ID}
    fields = [{"name": name, "type": ["null", "long"], "field-id": number} for name, number in ids.items()]
    avro = avro_file(tmp_path, fields, rows)
    orc = orc_file(
        tmp_path,
        pa.Table.from_pylist(rows, pa.schema([orc_col(name, pa.int64(), number) for name, number in ids.items()])),
    )
    files = [replace(one, first_row_id=first, sequence_number=3) for one, first in ((avro, 50), (orc, 90))]
    deletes = [position_deletes(tmp_path, [(one.path, 1)]) for one in files]
    output = run(task(table(tmp_path), files, deletes))
    assert rows_of(output) == [(0, 3, 0), (14, 3, 2), (53, 3, 3), (0, 3, 0), (14, 3, 2), (93, 3, 3)]


WHOLE = {"_row_id": [7, 8, 9, 10], "_last_updated_sequence_number": [2, 2, 1, 1]}


def copying(root: Path, files: list[DataFile], deletes: Sequence[DeleteFile] = (), **more: Any) -> RewriteOutput:
    return run(replace(task(table(root), files, deletes), copy=EVERYTHING), **more)


def test_lineage_stored_for_every_row_is_copied_byte_for_byte(tmp_path: Path) -> None:
    one = file(tmp_path, [1, 2, 3, 4], 100, 5, WHOLE, row_group_size=2, compression="gzip")
    output = copying(tmp_path, [one])
    assert rows_of(output) == [(7, 2, 1), (8, 2, 2), (9, 1, 3), (10, 1, 4)]
    assert (groups_of(output), output.files_copied) == ([2, 2], 1)
    chunks = [
        [pq.ParquetFile(path).metadata.row_group(number).column(place).compression for place in range(4)]
        for path in (output.data_files[0].path,)
        for number in range(2)
    ]
    assert chunks == [["GZIP"] * 4] * 2


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ({**WHOLE, "_row_id": [7, 8, 9, None]}, [(7, 2), (8, 2), (9, 1), (103, 1)]),
        ({**WHOLE, "_last_updated_sequence_number": [None, 2, 1, None]}, [(7, 5), (8, 2), (9, 1), (10, 5)]),
        ({"_row_id": [7, 8, 9, 10]}, [(7, 5), (8, 5), (9, 5), (10, 5)]),
        ({"_last_updated_sequence_number": [2, 2, 1, None]}, [(100, 2), (101, 2), (102, 1), (103, 5)]),
        ({}, [(100, 5), (101, 5), (102, 5), (103, 5)]),
    ],
    ids=["id", "update", "ids alone", "updates alone", "nothing"],
)
def test_a_file_that_does_not_store_the_lineage_of_every_row_is_decoded(
    tmp_path: Path, stored: dict[str, list[int | None]], expected: list[tuple[int, int]]
) -> None:
    whole = file(tmp_path, [5, 6, 7, 8], 300, 4, WHOLE)
    output = copying(tmp_path, [whole, file(tmp_path, [1, 2, 3, 4], 100, 5, stored)])
    copied = zip(WHOLE["_row_id"], WHOLE["_last_updated_sequence_number"], (5, 6, 7, 8), strict=True)
    assert rows_of(output) == [*copied, *((*lineage, n) for n, lineage in enumerate(expected, 1))]
    assert (groups_of(output), output.files_copied) == ([4, 4], 1)
    assert output.encoded_because == "it does not store the lineage of every row"


def test_without_counted_nulls_stored_lineage_is_not_believed_to_be_whole(tmp_path: Path) -> None:
    stored = {"_row_id": [7, None], "_last_updated_sequence_number": [None, 1]}
    output = copying(tmp_path, [file(tmp_path, [1, 2], 100, 5, stored, write_statistics=False)])
    assert (rows_of(output), output.files_copied) == ([(7, 5, 1), (101, 1, 2)], 0)


@pytest.mark.parametrize("order", ["before", "between"])
def test_lineage_before_columns_of_the_table_is_decoded(tmp_path: Path, order: str) -> None:
    columns = [ROW_ID, *NS_COLUMNS] if order == "before" else [NS_COLUMNS[0], ROW_ID, NS_COLUMNS[1]]
    rows = {"n": [1, 2], "s": ["a", "b"], "_row_id": [5, 6]}
    one = data_file(tmp_path, columns, {column.name: rows[column.name] for column in columns})
    output = copying(tmp_path, [replace(one, first_row_id=90, sequence_number=3)])
    assert (rows_of(output), output.files_copied) == ([(5, 3, 1), (6, 3, 2)], 0)


def test_a_file_with_two_columns_of_row_ids_is_refused(tmp_path: Path) -> None:
    """Also where the last one could be copied with the last updates."""
    columns = [*NS_COLUMNS, ROW_ID.with_name("first"), ROW_ID, UPDATED]
    rows = {"n": [1], "s": ["a"], "first": [5], "_row_id": [6], UPDATED.name: [1]}
    one = data_file(tmp_path, columns, rows)
    with pytest.raises(TableRefused, match=f"two columns with the field id {ROW_ID_FIELD_ID}"):
        copying(tmp_path, [replace(one, first_row_id=90)])


@pytest.mark.parametrize("seed", seeds(8, 15))
def test_each_row_of_random_files_keeps_its_lineage(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    files, deletes, expected = [], [], []
    for number in range(chance.randint(1, 4)):
        one, rows = _random_file(tmp_path, chance, number)
        gone = {position for position in range(len(rows)) if chance.random() < chance.choice([0, 0.2])}
        if gone:
            deletes.append(position_deletes(tmp_path, [(one.path, position) for position in sorted(gone)]))
        files.append(one)
        expected += [row for position, row in enumerate(rows) if position not in gone]
    work = task(table(tmp_path), files, deletes, output_count=chance.randint(1, 3))
    assert rows_of(run(work)) == expected
    # Copied row groups are kept where they come, so that outputs differ in their cuts alone.
    assert rows_of(run(replace(work, copy=EVERYTHING))) == expected


def _random_file(root: Path, chance: random.Random, number: int) -> tuple[DataFile, list[Row]]:
    """A file, and its rows as the specification has them."""
    count = chance.randint(1, 200)
    first = None if chance.random() < 0.2 else chance.randrange(2**40)
    sequence = chance.randint(1, 7)
    values = [number * 1000 + place for place in range(count)]
    stored: dict[str, list[int | None]] = {}
    for name, high in ((ROW_ID.name, 2**50), (UPDATED.name, 7)):
        share = chance.choice([None, 0.0, 0.5, 1.0])
        if share is not None:
            stored[name] = [chance.randrange(high) if chance.random() < share else None for _ in range(count)]
    nothing: list[int | None] = [None] * count
    rows: list[Row] = []
    for place, (row_id, updated, value) in enumerate(
        zip(stored.get(ROW_ID.name, nothing), stored.get(UPDATED.name, nothing), values, strict=True)
    ):
        if row_id is None and first is not None:
            row_id = first + place
        rows.append((row_id, sequence if updated is None else updated, value))
    return file(root, values, first, sequence, stored, row_group_size=chance.randint(3, 300)), rows
