"""Which tasks may copy row groups, and receipts of what was done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from amoro_core.actions.rewriting import copy_description, copy_rule, encoded_files, rewrite_work
from amoro_core.model.clustering import OTHERS, PLANNED, UNTOLD, EncodedFiles, Layout, LayoutKey, Strategy, commonest
from amoro_core.model.commits import Group
from amoro_core.model.files import NO_METRICS, ColumnMetrics, DataFile, FileFormat, ScannedFile
from amoro_core.model.optimizing_config import parse_config
from amoro_core.model.plans import PartitionKey, TaskPlan
from amoro_core.model.processes import Equation, Figure, Receipt
from amoro_core.model.tables import OptimizingType
from amoro_core.model.task_payload import CopyRule, InputFile, RewriteInput, RewriteOutput, TableContext
from amoro_core.protocol import cluster_pb2 as cluster_pb
from amoro_core.protocol import codec
from amoro_core.protocol import rewrite_pb2 as pb

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


COPIED = replace(file(64 * MIB, groups=2), path="f-copied.parquet")
SMALL_ONES = file(8 * MIB - 1), file(groups=17)
RULE_8, RULE_0 = CopyRule(8 * MIB, 1024, True), CopyRule(0, 1024, True)
OFF, NONE_SMALL, LIMIT = {ENABLED: "false"}, {LEAST: "0"}, {"write.parquet.row-group-limit": "2000"}


@pytest.mark.parametrize(
    ("files", "properties", "kind", "written", "expected"),
    [
        ([file(8 * MIB)], {}, MAJOR, {}, RULE_8),
        ([file(groups=16)], {}, MAJOR, {}, RULE_8),
        # Row groups of a copied file are small, however few splits its manifest tells.
        ([COPIED], {}, MAJOR, {}, None),
        ([replace(COPIED, path="f")], {}, MAJOR, {}, RULE_8),
        ([COPIED], {}, MINOR, {}, RULE_0),
        ([COPIED], NONE_SMALL, MAJOR, {}, RULE_0),
        ([replace(file(64 * MIB, groups=1025), path="f-copied.parquet")], {}, MINOR, {}, None),
        # Small row groups alone are encoded.
        (SMALL_ONES, {}, MAJOR, {}, None),
        ([*SMALL_ONES, file()], {}, MAJOR, {}, RULE_8),
        (SMALL_ONES, {LEAST: "1"}, MAJOR, {}, CopyRule(1, 1024, True)),
        # Those with half the rows that are written are large.
        ([file(MIB, records=1000)], {}, MAJOR, LIMIT, RULE_8),
        ([file(MIB, records=999)], {}, MAJOR, LIMIT, None),
        # A file that tells no row groups may have large ones.
        ([file(1, groups=0)], {}, MAJOR, {}, RULE_8),
        ([file(file_format=FileFormat.ORC)], {}, MAJOR, {}, None),
        ([file()], OFF, MAJOR, {}, None),
        # Minor copies small row groups; files that tell no split offsets count as one row group each.
        ([file(MIB), file(8 * MIB, groups=2)], {}, MINOR, {}, RULE_0),
        ([file(MIB), file(8 * MIB, groups=2)], {}, FULL, {}, None),
        ([file(MIB), file(15 * MIB)], {}, MINOR, {}, RULE_8),
        ([file(MIB), file(15 * MIB - 1)], {}, MINOR, {}, RULE_0),
        ([file(MIB)], {ENABLED: "true", LEAST: "8388608"}, MINOR, {}, None),
    ],
)
def test_a_task_copies_row_groups_that_are_large_enough(
    files: list[DataFile],
    properties: dict[str, str],
    kind: OptimizingType,
    written: dict[str, str],
    expected: CopyRule | None,
) -> None:
    assert rule(plan(*files), properties, kind, **written) == expected


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
    assert codec.decode_input(codec.encode(pb.RewriteInput, work)) == work


COPIES = (
    "files are copied as they are stored, except those with deleted rows or other columns than the table's; "
    "an output has up to 1,024 row groups"
)
SMALL = "smaller than 8 MiB on average"


def told(*tasks: TaskPlan, kind: OptimizingType = MAJOR, written: dict[str, str] | None = None, **more: str) -> str:
    properties = {f"self-optimizing.rewrite.{key.replace('_', '-')}": value for key, value in more.items()}
    return copy_description(tasks, written or {}, parse_config(properties), kind)


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


def test_a_strategy_of_tomorrow_is_refused() -> None:
    message = codec.encode(cluster_pb.Layout, Layout(Strategy.HILBERT, (LayoutKey(1), LayoutKey(2))))
    message.strategy = "peano"
    with pytest.raises(ValueError, match="peano"):
        codec.decode(Layout, message)


COUNTED = Receipt.brief(
    "counted 2 files", 7, (Figure("found", 2, "files"), Figure("lost", 1, "files")), (Equation("found", "lost"),)
)


def test_a_receipt_has_figures_of_its_own_and_tells_what_does_not_add_up() -> None:
    lost = Receipt(12, 1, 3, 0, 0, 1200, 1000, 50, 49, 111, 110, 4000)
    assert lost.unequal == (Equation("rows_before", "rows_after"),)
    assert COUNTED.unequal == (Equation("found", "lost"),)
    assert [(figure.name, figure.value) for figure in COUNTED.figures] == [("found", 2), ("lost", 1)]


RULE = CopyRule(0, 1024)


def group(output: RewriteOutput, rewritten: int, rule: CopyRule | None = RULE) -> Group:
    """A task that has rewritten so many files."""
    table = TableContext("c", "db.t", "u", 2, "s3://b", "s3://b/data", "{}", "{}", None, (), None, {}, ("s3://b",))
    files = [DataFile(f"f{n}", FileFormat.PARQUET, 0, (), 10, 100, 1) for n in range(rewritten)]
    work = RewriteInput(table, tuple(InputFile(file) for file in files), (), (), 7, 1 << 27, 1, copy=rule)
    return Group(1, work, codec.decode(RewriteOutput, codec.encode(pb.RewriteOutput, output)))


def test_files_of_all_tasks_are_counted_by_why_they_were_encoded() -> None:
    output = RewriteOutput((), (), 0, 0, 0, 0, 0, 0, 0)
    groups = [
        group(replace(output, files_copied=2, encoded_because="b", encoded_files={"b": 2, "a": 1}), 5),
        group(replace(output, encoded_files={"a": 3}), 4),  # one that its result does not count
        group(replace(output, files_copied=1, encoded_because="a"), 3),  # of an optimizer that tells one reason
        group(output, 1),  # of one that tells none
        group(replace(output, files_copied=9), 9),
        group(output, 5, rule=None),
    ]
    assert encoded_files(groups) == (
        EncodedFiles("a", 6),
        EncodedFiles(PLANNED, 5),
        EncodedFiles("b", 2),
        EncodedFiles(UNTOLD, 1),
        EncodedFiles(OTHERS, 1),
    )
    assert encoded_files(groups[-1:]) == encoded_files(groups[4:5]) == ()


def test_the_commonest_five_reasons_are_told_each_on_one_line_of_bounded_length() -> None:
    told = commonest([*((f"reason {n}", n) for n in range(8)), (OTHERS, 1), ("a\nb " + "x" * 300, 9), ("none", -1)])
    assert told == (
        EncodedFiles("a b " + "x" * 195 + "…", 9),
        *(EncodedFiles(f"reason {n}", n) for n in (7, 6, 5, 4)),
        EncodedFiles(OTHERS, 1 + 3 + 2 + 1),
    )
    assert commonest([("a reason", 1)]) == (EncodedFiles("a reason", 1),)
