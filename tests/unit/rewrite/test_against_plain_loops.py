"""The engine against a reader of a few lines that looks at each row and each delete."""

import math
import random
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from amoro_core.model.files import DataFile, DeleteFile

from .builders import col, context, data_file, equality_deletes, position_deletes, rows_of, run, task

SCHEMA = Schema(
    NestedField(1, "n", LongType()),
    NestedField(2, "a", LongType()),
    NestedField(3, "b", StringType()),
    NestedField(4, "c", DoubleType()),
)
COLUMNS = {
    "n": col("n", pa.int64(), 1),
    "a": col("a", pa.int64(), 2),
    "b": col("b", pa.string(), 3),
    "c": col("c", pa.float64(), 4),
}
CHOICES: dict[str, list[Any]] = {
    "a": [None, 0, 1, -1, 2**63 - 1],
    "b": [None, "", "x", "y", "\0"],
    "c": [None, 0.0, -0.0, 1.5, math.nan, math.inf],
}


def exact(value: Any) -> Any:
    """The value so that == is the specification's equality."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("<d", value)
    return value


def key(row: dict[str, Any], names: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(exact(row[name]) for name in names)


@pytest.mark.parametrize("seed", range(25))
def test_random_files_and_deletes_leave_exactly_the_rows_that_live(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    rows = [_random_rows(chance, number) for number in range(chance.randint(1, 4))]
    files = [
        data_file(tmp_path, list(COLUMNS.values()), _columns(content), row_group_size=chance.randint(5, 60))
        for content in rows
    ]
    deletes, gone = [], []
    for _ in range(chance.randint(0, 5)):
        delete, removes = _random_delete(tmp_path, chance, files)
        deletes.append(delete)
        gone.append(removes)
    applicable = {
        number: [index for index in range(len(deletes)) if chance.random() < 0.7] for number in range(len(files))
    }
    outputs = chance.randint(1, 4)
    expected = [
        [
            row["n"]
            for position, row in enumerate(content)
            if not any(gone[index](files[number].path, position, row) for index in applicable[number])
        ]
        for number, content in enumerate(rows)
    ]

    work = task(context(tmp_path, SCHEMA), files, deletes, applicable=applicable, output_count=outputs)
    converting = task(context(tmp_path, SCHEMA), [], deletes, applicable=applicable, converted=files)

    output = run(work)
    assert [row["n"] for row in rows_of(output)] == [n for live in expected for n in live]
    sizes = [file.record_count for file in output.data_files]
    assert max(sizes, default=0) - min(sizes, default=0) <= 1
    made = {delete.referenced_data_file: delete.record_count for delete in run(converting).delete_files}
    removed = {file.path: len(content) - len(live) for file, content, live in zip(files, rows, expected, strict=True)}
    assert made == {path: count for path, count in removed.items() if count}


def _random_rows(chance: random.Random, number: int) -> list[dict[str, Any]]:
    count = chance.randint(1, 150)
    return [
        {"n": number * 1000 + n, **{name: chance.choice(values) for name, values in CHOICES.items()}}
        for n in range(count)
    ]


def _columns(content: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in content] for name in COLUMNS}


def _random_delete(root: Path, chance: random.Random, files: list[DataFile]) -> tuple[DeleteFile, Any]:
    if chance.random() < 0.4:
        entries = [(chance.choice(files).path, chance.randrange(150)) for _ in range(chance.randint(1, 40))]
        return position_deletes(root, entries), lambda path, position, row: (path, position) in entries
    names = tuple(chance.sample(sorted(CHOICES), chance.randint(1, 3)))
    keys = [{name: chance.choice(CHOICES[name]) for name in names} for _ in range(chance.randint(1, 4))]
    wanted = {key(row, names) for row in keys}
    ids = [SCHEMA.find_field(name).field_id for name in names]
    columns = [COLUMNS[name] for name in names]
    delete = equality_deletes(root, ids, columns, {name: [row[name] for row in keys] for name in names})
    return delete, lambda path, position, row: key(row, names) in wanted
