"""The tasks of a process: classes of files, packing, limits, and filters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amoro_core.model.files import (
    DELETE_PATH_FIELD_ID,
    ColumnMetrics,
    DataFile,
    DeleteFile,
    DeleteKind,
    ScannedFile,
    TableScan,
)
from amoro_core.model.optimizing_config import OptimizingConfig
from amoro_core.model.plans import Evaluation, OptimizingPlan, PartitionKey
from amoro_core.model.tables import OptimizingType
from amoro_core.planning.optimizing.evaluator import evaluate
from amoro_core.planning.optimizing.partitions import FileClass, classify, is_file_scoped, is_own
from amoro_core.planning.optimizing.planner import plan
from amoro_core.planning.optimizing.tasks import pack, pack_evenly, spread
from tests.tiers import count
from tests.unit.planning.builders import (
    MIB,
    NOW,
    assess,
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

CONFIG = OptimizingConfig()
MINOR, MAJOR, FULL = OptimizingType


def planned(
    scan: TableScan, config: OptimizingConfig = CONFIG, *, budget: int = 1024 * MIB, **options: Any
) -> OptimizingPlan | None:
    def shapes_of(form: TableScan | None) -> object:
        made = planned_as_it_is(form, config, budget, **options)
        return None if made is None else (made.evaluation, made.type, shapes(made))

    in_both_forms(scan, shapes_of)
    return planned_as_it_is(scan, config, budget, **options)


def planned_as_it_is(
    scan: TableScan | None, config: OptimizingConfig, budget: int, **options: Any
) -> OptimizingPlan | None:
    assert scan is not None
    return plan(scan, evaluate(scan, config, {}, NOW, **options), config, 1, budget)


def shapes(made: OptimizingPlan | None) -> list[tuple[list[str], list[str], int]]:
    assert made is not None
    return [(*names(task), task.output_count) for task in made.tasks]


def test_segments_are_converted_or_rewritten_by_the_share_of_their_deleted_rows() -> None:
    a, b, c, d = data("a", 100 * MIB), data("b", 100 * MIB), data("c", 2 * MIB), data("d", 2 * MIB)
    scan = scan_of(
        [a, b, c, d],
        [
            position_delete("a1", a, records=10),
            position_delete("a2", a, records=10),
            position_delete("b1", b, records=200),
            position_delete("c1", c),
            position_delete("d1", d),
        ],
    )
    assert shapes(planned(scan)) == [(["b", "c", "d"], [], 1), ([], ["a"], 0)]
    due = replace(CONFIG, full_trigger_interval=NOW - NOW)
    assert sorted(name for rewritten, _, _ in shapes(planned(scan, due)) for name in rewritten) == ["a", "b", "c", "d"]


def test_a_request_rewrites_what_triggers_leave() -> None:
    scan = scan_of(many(5, 70 * MIB))
    assert planned(scan) is None
    assert shapes(planned(scan, requested=FULL)) == [(["f000", "f001", "f002"], [], 2)]
    scan = scan_of(many(2, 120 * MIB))
    assert planned(scan, requested=FULL) is None
    assert shapes(planned(scan, requested=FULL, force=True)) == [(["f000"], [], 1), (["f001"], [], 1)]
    file = data("a", 110 * MIB)
    scan = scan_of([file, data("b", 110 * MIB)], [own_delete(file, records=1)])
    assert planned(scan, requested=MINOR) is None
    assert shapes(planned(scan, requested=MAJOR)) == [(["a"], [], 1)]


def test_large_file_with_deletes_is_split_into_files_that_are_not_small() -> None:
    for size_bytes, outputs in ((130 * MIB, 1), (190 * MIB, 1), (300 * MIB, 3), (1000 * MIB, 8)):
        file = data("a", size_bytes)
        scan = scan_of([file], [replace(position_delete("d", None, records=500), sequence_number=2)])
        assert shapes(planned(scan)) == [(["a"], [], outputs)]


def test_heaviest_partitions_come_first_until_the_budget_or_the_number_of_files_is_passed() -> None:
    partitions = [many(12 + number, MIB, prefix=f"p{number}", partition=(bytes([number]),)) for number in range(4)]
    scan = scan_of([file for some in partitions for file in some], unpartitioned_specs=())
    made = planned(scan, budget=100 * MIB)
    assert made is not None
    assert [task.key for task in made.tasks] == [PartitionKey(0, (b"\x03",)), PartitionKey(0, (b"\x02",))]
    files = many(6, MIB)
    scan = scan_of(files, [position_delete("d", files[0]), equality_delete("e")])
    limited = replace(CONFIG, max_file_count=4)
    assert shapes(planned(scan, limited)) == [(["f000", "f001"], [], 1)]
    files = [*many(12, MIB, prefix="a", partition=(b"a",)), *many(2, MIB, prefix="b", partition=(b"b",))]
    limited = replace(CONFIG, max_file_count=13)
    made = planned(scan_of(files, unpartitioned_specs=()), limited)
    assert made is not None
    assert {task.key.partition for task in made.tasks} == {(b"a",)}
    file = data("a", MIB)
    scan = scan_of([file], [equality_delete(f"e{number}") for number in range(5)])
    assert shapes(planned(scan, replace(CONFIG, max_file_count=2))) == [(["a"], [], 1)]


def test_partitions_of_different_specs_never_share_a_task() -> None:
    files = [data("a", MIB), data("b", MIB), data("c", MIB, spec_id=1), data("d", MIB, spec_id=1)]
    assert shapes(planned(scan_of(files))) == [(["a", "b"], [], 1), (["c", "d"], [], 1)]


def test_files_under_equality_deletes_of_several_partitions_are_converted_by_one_process_or_by_several() -> None:
    files = [data("a", 110 * MIB, partition=(b"a",), spec_id=1), data("b", 110 * MIB, partition=(b"b",), spec_id=1)]
    deletes = [equality_delete(f"e{number}", spec_id=0) for number in range(2)]
    scan = scan_of(files, deletes)
    assert shapes(planned(scan)) == [([], ["a"], 0), ([], ["b"], 0)]
    made = planned(scan, budget=MIB)
    assert made is not None
    assert (shapes(made), made.tasks[0].marks) == ([([], ["a"], 0)], True)
    after = commit(scan, made)
    rest = planned(after, budget=MIB)
    assert rest is not None
    assert (shapes(rest), rest.tasks[0].marks) == ([([], ["b"], 0)], False)
    done = commit(after, rest)
    assert [delete for file in done.files for delete in file.deletes if delete.kind is DeleteKind.EQUALITY] == []
    assert planned(done) is None


def test_conversions_that_are_split_over_processes_are_never_rewrites_and_come_to_an_end() -> None:
    limited = replace(CONFIG, max_file_count=6)
    scan = scan_of(many(9, 110 * MIB), [equality_delete(f"e{number}") for number in range(2)])
    done: list[list[str]] = []
    while (made := planned(scan, limited, requested=MINOR)) is not None:
        inputs = [file for task in made.tasks for file in (*task.rewritten, *task.converted)]
        assert len({one.data.path for one in inputs} | {one.path for file in inputs for one in file.deletes}) <= 6
        assert [task.rewritten for task in made.tasks] == [()] * len(made.tasks)
        assert {task.marks for task in made.tasks} == {len(done) < 2}
        done.append(sorted(name for task in made.tasks for name in names(task)[1]))
        scan = commit(scan, made)
        left = {delete.path for file in scan.files for delete in file.deletes if delete.kind is DeleteKind.EQUALITY}
        assert len(left) == (2 if len(done) < 3 else 0)
    assert done == [[f"f00{number}" for number in some] for some in ([0, 1, 2, 3], [4, 5, 6, 7], [8])]
    # No mark is left that only told of the equality deletes.
    assert {delete.record_count for file in scan.files for delete in file.deletes} <= {1}


def test_files_that_wait_longest_are_converted_first() -> None:
    files = many(3, 110 * MIB)
    old, new = [equality_delete("e1"), equality_delete("e2")], equality_delete("e3", sequence_number=4)
    scan = scan_of(files, [*old, new, own_delete(files[0], sequence_number=3), own_delete(files[1], sequence_number=3)])
    made = planned(scan, replace(CONFIG, max_file_count=5), requested=MINOR)
    assert [converted for _, converted, _ in shapes(made)] == [["f002"]]


@pytest.mark.parametrize(("limit", "marks"), [(4, [True]), (5, [False, False])])
def test_conversion_under_a_position_delete_that_other_files_need_is_marked(limit: int, marks: list[bool]) -> None:
    """It need not take a row of the converted file, which would be converted again and again then."""
    a, b = data("a", 110 * MIB), data("b", 110 * MIB, sequence_number=3)
    shared = position_delete("shared", None, sequence_number=4)
    scan = scan_of([a, b], [equality_delete("e1"), equality_delete("e2"), shared])
    made = planned(scan, replace(CONFIG, max_file_count=limit), requested=MINOR)
    assert made is not None
    assert [task.marks for task in made.tasks] == marks
    after = commit(scan, made)
    assert [delete.path for file in after.files for delete in file.deletes].count(shared.path) == (limit == 4) * 2
    assert planned(after, requested=MINOR) is None


@pytest.mark.parametrize("all_files", [True, False], ids=["all-files", "not-all-files"])
def test_dangling_delete_makes_a_requested_full_rewrite_the_smallest_file(all_files: bool) -> None:
    config = replace(CONFIG, full_rewrite_all_files=all_files)
    files = [data("a", 120 * MIB, sequence_number=3), data("b", 110 * MIB, sequence_number=3)]
    scan = scan_of(files, [equality_delete("old", sequence_number=2)])
    assert shapes(planned(scan, config, requested=FULL)) == [(["b"], [], 1)]
    assert planned(scan, config, requested=MAJOR) is None


@settings(max_examples=count(8, 40), deadline=None, derandomize=True)
@given(order=st.permutations(range(18)))
def test_plan_does_not_depend_on_the_order_of_the_files(order: list[int]) -> None:
    files = [
        data(f"f{number:02}", (number % 7 + 1) * 9 * MIB, partition=(b"ab"[number % 2 :][:1],)) for number in range(18)
    ]
    deletes = [equality_delete("e", partition=(b"a",)), position_delete("d", files[3])]
    scan = scan_of(files, deletes, unpartitioned_specs=())
    shuffled = replace(scan, files=tuple(scan.files[index] for index in order))
    assert planned(shuffled, requested=MAJOR) == planned(scan, requested=MAJOR)


def without(*excluded: str) -> Callable[[DataFile], bool]:
    return lambda file: file.path.removeprefix("/t/data/").removesuffix(".parquet") not in excluded


def filtered(
    scan: TableScan, selects: Callable[[DataFile], bool], requested: OptimizingType | None = None
) -> tuple[Evaluation, OptimizingPlan | None]:
    evaluation = evaluate(scan, CONFIG, {}, NOW, requested, requested is FULL, selects=selects)
    return evaluation, plan(scan, evaluation, CONFIG, threads=1)


def test_files_outside_the_filter_are_counted_and_never_planned() -> None:
    scan = scan_of([*many(3, MIB), data("u", 40 * MIB), data("t", 120 * MIB)], [equality_delete("e")])
    assert shapes(filtered(scan, without("f000", "t"))[1]) == [(["f001", "f002"], [], 1), (["u"], [], 1)]
    for kind in OptimizingType:
        made = filtered(scan, without("f000", "t"), kind)[1]
        assert {name for rewritten, converted, _ in shapes(made) for name in (*rewritten, *converted)}.isdisjoint(
            {"f000", "t"}
        )
    none, _ = filtered(scan, lambda file: False)
    assert (none.type, none.reason) == (None, "nothing to do: the table has no data files in its filter")
    assert none.summary == evaluate(scan, CONFIG, {}, NOW).summary


def test_plan_of_another_snapshot_than_the_evaluated_one_is_not_made() -> None:
    scan = scan_of(many(2, MIB))
    with pytest.raises(ValueError, match="the evaluation is of snapshot 101, not of 1"):
        plan(replace(scan, snapshot_id=1), evaluate(scan, CONFIG, {}, NOW), CONFIG, threads=1)


SEGMENT = data("segment", 110 * MIB, records=1000)


def assessed(*deletes: DeleteFile, size_bytes: int = 110 * MIB) -> tuple[bool, bool, bool]:
    file = assess(ScannedFile(replace(SEGMENT, size_bytes=size_bytes), deletes), CONFIG)
    return file.duplicates, file.convertible, file.combinable


def by_bounds(name: str, lower: str, upper: str) -> DeleteFile:
    """A position delete that says by its bounds alone which files it is for."""
    bounds = {DELETE_PATH_FIELD_ID: lower.encode()}, {DELETE_PATH_FIELD_ID: upper.encode()}
    return replace(position_delete(name, None), metrics=ColumnMetrics(lower_bounds=bounds[0], upper_bounds=bounds[1]))


@pytest.mark.parametrize(
    ("size_bytes", "expected"),
    [
        (0, FileClass.FRAGMENT),
        (16 * MIB, FileClass.FRAGMENT),
        (16 * MIB + 1, FileClass.UNDERSIZED),
        (96 * MIB, FileClass.UNDERSIZED),
        (96 * MIB + 1, FileClass.TARGET_SIZE),
        (1000 * MIB, FileClass.TARGET_SIZE),
    ],
)
def test_class_follows_from_the_size_limits_included(size_bytes: int, expected: FileClass) -> None:
    assert classify(size_bytes, CONFIG) is expected


ANOTHER_SPELLING = f"file://{SEGMENT.path}"
NAMED, BY_SPARK = position_delete("d", SEGMENT), by_bounds("d", SEGMENT.path, SEGMENT.path)
EQUALITY = replace(equality_delete("e"), record_count=999)
OWN, NEW = own_delete(SEGMENT, sequence_number=3), position_delete("new", SEGMENT, sequence_number=4)
#: Whether a file is rewritten for its deleted rows, converted, and has several position deletes to combine.
LEFT, REWRITTEN, CONVERTED, COMBINED = (False,) * 3, (True, False, False), (False, True, False), (False, True, True)


@pytest.mark.parametrize(
    ("deletes", "expected"),
    [
        ([], LEFT),
        ([position_delete("d", SEGMENT, records=100)], LEFT),
        ([position_delete("d", SEGMENT, records=101)], REWRITTEN),
        ([EQUALITY], CONVERTED),
        ([NAMED, position_delete("e", SEGMENT)], COMBINED),
        ([position_delete("d", None)], CONVERTED),
        ([by_bounds("d", "/t/data/a.parquet", "/t/data/z.parquet")], CONVERTED),
        # One that names this file by equal bounds, as Spark writes it, is as good as converted.
        ([BY_SPARK], LEFT),
        ([by_bounds("d", ANOTHER_SPELLING, ANOTHER_SPELLING)], LEFT),
        ([BY_SPARK, by_bounds("e", ANOTHER_SPELLING, ANOTHER_SPELLING)], COMBINED),
        ([BY_SPARK, position_delete("e", SEGMENT)], COMBINED),
        ([BY_SPARK, position_delete("e", None)], COMBINED),
        ([BY_SPARK, own_delete(SEGMENT, sequence_number=1)], COMBINED),
        ([BY_SPARK, EQUALITY], CONVERTED),
        # What a conversion wrote holds older deletes, and is combined with newer ones.
        ([own_delete(SEGMENT)], LEFT),
        ([position_delete("old", SEGMENT, sequence_number=3), OWN], LEFT),
        ([OWN, NEW], COMBINED),
    ],
)  # fmt: skip
def test_a_segment_is_left_rewritten_converted_or_combined_by_its_deletes(
    deletes: list[DeleteFile], expected: tuple[bool, bool, bool]
) -> None:
    assert assessed(*deletes) == expected
    assert assessed(*deletes, size_bytes=MIB) in (LEFT, REWRITTEN)  # fragments are never converted


def test_equal_bounds_that_are_another_path_name_another_file() -> None:
    for bound in ("/t/data/segment", "/t/data/segment.parquet.1", "/t/dat"):
        delete = by_bounds("d", bound, bound)
        assert (delete.named_file, is_file_scoped(delete, SEGMENT.path)) == (bound, False)


def test_own_deletes_are_recognised_by_name_and_by_the_file_they_name() -> None:
    other = data("other", 110 * MIB)
    own = own_delete(SEGMENT)
    assert is_own(own, SEGMENT)
    assert not is_own(own, other)
    assert not is_own(position_delete("foreign", SEGMENT), SEGMENT)
    assert not is_own(replace(own, referenced_data_file=None), SEGMENT)
    assert is_own(replace(position_delete("x", None), path="/t/data/segment-delete-0001.parquet"), SEGMENT)


def test_live_bytes_leave_out_rows_of_deletes_that_name_this_file_alone() -> None:
    deletes = position_delete("d", SEGMENT, records=250), position_delete("shared", None, records=500)
    file = assess(ScannedFile(replace(SEGMENT, size_bytes=1000), deletes), CONFIG)
    assert file.live_bytes == 750


WEIGHTS = st.lists(st.integers(0, 150), max_size=60)


def test_runs_are_not_evened_where_two_of_them_would_fit_together() -> None:
    weights = [9, 9, 1, 1, 9]
    assert pack_evenly(weights, 10) == [[0, 2], [1, 3], [4]]


@given(weights=WEIGHTS)
def test_every_weight_is_in_one_bin_and_no_two_bins_fit_together(weights: list[int]) -> None:
    for bins in (pack(weights, 100), pack_evenly(weights, 100)):
        assert sorted(index for bin_ in bins for index in bin_) == list(range(len(weights)))
        loads = sorted(sum(weights[index] for index in bin_) for bin_ in bins)
        assert all(len(bin_) == 1 or sum(weights[index] for index in bin_) <= 100 for bin_ in bins)
        assert len(loads) < 2 or sum(loads[:2]) > 100


@given(weights=WEIGHTS, count=st.integers(1, 10))
def test_runs_keep_the_order_and_are_not_empty(weights: list[int], count: int) -> None:
    runs = spread(weights, count)
    assert [index for run in runs for index in run] == list(range(len(weights)))
    assert all(runs)
    assert len(runs) <= count
