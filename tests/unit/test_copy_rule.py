"""Which tasks may copy row groups, and what they carry for it."""

from dataclasses import replace
from typing import Any

import pytest

from amoro_core.actions.copying import copy_rule, told_copying
from amoro_core.actions.rewrite_planning import rewrite_work
from amoro_core.model.config import parse_config
from amoro_core.model.files import NO_METRICS, ColumnMetrics, DataFile, FileFormat, ScannedFile
from amoro_core.model.plans import PartitionKey, TaskPlan
from amoro_core.model.rewrite import CopyRule, TableContext
from amoro_core.model.tables import OptimizingType
from amoro_core.protocol import codec

MIB = 1 << 20
MINOR, MAJOR, FULL = OptimizingType
ENABLED = "self-optimizing.rewrite.use-parquet-row-group-merge.enabled"
LEAST = "self-optimizing.rewrite.use-parquet-row-group-merge.min-avg-row-group-size-bytes"
BOUNDS = ColumnMetrics(
    column_sizes={1: 9},
    value_counts={1: 9},
    nan_value_counts={2: 0},
    lower_bounds={1: b"12345678", 3: b"x" * 64, 4: b"x" * 65},
    upper_bounds={1: b"22345678"},
)


def file(size: int = 128 * MIB, groups: int = 1, records: int = 1000, **more: Any) -> DataFile:
    offsets = tuple(4 + number for number in range(groups))
    given: dict[str, Any] = {"file_format": FileFormat.PARQUET, "metrics": BOUNDS, "split_offsets": offsets, **more}
    return DataFile("f", spec_id=0, partition=(), record_count=records, size_bytes=size, sequence_number=1, **given)


def plan(*files: DataFile, outputs: int = 1) -> TaskPlan:
    return TaskPlan(PartitionKey(0, ()), tuple(ScannedFile(one) for one in files), (), outputs, 0)


def context(**properties: str) -> TableContext:
    return TableContext(
        "c", "db.t", "u", 2, "s3://b", "s3://b/data", "{}", "{}", None, (), None, properties, ("s3://b",)
    )


def rule(
    task: TaskPlan, properties: dict[str, str] | None = None, kind: OptimizingType = MAJOR, **written: str
) -> CopyRule | None:
    return copy_rule(task, written, parse_config(properties or {}), kind)


def test_a_task_with_large_row_groups_may_copy() -> None:
    assert rule(plan(file(8 * MIB))) == CopyRule(8 * MIB, 1024, True)
    assert rule(plan(file(groups=16))) == CopyRule(8 * MIB, 1024, True)


def test_row_groups_of_a_copied_file_are_small_however_few_splits_its_manifest_tells() -> None:
    copied = replace(file(64 * MIB, groups=2), path="f-copied.parquet")
    assert rule(plan(copied)) is None
    assert rule(plan(file(64 * MIB, groups=2))) == CopyRule(8 * MIB, 1024, True)
    assert rule(plan(copied), kind=MINOR) == CopyRule(0, 1024, True)
    assert rule(plan(copied), {LEAST: "0"}) == CopyRule(0, 1024, True)
    many = replace(file(64 * MIB, groups=1025), path="f-copied.parquet")
    assert rule(plan(many), kind=MINOR) is None


def test_one_with_small_row_groups_alone_may_not() -> None:
    small = file(8 * MIB - 1), file(groups=17)
    assert rule(plan(*small)) is None
    assert rule(plan(*small, file())) is not None
    assert rule(plan(*small), {LEAST: "1"}) == CopyRule(1, 1024, True)
    assert rule(plan(*small), {LEAST: "0"}) == CopyRule(0, 1024, True)


def test_row_groups_with_half_the_rows_that_are_written_are_large() -> None:
    limit = {"write.parquet.row-group-limit": "2000"}
    assert rule(plan(file(MIB, records=1000)), **limit) is not None
    assert rule(plan(file(MIB, records=999)), **limit) is None


def test_a_file_that_tells_no_row_groups_may_have_large_ones() -> None:
    assert rule(plan(file(1, groups=0))) is not None


def test_other_formats_are_never_copied() -> None:
    assert rule(plan(file(file_format=FileFormat.ORC))) is None


def test_copying_can_be_switched_off() -> None:
    assert rule(plan(file()), {ENABLED: "false"}) is None


def test_minor_copies_small_row_groups_and_marks_what_it_writes() -> None:
    small = file(MIB), file(8 * MIB, groups=2)
    assert rule(plan(*small), kind=MINOR) == CopyRule(0, 1024, True)
    assert rule(plan(*small), kind=FULL) is None
    # Files that tell no split offsets count as one row group each.
    assert rule(plan(file(MIB, groups=0)), kind=MINOR) == CopyRule(0, 1024, True)


