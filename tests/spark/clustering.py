"""Tables of Spark that are clustered in this process, by the services and the engine of an optimizer."""

from __future__ import annotations

from collections.abc import Callable

from amoro_core.model.clustering import CLUSTER, ClusterOptions
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.work import WorkResult
from amoro_core.services.optimizing import ScheduledTask
from tests.services.clustered import clusterer, commit_due, ordered

from .optimizing import Services


def cluster_table(
    services: Services,
    table: str,
    asked: ClusterOptions,
    after_task: Callable[[], object] = lambda: None,
    work: Callable[[ScheduledTask], WorkResult] = ordered,
) -> str:
    """Cluster the table until its process, whose id is returned, has succeeded; `after_task` comes before commits."""
    world = services.world
    table_id = world.table(table).table_id
    process_id = world.maintaining.begin(table_id, CLUSTER, trigger="request", cluster=asked).process_id
    optimizer = clusterer(world)
    while handed := world.poll(optimizer):
        assert world.optimizing.ack(optimizer, [handed[0].attempt]) != [None]
        assert world.optimizing.complete(optimizer, handed[0].attempt, work(handed[0]))
        after_task()
        commit_due(world, process_id)
    process = world.optimizing.find_process(process_id).process
    assert process.status is ProcessStatus.SUCCESS, process.failure
    return process_id
