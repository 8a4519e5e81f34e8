"""Clustering: files of a partition are rewritten in the order of their clustering columns, group by group."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from statistics import fmean

import numpy as np

from amoro_core.actions.action_api import OPTIMIZING_ROLES, Plan, PlannedTask, PlanningContext, Prepare, Request
from amoro_core.actions.rewriting import (
    carried_figures,
    check_content,
    inputs_of,
    receipt_of,
    rewrite_work,
    staged_with,
)
from amoro_core.errors import CheckFailed, CommitConflict, InvalidArgument
from amoro_core.failpoints import failpoint
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
from amoro_core.model.commits import PROCESS_ID, CommitContent, Group, LookUp, PlanRecord, SnapshotAdded, SortOrderAdded
from amoro_core.model.plans import PartitionKey, TaskPlan
from amoro_core.model.processes import (
    LAYOUT,
    Change,
    CommitOutcome,
    Dropped,
    Figure,
    OptimizingProcess,
    ProcessContext,
    Receipt,
    TaskResult,
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
    GroupPlan,
    Mode,
    UpdateStrategy,
    columns,
    partitions,
    strategy,
)
from amoro_core.planning.clustering.planner import plan_clustering
from amoro_core.protocol.codec import decode_cluster_input, decode_cluster_output, encode_cluster_input
from amoro_core.validation.rules import carried_over, validate

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
    carries: int | None  # the most rows of a group that are looked up because others deleted them; None: it gives way
    before: Mapping[int, Sequence[float]]  # files that a point query meets, by group and column
    predicted: Mapping[int, Sequence[float]]

    @property
    def text(self) -> str:
        """What `of` reads."""
        return json.dumps(
            {
                "columns": self.columns,
                "registers": self.registers,
                "rejects": self.rejects,
                "carries": self.carries,
                "before": dict(self.before),
                "predicted": dict(self.predicted),
            }
        )

    @classmethod
    def of(cls, process: OptimizingProcess) -> "ClusterPlanState":
        """What the process keeps."""
        said = json.loads(process.detail)
        before, predicted = (
            {int(number): tuple(depths) for number, depths in said[name].items()} for name in ("before", "predicted")
        )
        return cls(tuple(said["columns"]), said["registers"], said["rejects"], said.get("carries"), before, predicted)


@dataclass(frozen=True, slots=True)
class _Done:
    """A group that is ready, with its work and what it made."""

    number: int
    work: ClusterInput
    output: ClusterOutput


def cluster_change(table: AnyTable, case: ProcessContext, known: FileReadCache, now: datetime) -> Change | Dropped:
    """Validate, check and stage the groups that are in no commit yet.

    Where the layout's sort order is to be in the metadata and is not, that comes first, as a change of its own: the id
    that files carry then is one that is there, whatever others add meanwhile.
    """
    ready = [_done(one) for one in case.results if one.number not in _committed(case)]
    kept = ClusterPlanState.of(case.process)
    record = _record(case.process, ready, kept)
    head = table.head(record.snapshot_id, record.sequence_number)
    view = known.view_of(table, record, head)
    validation = validate(view)
    if validation.conflict is not None:
        raise CommitConflict(validation.conflict, hint=_AGAIN)
    if validation.content is None:
        return Dropped(validation.dropped)
    layout, sorting = ready[0].work.layout, table.sorting()
    order_id = table.order_id_of(layout.keys) if layout.strategy is Strategy.LINEAR else 0
    are_there = all(sorting.has(key.field_id) for key in layout.keys)  # others may have dropped columns meanwhile
    if kept.registers and are_there and not order_id and not _was_refused(case):
        payload, evidence = table.stage_sort_order(layout.keys)
        words = "added a sort order, not as the default"
        return Change(payload, evidence, Receipt.brief(words, head.snapshot_id))
    inputs = inputs_of(record, validation.content, head)
    _check_names(ready)
    check_content(record, validation.content, inputs, table, known)
    content = _with_order(validation.content, order_id)
    failpoint("commit.before_intent")
    committed = [one for one in ready if one.number in content.groups]
    depths = _Depths.of(kept, committed, sorting)
    carried = carried_over(view, content)
    summary = _summary(case.process, layout, committed, depths)
    content, staged = staged_with(table, head, content, carried, case.process, summary)
    failpoint("commit.after_stage")
    files = (*(file.path for file in content.added_data), *(file.path for file in content.carried_deletes))
    receipt = receipt_of(case.process, record, content, head, staged, now)
    return Change(
        payload=staged.payload,
        evidence=SnapshotAdded(staged.snapshot_id, staged.parent_snapshot_id, staged.sequence_number, files),
        receipt=replace(
            receipt,
            disputed_deletes=len(table.disputed_deletes(inputs)),
            more=(*_figures(committed, depths), *carried_figures(carried, record)),
        ),
        groups=content.groups,
        files=files,
        metadata_files=(*staged.metadata_files, *(file.path for file in content.carried_deletes)),
        dropped=validation.dropped,
    )


def _committed(case: ProcessContext) -> frozenset[int]:
    return frozenset(
        number for attempt in case.attempts if attempt.outcome is CommitOutcome.DONE for number in attempt.groups
    )


def _was_refused(case: ProcessContext) -> bool:
    """Whether the catalog takes no sort orders: the files are committed without one."""
    return any(
        isinstance(one.evidence, SortOrderAdded) and one.outcome is CommitOutcome.REFUSED for one in case.attempts
    )


def _done(result: TaskResult) -> _Done:
    return _Done(result.number, decode_cluster_input(result.input), decode_cluster_output(result.output))


def _record(process: OptimizingProcess, ready: Sequence[_Done], kept: ClusterPlanState) -> PlanRecord:
    return PlanRecord(
        process_id=process.process_id,
        table_uuid=process.table_uuid,
        format_version=process.format_version,
        snapshot_id=process.snapshot_id,
        sequence_number=process.sequence_number,
        last_column_id=process.last_column_id,
        groups=tuple(_group(one, kept) for one in ready),
    )


def _group(one: _Done, kept: ClusterPlanState) -> Group:
    """Its rows stand in another order: none can be followed by its position, but each can be looked up."""
    keys = tuple(key.field_id for key in one.work.layout.keys)
    look_up = None if kept.carries is None else LookUp(keys, kept.carries)
    output = replace(one.output.rewrite, position_map=None)
    return Group(one.number, one.work.rewrite, output, is_reordered=True, look_up=look_up)


def _check_names(ready: Sequence[_Done]) -> None:
    """Raise CheckFailed for outputs that do not name their group, or that claim an order that was not requested."""
    for one in ready:
        for file in one.output.rewrite.data_files:
            if group_of(file.path) != one.work.group_id:
                raise CheckFailed(f"task {one.number}: the name of {file.path} does not end in -g{one.work.group_id}")
            if (file.sort_order_id or 0) not in (0, one.work.sort_order_id):
                raise CheckFailed(f"task {one.number}: {file.path} claims the sort order {file.sort_order_id}")


def _with_order(content: CommitContent, order_id: int) -> CommitContent:
    """The outputs with the id of the sort order that they are in; 0: in none that the metadata has."""
    return replace(content, added_data=tuple(replace(file, sort_order_id=order_id) for file in content.added_data))


def _summary(
    process: OptimizingProcess, layout: Layout, committed: Sequence[_Done], depths: "_Depths"
) -> dict[str, str]:
    ids = [one.work.group_id for one in committed]
    return {
        "snapshot.producer": "OPTIMIZE",
        PROCESS_ID: process.process_id,
        "amoro.optimizing-type": CLUSTER,
        LAYOUT_KEY: layout_text(layout, ids[0]) if len(ids) == 1 else layout_text(layout, ""),
        GROUPS_KEY: ",".join(ids),
        BEFORE_KEY: json.dumps({str(field_id): round(value, 2) for field_id, value in depths.before.items()}),
        AFTER_KEY: json.dumps({str(field_id): round(value, 2) for field_id, value in depths.after.items()}),
    }


@dataclass(frozen=True, slots=True)
class _Depths:
    """How many files a point query on a column meets, by field id: the mean over the groups of a commit.

    Of columns that were dropped meanwhile nothing is told.
    """

    before: Mapping[int, float]
    after: Mapping[int, float]  # as the bounds of the written files say
    names: Mapping[int, str]

    @classmethod
    def of(cls, kept: ClusterPlanState, committed: Sequence[_Done], sorting: Sorting) -> "_Depths":
        depths = [kept.before[one.number] for one in committed]
        before = {
            field_id: fmean(column)
            for field_id, column in zip(kept.columns, zip(*depths, strict=True), strict=False)
            if sorting.has(field_id)
        }
        after = {field_id: fmean(_reached(one, field_id, sorting) for one in committed) for field_id in before}
        return cls(before, after, {field_id: sorting.name_of(field_id) for field_id in before})


def _reached(group: _Done, field_id: int, sorting: Sorting) -> float:
    files = group.output.rewrite.data_files
    rows = np.array([file.record_count for file in files], np.int64)
    return depth(ranges_of(files, field_id, sorting.bound_key(field_id)), rows)


def _figures(committed: Sequence[_Done], depths: _Depths) -> tuple[Figure, ...]:
    stages = [stage for one in committed for stage in one.output.stages]
    queries = [
        Figure(f"files_per_point_query_on_{depths.names[field_id]}_{when}", round(values[field_id]), "")
        for field_id in depths.before
        for when, values in (("before", depths.before), ("after", depths.after))
    ]
    return (
        *queries,
        Figure("cpu_ms", sum(stage.core_ms for stage in stages), "ms"),
        Figure("shuffle_bytes", sum(one.output.shuffle_bytes for one in committed), "bytes"),
        Figure("spill_bytes", sum(one.output.spill_bytes for one in committed), "bytes"),
        Figure("groups_committed", len(committed), "groups"),
    )


SWITCH = f"{PREFIX}enabled"
_BYTES_PER_MB = 1_000_000


class Cluster:
    """The action; each group is a task, and is committed or dropped as a whole."""

    name = CLUSTER
    names = (CLUSTER,)
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
        if (why := table.left_alone()) is not None:
            return ClusterVerdict(False, why), None
        verdict = plan_clustering(_facts(table, situation), config, _asked(request))
        named = tuple(replace(one, path=table.partition_path(one.key)) for one in verdict.partitions)
        verdict = replace(verdict, partitions=named, notes=(*verdict.notes, *_notes(config, request)))
        if verdict.plan is None:
            return verdict, None
        return verdict, _plan(table, situation, config, request, verdict, verdict.plan)

    def preparing(self) -> Prepare:
        """Validates, checks and stages the commit of the groups of one process that are ready."""
        known = FileReadCache()
        return lambda table, case, now: cluster_change(table, case, known, now)

    def optimized(self, case: ProcessContext, groups: tuple[int, ...]) -> frozenset[PartitionKey]:
        """None: the groups record when a partition was clustered."""
        return frozenset()

    def data_files(self, given: bytes) -> tuple[str, ...]:
        """The data files of the group."""
        return tuple(file.data.path for file in decode_cluster_input(given).rewrite.rewritten)

    def inputs(self, case: ProcessContext) -> tuple[str, ...]:
        """The data and delete files that its tasks read."""
        read = [*(result.input for result in case.results), *(work.payload for work in case.open_work)]
        works = [decode_cluster_input(given).rewrite for given in read]
        files = [file.data.path for work in works for file in work.rewritten]
        return tuple(dict.fromkeys((*files, *(delete.path for work in works for delete in work.deletes))))

    def outputs(self, case: ProcessContext, groups: frozenset[int]) -> tuple[str, ...]:
        """The data files that these tasks have written."""
        made = [decode_cluster_output(one.output).rewrite for one in case.results if one.number in groups]
        return tuple(file.path for output in made for file in output.data_files)

    def removals(self, case: ProcessContext) -> tuple[str, ...]:
        """None: the replaced files belong to earlier snapshots."""
        return ()

    def receipt(self, case: ProcessContext) -> None:
        """None: every process of it commits."""

    def made(self, case: ProcessContext, groups: tuple[int, ...]) -> tuple[ClusteredGroup, ...]:
        """The groups of files that these tasks have made, each with the depths that were predicted of it."""
        kept = ClusterPlanState.of(case.process)
        works = {one.number: decode_cluster_input(one.input) for one in case.results if one.number in groups}
        return tuple(
            ClusteredGroup(work.group_id, work.layout, dict(zip(kept.columns, kept.predicted[number], strict=False)))
            for number, work in sorted(works.items())
        )


def _notes(config: ClusteringConfig, request: Request) -> tuple[str, ...]:
    """The warning of a plan whose groups reject concurrent writers."""
    if config.update_strategy is not UpdateStrategy.CARRY_OVER or request.cluster.shows:
        return ()
    most = config.carry_over_max_rows
    return (f"rows that others delete by position meanwhile are deleted in the outputs, at most {most} of a group",)


def _facts(table: AnyTable, situation: PlanningContext) -> ClusterFacts:
    config, capacity = situation.config, situation.capacity
    return ClusterFacts(
        scan=table.scan(),
        sorting=table.sorting(),
        optimizing=config,
        now=situation.now,
        snapshots=table.snapshots(),
        properties=table.facts.properties,
        groups={group_id: known.layout for group_id, known in situation.known_groups.items()},
        learn=table.layout_of,
        pinned=frozenset(situation.taken.paths),
        chooses=table.chooses,
        path_of=table.partition_path,
        selects=table.selects(config.filter) if config.filter is not None else None,
        scans=situation.scans,
        choice=situation.choice,
        budget_bytes=capacity.max_input_per_thread * max(1, capacity.threads),
    )


def _asked(request: Request) -> ClusterRequest:
    """The request; without a name it is a scheduled run. Raises InvalidArgument for values that are not possible."""
    wanted = request.cluster
    if request.name is None:
        return ClusterRequest()
    try:
        return ClusterRequest(
            asked=True,
            columns=columns(",".join(wanted.columns)),
            strategy=strategy(wanted.strategy),
            partitions=partitions(wanted.partitions) if wanted.partitions else None,
            where=request.where,
            full=wanted.full,
            shows=wanted.shows,
        )
    except ValueError as error:
        given = {
            COLUMNS_KEY: ",".join(wanted.columns),
            STRATEGY_KEY: wanted.strategy,
            PARTITIONS_KEY: wanted.partitions,
        }
        said = ", ".join(f"--{key.removeprefix(PREFIX)} {value}" for key, value in given.items() if value)
        raise InvalidArgument(f"{said}: {error}", hint="See: amoro optimize --help") from error


def _plan(
    table: AnyTable,
    situation: PlanningContext,
    config: ClusteringConfig,
    request: Request,
    verdict: ClusterVerdict,
    made: ClusterPlan,
) -> Plan:
    table.refuse_inputs(dict.fromkeys(path for group in made.groups for path in _paths(group)))
    contexts = {spec_id: table.context(spec_id) for spec_id in {group.key.spec_id for group in made.groups}}
    tasks = []
    for group in made.groups:
        task = TaskPlan(group.key, group.files, (), group.output_count, group.cost)
        rewrite = rewrite_work(task, contexts[group.key.spec_id], made.sequence_number, situation.config)
        work = ClusterInput(
            # Rows in another order can't be followed by their positions.
            rewrite=replace(rewrite, tells_left_out=False),
            layout=made.layout,
            group_id=group.group_id,
            seed=group.seed,
            sort_order_id=made.sort_order_id,
        )
        tasks.append(
            PlannedTask(
                work=Work(CLUSTER, encode_cluster_input(work)),
                cost=group.cost,
                partition=table.partition_path(group.key),
                input_files=len(group.files),
                input_bytes=group.input_bytes,
                input_rows=sum(file.data.record_count for file in group.files),
            )
        )
    kept = ClusterPlanState(
        columns=tuple(key.field_id for key in made.layout.keys),
        registers=config.register_sort_order and made.layout.strategy is Strategy.LINEAR,
        rejects=config.update_strategy is UpdateStrategy.REJECT,
        carries=config.carry_over_max_rows if config.update_strategy is UpdateStrategy.CARRY_OVER else None,
        before={number: group.before for number, group in enumerate(made.groups, 1)},
        predicted={number: group.predicted for number, group in enumerate(made.groups, 1)},
    )
    waits = request.cluster.schedule_only or (request.name is None and config.mode is Mode.SCHEDULED)
    return Plan(
        CLUSTER,
        verdict.reason,
        made.snapshot_id,
        made.sequence_number,
        tuple(tasks),
        kept.text,
        document={**_document(table, verdict, made), REJECTS: kept.rejects},
        data_files=tuple(file.data.path for group in made.groups for file in group.files),
        ttl=config.plan_ttl,
        waits=waits,
        max_commits=config.partial_progress_max_commits if config.partial_progress else 1,
    )


def _paths(group: GroupPlan) -> list[str]:
    files = [file.data.path for file in group.files]
    return [*files, *(delete.path for file in group.files for delete in file.deletes)]


def _document(table: AnyTable, verdict: ClusterVerdict, made: ClusterPlan) -> dict[str, object]:
    """The plan as people see it before and after it is started."""
    sorting = table.sorting()
    names = [sorting.name_of(key.field_id) for key in made.layout.keys]
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
        for group in made.groups
    ]
    return {
        "layout": {
            "strategy": made.layout.strategy.value,
            "columns": names,
            "keys": [asdict(key) for key in made.layout.keys],
        },
        "notes": list(verdict.notes),
        "groups": groups,
        "groups_left": made.left,
        "input_files_count": sum(len(group.files) for group in made.groups),
        "input_bytes": sum(group.input_bytes for group in made.groups),
        "cpu_ms": sum(group.core_ms for group in made.groups),
    }
