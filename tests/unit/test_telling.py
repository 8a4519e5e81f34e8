"""Which attempt a change of a task ends, and which event a change of a process, a table or an action is."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from amoro_core.model.journal import AttemptOutcome, EventKind, TaskAttempt
from amoro_core.model.processes import Attempt, Delay, OptimizerThread, OptimizingTask, ProcessStatus, TaskId
from amoro_core.model.tables import ActionRecord, OptimizingStatus
from amoro_core.state import tasks as machine
from amoro_core.state.telling import (
    Told,
    ended_attempt,
    told_of_action,
    told_of_attempt,
    told_of_process,
    told_of_table,
)
from tests.store.builders import RECEIPT, process, runtime, task

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)
THREAD = OptimizerThread("optimizer-1", 3)
PROCESS = process(runtime())


def held(attempt: int = 2, acked: bool = True) -> OptimizingTask:
    """A task in that attempt."""
    planned = task(PROCESS, 4, input_rows=70)._replace(attempt=attempt - 1)
    scheduled = machine.advance(planned, machine.Schedule(THREAD), NOW)
    return machine.advance(scheduled, machine.Ack(attempt, THREAD.optimizer_id), NOW) if acked else scheduled


ENDS = [
    (machine.Succeed(2, "optimizer-1"), AttemptOutcome.SUCCESS, "", ""),
    (machine.Fail(2, "optimizer-1", "AMORO-1", "no disk"), AttemptOutcome.FAILED, "AMORO-1", "no disk"),
    (machine.Reset("silent"), AttemptOutcome.LOST, "", "silent"),
    (machine.Reset("drained", lost=False), AttemptOutcome.RETURNED, "", "drained"),
    (machine.Cancel("not needed"), AttemptOutcome.CANCELED, "", "not needed"),
]


@pytest.mark.parametrize(("event", "outcome", "code", "failure"), ENDS)
def test_every_way_out_of_a_thread_ends_the_attempt(
    event: machine.TaskEvent, outcome: AttemptOutcome, code: str, failure: str
) -> None:
    before = held()
    assert ended_attempt(before, machine.advance(before, event, LATER), LATER) == TaskAttempt(
        Attempt(TaskId(PROCESS.process_id, 4), 2), THREAD, outcome, NOW, NOW, LATER, code, failure, 70, 90
    )


def test_an_attempt_that_was_not_acknowledged_has_no_start() -> None:
    before = held(acked=False)
    ended = ended_attempt(before, machine.advance(before, machine.Reset("late"), LATER), LATER)
    assert ended is not None
    assert (ended.acked_at, ended.finished_at) == (None, LATER)


def test_a_step_that_leaves_the_thread_where_it_is_ends_nothing() -> None:
    scheduled, acked, planned = held(acked=False), held(), task(PROCESS, 4)
    assert ended_attempt(planned, scheduled, LATER) is None
    assert ended_attempt(scheduled, acked, LATER) is None
    assert ended_attempt(acked, machine.adopt(acked, 2, "optimizer-2", 1, LATER), LATER) is None
    assert ended_attempt(planned, machine.advance(planned, machine.Cancel("x"), LATER), LATER) is None


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (AttemptOutcome.SUCCESS, None),
        (AttemptOutcome.RETURNED, None),
        (AttemptOutcome.CANCELED, None),
        (AttemptOutcome.FAILED, Told(EventKind.FAILED, "attempt 2 of task 4 failed: [AMORO-1] no disk")),
        (AttemptOutcome.LOST, Told(EventKind.LOST, "attempt 2 of task 4 was lost: no disk")),
    ],
)
def test_only_attempts_that_went_wrong_are_told(outcome: AttemptOutcome, told: Told | None) -> None:
    attempt = Attempt(TaskId("p", 4), 2)
    ended = TaskAttempt(attempt, THREAD, outcome, NOW, NOW, LATER, "AMORO-1", "no disk")
    assert told_of_attempt(ended) == told


def test_a_new_process_is_planned_or_held() -> None:
    assert told_of_process(None, PROCESS) == Told(EventKind.PLANNED, "minor planned: 12 fragments")
    waits = replace(PROCESS, status=ProcessStatus.REQUESTED)
    assert told_of_process(None, waits) == Told(EventKind.PLANNED, "minor planned: 12 fragments")
    stopped = replace(PROCESS, status=ProcessStatus.HELD, failure="too many")
    assert told_of_process(None, stopped) == Told(EventKind.HELD, "minor is held: too many")


MOVES = [
    (ProcessStatus.COMMITTING, None),
    (ProcessStatus.CLEARING, None),
    (ProcessStatus.HELD, Told(EventKind.HELD, "minor is held: why")),
    (ProcessStatus.COMMIT_UNKNOWN, Told(EventKind.UNKNOWN, "whether minor was committed is unknown: why")),
    (ProcessStatus.FAILED, Told(EventKind.FAILED, "minor failed: [AMORO-1] why")),
    (ProcessStatus.CLOSED, Told(EventKind.CLOSED, "minor was ended: why")),
]


@pytest.mark.parametrize(("status", "told"), MOVES)
def test_a_process_that_moves_is_told_by_where_it_goes(status: ProcessStatus, told: Told | None) -> None:
    after = replace(PROCESS, status=status, failure="why", failure_code="AMORO-1")
    assert told_of_process(PROCESS, after) == told


def test_what_waited_goes_on_and_what_was_committed_says_so() -> None:
    for status in (ProcessStatus.HELD, ProcessStatus.REQUESTED):
        assert told_of_process(replace(PROCESS, status=status), PROCESS) == Told(EventKind.STARTED, "minor was started")
    done = f"minor committed snapshot {RECEIPT.snapshot_id}: 12 data files became 1, 50 rows"
    ended = replace(PROCESS, status=ProcessStatus.SUCCESS, receipt=RECEIPT)
    assert told_of_process(PROCESS, ended) == Told(EventKind.COMMITTED, done)
    partly = replace(PROCESS, status=ProcessStatus.PARTIAL, receipt=RECEIPT, failure="one is lost")
    assert told_of_process(PROCESS, partly) == Told(EventKind.COMMITTED, f"a part of {done}: one is lost")
    silent = replace(PROCESS, status=ProcessStatus.SUCCESS)
    assert told_of_process(PROCESS, silent) == Told(EventKind.COMMITTED, "minor has ended")


def test_a_commit_that_waits_is_told_once_for_each_cause() -> None:
    first = replace(PROCESS, status=ProcessStatus.COMMITTING)
    waits = replace(first, delay=Delay("AMORO-7", "the catalog is silent", LATER))
    again = replace(first, delay=Delay("AMORO-7", "the catalog is silent still", LATER, tries=2))
    other = replace(first, delay=Delay("AMORO-8", "denied", LATER, tries=3))
    assert told_of_process(first, waits) == Told(EventKind.BACKED_OFF, "minor waits: [AMORO-7] the catalog is silent")
    assert told_of_process(waits, again) is None
    assert told_of_process(again, other) == Told(EventKind.BACKED_OFF, "minor waits: [AMORO-8] denied")
    assert told_of_process(other, first) is None


def test_a_process_that_is_held_for_another_reason_is_told_again() -> None:
    held = replace(PROCESS, status=ProcessStatus.HELD, failure="10 files")
    assert told_of_process(held, held) is None
    more = replace(held, failure="20 files")
    assert told_of_process(held, more) == Told(EventKind.HELD, "minor is held: 20 files")


def test_a_table_is_refused_once_for_each_reason_and_accepted_again() -> None:
    fine = runtime(status=OptimizingStatus.IDLE)
    refused = runtime(status=OptimizingStatus.REFUSED, refusal="encryption", status_reason="keys")
    told = [Told(EventKind.REFUSED, "refused (encryption): keys")]
    assert told_of_table(fine, refused) == told
    assert told_of_table(refused, refused) == []
    assert told_of_table(replace(refused, status_reason="other"), refused) == told
    assert told_of_table(refused, fine) == [Told(EventKind.ACCEPTED, "it is not refused any more")]


def test_whether_a_table_is_optimized_is_told_when_that_changes() -> None:
    off = runtime(refreshed_at=NOW, enabled_origin="catalog")
    on = replace(off, enabled=True, enabled_origin="amoro table enable")
    assert told_of_table(off, on) == [Told(EventKind.ENABLED, "enabled by amoro table enable")]
    assert told_of_table(on, off) == [Told(EventKind.DISABLED, "disabled by catalog")]
    assert told_of_table(on, on) == []
    # The first look at a table decides nothing, but for one that somebody has enabled before it.
    assert told_of_table(replace(off, refreshed_at=None), on) == []
    assert told_of_table(replace(off, refreshed_at=None), replace(on, enabled_override=True)) != []


def test_a_table_that_backs_off_says_until_when() -> None:
    before, after = runtime(failures=1), runtime(failures=2, retry_at=LATER)
    until = "2 failures in a row: tried again at 2026-03-01 12:05:00 UTC"
    assert told_of_table(before, after) == [Told(EventKind.BACKED_OFF, until)]
    assert told_of_table(after, after) == []
    assert told_of_table(after, before) == []


def test_an_action_is_told_to_pause_and_to_go_on() -> None:
    works = ActionRecord(1, "expire-snapshots")
    paused = replace(works, paused_at=NOW, paused_for="it failed five times")
    stopped = Told(EventKind.PAUSED, "expire-snapshots is paused: it failed five times")
    goes = Told(EventKind.RESUMED, "expire-snapshots goes on; it was paused: it failed five times")
    assert (told_of_action(works, paused), told_of_action(paused, works)) == (stopped, goes)
    assert (told_of_action(works, works), told_of_action(paused, paused)) == (None, None)
