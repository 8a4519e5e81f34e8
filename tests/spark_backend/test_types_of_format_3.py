"""A Spark application applies vectors and defaults of old files, and leaves out unknown columns, as the engine does."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, TimestampNanoType, TimestampType, UnknownType

from amoro_core.model.clustering import ClusterInput, Layout, LayoutKey, Strategy
from amoro_core.model.processes import Attempt, TaskId
from amoro_optimizer.backends.spark.driver import SparkBackend
from amoro_optimizer.backends.standalone import InProcess
from tests.spark_backend.groups import another, clustered
from tests.unit.cluster.builders import tables
from tests.unit.rewrite.builders import col, context, data_file, equality_deletes, task
from tests.unit.rewrite.test_vectors import vectors_of
from tests.work import rewriting

SCHEMA = Schema(
    NestedField(1, "u", UnknownType()),
    NestedField(2, "id", LongType()),
    NestedField(3, "at", TimestampNanoType()),
    NestedField(4, "day", TimestampType()),
    NestedField(5, "c", StringType(), initial_default="m"),
)
COLUMNS = [
    col("id", pa.int64(), 2),
    col("at", pa.timestamp("ns"), 3),
    col("day", pa.date32(), 4),
    col("c", pa.string(), 5),
]
A_DAY_US = 86_400_000_000


def test_both_backends_make_the_same_of_types_and_defaults(backend: SparkBackend, tmp_path: Path) -> None:
    rows = {"id": list(range(9)), "at": [number * 7 % 5 for number in range(9)], "day": list(range(9))}
    old = data_file(tmp_path, COLUMNS[:3], rows, version="2.6")
    new = data_file(tmp_path, COLUMNS, {**rows, "id": range(9, 18), "c": ["a", "m", None] * 3}, version="2.6")
    keys = equality_deletes(
        tmp_path, [2, 5], [COLUMNS[0], COLUMNS[3]], {"id": [0, 1, 10, 11], "c": ["m", "a", "m", "m"]}
    )
    (vector,) = vectors_of(tmp_path, (new, [3]))
    work = task(context(tmp_path, SCHEMA), [old, new], [keys, vector], applicable={0: [0], 1: [0, 1]})
    expected = {
        (number, number % 9 * 7 % 5, number % 9 * A_DAY_US, "m" if number < 9 else ("a", "m", None)[number % 3])
        for number in range(18)
        if number not in (0, 10, 12)
    }
    attempt = Attempt(TaskId("01890000-0000-7000-8000-000000000001", 1), 1)
    layout = Layout(Strategy.LINEAR, (LayoutKey(5), LayoutKey(3, descending=True), LayoutKey(2)))
    group = ClusterInput(work, layout, "0123456789ab", seed=7)

    output = rewriting(backend)(work, {}, attempt, lambda done, total: None, lambda: False)
    ordered = tables(clustered(backend, group, another(attempt)))
    alone = tables(clustered(InProcess(), group, another(another(attempt))))

    assert (output.rows_read, output.rows_deleted) == (18, 3)
    found = pa.concat_tables([pq.read_table(file.path) for file in output.data_files])
    assert set(rows_of(found)) == expected
    assert [table.schema.names for table in ordered] == [["id", "at", "day", "c"]]
    assert [rows_of(table) for table in ordered] == [rows_of(table) for table in alone]
    assert set(rows_of(ordered[0])) == expected


def rows_of(table: pa.Table) -> list[tuple[object, ...]]:
    """The rows, times as their numbers."""
    plain = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in table.columns]
    return list(zip(*(column.to_pylist() for column in plain), strict=True))
