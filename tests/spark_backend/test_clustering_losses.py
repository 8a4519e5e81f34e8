"""A group on a cluster of two executors, of which one is killed: what is lost is made again, and no more."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from amoro_optimizer.backends.standalone import InProcess
from tests.acceptance.processes import wait_until
from tests.engine.writer import make_catalog
from tests.services.world import World
from tests.spark_backend.cluster import Cluster, start_cluster
from tests.spark_backend.groups import (
    HILBERT,
    Told,
    Watch,
    another,
    clustered,
    files_of,
    group_of,
    group_table,
    kill_quietly,
    rows_of,
    small_slices,
)
from tests.spark_backend.spark import command_of, descendants, in_own_process, open_backend

OUTPUTS = 8
SETTINGS = {
    "spark.executor.memory": "512m",
    # As if each executor had a machine of its own: what a dead one leaves on disk nobody reads.
    "spark.shuffle.readHostLocalDisk": "false",
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "100ms",
}


def test_a_killed_executor_costs_what_it_had_made_and_the_files_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    in_own_process(lose_an_executor, tmp_path)


def lose_an_executor(directory: Path) -> None:
    """Cluster a group on a cluster that loses an executor when the first file is written."""
    with (
        closing(start_cluster(directory, workers=2, cores=1)) as cluster,
        closing(make_catalog(directory)) as catalog,
        closing(World(directory / "home", catalog)) as world,
        pytest.MonkeyPatch.context() as patch,
    ):
        small_slices(patch)
        table = group_table(world.catalog)
        attempt, work = group_of(world, table, HILBERT, OUTPUTS)
        alone = clustered(InProcess(), work, another(attempt))
        before = files_of(table)
        killed: list[int] = []
        parts = len(work.rewrite.rewritten)

        def kill_an_executor(told: Told) -> None:
            # Splitting is over, and a file is written: what the executor had split is lost with it.
            if (told.stage, told.what) == ("write", "facts") and not killed:
                wait_until(lambda: len(splitters()) == parts, "Spark knows who has split rows")
                killed.append(executor_pid(cluster, splitters()[0]))
                kill_quietly(set(killed))

        with open_backend(cluster.master_url, directory, SETTINGS) as backend:
            wait_until(lambda: backend.slots() == 2, "both executors are there")
            watch = Watch(patch, kill_an_executor)
            made = clustered(backend, work, attempt)
        assert len(killed) == 1
        assert (rows_of(made), made.cuts) == (rows_of(alone), alone.cuts)
        assert files_of(table) - before == {Path(file.path).name for file in made.rewrite.data_files}
        counts = {
            stage: [len(one) for one in watch.executions(stage).values()] for stage in ("sample", "split", "write")
        }
        assert counts["sample"] == [1] * parts, "the sample was taken again"
        assert len(counts["split"]) == parts
        assert 1 <= sum(counts["split"]) - parts < parts, "what the other executor had split was split again"
        assert len(counts["write"]) == OUTPUTS
        live = made.rewrite.rows_written
        assert [(one.name, one.rows) for one in made.stages] == [("sample", live), ("split", live), ("write", live)]


def splitters() -> list[str]:
    """The executors that have split rows, for each part."""
    store = SparkContext.getOrCreate()._jsc.sc().statusStore()
    stages = [store.lastStageAttempt(number) for job in items(store.jobsList(None)) for number in items(job.stageIds())]
    return [
        task.executorId()
        for stage in stages
        if stage.name().startswith("split ")
        for task in items(store.taskList(stage.stageId(), stage.attemptId(), 1000))
        if task.status() == "SUCCESS"
    ]


def items(scala_sequence: Any) -> list[Any]:
    return [scala_sequence.apply(number) for number in range(scala_sequence.size())]


def executor_pid(cluster: Cluster, executor_id: str) -> int:
    """The JVM of an executor."""
    wanted = b"--executor-id\0" + executor_id.encode() + b"\0"
    below = {pid for worker in cluster.workers for pid in descendants(worker.pid)}
    (found,) = {pid for pid in below if wanted in command_of(pid) and b"java" in command_of(pid).split(b"\0")[0]}
    return found
