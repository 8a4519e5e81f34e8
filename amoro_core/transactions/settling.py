"""What the state of its tasks means for a process, carried out within the write that changed a task."""

from dataclasses import dataclass, field
from datetime import datetime

from amoro_core.events import get_logger
from amoro_core.model.processes import OptimizingProcess, OptimizingTask, TaskStatus
from amoro_core.state import processes as process_machine
from amoro_core.state import tables as table_machine
from amoro_core.state import tasks as task_machine
from amoro_core.store import processes, tables, tasks
from amoro_core.store.database import Connection
from amoro_core.transactions.releasing import end, release

log = get_logger("amoro.optimizing")


@dataclass(slots=True)
class Effects:
    """What a transaction asks for once it is committed."""

    work: bool = False
    commits: list[tuple[str, str]] = field(default_factory=list)  # processes, each with its table's catalog
    left_over: list[tuple[str, str]] = field(default_factory=list)


def settle(db: Connection, process_id: str, effects: Effects, now: datetime) -> None:
    """Carry out what `decide` says of a process, until there is nothing left to carry out."""
    while True:
        process = processes.get(db, process_id)
        match process_machine.decide(process, tasks.list_for_process(db, process_id)):
            case process_machine.Wait():
                return
            case process_machine.RetryTask(task_id):
                task = tasks.get(db, task_id)
                tasks.save(db, task_machine.advance(task, task_machine.Retry(), now))
                effects.work = True
            case process_machine.GiveUpTask(task_id, reason):
                task = tasks.get(db, task_id)
                tasks.save(db, task_machine.advance(task, task_machine.Cancel(reason), now))
            case process_machine.StartCommit():
                processes.save(db, process_machine.advance(process, process_machine.BeginCommit(), now))
                runtime = tables.get(db, process.table_id)
                if process.is_optimizing:
                    tables.save(db, table_machine.advance(runtime, table_machine.BeginCommit(process.reason), now))
                effects.commits.append((process_id, runtime.identifier.catalog))
                return
            case process_machine.EndWork():
                effects.commits.append((process_id, tables.get(db, process.table_id).identifier.catalog))
                return
            case process_machine.FailProcess(code, reason):
                _fail(db, process, code, reason, now)
                effects.left_over.append((process_id, tables.get(db, process.table_id).identifier.catalog))
                return


def has_ended_work(db: Connection, process: OptimizingProcess) -> bool:
    """Whether a running process is to commit nothing and none of its tasks is open."""
    return isinstance(
        process_machine.decide(process, tasks.list_for_process(db, process.process_id)), process_machine.EndWork
    )


def take_back(
    db: Connection, task: OptimizingTask, reason: str, effects: Effects, now: datetime, *, lost: bool
) -> None:
    """Plan a held task again, and settle its process. `lost` counts towards the poison rule."""
    log.warning("task.reset", task=str(task.task_id), attempt=task.attempt, reason=reason)
    tasks.save(db, task_machine.advance(task, task_machine.Reset(reason, lost), now))
    effects.work = True
    settle(db, task.task_id.process_id, effects, now)


def cancel_open_tasks(db: Connection, process_id: str, reason: str, now: datetime) -> None:
    """Cancel what is planned or held of a process that ends."""
    for task in tasks.list_for_process(db, process_id):
        if task.status in (TaskStatus.PLANNED, TaskStatus.SCHEDULED, TaskStatus.ACKED):
            tasks.save(db, task_machine.advance(task, task_machine.Cancel(reason), now))


def _fail(db: Connection, process: OptimizingProcess, code: str, reason: str, now: datetime) -> None:
    end(db, process, process_machine.ProcessFailed(code, reason), now)
    cancel_open_tasks(db, process.process_id, "the process failed", now)
    release(db, process, f"{process.type} failed: {reason}", now, backs_off=True)
    log.warning("process.failed", process=process.process_id, code=code, reason=reason)
