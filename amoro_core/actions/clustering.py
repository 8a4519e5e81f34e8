"""Clustering: groups of files of one partition are written anew with their rows in the order of a layout."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import timedelta

from amoro_core.actions.cluster_commit import Kept, cluster_change
from amoro_core.actions.contract import OPTIMIZING_ROLES, Plan, PlannedTask, Prepare, Request, Situation
from amoro_core.actions.rewrite_planning import rewrite_work
from amoro_core.errors import InvalidArgument
from amoro_core.formats.known import KnownFiles
from amoro_core.formats.port import AnyTable, Role
from amoro_core.model.actions import Case
from amoro_core.model.clustering import CLUSTER, REJECTS, ClusterInput, KnownGroup, Strategy
from amoro_core.model.lanes import LAYOUT
from amoro_core.model.plans import PartitionKey, TaskPlan
from amoro_core.model.properties import parse_into
from amoro_core.model.work import Work
from amoro_core.planning.clustering.facts import ClusterFacts, ClusterPlan, ClusterRequest, ClusterVerdict, GroupPlan
from amoro_core.planning.clustering.planner import plan_clustering
from amoro_core.planning.clustering.properties import (
    COLUMNS_KEY,
    PARTITIONS_KEY,
    PREFIX,
    STRATEGY_KEY,
    ClusteringConfig,
    Mode,
    UpdateStrategy,
    columns,
    partitions,
    strategy,
)
from amoro_core.protocol.cluster_codec import decode_cluster_input, decode_cluster_output, encode_cluster_input

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

    def plan(self, table: AnyTable, situation: Situation, request: Request) -> tuple[ClusterVerdict, Plan | None]:
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
        """What validates, checks and stages the commit of the groups of one process that are ready."""
        known = KnownFiles()
        return lambda table, case, now: cluster_change(table, case, known, now)

    def optimized(self, case: Case, groups: tuple[int, ...]) -> frozenset[PartitionKey]:
        """None: when a partition was clustered is told by its groups."""
        return frozenset()

    def data_files(self, given: bytes) -> tuple[str, ...]:
        """The data files of the group."""
        return tuple(file.data.path for file in decode_cluster_input(given).rewrite.rewritten)

    def inputs(self, case: Case) -> tuple[str, ...]:
        """The data and delete files that its tasks read."""
        read = [*(result.input for result in case.results), *(work.payload for work in case.open_work)]
        works = [decode_cluster_input(given).rewrite for given in read]
        files = [file.data.path for work in works for file in work.rewritten]
        return tuple(dict.fromkeys((*files, *(delete.path for work in works for delete in work.deletes))))

    def outputs(self, case: Case, groups: frozenset[int]) -> tuple[str, ...]:
        """The data files that these tasks have written."""
        made = [decode_cluster_output(one.output).rewrite for one in case.results if one.number in groups]
        return tuple(file.path for output in made for file in output.data_files)

    def removals(self, case: Case) -> tuple[str, ...]:
        """None: the replaced files belong to earlier snapshots."""
        return ()

    def receipt(self, case: Case) -> None:
        """None: every process of it commits."""

    def made(self, case: Case, groups: tuple[int, ...]) -> tuple[KnownGroup, ...]:
        """The groups of files that these tasks have made, each with the depths that were predicted of it."""
        kept = Kept.of(case.process)
        works = {one.number: decode_cluster_input(one.input) for one in case.results if one.number in groups}
        return tuple(
            KnownGroup(work.group_id, work.layout, dict(zip(kept.columns, kept.predicted[number], strict=False)))
            for number, work in sorted(works.items())
        )


def _notes(config: ClusteringConfig, request: Request) -> tuple[str, ...]:
    """What people should know of a plan whose groups do not give way."""
    if config.update_strategy is not UpdateStrategy.CARRY_OVER or request.cluster.shows:
        return ()
    most = config.carry_over_max_rows
    return (f"rows that others delete by position meanwhile are deleted in the outputs, at most {most} of a group",)


def _facts(table: AnyTable, situation: Situation) -> ClusterFacts:
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
    situation: Situation,
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
    kept = Kept(
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
