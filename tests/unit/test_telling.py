"""Events and conditions that people are told about."""

from __future__ import annotations

import operator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from amoro_core.model import metrics
from amoro_core.model.alert_rules import CONDITIONS, ActiveAlert, Counted, evaluate_rules, matching
from amoro_core.model.history_events import AttemptOutcome, EventKind, TaskAttempt
from amoro_core.model.metrics import MetricSample
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
from amoro_core.services.metrics import ConditionService
from amoro_core.state import tasks as machine
from amoro_core.state.transition_events import EventText, action_event, ended_attempt, process_event, table_events
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


def test_a_step_that_leaves_the_thread_where_it_is_ends_nothing_and_one_without_ack_has_no_start() -> None:
    scheduled, acked, planned = held(acked=False), held(), task(PROCESS, 4)
    assert ended_attempt(planned, scheduled, LATER) is None
    assert ended_attempt(scheduled, acked, LATER) is None
    assert ended_attempt(acked, machine.adopt(acked, 2, "optimizer-2", 1, LATER), LATER) is None
    assert ended_attempt(planned, machine.advance(planned, machine.Cancel("x"), LATER), LATER) is None
    before = held(acked=False)
    ended = ended_attempt(before, machine.advance(before, machine.Reset("late"), LATER), LATER)
    assert ended is not None
    assert (ended.acked_at, ended.finished_at) == (None, LATER)


DONE = f"minor committed snapshot {RECEIPT.snapshot_id}: 12 data files became 1, 50 rows"


def moved(status: ProcessStatus, **changes: Any) -> OptimizingProcess:
    return replace(PROCESS, status=status, **{"failure": "why", "failure_code": "AMORO-1", **changes})


def waits(code: str, reason: str) -> OptimizingProcess:
    return replace(PROCESS, status=ProcessStatus.COMMITTING, delay=Delay(code, reason, LATER))


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (None, PROCESS, EventText(EventKind.PLANNED, "minor planned: 12 fragments")),
        (None, moved(ProcessStatus.REQUESTED), EventText(EventKind.PLANNED, "minor planned: 12 fragments")),
        (None, moved(ProcessStatus.HELD), EventText(EventKind.HELD, "minor is held: why")),
        # By where it goes.
        (PROCESS, moved(ProcessStatus.COMMITTING), None),
        (PROCESS, moved(ProcessStatus.CLEARING), None),
        (PROCESS, moved(ProcessStatus.HELD), EventText(EventKind.HELD, "minor is held: why")),
        (PROCESS, moved(ProcessStatus.COMMIT_UNKNOWN),
         EventText(EventKind.UNKNOWN, "whether minor was committed is unknown: why")),
        (PROCESS, moved(ProcessStatus.FAILED), EventText(EventKind.FAILED, "minor failed: [AMORO-1] why")),
        (PROCESS, moved(ProcessStatus.CLOSED), EventText(EventKind.CLOSED, "minor was ended: why")),
        (PROCESS, moved(ProcessStatus.SUCCESS, receipt=RECEIPT), EventText(EventKind.COMMITTED, DONE)),
        (PROCESS, moved(ProcessStatus.PARTIAL, receipt=RECEIPT, failure_code=""),
         EventText(EventKind.COMMITTED, f"a part of {DONE}: why")),
        (PROCESS, moved(ProcessStatus.SUCCESS), EventText(EventKind.COMMITTED, "minor has ended")),
        (moved(ProcessStatus.HELD), PROCESS, EventText(EventKind.STARTED, "minor was started")),
        # Once for each cause.
        (moved(ProcessStatus.HELD), moved(ProcessStatus.HELD), None),
        (moved(ProcessStatus.HELD), moved(ProcessStatus.HELD, failure="20 files"),
         EventText(EventKind.HELD, "minor is held: 20 files")),
        (moved(ProcessStatus.COMMITTING), waits("AMORO-7", "no answer"),
         EventText(EventKind.BACKED_OFF, "minor waits: [AMORO-7] no answer")),
        (waits("AMORO-7", "no answer"), waits("AMORO-7", "no answer still"), None),
        (waits("AMORO-7", "no answer"), waits("AMORO-8", "denied"),
         EventText(EventKind.BACKED_OFF, "minor waits: [AMORO-8] denied")),
        (waits("AMORO-7", "no answer"), moved(ProcessStatus.COMMITTING), None),
    ],
)  # fmt: skip
def test_what_is_told_of_a_process(
    before: OptimizingProcess | None, after: OptimizingProcess, told: EventText | None
) -> None:
    assert process_event(before, after) == told


FINE, REFUSED = (
    runtime(status=OptimizingStatus.IDLE),
    runtime(status=OptimizingStatus.REFUSED, refusal="encryption", status_reason="keys"),
)
OFF = runtime(refreshed_at=NOW, enabled_origin="catalog")
ON = replace(OFF, enabled=True, enabled_origin="amoro table enable")
ONCE, TWICE = runtime(failures=1), runtime(failures=2, retry_at=LATER)
WHY_REFUSED = EventText(EventKind.REFUSED, "refused (encryption): keys")
SWITCHED_ON = EventText(EventKind.ENABLED, "enabled by amoro table enable")


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (FINE, REFUSED, [WHY_REFUSED]),
        (REFUSED, REFUSED, []),
        (replace(REFUSED, status_reason="other"), REFUSED, [WHY_REFUSED]),
        (REFUSED, FINE, [EventText(EventKind.ACCEPTED, "it is not refused any more")]),
        (OFF, ON, [SWITCHED_ON]),
        (ON, OFF, [EventText(EventKind.DISABLED, "disabled by catalog")]),
        (ON, ON, []),
        # The first look at a table decides nothing, but for one that somebody has enabled before it.
        (replace(OFF, refreshed_at=None), ON, []),
        (replace(OFF, refreshed_at=None), replace(ON, enabled_override=True), [SWITCHED_ON]),
        (ONCE, TWICE, [EventText(EventKind.BACKED_OFF, "2 failures in a row: tried again at 2026-03-01 12:05:00 UTC")]),
        (TWICE, TWICE, []),
    ],
)  # fmt: skip
def test_what_is_told_of_a_table(before: TableRuntime, after: TableRuntime, told: list[EventText]) -> None:
    assert table_events(before, after) == told


