"""Tables of Spark that are clustered in this process, by the services and the engine of an optimizer."""

from __future__ import annotations

from amoro_core.files.io import open_access
from amoro_core.model.clustering import CLUSTER, ClusterOptions
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.work import WorkResult
from amoro_core.protocol.cluster_codec import decode_cluster_input, encode_cluster_output
from amoro_core.services.optimizing import ScheduledTask
from amoro_optimizer.cluster.engine import cluster
from tests.services.clustered import clusterer, commit_due

from .optimizing import Services


def cluster_table(services: Services, table: str, asked: ClusterOptions) -> None:
    """Cluster the table until its process has succeeded."""
    world = services.world
    table_id = world.table(table).table_id
    process_id = world.maintaining.begin(table_id, CLUSTER, trigger="request", cluster=asked).process_id
    optimizer = clusterer(world)
    while handed := world.poll(optimizer):
        assert world.optimizing.ack(optimizer, [handed[0].attempt]) != [None]
        assert world.optimizing.complete(optimizer, handed[0].attempt, ordered(handed[0]))
        commit_due(world, process_id)
    process = world.optimizing.find_process(process_id).process
    assert process.status is ProcessStatus.SUCCESS, process.failure


def ordered(handed: ScheduledTask) -> WorkResult:
    """What an optimizer makes of a group."""
    given = decode_cluster_input(handed.work.payload)
    place = given.rewrite.table
    access = open_access(
        {},
        place.location,
        read_locations=place.read_locations,
        write_locations=(place.location, place.data_location),
    )
    made = cluster(
        given,
        access,
        handed.attempt,
        on_progress=lambda done, total: None,
        is_cancelled=lambda: False,
        memory_limit_bytes=512 * 1024 * 1024,
    )
    return WorkResult(CLUSTER, encode_cluster_output(made))
