"""Ending a process before its commit, within the write that found that it is no longer needed."""

from dataclasses import replace
from datetime import datetime, timedelta

from amoro_core.errors import CommitConflict
from amoro_core.model.config import is_switched_off
from amoro_core.model.processes import OptimizingProcess, ProcessStatus, TaskStatus
from amoro_core.records import record
from amoro_core.state import processes as process_machine
from amoro_core.state.pausing import Outcome
from amoro_core.store import actions, processes, tables, task_sums
from amoro_core.store.database import Connection
from amoro_core.transactions.parts import ended_partly
from amoro_core.transactions.releasing import end, release
from amoro_core.transactions.settling import cancel_open_tasks


@record
class Ending:
    """Why a process is ended; `code` is that of the corresponding error, "" if it was requested."""

    reason: str
    code: str = ""


def unwanted(db: Connection, table_id: int) -> tuple[OptimizingProcess, Ending] | None:
    """A running process of the table that has become pointless, and why. A committing one continues."""
    runtime = tables.get(db, table_id)
    for active in processes.list_active_of(db, table_id):
        if active.status is not ProcessStatus.RUNNING:
            continue
        if runtime.uuid not in ("", active.table_uuid):
            reason = f"{runtime.identifier} is another table: UUID {runtime.uuid}, planned on {active.table_uuid}"
            return active, Ending(reason, CommitConflict.code)
        if active.is_optimizing and is_switched_off(runtime.enabled_override, runtime.properties):
            return active, Ending("optimizing was switched off")
    return None


def close(db: Connection, process: OptimizingProcess, ending: Ending, now: datetime) -> None:
    """End the process, noting its progress: its tasks are cancelled, and its table is free."""
    counts = task_sums.count_by_status(db, process.process_id)
    done, every = counts[TaskStatus.SUCCESS], sum(counts.values())
    reason = f"{ending.reason}; {done} of {every} tasks were done" if every else ending.reason
    event = ended_partly(db, process, ending.code, reason) or process_machine.ProcessClosed(reason, ending.code)
    end(db, process, event, now)
    cancel_open_tasks(db, process.process_id, ending.reason, now)
    release(db, process, f"{process.type} was ended: {reason}", now, Outcome.ENDED)
    if not process.is_optimizing:
        # The next one starts no sooner than if this one had ended normally.
        known = actions.get(db, process.table_id, process.action)
        actions.save(db, replace(known, last_at=now))


def close_held(db: Connection, after: timedelta, now: datetime) -> list[str]:
    """Close processes that nobody has confirmed for so long; their ids."""
    ending = Ending(f"nobody confirmed it within {after.days} days")
    held = [one for one in processes.list_active(db) if one.status == ProcessStatus.HELD]
    old = [one for one in held if one.created_at <= now - after]
    for one in old:
        close(db, one, ending, now)
    return [one.process_id for one in old]
