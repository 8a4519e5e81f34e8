"""The life of an optimizing process, and what the state of its tasks means for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType

from amoro_core.errors import Held, IllegalState, WorkFailed
from amoro_core.model.processes import (
    Delay,
    OptimizingProcess,
    OptimizingTask,
    ProcessStatus,
    Receipt,
    TaskId,
    TaskStatus,
)
from amoro_core.state.backoff import pause
from amoro_core.state.tasks import is_poisoned


@dataclass(frozen=True, slots=True)
class BeginCommit:
    """No task is open any more and there is something to commit."""


@dataclass(frozen=True, slots=True)
class CommitSent:
    """An attempt to commit is written down and about to be sent, for the first time or byte for byte again."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The table has the whole result."""

    receipt: Receipt


@dataclass(frozen=True, slots=True)
class CommittedPartly:
    """The table has the result without some groups (failed, cancelled or in conflict)."""

    receipt: Receipt


@dataclass(frozen=True, slots=True)
class BeginClearing:
    """The work is done, with the receipt it has; the files it is to remove are written down."""

    receipt: Receipt | None


@dataclass(frozen=True, slots=True)
class Cleared:
    """Nothing is left to remove; or there was nothing, and nothing to commit either."""

    receipt: Receipt | None = None  # None: the one that it has


@dataclass(frozen=True, slots=True)
class ClearedPartly:
    """The work is done, but some files could not be removed and are given up."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class CommitDelayed:
    """Nothing could be sent, found out or removed; it is tried again. `refused`: somebody said no, and may again."""

    code: str
    reason: str
    refused: bool = False


@dataclass(frozen=True, slots=True)
class CommitUnclear:
    """An attempt was sent, and nobody knows whether it was or will be applied."""

    message: str


@dataclass(frozen=True, slots=True)
class CommitRefuted:
    """The table shows that no attempt was or ever can be applied; the commit begins anew or fails."""


@dataclass(frozen=True, slots=True)
class TableGone:
    """The catalog says that the table does not exist: what became of a sent attempt will never be known.

    Neither can it do harm any more. No file of it is removed: it may be live under a name that is not known here.
    """

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class ProcessFailed:
    """Nothing was committed and nothing will be."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class ProcessClosed:
    """The process was taken back before anything was sent; `code` is an error's where nobody asked for it."""

    reason: str
    code: str = ""


@dataclass(frozen=True, slots=True)
class Hold:
    """A breaker or the guard has stopped the process: a person has to look at it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A person said go; the process was planned anew."""


ProcessEvent = (
    BeginClearing
    | Cleared
    | ClearedPartly
    | BeginCommit
    | CommitSent
    | Committed
    | CommittedPartly
    | CommitDelayed
    | CommitUnclear
    | CommitRefuted
    | TableGone
    | ProcessFailed
    | ProcessClosed
    | Hold
    | Confirmed
)

#: Rights that were just given, or lost and given back, take a moment to be true everywhere.
MAX_REFUSALS = 3

#: By status and event. Which more there are is a matter of rows, as lanes are.
Transitions = Mapping[tuple[str, type], str]

