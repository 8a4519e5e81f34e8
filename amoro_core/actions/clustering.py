"""Clustering: files of a partition are rewritten in the order of their clustering columns, group by group."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from statistics import fmean

import numpy as np

from amoro_core.actions.action_api import (
    OPTIMIZING_ROLES,
    ActionDefaults,
    Plan,
    PlannedTask,
    PlanningContext,
    Prepare,
    Request,
    summary_of,
)
from amoro_core.actions.rewriting import (
    check_content,
    inputs_in,
    inputs_of,
    paths_of,
    record_of,
    rewrite_change,
    rewrite_work,
)
from amoro_core.actions.snapshots import main_history
from amoro_core.errors import CheckFailed, CommitConflict, InvalidArgument
from amoro_core.formats.ports import AnyTable, Role
from amoro_core.formats.tables import FileReadCache
from amoro_core.model.clustering import (
    CLUSTER,
    REJECTS,
    ClusteredGroup,
    ClusterInput,
    ClusterOutput,
    Layout,
    Sorting,
    Strategy,
    group_of,
    layout_text,
)
from amoro_core.model.commits import OPTIMIZING_TYPE, Group, LookUp, SortOrderAdded
from amoro_core.model.plans import TaskPlan
from amoro_core.model.processes import (
    LAYOUT,
    Change,
    CommitOutcome,
    Dropped,
    Figure,
    OptimizingProcess,
    ProcessContext,
    Receipt,
)
from amoro_core.model.properties import parse_into
from amoro_core.model.task_payload import Work
from amoro_core.planning.clustering.grouping import depth, ranges_of
from amoro_core.planning.clustering.model import (
    COLUMNS_KEY,
    PARTITIONS_KEY,
    PREFIX,
    STRATEGY_KEY,
    ClusterFacts,
    ClusteringConfig,
    ClusterPlan,
    ClusterRequest,
    ClusterVerdict,
    Mode,
    UpdateStrategy,
    columns,
    partitions,
    strategy,
)
from amoro_core.planning.clustering.planner import plan_clustering
from amoro_core.protocol.codec import decode_cluster_input, decode_cluster_output, encode_cluster_input
from amoro_core.validation.rules import validate

#: Keys of the summary of a snapshot that clustering has committed.
LAYOUT_KEY = "amoro.cluster-layout"
GROUPS_KEY = "amoro.cluster-groups"
BEFORE_KEY = "amoro.cluster-depths-before"
AFTER_KEY = "amoro.cluster-depths-after"
_AGAIN = "The next round plans it anew."


@dataclass(frozen=True, slots=True)
class ClusterPlanState:
    """The parts of the plan that the process stores beside its tasks."""

    columns: tuple[int, ...]  # field ids of the layout's keys; of a linear one only the first has depths
    registers: bool  # a sort order that describes the layout is added if there is none
    rejects: bool  # writers that ask are refused until it ends
    before: Mapping[int, Sequence[float]]  # files that a point query meets, by group and column
    predicted: Mapping[int, Sequence[float]]
    carries: int | None = None  # most rows of a group that are looked up as others deleted them; None: it gives way

    @classmethod
    def of(cls, process: OptimizingProcess) -> "ClusterPlanState":
        """The state in the process's detail, which is its fields as JSON."""
        stored = json.loads(process.detail)
        for name in ("before", "predicted"):
            stored[name] = {int(number): tuple(depths) for number, depths in stored[name].items()}
        return cls(**{**stored, "columns": tuple(stored["columns"])})


@dataclass(frozen=True, slots=True)
class _Done:
    """A group that is ready, with its work and what it made."""

    number: int
    work: ClusterInput
    output: ClusterOutput


