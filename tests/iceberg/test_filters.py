"""Which data files a table's filter selects."""

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BooleanType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from amoro_core.errors import InvalidArgument, TableRefused
from amoro_core.model.files import ColumnMetrics, DataFile, FileFormat, Partition
from amoro_core.model.plans import PartitionKey
from tests.iceberg.scenarios import port

COLUMNS: list[tuple[str, PrimitiveType]] = [
    ("id", LongType()),
    ("name", StringType()),
    ("op_time", TimestampType()),
    ("seen_at", TimestamptzType()),
    ("day", DateType()),
    ("price", DoubleType()),
    ("good", BooleanType()),
    ("two words", IntegerType()),
]
SCHEMA = Schema(*(NestedField(at, name, kind, required=False) for at, (name, kind) in enumerate(COLUMNS, start=1)))
IDS = {name: at for at, (name, _) in enumerate(COLUMNS, start=1)}
KINDS = dict(COLUMNS)


def metadata(*transforms: tuple[str, Transform[Any, Any]]) -> TableMetadata:
    fields = [
        PartitionField(IDS[column], 1000 + at, transform, f"p{at}") for at, (column, transform) in enumerate(transforms)
    ]
    return new_table_metadata(SCHEMA, PartitionSpec(*fields), UNSORTED_SORT_ORDER, "/t")


def file_of(partition: Partition = (), **values: Sequence[Any]) -> DataFile:
    """A file with the metrics of these values of its columns; other columns have none."""
    known = {IDS[name]: (KINDS[name], some) for name, some in values.items()}
    bounds = {
        at: (kind, [value for value in some if value is not None and value == value])
        for at, (kind, some) in known.items()
    }
    metrics = ColumnMetrics(
        value_counts={at: len(some) for at, (_, some) in known.items()},
        null_value_counts={at: sum(value is None for value in some) for at, (_, some) in known.items()},
        nan_value_counts={at: sum(value != value for value in some) for at, (_, some) in known.items()},
        lower_bounds={at: to_bytes(kind, min(some)) for at, (kind, some) in bounds.items() if some},
        upper_bounds={at: to_bytes(kind, max(some)) for at, (kind, some) in bounds.items() if some},
    )
    return DataFile("/t/data/a.parquet", FileFormat.PARQUET, 0, partition, 10, 1000, 1, metrics)


def selects(condition: str, file: DataFile, table: TableMetadata | None = None) -> bool:
    return port(table or metadata()).selects(condition)(file)


def micros(*parts: int) -> int:
    return (datetime(*parts, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def days(*parts: int) -> int:
    return (date(*parts) - date(1970, 1, 1)).days


FILE = file_of(
    id=[5, 7, 9],
    name=["bob", "eve", None],
    op_time=[micros(2026, 1, 1), micros(2026, 1, 31, 12)],
    seen_at=[micros(2026, 1, 1), micros(2026, 1, 31, 12)],
    day=[days(2026, 1, 1), days(2026, 1, 31)],
    price=[1.5, 2.5, math.nan],
    good=[True, True],
)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("id = 5", True),
        ("id = 4", False),
        ("id >= 9", True),
        ("9 < id", False),
        ("id between 9 and 20", True),
        ("NOT id BETWEEN 5 AND 9", False),
        ("id IN (1, 2, 3)", False),
        ("id IN (1, 7)", True),
        ("id IS NULL", False),
        ("name IS NULL", True),
        ("good IS NOT NULL", True),
        ("good = false", False),
        ("name = 'it''s'", False),
        ("name >= 'bob' OR id > 9", True),
        ("(id = 4 OR id = 5) AND price < 2", True),
        ("price > 2.5", False),
        ("op_time > '2026-01-31T12:00:00'", False),
        ("op_time > TIMESTAMP '2026-01-31T12:00:00.000001'", False),
        ("seen_at >= '2026-01-31T00:00:00+00:00'", True),
        ("seen_at > '2026-01-31T13:00:00+01:00'", False),
        ("day = DATE '2026-01-31'", True),
        ("day in (date '2026-02-01', date '2026-02-02')", False),
        ("`id` = 4", False),
        ('`two words` = 1 OR "two words" = 2', True),
        ("true", True),
    ],
)
def test_file_is_selected_when_it_may_hold_a_row_of_the_condition(condition: str, expected: bool) -> None:
    assert selects(condition, FILE) is expected


def bounded(column: str, bound: bytes) -> DataFile:
    bounds = {IDS[column]: bound}
    return DataFile("/t/a", FileFormat.PARQUET, 0, (), 1, 1, 1, ColumnMetrics(lower_bounds=bounds, upper_bounds=bounds))