#: An unknown commit ends by what the table says, or when there is none any more: it cannot fail or be closed before.
#: What is cleared is done: it cannot fail any more, and be closed only where nothing was committed (`state.leases`).
TRANSITIONS: Transitions = MappingProxyType(
    {
        (ProcessStatus.RUNNING, BeginCommit): ProcessStatus.COMMITTING,
        (ProcessStatus.RUNNING, ProcessFailed): ProcessStatus.FAILED,
        (ProcessStatus.RUNNING, ProcessClosed): ProcessStatus.CLOSED,
        (ProcessStatus.RUNNING, BeginClearing): ProcessStatus.CLEARING,
        (ProcessStatus.RUNNING, Cleared): ProcessStatus.SUCCESS,
        (ProcessStatus.COMMITTING, CommitSent): ProcessStatus.COMMITTING,
        (ProcessStatus.COMMITTING, Committed): ProcessStatus.SUCCESS,
        (ProcessStatus.COMMITTING, CommittedPartly): ProcessStatus.PARTIAL,
        (ProcessStatus.COMMITTING, CommitDelayed): ProcessStatus.COMMITTING,
        (ProcessStatus.COMMITTING, CommitUnclear): ProcessStatus.COMMIT_UNKNOWN,
        (ProcessStatus.COMMITTING, ProcessFailed): ProcessStatus.FAILED,
        (ProcessStatus.COMMITTING, ProcessClosed): ProcessStatus.CLOSED,
        (ProcessStatus.COMMITTING, TableGone): ProcessStatus.FAILED,
        (ProcessStatus.COMMITTING, BeginClearing): ProcessStatus.CLEARING,
        (ProcessStatus.COMMIT_UNKNOWN, CommitSent): ProcessStatus.COMMIT_UNKNOWN,
        (ProcessStatus.COMMIT_UNKNOWN, Committed): ProcessStatus.SUCCESS,
        (ProcessStatus.COMMIT_UNKNOWN, CommittedPartly): ProcessStatus.PARTIAL,
        (ProcessStatus.COMMIT_UNKNOWN, CommitDelayed): ProcessStatus.COMMIT_UNKNOWN,
        (ProcessStatus.COMMIT_UNKNOWN, CommitRefuted): ProcessStatus.COMMITTING,
        (ProcessStatus.COMMIT_UNKNOWN, TableGone): ProcessStatus.FAILED,
        (ProcessStatus.COMMIT_UNKNOWN, BeginClearing): ProcessStatus.CLEARING,
        (ProcessStatus.CLEARING, CommitDelayed): ProcessStatus.CLEARING,
        (ProcessStatus.CLEARING, Cleared): ProcessStatus.SUCCESS,
        (ProcessStatus.CLEARING, ClearedPartly): ProcessStatus.PARTIAL,
        (ProcessStatus.CLEARING, ProcessClosed): ProcessStatus.CLOSED,
        (ProcessStatus.CLEARING, Hold): ProcessStatus.HELD,
        (ProcessStatus.RUNNING, Hold): ProcessStatus.HELD,
        (ProcessStatus.HELD, Confirmed): ProcessStatus.RUNNING,
        (ProcessStatus.HELD, ProcessClosed): ProcessStatus.CLOSED,
    }
)


def advance(
    process: OptimizingProcess, event: object, now: datetime, transitions: Transitions = TRANSITIONS
) -> OptimizingProcess:
    """The process as it stands after the event; one that is not known here changes its status alone.

    Raises IllegalState for an edge that the table lacks.
    """
    status = transitions.get((process.status, type(event)))
    if status is None:
        raise IllegalState(f"process {process.process_id} is {process.status}: {type(event).__name__} is not possible")
    moved = replace(process, status=status)
    match event:
        case BeginCommit() | CommitRefuted():
            return replace(moved, failure_code="", failure="", delay=None)
        case CommitSent():
            return replace(moved, commit_tries=process.commit_tries + 1)
        case Committed(receipt) | CommittedPartly(receipt):
            return replace(moved, finished_at=now, receipt=receipt, delay=None, failure_code="", failure="")
        case BeginClearing(receipt):
            return replace(moved, receipt=receipt, delay=None, failure_code="", failure="")
        case Cleared(receipt):
            return replace(moved, finished_at=now, receipt=receipt or process.receipt, delay=None)
        case ClearedPartly(code, message):
            return replace(moved, finished_at=now, delay=None, failure_code=code, failure=message)
        case CommitDelayed():
            return replace(moved, delay=_delayed(process.delay, event, now))
        case Hold(reason):
            return replace(moved, failure_code=Held.code, failure=reason, delay=None, receipt=None)
        case Confirmed():
            return replace(moved, failure_code="", failure="")
        case CommitUnclear(message):
            return replace(moved, failure=message, delay=None)
        case ProcessFailed(code, message) | TableGone(code, message) | ProcessClosed(message, code):
            return replace(moved, finished_at=now, delay=None, failure_code=code, failure=message, receipt=None)
    return moved


