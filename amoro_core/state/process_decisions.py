"""Decides the next step of a process from the states of its tasks; lanes, leases, cancelling."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from amoro_core.documents.formatting import many
from amoro_core.errors import CommitConflict, DataFileMissing, IllegalState, StorageFull, WorkFailed
from amoro_core.model.processes import (
    IN_NO_LANE,
    LAYOUT,
    METADATA,
    STORAGE,
    Attempt,
    CommitAttempt,
    OptimizingProcess,
    OptimizingTask,
    ProcessStatus,
    TaskId,
    TaskStatus,
)
from amoro_core.state.tasks import is_poisoned


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do until a task changes."""


@dataclass(frozen=True, slots=True)
class RetryTask:
    """This failed task has runs left."""

    task_id: TaskId


@dataclass(frozen=True, slots=True)
class GiveUpTask:
    """This planned task is poisoned: cancel it, so that it is not scheduled again."""

    task_id: TaskId
    reason: str


@dataclass(frozen=True, slots=True)
class StartCommit:
    """These tasks (by number, in order) have results to commit; nothing else is open."""

    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EndCommitted:
    """Nothing is open any more, and every group is committed, dropped or lost; `reason` "" where all are committed."""

    code: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class EndWork:
    """The process commits nothing, and no task is open any more: it removes its files, if any, and ends."""


@dataclass(frozen=True, slots=True)
class FailProcess:
    """The process can't succeed any more; cancel its open tasks."""

    code: str
    reason: str


Decision = Wait | RetryTask | GiveUpTask | StartCommit | EndCommitted | EndWork | FailProcess


@dataclass(frozen=True, slots=True)
class Settled:
    """Dropped groups of a process, and the committed ones of one that commits several times."""

    committed: frozenset[int] = frozenset()
    dropped: Mapping[int, str] = field(default_factory=dict)  # those that won't be committed, with the reason

    @property
    def numbers(self) -> frozenset[int]:
        """The groups that need no further commit."""
        return self.committed | self.dropped.keys()


NOTHING_SETTLED = Settled()

_OPEN = (TaskStatus.PLANNED, TaskStatus.SCHEDULED, TaskStatus.ACKED)


def decide(process: OptimizingProcess, tasks: Sequence[OptimizingTask], settled: Settled = NOTHING_SETTLED) -> Decision:
    """The next step of a process, from the states of all its tasks. Only a RUNNING process has anything to decide.

    The caller carries it out and asks again, in the same transaction, until it is Wait or the process runs no more.

    - A task is lost for good when it was cancelled, when it failed more often than `max_retries` or by what another
      run at once can't mend, or when it is poisoned and not just held by an optimizer (which may still bring its
      result).
    - Without `allow_partial_commit` one lost task fails the process at once. With it the others go on; when none is
      open, what succeeded is committed, and nothing succeeded is a failure.
    - A failed task with runs left is planned again, lowest number first.
    - One that commits by groups begins a commit once its share of the groups is ready, though others are open; a
      group that was dropped is none that was lost.
    """
    if process.status is not ProcessStatus.RUNNING:
        return Wait()
    ordered = sorted(tasks, key=lambda task: task.task_id.number)
    lost = [
        task for task in ordered if _is_lost(task, process.max_retries) and task.task_id.number not in settled.dropped
    ]
    if lost and not process.allow_partial_commit:
        return _failure(lost[0])
    for task in ordered:
        if task.status is TaskStatus.FAILED and task not in lost and task.task_id.number not in settled.dropped:
            return RetryTask(task.task_id)
        if task.status is TaskStatus.PLANNED and task in lost:
            return GiveUpTask(task.task_id, _loss(task))
    is_open = any(task.status in _OPEN for task in ordered)
    if process.max_commits:
        return _by_groups(process, ordered, lost, settled, is_open=is_open)
    if is_open:
        return Wait()
    numbers = (task.task_id.number for task in ordered if task.status is TaskStatus.SUCCESS)
    done = tuple(number for number in numbers if number not in settled.dropped)
    if lost and not done:
        return _failure(lost[0])
    if settled.dropped and not done:
        return FailProcess(CommitConflict.code, next(iter(settled.dropped.values())))
    return StartCommit(done) if process.commits else EndWork()


