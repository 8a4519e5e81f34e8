"""The situations that Amoro's own tests of evaluator and planner go through, and a table's filter.

Tables without primary key only: keyed and change stores belong to Amoro's mixed formats.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from amoro_core.model.config import OptimizingConfig
from amoro_core.model.files import DataFile, TableScan
from amoro_core.model.plans import Evaluation, HealthParts, OptimizingPlan, PartitionKey
from amoro_core.model.tables import FileSummary, LastOptimized, OptimizingType
from amoro_core.planning.evaluating import evaluate
from amoro_core.planning.planner import plan
from tests.unit.planning.builders import (
    MIB,
    NOW,
    UNPARTITIONED,
    commit,
    data,
    equality_delete,
    in_both_forms,
    many,
    names,
    own_delete,
    position_delete,
    scan_of,
)

MINOR, MAJOR, FULL = OptimizingType
CONFIG = OptimizingConfig()
FULL_DUE = replace(CONFIG, full_trigger_interval=timedelta())
Filter = Callable[[DataFile], bool]


def evaluated(scan: TableScan | None, config: OptimizingConfig = CONFIG, selects: Filter | None = None) -> Evaluation:
    return in_both_forms(scan, lambda form: evaluate(form, config, {}, NOW, selects=selects))


def planned(scan: TableScan, config: OptimizingConfig = CONFIG, selects: Filter | None = None) -> OptimizingPlan | None:
    return plan(scan, evaluated(scan, config, selects), config, threads=1)


def tasks(
    scan: TableScan, config: OptimizingConfig = CONFIG, selects: Filter | None = None
) -> list[tuple[list[str], list[str]]]:
    def shapes(form: TableScan | None) -> list[tuple[list[str], list[str]]]:
        made = planned(form, config, selects) if form is not None else None
        return [names(task) for task in made.tasks] if made is not None else []

    return in_both_forms(scan, shapes)


def deletes_read(scan: TableScan, config: OptimizingConfig = CONFIG) -> set[str]:
    made = planned(scan, config)
    assert made is not None
    return {
        delete.path.removeprefix("/t/data/").removesuffix(".parquet")
        for task in made.tasks
        for file in (*task.rewritten, *task.converted)
        for delete in file.deletes
    }


def without(*excluded: str) -> Filter:
    return lambda file: file.path.removeprefix("/t/data/").removesuffix(".parquet") not in excluded


# Partition plans


def test_fragment_files() -> None:
    assert tasks(scan_of(many(2, MIB))) == [(["f000", "f001"], [])]


def test_only_one_fragment_file() -> None:
    assert tasks(scan_of(many(1, MIB))) == []


def test_segment_files() -> None:
    files = [data("a", 40 * MIB), data("b", 40 * MIB)]
    assert tasks(scan_of(files)) == []


def test_segment_files_with_their_own_small_position_deletes() -> None:
    files = [data("a", 40 * MIB), data("b", 40 * MIB)]
    scan = scan_of(files, [own_delete(file, sequence_number=at) for at, file in enumerate(files, start=2)])
    assert tasks(scan) == []
    assert tasks(scan, FULL_DUE) == [(["a", "b"], [])]
    assert len(deletes_read(scan, FULL_DUE)) == 2


def test_segments_and_fragments_with_delete_files() -> None:
    a, b, c, d = data("a", 100 * MIB), data("b", 100 * MIB), data("c", MIB), data("d", MIB)
    deletes = [
        position_delete("a1", a),
        position_delete("a2", a),
        position_delete("b1", b, records=101),
        position_delete("c1", c),
        position_delete("d1", d),
    ]
    scan = scan_of([a, b, c, d], deletes)
    assert tasks(scan) == [(["b", "c", "d"], []), ([], ["a"])]
    assert deletes_read(scan) == {"a1", "a2", "b1", "c1", "d1"}
    assert sorted(name for rewritten, _ in tasks(scan, FULL_DUE) for name in rewritten) == ["a", "b", "c", "d"]
    assert deletes_read(scan, FULL_DUE) == {"a1", "a2", "b1", "c1", "d1"}


# Evaluator


def test_empty_table() -> None:
    assert (evaluated(None).type, evaluated(scan_of([])).type) == (None, None)


def test_one_file_needs_nothing_and_two_files_are_pending_with_their_numbers() -> None:
    assert evaluated(scan_of(many(1, MIB))).type is None
    evaluation = evaluated(scan_of(many(2, MIB)))
    (verdict,) = evaluation.partitions
    assert evaluation.type is MINOR
    assert (verdict.key, verdict.data_files, verdict.input_bytes) == (UNPARTITIONED, 2, 2 * MIB)
    assert (verdict.equality_delete_files, verdict.position_delete_files) == (0, 0)
    assert evaluation.summary == FileSummary(2, 2 * MIB, 2, 0, 0, 0, 0, 0, 2000, 100)


def test_filter_that_keeps_the_files_changes_nothing() -> None:
    scan = scan_of(many(2, MIB))
    assert evaluated(scan, selects=without()) == evaluated(scan)


def test_filter_that_excludes_the_files_leaves_nothing_to_do_but_counts_them() -> None:
    scan = scan_of(many(2, MIB))
    evaluation = evaluated(scan, selects=without("f000", "f001"))
    assert evaluation == Evaluation(
        scan.snapshot_id,
        None,
        "nothing to do: the table has no data files in its filter",
        (),
        evaluated(scan).summary,
        health=HealthParts(40, 40, 20),
    )


def test_files_outside_the_filter_are_never_planned() -> None:
    scan = scan_of([*many(3, MIB), data("u", 40 * MIB), data("t", 120 * MIB)], [equality_delete("e")])
    assert tasks(scan, selects=without("f000", "t")) == [(["f001", "f002"], []), (["u"], [])]
    for kind in OptimizingType:
        evaluation = evaluate(scan, CONFIG, {}, NOW, kind, kind is FULL, selects=without("f000", "t"))
        made = plan(scan, evaluation, CONFIG, threads=1)
        assert made is not None
        planned_files = {name for task in made.tasks for name in [*names(task)[0], *names(task)[1]]}
        assert planned_files & {"f000", "t"} == set()


def test_equality_delete_that_files_outside_the_filter_need_is_not_converted_again_and_again() -> None:
    files = [data("in", 110 * MIB), data("out", 110 * MIB)]
    scan = scan_of(files, [equality_delete("e1"), equality_delete("e2")])
    assert tasks(scan) == [([], ["in"]), ([], ["out"])]
    assert tasks(scan, selects=without("out")) == [(["in"], [])]
    made = planned(scan, selects=without("out"))
    assert made is not None
    assert planned(commit(scan, made), selects=without("out")) is None


def test_partitions_outside_the_filter_have_no_verdict() -> None:
    files = [*many(2, MIB, prefix="a", partition=(b"a",)), *many(2, MIB, prefix="b", partition=(b"b",))]
    scan = scan_of(files, unpartitioned_specs=())
    evaluation = evaluated(scan, selects=lambda file: file.partition == (b"b",))
    assert [verdict.key for verdict in evaluation.partitions] == [PartitionKey(0, (b"b",))]
    assert evaluation.summary.data_files == 4


# Planner


def test_plan_of_two_fragments() -> None:
    scan = scan_of(many(2, MIB))
    made = planned(scan)
    assert made is not None
    assert (made.snapshot_id, made.sequence_number, made.type, len(made.tasks)) == (101, 1, MINOR, 1)
    assert made.evaluation == evaluated(scan)


def test_time_of_the_last_optimizing_decides_not_the_time_of_the_commit() -> None:
    scan = scan_of(many(2, MIB))
    for ago, expected in [(timedelta(hours=1), None), (timedelta(hours=1, milliseconds=1), MINOR)]:
        assert evaluate(scan, CONFIG, {UNPARTITIONED: LastOptimized(minor=NOW - ago)}, NOW).type is expected


def test_plan_takes_the_costliest_partitions_when_their_number_is_limited() -> None:
    files = [
        file
        for name, count in [("a", 12), ("b", 14), ("c", 13)]
        for file in many(count, MIB, prefix=name, partition=(name.encode(),))
    ]
    scan = scan_of(files, unpartitioned_specs=())
    made = plan(scan, evaluated(scan), CONFIG, threads=1, max_partitions=2)
    assert made is not None
    assert [task.key.partition for task in made.tasks] == [(b"b",), (b"c",)]


def test_plan_of_another_snapshot_than_the_evaluated_one_is_not_made() -> None:
    scan = scan_of(many(2, MIB))
    with pytest.raises(ValueError, match="the evaluation is of snapshot 101, not of 1"):
        plan(replace(scan, snapshot_id=1), evaluated(scan), CONFIG, threads=1)