def cluster_change(table: AnyTable, case: ProcessContext, cache: FileReadCache, now: datetime) -> Change | Dropped:
    """Validate, check and stage the groups that are in no commit yet.

    Where the layout's sort order is to be in the metadata and is not, that comes first, as a change of its own: the id
    that files carry then is one that is there, whatever others add meanwhile.
    """
    ready = [
        _Done(result.number, decode_cluster_input(result.input), decode_cluster_output(result.output))
        for result in case.results
        if result.number not in _committed(case) | case.dropped
    ]
    plan_state = ClusterPlanState.of(case.process)
    record = record_of(case.process, [_group(result, plan_state) for result in ready])
    head = table.head(record.snapshot_id, record.sequence_number)
    view = cache.view_of(table, record, head)
    validation = validate(view)
    if validation.conflict is not None:
        raise CommitConflict(validation.conflict, hint=_AGAIN)
    if validation.content is None:
        return Dropped(validation.dropped)
    layout, sorting = ready[0].work.layout, table.sorting()
    order_id = table.order_id_of(layout.keys) if layout.strategy is Strategy.LINEAR else 0
    are_there = all(sorting.has(key.field_id) for key in layout.keys)  # others may have dropped columns meanwhile
    if plan_state.registers and are_there and not order_id and not _was_refused(case):
        payload, evidence = table.stage_sort_order(layout.keys)
        words = "added a sort order, not as the default"
        return Change(payload, evidence, Receipt.brief(words, head.snapshot_id))
    inputs = inputs_of(record, validation.content, head)
    _check_names(ready)
    check_content(record, validation.content, inputs, table, cache)
    data = tuple(replace(file, sort_order_id=order_id) for file in validation.content.added_data)
    content = replace(validation.content, added_data=data)
    committed = [result for result in ready if result.number in content.groups]
    depths = _Depths.of(plan_state, committed, sorting)
    summary = _summary(case.process, layout, committed, depths)
    change = rewrite_change(table, case, view, content, inputs, summary, now, _figures(committed, depths))
    return replace(change, dropped=validation.dropped)


def _committed(case: ProcessContext) -> frozenset[int]:
    return frozenset(
        number for attempt in case.attempts if attempt.outcome is CommitOutcome.DONE for number in attempt.groups
    )


def _was_refused(case: ProcessContext) -> bool:
    """Whether the catalog takes no sort orders: the files are committed without one."""
    return any(
        isinstance(item.evidence, SortOrderAdded) and item.outcome is CommitOutcome.REFUSED for item in case.attempts
    )


def _group(result: _Done, state: ClusterPlanState) -> Group:
    """Its rows stand in another order: none can be followed by its position, but each can be looked up."""
    keys = tuple(key.field_id for key in result.work.layout.keys)
    look_up = None if state.carries is None else LookUp(keys, state.carries)
    output = replace(result.output.rewrite, position_map=None)
    return Group(result.number, result.work.rewrite, output, is_reordered=True, look_up=look_up)


def _check_names(ready: Sequence[_Done]) -> None:
    """Raise CheckFailed for outputs that do not name their group, or that claim an order that was not requested."""
    for item in ready:
        for file in item.output.rewrite.data_files:
            if group_of(file.path) != item.work.group_id:
                raise CheckFailed(f"task {item.number}: the name of {file.path} does not end in -g{item.work.group_id}")
            if (file.sort_order_id or 0) not in (0, item.work.sort_order_id):
                raise CheckFailed(f"task {item.number}: {file.path} claims the sort order {file.sort_order_id}")


def _summary(
    process: OptimizingProcess, layout: Layout, committed: Sequence[_Done], depths: "_Depths"
) -> dict[str, str]:
    ids = [result.work.group_id for result in committed]
    return {
        **summary_of(process, "OPTIMIZE"),
        OPTIMIZING_TYPE: CLUSTER,
        LAYOUT_KEY: layout_text(layout, ids[0]) if len(ids) == 1 else layout_text(layout, ""),
        GROUPS_KEY: ",".join(ids),
        BEFORE_KEY: json.dumps({str(field_id): round(value, 2) for field_id, value in depths.before.items()}),
        AFTER_KEY: json.dumps({str(field_id): round(value, 2) for field_id, value in depths.after.items()}),
    }


@dataclass(frozen=True, slots=True)
class _Depths:
    """How many files a point query on a column meets, by field id; the mean over the groups of a commit."""

    before: Mapping[int, float]
    after: Mapping[int, float]  # as the bounds of the written files say
    names: Mapping[int, str]

    @classmethod
    def of(cls, state: ClusterPlanState, committed: Sequence[_Done], sorting: Sorting) -> "_Depths":
        depths = [state.before[result.number] for result in committed]
        before = {
            field_id: fmean(column)
            for field_id, column in zip(state.columns, zip(*depths, strict=True), strict=False)
            if sorting.has(field_id)
        }
        after = {field_id: fmean(_reached(result, field_id, sorting) for result in committed) for field_id in before}
        return cls(before, after, {field_id: sorting.name_of(field_id) for field_id in before})


def _reached(group: _Done, field_id: int, sorting: Sorting) -> float:
    files = group.output.rewrite.data_files
    rows = np.array([file.record_count for file in files], np.int64)
    return depth(ranges_of(files, field_id, sorting.bound_key(field_id)), rows)