def _by_groups(
    process: OptimizingProcess,
    tasks: Sequence[OptimizingTask],
    lost: Sequence[OptimizingTask],
    settled: Settled,
    *,
    is_open: bool,
) -> Decision:
    numbers = (task.task_id.number for task in tasks if task.status is TaskStatus.SUCCESS)
    ready = tuple(number for number in numbers if number not in settled.numbers)
    share = -(-len(tasks) // process.max_commits)
    if is_open and len(ready) < share:
        return Wait()
    if ready:
        return StartCommit(ready)
    if not settled.committed and lost:
        return _failure(lost[0])
    whys = [*(_loss(task) for task in lost), *(settled.dropped[number] for number in sorted(settled.dropped))]
    rest = len(tasks) - len(settled.committed)
    if rest == 0:
        return EndCommitted()
    reason = (
        f"{rest} of {many(len(tasks), 'group')} not committed; the first: {whys[0] if whys else 'it was not begun'}"
    )
    code = (lost[0].failure_code or WorkFailed.code) if lost else CommitConflict.code
    return EndCommitted(code, reason) if settled.committed else FailProcess(code, reason)


#: Codes of failures that are there at the next run, too, until a person or time mends them: the table backs off.
_LASTING = frozenset({DataFileMissing.code, StorageFull.code})


def _is_lost(task: OptimizingTask, max_retries: int) -> bool:
    match task.status:
        case TaskStatus.CANCELED:
            return True
        case TaskStatus.FAILED:
            return task.failed_runs > max_retries or task.failure_code in _LASTING or is_poisoned(task)
        case TaskStatus.PLANNED:
            return is_poisoned(task)
    return False


def _failure(task: OptimizingTask) -> FailProcess:
    return FailProcess(task.failure_code or WorkFailed.code, _loss(task))


def _loss(task: OptimizingTask) -> str:
    """Why the task is lost, for display; a cancelled one has the reason of its cancellation."""
    number = task.task_id.number
    if task.status is TaskStatus.CANCELED:
        return f"task {number} was cancelled: {task.failure}"
    if is_poisoned(task):
        optimizers = many(len(task.lost_optimizers), "optimizer")
        lost = f"task {number} lost {many(task.lost_attempts, 'attempt')} on {optimizers}"
        return f"{lost} and is not retried; last: {task.failure}"
    return f"task {number} failed {many(task.failed_runs, 'time')}; last: {task.failure}"


#: Lanes that exclude each other: files that one removes from the metadata look like orphans to the other.
EXCLUDING: frozenset[frozenset[str]] = frozenset({frozenset({METADATA, STORAGE})})
#: Lanes with the actions of other lanes that they exclude: data expiry takes whole files, whoever orders their rows.
APART: frozenset[tuple[str, str]] = frozenset({(LAYOUT, "expire-data")})


def conflicting_process(
    lane: str, active: Iterable[OptimizingProcess], action: str = ""
) -> tuple[OptimizingProcess, str] | None:
    """The active process of the table that prevents one of the action from starting in the lane, and why; None: none.

    While it is unknown whether a commit was applied nothing else starts in any lane: the commit's evidence must stay.
    """
    for process in sorted(active, key=lambda item: item.process_id):
        if process.status == ProcessStatus.COMMIT_UNKNOWN:
            return process, "it is not known whether its commit was applied"
        if process.status in IN_NO_LANE:
            continue  # it is asked for its lane when it starts
        if process.lane == lane:
            return process, f"it holds the lane {lane}"
        if frozenset({process.lane, lane}) in EXCLUDING:
            return process, f"the lanes {process.lane} and {lane} exclude each other"
        if (lane, process.action) in APART or (process.lane, action) in APART:
            named, other = (process.action, lane) if (lane, process.action) in APART else (action, process.lane)
            return process, f"{named} and the lane {other} exclude each other"
    return None


@dataclass(frozen=True, slots=True)
class Lease:
    """A period with a timeout: of an attempt until its ack, for each optimizer that gets it, or after its ack."""

    attempt: Attempt
    unacked_with: str  # the optimizer; "" once the attempt is acked, also if it is adopted later


def lease_of(task: OptimizingTask) -> Lease:
    """The present lease of a held task."""
    holder = task.thread.optimizer_id if task.thread is not None and task.status is TaskStatus.SCHEDULED else ""
    return Lease(Attempt(task.task_id, task.attempt), holder)


def leases(before: Mapping[Lease, float], tasks: Iterable[OptimizingTask], now_s: float) -> dict[Lease, float]:
    """The start of each held task's lease, in monotonic seconds."""
    return {lease: before.get(lease, now_s) for lease in map(lease_of, tasks)}


def overdue(task: OptimizingTask, age_s: float, ack_timeout: timedelta, close_timeout: timedelta) -> str | None:
    """Why a held task with a lease of that age must be taken back; None while its optimizer may keep it."""
    acked = task.status is TaskStatus.ACKED
    limit_s = (close_timeout if acked else ack_timeout).total_seconds()
    if age_s <= limit_s:
        return None
    return f"not {'completed' if acked else 'acknowledged'} within {limit_s:g} s"


def refuse_cancelling(process: OptimizingProcess, attempts: Iterable[CommitAttempt]) -> None:
    """Raises IllegalState, with the way out, for a process that has ended or has sent what may be applied."""
    name = f"process {process.process_id}"
    match process.status:
        case ProcessStatus.REQUESTED | ProcessStatus.RUNNING | ProcessStatus.HELD:
            return
        case ProcessStatus.COMMITTING:
            sent = next((attempt for attempt in attempts if attempt.is_open), None)
            if sent is None:
                return
            raise IllegalState(
                f"{name} can't be cancelled: its commit was sent (attempt {sent.number}, {sent.words})",
                hint="Wait for its end; its receipt says how to undo the commit.",
            )
        case ProcessStatus.COMMIT_UNKNOWN:
            raise IllegalState(
                f"{name} can't be cancelled: it is not known whether its commit was applied",
                hint="The coordinator reconciles it with the table automatically.",
            )
        case ProcessStatus.CLEARING if not process.commits:
            return  # between batches
        case ProcessStatus.CLEARING:
            raise IllegalState(
                f"{name} can't be cancelled: its work is done, and files that it leaves are being removed",
                hint="Wait for its end.",
            )
    raise IllegalState(f"{name} has ended already: {process.status}")