def test_an_action_is_told_to_pause_and_to_go_on() -> None:
    works = ActionRecord(1, "expire-snapshots")
    paused = replace(works, paused_at=NOW, paused_for="it failed five times")
    stopped = EventText(EventKind.PAUSED, "expire-snapshots is paused: it failed five times")
    goes = EventText(EventKind.RESUMED, "expire-snapshots goes on; it was paused: it failed five times")
    assert (action_event(works, paused), action_event(paused, works)) == (stopped, goes)
    assert (action_event(works, works), action_event(paused, paused)) == (None, None)


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TASKS = [
    MetricSample("amoro_open_tasks", 3, ("a", "planned")),
    MetricSample("amoro_open_tasks", 2, ("a", "acked")),
    MetricSample("amoro_open_tasks", 5, ("b", "planned")),
    MetricSample("amoro_optimizer_threads", 0, ("a",)),
    MetricSample("amoro_optimizer_threads", 4, ("b",)),
]
NOW_TASKS = Counted(TASKS)
RULES = {condition.name: condition.when for condition in CONDITIONS}


def test_a_series_that_is_missing_is_not_zero_and_growth_counts_from_an_hour_ago() -> None:
    assert matching(NOW_TASKS.sum(metrics.THREADS, "group"), operator.lt, 4) == {("a",): 0}
    assert RULES["tasks-wait"].values(NOW_TASKS) == {("a",): 3}
    assert RULES["tasks-wait"].values(Counted(TASKS[:3])) == {}
    assert RULES["tasks-not-taken"].values(NOW_TASKS) == {}
    assert RULES["tasks-not-taken"].values(Counted([*TASKS, MetricSample("amoro_open_tasks", 0, ("b", "acked"))])) == {
        ("b",): 5
    }
    ended = MetricSample("amoro_processes_total", 7, ("full", "failed"))
    before = {("amoro_processes_total", ("full", "failed")): 4.0}
    assert Counted([ended]).increase(metrics.ENDED, "result") == {("failed",): 7}
    assert Counted([ended], before).increase(metrics.ENDED, "result") == {("failed",): 3}


@pytest.mark.parametrize(("failed", "others", "found"), [(3, 11, {(): 3 / 14}), (3, 12, {}), (2, 0, {}), (0, 0, {})])
def test_a_share_needs_a_least_number(failed: float, others: float, found: dict[tuple[str, ...], float]) -> None:
    name = "amoro_processes_total"
    samples = [MetricSample(name, failed, ("full", "failed")), MetricSample(name, others, ("full", "success"))]
    assert RULES["processes-fail"].values(Counted(samples)) == found


def test_a_condition_is_raised_once_it_has_lasted() -> None:
    samples = [MetricSample("amoro_state_disk_free_ratio", 0.05)]
    (held,) = evaluate_rules(CONDITIONS, Counted(samples), (), NOON)
    assert (held.condition.name, held.text, held.since) == (
        "disk-low",
        "5% of the disk with the state directory is free",
        NOON,
    )
    last = NOON + held.condition.lasts
    (again,) = evaluate_rules(CONDITIONS, Counted(samples), (held,), last)
    assert (again.since, again.is_raised(last - timedelta(seconds=1)), again.is_raised(last)) == (NOON, False, True)
    assert evaluate_rules(CONDITIONS, Counted([MetricSample("amoro_state_disk_free_ratio", 0.5)]), (again,), last) == ()
    set_back = NOON - timedelta(hours=1)  # a clock that is set back must not make it hold in the future
    assert evaluate_rules(CONDITIONS, Counted(samples), (held,), set_back)[0].since == set_back


def test_every_text_names_what_it_is_about() -> None:
    for condition in CONDITIONS:
        labels = tuple(f"the {label}" for label in condition.when.by)
        text = ActiveAlert(condition, labels, 7200.0, NOON).text
        assert all(label in text for label in labels), condition.name


class Watched:
    """A service whose samples and clock are set by hand."""

    def __init__(self) -> None:
        self.now, self.failed, self.reads = NOON, 0.0, 0
        self.service = ConditionService(self._read, lambda: self.now)

    def _read(self) -> list[MetricSample]:
        self.reads += 1
        return [MetricSample("amoro_failed_checks_total", self.failed, ("full",))]

    def names(self, later: timedelta) -> list[str]:
        self.now += later
        return [held.condition.name for held in self.service.look()[0]]


def test_what_happened_is_held_for_an_hour_and_many_who_ask_cost_one_reading() -> None:
    told = Watched()
    for _ in range(10):
        told.names(timedelta(milliseconds=50))
    assert told.reads == 1
    told.names(timedelta(seconds=1))
    assert told.reads == 2
    told = Watched()
    minute = timedelta(minutes=1)
    assert told.names(minute) == []
    told.failed += 1
    assert [told.names(minute) for _ in range(60)] == [["check-failed"]] * 60
    assert told.names(minute) == []
    told.failed += 1
    assert told.names(minute) == ["check-failed"]
