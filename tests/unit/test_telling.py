"""Which attempt a change of a task ends, and which event a change of a process, a table or an action is."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from amoro_core.model.journal import AttemptOutcome, EventKind, TaskAttempt
from amoro_core.model.processes import (
    Attempt,
    Delay,
    OptimizerThread,
    OptimizingProcess,
    OptimizingTask,
    ProcessStatus,
    TaskId,
)
from amoro_core.model.tables import ActionRecord, OptimizingStatus, TableRuntime
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


DONE = f"minor committed snapshot {RECEIPT.snapshot_id}: 12 data files became 1, 50 rows"


def moved(status: ProcessStatus, **changes: Any) -> OptimizingProcess:
    return replace(PROCESS, status=status, **{"failure": "why", "failure_code": "AMORO-1", **changes})


def waits(code: str, reason: str) -> OptimizingProcess:
    return replace(PROCESS, status=ProcessStatus.COMMITTING, delay=Delay(code, reason, LATER))


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (None, PROCESS, Told(EventKind.PLANNED, "minor planned: 12 fragments")),
        (None, moved(ProcessStatus.REQUESTED), Told(EventKind.PLANNED, "minor planned: 12 fragments")),
        (None, moved(ProcessStatus.HELD), Told(EventKind.HELD, "minor is held: why")),
        # By where it goes.
        (PROCESS, moved(ProcessStatus.COMMITTING), None),
        (PROCESS, moved(ProcessStatus.CLEARING), None),
        (PROCESS, moved(ProcessStatus.HELD), Told(EventKind.HELD, "minor is held: why")),
        (PROCESS, moved(ProcessStatus.COMMIT_UNKNOWN),
         Told(EventKind.UNKNOWN, "whether minor was committed is unknown: why")),
        (PROCESS, moved(ProcessStatus.FAILED), Told(EventKind.FAILED, "minor failed: [AMORO-1] why")),
        (PROCESS, moved(ProcessStatus.CLOSED), Told(EventKind.CLOSED, "minor was ended: why")),
        (PROCESS, moved(ProcessStatus.SUCCESS, receipt=RECEIPT), Told(EventKind.COMMITTED, DONE)),
        (PROCESS, moved(ProcessStatus.PARTIAL, receipt=RECEIPT, failure_code=""),
         Told(EventKind.COMMITTED, f"a part of {DONE}: why")),
        (PROCESS, moved(ProcessStatus.SUCCESS), Told(EventKind.COMMITTED, "minor has ended")),
        (moved(ProcessStatus.HELD), PROCESS, Told(EventKind.STARTED, "minor was started")),
        (moved(ProcessStatus.REQUESTED), PROCESS, Told(EventKind.STARTED, "minor was started")),
        # Once for each cause.
        (moved(ProcessStatus.HELD), moved(ProcessStatus.HELD), None),
        (moved(ProcessStatus.HELD), moved(ProcessStatus.HELD, failure="20 files"),
         Told(EventKind.HELD, "minor is held: 20 files")),
        (moved(ProcessStatus.COMMITTING), waits("AMORO-7", "no answer"),
         Told(EventKind.BACKED_OFF, "minor waits: [AMORO-7] no answer")),
        (waits("AMORO-7", "no answer"), waits("AMORO-7", "no answer still"), None),
        (waits("AMORO-7", "no answer"), waits("AMORO-8", "denied"),
         Told(EventKind.BACKED_OFF, "minor waits: [AMORO-8] denied")),
        (waits("AMORO-7", "no answer"), moved(ProcessStatus.COMMITTING), None),
    ],
)  # fmt: skip
def test_what_is_told_of_a_process(
    before: OptimizingProcess | None, after: OptimizingProcess, told: Told | None
) -> None:
    assert told_of_process(before, after) == told


FINE, REFUSED = (
    runtime(status=OptimizingStatus.IDLE),
    runtime(status=OptimizingStatus.REFUSED, refusal="encryption", status_reason="keys"),
)
OFF = runtime(refreshed_at=NOW, enabled_origin="catalog")
ON = replace(OFF, enabled=True, enabled_origin="amoro table enable")
ONCE, TWICE = runtime(failures=1), runtime(failures=2, retry_at=LATER)
WHY_REFUSED = Told(EventKind.REFUSED, "refused (encryption): keys")
SWITCHED_ON = Told(EventKind.ENABLED, "enabled by amoro table enable")


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (FINE, REFUSED, [WHY_REFUSED]),
        (REFUSED, REFUSED, []),
        (replace(REFUSED, status_reason="other"), REFUSED, [WHY_REFUSED]),
        (REFUSED, FINE, [Told(EventKind.ACCEPTED, "it is not refused any more")]),
        (OFF, ON, [SWITCHED_ON]),
        (ON, OFF, [Told(EventKind.DISABLED, "disabled by catalog")]),
        (ON, ON, []),
        # The first look at a table decides nothing, but for one that somebody has enabled before it.
        (replace(OFF, refreshed_at=None), ON, []),
        (replace(OFF, refreshed_at=None), replace(ON, enabled_override=True), [SWITCHED_ON]),
        (ONCE, TWICE, [Told(EventKind.BACKED_OFF, "2 failures in a row: tried again at 2026-03-01 12:05:00 UTC")]),
        (TWICE, TWICE, []),
        (TWICE, ONCE, []),
    ],
)  # fmt: skip
def test_what_is_told_of_a_table(before: TableRuntime, after: TableRuntime, told: list[Told]) -> None:
    assert told_of_table(before, after) == told


def test_an_action_is_told_to_pause_and_to_go_on() -> None:
    works = ActionRecord(1, "expire-snapshots")
    paused = replace(works, paused_at=NOW, paused_for="it failed five times")
    stopped = Told(EventKind.PAUSED, "expire-snapshots is paused: it failed five times")
    goes = Told(EventKind.RESUMED, "expire-snapshots goes on; it was paused: it failed five times")
    assert (told_of_action(works, paused), told_of_action(paused, works)) == (stopped, goes)
    assert (told_of_action(works, works), told_of_action(paused, paused)) == (None, None)
