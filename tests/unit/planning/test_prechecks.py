"""The metadata pre-check: totals spare a table its evaluation, sizes hold a partition back."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from amoro_core.model.config import OptimizingConfig
from amoro_core.model.files import DataFile, DeleteFile
from amoro_core.model.plans import Evaluation
from amoro_core.model.tables import FAULTLESS, FileSummary, LastOptimized, OptimizingType
from amoro_core.planning.evaluating import evaluate
from amoro_core.planning.prechecks import TableTotals, evaluate_totals, totals_of
from tests.unit.planning.builders import MIB, NOW, UNPARTITIONED, data, many, position_delete, scan_of

HOUR, MS = timedelta(hours=1), timedelta(milliseconds=1)
OFF = OptimizingConfig()
ON = replace(OFF, evaluation_fallback_interval=24 * HOUR)
KNOWN = FileSummary(data_files=1, data_bytes=2, fragment_files=3, delete_bytes=4, records=5, health_score=90)
LARGE = TableTotals(data_files=3, delete_files=0, bytes=3 * 96 * MIB + 1)
DUE = "2026-03-02 11:00 UTC by fallback interval"


def prechecked(
    totals: TableTotals | None, config: OptimizingConfig = ON, last: datetime | None = NOW - HOUR
) -> Evaluation | None:
    return evaluate_totals(7, totals, config, last, NOW, KNOWN)


def test_totals_are_read_from_a_snapshots_summary() -> None:
    summary = {"total-data-files": "3", "total-delete-files": "2", "total-files-size": "1000", "operation": "append"}
    assert totals_of(summary) == TableTotals(data_files=3, delete_files=2, bytes=1000)


@pytest.mark.parametrize("value", [None, "", "-1", "three", "1.5", "²", "9" * 19, "9" * 5_000])
def test_missing_or_malformed_totals_tell_nothing(value: str | None) -> None:
    summary = {"total-data-files": "3", "total-files-size": "1000"}
    assert totals_of(summary if value is None else {**summary, "total-delete-files": value}) is None
    assert prechecked(None) is None


def test_check_of_totals_is_off_without_a_fallback_interval() -> None:
    assert prechecked(LARGE, OFF) is None


def test_table_of_large_files_without_deletes_is_not_looked_at() -> None:
    assert prechecked(LARGE) == Evaluation(
        7,
        None,
        f"nothing to do: no deletes, and data files are large on average; next evaluation at {DUE}",
        (),
        FileSummary(data_files=3, data_bytes=3 * 96 * MIB + 1, fragment_files=3, records=5, health_score=90),
        NOW + 23 * HOUR,
    )


@pytest.mark.parametrize("totals", [replace(LARGE, bytes=3 * 96 * MIB), replace(LARGE, delete_files=1)])
def test_table_with_smaller_files_or_deletes_is_looked_at(totals: TableTotals) -> None:
    assert prechecked(totals) is None


def test_empty_table_is_not_looked_at() -> None:
    assert prechecked(TableTotals(0, 1, 100)) == Evaluation(
        7,
        None,
        f"nothing to do: the table has no data files; next evaluation at {DUE}",
        (),
        FileSummary(dangling_delete_files=1, health_score=100),
        NOW + 23 * HOUR,
        FAULTLESS,
    )


def test_table_is_looked_at_once_the_fallback_interval_has_passed() -> None:
    assert prechecked(LARGE, last=NOW - 24 * HOUR + MS) is not None
    assert prechecked(LARGE, last=NOW - 24 * HOUR) is None
    assert prechecked(LARGE, last=None) is None


def evaluated(
    files: list[DataFile], deletes: list[DeleteFile], config: OptimizingConfig, last: LastOptimized | None = None
) -> Evaluation:
    return evaluate(scan_of(files, deletes), config, {UNPARTITIONED: last or LastOptimized(minor=NOW - 2 * HOUR)}, NOW)


def tolerating(tolerance: int, config: OptimizingConfig = ON) -> OptimizingConfig:
    return replace(config, mse_tolerance=tolerance)


def test_partition_whose_small_files_are_near_enough_to_the_target_is_held_back() -> None:
    files = many(12, 6 * MIB)
    held = evaluated(files, [], tolerating(90 * MIB + 1))
    assert (held.type, held.reason, held.due_at) == (
        None,
        "nothing to do yet: 12 small files, 12 are enough for minor, but fewer than two small files or all within "
        "90 MiB of 96 MiB; next evaluation at 2026-03-02 10:00 UTC by fallback interval",
        NOW + 22 * HOUR,
    )
    assert evaluated(files, [], tolerating(90 * MIB)).type is OptimizingType.MINOR
    assert evaluated(files, [], tolerating(90 * MIB + 1, OFF)).type is OptimizingType.MINOR


def test_squares_of_ever_so_many_files_are_exact() -> None:
    assert evaluated(many(1000, 0), [], tolerating(96 * MIB)).type is OptimizingType.MINOR
    assert evaluated(many(1000, 0), [], tolerating(96 * MIB + 1)).type is None


def test_partition_with_a_single_small_file_is_held_back_whatever_its_deletes() -> None:
    file = data("a", 110 * MIB)
    deletes = [position_delete("d1", file), position_delete("d2", file)]
    held = evaluated([file], deletes, ON)
    assert (held.type, held.reason) == (
        None,
        "nothing to do yet: 1 file with several position deletes, but fewer than two small files; "
        "next evaluation at 2026-03-02 10:00 UTC by fallback interval",
    )
    assert evaluated([file], deletes, OFF).type is OptimizingType.MINOR


def test_partition_is_held_back_until_the_fallback_interval_since_its_latest_optimizing_has_passed() -> None:
    files = many(12, MIB)
    config = tolerating(1000 * MIB)
    at_limit = LastOptimized(minor=NOW - 48 * HOUR, full=NOW - 24 * HOUR)
    assert evaluated(files, [], config, at_limit).type is OptimizingType.MINOR
    assert evaluated(files, [], config, replace(at_limit, major=NOW - 24 * HOUR + MS)).type is None
    assert evaluated(files, [], config, LastOptimized()).type is OptimizingType.MINOR


def test_what_somebody_asks_for_is_not_held_back() -> None:
    last = {UNPARTITIONED: LastOptimized(minor=NOW)}
    scan = scan_of(many(12, MIB))
    assert evaluate(scan, tolerating(1000 * MIB), last, NOW).type is None
    assert evaluate(scan, tolerating(1000 * MIB), last, NOW, OptimizingType.MINOR).type is OptimizingType.MINOR