def _figures(committed: Sequence[_Done], depths: _Depths) -> tuple[Figure, ...]:
    stages = [stage for result in committed for stage in result.output.stages]
    queries = [
        Figure(f"files_per_point_query_on_{depths.names[field_id]}_{when}", round(values[field_id]), "")
        for field_id in depths.before
        for when, values in (("before", depths.before), ("after", depths.after))
    ]
    return (
        *queries,
        Figure("cpu_ms", sum(stage.core_ms for stage in stages), "ms"),
        Figure("shuffle_bytes", sum(item.output.shuffle_bytes for item in committed), "bytes"),
        Figure("spill_bytes", sum(item.output.spill_bytes for item in committed), "bytes"),
        Figure("groups_committed", len(committed), "groups"),
    )


SWITCH = f"{PREFIX}enabled"


class Cluster(ActionDefaults):
    """The action; each group is a task, and is committed or dropped as a whole."""

    name = CLUSTER
    lane = LAYOUT
    roles = OPTIMIZING_ROLES | {Role.SORT}
    every = timedelta(minutes=10)
    switch = SWITCH
    needs_gc = False

    def enabled(self, properties: Mapping[str, str]) -> bool:
        """By its property, off without it."""
        return parse_into(ClusteringConfig, properties).enabled

    def plan(self, table: AnyTable, situation: PlanningContext, request: Request) -> tuple[ClusterVerdict, Plan | None]:
        """The verdict by its triggers or for a request, and a task for each group."""
        config = parse_into(ClusteringConfig, situation.properties)
        if given := request.options.given:
            raise InvalidArgument(f"{CLUSTER} has no option {given[0]}", hint="See: amoro optimize --help")
        if (why := table.skip_reason()) is not None:
            return ClusterVerdict(False, why), None
        verdict = plan_clustering(_facts(table, situation), config, _cluster_request(request))
        partition_depths = tuple(replace(item, path=table.partition_path(item.key)) for item in verdict.partitions)
        verdict = replace(verdict, partitions=partition_depths)
        if config.update_strategy is UpdateStrategy.CARRY_OVER and not request.cluster.shows:
            limit = f"at most {config.carry_over_max_rows} of a group"
            note = f"rows that others delete by position meanwhile are deleted in the outputs, {limit}"
            verdict = replace(verdict, notes=(*verdict.notes, note))
        if verdict.plan is None:
            return verdict, None
        return verdict, _plan(table, situation, config, request, verdict, verdict.plan)

    def preparing(self) -> Prepare:
        """Validates, checks and stages the commit of the groups of one process that are ready."""
        cache = FileReadCache()
        return lambda table, case, now: cluster_change(table, case, cache, now)

    def data_files(self, given: bytes) -> tuple[str, ...]:
        return tuple(file.data.path for file in decode_cluster_input(given).rewrite.rewritten)

    def inputs(self, case: ProcessContext) -> tuple[str, ...]:
        """The data and delete files that its tasks read."""
        return paths_of([decode_cluster_input(given).rewrite for given in inputs_in(case)])

    def outputs(self, case: ProcessContext, groups: frozenset[int]) -> tuple[str, ...]:
        """The data files that these tasks have written."""
        outputs = [decode_cluster_output(result.output).rewrite for result in case.results if result.number in groups]
        return tuple(file.path for output in outputs for file in output.data_files)

    def clustered_groups(self, case: ProcessContext, groups: tuple[int, ...]) -> tuple[ClusteredGroup, ...]:
        """The groups of files that these tasks have made, each with the depths that were predicted of it."""
        state = ClusterPlanState.of(case.process)
        works = {item.number: decode_cluster_input(item.input) for item in case.results if item.number in groups}
        return tuple(
            ClusteredGroup(work.group_id, work.layout, dict(zip(state.columns, state.predicted[number], strict=False)))
            for number, work in sorted(works.items())
        )


def _facts(table: AnyTable, situation: PlanningContext) -> ClusterFacts:
    config, capacity = situation.config, situation.capacity
    return ClusterFacts(
        scan=table.scan(),
        sorting=table.sorting(),
        optimizing=config,
        now=situation.now,
        snapshots=tuple(main_history(table)),
        properties=table.facts.properties,
        groups={group_id: group.layout for group_id, group in situation.known_groups.items()},
        learn=table.layout_of,
        pinned=frozenset(situation.taken.paths),
        chooses=table.chooses,
        path_of=table.partition_path,
        selects=table.selects(config.filter) if config.filter is not None else None,
        scans=situation.scans,
        choice=situation.choice,
        budget_bytes=capacity.max_input_per_thread * max(1, capacity.threads),
    )


