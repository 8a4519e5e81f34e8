"""What an operator is told of groups of files that no registered optimizer takes."""

from __future__ import annotations

from contextlib import closing

from pyiceberg.catalog.sql import SqlCatalog

from amoro_cli.client import AdminClient
from amoro_cli.launcher import Endpoint
from amoro_cli.output import Pairs
from amoro_cli.views.processes import process_detail
from amoro_core.app import Coordinator
from amoro_core.model.clustering import CLUSTER, ClusterOptions
from amoro_core.model.tables import parse_table
from amoro_optimizer.client import Client
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.rpc.test_services import register

KINDS = ("rewrite", CLUSTER)


def test_a_group_above_every_bound_waits_and_the_process_says_which_bound_and_whose(
    coordinator: Coordinator, client: Client, catalog: SqlCatalog
) -> None:
    table = writer.make_table(catalog, "db.t", SCHEMA, properties={"self-optimizing.target-size": "8192"})
    for first in range(4):
        writer.append(table, [row(number) for number in range(first, 2000, 4)])
    table_id = coordinator.tables.ensure(parse_table("cat.db.t")).table_id
    asked = ClusterOptions(columns=("id",))
    begun = coordinator.services.maintaining.begin(table_id, CLUSTER, trigger="request", cluster=asked)
    (task,) = coordinator.optimizing.find_process(begun.process_id).tasks

    def told() -> tuple[str, str]:
        """What the process's message says, and what the command line shows of it."""
        with closing(AdminClient(Endpoint(coordinator.address, coordinator.admin_token))) as admin:
            process = admin.get_process(begun.process_id)
        (pairs,) = (block for block in process_detail(process).blocks if isinstance(block, Pairs))
        return process.no_optimizer, dict(pairs.pairs).get("waiting", "")

    small = register(coordinator, client, work_kinds=KINDS, max_cluster_bytes=10)
    larger = register(coordinator, client, work_kinds=KINDS, max_cluster_bytes=task.input_bytes - 1)
    register(coordinator, client)  # it has no bound, as it puts nothing in order
    assert not client.poll(small.token, [1], 0)
    assert not client.poll(larger.token, [1], 0)
    words = (
        f"group 1 has {task.input_bytes} bytes, and the largest that any takes is {task.input_bytes - 1} bytes "
        f"(optimizer {larger.optimizer_id}): give one more disk, or lower self-optimizing.cluster.max-group-bytes"
    )
    assert told() == (words, words)
    fitting = register(coordinator, client, work_kinds=KINDS, max_cluster_bytes=task.input_bytes)
    assert told() == ("", "")
    (handed,) = client.poll(fitting.token, [1], 0)
    assert handed.attempt.task_id == task.task_id
