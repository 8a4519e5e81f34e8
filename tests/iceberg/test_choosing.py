"""Which partitions a condition chooses: whole ones, by partition columns alone."""

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    TruncateTransform,
    VoidTransform,
)

from amoro_core.errors import InvalidArgument
from amoro_core.iceberg.choosing import chooser
from amoro_core.model.plans import PartitionKey
from tests.iceberg.test_filters import IDS, days, metadata


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
    chooses = chooser(DAYS, condition)
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
        chooser(DAYS, condition)
    assert why in refused.value.message
    assert refused.value.hint == "Name columns that the table is partitioned by: day(op_time), identity(name)."


@pytest.mark.parametrize("condition", ["name =", "nothing = 4", "id = 'x'", "5", "name = 1; DROP TABLE t", "(" * 99])
def test_a_malformed_condition_is_wrong_usage(condition: str) -> None:
    with pytest.raises(InvalidArgument, match="is malformed"):
        chooser(DAYS, condition)


def test_buckets_tell_what_is_equal_and_no_order() -> None:
    table = metadata(("id", BucketTransform(4)))
    chooses = chooser(table, "id = 5")
    assert sum(chooses(of(number(bucket))) for bucket in range(4)) == 1
    with pytest.raises(InvalidArgument, match="can't decide its condition on id"):
        chooser(table, "id > 5")


def test_truncated_texts_are_told_by_their_beginning() -> None:
    chooses = chooser(metadata(("name", TruncateTransform(2))), "name >= 'da'")
    assert [chooses(of(text)) for text in (b"bo", b"da", b"ev")] == [False, True, True]


def test_a_field_that_was_dropped_and_a_table_without_partitions_tell_nothing() -> None:
    for table in (metadata(), metadata(("name", VoidTransform()))):
        with pytest.raises(
            InvalidArgument, match="name is not a partition column of the table, which is unpartitioned"
        ):
            chooser(table, "name = 'bob'")
        with pytest.raises(InvalidArgument, match="is not a partition column"):
            chooser(table, "name IS NULL")


def test_of_several_specs_only_those_that_tell_have_chosen_partitions() -> None:
    table: TableMetadata = metadata(("name", IdentityTransform()))
    later = PartitionSpec(PartitionField(IDS["id"], 1001, IdentityTransform(), "id"), spec_id=1)
    table = table.model_copy(update={"partition_specs": [*table.partition_specs, later], "default_spec_id": 1})
    chooses = chooser(table, "id = 5")
    assert [chooses(of(b"bob")), chooses(of(long(5), spec_id=1)), chooses(of(long(6), spec_id=1))] == [
        False,
        True,
        False,
    ]
    assert [chooser(table, "name = 'bob'")(key) for key in (of(b"bob"), of(b"eve"), of(long(5), spec_id=1))] == [
        True,
        False,
        False,
    ]