def _cluster_request(request: Request) -> ClusterRequest:
    """The request; without a name it is a scheduled run. Raises InvalidArgument for values that are not possible."""
    cluster_options = request.cluster
    if request.name is None:
        return ClusterRequest()
    try:
        return ClusterRequest(
            asked=True,
            columns=columns(",".join(cluster_options.columns)),
            strategy=strategy(cluster_options.strategy),
            partitions=partitions(cluster_options.partitions) if cluster_options.partitions else None,
            where=request.where,
            full=cluster_options.full,
            shows=cluster_options.shows,
        )
    except ValueError as error:
        given = {
            COLUMNS_KEY: ",".join(cluster_options.columns),
            STRATEGY_KEY: cluster_options.strategy,
            PARTITIONS_KEY: cluster_options.partitions,
        }
        options = ", ".join(f"--{key.removeprefix(PREFIX)} {value}" for key, value in given.items() if value)
        raise InvalidArgument(f"{options}: {error}", hint="See: amoro optimize --help") from error


def _plan(
    table: AnyTable,
    situation: PlanningContext,
    config: ClusteringConfig,
    request: Request,
    verdict: ClusterVerdict,
    cluster_plan: ClusterPlan,
) -> Plan:
    files = [file for group in cluster_plan.groups for file in group.files]
    deletes = (delete.path for file in files for delete in file.deletes)
    table.refuse_inputs(dict.fromkeys((*(file.data.path for file in files), *deletes)))
    contexts = {spec_id: table.context(spec_id) for spec_id in {group.key.spec_id for group in cluster_plan.groups}}
    tasks = []
    for group in cluster_plan.groups:
        task_plan = TaskPlan(group.key, group.files, (), group.output_count, group.cost)
        rewrite = rewrite_work(task_plan, contexts[group.key.spec_id], cluster_plan.sequence_number, situation.config)
        work = ClusterInput(
            # Rows in another order can't be followed by their positions.
            rewrite=replace(rewrite, tells_left_out=False),
            layout=cluster_plan.layout,
            group_id=group.group_id,
            seed=group.seed,
            sort_order_id=cluster_plan.sort_order_id,
        )
        read, place = [file.data for file in group.files], table.partition_path(group.key)
        task = PlannedTask.reading(Work(CLUSTER, encode_cluster_input(work)), read, group.cost, place)
        tasks.append(replace(task, input_bytes=group.input_bytes))  # of deletes, too
    plan_state = ClusterPlanState(
        columns=tuple(key.field_id for key in cluster_plan.layout.keys),
        registers=config.register_sort_order and cluster_plan.layout.strategy is Strategy.LINEAR,
        rejects=config.update_strategy is UpdateStrategy.REJECT,
        carries=config.carry_over_max_rows if config.update_strategy is UpdateStrategy.CARRY_OVER else None,
        before={number: group.before for number, group in enumerate(cluster_plan.groups, 1)},
        predicted={number: group.predicted for number, group in enumerate(cluster_plan.groups, 1)},
    )
    waits = request.cluster.schedule_only or (request.name is None and config.mode is Mode.SCHEDULED)
    return Plan(
        CLUSTER,
        verdict.reason,
        cluster_plan.snapshot_id,
        cluster_plan.sequence_number,
        tuple(tasks),
        json.dumps(asdict(plan_state)),
        document={**_document(table, verdict, cluster_plan), REJECTS: plan_state.rejects},
        data_files=tuple(file.data.path for file in files),
        ttl=config.plan_ttl,
        waits=waits,
        max_commits=config.partial_progress_max_commits if config.partial_progress else 1,
    )


def _document(table: AnyTable, verdict: ClusterVerdict, cluster_plan: ClusterPlan) -> dict[str, object]:
    """The plan as people see it before and after it is started."""
    sorting = table.sorting()
    names = [sorting.name_of(key.field_id) for key in cluster_plan.layout.keys]
    groups = [
        {
            "partition": table.partition_path(group.key),
            "group": group.group_id,
            "files": len(group.files),
            "input_bytes": group.input_bytes,
            "output_files": group.output_count,
            "point_query_files": dict(zip(names, group.before, strict=False)),
            "predicted_point_query_files": dict(zip(names, group.predicted, strict=False)),
            "cpu_ms": group.core_ms,
        }
        for group in cluster_plan.groups
    ]
    return {
        "layout": {
            "strategy": cluster_plan.layout.strategy.value,
            "columns": names,
            "keys": [asdict(key) for key in cluster_plan.layout.keys],
        },
        "notes": list(verdict.notes),
        "groups": groups,
        "groups_left": cluster_plan.left,
        "input_files_count": sum(len(group.files) for group in cluster_plan.groups),
        "input_bytes": sum(group.input_bytes for group in cluster_plan.groups),
        "cpu_ms": sum(group.core_ms for group in cluster_plan.groups),
    }
