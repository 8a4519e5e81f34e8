"""A plan as it is stored: the process with its tasks, where the table lets it begin."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from amoro_core.actions.contract import Action, Plan, PlannedTask, Request
from amoro_core.errors import GroupNotFound, TableBlocked, TableBusy
from amoro_core.formats.port import OpenTable
from amoro_core.model.blockers import BlockedOperation
from amoro_core.model.config import OptimizingConfig
from amoro_core.model.ids import uuid7
from amoro_core.model.lanes import FILES, METADATA
from amoro_core.model.maintenance import Options
from amoro_core.model.processes import OptimizingProcess, OptimizingTask, ProcessStatus, TaskId, TaskStatus
from amoro_core.model.tables import TableRuntime
from amoro_core.state.lanes import in_the_way
from amoro_core.store import blockers, condemned, groups, process_plans, processes, snapshot_leases, tasks
from amoro_core.store.database import Connection
from amoro_core.store.process_plans import KeptPlan

#: What a process is triggered by when nobody asked for it.
EVALUATION = "evaluation"

Works = Sequence[tuple[OptimizingTask, bytes]]


@dataclass(frozen=True, slots=True)
class Asked:
    """By what a process is triggered, and what is wanted of it."""

    trigger: str
    request: Request


def require_free(
    db: Connection, runtime: TableRuntime, lane: str, now: datetime, *, maintains: bool = False, own: str = ""
) -> None:
    """Raise TableBusy for a process that keeps another one from beginning in the lane, TableBlocked for a blocker.

    `maintains`: what begins is maintenance, which has a kind of blockers of its own. `own` is its process, where it
    has one already.
    """
    active = [one for one in processes.list_active_of(db, runtime.table_id, runtime.uuid) if one.process_id != own]
    found = in_the_way(lane, active)
    if found is not None:
        other, why = found
        beside = "" if other.lane == lane else f"; {why}"
        raise TableBusy(
            f"process {other.process_id} ({other.type}, {other.status}) is active on {runtime.identifier}{beside}",
            hint=f"Wait for it: amoro process show {other.process_id}",
        )
    against = {BlockedOperation.MAINTAIN if maintains else BlockedOperation.OPTIMIZE}
    if lane == FILES:
        against.add(BlockedOperation.OPTIMIZE)
    held = blockers.find_against(db, runtime.table_id, against, now)
    if held is not None:
        raise TableBlocked(
            f"{runtime.identifier} is {held.words}",
            hint=f"Try again later, or release it: amoro table unblock {held.blocker_id}",
        )


def require_no_lease_since(db: Connection, runtime: TableRuntime, lane: str, since: datetime, now: datetime) -> None:
    """Raise TableBusy when a snapshot was leased after that moment, where the lane's processes remove snapshots.

    Planning has not seen the lease then; the next time it does.
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
    """The process that a plan is, with its tasks and their input. `process_id` is one that is planned anew."""
    process = OptimizingProcess(
        process_id=process_id or uuid7(now),
        table_id=runtime.table_id,
        type=made.name,
        status=ProcessStatus.RUNNING,
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
        allow_partial_commit=config.allow_partial_commit,
        where=asked.request.where,
        action=action.name,
        lane=action.lane,
        detail=made.detail,
        commits=made.commits,
    )
    works = [
        (_task(process, number, task, config.group), task.work.payload)
        for number, task in enumerate(made.tasks, start=1)
    ]
    return process, works


def store_planned(
    db: Connection, runtime: TableRuntime, process: OptimizingProcess, works: Works, *, is_new: bool = True
) -> None:
    """Store the process with its tasks; in place of what it was before, where it is not new.

    Raises GroupNotFound for tasks of a group that does not exist, TableBusy for another process in the lane.
    """
    if works and groups.find(db, works[0][0].group) is None:
        known = ", ".join(item.name for item in groups.list_groups(db))
        raise GroupNotFound(
            f"optimizer group {works[0][0].group!r} of table {runtime.identifier} does not exist",
            hint=f"Set the table's property self-optimizing.group to one of: {known}.",
        )
    if is_new:
        processes.add(db, process)
    else:
        processes.save(db, process)
    tasks.add_many(db, works)


def keep_plan(db: Connection, process: OptimizingProcess, made: Plan, options: Options, now: datetime) -> None:
    """Keep what the end of the process needs of its plan, and what it is confirmed by; in place of an earlier one.

    Files that are known already are written down as condemned; they are when the process has done its work.
    """
    process_plans.save(db, process.process_id, KeptPlan(made.document, made.measures, options, made.keep))
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
    )
