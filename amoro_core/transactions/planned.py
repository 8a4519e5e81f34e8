"""Storing a plan: the process with its tasks, if it may start on the table."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from amoro_core.actions.contract import Action, Plan, PlannedTask, Request
from amoro_core.errors import GroupNotFound, Held, TableBlocked, TableBusy
from amoro_core.events import get_logger
from amoro_core.formats.port import OpenTable
from amoro_core.model.blockers import BlockedOperation
from amoro_core.model.config import OptimizingConfig
from amoro_core.model.ids import uuid7
from amoro_core.model.lanes import FILES, LAYOUT, METADATA
from amoro_core.model.maintenance import Options
from amoro_core.model.processes import OptimizingProcess, OptimizingTask, ProcessStatus, TaskId, TaskStatus
from amoro_core.model.tables import TableRuntime
from amoro_core.records import record
from amoro_core.state.lanes import in_the_way
from amoro_core.store import blobs, blockers, condemned, groups, process_plans, processes, snapshot_leases, tasks
from amoro_core.store.database import Connection
from amoro_core.store.process_plans import KeptPlan
from amoro_core.transactions.telling import keep_process

log = get_logger("amoro.maintaining")

#: What a process is triggered by when nobody asked for it.
EVALUATION = "evaluation"

Works = Sequence[tuple[OptimizingTask, bytes]]


@record
class Asked:
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
    active = [one for one in processes.list_active_of(db, runtime.table_id, runtime.uuid) if one.process_id != own]
    found = in_the_way(lane, active, action=action)
    if found is not None:
        other, why = found
        beside = "" if other.lane == lane else f"; {why}"
        raise TableBusy(
            f"process {other.process_id} ({other.type}, {other.status}) is active on {runtime.identifier}{beside}",
            hint=f"Wait for it: amoro process show {other.process_id}",
        )
    require_unblocked(db, runtime, lane, now, maintains=maintains)


def require_unblocked(
    db: Connection, runtime: TableRuntime, lane: str, now: datetime, *, maintains: bool = False
) -> None:
    """Raise TableBlocked for a blocker against what is to begin in the lane."""
    against = {BlockedOperation.MAINTAIN if maintains else BlockedOperation.OPTIMIZE}
    if lane in (FILES, LAYOUT):
        against.add(BlockedOperation.OPTIMIZE)
    held = blockers.find_against(db, runtime.table_id, against, now)
    if held is not None:
        raise TableBlocked(
            f"{runtime.identifier} is {held.words}",
            hint=f"Try again later, or release it: amoro table unblock {held.blocker_id}",
        )


def require_no_lease_since(db: Connection, runtime: TableRuntime, lane: str, since: datetime, now: datetime) -> None:
    """Raise TableBusy if a snapshot was leased after that moment, for lanes whose processes remove snapshots.

    Planning has not seen the lease; the next one will.
    """
    if lane != METADATA:
        return
    for lease in snapshot_leases.list_leases(db, now, runtime.table_id, runtime.uuid):
        if lease.created_at > since:
            raise TableBusy(f"{lease.words} was taken while this was planned", hint="Try again: it is known now.")


def planned(
    runtime: TableRuntime,
    table: OpenTable,
    action: Action,
    made: Plan,
    asked: Asked,
    config: OptimizingConfig,
    now: datetime,
    process_id: str = "",
) -> tuple[OptimizingProcess, Works]:
    """The process of a plan, with its tasks and their inputs. `process_id`: an existing one that is planned again."""
    process = OptimizingProcess(
        process_id=process_id or uuid7(now),
        table_id=runtime.table_id,
        type=made.name,
        status=ProcessStatus.RUNNING if made.ttl is None else ProcessStatus.REQUESTED,
        trigger=asked.trigger,
        reason=made.reason,
        table_uuid=table.facts.uuid,
        format_version=table.facts.format_version,
        snapshot_id=made.snapshot_id,
        sequence_number=made.sequence_number,
        schema_id=table.facts.schema_id,
        last_column_id=table.facts.last_column_id,
        created_at=now,
        max_retries=config.max_retries,
        allow_partial_commit=config.allow_partial_commit or made.max_commits > 1,
        where=asked.request.where,
        action=action.name,
        lane=action.lane,
        detail=made.detail,
        commits=made.commits,
        max_commits=made.max_commits,
    )
    works = [
        (_task(process, number, task, config.group), task.work.payload)
        for number, task in enumerate(made.tasks, start=1)
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
    """Store the process with its tasks; `before`: its former state, which is replaced, if it is not new.

    Raises GroupNotFound for tasks of a group that does not exist, TableBusy for another process in the lane.
    """
    if works and groups.find(db, works[0][0].group) is None:
        known = ", ".join(item.name for item in groups.list_groups(db))
        raise GroupNotFound(
            f"optimizer group {works[0][0].group!r} of table {runtime.identifier} does not exist",
            hint=f"Set the table's property self-optimizing.group to one of: {known}.",
        )
    keep_process(db, before, process, now)
    if before is not None:
        # Attempts of the tasks that it had are stale for those that it gets.
        last = tasks.last_attempt(db, process.process_id)
        tasks.remove_all(db, process.process_id)
        works = [(task._replace(attempt=last), payload) for task, payload in works]
    tasks.add_many(db, works)


def beyond(made: Plan, confirmed: Mapping[str, int]) -> str:
    """In what a plan measures more than was confirmed, in words; "": in nothing."""
    more = [key for key, value in made.measures.items() if value > confirmed.get(key, 0)]
    if not more:
        return ""
    words = ", ".join(f"{key} {made.measures[key]} (seen: {confirmed.get(key, 0)})" for key in more)
    return f"{made.held or made.reason}; more than was confirmed: {words}"


def is_held(process: OptimizingProcess, runtime: TableRuntime, why: str) -> Held:
    """What is raised where a person has to confirm a process first, with the way to do it."""
    name = str(runtime.identifier)
    return Held(
        f"process {process.process_id} ({process.type}) on {name} is held: {why}",
        hint=f"Look at its plan: amoro process show {process.process_id}. "
        f"Then: amoro table maintain {name} --action {process.type} --confirm {name}",
    )


def keep_plan(
    db: Connection,
    process: OptimizingProcess,
    made: Plan,
    options: Options,
    now: datetime,
    start_at: datetime | None = None,
) -> None:
    """Keep what the end of the process needs of its plan, and what it is confirmed by; in place of an earlier one.

    `start_at`: when a plan that is stored before it is started starts by itself; None: only by command.
    Files that are known already are written down as condemned; they are when the process has done its work.
    """
    expires_at = None if made.ttl is None else now + made.ttl
    kept = KeptPlan(made.document, made.measures, options, made.keep, start_at, expires_at)
    process_plans.save(db, process.process_id, kept)
    blobs.save_many(db, process.process_id, made.blobs)
    condemned.remove_written(db, process.process_id)
    batches = condemned.batches_of(
        made.condemned, process.process_id, process.table_id, process.table_uuid, now + made.keep
    )
    condemned.add_many(db, batches)


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


def tell_planned(process: OptimizingProcess, runtime: TableRuntime, works: Works) -> None:
    """Say in the log what was planned."""
    log.info(
        "process.planned",
        process=process.process_id,
        table=str(runtime.identifier),
        type=process.type,
        tasks=len(works),
        status=str(process.status),
        reason=process.reason,
    )
