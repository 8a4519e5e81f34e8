"""Processes that commit group by group, and processes that are closed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from amoro_core.errors import CommitConflict
from amoro_core.model.clustering import KnownGroup
from amoro_core.model.optimizing_config import is_switched_off
from amoro_core.model.plans import PartitionKey
from amoro_core.model.processes import CommitAttempt, CommitOutcome, OptimizingProcess, ProcessStatus, TaskStatus
from amoro_core.state import processes as process_machine
from amoro_core.state.backoff import Outcome
from amoro_core.store import actions, processes, queue_stats, table_stats, tables
from amoro_core.store.database import Connection
from amoro_core.transactions.advance_process import (
    Effects,
    advance_process,
    cancel_open_tasks,
    end_process,
    move_process,
    partial_end,
    release_table,
)


@dataclass(frozen=True, slots=True)
class LandedGroups:
    """A commit of some groups that has landed."""

    attempt: CommitAttempt
    partitions: Iterable[PartitionKey]  # whose last times move
    made: Iterable[KnownGroup]  # groups of files that are known from now on
    dropped: Mapping[int, str]  # groups that were ready and that the commit lacks


def keep_landed(db: Connection, landed: LandedGroups, effects: Effects, now: datetime) -> None:
    """The process goes on with its other groups, or ends where none is left."""
    attempt = landed.attempt
    processes.save_commit_outcome(db, attempt.process_id, attempt.number, CommitOutcome.DONE)
    table_stats.add_dropped_groups(db, attempt.process_id, landed.dropped)
    process = move_process(db, attempt.process_id, process_machine.CommittedSome(), now)
    table_stats.add_cluster_groups(db, process.table_id, process.table_uuid, landed.made, now)
    tables.record_partitions(db, process.table_id, landed.partitions, process.type, process.created_at)
    advance_process(db, attempt.process_id, effects, now)


def keep_dropped(db: Connection, process_id: str, dropped: Mapping[int, str], effects: Effects, now: datetime) -> None:
    """None of the groups that were ready can be committed; the process goes on with the others, or ends."""
    table_stats.add_dropped_groups(db, process_id, dropped)
    move_process(db, process_id, process_machine.GroupsDropped(), now)
    advance_process(db, process_id, effects, now)


@dataclass(frozen=True, slots=True)
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
    counts = queue_stats.count_by_status(db, process.process_id)
    done, every = counts[TaskStatus.SUCCESS], sum(counts.values())
    reason = f"{ending.reason}; {done} of {every} tasks were done" if every else ending.reason
    event = partial_end(db, process, ending.code, reason) or process_machine.ProcessClosed(reason, ending.code)
    end_process(db, process, event, now)
    cancel_open_tasks(db, process.process_id, ending.reason, now)
    release_table(db, process, f"{process.type} was ended: {reason}", now, Outcome.ENDED)
    if not process.is_optimizing:
        # The next one starts no sooner than if this one had ended normally.
        known = actions.get(db, process.table_id, process.action)
        actions.save(db, replace(known, last_at=now))


def close_held(db: Connection, after: timedelta, now: datetime) -> list[str]:
    """Close processes that were not confirmed within this time; their ids."""
    ending = Ending(f"nobody confirmed it within {after.days} days")
    held = [one for one in processes.list_active(db) if one.status == ProcessStatus.HELD]
    old = [one for one in held if one.created_at <= now - after]
    for one in old:
        close(db, one, ending, now)
    return [one.process_id for one in old]