def test_bounds_that_are_no_values_tell_nothing() -> None:
    assert selects("name = 'x'", bounded("name", b"\xff\xfe"))
    assert selects("id = 4", bounded("id", b"\x01"))


@pytest.mark.parametrize(
    ("transform", "column", "condition", "value", "kind", "expected"),
    [
        (IdentityTransform(), "name", "name = 'eu'", "eu", StringType(), True),
        (IdentityTransform(), "name", "name = 'eu'", "us", StringType(), False),
        (IdentityTransform(), "name", "name IS NULL", "us", StringType(), False),
        (DayTransform(), "op_time", "op_time >= '2026-01-02T05:00:00'", days(2026, 1, 1), DateType(), False),
        (DayTransform(), "op_time", "op_time >= '2026-01-02T05:00:00'", days(2026, 1, 2), DateType(), True),
        (MonthTransform(), "day", "day < '2026-01-15'", 672, IntegerType(), True),
        (MonthTransform(), "day", "day < '2026-01-15'", 673, IntegerType(), False),
        (YearTransform(), "day", "day BETWEEN '2025-06-01' AND '2026-06-01'", 57, IntegerType(), False),
        (TruncateTransform(width=2), "name", "name > 'bob'", "am", StringType(), False),
        (TruncateTransform(width=2), "name", "name > 'bob'", "bo", StringType(), True),
        (TruncateTransform(width=10), "id", "id = 15", 10, LongType(), True),
        (TruncateTransform(width=10), "id", "id = 15", 20, LongType(), False),
    ],
)
def test_partition_tells_what_files_without_metrics_do_not(
    transform: Transform[Any, Any], column: str, condition: str, value: Any, kind: PrimitiveType, expected: bool
) -> None:
    table = metadata((column, transform))
    assert selects(condition, file_of((to_bytes(kind, value),)), table) is expected
    assert selects(condition, file_of((None,)), table) is ("IS NULL" in condition)


@pytest.mark.parametrize(
    "condition",
    [
        "id =",
        "5",
        "SELECT 1",
        "nothing = 1",
        "name = 5",
        "op_time > '2026-01-01T00:00:00+00:00'",
        "seen_at > '2026-01-01T00:00:00'",
        "id NOT BETWEEN 1 AND 2",
        "id = 1; DROP TABLE t",
        "name = 'open",
        "(" * 40 + "id = 1" + ")" * 39,
    ],
)
def test_malformed_filter_refuses_the_table_by_key_and_value_and_such_a_condition_is_wrong_usage(
    condition: str,
) -> None:
    with pytest.raises(TableRefused) as caught:
        port(metadata()).selects(condition)
    assert caught.value.reason == "configuration"
    assert caught.value.message.startswith(f"property self-optimizing.filter has the malformed value {condition!r}: ")
    assert caught.value.hint.startswith("Write a condition on top-level columns with =, <>")
    with pytest.raises(InvalidArgument, match="is malformed"):
        port(DAYS).chooses(condition)


OPERATORS = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
TRANSFORMS: list[Transform[Any, Any]] = [
    VoidTransform(),
    IdentityTransform(),
    BucketTransform(num_buckets=3),
    TruncateTransform(width=4),
]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    rows=st.lists(st.one_of(st.none(), st.integers(-9, 9)), min_size=1, max_size=4),
    transform=st.sampled_from(TRANSFORMS),
    terms=st.lists(st.tuples(st.sampled_from(sorted(OPERATORS)), st.integers(-9, 9)), min_size=1, max_size=3),
    joint=st.sampled_from(["AND", "OR"]),
    negated=st.booleans(),
)
def test_file_that_holds_a_row_of_the_condition_is_always_selected(
    rows: list[int | None], transform: Transform[Any, Any], terms: list[tuple[str, int]], joint: str, negated: bool
) -> None:
    compute = transform.transform(LongType())
    value = compute(rows[0])
    inside = [row for row in rows if compute(row) == value]
    kind = transform.result_type(LongType())
    assert isinstance(kind, PrimitiveType)
    partition = (None if value is None else to_bytes(kind, value),)
    condition = f" {joint} ".join(f"id {operator} {constant}" for operator, constant in terms)

    def holds(row: int | None) -> bool:
        if row is None:
            return False
        found = [OPERATORS[operator](row, constant) for operator, constant in terms]
        return (all(found) if joint == "AND" else any(found)) is not negated

    if any(holds(row) for row in inside):
        table = metadata(("id", transform))
        assert selects(f"NOT ({condition})" if negated else condition, file_of(partition, id=inside), table)
        assert selects(f"NOT ({condition})" if negated else condition, file_of(partition), table)


