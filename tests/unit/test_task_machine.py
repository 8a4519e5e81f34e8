"""The task machine: every status with every event, random sequences, and each race that was ever found."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amoro_core.errors import IllegalState, StaleReport
from amoro_core.model.processes import OptimizerThread, OptimizingTask, TaskId, TaskStatus
from amoro_core.state.tasks import (
    TRANSITIONS,
    Ack,
    Cancel,
    Fail,
    Reset,
    Retry,
    Schedule,
    Succeed,
    TaskEvent,
    adopt,
    advance,
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

EVENTS: dict[type[TaskEvent], TaskEvent] = {
    Schedule: Schedule(TWO),
    Ack: Ack(1, "optimizer-1"),
    Succeed: Succeed(1, "optimizer-1"),
    Fail: Fail(1, "optimizer-1", "AMORO-1003", "disk full"),
    Retry: Retry(),
    Reset: Reset("silent for 60 s"),
    Cancel: Cancel("process closed"),
}

RESULTS: dict[tuple[TaskStatus, type[TaskEvent]], OptimizingTask] = {
    (TaskStatus.PLANNED, Schedule): PLANNED._replace(
        status=TaskStatus.SCHEDULED, attempt=1, thread=TWO, scheduled_at=LATER
    ),
    (TaskStatus.PLANNED, Cancel): PLANNED._replace(
        status=TaskStatus.CANCELED, finished_at=LATER, failure="process closed"
    ),
    (TaskStatus.SCHEDULED, Ack): SCHEDULED._replace(status=TaskStatus.ACKED, acked_at=LATER),
    (TaskStatus.SCHEDULED, Reset): PLANNED._replace(
        attempt=1, lost_attempts=1, lost_optimizers=("optimizer-1",), failure="silent for 60 s"
    ),
    (TaskStatus.SCHEDULED, Cancel): SCHEDULED._replace(
        status=TaskStatus.CANCELED, thread=None, ended_on=ONE, finished_at=LATER, failure="process closed"
    ),
    (TaskStatus.ACKED, Succeed): ACKED._replace(
        status=TaskStatus.SUCCESS, thread=None, ended_on=ONE, finished_at=LATER
    ),
    (TaskStatus.ACKED, Fail): ACKED._replace(
        status=TaskStatus.FAILED,
        thread=None,
        ended_on=ONE,
        finished_at=LATER,
        failed_runs=1,
        failure_code="AMORO-1003",
        failure="disk full",
    ),
    (TaskStatus.ACKED, Reset): PLANNED._replace(
        attempt=1, lost_attempts=1, lost_optimizers=("optimizer-1",), failure="silent for 60 s"
    ),
    (TaskStatus.ACKED, Cancel): ACKED._replace(
        status=TaskStatus.CANCELED, thread=None, ended_on=ONE, finished_at=LATER, failure="process closed"
    ),
    (TaskStatus.FAILED, Retry): PLANNED._replace(
        attempt=1, failed_runs=1, failure_code="AMORO-1002", failure="no such file"
    ),
}

#: Reports on a task that nobody holds; every other missing edge is an illegal one.
STALE = {
    (status, report)
    for status in (TaskStatus.PLANNED, TaskStatus.SUCCESS, TaskStatus.FAILED, TaskStatus.CANCELED)
    for report in (Ack, Succeed, Fail)
}


def test_the_table_has_exactly_the_ten_edges() -> None:
    assert {edge: task.status for edge, task in RESULTS.items()} == dict(TRANSITIONS)
    assert len(TRANSITIONS) == 10


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("status", TaskStatus)
def test_every_status_with_every_event(status: TaskStatus, kind: type[TaskEvent]) -> None:
    task, event = STAGES[status], EVENTS[kind]
    if (status, kind) in RESULTS:
        assert advance(task, event, LATER) == RESULTS[status, kind]
        return
    with pytest.raises(StaleReport if (status, kind) in STALE else IllegalState) as refusal:
        advance(task, event, LATER)
    assert str(task.task_id) in refusal.value.message
    assert status.value in refusal.value.message


@pytest.mark.parametrize("held", [SCHEDULED, ACKED], ids=["scheduled", "acked"])
@pytest.mark.parametrize(
    "report",
    [
        Ack(2, "optimizer-1"),
        Ack(0, "optimizer-1"),
        Ack(1, "optimizer-2"),
        Succeed(2, "optimizer-1"),
        Succeed(1, "optimizer-2"),
        Fail(2, "optimizer-1", "", ""),
        Fail(1, "optimizer-2", "", ""),
    ],
    ids=repr,
)
def test_a_report_of_another_attempt_or_optimizer_is_stale(held: OptimizingTask, report: TaskEvent) -> None:
    with pytest.raises(StaleReport, match="held by optimizer optimizer-1"):
        advance(held, report, LATER)


# Random sequences


_optimizers = st.sampled_from(["optimizer-1", "optimizer-2", "optimizer-3"])
_attempts = st.integers(0, 4)
_events: st.SearchStrategy[TaskEvent] = st.one_of(
    st.builds(Schedule, st.builds(OptimizerThread, _optimizers, st.integers(1, 2))),
    st.builds(Ack, _attempts, _optimizers),
    st.builds(Succeed, _attempts, _optimizers),
    st.builds(Fail, _attempts, _optimizers, st.just("AMORO-1001"), st.just("broken")),
    st.just(Retry()),
    st.builds(Reset, st.just("lost"), st.booleans()),
    st.just(Cancel("closed")),
)


@given(st.lists(_events, max_size=40))
def test_no_sequence_of_events_breaks_an_invariant(events: list[TaskEvent]) -> None:
    task = PLANNED
    for second, event in enumerate(events):
        before = task
        try:
            task = advance(before, event, NOW + timedelta(seconds=second))
        except (StaleReport, IllegalState):
            continue
        assert TRANSITIONS[before.status, type(event)] is task.status
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


@given(st.lists(_events, max_size=40))
def test_success_and_canceled_are_ends(events: list[TaskEvent]) -> None:
    for end in (SUCCESS, CANCELED):
        for event in events:
            with pytest.raises((StaleReport, IllegalState)):
                advance(end, event, LATER)


# Races


def _again(task: OptimizingTask, thread: OptimizerThread) -> OptimizingTask:
    return advance(task, Schedule(thread), LATER)


def _lose(task: OptimizingTask, thread: OptimizerThread, *, acked: bool = True) -> OptimizingTask:
    held = _again(task, thread)
    if acked:
        held = advance(held, Ack(held.attempt, thread.optimizer_id), LATER)
    return advance(held, Reset("gone"), LATER)


def test_late_ack_after_a_reset_is_refused() -> None:
    reset = advance(SCHEDULED, Reset("no ack in 30 s"), LATER)
    with pytest.raises(StaleReport, match="held by nobody"):
        advance(reset, Ack(1, "optimizer-1"), LATER)


def test_late_ack_after_a_reset_is_refused_when_the_same_thread_holds_the_next_attempt() -> None:
    second = _again(advance(SCHEDULED, Reset("no ack in 30 s"), LATER), ONE)
    with pytest.raises(StaleReport, match="in attempt 2"):
        advance(second, Ack(1, "optimizer-1"), LATER)
    assert advance(second, Ack(2, "optimizer-1"), LATER).status is TaskStatus.ACKED


def test_late_completion_of_an_earlier_attempt_is_refused() -> None:
    reset = advance(ACKED, Reset("silent"), LATER)
    second = advance(_again(reset, TWO), Ack(2, "optimizer-2"), LATER)
    with pytest.raises(StaleReport):
        advance(second, Succeed(1, "optimizer-1"), LATER)
    with pytest.raises(StaleReport):
        advance(second, Fail(1, "optimizer-1", "AMORO-1001", "late"), LATER)
    assert advance(second, Succeed(2, "optimizer-2"), LATER).status is TaskStatus.SUCCESS


def test_late_completion_is_refused_when_the_same_thread_runs_the_task_again() -> None:
    second = advance(_again(advance(ACKED, Reset("silent"), LATER), ONE), Ack(2, "optimizer-1"), LATER)
    with pytest.raises(StaleReport):
        advance(second, Succeed(1, "optimizer-1"), LATER)


def test_duplicate_completion_is_stale_and_known_as_a_repetition() -> None:
    report = Succeed(1, "optimizer-1")
    done = advance(ACKED, report, LATER)
    with pytest.raises(StaleReport):
        advance(done, report, LATER)
    assert repeats(done, report)
    assert not repeats(done, Succeed(2, "optimizer-1"))
    assert not repeats(done, Fail(1, "optimizer-1", "AMORO-1001", "no"))
    assert not repeats(ACKED, report)


def test_duplicate_failure_is_stale_and_known_as_a_repetition() -> None:
    report = Fail(1, "optimizer-1", "AMORO-1003", "disk full")
    failed = advance(ACKED, report, LATER)
    with pytest.raises(StaleReport):
        advance(failed, report, LATER)
    assert repeats(failed, report)
    assert not repeats(failed, replace(report, message="another"))
    assert not repeats(advance(failed, Retry(), LATER), report)


def test_duplicate_ack_is_illegal_and_known_as_a_repetition() -> None:
    with pytest.raises(IllegalState):
        advance(ACKED, Ack(1, "optimizer-1"), LATER)
    assert repeats(ACKED, Ack(1, "optimizer-1"))
    assert not repeats(ACKED, Ack(1, "optimizer-2"))
    assert not repeats(SCHEDULED, Ack(1, "optimizer-1"))


def test_completion_of_a_cancelled_attempt_is_stale() -> None:
    canceled = advance(ACKED, Cancel("closed"), LATER)
    with pytest.raises(StaleReport):
        advance(canceled, Succeed(1, "optimizer-1"), LATER)
    assert not repeats(canceled, Succeed(1, "optimizer-1"))


def test_completion_before_the_ack_is_illegal() -> None:
    with pytest.raises(IllegalState):
        advance(SCHEDULED, Succeed(1, "optimizer-1"), LATER)


def test_task_of_a_poll_whose_answer_was_lost_comes_back_with_a_new_attempt() -> None:
    reset = advance(SCHEDULED, Reset("no ack in 30 s"), LATER)
    again = _again(reset, TWO)
    assert (again.status, again.attempt, again.thread) == (TaskStatus.SCHEDULED, 2, TWO)


def test_task_that_loses_three_attempts_over_two_registrations_is_poisoned() -> None:
    twice = _lose(_lose(PLANNED, ONE), TWO)
    assert not is_poisoned(twice)
    assert is_poisoned(_lose(twice, TWO))


def test_task_that_loses_all_attempts_over_one_registration_is_not_poisoned() -> None:
    task = PLANNED
    for _ in range(5):
        task = _lose(task, ONE, acked=False)
    assert (task.lost_attempts, task.lost_optimizers) == (5, ("optimizer-1",))
    assert not is_poisoned(task)


def test_task_handed_back_by_a_draining_optimizer_counts_no_loss() -> None:
    task = PLANNED
    for thread in (ONE, TWO, ONE, TWO):
        task = advance(_again(task, thread), Reset("drained", lost=False), LATER)
    assert (task.attempt, task.lost_attempts, task.lost_optimizers) == (4, 0, ())
    assert not is_poisoned(task)


def test_failures_count_apart_from_losses() -> None:
    retried = advance(advance(ACKED, Fail(1, "optimizer-1", "AMORO-1001", "x"), LATER), Retry(), LATER)
    lost = _lose(retried, TWO)
    assert (lost.failed_runs, lost.lost_attempts, lost.attempt) == (1, 1, 2)


def test_adopted_attempt_goes_on_under_the_new_registration() -> None:
    adopted = adopt(ACKED, 1, "optimizer-9", 5, LATER)
    assert adopted == ACKED._replace(thread=OptimizerThread("optimizer-9", 5))
    with pytest.raises(StaleReport):
        advance(adopted, Succeed(1, "optimizer-1"), LATER)
    assert advance(adopted, Succeed(1, "optimizer-9"), LATER).status is TaskStatus.SUCCESS


def test_adopted_task_without_ack_has_the_whole_time_for_it_again() -> None:
    adopted = adopt(SCHEDULED, 1, "optimizer-9", 5, LATER)
    assert adopted == SCHEDULED._replace(thread=OptimizerThread("optimizer-9", 5), scheduled_at=LATER)
    assert advance(adopted, Ack(1, "optimizer-9"), LATER).status is TaskStatus.ACKED


@pytest.mark.parametrize("task", [PLANNED, SUCCESS, FAILED, CANCELED], ids=lambda task: task.status.value)
def test_task_that_nobody_holds_cannot_be_adopted(task: OptimizingTask) -> None:
    with pytest.raises(StaleReport):
        adopt(task, task.attempt, "optimizer-9", 5, LATER)


def test_earlier_attempt_cannot_be_adopted() -> None:
    second = _again(advance(SCHEDULED, Reset("silent"), LATER), TWO)
    with pytest.raises(StaleReport):
        adopt(second, 1, "optimizer-9", 5, LATER)


def test_success_clears_what_went_wrong_before() -> None:
    acked = advance(_again(advance(FAILED, Retry(), LATER), ONE), Ack(2, "optimizer-1"), LATER)
    done = advance(acked, Succeed(2, "optimizer-1"), LATER)
    assert (done.failed_runs, done.failure_code, done.failure) == (1, "", "")
