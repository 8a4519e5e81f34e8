"""`amoro optimizer run --backend spark --master spark://…`: a cluster of real processes, parts of which are killed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyiceberg.table import Table

from tests.acceptance.processes import Installation, Process, address_of, wait_until
from tests.acceptance.tables import (
    Seen,
    assert_optimized_once,
    is_optimized,
    look,
    name_of,
    unreferenced_files,
)
from tests.engine import writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.parquet_rows import local_path
from tests.spark_backend.cluster import Cluster, start_cluster
from tests.spark_backend.spark import descendants, executor_of, is_alive, kill, spark_optimizer, writers

PARTS = ("a", "b", "c", "d", "e", "f")
PAYLOAD_BYTES = 10_000  # of noise, which hexadecimal digits double and compression halves


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = start_cluster(tmp_path_factory.mktemp("cluster"), workers=2, cores=2)
    yield made
    made.close()


@pytest.fixture(scope="module")
def optimizer(shared: Installation, cluster: Cluster) -> Process:
    settings = {"spark.executor.memory": "512m"}
    return spark_optimizer(shared, address_of(shared.up()), cluster.master_url, settings=settings)


def large_table(installation: Installation, name: str, commits: int) -> Table:
    """Six partitions of `commits` files each, 6 MB for each commit, with equality and position deletes."""
    noise = random.Random(name)
    table = writer.make_table(installation.catalog, name, SCHEMA, BY_PART)
    for commit in range(commits):
        first = commit * 100
        writer.append(
            table,
            [
                row(first + number, part, noise.randbytes(PAYLOAD_BYTES).hex())
                for number in range(100)
                for part in PARTS
            ],
        )
    writer.upsert(table, [row(first, part, "new") for first in (3, 117) for part in PARTS], ["id"])
    writer.delete_where(table, lambda record: record["id"] == 55)
    return table


def data_directory(table: Table) -> Path:
    return Path(local_path(table.location()), "data")


def finish(installation: Installation, table: Table, process_id: str, before: Seen) -> list[int]:
    """Wait for the end; the attempts that its tasks took."""
    wait_until(lambda: is_optimized(table), "the process commits", 240.0)
    process = wait_until(lambda: installation.ended(process_id), "the process ends")
    assert (process["status"], process["tasks_done"], process["tasks_total"]) == ("success", 6, 6)
    assert_optimized_once(table, before, files=len(PARTS))
    assert unreferenced_files(table) == set()
    return sorted(task["attempt"] for task in process["tasks"])


def threads(installation: Installation) -> int:
    (optimizer,) = installation.ask("optimizer", "list")["optimizers"]
    return int(optimizer["threads"])


def executor_that_writes(cluster: Cluster, table: Table) -> Callable[[], int | None]:
    """Asked again and again: the executor of a Python worker that has a file of the table under way."""

    def found() -> int | None:
        for worker in cluster.workers:
            for pid, _ in writers(data_directory(table), worker.pid):
                if (executor := executor_of(pid)) is not None:
                    return executor
        return None

    return found


def test_a_table_is_finished_although_an_executor_is_killed_in_the_middle(
    shared: Installation, cluster: Cluster, optimizer: Process
) -> None:
    table = large_table(shared, "db.executor", commits=10)
    before = look(table)
    assert before.size_bytes > 50_000_000
    planned = shared.ask("optimize", name_of(table), "--type", "full")
    executor = wait_until(executor_that_writes(cluster, table), "an executor writes")
    kill(executor)
    attempts = finish(shared, table, planned["process_id"], before)
    # The executor ran one task on each of its two cores at most.
    assert attempts in ([1, 1, 1, 1, 1, 2], [1, 1, 1, 1, 2, 2])
    assert not is_alive(executor)


def test_a_table_is_finished_although_a_worker_is_killed_and_the_threads_follow_the_cores(
    shared: Installation, cluster: Cluster, optimizer: Process
) -> None:
    table = large_table(shared, "db.worker", commits=3)
    wait_until(lambda: threads(shared) == 4, "a thread for each core")
    before = look(table)
    planned = shared.ask("optimize", name_of(table), "--type", "full")
    executor = wait_until(executor_that_writes(cluster, table), "an executor writes")
    (victim,) = [worker for worker in cluster.workers if executor in descendants(worker.pid)]
    victim.kill()
    finish(shared, table, planned["process_id"], before)
    wait_until(lambda: threads(shared) == 2, "a thread for each core that is left")
    assert optimizer.terminate() == 0