# Which partitions a condition chooses: whole ones, by partition columns alone


def of(*values: bytes | None, spec_id: int = 0) -> PartitionKey:
    return PartitionKey(spec_id, values)


def number(value: int) -> bytes:
    return value.to_bytes(4, "little", signed=True)


def long(value: int) -> bytes:
    return value.to_bytes(8, "little", signed=True)


DAYS = metadata(("op_time", DayTransform()), ("name", IdentityTransform()))
DAY = [of(number(days(2026, 1, day)), b"bob") for day in (30, 31)] + [of(number(days(2026, 2, 1)), None)]


@pytest.mark.parametrize(
    ("condition", "chosen"),
    [
        ("op_time >= '2026-01-31T00:00:00'", [False, True, True]),
        ("op_time > '2026-01-31T12:00:00'", [False, True, True]),  # whole partitions: the day has such rows
        ("op_time < '2026-01-31T00:00:00'", [True, False, False]),
        ("name = 'bob'", [True, True, False]),
        ("name IS NULL", [False, False, True]),
        ("NOT name = 'bob'", [False, False, True]),
        ("name <> 'bob' OR op_time < TIMESTAMP '2026-01-31T00:00:00'", [True, False, True]),
        ("name IN ('eve', 'bob') AND op_time >= '2026-01-31T00:00:00'", [False, True, False]),
        ("name LIKE 'bo%'", [True, True, False]),
    ],
)  # fmt: skip
def test_partitions_that_can_hold_such_rows_are_chosen_whole(condition: str, chosen: list[bool]) -> None:
    chooses = port(DAYS).chooses(condition)
    assert [chooses(key) for key in DAY] == chosen


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ("id = 5", "id is not a partition column of the table, which is partitioned by day(op_time), identity(name)"),
        ("name = 'bob' AND price > 2", "price is not a partition column of the table"),
        ("name = 'bob' OR id = 4", "id is not a partition column of the table"),
        ("NOT (name = 'bob' AND id = 4)", "id is not a partition column of the table"),
        ("op_time <> '2026-01-31T12:00:00'", "can't decide its condition on op_time"),
    ],
)
def test_a_condition_that_partitions_do_not_tell_is_refused_by_the_column(condition: str, why: str) -> None:
    with pytest.raises(InvalidArgument, match="does not select whole partitions") as refused:
        port(DAYS).chooses(condition)
    assert why in refused.value.message
    assert refused.value.hint == "Name columns that the table is partitioned by: day(op_time), identity(name)."


def test_buckets_tell_what_is_equal_and_no_order() -> None:
    table = metadata(("id", BucketTransform(4)))
    chooses = port(table).chooses("id = 5")
    (home,) = [bucket for bucket in range(4) if chooses(of(number(bucket)))]
    files = {bucket: file_of((number(bucket),)) for bucket in range(4)}
    assert [bucket for bucket, file in files.items() if selects("id IN (5)", file, table)] == [home]
    assert all(selects("id > 5", file, table) for file in files.values())
    with pytest.raises(InvalidArgument, match="can't decide its condition on id"):
        port(table).chooses("id > 5")


def test_a_field_that_was_dropped_and_a_table_without_partitions_tell_nothing() -> None:
    for table in (metadata(), metadata(("name", VoidTransform()))):
        with pytest.raises(
            InvalidArgument, match="name is not a partition column of the table, which is unpartitioned"
        ):
            port(table).chooses("name = 'bob'")
        with pytest.raises(InvalidArgument, match="is not a partition column"):
            port(table).chooses("name IS NULL")


def test_of_several_specs_only_those_that_tell_have_chosen_partitions() -> None:
    table: TableMetadata = metadata(("name", IdentityTransform()))
    later = PartitionSpec(PartitionField(IDS["id"], 1001, IdentityTransform(), "id"), spec_id=1)
    table = table.model_copy(update={"partition_specs": [*table.partition_specs, later], "default_spec_id": 1})
    chooses = port(table).chooses("id = 5")
    assert [chooses(of(b"bob")), chooses(of(long(5), spec_id=1)), chooses(of(long(6), spec_id=1))] == [
        False,
        True,
        False,
    ]
    assert [port(table).chooses("name = 'bob'")(key) for key in (of(b"bob"), of(b"eve"), of(long(5), spec_id=1))] == [
        True,
        False,
        False,
    ]
