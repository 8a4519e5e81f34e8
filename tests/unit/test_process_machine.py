"""The process machine: every status with every event, and what follows from the tasks."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amoro_core.errors import IllegalState
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
from amoro_core.model.tables import OptimizingType
from amoro_core.state import tasks as task_machine
from amoro_core.state.deciding import (
    Decision,
    EndCommitted,
    EndWork,
    FailProcess,
    GiveUpTask,
    RetryTask,
    Settled,
    StartCommit,
    Wait,
    decide,
)
from amoro_core.state.processes import (
    TRANSITIONS,
    BeginClearing,
    BeginCommit,
    Cleared,
    ClearedPartly,
    CommitDelayed,
    CommitRefuted,
    CommitSent,
    Committed,
    CommittedPartly,
    CommittedSome,
    CommitUnclear,
    Confirmed,
    EndedPartly,
    GroupsDropped,
    Hold,
    ProcessClosed,
    ProcessEvent,
    ProcessFailed,
    Started,
    TableGone,
    advance,
    is_refused_for_good,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
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
UNKNOWN = replace(COMMITTING, status=ProcessStatus.COMMIT_UNKNOWN, failure="504")
SUCCESS = replace(COMMITTING, status=ProcessStatus.SUCCESS, finished_at=NOW, receipt=RECEIPT)
STAGES = {
    ProcessStatus.REQUESTED: replace(RUNNING, status=ProcessStatus.REQUESTED),
    ProcessStatus.RUNNING: RUNNING,
    ProcessStatus.COMMITTING: COMMITTING,
    ProcessStatus.COMMIT_UNKNOWN: UNKNOWN,
    ProcessStatus.CLEARING: replace(COMMITTING, status=ProcessStatus.CLEARING, receipt=RECEIPT),
    ProcessStatus.HELD: replace(RUNNING, status=ProcessStatus.HELD, failure_code="AMORO-6002", failure="too many"),
    ProcessStatus.SUCCESS: SUCCESS,
    ProcessStatus.PARTIAL: replace(SUCCESS, status=ProcessStatus.PARTIAL),
    ProcessStatus.FAILED: replace(RUNNING, status=ProcessStatus.FAILED, finished_at=NOW, failure="x"),
    ProcessStatus.CLOSED: replace(RUNNING, status=ProcessStatus.CLOSED, finished_at=NOW, failure="y"),
}
EVENTS: dict[type[ProcessEvent], ProcessEvent] = {
    BeginCommit: BeginCommit(),
    BeginClearing: BeginClearing(RECEIPT),
    Cleared: Cleared(RECEIPT),
    ClearedPartly: ClearedPartly("AMORO-1013", "2 files were kept"),
    CommitSent: CommitSent(),
    Committed: Committed(RECEIPT),
    CommittedPartly: CommittedPartly(RECEIPT),
    CommitDelayed: CommitDelayed("AMORO-1010", "no answer"),
    CommitUnclear: CommitUnclear("connection reset"),
    CommitRefuted: CommitRefuted(),
    TableGone: TableGone("AMORO-3002", "not there"),
    ProcessFailed: ProcessFailed("AMORO-5001", "conflict"),
    ProcessClosed: ProcessClosed("by hand"),
    Hold: Hold("too many"),
    Confirmed: Confirmed(),
    Started: Started(),
    CommittedSome: CommittedSome(),
    GroupsDropped: GroupsDropped(),
    EndedPartly: EndedPartly(RECEIPT, "AMORO-5001", "1 of 2 groups was lost"),
}
FIRST_DELAY = Delay("AMORO-1010", "no answer", LATER + timedelta(seconds=5))
ENDED = replace(COMMITTING, finished_at=LATER, receipt=RECEIPT)
CLEARING = STAGES[ProcessStatus.CLEARING]
GONE = replace(
    COMMITTING, status=ProcessStatus.FAILED, finished_at=LATER, failure_code="AMORO-3002", failure="not there"
)
PARTLY = replace(ENDED, status=ProcessStatus.PARTIAL, failure_code="AMORO-5001", failure="1 of 2 groups was lost")
RESULTS: dict[tuple[ProcessStatus, type[ProcessEvent]], OptimizingProcess] = {
    (ProcessStatus.REQUESTED, Started): RUNNING,
    (ProcessStatus.REQUESTED, ProcessClosed): replace(
        RUNNING, status=ProcessStatus.CLOSED, finished_at=LATER, failure="by hand"
    ),
    (ProcessStatus.RUNNING, Committed): replace(ENDED, status=ProcessStatus.SUCCESS, commit_tries=0),
    (ProcessStatus.RUNNING, EndedPartly): replace(PARTLY, commit_tries=0),
    (ProcessStatus.COMMITTING, EndedPartly): PARTLY,
    (ProcessStatus.COMMITTING, CommittedSome): replace(COMMITTING, status=ProcessStatus.RUNNING),
    (ProcessStatus.COMMITTING, GroupsDropped): replace(COMMITTING, status=ProcessStatus.RUNNING),
    (ProcessStatus.COMMIT_UNKNOWN, CommittedSome): replace(COMMITTING, status=ProcessStatus.RUNNING),
    (ProcessStatus.RUNNING, BeginCommit): replace(RUNNING, status=ProcessStatus.COMMITTING),
    (ProcessStatus.RUNNING, ProcessFailed): replace(
        RUNNING, status=ProcessStatus.FAILED, finished_at=LATER, failure_code="AMORO-5001", failure="conflict"
    ),
    (ProcessStatus.RUNNING, ProcessClosed): replace(
        RUNNING, status=ProcessStatus.CLOSED, finished_at=LATER, failure="by hand"
    ),
    (ProcessStatus.COMMITTING, CommitSent): replace(COMMITTING, commit_tries=2),
    (ProcessStatus.COMMITTING, Committed): replace(ENDED, status=ProcessStatus.SUCCESS),
    (ProcessStatus.COMMITTING, CommittedPartly): replace(ENDED, status=ProcessStatus.PARTIAL),
    (ProcessStatus.COMMITTING, CommitUnclear): replace(
        COMMITTING, status=ProcessStatus.COMMIT_UNKNOWN, failure="connection reset"
    ),
    (ProcessStatus.COMMITTING, ProcessFailed): replace(
        COMMITTING, status=ProcessStatus.FAILED, finished_at=LATER, failure_code="AMORO-5001", failure="conflict"
    ),
    (ProcessStatus.COMMIT_UNKNOWN, CommitSent): replace(UNKNOWN, commit_tries=2),
    (ProcessStatus.COMMIT_UNKNOWN, Committed): replace(ENDED, status=ProcessStatus.SUCCESS),
    (ProcessStatus.COMMIT_UNKNOWN, CommittedPartly): replace(ENDED, status=ProcessStatus.PARTIAL),
    (ProcessStatus.COMMIT_UNKNOWN, CommitRefuted): COMMITTING,
    (ProcessStatus.RUNNING, CommitDelayed): replace(RUNNING, delay=FIRST_DELAY),
    (ProcessStatus.COMMITTING, CommitDelayed): replace(COMMITTING, delay=FIRST_DELAY),
    (ProcessStatus.COMMIT_UNKNOWN, CommitDelayed): replace(UNKNOWN, delay=FIRST_DELAY),
    (ProcessStatus.COMMITTING, ProcessClosed): replace(
        COMMITTING, status=ProcessStatus.CLOSED, finished_at=LATER, failure="by hand"
    ),
    (ProcessStatus.COMMITTING, TableGone): GONE,
    (ProcessStatus.COMMIT_UNKNOWN, TableGone): GONE,
    (ProcessStatus.RUNNING, Cleared): replace(
        RUNNING, status=ProcessStatus.SUCCESS, finished_at=LATER, receipt=RECEIPT
    ),
    (ProcessStatus.RUNNING, BeginClearing): replace(RUNNING, status=ProcessStatus.CLEARING, receipt=RECEIPT),
    (ProcessStatus.COMMITTING, BeginClearing): CLEARING,
    (ProcessStatus.COMMIT_UNKNOWN, BeginClearing): CLEARING,
    (ProcessStatus.CLEARING, CommitDelayed): replace(CLEARING, delay=FIRST_DELAY),
    (ProcessStatus.RUNNING, Hold): STAGES[ProcessStatus.HELD],
    (ProcessStatus.CLEARING, Hold): replace(
        COMMITTING, status=ProcessStatus.HELD, failure_code="AMORO-6002", failure="too many"
    ),
    (ProcessStatus.HELD, Confirmed): RUNNING,
    (ProcessStatus.HELD, ProcessClosed): replace(
        RUNNING, status=ProcessStatus.CLOSED, finished_at=LATER, failure="by hand"
    ),
    (ProcessStatus.CLEARING, ProcessClosed): replace(
        COMMITTING, status=ProcessStatus.CLOSED, finished_at=LATER, failure="by hand"
    ),
    (ProcessStatus.CLEARING, Cleared): replace(CLEARING, status=ProcessStatus.SUCCESS, finished_at=LATER),
    (ProcessStatus.CLEARING, ClearedPartly): replace(
        CLEARING,
        status=ProcessStatus.PARTIAL,
        finished_at=LATER,
        failure_code="AMORO-1013",
        failure="2 files were kept",
    ),
}


def test_the_table_has_exactly_these_edges() -> None:
    assert {edge: process.status for edge, process in RESULTS.items()} == dict(TRANSITIONS)


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("status", ProcessStatus)
def test_every_status_with_every_event(status: ProcessStatus, kind: type[ProcessEvent]) -> None:
    if (status, kind) in RESULTS:
        assert advance(STAGES[status], EVENTS[kind], LATER) == RESULTS[status, kind]
        return
    with pytest.raises(IllegalState, match=f"process 0199-process is {status}: {kind.__name__}"):
        advance(STAGES[status], EVENTS[kind], LATER)


DONE_OR_NEARLY = (ProcessStatus.CLEARING, ProcessStatus.SUCCESS, ProcessStatus.PARTIAL)
WAITING = (ProcessStatus.RUNNING, ProcessStatus.COMMITTING, ProcessStatus.COMMIT_UNKNOWN, ProcessStatus.CLEARING)


@given(st.lists(st.sampled_from(list(EVENTS.values())), max_size=30))
def test_no_sequence_of_events_breaks_an_invariant(events: list[ProcessEvent]) -> None:
    process, unclear = RUNNING, False
    for event in events:
        try:
            process = advance(process, event, LATER)
        except IllegalState:
            continue
        unclear = isinstance(event, CommitUnclear) or (
            unclear
            and not isinstance(
                event, CommitRefuted | Committed | CommittedPartly | CommittedSome | TableGone | BeginClearing
            )
        )
        assert process.is_active == (process.status in ACTIVE_PROCESS_STATUSES)
        assert (process.receipt is not None) == (process.status in DONE_OR_NEARLY)
        assert process.delay is None or process.status in WAITING
        # An unknown commit is left through the table's word alone.
        assert unclear == (process.status is ProcessStatus.COMMIT_UNKNOWN)


class Resumed:
    """An event of its own."""


def test_a_status_of_its_own_is_rows_of_the_table() -> None:
    """As issues to come add them: a process that waits for a word of its own kind."""
    paused = replace(RUNNING, status="paused")
    rows = {("paused", Resumed): ProcessStatus.RUNNING, ("paused", ProcessClosed): ProcessStatus.CLOSED}
    transitions = {**TRANSITIONS, **rows}
    assert advance(paused, Resumed(), LATER, transitions) == RUNNING
    closed = advance(paused, ProcessClosed("by hand"), LATER, transitions)
    assert (closed.status, closed.failure, closed.finished_at) == (ProcessStatus.CLOSED, "by hand", LATER)
    assert decide(paused, [DONE]) == Wait()
    with pytest.raises(IllegalState, match="process 0199-process is paused: BeginCommit"):
        advance(paused, BeginCommit(), LATER, transitions)
    with pytest.raises(IllegalState, match="process 0199-process is paused: Resumed"):
        advance(paused, Resumed(), LATER)


# Waiting


def delayed(*events: ProcessEvent, process: OptimizingProcess = COMMITTING) -> OptimizingProcess:
    for event in events:
        process = advance(process, event, LATER)
    return process


REFUSED = CommitDelayed("AMORO-1013", "no right", refused=True)
BUSY = CommitDelayed("AMORO-1010", "no answer")


def test_a_commit_that_waits_is_tried_again_after_5_seconds_doubling_to_a_minute() -> None:
    process, pauses = COMMITTING, []
    for _ in range(6):
        process = advance(process, BUSY, LATER)
        assert process.delay is not None
        pauses.append((process.delay.retry_at - LATER).total_seconds())
    assert pauses == [5, 10, 20, 40, 60, 60]


def test_an_attempt_does_not_shorten_the_pauses() -> None:
    process = delayed(BUSY, CommitSent(), BUSY)
    assert process.delay is not None
    assert (process.delay.tries, process.delay.retry_at) == (2, LATER + timedelta(seconds=10))


def test_three_refusals_in_a_row_are_a_refusal_for_good() -> None:
    assert not is_refused_for_good(delayed(REFUSED, REFUSED))
    assert is_refused_for_good(delayed(REFUSED, REFUSED, REFUSED))
    assert not is_refused_for_good(delayed(REFUSED, REFUSED, BUSY, REFUSED))
    assert not is_refused_for_good(delayed(BUSY, BUSY, BUSY, BUSY))
    assert not is_refused_for_good(COMMITTING)


def test_what_a_commit_waits_for_in_words() -> None:
    assert COMMITTING.waiting == ""
    when = "next try at 2026-01-02 03:05:10 UTC"
    assert delayed(BUSY).waiting == f"waiting to commit: no answer, {when}"
    unknown = delayed(BUSY, process=UNKNOWN)
    assert unknown.waiting == f"waiting to know whether it was committed: no answer, {when}"


# What follows from the tasks


def _task(number: int, status: TaskStatus, **fields: object) -> OptimizingTask:
    base = OptimizingTask(TaskId("0199-process", number), 7, "default", status, attempt=1)
    if status in (TaskStatus.SCHEDULED, TaskStatus.ACKED):
        base = base._replace(thread=OptimizerThread("optimizer-1", 1))
    return base._replace(**fields)


def _failed(number: int, runs: int) -> OptimizingTask:
    return _task(number, TaskStatus.FAILED, failed_runs=runs, failure_code="AMORO-1002", failure="no such file")


def _poisoned(number: int, status: TaskStatus = TaskStatus.PLANNED) -> OptimizingTask:
    return _task(
        number, status, attempt=3, lost_attempts=3, lost_optimizers=("optimizer-1", "optimizer-2"), failure="silent"
    )


DONE = _task(1, TaskStatus.SUCCESS)
DONE_TOO = _task(2, TaskStatus.SUCCESS)
PARTIAL_ALLOWED = replace(RUNNING, allow_partial_commit=True)
POISON = "task 3 lost 3 attempts over 2 optimizers and is not retried; last: silent"
TOO_OFTEN = "task 3 failed 6 times; last: no such file"


@pytest.mark.parametrize("process", [RUNNING, PARTIAL_ALLOWED], ids=["whole", "partial"])
@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ([DONE, DONE_TOO], StartCommit((1, 2))),
        ([DONE_TOO, DONE], StartCommit((1, 2))),
        ([DONE, _task(2, TaskStatus.PLANNED)], Wait()),
        ([DONE, _task(2, TaskStatus.SCHEDULED)], Wait()),
        ([DONE, _task(2, TaskStatus.ACKED)], Wait()),
        ([DONE, _failed(3, 1)], RetryTask(TaskId("0199-process", 3))),
        ([DONE, _failed(3, 5)], RetryTask(TaskId("0199-process", 3))),
        ([_failed(4, 2), _failed(3, 1)], RetryTask(TaskId("0199-process", 3))),
        ([_task(2, TaskStatus.ACKED), _failed(3, 1)], RetryTask(TaskId("0199-process", 3))),
        ([_failed(3, 6)], FailProcess("AMORO-1002", TOO_OFTEN)),
        (
            [_task(3, TaskStatus.CANCELED, failure="no more")],
            FailProcess("AMORO-1001", "task 3 was cancelled: no more"),
        ),
        ([DONE, _poisoned(3, TaskStatus.ACKED)], Wait()),
        ([DONE, _poisoned(3, TaskStatus.SUCCESS)], StartCommit((1, 3))),
        ([], StartCommit(())),
    ],
)
def test_what_follows_whether_or_not_a_part_may_be_committed(
    process: OptimizingProcess, tasks: list[OptimizingTask], expected: Decision
) -> None:
    assert decide(process, tasks) == expected


@pytest.mark.parametrize(
    ("tasks", "whole", "partial"),
    [
        ([DONE, _failed(3, 6)], FailProcess("AMORO-1002", TOO_OFTEN), StartCommit((1,))),
        ([_task(2, TaskStatus.ACKED), _failed(3, 6)], FailProcess("AMORO-1002", TOO_OFTEN), Wait()),
        (
            [_failed(2, 1), _failed(3, 6)],
            FailProcess("AMORO-1002", TOO_OFTEN),
            RetryTask(TaskId("0199-process", 2)),
        ),
        (
            [DONE, _poisoned(3)],
            FailProcess("AMORO-1001", POISON),
            GiveUpTask(TaskId("0199-process", 3), POISON),
        ),
        (
            [DONE, _poisoned(3, TaskStatus.FAILED)._replace(failed_runs=1)],
            FailProcess("AMORO-1001", POISON),
            StartCommit((1,)),
        ),
        (
            [DONE, _task(3, TaskStatus.CANCELED, failure="no more")],
            FailProcess("AMORO-1001", "task 3 was cancelled: no more"),
            StartCommit((1,)),
        ),
    ],
)
def test_what_a_lost_task_means(tasks: list[OptimizingTask], whole: Decision, partial: Decision) -> None:
    assert decide(RUNNING, tasks) == whole
    assert decide(PARTIAL_ALLOWED, tasks) == partial


@pytest.mark.parametrize("tasks", [[], [DONE], [DONE, DONE_TOO]])
def test_a_process_that_commits_nothing_ends_with_its_tasks(tasks: list[OptimizingTask]) -> None:
    process = replace(RUNNING, commits=False)
    assert decide(process, tasks) == EndWork()
    assert decide(process, [*tasks, _task(4, TaskStatus.ACKED)]) == Wait()
    assert decide(process, [*tasks, _failed(4, 6)]) == FailProcess("AMORO-1002", TOO_OFTEN.replace("3", "4"))


# Group by group

BY_GROUPS = replace(RUNNING, max_commits=2, allow_partial_commit=True)
OPEN = _task(4, TaskStatus.ACKED)
DONE_3 = _task(3, TaskStatus.SUCCESS)
GONE_INPUT = "f is gone"


@pytest.mark.parametrize(
    ("tasks", "settled", "expected"),
    [
        ([DONE, OPEN], Settled(), StartCommit((1,))),  # one of two is its share
        ([DONE, _task(2, TaskStatus.ACKED), OPEN], Settled(), Wait()),
        ([DONE, DONE_TOO, OPEN], Settled(), StartCommit((1, 2))),
        ([DONE, DONE_TOO, DONE_3, OPEN], Settled(frozenset({1, 2})), Wait()),
        ([DONE, DONE_TOO, DONE_3], Settled(frozenset({1, 2})), StartCommit((3,))),
        ([DONE, DONE_TOO, DONE_3], Settled(frozenset({1}), {2: GONE_INPUT}), StartCommit((3,))),
        ([DONE, DONE_TOO], Settled(frozenset({1, 2})), EndCommitted()),
        (
            [DONE, DONE_TOO],
            Settled(frozenset({1}), {2: GONE_INPUT}),
            EndCommitted("AMORO-5001", f"1 of 2 groups were not committed; the first: {GONE_INPUT}"),
        ),
        (
            [DONE, _failed(3, 6)],
            Settled(frozenset({1})),
            EndCommitted("AMORO-1002", f"1 of 2 groups were not committed; the first: {TOO_OFTEN}"),
        ),
        (
            [DONE, DONE_TOO],
            Settled(frozenset(), {1: GONE_INPUT, 2: GONE_INPUT}),
            FailProcess("AMORO-5001", f"2 of 2 groups were not committed; the first: {GONE_INPUT}"),
        ),
        ([_failed(3, 6)], Settled(), FailProcess("AMORO-1002", TOO_OFTEN)),
        ([DONE, _failed(3, 1)], Settled(frozenset({1})), RetryTask(TaskId("0199-process", 3))),
        # A dropped group is neither tried again nor lost, and one that was cancelled for it counts as dropped.
        (
            [DONE, _failed(3, 1)],
            Settled(frozenset({1}), {3: GONE_INPUT}),
            EndCommitted("AMORO-5001", f"1 of 2 groups were not committed; the first: {GONE_INPUT}"),
        ),
        ([DONE, _task(2, TaskStatus.CANCELED, failure=GONE_INPUT)], Settled((), {2: GONE_INPUT}), StartCommit((1,))),
    ],
)
@pytest.mark.parametrize("partial", [True, False])
def test_what_follows_for_a_process_that_commits_group_by_group(
    tasks: list[OptimizingTask], settled: Settled, expected: Decision, partial: bool
) -> None:
    lost = any(task.status is TaskStatus.FAILED and task.failed_runs > 5 for task in tasks)
    if partial or not lost:
        settled = replace(settled, committed=frozenset(settled.committed))
        assert decide(replace(BY_GROUPS, allow_partial_commit=partial), tasks, settled) == expected


@given(st.integers(1, 12), st.integers(1, 12), st.permutations(range(12)))
def test_there_are_no_more_commits_than_were_allowed(groups: int, most: int, order: list[int]) -> None:
    process = replace(BY_GROUPS, max_commits=most)
    tasks = {number: _task(number, TaskStatus.ACKED) for number in range(1, groups + 1)}
    committed: frozenset[int] = frozenset()
    made = 0
    for number in [at + 1 for at in order if at < groups]:
        tasks[number] = _task(number, TaskStatus.SUCCESS)
        decided = decide(process, list(tasks.values()), Settled(committed))
        if isinstance(decided, StartCommit):
            assert not committed.intersection(decided.groups)
            committed, made = committed.union(decided.groups), made + 1
    assert committed == frozenset(tasks)
    assert made <= most
    assert decide(process, list(tasks.values()), Settled(committed)) == EndCommitted()


def test_without_retries_the_first_failure_is_the_last() -> None:
    process = replace(RUNNING, max_retries=0)
    assert decide(process, [DONE, _failed(3, 1)]) == FailProcess("AMORO-1002", "task 3 failed once; last: no such file")


@pytest.mark.parametrize("status", [status for status in ProcessStatus if status is not ProcessStatus.RUNNING])
def test_nothing_follows_for_a_process_that_does_not_run(status: ProcessStatus) -> None:
    assert decide(STAGES[status], [DONE, _failed(3, 6)]) == Wait()


@given(
    st.booleans(),
    st.integers(0, 2),
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["ok", "fail", "lose", "drain", "cancel"])), max_size=60),
)
def test_every_process_ends_when_its_tasks_do(partial: bool, retries: int, script: list[tuple[int, str]]) -> None:
    """Whatever happens to four tasks, carrying out the decisions leaves a task to run or ends the process."""
    process = replace(RUNNING, allow_partial_commit=partial, max_retries=retries)
    tasks = {number: _task(number, TaskStatus.PLANNED, attempt=0) for number in range(1, 5)}
    for number, what in [*script, *((number, "ok") for number in range(1, 5))]:
        if tasks[number].status is TaskStatus.PLANNED:
            tasks[number] = _run(tasks[number], what)
        process = _carry_out(process, tasks)
        if process.status is not ProcessStatus.RUNNING:
            break
    assert process.status in (ProcessStatus.COMMITTING, ProcessStatus.FAILED) or any(
        task.status is TaskStatus.PLANNED for task in tasks.values()
    )
    if process.status is ProcessStatus.COMMITTING and not partial:
        assert {task.status for task in tasks.values()} == {TaskStatus.SUCCESS}


def _run(task: OptimizingTask, what: str) -> OptimizingTask:
    if what == "cancel":
        return task_machine.advance(task, task_machine.Cancel("no more"), LATER)
    thread = OptimizerThread(f"optimizer-{task.attempt % 2}", 1)
    held = task_machine.advance(task, task_machine.Schedule(thread), LATER)
    held = task_machine.advance(held, task_machine.Ack(held.attempt, thread.optimizer_id), LATER)
    match what:
        case "ok":
            return task_machine.advance(held, task_machine.Succeed(held.attempt, thread.optimizer_id), LATER)
        case "fail":
            report = task_machine.Fail(held.attempt, thread.optimizer_id, "AMORO-1001", "broken")
            return task_machine.advance(held, report, LATER)
    return task_machine.advance(held, task_machine.Reset("gone", lost=what == "lose"), LATER)


def _carry_out(process: OptimizingProcess, tasks: dict[int, OptimizingTask]) -> OptimizingProcess:
    for _ in range(2 * len(tasks) + 1):
        match decide(process, list(tasks.values())):
            case Wait():
                return process
            case RetryTask(task_id):
                tasks[task_id.number] = task_machine.advance(tasks[task_id.number], task_machine.Retry(), LATER)
            case GiveUpTask(task_id, reason):
                cancel = task_machine.Cancel(reason)
                tasks[task_id.number] = task_machine.advance(tasks[task_id.number], cancel, LATER)
            case StartCommit(groups):
                assert groups
                assert all(tasks[number].status is TaskStatus.SUCCESS for number in groups)
                return advance(process, BeginCommit(), LATER)
            case FailProcess(code, reason):
                return advance(process, ProcessFailed(code, reason), LATER)
    raise AssertionError("the decisions never end")
