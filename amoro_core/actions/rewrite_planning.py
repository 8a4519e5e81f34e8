"""Planning the tasks of a minor, major or full process."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from amoro_core.actions.contract import Plan, PlannedTask, Request, Situation
from amoro_core.actions.copying import copy_rule
from amoro_core.formats.port import Rewritable
from amoro_core.model.config import OptimizingConfig
from amoro_core.model.files import (
    DELETE_PATH_FIELD_ID,
    NO_METRICS,
    ColumnMetrics,
    DeleteFile,
    DeleteIdentity,
    DeleteKind,
    ScannedFile,
)
from amoro_core.model.plans import Evaluation, OptimizingPlan, TaskPlan
from amoro_core.model.rewrite import InputFile, RewriteInput, TableContext
from amoro_core.model.tables import OptimizingType
from amoro_core.model.work import REWRITE, Work
from amoro_core.planning.around import beside, kept_in, told
from amoro_core.planning.evaluating import evaluate
from amoro_core.planning.planner import plan
from amoro_core.protocol import codec

#: Maximum size of bounds of integers, dates and times: only these are compared with those of row groups.
_NUMBER_BYTES = 8
#: Maximum size of bounds that a task carries for its outputs: a message must not grow with the texts of a table.
_CARRIED_BYTES = 64


def plan_rewriting(table: Rewritable, situation: Situation, request: Request) -> tuple[Evaluation, Plan | None]:
    """The verdict on the table, by its triggers or on request, and the plan; None: nothing to do.

    Raises like the action's `plan`.
    """
    config = situation.config
    scan, taken = table.scan(), situation.taken.paths
    evaluation = evaluate(
        scan,
        config,
        situation.last,
        situation.now,
        None if request.name is None else OptimizingType(request.name),
        request.force,
        table.partition_path,
        beside(taken, table.selects(config.filter) if config.filter is not None else None),
        table.chooses(request.where) if request.where else None,
        kept=kept_in(scan),
    )
    evaluation = told(evaluation, scan, taken)
    made = None
    if scan is not None:
        made = plan(
            scan,
            evaluation,
            config,
            threads=situation.capacity.threads,
            max_input_per_thread=situation.capacity.max_input_per_thread,
        )
    if made is None:
        return evaluation, None
    table.refuse_inputs(_inputs(made))
    tasks = _tasks(table, made, config)
    files = tuple(file.data.path for task in made.tasks for file in (*task.rewritten, *task.converted))
    plan_ = Plan(made.type, evaluation.reason, made.snapshot_id, made.sequence_number, tasks, data_files=files)
    return evaluation, plan_


def _inputs(made: OptimizingPlan) -> list[str]:
    """The distinct files that the plan's tasks read."""
    files = [file for task in made.tasks for file in (*task.rewritten, *task.converted)]
    deletes = (delete.path for file in files for delete in file.deletes)
    return list(dict.fromkeys((*(file.data.path for file in files), *deletes)))


def _tasks(table: Rewritable, made: OptimizingPlan, config: OptimizingConfig) -> tuple[PlannedTask, ...]:
    contexts = {spec_id: table.context(spec_id) for spec_id in {task.key.spec_id for task in made.tasks}}
    tasks = []
    for task in made.tasks:
        work = rewrite_work(task, contexts[task.key.spec_id], made.sequence_number, config, made.type)
        files = (*task.rewritten, *task.converted)
        tasks.append(
            PlannedTask(
                work=Work(REWRITE, codec.encode_input(work).SerializeToString(deterministic=True)),
                cost=task.cost,
                partition=table.partition_path(task.key),
                input_files=len(files),
                input_bytes=sum(file.data.size_bytes for file in files),
                input_rows=sum(file.data.record_count for file in files),
            )
        )
    return tuple(tasks)


def rewrite_work(
    task: TaskPlan,
    context: TableContext,
    sequence_number: int,
    config: OptimizingConfig,
    kind: OptimizingType = OptimizingType.FULL,
) -> RewriteInput:
    """The input of a task: each delete once, metrics left out but for bounds that are used."""
    deletes: dict[DeleteIdentity, int] = {}
    ordered: list[DeleteFile] = []
    for file in (*task.rewritten, *task.converted):
        for delete in file.deletes:
            if delete.identity not in deletes:
                deletes[delete.identity] = len(ordered)
                ordered.append(_slim(delete))

    copy = copy_rule(task, context.properties, config, kind)

    def inputs(files: Sequence[ScannedFile], whole: bool) -> tuple[InputFile, ...]:
        return tuple(
            InputFile(
                replace(file.data, metrics=_carried(file) if whole else _key_bounds(file), split_offsets=()),
                tuple(deletes[delete.identity] for delete in file.deletes),
            )
            for file in files
        )

    return RewriteInput(
        table=context,
        rewritten=inputs(task.rewritten, copy is not None),
        converted=inputs(task.converted, False),
        deletes=tuple(ordered),
        sequence_number=sequence_number,
        target_size_bytes=config.target_size,
        output_count=task.output_count,
        marks_converted=task.marks,
        copy=copy,
        tells_left_out=config.rebase,
        max_hidden_ratio=config.max_hidden_ratio,
    )


def _carried(file: ScannedFile) -> ColumnMetrics:
    """The bounds and NaN counts of the file, which hold for an output it is copied into, except long bounds."""
    told = file.data.metrics
    return ColumnMetrics(
        nan_value_counts=dict(told.nan_value_counts),
        lower_bounds={field_id: one for field_id, one in told.lower_bounds.items() if len(one) <= _CARRIED_BYTES},
        upper_bounds={field_id: one for field_id, one in told.upper_bounds.items() if len(one) <= _CARRIED_BYTES},
    )


def _key_bounds(file: ScannedFile) -> ColumnMetrics:
    """The bounds of the key columns of the file's equality deletes, except long strings and binaries."""
    named = {field_id for delete in file.deletes for field_id in delete.equality_ids}
    bounds = file.data.metrics

    def kept(of: Mapping[int, bytes]) -> dict[int, bytes]:
        return {field_id: bound for field_id, bound in of.items() if field_id in named and len(bound) <= _NUMBER_BYTES}

    return ColumnMetrics(lower_bounds=kept(bounds.lower_bounds), upper_bounds=kept(bounds.upper_bounds))


def _slim(delete: DeleteFile) -> DeleteFile:
    bounds = delete.metrics
    if delete.kind is DeleteKind.EQUALITY:
        return replace(delete, metrics=NO_METRICS, split_offsets=())
    kept = ColumnMetrics(
        lower_bounds={k: v for k, v in bounds.lower_bounds.items() if k == DELETE_PATH_FIELD_ID},
        upper_bounds={k: v for k, v in bounds.upper_bounds.items() if k == DELETE_PATH_FIELD_ID},
    )
    return replace(delete, metrics=kept, split_offsets=())
