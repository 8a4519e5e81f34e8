"""Carrying out what follows for a process from its tasks, within the write that changed a task."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from amoro_core.errors import IllegalState
from amoro_core.events import get_logger
from amoro_core.meters import Meters
from amoro_core.model import metrics
from amoro_core.model.processes import OptimizingProcess, OptimizingTask, TaskStatus
from amoro_core.records import record
from amoro_core.state import deciding
from amoro_core.state import processes as process_machine
from amoro_core.state import tables as table_machine
from amoro_core.state import tasks as task_machine
from amoro_core.state.pausing import Outcome
from amoro_core.store import commits, open_tasks, processes, tables, tasks
from amoro_core.store.database import Connection
from amoro_core.transactions.parts import ended_partly, landed, receipt_of, settled_groups
from amoro_core.transactions.releasing import done, done_words, end, release
from amoro_core.transactions.telling import advance_task, keep_process

log = get_logger("amoro.optimizing")


@record
class EndedAttempt:
    """How an attempt ended, one of ATTEMPT_OUTCOMES, and how long it ran since its ack; None: it was not acked."""

    kind: str
    outcome: str
    duration_s: float | None = None


@dataclass(slots=True)
class Effects:
    """Effects of a transaction, to be carried out once it is committed."""

    work: bool = False
    commits: list[tuple[str, str]] = field(default_factory=list)  # processes, each with its table's catalog
    left_over: list[tuple[str, str]] = field(default_factory=list)
    attempts: list[EndedAttempt] = field(default_factory=list)
    lost_optimizers: int = 0


def reported(task: OptimizingTask) -> EndedAttempt:
    """The attempt of a task that has succeeded or failed."""
    took = task.finished_at - task.acked_at if task.finished_at and task.acked_at else None
    return EndedAttempt(task.kind, task.status.value, took.total_seconds() if took else None)


def measure(meters: Meters, effects: Effects) -> None:
    """Count the attempts and optimizers that have ended."""
    for ended in effects.attempts:
        meters.count(metrics.TASK_ATTEMPTS, ended.outcome)
        if ended.duration_s is not None:
            meters.observe(metrics.TASK_TIME, ended.duration_s, ended.kind)
    if effects.lost_optimizers:
        meters.count(metrics.OPTIMIZERS_LOST, by=effects.lost_optimizers)


def settle_after(db: Connection, ended: Sequence[OptimizingTask], effects: Effects, now: datetime) -> None:
    """As `settle` for the processes of tasks that have just ended; what it costs does not grow with those still open.

    A success changes no other task: while one is open, and nothing is committed of a part, what was decided before
    holds, and that was to wait.
    """
    plain = {(one.task_id.process_id, one.group): None for one in ended if one.status is TaskStatus.SUCCESS}
    others = (one.task_id.process_id for one in ended if one.status is not TaskStatus.SUCCESS)
    for process_id in dict.fromkeys((*others, *open_tasks.list_quiet(db, plain))):
        settle(db, process_id, effects, now)


def settle(db: Connection, process_id: str, effects: Effects, now: datetime) -> None:
    """Carry out the decisions of `decide` on a process until nothing is left to do."""
    while True:
        process = processes.get(db, process_id)
        settled = settled_groups(db, process)
        match deciding.decide(process, tasks.list_for_process(db, process_id), settled):
            case deciding.Wait():
                return
            case deciding.RetryTask(task_id):
                task = tasks.get(db, task_id)
                advance_task(db, task, task_machine.Retry(), now)
                effects.work = True
            case deciding.GiveUpTask(task_id, reason):
                task = tasks.get(db, task_id)
                advance_task(db, task, task_machine.Cancel(reason), now)
            case deciding.StartCommit():
                keep_process(db, process, process_machine.advance(process, process_machine.BeginCommit(), now), now)
                runtime = tables.get(db, process.table_id)
                if process.is_optimizing:
                    tables.save(db, table_machine.advance(runtime, table_machine.BeginCommit(process.reason), now))
                effects.commits.append((process_id, runtime.identifier.catalog))
                return
            case deciding.EndCommitted(code, reason):
                _end_committed(db, process, code, reason, now)
                effects.left_over.append((process_id, tables.get(db, process.table_id).identifier.catalog))
                return
            case deciding.EndWork():
                effects.commits.append((process_id, tables.get(db, process.table_id).identifier.catalog))
                return
            case deciding.FailProcess(code, reason):
                _fail(db, process, code, reason, now)
                effects.left_over.append((process_id, tables.get(db, process.table_id).identifier.catalog))
                return


def _end_committed(db: Connection, process: OptimizingProcess, code: str, reason: str, now: datetime) -> None:
    """The end of a process that has committed group by group; what it has written in vain is left over."""
    receipt = receipt_of(db, process)
    if receipt is None:
        raise IllegalState(f"process {process.process_id} has committed nothing")
    event = process_machine.EndedPartly(receipt, code, reason) if reason else process_machine.Committed(receipt)
    ended = replace(process_machine.advance(process, event, now), left_over=True)
    keep_process(db, process, ended, now)
    cancel_open_tasks(db, process.process_id, reason, now)
    last = landed(commits.list_for_process(db, process.process_id))[-1]
    done(db, process, done_words(process, last), now, last.snapshot_id)
    log.info("process.committed", process=process.process_id, rows=receipt.rows_after, partial=bool(reason), why=reason)


def has_ended_work(db: Connection, process: OptimizingProcess) -> bool:
    """Whether a running process is to commit nothing and none of its tasks is open."""
    return isinstance(deciding.decide(process, tasks.list_for_process(db, process.process_id)), deciding.EndWork)


def take_back(
    db: Connection, task: OptimizingTask, reason: str, effects: Effects, now: datetime, *, lost: bool
) -> None:
    """Plan a held task again, and settle its process. `lost` counts towards the poison rule."""
    log.warning("task.reset", task=str(task.task_id), attempt=task.attempt, reason=reason)
    advance_task(db, task, task_machine.Reset(reason, lost), now)
    effects.work = True
    effects.attempts.append(EndedAttempt(task.kind, "lost" if lost else "given_back"))
    settle(db, task.task_id.process_id, effects, now)


def cancel_open_tasks(db: Connection, process_id: str, reason: str, now: datetime) -> None:
    """Cancel the planned and held tasks of a process that ends."""
    for task in tasks.list_for_process(db, process_id):
        if task.status in (TaskStatus.PLANNED, TaskStatus.SCHEDULED, TaskStatus.ACKED):
            advance_task(db, task, task_machine.Cancel(reason), now)


def _fail(db: Connection, process: OptimizingProcess, code: str, reason: str, now: datetime) -> None:
    end(db, process, ended_partly(db, process, code, reason) or process_machine.ProcessFailed(code, reason), now)
    cancel_open_tasks(db, process.process_id, "the process failed", now)
    release(db, process, f"{process.type} failed: {reason}", now, Outcome.FAILED)
    log.warning("process.failed", process=process.process_id, code=code, reason=reason)
