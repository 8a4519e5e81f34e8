"""Storing a plan: the process with its tasks, if it may start on the table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from amoro_core.actions.action_api import Action, Clustering, Plan, PlannedTask, Request
from amoro_core.errors import ConfirmationRequired, GroupNotFound, IllegalState, TableBlocked, TableBusy
from amoro_core.formats.ports import OpenTable
from amoro_core.logger import get_logger
from amoro_core.model.clustering import REJECTS
from amoro_core.model.maintenance import Options
from amoro_core.model.optimizing_config import OptimizingConfig
from amoro_core.model.processes import (
    FILES,
    LAYOUT,
    METADATA,
    OptimizingProcess,
    OptimizingTask,
    ProcessStatus,
    TaskId,
    TaskStatus,
    uuid7,
)
from amoro_core.model.tables import BlockedOperation, TableRuntime
from amoro_core.state import processes as process_machine
from amoro_core.state.process_decisions import conflicting_process
from amoro_core.store import actions, groups, pending_deletions, plans, processes, snapshot_leases, tables, tasks
from amoro_core.store.database import Connection
from amoro_core.store.plans import StoredPlan
from amoro_core.transactions.advance_process import (
    Effects,
    advance_process,
    block_needs_renewal,
    block_writers,
    refuse_blocked,
)
from amoro_core.transactions.journal import keep_process

log = get_logger("amoro.maintaining")

#: The trigger of a process that was not requested.
EVALUATION = "evaluation"

Works = Sequence[tuple[OptimizingTask, bytes]]


@dataclass(frozen=True, slots=True)
class ProcessRequest:
    """The trigger of a process, and the request."""

    trigger: str
    request: Request


def require_free(
    db: Connection,
    runtime: TableRuntime,
    lane: str,
    now: datetime,
    *,
    maintains: bool = False,
    own: str = "",
    action: str = "",
) -> None:
    """Raise TableBusy for a process that prevents another one from starting in the lane, TableBlocked for a blocker.

    `maintains`: what begins is maintenance, which has a kind of blockers of its own. `own` is its process, where it
    has one already, `action` what it is for.
    """
    active = [item for item in processes.list_active_of(db, runtime.table_id, runtime.uuid) if item.process_id != own]
    conflict = conflicting_process(lane, active, action=action)
    if conflict is not None:
        other, why = conflict
        note = "" if other.lane == lane else f"; {why}"
        raise TableBusy(
            f"process {other.process_id} ({other.type}, {other.status}) is active on {runtime.identifier}{note}",
            hint=f"Wait for it: amoro process show {other.process_id}",
        )
    require_unblocked(db, runtime, lane, now, maintains=maintains)


def require_unblocked(
    db: Connection, runtime: TableRuntime, lane: str, now: datetime, *, maintains: bool = False
) -> None:
    """Raise TableBlocked for a blocker against what is to begin in the lane.

    Plans of optimizing and clustering leave out partitions that are blocked; of others a condition blocks all.
    """
    against = {BlockedOperation.MAINTAIN if maintains else BlockedOperation.OPTIMIZE}
    if lane in (FILES, LAYOUT):
        against.add(BlockedOperation.OPTIMIZE)
    refuse_blocked(db, runtime, against, now, partly=maintains and lane == FILES)


def require_no_lease_since(db: Connection, runtime: TableRuntime, lane: str, since: datetime, now: datetime) -> None:
    """Raise TableBusy if a snapshot was leased after planning began, for lanes whose processes remove snapshots."""
    if lane != METADATA:
        return
    for lease in snapshot_leases.list_leases(db, now, runtime.table_id, runtime.uuid):
        if lease.created_at > since:
            raise TableBusy(f"{lease.words} was taken while this was planned", hint="Try again: it is known now.")


def planned(
    runtime: TableRuntime,
    table: OpenTable,
    action: Action,
    plan: Plan,
    wanted: ProcessRequest,
    config: OptimizingConfig,
    now: datetime,
    process_id: str = "",
) -> tuple[OptimizingProcess, Works]:
    """The process of a plan, with its tasks and their inputs. `process_id`: an existing one that is planned again."""
    process = OptimizingProcess(
        process_id=process_id or uuid7(now),
        table_id=runtime.table_id,
        type=plan.name,
        status=ProcessStatus.RUNNING if plan.ttl is None else ProcessStatus.REQUESTED,
        trigger=wanted.trigger,
        reason=plan.reason,
        table_uuid=table.facts.uuid,
        format_version=table.facts.format_version,
        snapshot_id=plan.snapshot_id,
        sequence_number=plan.sequence_number,
        schema_id=table.facts.schema_id,
        last_column_id=table.facts.last_column_id,
        created_at=now,
        max_retries=config.max_retries,
        allow_partial_commit=config.allow_partial_commit or plan.max_commits > 1,
        where=wanted.request.where,
        action=action.name,
        lane=action.lane,
        detail=plan.detail,
        commits=plan.commits,
        max_commits=plan.max_commits,
        predicted_ms=round(plan.work_s * runtime.rate * 1000),
    )
    works = [
        (_task(process, number, task, config.group), task.work.payload)
        for number, task in enumerate(plan.tasks, start=1)
    ]
    return process, works


def store_planned(
    db: Connection,
    runtime: TableRuntime,
    process: OptimizingProcess,
    works: Works,
    now: datetime,
    *,
    before: OptimizingProcess | None = None,
) -> None:
    """Store the process with its tasks, in place of its former state `before`. Raises GroupNotFound, TableBusy."""
    if works and groups.find(db, works[0][0].group) is None:
        names = ", ".join(item.name for item in groups.list_groups(db))
        raise GroupNotFound(
            f"optimizer group {works[0][0].group!r} of table {runtime.identifier} does not exist",
            hint=f"Set the table's property self-optimizing.group to one of: {names}.",
        )
    keep_process(db, before, process, now)
    if before is not None:
        # Attempts of the tasks that it had are stale for those that it gets.
        last = tasks.last_attempt(db, process.process_id)
        tasks.remove_all(db, process.process_id)
        works = [(task._replace(attempt=last), payload) for task, payload in works]
    tasks.add_many(db, works)


def beyond(plan: Plan, confirmed: Mapping[str, int]) -> str:
    """In what a plan measures more than was confirmed, in words; "": in nothing."""
    more = [key for key, value in plan.measures.items() if value > confirmed.get(key, 0)]
    if not more:
        return ""
    words = ", ".join(f"{key} {plan.measures[key]} (seen: {confirmed.get(key, 0)})" for key in more)
    return f"{plan.held or plan.reason}; more than was confirmed: {words}"


def confirmation_required(process: OptimizingProcess, runtime: TableRuntime, why: str) -> ConfirmationRequired:
    """The error that a process must be confirmed first, with the command."""
    name = str(runtime.identifier)
    return ConfirmationRequired(
        f"process {process.process_id} ({process.type}) on {name} is held: {why}",
        hint=f"Look at its plan: amoro process show {process.process_id}. "
        f"Then: amoro table maintain {name} --action {process.type} --confirm {name}",
    )


def keep_plan(
    db: Connection,
    process: OptimizingProcess,
    stored_plan: Plan,
    options: Options,
    now: datetime,
    start_at: datetime | None = None,
) -> None:
    """Keep what the end of the process needs of its plan, and what it is confirmed by; in place of an earlier one.

    `start_at`: when a plan that is stored before it is started starts by itself; None: only by command.
    Files that are known already are written down as condemned; they are when the process has done its work.
    """
    expires_at = None if stored_plan.ttl is None else now + stored_plan.ttl
    stored = StoredPlan(stored_plan.document, stored_plan.measures, options, stored_plan.keep, start_at, expires_at)
    plans.save_plan(db, process.process_id, stored)
    tasks.save_blobs(db, process.process_id, stored_plan.blobs)
    pending_deletions.remove_written(db, process.process_id)
    batches = pending_deletions.batches_of(
        stored_plan.condemned, process.process_id, process.table_id, process.table_uuid, now + stored_plan.keep
    )
    pending_deletions.add_many(db, batches)


def _task(process: OptimizingProcess, number: int, task: PlannedTask, group: str) -> OptimizingTask:
    return OptimizingTask(
        task_id=TaskId(process.process_id, number),
        table_id=process.table_id,
        group=group,
        status=TaskStatus.PLANNED,
        kind=task.work.kind,
        cost=task.cost,
        partition=task.partition,
        input_files=task.input_files,
        input_bytes=task.input_bytes,
        input_rows=task.input_rows,
        stage=task.stage,
    )


def log_planned(process: OptimizingProcess, runtime: TableRuntime, works: Works) -> None:
    """Log the new process."""
    log.info(
        "process.planned",
        process=process.process_id,
        table=str(runtime.identifier),
        type=process.type,
        tasks=len(works),
        status=str(process.status),
        reason=process.reason,
    )


_UNDER_WAY = (ProcessStatus.RUNNING, ProcessStatus.COMMITTING)


def list_requested(db: Connection, table_id: int | None = None) -> list[OptimizingProcess]:
    """Plans that wait for their start, oldest first; of the table, where it is given."""
    active = processes.list_active(db) if table_id is None else processes.list_active_of(db, table_id)
    return [process for process in active if process.status == ProcessStatus.REQUESTED]


def list_expired(db: Connection, now: datetime) -> list[OptimizingProcess]:
    """Plans that were not started before they expired."""
    waiting = [(process, plans.get_plan(db, process.process_id).expires_at) for process in list_requested(db)]
    return [process for process, at in waiting if at is not None and at <= now]


def list_startable(db: Connection, now: datetime) -> list[OptimizingProcess]:
    """Plans whose start time has come."""
    waiting = [(process, plans.get_plan(db, process.process_id).start_at) for process in list_requested(db)]
    return [process for process, at in waiting if at is not None and at <= now]


def require_may_begin(
    db: Connection, runtime: TableRuntime, action: Action, trigger: str, now: datetime, *, stored: bool = False
) -> None:
    """Raise TableBusy or TableBlocked where no process of the action may begin now.

    What is stored before it is started needs its lane at its start only; the clock makes no such plan while another
    one of the table waits. `stored`: asked within the write that stores it.
    """
    if not isinstance(action, Clustering):
        require_free(db, runtime, action.lane, now, maintains=True, action=action.name)
        return
    require_unblocked(db, runtime, action.lane, now, maintains=True)
    if trigger != EVALUATION:
        return
    if waiting := list_requested(db, runtime.table_id):
        raise TableBusy(f"its last plan was not started yet: amoro process start {waiting[-1].process_id}")
    if not stored:
        require_free(db, runtime, action.lane, now, maintains=True, action=action.name)


def start(db: Connection, process: OptimizingProcess, effects: Effects, now: datetime) -> OptimizingProcess:
    """Let a plan begin. Raises TableBusy or TableBlocked, and IllegalState for one that has begun or has ended."""
    refuse_starting(process)
    runtime = tables.get(db, process.table_id)
    for blocker in actions.list_blockers(db, now, process.table_id):
        if blocker.condition and blocker.created_at > process.created_at:
            raise TableBlocked(f"since this was planned {runtime.identifier} is {blocker.words}")
    require_free(db, runtime, process.lane, now, maintains=True, own=process.process_id, action=process.action)
    if plans.get_plan(db, process.process_id).document.get(REJECTS):
        block_writers(db, runtime, process, now)
    started = keep_process(db, process, process_machine.advance(process, process_machine.Started(), now), now)
    effects.work = True
    advance_process(db, process.process_id, effects, now)
    return started


def list_to_renew(db: Connection, now: datetime) -> list[OptimizingProcess]:
    """Processes that run and whose blocker of writers ends soon, or has ended."""
    going = (item for item in processes.list_active(db) if item.lane == LAYOUT and item.status in _UNDER_WAY)
    rejecting = (process for process in going if plans.get_plan(db, process.process_id).document.get(REJECTS))
    return [process for process in rejecting if block_needs_renewal(db, process, now)]


def refuse_starting(process: OptimizingProcess) -> None:
    """Raise IllegalState, with the way out, for a process that waits for no start."""
    if process.status == ProcessStatus.REQUESTED:
        return
    name = f"process {process.process_id} ({process.type})"
    if process.is_active:
        raise IllegalState(f"{name} has begun already: it is {process.status}")
    why = f": {process.failure}" if process.failure else ""
    raise IllegalState(f"{name} is {process.status}{why}", hint="Plan anew: amoro optimize TABLE --type cluster")
