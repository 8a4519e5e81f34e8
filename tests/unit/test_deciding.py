"""Decisions: what follows from a process's tasks, which processes run together, and when an action is paused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amoro_core.errors import CommitConflict, DataFileMissing, StorageFull
from amoro_core.model.processes import (
    LANES,
    OptimizerThread,
    OptimizingProcess,
    OptimizingTask,
    ProcessStatus,
    TaskId,
    TaskStatus,
)
from amoro_core.model.tables import ActionRecord
from amoro_core.state import tasks as task_machine
from amoro_core.state.backoff import MOST, Outcome, after, with_properties
from amoro_core.state.process_decisions import (
    Decision,
    EndCommitted,
    EndWork,
    FailProcess,
    GiveUpTask,
    RetryTask,
    Settled,
    StartCommit,
    Wait,
    conflicting_process,
    decide,
)
from amoro_core.state.processes import BeginCommit, ProcessFailed, advance
from tests.unit.test_machines import LATER, RUNNING


def _task(number: int, status: TaskStatus, **fields: object) -> OptimizingTask:
    base = OptimizingTask(TaskId("0199-process", number), 7, "default", status, attempt=1)
    if status in (TaskStatus.SCHEDULED, TaskStatus.ACKED):
        base = base._replace(thread=OptimizerThread("optimizer-1", 1))
    return base._replace(**fields)


def _failed(number: int, runs: int) -> OptimizingTask:
    return _task(number, TaskStatus.FAILED, failed_runs=runs, failure_code="AMORO-1001", failure="no such file")


def _poisoned(number: int, status: TaskStatus = TaskStatus.PLANNED) -> OptimizingTask:
    return _task(
        number, status, attempt=3, lost_attempts=3, lost_optimizers=("optimizer-1", "optimizer-2"), failure="silent"
    )


DONE = _task(1, TaskStatus.SUCCESS)
DONE_TOO = _task(2, TaskStatus.SUCCESS)
PARTIAL_ALLOWED = replace(RUNNING, allow_partial_commit=True)
POISON = "task 3 lost 3 attempts on 2 optimizers and is not retried; last: silent"
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
        ([_failed(3, 6)], FailProcess("AMORO-1001", TOO_OFTEN)),
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


@pytest.mark.parametrize("process", [RUNNING, PARTIAL_ALLOWED], ids=["whole", "partial"])
def test_tasks_that_were_given_up_fail_nothing_and_are_not_committed(process: OptimizingProcess) -> None:
    gone = Settled(dropped={2: "a writer", 3: "a writer"})
    canceled = _task(3, TaskStatus.CANCELED, failure="a writer")
    assert decide(process, [DONE, DONE_TOO, canceled], gone) == StartCommit((1,))
    assert decide(process, [_task(1, TaskStatus.ACKED), DONE_TOO, canceled], gone) == Wait()
    assert decide(process, [DONE_TOO, canceled], gone) == FailProcess(CommitConflict.code, "a writer")


@pytest.mark.parametrize(
    ("tasks", "whole", "partial"),
    [
        ([DONE, _failed(3, 6)], FailProcess("AMORO-1001", TOO_OFTEN), StartCommit((1,))),
        ([_task(2, TaskStatus.ACKED), _failed(3, 6)], FailProcess("AMORO-1001", TOO_OFTEN), Wait()),
        ([_failed(2, 1), _failed(3, 6)], FailProcess("AMORO-1001", TOO_OFTEN), RetryTask(TaskId("0199-process", 2))),
        ([DONE, _poisoned(3)], FailProcess("AMORO-1001", POISON), GiveUpTask(TaskId("0199-process", 3), POISON)),
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
    assert decide(process, [*tasks, _failed(4, 6)]) == FailProcess("AMORO-1001", TOO_OFTEN.replace("3", "4"))


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
            EndCommitted("AMORO-5001", f"1 of 2 groups not committed; the first: {GONE_INPUT}"),
        ),
        (
            [DONE, _failed(3, 6)],
            Settled(frozenset({1})),
            EndCommitted("AMORO-1001", f"1 of 2 groups not committed; the first: {TOO_OFTEN}"),
        ),
        (
            [DONE, DONE_TOO],
            Settled(frozenset(), {1: GONE_INPUT, 2: GONE_INPUT}),
            FailProcess("AMORO-5001", f"2 of 2 groups not committed; the first: {GONE_INPUT}"),
        ),
        ([_failed(3, 6)], Settled(), FailProcess("AMORO-1001", TOO_OFTEN)),
        ([DONE, _failed(3, 1)], Settled(frozenset({1})), RetryTask(TaskId("0199-process", 3))),
        # A dropped group is neither tried again nor lost, and one that was cancelled for it counts as dropped.
        (
            [DONE, _failed(3, 1)],
            Settled(frozenset({1}), {3: GONE_INPUT}),
            EndCommitted("AMORO-5001", f"1 of 2 groups not committed; the first: {GONE_INPUT}"),
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


@pytest.mark.parametrize("code", [DataFileMissing.code, StorageFull.code])
def test_a_missing_file_and_a_full_disk_are_not_tried_again_at_once(code: str) -> None:
    failed = _failed(3, 1)._replace(failure_code=code)
    expected = FailProcess(code, "task 3 failed 1 time; last: no such file")
    assert decide(RUNNING, [DONE, failed, _task(2, TaskStatus.ACKED)]) == expected
    assert decide(PARTIAL_ALLOWED, [DONE, failed]) == StartCommit((1,))


def test_without_retries_the_first_failure_is_the_last() -> None:
    process = replace(RUNNING, max_retries=0)
    assert decide(process, [DONE, _failed(3, 1)]) == FailProcess(
        "AMORO-1001", "task 3 failed 1 time; last: no such file"
    )


@pytest.mark.parametrize(
    "status", ["paused", *(status for status in ProcessStatus if status is not ProcessStatus.RUNNING)]
)
def test_nothing_follows_for_a_process_that_does_not_run(status: str) -> None:
    assert decide(replace(RUNNING, status=status), [DONE, _failed(3, 6)]) == Wait()


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


#: Beside each lane itself.
EXCLUDED = {("metadata", "storage"), ("storage", "metadata")}


def occupied(process_id: str, lane: str, status: str = ProcessStatus.RUNNING) -> OptimizingProcess:
    return replace(RUNNING, process_id=process_id, lane=lane, status=status)


@pytest.mark.parametrize("status", [ProcessStatus.RUNNING, ProcessStatus.COMMITTING, ProcessStatus.CLEARING])
def test_processes_of_one_lane_and_of_metadata_and_storage_exclude_each_other(status: ProcessStatus) -> None:
    found = {
        (active, lane): conflicting_process(lane, [occupied("p", active, status)]) is None
        for active in LANES
        for lane in LANES
    }
    assert found == {(one, other): one != other and (one, other) not in EXCLUDED for one in LANES for other in LANES}
    assert set(LANES) == {"files", "metadata", "storage", "statistics", "layout"}


@pytest.mark.parametrize("status", [ProcessStatus.HELD, ProcessStatus.REQUESTED])
def test_a_process_that_waits_for_a_word_is_in_nobody_s_way(status: ProcessStatus) -> None:
    held = occupied("p", "files", status)
    assert [conflicting_process(lane, [held]) for lane in LANES] == [None] * len(LANES)


@pytest.mark.parametrize("active", LANES)
@pytest.mark.parametrize("lane", LANES)
def test_nothing_begins_beside_an_unknown_commit_whatever_the_lanes(active: str, lane: str) -> None:
    unknown = occupied("p", active, ProcessStatus.COMMIT_UNKNOWN)
    assert conflicting_process(lane, [unknown]) == (unknown, "it is not known whether its commit was applied")


def test_the_reason_names_the_lane_the_pair_or_the_action() -> None:
    expiry, rewrite = occupied("a", "metadata"), occupied("b", "files")
    assert conflicting_process("storage", [rewrite, expiry]) == (
        expiry,
        "the lanes metadata and storage exclude each other",
    )
    assert conflicting_process("files", [rewrite, expiry]) == (rewrite, "it holds the lane files")
    expiry = replace(occupied("p", "files"), action="expire-data")
    words = "expire-data and the lane layout exclude each other"
    assert conflicting_process("layout", [expiry], action="cluster") == (expiry, words)
    ordering = replace(occupied("q", "layout"), action="cluster")
    assert conflicting_process("files", [ordering], action="expire-data") == (ordering, words)
    assert conflicting_process("files", [ordering], action="optimizing") is None
    assert conflicting_process("layout", [replace(expiry, status=ProcessStatus.HELD)], action="cluster") is None


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


def test_the_third_run_in_a_row_that_changed_nothing_pauses_until_properties_change() -> None:
    found = repeated(Outcome.FRUITLESS, MOST)
    words = "3 runs in a row changed nothing though there was something to do, the last: run 3"
    assert found == replace(KNOWN, fruitless=3, next_at=None, paused_at=NOW + timedelta(hours=2), paused_for=words)
    paused = replace(repeated(Outcome.FAILED, MOST), properties="")
    assert with_properties(paused, "d1") == replace(paused, properties="d1")
