"""Leases: which attempts are overdue, and which processes may still be cancelled."""

from collections.abc import Iterable, Mapping
from datetime import timedelta

from amoro_core.errors import IllegalState
from amoro_core.model.processes import (
    Attempt,
    CommitAttempt,
    OptimizingProcess,
    OptimizingTask,
    ProcessStatus,
    TaskStatus,
)
from amoro_core.records import record


@record
class Lease:
    """A period with a timeout: of an attempt until its ack, for each optimizer that gets it, or after its ack."""

    attempt: Attempt
    unacked_with: str  # the optimizer; "" once the attempt is acked, also if it is adopted later


def lease_of(task: OptimizingTask) -> Lease:
    """The present lease of a held task."""
    holder = task.thread.optimizer_id if task.thread is not None and task.status is TaskStatus.SCHEDULED else ""
    return Lease(Attempt(task.task_id, task.attempt), holder)


def leases(before: Mapping[Lease, float], held: Iterable[OptimizingTask], now_s: float) -> dict[Lease, float]:
    """The start of each held task's lease, in monotonic seconds."""
    return {lease: before.get(lease, now_s) for lease in map(lease_of, held)}


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
