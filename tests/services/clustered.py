"""Clustering for tests of the engine: a planner that groups files as it is told, and a kind that does not sort."""

import json
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from amoro_core.actions import clustering
from amoro_core.files.storage.io import open_access
from amoro_core.model.clustering import (
    AS_CONFIGURED,
    CLUSTER,
    ClusterInput,
    ClusterOptions,
    ClusterOutput,
    Layout,
    LayoutKey,
    StageFacts,
    Strategy,
    group_of,
    group_suffix,
)
from amoro_core.model.files import ScannedFile
from amoro_core.model.paths import normalise
from amoro_core.model.plans import PartitionKey
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.task_payload import WorkResult
from amoro_core.planning.clustering.model import (
    ClusterFacts,
    ClusteringConfig,
    ClusterPlan,
    ClusterRequest,
    ClusterVerdict,
    GroupPlan,
)
from amoro_core.protocol.codec import decode_cluster_input, encode_cluster_output
from amoro_core.services.task_lifecycle import ScheduledTask
from amoro_optimizer.cluster.engine import cluster
from amoro_optimizer.rewrite.engine import rewrite
from tests.services.world import World

BY_ID = Layout(Strategy.LINEAR, (LayoutKey(1),))


class Grouping:
    """A plan of all files that no other plan has, so many to a group."""

    def __init__(
        self, size: int = 2, layout: Layout = BY_ID, most: int = 100, *, only_unclustered: bool = False
    ) -> None:
        self.size, self.layout, self.most = size, layout, most
        self.only_unclustered = only_unclustered

    def __call__(self, facts: ClusterFacts, config: ClusteringConfig, request: ClusterRequest) -> ClusterVerdict:
        if facts.scan is None or not (config.enabled or request.asked):
            return ClusterVerdict(False, "nothing to do")
        free = [file for file in facts.scan.files if normalise(file.data.path) not in facts.pinned]
        if self.only_unclustered:
            free = [file for file in free if group_of(file.data.path) is None]
        places: dict[PartitionKey, list[ScannedFile]] = {}
        for file in sorted(free, key=lambda one: one.data.path):
            places.setdefault(PartitionKey(file.data.spec_id, file.data.partition), []).append(file)
        groups = [
            _group(key, files[at : at + self.size])
            for key, files in places.items()
            for at in range(0, len(files), self.size)
            if len(files[at : at + self.size]) > 1
        ][: self.most]
        if not groups:
            return ClusterVerdict(False, "nothing to do: every file is in a plan, or alone")
        scan = facts.scan
        plan = ClusterPlan(self.layout, 0, tuple(groups), scan.snapshot_id, scan.sequence_number, 7)
        return ClusterVerdict(True, f"{len(groups)} groups", plan=plan, layout=self.layout)


def _group(key: PartitionKey, files: Sequence[ScannedFile]) -> GroupPlan:
    size = sum(file.data.size_bytes for file in files)
    group_id = random.Random(files[0].data.path).randbytes(6).hex()
    return GroupPlan(key, tuple(files), 1, group_id, 1, (2.0,), (1.0,), size, size, 5, 1.0)


def plan_groups_with(patch: pytest.MonkeyPatch, plan: Callable[..., ClusterVerdict]) -> None:
    """Let the action plan with this instead of the planner."""
    patch.setattr(clustering, "plan_clustering", plan)


def cluster_with(world: World, grouping: Grouping, options: ClusterOptions = AS_CONFIGURED) -> str:
    """Plan and store a process that somebody asked for; its id, "" where there is nothing to do."""
    table_id = world.table().table_id
    return world.maintaining.begin(table_id, CLUSTER, trigger="request", cluster=options).process_id


def unsorted(handed: ScheduledTask, rename: bool = True) -> WorkResult:
    """What rewriting the group's files as they are makes, under names that tell the group."""
    given = decode_cluster_input(handed.work.payload)
    made = _done(rewrite, given.rewrite, given, handed)
    if rename:
        ending = group_suffix(given.group_id) + ".parquet"
        files = [replace(file, path=file.path.removesuffix(".parquet") + ending) for file in made.data_files]
        for before, after in zip(made.data_files, files, strict=True):
            os.rename(before.path.removeprefix("file://"), after.path.removeprefix("file://"))
        made = replace(made, data_files=tuple(files))
    output = ClusterOutput(made, b"", (StageFacts("write", 12, made.rows_written),), 0, 0)
    return WorkResult(CLUSTER, encode_cluster_output(output))


def ordered(handed: ScheduledTask) -> WorkResult:
    """What clustering the group's files makes."""
    given = decode_cluster_input(handed.work.payload)
    return WorkResult(CLUSTER, encode_cluster_output(_done(cluster, given, given, handed)))


def _done(engine: Any, work: object, given: ClusterInput, handed: ScheduledTask) -> Any:
    table = given.rewrite.table
    access = open_access(
        {}, table.location, read_locations=table.read_locations, write_locations=(table.location, table.data_location)
    )
    return engine(
        work,
        access,
        handed.attempt,
        on_progress=lambda done, total: None,
        is_cancelled=lambda: False,
        memory_limit_bytes=512 * 1024 * 1024,
    )


def work_on(
    world: World,
    process_id: str,
    optimizer: str,
    most: int = 1000,
    work: Callable[[ScheduledTask], WorkResult] = unsorted,
) -> int:
    """Let the optimizer do so many tasks of clustering, and commit what is due after each; how many it did."""
    done = 0
    while done < most and (handed := world.poll(optimizer)):
        assert world.optimizing.ack(optimizer, [handed[0].attempt]) != [None]
        assert world.optimizing.complete(optimizer, handed[0].attempt, work(handed[0]))
        done += 1
        commit_due(world, process_id)
    return done


def commit_due(world: World, process_id: str) -> None:
    """Commit what of the process waits for that."""
    if world.status(process_id) in (ProcessStatus.COMMITTING, ProcessStatus.COMMIT_UNKNOWN):
        world.committing.commit(process_id)


def clusterer(world: World) -> str:
    """An optimizer that knows rewriting and clustering."""
    return world.optimizer(kinds=("rewrite", CLUSTER), max_cluster_bytes=1 << 40)


def summary_of(world: World) -> dict[str, object]:
    """The summary of the table's head, with its JSON read."""
    snapshot = world.catalog.load_table("db.t").current_snapshot()
    said = dict(snapshot.summary.additional_properties)
    return {key: json.loads(value) if value[:1] in "{[" else value for key, value in said.items()}
