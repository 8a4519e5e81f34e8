"""Planning: from a table to the tasks of a process."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from amoro_core.errors import GroupNotFound, IllegalState, TableBlocked, TableBusy, TableRefused
from amoro_core.failpoints import failpoint
from amoro_core.formats.port import OpenTable, TableFormat
from amoro_core.model.blockers import BlockedOperation
from amoro_core.model.config import OptimizingConfig, effective_properties, parse_config
from amoro_core.model.files import (
    DELETE_PATH_FIELD_ID,
    NO_METRICS,
    ColumnMetrics,
    DeleteFile,
    DeleteKind,
    ScannedFile,
)
from amoro_core.model.ids import uuid7
from amoro_core.model.plans import Evaluation, OptimizingPlan, TaskPlan
from amoro_core.model.processes import (
    CatalogConfig,
    OptimizingProcess,
    OptimizingTask,
    ProcessStatus,
    TaskId,
    TaskStatus,
)
from amoro_core.model.rewrite import InputFile, RewriteInput, TableContext
from amoro_core.model.tables import OptimizingStatus, OptimizingType, TableRuntime
from amoro_core.planning.evaluating import evaluate
from amoro_core.planning.planner import plan
from amoro_core.protocol import codec
from amoro_core.state import tables as table_machine
from amoro_core.state.backoff import backed_off
from amoro_core.store import blockers, groups, partitions, processes, tables, tasks
from amoro_core.store.database import Database, Store

log = structlog.get_logger("amoro.planning")

#: What a process is triggered by when nobody asked for it.
EVALUATION = "evaluation"


@dataclass(frozen=True, slots=True)
class Begun:
    """What planning a process came to; `process_id` None: nothing to do."""

    process_id: str | None
    evaluation: Evaluation


class PlanningService:
    """Makes processes: a table is marked, planned outside of any transaction, and its plan stored."""

    def __init__(
        self,
        store: Store,
        tables_of: TableFormat,
        find_catalog: Callable[[str], CatalogConfig],
        clock: Callable[[], datetime],
        *,
        work_planned: Callable[[], None],
        changed: Callable[[], None],
    ) -> None:
        self._store = store
        self._format = tables_of
        self._find_catalog = find_catalog
        self._clock = clock
        self._work_planned = work_planned
        self._changed = changed

    def begin(
        self, table_id: int, *, trigger: str, requested: OptimizingType | None = None, force: bool = False
    ) -> Begun:
        """Plan a process for a table and store it, if there is something to do.

        The table is marked first, planned outside of any transaction, and the plan stored only while
        the mark stands. Raises TableBusy, TableBlocked, TableRefused, and what loading the table raises; the table
        is idle (or refused) again then, and a failure counts for the back-off unless somebody asked.
        """
        runtime = self._store.write(lambda db: self._mark_planning(db, table_id, trigger))
        self._changed()
        try:
            failpoint("plan.after_mark")
            begun = self._plan_marked(runtime, trigger, requested, force)
        except TableRefused as refusal:
            event = table_machine.Refuse(refusal.reason, refusal.message)
            self._store.write(lambda db: self._unmark(db, table_id, event))
            raise
        except BaseException as error:
            why = str(error) or type(error).__name__
            self._store.write(lambda db: self._plan_failed(db, table_id, why, asked=trigger != EVALUATION))
            raise
        finally:
            self._changed()
        if begun.process_id is not None:
            self._work_planned()
        return begun

    def _plan_marked(self, runtime: TableRuntime, trigger: str, requested: OptimizingType | None, force: bool) -> Begun:
        catalog = self._find_catalog(runtime.identifier.catalog)
        table = self._format.load(catalog, runtime.identifier)
        table.refuse_unsupported()
        config = parse_config(effective_properties(dict(catalog.properties), table.facts.properties))
        now = self._clock()
        last = self._store.read(lambda db: partitions.last_optimized(db, runtime.table_id))
        scan = table.scan()
        selects = table.selects(config.filter) if config.filter is not None else None
        evaluation = evaluate(scan, config, last, now, requested, force, table.partition_path, selects)
        capacity = self._store.read(lambda db: groups.capacity(db, config.group))
        made = None
        if scan is not None:
            made = plan(
                scan,
                evaluation,
                config,
                threads=capacity.threads,
                max_input_per_thread=capacity.max_input_per_thread,
            )
        if made is None:
            event = table_machine.PlanEmpty(evaluation.reason)
            # What was asked for says nothing about what the triggers say, for which the table may have been pending.
            self._store.write(lambda db: self._unmark(db, runtime.table_id, event, again=requested is not None))
            return Begun(None, evaluation)
        process = _process(runtime, table, made, config, trigger, now)
        works = _works(process, table, made, config)
        failpoint("plan.before_store")
        self._store.write(lambda db: self._store_plan(db, process, works))
        failpoint("plan.after_store")
        log.info(
            "process.planned",
            process=process.process_id,
            table=str(runtime.identifier),
            type=process.type.value,
            tasks=len(works),
            reason=process.reason,
        )
        return Begun(process.process_id, evaluation)

    def _mark_planning(self, db: Database, table_id: int, trigger: str) -> TableRuntime:
        runtime = tables.get(db, table_id)
        active = processes.find_active(db, table_id)
        if active is not None:
            raise TableBusy(
                f"process {active.process_id} ({active.type}, {active.status}) is active on {runtime.identifier}",
                hint=f"Wait for it: amoro process show {active.process_id}",
            )
        held = blockers.find_against(db, table_id, (BlockedOperation.OPTIMIZE,), self._clock())
        if held is not None:
            raise TableBlocked(
                f"{runtime.identifier} is {held.words}",
                hint=f"Try again later, or release it: amoro table unblock {held.blocker_id}",
            )
        if runtime.status is OptimizingStatus.REFUSED:
            runtime = table_machine.advance(runtime, table_machine.Mended(), self._clock())
        try:
            planning = table_machine.advance(runtime, table_machine.BeginPlan(trigger), self._clock())
        except IllegalState as error:
            raise TableBusy(f"table {runtime.identifier} is {runtime.status}", hint="Try again later.") from error
        tables.save(db, planning)
        return planning

    def _unmark(self, db: Database, table_id: int, event: table_machine.TableEvent, *, again: bool = False) -> None:
        """The table after planning; `again`: to be evaluated at the next look, though its snapshot is the same."""
        ended = table_machine.advance(tables.get(db, table_id), event, self._clock())
        tables.save(db, replace(ended, evaluated_snapshot_id=None) if again else ended)

    def _plan_failed(self, db: Database, table_id: int, why: str, *, asked: bool) -> None:
        now = self._clock()
        runtime = tables.get(db, table_id)
        if runtime.status is not OptimizingStatus.PLANNING:
            return
        event = table_machine.PlanFailed(f"planning failed: {why}")
        idle = table_machine.advance(runtime, event, now)
        tables.save(db, idle if asked else backed_off(idle, now))

    def _store_plan(
        self, db: Database, process: OptimizingProcess, works: Sequence[tuple[OptimizingTask, bytes]]
    ) -> None:
        now = self._clock()
        runtime = tables.get(db, process.table_id)
        if groups.find(db, works[0][0].group) is None:
            known = ", ".join(item.name for item in groups.list_groups(db))
            raise GroupNotFound(
                f"optimizer group {works[0][0].group!r} of table {runtime.identifier} does not exist",
                hint=f"Set the table's property self-optimizing.group to one of: {known}.",
            )
        planned = table_machine.advance(runtime, table_machine.planned(process.type, process.reason), now)
        processes.add(db, process)
        tasks.add_many(db, works)
        tables.save(db, planned)


def _process(
    runtime: TableRuntime,
    table: OpenTable,
    made: OptimizingPlan,
    config: OptimizingConfig,
    trigger: str,
    now: datetime,
) -> OptimizingProcess:
    return OptimizingProcess(
        process_id=uuid7(now),
        table_id=runtime.table_id,
        type=made.type,
        status=ProcessStatus.RUNNING,
        trigger=trigger,
        reason=made.evaluation.reason,
        table_uuid=table.facts.uuid,
        format_version=table.facts.format_version,
        snapshot_id=made.snapshot_id,
        sequence_number=made.sequence_number,
        schema_id=table.schema_id,
        last_column_id=table.last_column_id,
        created_at=now,
        max_retries=config.max_retries,
        allow_partial_commit=config.allow_partial_commit,
    )


def _works(
    process: OptimizingProcess, table: OpenTable, made: OptimizingPlan, config: OptimizingConfig
) -> list[tuple[OptimizingTask, bytes]]:
    contexts = {spec_id: table.context(spec_id) for spec_id in {task.key.spec_id for task in made.tasks}}
    works = []
    for number, task in enumerate(made.tasks, start=1):
        work = _work(task, contexts[task.key.spec_id], made.sequence_number, config)
        files = (*task.rewritten, *task.converted)
        runtime = OptimizingTask(
            task_id=TaskId(process.process_id, number),
            table_id=process.table_id,
            group=config.group,
            status=TaskStatus.PLANNED,
            cost=task.cost,
            partition=table.partition_path(task.key),
            input_files=len(files),
            input_bytes=sum(file.data.size_bytes for file in files),
        )
        works.append((runtime, codec.encode_input(work).SerializeToString(deterministic=True)))
    return works


def _work(task: TaskPlan, context: TableContext, sequence_number: int, config: OptimizingConfig) -> RewriteInput:
    """The input of a task: each delete once, metrics left out but for the paths that position deletes name."""
    deletes: dict[str, int] = {}
    ordered: list[DeleteFile] = []
    for file in (*task.rewritten, *task.converted):
        for delete in file.deletes:
            if delete.path not in deletes:
                deletes[delete.path] = len(ordered)
                ordered.append(_slim(delete))

    def inputs(files: Sequence[ScannedFile]) -> tuple[InputFile, ...]:
        return tuple(
            InputFile(
                replace(file.data, metrics=NO_METRICS, split_offsets=()),
                tuple(deletes[delete.path] for delete in file.deletes),
            )
            for file in files
        )

    return RewriteInput(
        table=context,
        rewritten=inputs(task.rewritten),
        converted=inputs(task.converted),
        deletes=tuple(ordered),
        sequence_number=sequence_number,
        target_size_bytes=config.target_size,
        output_count=task.output_count,
    )


def _slim(delete: DeleteFile) -> DeleteFile:
    bounds = delete.metrics
    if delete.kind is DeleteKind.EQUALITY:
        return replace(delete, metrics=NO_METRICS, split_offsets=())
    kept = ColumnMetrics(
        lower_bounds={k: v for k, v in bounds.lower_bounds.items() if k == DELETE_PATH_FIELD_ID},
        upper_bounds={k: v for k, v in bounds.upper_bounds.items() if k == DELETE_PATH_FIELD_ID},
    )
    return replace(delete, metrics=kept, split_offsets=())
