"""The machines of tasks, processes and tables: what each event changes, random sequences, and each known race.

The edges stand in the machines, and as diagrams in `docs/design.md`, which are drawn from them.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amoro_core.errors import IllegalState, StaleReport
from amoro_core.model.processes import (
    ACTIVE_PROCESS_STATUSES,
    Delay,
    OptimizerThread,
    OptimizingProcess,
    OptimizingTask,
    ProcessStatus,
    Receipt,
    TaskId,
    TaskStatus,
)
from amoro_core.model.tables import OptimizingStatus, OptimizingType, TableIdentifier, TableRuntime, TableState
from amoro_core.state import processes, tables, tasks
from amoro_core.state.processes import (
    CommitDelayed,
    CommitRefuted,
    CommitSent,
    Committed,
    CommittedPartly,
    CommittedSome,
    CommitUnclear,
    ProcessClosed,
    ProcessEvent,
    TableMissing,
    is_refused_for_good,
)
from amoro_core.state.tables import PlanFailed, TableEvent
from amoro_core.state.tasks import (
    Ack,
    Cancel,
    Fail,
    Reset,
    Retry,
    Schedule,
    Succeed,
    TaskEvent,
    adopt,
    is_poisoned,
    repeats,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER = NOW + timedelta(seconds=7)

ONE = OptimizerThread("optimizer-1", 1)
TWO = OptimizerThread("optimizer-2", 4)
PLANNED = OptimizingTask(TaskId("0199-process", 3), 7, "default", TaskStatus.PLANNED, cost=10, partition="a=1")
SCHEDULED = PLANNED._replace(status=TaskStatus.SCHEDULED, attempt=1, thread=ONE, scheduled_at=NOW)
ACKED = SCHEDULED._replace(status=TaskStatus.ACKED, acked_at=NOW)
SUCCESS = ACKED._replace(status=TaskStatus.SUCCESS, thread=None, ended_on=ONE, finished_at=NOW)
FAILED = SUCCESS._replace(status=TaskStatus.FAILED, failed_runs=1, failure_code="AMORO-1002", failure="no such file")
CANCELED = ACKED._replace(status=TaskStatus.CANCELED, thread=None, ended_on=ONE, finished_at=NOW, failure="closed")
STAGES = {task.status: task for task in (PLANNED, SCHEDULED, ACKED, SUCCESS, FAILED, CANCELED)}
TASK_EVENTS: tuple[TaskEvent, ...] = (
    Schedule(TWO),
    Ack(1, "optimizer-1"),
    Succeed(1, "optimizer-1"),
    Fail(1, "optimizer-1", "AMORO-1003", "disk full"),
    Retry(),
    Reset("silent for 60 s"),
    Cancel("process closed"),
)
RESET = {"attempt": 1, "lost_attempts": 1, "lost_optimizers": ("optimizer-1",), "failure": "silent for 60 s"}
ENDED: dict[str, Any] = {"thread": None, "ended_on": ONE, "finished_at": LATER}
CLOSED: dict[str, Any] = {"status": TaskStatus.CANCELED, "finished_at": LATER, "failure": "process closed"}
#: What each edge makes of a task; what is not here is refused.
TASKS: dict[tuple[TaskStatus, type[TaskEvent]], OptimizingTask] = {
    (TaskStatus.PLANNED, Schedule): SCHEDULED._replace(thread=TWO, scheduled_at=LATER),
    (TaskStatus.PLANNED, Cancel): PLANNED._replace(**CLOSED),
    (TaskStatus.SCHEDULED, Ack): SCHEDULED._replace(status=TaskStatus.ACKED, acked_at=LATER),
    (TaskStatus.SCHEDULED, Reset): PLANNED._replace(**RESET),
    (TaskStatus.SCHEDULED, Cancel): SCHEDULED._replace(**ENDED | CLOSED),
    (TaskStatus.ACKED, Succeed): ACKED._replace(status=TaskStatus.SUCCESS, **ENDED),
    (TaskStatus.ACKED, Fail): ACKED._replace(
        status=TaskStatus.FAILED, failed_runs=1, failure_code="AMORO-1003", failure="disk full", **ENDED
    ),
    (TaskStatus.ACKED, Reset): PLANNED._replace(**RESET),
    (TaskStatus.ACKED, Cancel): ACKED._replace(**ENDED | CLOSED),
    (TaskStatus.FAILED, Retry): PLANNED._replace(
        attempt=1, failed_runs=1, failure_code="AMORO-1002", failure="no such file"
    ),
}


@pytest.mark.parametrize("status", TaskStatus)
def test_a_task_goes_along_its_edges_alone_and_refuses_all_else_by_its_id(status: TaskStatus) -> None:
    for event in TASK_EVENTS:
        if (expected := TASKS.get((status, type(event)))) is not None:
            assert tasks.advance(STAGES[status], event, LATER) == expected
            continue
        is_late_report = isinstance(event, Ack | Succeed | Fail) and STAGES[status].thread is None
        with pytest.raises(StaleReport if is_late_report else IllegalState) as refusal:
            tasks.advance(STAGES[status], event, LATER)
        assert "0199-process" in refusal.value.message
        assert status.value in refusal.value.message
    assert {edge: task.status for edge, task in TASKS.items()} == tasks.TRANSITIONS


_optimizers = st.sampled_from(["optimizer-1", "optimizer-2", "optimizer-3"])
_attempts = st.integers(0, 4)
_task_events: st.SearchStrategy[TaskEvent] = st.one_of(
    st.builds(Schedule, st.builds(OptimizerThread, _optimizers, st.integers(1, 2))),
    st.builds(Ack, _attempts, _optimizers),
    st.builds(Succeed, _attempts, _optimizers),
    st.builds(Fail, _attempts, _optimizers, st.just("AMORO-1001"), st.just("broken")),
    st.just(Retry()),
    st.builds(Reset, st.just("lost"), st.booleans()),
    st.just(Cancel("closed")),
)


@given(st.lists(_task_events, max_size=40))
def test_no_sequence_of_events_breaks_an_invariant_of_tasks(events: list[TaskEvent]) -> None:
    task = PLANNED
    for second, event in enumerate(events):
        before = task
        try:
            task = tasks.advance(before, event, NOW + timedelta(seconds=second))
        except (StaleReport, IllegalState):
            continue
        assert before.status not in (TaskStatus.SUCCESS, TaskStatus.CANCELED)
        assert (task.thread is not None) == (task.status in (TaskStatus.SCHEDULED, TaskStatus.ACKED))
        assert task.attempt == before.attempt + isinstance(event, Schedule)
        assert task.failed_runs == before.failed_runs + isinstance(event, Fail)
        assert task.lost_attempts == before.lost_attempts + (isinstance(event, Reset) and event.lost)
        assert task.failed_runs + task.lost_attempts <= task.attempt
        assert len(set(task.lost_optimizers)) == len(task.lost_optimizers) <= task.lost_attempts
        ended = task.status in (TaskStatus.SUCCESS, TaskStatus.FAILED, TaskStatus.CANCELED)
        assert (task.finished_at is not None) == ended
        if isinstance(event, Ack | Succeed | Fail):
            assert before.thread is not None
            assert (event.attempt, event.optimizer_id) == (before.attempt, before.thread.optimizer_id)


@pytest.mark.parametrize("held", [SCHEDULED, ACKED], ids=["scheduled", "acked"])
@pytest.mark.parametrize(("attempt", "optimizer"), [(2, "optimizer-1"), (0, "optimizer-1"), (1, "optimizer-2")])
def test_a_report_of_another_attempt_or_optimizer_is_stale(held: OptimizingTask, attempt: int, optimizer: str) -> None:
    for report in (Ack(attempt, optimizer), Succeed(attempt, optimizer), Fail(attempt, optimizer, "", "")):
        with pytest.raises(StaleReport, match="held by optimizer optimizer-1"):
            tasks.advance(held, report, LATER)


def _again(task: OptimizingTask, thread: OptimizerThread, *, acked: bool = False) -> OptimizingTask:
    """The task in its next attempt."""
    held = tasks.advance(task, Schedule(thread), LATER)
    return tasks.advance(held, Ack(held.attempt, thread.optimizer_id), LATER) if acked else held


def _lose(task: OptimizingTask, thread: OptimizerThread, *, acked: bool = True) -> OptimizingTask:
    return tasks.advance(_again(task, thread, acked=acked), Reset("gone"), LATER)


def test_duplicate_reports_are_refused_and_known_as_repetitions() -> None:
    success, failure = Succeed(1, "optimizer-1"), Fail(1, "optimizer-1", "AMORO-1003", "disk full")
    done, failed = (tasks.advance(ACKED, report, LATER) for report in (success, failure))
    for after, report in ((done, success), (failed, failure)):
        with pytest.raises(StaleReport):
            tasks.advance(after, report, LATER)
    with pytest.raises(IllegalState):
        tasks.advance(ACKED, Ack(1, "optimizer-1"), LATER)
    repeated = {
        (done, success), (failed, failure), (ACKED, Ack(1, "optimizer-1")),
    }  # fmt: skip
    others = (Succeed(2, "optimizer-1"), replace(failure, message="another"), Ack(1, "optimizer-2"))
    retried = tasks.advance(failed, Retry(), LATER)
    canceled = tasks.advance(ACKED, Cancel("closed"), LATER)
    found = {
        (task, report)
        for task in (SCHEDULED, ACKED, done, failed, retried, canceled)
        for report in (success, failure, Ack(1, "optimizer-1"), *others)
        if repeats(task, report)
    }
    assert found == repeated


def test_a_task_is_poisoned_that_loses_three_attempts_over_two_registrations_and_no_other() -> None:
    twice = _lose(_lose(PLANNED, ONE), TWO)
    assert not is_poisoned(twice)
    assert is_poisoned(_lose(twice, TWO))
    lost = drained = PLANNED
    for _ in range(5):
        lost = _lose(lost, ONE, acked=False)
    for thread in (ONE, TWO, ONE, TWO):
        drained = tasks.advance(_again(drained, thread), Reset("drained", lost=False), LATER)
    assert (lost.lost_attempts, lost.lost_optimizers, is_poisoned(lost)) == (5, ("optimizer-1",), False)
    assert (drained.attempt, drained.lost_attempts, drained.lost_optimizers) == (4, 0, ())
    assert not is_poisoned(drained)


def test_failures_count_apart_from_losses_and_success_clears_what_went_wrong_before() -> None:
    retried = tasks.advance(FAILED, Retry(), LATER)
    lost = _lose(retried, TWO)
    assert (lost.failed_runs, lost.lost_attempts, lost.attempt) == (1, 1, 2)
    done = tasks.advance(_again(retried, ONE, acked=True), Succeed(2, "optimizer-1"), LATER)
    assert (done.failed_runs, done.failure_code, done.failure) == (1, "", "")


def test_an_attempt_that_is_held_goes_on_under_the_new_registration_and_no_other() -> None:
    adopted = adopt(ACKED, 1, "optimizer-9", 5, LATER)
    assert adopted == ACKED._replace(thread=OptimizerThread("optimizer-9", 5))
    with pytest.raises(StaleReport):
        tasks.advance(adopted, Succeed(1, "optimizer-1"), LATER)
    assert tasks.advance(adopted, Succeed(1, "optimizer-9"), LATER).status is TaskStatus.SUCCESS
    # One without an ack has the whole time for it again.
    adopted = adopt(SCHEDULED, 1, "optimizer-9", 5, LATER)
    assert adopted == SCHEDULED._replace(thread=OptimizerThread("optimizer-9", 5), scheduled_at=LATER)
    second = _again(tasks.advance(SCHEDULED, Reset("silent"), LATER), TWO)
    for task, attempt in ((second, 1), *((task, task.attempt) for task in (PLANNED, SUCCESS, FAILED, CANCELED))):
        with pytest.raises(StaleReport):
            adopt(task, attempt, "optimizer-9", 5, LATER)


RECEIPT = Receipt(12, 1, 3, 0, 0, 1200, 1000, 50, 50, 111, 110, 4000)
RUNNING = OptimizingProcess(
    process_id="0199-process",
    table_id=7,
    type=OptimizingType.MINOR,
    status=ProcessStatus.RUNNING,
    trigger="evaluation",
    reason="12 fragments",
    table_uuid="uuid-7",
    format_version=2,
    snapshot_id=110,
    sequence_number=9,
    schema_id=0,
    last_column_id=3,
    created_at=NOW,
)
COMMITTING = replace(RUNNING, status=ProcessStatus.COMMITTING, commit_tries=1)
P = ProcessStatus
FAULTLESS: dict[str, Any] = {"failure_code": "", "failure": ""}
CLEAN = {**FAULTLESS, "delay": None}
#: What an event changes of a process beside its status, wherever it comes.
CHANGES: tuple[tuple[ProcessEvent, dict[str, Any]], ...] = (
    (processes.Started(), {}),
    (processes.BeginCommit(), CLEAN),
    (CommitSent(), {"commit_tries": 2}),
    (CommitRefuted(), CLEAN),
    (CommittedSome(), CLEAN),
    (processes.GroupsDropped(), CLEAN),
    (processes.Confirmed(), FAULTLESS),
    (CommitUnclear("reset"), {"failure": "reset", "delay": None}),
    (
        CommitDelayed("AMORO-1010", "no answer"),
        {"delay": Delay("AMORO-1010", "no answer", LATER + timedelta(seconds=10), 2)},
    ),
    (processes.Hold("too many"), {"failure_code": "AMORO-6002", "failure": "too many", "delay": None, "receipt": None}),
    (processes.BeginClearing(RECEIPT), {**CLEAN, "receipt": RECEIPT}),
    (processes.Cleared(RECEIPT), {"delay": None, "finished_at": LATER, "receipt": RECEIPT}),
    (
        processes.ClearedPartly("C", "kept"),
        {"failure_code": "C", "failure": "kept", "delay": None, "finished_at": LATER},
    ),
    (Committed(RECEIPT), {**CLEAN, "finished_at": LATER, "receipt": RECEIPT}),
    (CommittedPartly(RECEIPT), {**CLEAN, "finished_at": LATER, "receipt": RECEIPT}),
    (
        processes.EndedPartly(RECEIPT, "C", "lost"),
        {"failure_code": "C", "failure": "lost", "delay": None, "finished_at": LATER, "receipt": RECEIPT},
    ),
    *(
        (event, {"failure_code": code, "failure": "no", "delay": None, "finished_at": LATER, "receipt": None})
        for event, code in (
            (TableMissing("AMORO-3002", "no"), "AMORO-3002"),
            (processes.ProcessFailed("AMORO-5001", "no"), "AMORO-5001"),
            (ProcessClosed("no"), ""),
        )
    ),
)


@pytest.mark.parametrize("status", P)
def test_a_process_goes_along_its_edges_alone_and_refuses_all_else_by_its_id(status: ProcessStatus) -> None:
    before = replace(
        COMMITTING, status=status, failure_code="B", failure="before", delay=Delay("AMORO-1010", "no answer", NOW)
    )
    for event, changes in CHANGES:
        if (following := processes.TRANSITIONS.get((status, type(event)))) is not None:
            assert processes.advance(before, event, LATER) == replace(before, status=following, **changes)
            continue
        with pytest.raises(IllegalState, match=f"process 0199-process is {status}: {type(event).__name__}"):
            processes.advance(before, event, LATER)


def test_what_was_committed_stays_when_clearing_tells_of_nothing_else() -> None:
    clearing = replace(COMMITTING, status=P.CLEARING, receipt=RECEIPT)
    assert processes.advance(clearing, processes.Cleared(None), LATER).receipt == RECEIPT


@given(st.lists(st.sampled_from([event for event, _ in CHANGES]), max_size=30))
def test_no_sequence_of_events_breaks_an_invariant_of_processes(events: list[ProcessEvent]) -> None:
    process, unclear = RUNNING, False
    for event in events:
        try:
            process = processes.advance(process, event, LATER)
        except IllegalState:
            continue
        told = CommitRefuted | Committed | CommittedPartly | CommittedSome | TableMissing | processes.BeginClearing
        unclear = isinstance(event, CommitUnclear) or (unclear and not isinstance(event, told))
        assert process.is_active == (process.status in ACTIVE_PROCESS_STATUSES)
        assert (process.receipt is not None) == (process.status in (P.CLEARING, P.SUCCESS, P.PARTIAL))
        waits = (P.RUNNING, P.COMMITTING, P.COMMIT_UNKNOWN, P.CLEARING)
        assert process.delay is None or process.status in waits
        # An unknown commit is left through the table's word alone.
        assert unclear == (process.status is P.COMMIT_UNKNOWN)


REFUSED = CommitDelayed("AMORO-1013", "no right", refused=True)
BUSY = CommitDelayed("AMORO-1010", "no answer")


def delayed(*events: ProcessEvent, process: OptimizingProcess = COMMITTING) -> OptimizingProcess:
    for event in events:
        process = processes.advance(process, event, LATER)
    return process


def test_a_commit_that_waits_is_tried_again_and_refused_for_good_by_three_refusals_in_a_row() -> None:
    found = [delayed(*[BUSY] * tries).delay for tries in range(1, 7)]
    assert [one and (one.retry_at - LATER).total_seconds() for one in found] == [5, 10, 20, 40, 60, 60]
    assert delayed(BUSY, CommitSent(), BUSY).delay == found[1]
    for events, is_for_good in (
        ((), False),
        ((REFUSED, REFUSED), False),
        ((REFUSED, REFUSED, REFUSED), True),
        ((REFUSED, REFUSED, BUSY, REFUSED), False),
        ((BUSY, BUSY, BUSY, BUSY), False),
    ):
        assert is_refused_for_good(delayed(*events)) is is_for_good
    assert COMMITTING.waiting == ""
    when = "next try at 2026-01-02 03:04:17 UTC"
    assert delayed(BUSY).waiting == f"waiting to commit: no answer, {when}"
    unknown = delayed(CommitUnclear("504"), BUSY)
    assert unknown.waiting == f"waiting to know whether it was committed: no answer, {when}"


S = OptimizingStatus
IDLE = TableRuntime(
    table_id=7,
    identifier=TableIdentifier("cat", ("db",), "t"),
    uuid="uuid-7",
    format_version=2,
    location="file:///w/db/t",
    group="default",
    status=S.IDLE,
    status_since=NOW,
    status_reason="before",
    failures=2,
    retry_at=LATER,
)
TABLE_EVENTS: tuple[TableEvent, ...] = (
    tables.Necessary(OptimizingType.MAJOR, "why"),
    tables.Refuse("encryption", "why"),
    *(
        event("why")
        for event in (
            tables.Unnecessary, tables.BeginPlan, tables.PlannedMinor, tables.PlannedMajor, tables.PlannedFull,
            tables.PlanEmpty, PlanFailed, tables.BeginCommit, tables.ProcessEnded, tables.Mended,
        )
    ),
)  # fmt: skip


@pytest.mark.parametrize("status", S)
def test_a_table_goes_along_its_edges_alone_and_refuses_all_else_by_its_name(status: OptimizingStatus) -> None:
    refusal = "location" if status is S.REFUSED else ""
    before = replace(IDLE, status=status, refusal=refusal, evaluated_snapshot_id=7)
    for event in TABLE_EVENTS:
        following = tables.TRANSITIONS.get((status, type(event)))
        if following is None:
            with pytest.raises(IllegalState, match=rf"table cat\.db\.t is {status}: {type(event).__name__}"):
                tables.advance(before, event, LATER)
            continue
        # What was found before a plan failed or a process ended is to be found again.
        is_open = isinstance(event, PlanFailed | tables.ProcessEnded)
        assert tables.advance(before, event, LATER) == replace(
            before,
            status=following,
            status_since=NOW if following is status else LATER,
            status_reason="why",
            refusal="encryption" if isinstance(event, tables.Refuse) else "",
            pending_type=OptimizingType.MAJOR if isinstance(event, tables.Necessary) else None,
            evaluated_snapshot_id=None if is_open else 7,
        )


@given(st.lists(st.sampled_from(TABLE_EVENTS), max_size=40))
def test_no_sequence_of_events_breaks_an_invariant_of_tables(events: list[TableEvent]) -> None:
    runtime = IDLE
    for minute, event in enumerate(events, 1):
        before = runtime
        try:
            runtime = tables.advance(before, event, NOW + timedelta(minutes=minute))
        except IllegalState:
            continue
        assert (runtime.refusal != "") == (runtime.status is S.REFUSED)
        assert (runtime.status_since == before.status_since) == (runtime.status is before.status)
        if before.status is S.COMMITTING:
            assert isinstance(event, tables.ProcessEnded)


@pytest.mark.parametrize(
    ("state", "of"),
    [
        (TableState.NEW, {"evaluated_at": None}),
        (TableState.HEALTHY, {}),
        (TableState.DUE, {"pending_type": OptimizingType.MINOR}),
        (TableState.DUE, {"pending_type": OptimizingType.MINOR, "status": S.PENDING}),
        (TableState.OBSERVED, {"pending_type": OptimizingType.MINOR, "enabled": False}),
        (TableState.FAILING, {"failures": 1}),
        (TableState.REFUSED, {"failures": 1, "status": S.REFUSED, "refusal": "format"}),
        *(
            (TableState.OPTIMIZING, {"failures": 1, "status": status, "pending_type": OptimizingType.FULL})
            for status in S
            if status not in (S.IDLE, S.PENDING, S.REFUSED)
        ),
    ],
)
def test_the_state_that_people_see(state: TableState, of: dict[str, Any]) -> None:
    sound = replace(IDLE, failures=0, retry_at=None, evaluated_at=NOW, enabled=True)
    assert replace(sound, **of).state is state
