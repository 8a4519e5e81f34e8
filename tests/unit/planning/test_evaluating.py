"""Triggers, the reasons that they give, and checks that spare a table its evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from amoro_core.model.clustering import SUFFIX
from amoro_core.model.files import DataFile, DeleteFile, ScannedFile, TableScan
from amoro_core.model.optimizing_config import OptimizingConfig
from amoro_core.model.plans import Evaluation, PartitionKey
from amoro_core.model.tables import FAULTLESS, FileSummary, HealthBasis, LastOptimized, OptimizingType, SnapshotFacts
from amoro_core.planning.optimizing.evaluator import evaluate, foreign_commits
from amoro_core.planning.optimizing.messages import TableTotals, evaluate_totals, totals_of
from tests.unit.planning.builders import (
    MIB,
    NOW,
    UNPARTITIONED,
    assess,
    data,
    equality_delete,
    in_both_forms,
    many,
    own_delete,
    position_delete,
    scan_of,
)

CONFIG = OptimizingConfig()
HOUR, MS = timedelta(hours=1), timedelta(milliseconds=1)
MINOR, MAJOR, FULL = OptimizingType


def evaluated(
    scan: TableScan | None,
    config: OptimizingConfig = CONFIG,
    *,
    ago: timedelta | None = timedelta(minutes=10),
    requested: OptimizingType | None = None,
) -> Evaluation:
    """The evaluation of a table whose partitions were all optimized so long ago."""
    at = NOW - ago if ago is not None else None
    keys = {PartitionKey(file.data.spec_id, file.data.partition) for file in scan.files} if scan else set()
    last = dict.fromkeys(keys, LastOptimized(at, at, at))
    return in_both_forms(scan, lambda form: evaluate(form, config, last, NOW, requested))


def said(evaluation: Evaluation) -> tuple[OptimizingType | None, str, datetime | None]:
    return evaluation.type, evaluation.reason, evaluation.due_at


def test_table_without_snapshot_needs_nothing() -> None:
    assert evaluated(None) == Evaluation(
        None, None, "nothing to do: the table has no snapshot", (), FileSummary(health_score=100), health=FAULTLESS
    )


BIG = data("big", 110 * MIB, records=1000)
BY_INTERVAL = "needed; next {} at 2026-03-01 {} UTC by interval"


def case(
    files: list[DataFile],
    deletes: Sequence[DeleteFile] = (),
    ago: timedelta | None = timedelta(minutes=10),
    **changes: Any,
) -> tuple[TableScan, OptimizingConfig, timedelta | None]:
    return scan_of(files, deletes), replace(CONFIG, **changes), ago


def several(count: int) -> list[DeleteFile]:
    return [equality_delete(f"e{number}") for number in range(count)]


def snapshot(number: int, parent: int | None, operation: str = "append", **more: Any) -> SnapshotFacts:
    summary = {"amoro.process-id": "p"} if more.pop("own", False) else {}
    return SnapshotFacts(number, parent, more.pop("sequence_number", number), NOW, operation, summary, ())


def test_commits_of_others_on_main_count_since_the_plan_also_those_that_have_expired() -> None:
    history = [
        snapshot(4, None), snapshot(5, 4), snapshot(6, 5, own=True), snapshot(7, 6, "replace"), snapshot(8, 7),
        snapshot(9, 5), snapshot(10, 8, "overwrite"),
    ]  # fmt: skip
    assert foreign_commits(history, 10, 4, 4, frozenset({6})) == 3, "5, 8, 10: not ours, no replacing one, no branch"
    assert foreign_commits(history[4:], 10, 4, 4, frozenset({6})) == 4, "5 and 7 are gone: what 7 was is not known"
    assert foreign_commits(history[-1:], 10, 4, 4, frozenset()) == 6
    assert foreign_commits(history, 10, 10, 10, frozenset()) == foreign_commits([], None, None, 0, frozenset()) == 0
    assert foreign_commits(history, 5, 8, 8, frozenset()) == 0, "rolled back"
    old = [snapshot(number, number - 1 or None, sequence_number=0) for number in range(1, 7)]
    assert foreign_commits(old, 6, 2, 0, frozenset()) == 4, "format 1"
    assert foreign_commits(old[3:], 6, 2, 0, frozenset()) == 3


def two(first: int, second: int) -> list[DataFile]:
    return [data("a", first), data("b", second)]


@pytest.mark.parametrize(
    ("given", "type_", "reason"),
    [
        (case([]), None, "the table has no data files"),
        # Minor: a number of small files, or an interval that is exceeded.
        (case(many(11, MIB)), None, f"11 small files, 12 {BY_INTERVAL.format('minor', '12:50')}"),
        (case(many(12, MIB)), MINOR, "12 small files, 12 are enough for minor"),
        (case(many(2, MIB), ago=HOUR), None, f"2 small files, 12 {BY_INTERVAL.format('minor', '12:00')}"),
        (case(many(2, MIB), ago=HOUR + MS), MINOR, "2 small files, last minor more than 1:00:00 ago"),
        (case(many(2, MIB), ago=None), MINOR, "2 small files, never minor optimized"),
        (case(many(2, MIB), ago=None, minor_trigger_interval=None), None, "2 small files, 12 needed"),
        (case(many(2, MIB), ago=None, minor_trigger_commits=5), None,
         "2 small files, 12 needed; 0 commits since the last plan, 5 needed"),
        (case([BIG], several(2), minor_trigger_delete_bytes=2000), MINOR,
         "deletes of 2000 bytes to fold, 2000 bytes are enough for minor"),
        (case([BIG], several(2), minor_trigger_delete_bytes=2001), None,
         f"2 small files (2 equality deletes among them), 12 {BY_INTERVAL.format('minor', '12:50')}"),
        (case(many(1, MIB), ago=None), None, "1 small file, 12 needed"),
        (case(many(12, 70 * MIB), ago=None, fragment_ratio=1), None, "12 small files, no two fit together"),
        (case([BIG], several(12)), MINOR, "12 small files (12 equality deletes among them), 12 are enough for minor"),
        (case([BIG], [position_delete(one, BIG) for one in "pq"]), MINOR, "1 file with several position deletes"),
        # Major: more deleted rows than the ratio, or undersized files that fill the target.
        (case([BIG], [position_delete("d", BIG, records=100)]), None,
         "no small files; 1 position delete within bounds"),
        (case([BIG], [position_delete("d", BIG, records=101)]), MAJOR,
         "1 file with more than 0.1 of the rows deleted"),
        (case(two(64 * MIB, 64 * MIB - 1)), None, "2 undersized files of 128 MiB, 128 MiB needed"),
        (case(two(64 * MIB, 64 * MIB)), MAJOR, "2 undersized files of 128 MiB in all, target 128 MiB"),
        (case(two(64 * MIB, 64 * MIB + 1)), None, "2 undersized files of 128 MiB, no two fit into 128 MiB"),
        (case([*many(2, 50 * MIB, prefix="u"), *many(30, MIB)]), MAJOR,
         "30 small files, 12 are enough for minor; with undersized files, which they would fill up"),
        # Full: an interval that is exceeded, where something is to be gained.
        (case(many(2, MIB), ago=HOUR, full_trigger_interval=HOUR, minor_trigger_interval=None), None,
         f"2 small files, 12 {BY_INTERVAL.format('full', '12:00')}"),
        (case(many(2, MIB), ago=HOUR + MS, full_trigger_interval=HOUR), FULL, "last full more than 1:00:00 ago"),
        (case(many(3, 130 * MIB), ago=None, full_trigger_interval=HOUR), None, "no small files, no deletes"),
    ],
)  # fmt: skip
def test_triggers(
    given: tuple[TableScan, OptimizingConfig, timedelta | None], type_: OptimizingType | None, reason: str
) -> None:
    scan, config, ago = given
    found = evaluated(scan, config, ago=ago)
    assert (found.type, found.reason) == (type_, reason if type_ else f"nothing to do: {reason}")


def test_copied_files_of_target_size_are_encoded_an_interval_after_the_last_encoding_and_else_after_minor() -> None:
    day, files = timedelta(days=1), [data(f"f{SUFFIX}", 110 * MIB), data("g", 110 * MIB)]
    reason = "nothing to do: 1 file with small row groups, 110 MiB; next major at 2026-03-01 12:00 UTC by interval"
    assert said(evaluated(scan_of(files), ago=day)) == (None, reason, NOW + MS)
    due = evaluated(scan_of(files), ago=day + MS)
    assert said(due) == (
        MAJOR,
        "1 file with small row groups, 110 MiB in all, and nothing was encoded for more than 1 day, 0:00:00",
        None,
    )
    assert [file.data.path for task in due.partitions[0].work for file in task.rewritten] == [files[0].path]
    old, new = NOW - day - MS, NOW
    for last, type_ in (
        (LastOptimized(), None),  # nobody knows when it was made: somebody else's file may have such a name
        (LastOptimized(minor=old), MAJOR),
        (LastOptimized(minor=new), None),
        (LastOptimized(minor=new, major=old), MAJOR),
        (LastOptimized(minor=old, major=new), None),
        (LastOptimized(minor=old, major=old, full=new), None),
    ):
        assert evaluate(scan_of(files), CONFIG, {UNPARTITIONED: last}, NOW).type is type_


def test_copied_files_are_encoded_when_copying_is_off_and_by_a_requested_major_or_full_and_else_stay() -> None:
    scan, long_ago = scan_of([data(f"f{SUFFIX}", 110 * MIB)]), timedelta(days=9)
    for changed in ({"coarse_interval": None}, {"row_group_merge": True}, {"row_group_merge_min_size": 0}):
        assert evaluated(scan, replace(CONFIG, **changed), ago=long_ago).type is None
    assert evaluated(scan, replace(CONFIG, row_group_merge=False), ago=long_ago).type is MAJOR
    for kind in (MAJOR, FULL):
        assert (
            evaluated(scan, requested=kind).reason == f"{kind.value} requested: 1 file with small row groups, 110 MiB"
        )
    assert evaluated(scan, requested=MINOR).type is None
    assert evaluated(scan_of([data("f", 110 * MIB)]), requested=FULL).type is None


def test_equality_deletes_that_stayed_behind_a_conversion_count_no_more_nor_among_the_small_files() -> None:
    file = data("a", 110 * MIB)
    deletes = [equality_delete(f"e{number}", sequence_number=3) for number in range(12)]
    small = [data(f"f{number}", MIB, sequence_number=4) for number in range(12)]
    own = own_delete(file, sequence_number=3)
    for files, more, expected in (
        ([file], [*deletes, own], None),
        ([file], [*deletes, own_delete(file, sequence_number=2)], MINOR),
        ([file, *small[:11]], [*deletes[:10], own], None),
        ([file, *small], [*deletes[:10], own], MINOR),
    ):
        assert evaluated(scan_of(files, more)).type is expected


def test_verdict_counts_the_partition_and_what_is_expected_of_it() -> None:
    scan = scan_of([*many(20, MIB), data("large", 110 * MIB, sequence_number=3)], [equality_delete("e")])
    (verdict,) = evaluated(scan).partitions
    assert (verdict.data_files, verdict.expected_files, verdict.tasks) == (21, 2, 1)
    assert (verdict.equality_delete_files, verdict.position_delete_files) == (1, 0)
    assert verdict.input_bytes == 20 * MIB + 1000
    assert verdict.cost == 2 * 20 * MIB + 1000 + 21 * CONFIG.open_file_cost


def test_partitions_are_evaluated_each_by_its_own_times() -> None:
    a, b = PartitionKey(0, (b"a",)), PartitionKey(0, (None,))
    files = [*many(2, MIB, prefix="a", partition=a.partition), *many(2, MIB, prefix="b", partition=b.partition)]
    scan = scan_of(files, unpartitioned_specs=())
    last = {a: LastOptimized(minor=NOW - 2 * HOUR), b: LastOptimized(minor=NOW)}
    names = {a: "p=a", b: "p=null"}
    evaluation = evaluate(scan, CONFIG, last, NOW, path_of=names.__getitem__)
    assert [(verdict.key, verdict.type) for verdict in evaluation.partitions] == [(b, None), (a, MINOR)]
    assert evaluation.due_at == NOW + HOUR + MS
    assert (
        evaluation.reason == "p=a: 2 small files, last minor more than 1:00:00 ago; 1 of 2 partitions to be optimized"
    )
    quiet = evaluate(
        scan,
        CONFIG,
        {a: LastOptimized(minor=NOW), b: LastOptimized(minor=NOW - MS)},
        NOW,
        None,
        False,
        names.__getitem__,
    )
    assert quiet.reason == "nothing to do in 2 partitions; next minor at 2026-03-01 13:00 UTC by interval in p=null"


MIXED = [*many(2, MIB), data("u", 90 * MIB)]
OLDER, NEWER = equality_delete("old", sequence_number=1), equality_delete("e")
UNDERSIZED = data("u", 50 * MIB)


@pytest.mark.parametrize(
    ("given", "requested", "type_", "reason"),
    [
        (case(MIXED, [NEWER, OLDER]), MINOR, MINOR, "2 fragments, 1 equality delete"),
        (case(MIXED, [NEWER, OLDER]), MAJOR, MAJOR, "2 fragments, 1 undersized file, 1 equality delete"),
        (case(MIXED, [NEWER, OLDER]), FULL, FULL,
         "2 fragments, 1 undersized file, 1 equality delete, 1 dangling delete"),
        (case([UNDERSIZED], [position_delete(one, UNDERSIZED) for one in "pq"]), MINOR, MINOR, "2 position deletes"),
        (case(two(BIG.size_bytes, BIG.size_bytes)), MINOR, None, "fewer than two fragments, no equality deletes"),
        (case(two(BIG.size_bytes, BIG.size_bytes)), MAJOR, None, "no small files that fit together, no deletes"),
        (case(two(BIG.size_bytes, BIG.size_bytes)), FULL, None, "no fewer files possible, no deletes"),
        (case(many(2, 70 * MIB), fragment_ratio=1), MINOR, None,
         "no two fragments that fit together, no equality deletes"),
        (case([data("a", 120 * MIB, sequence_number=3)], [NEWER]), MAJOR, None,
         "no small files that fit together, no deletes that apply"),
        (case([BIG], [equality_delete("e", sequence_number=3), own_delete(BIG, sequence_number=3)]), MINOR, None,
         "fewer than two fragments, 1 equality delete held by position deletes"),
    ],
)  # fmt: skip
def test_a_request_ignores_counts_and_intervals_and_says_where_it_gains_nothing(
    given: tuple[TableScan, OptimizingConfig, timedelta | None],
    requested: OptimizingType,
    type_: OptimizingType | None,
    reason: str,
) -> None:
    scan, config, _ = given
    found = evaluated(scan, config, ago=timedelta(), requested=requested)
    begin = f"{requested.value} requested" if type_ else "nothing to do"
    assert said(found) == (type_, f"{begin}: {reason}", None)


@pytest.mark.parametrize("requested", [None, MINOR])
@pytest.mark.parametrize(
    ("ratio", "records"), [(0.0, 1000), (0.1, 9)], ids=["ratio of zero", "fewer rows than one of the ratio"]
)
def test_equality_deletes_count_where_a_single_deleted_row_is_too_many(
    requested: OptimizingType | None, ratio: float, records: int
) -> None:
    """Conversions would trigger a major at once, so that the files are rewritten with their deletes."""
    files = [data(name, 110 * MIB, records=records) for name in "abc"]
    scan = scan_of(files, [equality_delete(f"e{number}") for number in range(12)])
    config = replace(CONFIG, major_trigger_duplicate_ratio=ratio)
    evaluation = evaluated(scan, config, requested=requested)
    (verdict,) = evaluation.partitions
    assert evaluation.type is (MAJOR if requested is None else MINOR)
    assert [len(task.rewritten) for task in verdict.work] == [1, 1, 1]
    assert evaluation.reason == (
        "12 small files (12 equality deletes among them), 12 are enough for minor; on 3 files of which one deleted row "
        "is too many, so they are rewritten at once"
        if requested is None
        else "minor requested: 12 equality deletes"
    )


def test_summary_counts_all_files_of_the_table() -> None:
    files = [*many(2, MIB), data("u", 20 * MIB), data("t", 110 * MIB)]
    deletes = [equality_delete("e"), equality_delete("old", sequence_number=1), position_delete("d", files[3])]
    assert evaluated(scan_of(files, deletes)).summary == FileSummary(
        data_files=4,
        data_bytes=132 * MIB,
        fragment_files=2,
        undersized_files=1,
        equality_delete_files=2,
        position_delete_files=1,
        delete_bytes=3000,
        dangling_delete_files=1,
        records=4000,
        health_score=92,
    )


def test_summary_counts_coarse_files_of_all_partitions_as_planning_does() -> None:
    files = [
        data(f"a{SUFFIX}", 110 * MIB, partition=(b"a",)),
        data(f"b{SUFFIX}", 97 * MIB, partition=(b"b",)),
        data(f"small{SUFFIX}", 20 * MIB, partition=(b"b",)),
        data("encoded", 120 * MIB, partition=(b"b",)),
    ]
    for config in (CONFIG, replace(CONFIG, row_group_merge=True)):
        coarse = [file.size_bytes for file in files if assess(ScannedFile(file, ()), config).is_coarse]
        summary = evaluated(scan_of(files), config).summary
        assert (summary.coarse_files, summary.coarse_bytes) == (len(coarse), sum(coarse))
        assert coarse == ([110 * MIB, 97 * MIB] if config is CONFIG else [])
    verdicts = evaluated(scan_of(files)).partitions
    assert [(one.coarse_files, one.coarse_bytes) for one in verdicts] == [(1, 110 * MIB), (1, 97 * MIB)]


@pytest.mark.parametrize(
    ("files", "weight"),
    [
        (many(12, 8 * MIB), 1.0),  # as many files and bytes as charge a partition fully
        (many(24, 16 * MIB), 1.0),
        (many(12, 4 * MIB), 0.5),
        (many(6, 4 * MIB), 0.125),
        (many(1, MIB), 0.0),
        ([*many(12, 8 * MIB, partition=(b"a",)), *many(1, MIB, partition=(b"b",))], 0.5),
        ([], 0.0),
    ],
)
def test_the_weight_says_how_much_of_their_faults_partitions_are_charged(files: list[DataFile], weight: float) -> None:
    assert evaluated(scan_of(files)).basis == HealthBasis(weight, 16 * MIB, 96 * MIB, 12)


# Totals spare a table its evaluation, sizes hold a partition back


OFF = OptimizingConfig()
ON = replace(OFF, evaluation_fallback_interval=24 * HOUR)
KNOWN = FileSummary(data_files=1, data_bytes=2, fragment_files=3, delete_bytes=4, records=5, health_score=90)
LARGE = TableTotals(data_files=3, delete_files=0, bytes=3 * 96 * MIB + 1)
DUE = "2026-03-02 11:00 UTC by fallback interval"


def prechecked(
    totals: TableTotals | None, config: OptimizingConfig = ON, last: datetime | None = NOW - HOUR
) -> Evaluation | None:
    return evaluate_totals(7, totals, config, last, NOW, KNOWN)


@pytest.mark.parametrize("value", [None, "", "-1", "three", "1.5", "²", "9" * 19, "9" * 5_000])
def test_missing_or_malformed_totals_of_a_snapshots_summary_tell_nothing(value: str | None) -> None:
    summary = {"total-data-files": "3", "total-files-size": "1000", "operation": "append"}
    assert totals_of({**summary, "total-delete-files": "2"}) == TableTotals(data_files=3, delete_files=2, bytes=1000)
    assert totals_of(summary if value is None else {**summary, "total-delete-files": value}) is None
    assert prechecked(None) is None


def test_a_table_of_large_files_or_none_is_not_looked_at_until_the_fallback_interval_has_passed() -> None:
    assert prechecked(LARGE, OFF) is None
    assert prechecked(LARGE) == Evaluation(
        7,
        None,
        f"nothing to do: no deletes, and data files are large on average; next evaluation at {DUE}",
        (),
        FileSummary(data_files=3, data_bytes=3 * 96 * MIB + 1, fragment_files=3, records=5, health_score=90),
        NOW + 23 * HOUR,
    )
    assert prechecked(TableTotals(0, 1, 100)) == Evaluation(
        7,
        None,
        f"nothing to do: the table has no data files; next evaluation at {DUE}",
        (),
        FileSummary(dangling_delete_files=1, health_score=100),
        NOW + 23 * HOUR,
        FAULTLESS,
    )
    assert prechecked(LARGE, last=NOW - 24 * HOUR + MS) is not None
    assert prechecked(LARGE, last=NOW - 24 * HOUR) is None
    assert prechecked(LARGE, last=None) is None


@pytest.mark.parametrize("totals", [replace(LARGE, bytes=3 * 96 * MIB), replace(LARGE, delete_files=1)])
def test_table_with_smaller_files_or_deletes_is_looked_at(totals: TableTotals) -> None:
    assert prechecked(totals) is None


def held_back(
    files: list[DataFile], deletes: list[DeleteFile], config: OptimizingConfig, last: LastOptimized | None = None
) -> Evaluation:
    return evaluate(scan_of(files, deletes), config, {UNPARTITIONED: last or LastOptimized(minor=NOW - 2 * HOUR)}, NOW)


def tolerating(tolerance: int, config: OptimizingConfig = ON) -> OptimizingConfig:
    return replace(config, mse_tolerance=tolerance)


def test_a_partition_is_held_back_whose_small_files_are_near_the_target_or_one() -> None:
    files = many(12, 6 * MIB)
    held = held_back(files, [], tolerating(90 * MIB + 1))
    assert (held.type, held.reason, held.due_at) == (
        None,
        "nothing to do yet: 12 small files, 12 are enough for minor, but fewer than two small files or all within "
        "90 MiB of 96 MiB; next evaluation at 2026-03-02 10:00 UTC by fallback interval",
        NOW + 22 * HOUR,
    )
    assert held_back(files, [], tolerating(90 * MIB)).type is OptimizingType.MINOR
    assert held_back(files, [], tolerating(90 * MIB + 1, OFF)).type is OptimizingType.MINOR
    assert held_back(many(1000, 0), [], tolerating(96 * MIB)).type is OptimizingType.MINOR
    assert held_back(many(1000, 0), [], tolerating(96 * MIB + 1)).type is None
    file = data("a", 110 * MIB)
    deletes = [position_delete("d1", file), position_delete("d2", file)]
    held = held_back([file], deletes, ON)
    assert (held.type, held.reason) == (
        None,
        "nothing to do yet: 1 file with several position deletes, but fewer than two small files; "
        "next evaluation at 2026-03-02 10:00 UTC by fallback interval",
    )
    assert held_back([file], deletes, OFF).type is OptimizingType.MINOR


def test_a_partition_is_held_back_up_to_the_fallback_interval_and_not_from_who_asks() -> None:
    files = many(12, MIB)
    config = tolerating(1000 * MIB)
    at_limit = LastOptimized(minor=NOW - 48 * HOUR, full=NOW - 24 * HOUR)
    assert held_back(files, [], config, at_limit).type is OptimizingType.MINOR
    assert held_back(files, [], config, replace(at_limit, major=NOW - 24 * HOUR + MS)).type is None
    assert held_back(files, [], config, LastOptimized()).type is OptimizingType.MINOR
    last = {UNPARTITIONED: LastOptimized(minor=NOW)}
    scan = scan_of(many(12, MIB))
    assert evaluate(scan, tolerating(1000 * MIB), last, NOW).type is None
    assert evaluate(scan, tolerating(1000 * MIB), last, NOW, OptimizingType.MINOR).type is OptimizingType.MINOR
