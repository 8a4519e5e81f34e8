"""The state machine of tasks: six states, ten edges. Attempts fence everything that an optimizer reports."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import assert_never

from amoro_core.errors import IllegalState, StaleReport
from amoro_core.model.processes import OptimizerThread, OptimizingTask, TaskStatus

#: Lost attempts, and the registrations they were lost over, that make a task a poisoned one.
POISON_ATTEMPTS = 3
POISON_REGISTRATIONS = 2


@dataclass(frozen=True, slots=True)
class Schedule:
    """The task is assigned to a thread; a new attempt begins."""

    thread: OptimizerThread


@dataclass(frozen=True, slots=True)
class Ack:
    """The optimizer has the work and begins."""

    attempt: int
    optimizer_id: str


@dataclass(frozen=True, slots=True)
class Succeed:
    """The optimizer reports a result."""

    attempt: int
    optimizer_id: str


@dataclass(frozen=True, slots=True)
class Fail:
    """The optimizer reports that the attempt failed."""

    attempt: int
    optimizer_id: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Retry:
    """A failed task is planned again."""


@dataclass(frozen=True, slots=True)
class Reset:
    """The attempt is taken back. `lost` is False when the optimizer returned it itself (a drain)."""

    reason: str
    lost: bool = True


@dataclass(frozen=True, slots=True)
class Cancel:
    """The task is no longer needed."""

    reason: str


TaskReport = Ack | Succeed | Fail
TaskEvent = Schedule | TaskReport | Retry | Reset | Cancel

TRANSITIONS: Mapping[tuple[TaskStatus, type[TaskEvent]], TaskStatus] = MappingProxyType(
    {
        (TaskStatus.PLANNED, Schedule): TaskStatus.SCHEDULED,
        (TaskStatus.SCHEDULED, Ack): TaskStatus.ACKED,
        (TaskStatus.ACKED, Succeed): TaskStatus.SUCCESS,
        (TaskStatus.ACKED, Fail): TaskStatus.FAILED,
        (TaskStatus.FAILED, Retry): TaskStatus.PLANNED,
        (TaskStatus.SCHEDULED, Reset): TaskStatus.PLANNED,
        (TaskStatus.ACKED, Reset): TaskStatus.PLANNED,
        (TaskStatus.PLANNED, Cancel): TaskStatus.CANCELED,
        (TaskStatus.SCHEDULED, Cancel): TaskStatus.CANCELED,
        (TaskStatus.ACKED, Cancel): TaskStatus.CANCELED,
    }
)


def advance(task: OptimizingTask, event: TaskEvent, now: datetime) -> OptimizingTask:
    """The task after the event.

    `failure` is the last failure, or the reason of a reset or cancellation; success clears it.

        Raises StaleReport for a report that is not about the present attempt, or not from the optimizer that holds it;
        IllegalState for any other edge that is not in the table.
    """
    if isinstance(event, Ack | Succeed | Fail):
        _refuse_stale(task, event.attempt, event.optimizer_id)
    status = TRANSITIONS.get((task.status, type(event)))
    if status is None:
        raise IllegalState(f"task {task.task_id} is {task.status}: {type(event).__name__} is not possible")
    match event:
        case Schedule(thread):
            return task._replace(status=status, attempt=task.attempt + 1, thread=thread, scheduled_at=now)
        case Ack():
            return task._replace(status=status, acked_at=now)
        case Succeed():
            return _ended(task, status, now, "", "")
        case Fail(code=code, message=message):
            return _ended(task, status, now, code, message)._replace(failed_runs=task.failed_runs + 1)
        case Retry():
            return task._replace(status=status, scheduled_at=None, acked_at=None, finished_at=None, ended_on=None)
        case Reset(reason, lost):
            task = _count_loss(task) if lost else task
            return task._replace(
                status=status, thread=None, scheduled_at=None, acked_at=None, failure_code="", failure=reason
            )
        case Cancel(reason):
            return _ended(task, status, now, "", reason)
    assert_never(event)


def _ended(task: OptimizingTask, status: TaskStatus, now: datetime, code: str, failure: str) -> OptimizingTask:
    """The task, no longer held; the thread that had it is recorded."""
    return task._replace(
        status=status, thread=None, finished_at=now, ended_on=task.thread, failure_code=code, failure=failure
    )


def adopt(task: OptimizingTask, attempt: int, optimizer_id: str, thread_id: int, now: datetime) -> OptimizingTask:
    """The task, held by a new registration of the optimizer that still runs the attempt.

    The attempt stays the same and nothing counts as lost: the work continues, and its result is accepted from the new
    registration only. The caller checks that the task may be taken from the old registration (same group, silent). A
    task that was not acked yet gets the full time for its ack again.

    Raises StaleReport when the attempt is not the present one, or no optimizer holds the task any more.
    """
    if task.thread is None or task.attempt != attempt:
        raise StaleReport(_stale(task, attempt, optimizer_id))
    scheduled_at = now if task.status is TaskStatus.SCHEDULED else task.scheduled_at
    return task._replace(thread=OptimizerThread(optimizer_id, thread_id), scheduled_at=scheduled_at)


def repeats(task: OptimizingTask, report: TaskReport) -> bool:
    """Whether exactly this report has led to the task's present status: its answer was lost, and it is sent again.

    An attempt belongs to one optimizer only, so after its end the number suffices. The caller compares the payload.
    """
    if task.attempt != report.attempt:
        return False
    match report:
        case Ack(optimizer_id=optimizer_id):
            holder = task.thread.optimizer_id if task.thread else None
            return task.status is TaskStatus.ACKED and holder == optimizer_id
        case Succeed():
            return task.status is TaskStatus.SUCCESS
        case Fail(code=code, message=message):
            return task.status is TaskStatus.FAILED and (task.failure_code, task.failure) == (code, message)
    assert_never(report)


def is_poisoned(task: OptimizingTask) -> bool:
    """Whether the task seems to kill its optimizers: three attempts lost, over at least two registrations."""
    return task.lost_attempts >= POISON_ATTEMPTS and len(task.lost_optimizers) >= POISON_REGISTRATIONS


def _refuse_stale(task: OptimizingTask, attempt: int, optimizer_id: str) -> None:
    if task.thread is None or task.attempt != attempt or task.thread.optimizer_id != optimizer_id:
        raise StaleReport(_stale(task, attempt, optimizer_id))


def _stale(task: OptimizingTask, attempt: int, optimizer_id: str) -> str:
    holder = f"held by optimizer {task.thread.optimizer_id}" if task.thread else "held by nobody"
    return (
        f"optimizer {optimizer_id} reports on attempt {attempt} of task {task.task_id}, "
        f"which is {task.status} in attempt {task.attempt}, {holder}"
    )


def _count_loss(task: OptimizingTask) -> OptimizingTask:
    lost = task.lost_optimizers
    if task.thread is not None and task.thread.optimizer_id not in lost:
        lost = (*lost, task.thread.optimizer_id)
    return task._replace(lost_attempts=task.lost_attempts + 1, lost_optimizers=lost)
