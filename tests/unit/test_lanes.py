"""Which processes may be active on one table together, and what a run of an action means for its next one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from amoro_core.model.lanes import LANES
from amoro_core.model.processes import OptimizingProcess, ProcessStatus
from amoro_core.model.tables import ActionRecord
from amoro_core.state.lanes import in_the_way
from amoro_core.state.pausing import MOST, Outcome, after, failed, seen_with, succeeded
from tests.unit.test_machines import RUNNING

#: Beside each lane itself.
EXCLUDED = {("metadata", "storage"), ("storage", "metadata")}


def occupied(process_id: str, lane: str, status: str = ProcessStatus.RUNNING) -> OptimizingProcess:
    return replace(RUNNING, process_id=process_id, lane=lane, status=status)


@pytest.mark.parametrize("status", [ProcessStatus.RUNNING, ProcessStatus.COMMITTING, ProcessStatus.CLEARING])
def test_processes_of_one_lane_and_of_metadata_and_storage_exclude_each_other(status: ProcessStatus) -> None:
    found = {
        (active, lane): in_the_way(lane, [occupied("p", active, status)]) is None for active in LANES for lane in LANES
    }
    assert found == {(one, other): one != other and (one, other) not in EXCLUDED for one in LANES for other in LANES}
    assert set(LANES) == {"files", "metadata", "storage", "statistics", "layout"}


@pytest.mark.parametrize("status", [ProcessStatus.HELD, ProcessStatus.REQUESTED])
def test_a_process_that_waits_for_a_word_is_in_nobody_s_way(status: ProcessStatus) -> None:
    held = occupied("p", "files", status)
    assert [in_the_way(lane, [held]) for lane in LANES] == [None] * len(LANES)


@pytest.mark.parametrize("active", LANES)
@pytest.mark.parametrize("lane", LANES)
def test_nothing_begins_beside_an_unknown_commit_whatever_the_lanes(active: str, lane: str) -> None:
    unknown = occupied("p", active, ProcessStatus.COMMIT_UNKNOWN)
    assert in_the_way(lane, [unknown]) == (unknown, "it is not known whether its commit was applied")


def test_the_reason_names_the_lane_or_the_pair() -> None:
    expiry, rewrite = occupied("a", "metadata"), occupied("b", "files")
    assert in_the_way("storage", [rewrite, expiry]) == (expiry, "the lanes metadata and storage exclude each other")
    assert in_the_way("files", [rewrite, expiry]) == (rewrite, "it holds the lane files")


def test_data_expiry_and_the_lane_layout_exclude_each_other_though_its_lane_does_not() -> None:
    expiry = replace(occupied("p", "files"), action="expire-data")
    words = "expire-data and the lane layout exclude each other"
    assert in_the_way("layout", [expiry], action="cluster") == (expiry, words)
    ordering = replace(occupied("q", "layout"), action="cluster")
    assert in_the_way("files", [ordering], action="expire-data") == (ordering, words)
    assert in_the_way("files", [ordering], action="optimizing") is None
    assert in_the_way("layout", [replace(expiry, status=ProcessStatus.HELD)], action="cluster") is None


# Pausing


NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
KNOWN = ActionRecord(7, "expire-snapshots", reason="as ever", next_at=NOW, properties="d1")


def repeated(outcome: Outcome, times: int, known: ActionRecord = KNOWN) -> ActionRecord:
    for number in range(times):
        known = after(known, outcome, f"run {number + 1}", NOW + timedelta(hours=number))
    return known


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.FRUITLESS])
def test_two_in_a_row_do_not_pause(outcome: Outcome) -> None:
    found = repeated(outcome, MOST - 1)
    assert (found.paused_at, found.paused_for, found.next_at) == (None, "", NOW)


def test_the_third_failure_in_a_row_pauses_with_the_last_reason() -> None:
    found = repeated(Outcome.FAILED, MOST)
    third = NOW + timedelta(hours=2)
    assert found == replace(
        KNOWN,
        failures=3,
        retry_at=third + timedelta(minutes=4),
        next_at=None,
        paused_at=third,
        paused_for="3 failures in a row, the last: run 3",
    )


def test_the_third_run_in_a_row_that_changed_nothing_pauses() -> None:
    found = repeated(Outcome.FRUITLESS, MOST)
    words = "3 runs in a row changed nothing though there was something to do, the last: run 3"
    assert found == replace(KNOWN, fruitless=3, next_at=None, paused_at=NOW + timedelta(hours=2), paused_for=words)


def test_what_somebody_ended_says_nothing() -> None:
    assert repeated(Outcome.ENDED, 5) == KNOWN


def test_a_pause_is_over_after_a_run_that_succeeds_and_its_beginning_stays_while_others_fail() -> None:
    paused = repeated(Outcome.FAILED, MOST)
    still = failed(paused, "again", NOW + timedelta(days=1))
    assert (still.paused_at, still.paused_for) == (paused.paused_at, "4 failures in a row, the last: again")
    assert succeeded(still) == replace(KNOWN, next_at=None)


def test_other_properties_end_a_pause_and_the_same_do_not() -> None:
    paused = repeated(Outcome.FAILED, MOST)
    assert seen_with(paused, "d1") == paused
    assert seen_with(paused, "d2") == replace(KNOWN, next_at=None, properties="d2")


def test_properties_seen_for_the_first_time_end_no_pause() -> None:
    paused = replace(repeated(Outcome.FAILED, MOST), properties="")
    assert seen_with(paused, "d1") == replace(paused, properties="d1")
