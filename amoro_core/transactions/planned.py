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
from amoro_core.model.processes import OptimizingProcess, OptimizingTask, ProcessStatus, TaskId, TaskStatus
from amoro_core.model.tables import TableRuntime
from amoro_core.state.lanes import in_the_way
from amoro_core.store import blockers, groups, processes, tasks
from amoro_core.store.database import Connection

#: What a process is triggered by when nobody asked for it.
EVALUATION = "evaluation"

Works = Sequence[tuple[OptimizingTask, bytes]]


@dataclass(frozen=True, slots=True)
class Asked:
    """By what a process is triggered, and what is wanted of it."""

    trigger: str
    request: Request


def require_free(db: Connection, runtime: TableRuntime, lane: str, now: datetime) -> None:
    """Raise TableBusy for a process that keeps another one from beginning in the lane, TableBlocked for a blocker."""
    found = in_the_way(lane, processes.list_active_of(db, runtime.table_id, runtime.uuid))
    if found is not None:
        active, why = found
        beside = "" if active.lane == lane else f"; {why}"
        raise TableBusy(
            f"process {active.process_id} ({active.type}, {active.status}) is active on {runtime.identifier}{beside}",
            hint=f"Wait for it: amoro process show {active.process_id}",
        )
    held = blockers.find_against(db, runtime.table_id, (BlockedOperation.OPTIMIZE,), now)
    if held is not None:
        raise TableBlocked(
            f"{runtime.identifier} is {held.words}",
            hint=f"Try again later, or release it: amoro table unblock {held.blocker_id}",
        )


def planned(
    runtime: TableRuntime,
    table: OpenTable,
    action: Action,
    made: Plan,
    asked: Asked,
    config: OptimizingConfig,
    now: datetime,
) -> tuple[OptimizingProcess, Works]:
    """The process that a plan is, with its tasks and their input."""
    process = OptimizingProcess(
        process_id=uuid7(now),
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


def store_planned(db: Connection, runtime: TableRuntime, process: OptimizingProcess, works: Works) -> None:
    """Store the process with its tasks.

    Raises GroupNotFound for tasks of a group that does not exist, TableBusy for another process in the lane.
    """
    if works and groups.find(db, works[0][0].group) is None:
        known = ", ".join(item.name for item in groups.list_groups(db))
        raise GroupNotFound(
            f"optimizer group {works[0][0].group!r} of table {runtime.identifier} does not exist",
            hint=f"Set the table's property self-optimizing.group to one of: {known}.",
        )
    processes.add(db, process)
    tasks.add_many(db, works)


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