def test_minor_marks_nothing_whose_row_groups_are_large_on_average() -> None:
    assert rule(plan(file(MIB), file(15 * MIB)), kind=MINOR) == CopyRule(8 * MIB, 1024, True)
    assert rule(plan(file(MIB), file(15 * MIB - 1)), kind=MINOR) == CopyRule(0, 1024, True)


@pytest.mark.parametrize(
    ("enabled", "least", "copies"), [("true", "8388608", None), ("true", "0", 0), ("false", "", None)]
)
def test_the_property_speaks_for_minor_too(enabled: str, least: str, copies: int | None) -> None:
    found = rule(plan(file(MIB)), {ENABLED: enabled, **({LEAST: least} if least else {})}, MINOR)
    assert (found and found.min_row_group_bytes) == copies


@pytest.mark.parametrize("kind", [MINOR, MAJOR])
def test_more_row_groups_than_outputs_may_have_are_encoded(kind: OptimizingType) -> None:
    most = {"self-optimizing.rewrite.copy.max-row-groups": "2"}
    assert rule(plan(*[file()] * 4, outputs=2), most, kind) == CopyRule(8 * MIB, 2, True)
    assert rule(plan(*[file()] * 5, outputs=2), most, kind) is None
    assert rule(plan(file(groups=3), file(), outputs=2), most, kind) == CopyRule(8 * MIB, 2, True)
    assert rule(plan(file(groups=4), file(), outputs=2), most, kind) is None


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_only_a_task_that_may_copy_carries_bounds(enabled: str) -> None:
    work = rewrite_work(plan(file()), context(), 7, parse_config({ENABLED: enabled}))
    (given,) = work.rewritten
    carried = ColumnMetrics(
        nan_value_counts={2: 0}, lower_bounds={1: b"12345678", 3: b"x" * 64}, upper_bounds={1: b"22345678"}
    )
    assert given.data.metrics == (carried if enabled == "true" else NO_METRICS)
    assert codec.decode_input(codec.encode_input(work)) == work


COPIES = "row groups without a deleted row are copied, up to 1,024 into an output"
SMALL = "smaller than 8 MiB on average"


def told(*tasks: TaskPlan, kind: OptimizingType = MAJOR, written: dict[str, str] | None = None, **more: str) -> str:
    properties = {f"self-optimizing.rewrite.{key.replace('_', '-')}": value for key, value in more.items()}
    return told_copying(tasks, written or {}, parse_config(properties), kind)


def test_a_plan_says_which_row_groups_it_copies() -> None:
    large, small = plan(file()), plan(file(MIB))
    assert told(large) == told(large, kind=MINOR) == f"{COPIES}; files whose row groups are {SMALL} are encoded"
    assert told(small, kind=MINOR) == f"{COPIES}; they are {SMALL}: major and full encode them later"
    least = {"use_parquet_row_group_merge.min_avg_row_group_size_bytes": "0"}
    assert told(small, **least) == told(small, kind=MINOR, **least) == COPIES


def test_a_plan_says_why_it_copies_nothing() -> None:
    small, encodes = plan(file(MIB)), "every row is encoded anew"
    assert told(small, kind=FULL) == f"{encodes}: the row groups of each file are {SMALL}, and full encodes such"
    enabled = "use_parquet_row_group_merge.enabled"
    assert told(small, kind=MINOR, **{enabled: "true"}) == f"{encodes}: the row groups of each file are {SMALL}"
    assert told(plan(file()), **{enabled: "false"}) == f"{encodes}: {ENABLED} is false"
    assert told(plan(file(file_format=FileFormat.ORC))) == f"{encodes}: no file is Parquet"
    assert told(plan(file(groups=1025))) == (
        f"{encodes}: there are more row groups than 1,024 for each output (self-optimizing.rewrite.copy.max-row-groups)"
    )


def test_tasks_that_differ_are_counted_and_those_that_rewrite_nothing_are_not() -> None:
    small, converting = plan(file(MIB, records=1000)), plan()
    assert told(converting) == told() == ""
    assert told(small, converting, small, plan(file())) == (
        f"2 of 3 tasks: every row is encoded anew: the row groups of each file are {SMALL}, and major encodes such;"
        f" 1 of 3 tasks: {COPIES}; files whose row groups are {SMALL} are encoded"
    )
    # A row group with half of the rows that are written is not small.
    assert told(small, written={"write.parquet.row-group-limit": "2000"}).startswith(COPIES)
