"""What may be taken back: attempts that are overdue, processes that do not commit yet."""

from datetime import datetime, timedelta

from amoro_core.errors import IllegalState
from amoro_core.model.processes import OptimizingProcess, OptimizingTask, ProcessStatus, TaskStatus


def overdue(
    task: OptimizingTask, known: frozenset[str], now: datetime, ack_timeout: timedelta, close_timeout: timedelta
) -> str | None:
    """Why a held task is to be taken back; None while its optimizer may keep it."""
    if task.thread is None:
        return None
    if task.thread.optimizer_id not in known:
        return f"optimizer {task.thread.optimizer_id} is gone"
    if task.status is TaskStatus.SCHEDULED and task.scheduled_at is not None and now - task.scheduled_at > ack_timeout:
        return f"not acknowledged within {ack_timeout.total_seconds():g} s"
    if task.status is TaskStatus.ACKED and task.acked_at is not None and now - task.acked_at > close_timeout:
        return f"not completed within {close_timeout.total_seconds():g} s"
    return None


def refuse_cancelling(process: OptimizingProcess) -> None:
    """Raises IllegalState, with the way out, for all but a running process."""
    name = f"process {process.process_id}"
    match process.status:
        case ProcessStatus.RUNNING:
            return
        case ProcessStatus.COMMITTING:
            raise IllegalState(
                f"{name} commits already and can't be cancelled",
                hint="Wait for its end; its commit can be taken back as its receipt says.",
            )
        case ProcessStatus.COMMIT_UNKNOWN:
            raise IllegalState(
                f"{name} can't be cancelled: it is not known whether its commit was applied",
                hint="The coordinator reconciles it with the table by itself.",
            )
    raise IllegalState(f"{name} has ended already: {process.status}")
