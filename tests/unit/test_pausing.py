"""What a run of an action means for its next one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from amoro_core.model.tables import ActionRecord
from amoro_core.state.pausing import MOST, Outcome, after, failed, seen_with, succeeded

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


def test_what_was_done_between_begins_the_count_anew() -> None:
    known = repeated(Outcome.DONE, 1, repeated(Outcome.FRUITLESS, MOST - 1))
    assert repeated(Outcome.FRUITLESS, MOST - 1, known).paused_at is None


def test_what_somebody_ended_says_nothing() -> None:
    assert repeated(Outcome.ENDED, 5) == KNOWN


def test_a_pause_is_over_after_a_run_that_succeeds_and_its_beginning_stays_while_others_fail() -> None:
    paused = repeated(Outcome.FAILED, MOST)
    still = failed(paused, "again", NOW + timedelta(days=1))
    assert (still.paused_at, still.paused_for) == (paused.paused_at, "4 failures in a row, the last: again")
    assert succeeded(still) == replace(KNOWN, next_at=None)


def test_an_outage_backs_off_and_never_pauses() -> None:
    known = KNOWN
    for _ in range(10):
        known = failed(known, "no answer", NOW, is_outage=True)
    assert (known.failures, known.paused_at) == (10, None)


def test_other_properties_end_a_pause_and_the_same_do_not() -> None:
    paused = repeated(Outcome.FAILED, MOST)
    assert seen_with(paused, "d1") == paused
    assert seen_with(paused, "d2") == replace(KNOWN, next_at=None, properties="d2")


def test_properties_seen_for_the_first_time_end_no_pause() -> None:
    paused = replace(repeated(Outcome.FAILED, MOST), properties="")
    assert seen_with(paused, "d1") == replace(paused, properties="d1")


def test_other_properties_do_not_end_a_back_off_by_themselves() -> None:
    known = repeated(Outcome.FAILED, 1)
    assert seen_with(known, "d2") == replace(known, properties="d2")
