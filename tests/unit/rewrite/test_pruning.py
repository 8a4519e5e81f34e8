"""Row groups that are not asked for deleted keys, because their statistics say that they have none."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, DoubleType, LongType, NestedField, StringType, TimestampType

from amoro_core.files.parquet import open_parquet
from amoro_core.files.projection import bind
from amoro_core.model.files import NO_METRICS, ColumnMetrics
from amoro_optimizer.rewrite.pruning import groups_within

from .builders import access_to, col, context, data_file, equality_deletes, rows_of, run, task

SCHEMA = Schema(
    NestedField(1, "n", LongType()),
    NestedField(2, "s", StringType()),
    NestedField(3, "d", DateType()),
    NestedField(4, "t", TimestampType()),
    NestedField(5, "f", DoubleType()),
)
COLUMNS = [
    col("n", pa.int32(), 1),
    col("s", pa.string(), 2),
    col("d", pa.date32(), 3),
    col("t", pa.timestamp("ms"), 4),
    col("f", pa.float64(), 5),
]
ROWS: dict[str, list[Any]] = {
    "n": [1, 2, 5, 6, None, None, None, 9],
    "s": list("aabbccdd"),
    "d": [0, 0, 10, 10, 20, 20, 30, 30],
    "t": [0, 0, 10, 10, 20, 20, 30, 30],
    "f": [0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0],
}


def metrics(**bounds: tuple[int, int]) -> ColumnMetrics:
    """A manifest's bounds of whole numbers (4 bytes each) by the columns' names."""
    ids = {field.name: field.field_id for field in SCHEMA.fields}
    lower, upper = (
        {ids[name]: both[at].to_bytes(4, "little", signed=True) for name, both in bounds.items()} for at in (0, 1)
    )
    return ColumnMetrics(lower_bounds=lower, upper_bounds=upper)


LISTED = metrics(n=(1, 9), d=(0, 30), t=(0, 30))


def chosen(
    root: Path, ranges: dict[int, tuple[int, int] | None], listed: ColumnMetrics = LISTED, **options: Any
) -> tuple[int, ...] | None:
    """The groups (of two rows each) that are to be read."""
    file = data_file(root, COLUMNS, ROWS, row_group_size=2, **options)
    with open_parquet(access_to(root), file.path) as source:
        return groups_within(source, bind(SCHEMA, source.schema, None, {}, file.path), ranges, listed)


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ({1: (2, 4)}, (0,)),
        ({1: (3, 4)}, ()),
        ({1: (9, 100)}, (3,)),
        ({1: (-5, 100)}, (0, 1, 3)),  # the third has nothing but nulls
        ({1: None}, None),
        ({3: (10, 20)}, (1, 2)),
        ({1: (0, 9), 3: (30, 40)}, (3,)),
        ({2: (0, 1)}, None),  # strings
        ({4: (100, 200)}, None),  # milliseconds are no microseconds
        ({5: (100, 200)}, None),  # the bits of a float have another order
        ({9: (0, 1)}, None),  # the file lacks the column
        ({}, None),
    ],
)
def test_only_groups_within_the_ranges_are_read(
    tmp_path: Path, ranges: dict[int, tuple[int, int] | None], expected: tuple[int, ...] | None
) -> None:
    assert chosen(tmp_path, ranges) == expected


def test_groups_without_statistics_are_all_read(tmp_path: Path) -> None:
    assert chosen(tmp_path, {1: (100, 200)}, write_statistics=False) is None


@pytest.mark.parametrize("listed", [NO_METRICS, metrics(n=(0, 9)), metrics(n=(1, 10)), metrics(d=(0, 30))])
def test_statistics_that_the_manifest_does_not_confirm_leave_no_group_out(
    tmp_path: Path, listed: ColumnMetrics
) -> None:
    assert chosen(tmp_path, {1: (100, 200)}) == ()
    assert chosen(tmp_path, {1: (100, 200)}, listed) is None


def test_a_row_does_not_come_back_by_a_bit_that_turned_in_the_footer(tmp_path: Path) -> None:
    file = data_file(tmp_path, [COLUMNS[0]], {"n": [0, 1, 2, 3]}, write_statistics=True, use_dictionary=False)
    content = bytearray(Path(file.path).read_bytes())
    # The footer begins where the pages end; the least value stands in it as four bytes of zeros, the last time.
    at = content.rindex(b"\x03\x00\x00\x00\x18\x04\x00\x00\x00\x00") + 6
    content[at + 3] ^= 0x40
    Path(file.path).write_bytes(content)
    assert pq.read_metadata(file.path).row_group(0).column(0).statistics.min_raw == 0x40 << 24
    delete = equality_deletes(tmp_path, [1], [COLUMNS[0]], {"n": [1]})

    listed = replace(file, metrics=metrics(n=(0, 3)))
    output = run(task(context(tmp_path, Schema(SCHEMA.fields[0])), [listed], [delete]))

    assert [row["n"] for row in rows_of(output)] == [0, 2, 3]


def test_rows_of_groups_in_the_middle_go_and_no_others(tmp_path: Path) -> None:
    columns = [COLUMNS[0]]
    file = data_file(tmp_path, columns, {"n": list(range(100))}, row_group_size=10)
    file = replace(file, metrics=metrics(n=(0, 99)))
    delete = equality_deletes(tmp_path, [1], columns, {"n": [33, 52]})

    output = run(task(context(tmp_path, Schema(SCHEMA.fields[0])), [file], [delete]))

    assert [row["n"] for row in rows_of(output)] == [n for n in range(100) if n not in (33, 52)]


def test_a_column_whose_name_looks_like_a_path_is_not_taken_for_another(tmp_path: Path) -> None:
    inner = pa.struct([col("x", pa.int64(), 3)])
    columns = [col("s", inner, 2), col("s.x", pa.int64(), 1)]
    rows = pa.Table.from_arrays([pa.array([{"x": 1}], inner), pa.array([50])], schema=pa.schema(columns))
    file = data_file(tmp_path, columns, rows)
    assert pq.read_metadata(file.path).num_columns == 2
    delete = equality_deletes(tmp_path, [1], [col("k", pa.int64(), 1)], {"k": [50]})

    output = run(task(context(tmp_path, Schema(NestedField(1, "k", LongType()))), [file], [delete]))

    assert rows_of(output) == []