def _delayed(before: Delay | None, event: CommitDelayed, now: datetime) -> Delay:
    tries = before.tries + 1 if before else 1
    refusals = (before.refusals if before else 0) + 1 if event.refused else 0
    return Delay(event.code, event.reason, now + pause(tries), tries, refusals)


def is_refused_for_good(process: OptimizingProcess) -> bool:
    """Whether storage or catalog said no so often in a row that asking again is pointless."""
    return process.delay is not None and process.delay.refusals >= MAX_REFUSALS


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do until a task moves on."""


@dataclass(frozen=True, slots=True)
class RetryTask:
    """This failed task has runs left."""

    task_id: TaskId


@dataclass(frozen=True, slots=True)
class GiveUpTask:
    """This planned task is poisoned: it is to be cancelled, so that it is not scheduled again."""

    task_id: TaskId
    reason: str


@dataclass(frozen=True, slots=True)
class StartCommit:
    """These tasks (by number, in order) have results to commit; nothing else is open."""

    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EndWork:
    """The process is to commit nothing, and nothing is open any more: what it is to remove follows, and its end."""


@dataclass(frozen=True, slots=True)
class FailProcess:
    """The process cannot end well; its open tasks are to be cancelled."""

    code: str
    reason: str


Decision = Wait | RetryTask | GiveUpTask | StartCommit | EndWork | FailProcess

_OPEN = (TaskStatus.PLANNED, TaskStatus.SCHEDULED, TaskStatus.ACKED)


def decide(process: OptimizingProcess, tasks: Sequence[OptimizingTask]) -> Decision:
    """What follows for a process from the state of all its tasks: one step.

    The caller carries it out and asks again, in the same transaction, until there is nothing to carry out: Wait, or
    the process runs no more. Only a RUNNING process has anything to decide.

    - A task is lost for good when it was cancelled, when it failed more often than `max_retries`, or when it is
      poisoned and not just held by an optimizer (which may still bring its result).
    - Without `allow_partial_commit` one lost task fails the process at once.
    - With it the others go on; when none is open, what succeeded is committed, and nothing succeeded is a failure.
    - A failed task with runs left is planned again, lowest number first.
    - A process without tasks has nothing open.
    """
    if process.status is not ProcessStatus.RUNNING:
        return Wait()
    ordered = sorted(tasks, key=lambda task: task.task_id.number)
    lost = [task for task in ordered if _is_lost(task, process.max_retries)]
    if lost and not process.allow_partial_commit:
        return _failure(lost[0])
    for task in ordered:
        if task.status is TaskStatus.FAILED and task not in lost:
            return RetryTask(task.task_id)
        if task.status is TaskStatus.PLANNED and task in lost:
            return GiveUpTask(task.task_id, _loss(task))
    if any(task.status in _OPEN for task in ordered):
        return Wait()
    done = tuple(task.task_id.number for task in ordered if task.status is TaskStatus.SUCCESS)
    if lost and not done:
        return _failure(lost[0])
    return StartCommit(done) if process.commits else EndWork()


def _is_lost(task: OptimizingTask, max_retries: int) -> bool:
    match task.status:
        case TaskStatus.CANCELED:
            return True
        case TaskStatus.FAILED:
            return task.failed_runs > max_retries or is_poisoned(task)
        case TaskStatus.PLANNED:
            return is_poisoned(task)
    return False


def _failure(task: OptimizingTask) -> FailProcess:
    return FailProcess(task.failure_code or WorkFailed.code, _loss(task))


def _loss(task: OptimizingTask) -> str:
    """Why the task is lost, for people; a cancelled one carries the reason it was cancelled for."""
    number = task.task_id.number
    if task.status is TaskStatus.CANCELED:
        return f"task {number} was cancelled: {task.failure}"
    if is_poisoned(task):
        return (
            f"task {number} lost {task.lost_attempts} attempts over {len(task.lost_optimizers)} optimizers "
            f"and is not tried again; last: {task.failure}"
        )
    times = "once" if task.failed_runs == 1 else f"{task.failed_runs} times"
    return f"task {number} failed {times}; last: {task.failure}"
