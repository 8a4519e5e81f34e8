"""Groups that a Spark application clusters: what a standalone optimizer makes of them, whatever is lost meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark import SparkContext

from amoro_core.errors import AttemptAbandoned, CheckFailed, DataFileMissing, TableRefused
from amoro_core.model.clustering import CLUSTER, ClusterOutput, Layout, LayoutKey, Strategy
from amoro_core.model.files import LINEAGE_NAMES
from amoro_core.model.task_payload import InputFile
from amoro_optimizer.backends.spark import clustering
from amoro_optimizer.backends.spark.driver import SparkBackend
from amoro_optimizer.backends.spark.worker import Assignment
from amoro_optimizer.work_kinds import InProcess
from tests.acceptance.processes import PATIENCE_S, ROOT, wait_until
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.engine.files import Layout as FileLayout
from tests.engine.parquet_rows import local_path
from tests.engine.writer import make_catalog
from tests.services.world import World
from tests.spark.session import Application, items_of, jobs_of
from tests.spark_backend.cluster import Cluster, start_cluster
from tests.spark_backend.groups import (
    HILBERT,
    LINEAR,
    OUTPUTS,
    Told,
    Watch,
    another,
    clustered,
    files_of,
    group_of,
    group_table,
    kill_quietly,
    only_task,
    rewritten,
    rows_of,
    small_slices,
)
from tests.spark_backend.spark import command_of, descendants, in_thread, open_backend, python_workers

STAGES = ("sample", "split", "write")


def assert_made_as_alone(made: ClusterOutput, alone: ClusterOutput) -> None:
    """Fail unless the files have the same rows, all of which went through each stage."""
    assert (rows_of(made), made.cuts) == (rows_of(alone), alone.cuts)
    live = made.rewrite.rows_written
    assert [(stage.name, stage.rows) for stage in made.stages] == [(name, live) for name in STAGES]


@pytest.mark.parametrize("layout", [LINEAR, HILBERT], ids=["linear", "hilbert"])
def test_a_group_with_deletes_becomes_the_files_that_a_standalone_optimizer_makes_of_it(
    spark_application: Application, world: World, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_slices(monkeypatch)
    backend, spill = spark_application.backend, spark_application.scratch
    attempt, work = group_of(world, group_table(world.catalog), layout)
    before = set(spill.rglob("shuffle_*"))
    told, stages = list[tuple[int, int]](), list[str]()
    heard = {"on_progress": lambda *rows: told.append(rows), "on_stage": lambda stage, core_ms: stages.append(stage)}
    made = clustered(backend, work, attempt, **heard)
    alone = clustered(InProcess(), work, another(attempt))
    assert_made_as_alone(made, alone)
    assert len(made.rewrite.data_files) == OUTPUTS
    figures = ("rows_read", "rows_deleted", "rows_written")
    assert [getattr(made.rewrite, name) for name in figures] == [getattr(alone.rewrite, name) for name in figures]
    assert made.rewrite.rows_deleted > 100
    for one, other in zip(made.rewrite.data_files, alone.rewrite.data_files, strict=True):
        assert one.path.endswith("-g0123456789ab.parquet")
        footers = [pq.read_metadata(local_path(file.path)).metadata for file in (one, other)]
        assert footers[0][b"amoro.cluster"] == footers[1][b"amoro.cluster"]
        for name in ("record_count", "metrics", "sort_order_id"):
            assert getattr(one, name) == getattr(other, name)
    assert made.shuffle_bytes > 0
    assert {total for _, total in told} == {made.rewrite.rows_read}
    assert told == sorted(told)
    assert tuple(dict.fromkeys(stages)) == STAGES
    wait_until(lambda: set(spill.rglob("shuffle_*")) <= before, "what was shuffled is gone from the disk")


def with_offsets(file: InputFile) -> InputFile:
    """The file with the offsets of its row groups, which the writer of the tests leaves out."""
    footer = pq.read_metadata(local_path(file.data.path))
    offsets = tuple(footer.row_group(index).column(0).file_offset or index for index in range(footer.num_row_groups))
    return replace(file, data=replace(file.data, split_offsets=offsets))


def test_large_files_are_read_in_pieces_by_their_row_groups_and_rows_keep_their_lineage(
    backend: SparkBackend, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of six row groups with position deletes, one with an equality delete, which is read as a whole."""
    table = writer.make_table(world.catalog, "db.pieces", SCHEMA)
    groups = FileLayout(row_group_rows=50)
    writer.append(table, [row(number * 7 % 300, value="first") for number in range(300)], layout=groups)
    writer.upsert(table, [row(number, value="anew") for number in (0, 7, 299)], ["id"])
    writer.append(table, [row(300 + number * 11 % 300, value="second") for number in range(300)], layout=groups)
    writer.delete_where(table, lambda record: record["id"] % 5 == 3)
    attempt, work = group_of(world, table, LINEAR, outputs=3)
    files = [with_offsets(file) for file in work.rewrite.rewritten]
    first_ids = {file.data.path: 10_000 * number for number, file in enumerate(files)}
    files = [replace(file, data=replace(file.data, first_row_id=first_ids[file.data.path])) for file in files]
    format_3 = replace(work.rewrite.table, format_version=3)
    work = replace(work, rewrite=replace(work.rewrite, rewritten=tuple(files), table=format_3))
    whole = clustered(InProcess(), work, another(attempt))
    small_slices(monkeypatch, 1000)
    slices = clustering.slices_of(work, Assignment(b"", CLUSTER, b"", {}, 1, ("127.0.0.1", 1), b"", ""), 2)
    pieces = [one.piece for one in slices if one.piece is not None]
    assert len(pieces) > 2
    assert len(pieces) == pieces[0][1]
    assert len(slices) > len(pieces)
    made = clustered(backend, work, attempt)
    assert rows_of(made) == rows_of(whole)
    lineage = [tuple(record[name] for name in LINEAGE_NAMES) for rows in rows_of(made) for record in rows]
    assert len({row_id for row_id, _ in lineage}) == len(lineage) == made.rewrite.rows_written
    numbers = {first_ids[file.data.path]: file.data.sequence_number for file in files}
    assert {(row_id // 10_000 * 10_000, updated) for row_id, updated in lineage} == set(numbers.items())
    assert (made.rewrite.rows_read, made.rewrite.rows_deleted) == (whole.rewrite.rows_read, whole.rewrite.rows_deleted)
    assert made.rewrite.rows_deleted > 100
    read = sum(file.data.size_bytes for file in work.rewrite.rewritten)
    assert made.rewrite.bytes_read <= 1.5 * read + sum(one.size_bytes for one in work.rewrite.deletes) * len(slices) * 2


def test_a_range_beyond_the_memory_is_sorted_through_disk(
    backend: SparkBackend, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt, work = group_of(world, group_table(world.catalog), HILBERT, outputs=1)
    made = clustered(backend, work, attempt, memory_bytes=1 << 14)
    assert made.spill_bytes > 0
    assert rows_of(made) == rows_of(clustered(InProcess(), work, another(attempt)))


def test_what_can_t_be_done_or_does_not_add_up_is_told_and_leaves_nothing(
    backend: SparkBackend, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_slices(monkeypatch)
    table = group_table(world.catalog)
    attempt, work = group_of(world, table, LINEAR)
    before = files_of(table)
    lost = Path(local_path(work.rewrite.rewritten[3].data.path))
    kept = lost.rename(lost.with_suffix(".kept"))
    with pytest.raises(DataFileMissing, match=f"{lost.name} does not exist"):
        clustered(backend, work, attempt)
    kept.rename(lost)
    unknown = Layout(Strategy.LINEAR, (LayoutKey(99),))
    with pytest.raises(TableRefused, match="rows can't be ordered by column id 99"):
        clustered(backend, replace(work, layout=unknown), attempt)

    def one_row_more(told: Told, said: Mapping[str, Any]) -> Mapping[str, Any]:
        if (told.stage, told.what) != ("split", "facts"):
            return said
        return {"facts": {**said["facts"], "rows": said["facts"]["rows"] + 1}}

    Watch(monkeypatch, as_heard=one_row_more)
    with pytest.raises(CheckFailed, match=r"^\d+ rows read, \d+ deleted, but \d+ written$"):
        clustered(backend, work, attempt)
    assert files_of(table) == before


def test_executions_that_die_in_each_stage_are_repeated_and_the_files_are_the_same(
    backend: SparkBackend, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_slices(monkeypatch)
    table = group_table(world.catalog)
    attempt, work = group_of(world, table, HILBERT)
    alone = clustered(InProcess(), work, another(attempt))
    before = files_of(table)
    done: set[tuple[str, str]] = set()

    def kill_all_workers_once(told: Told) -> None:
        if (told.stage, told.what) not in done:
            done.add((told.stage, told.what))
            kill_quietly(python_workers(os.getpid()))

    watch = Watch(monkeypatch, kill_all_workers_once)
    made = clustered(backend, work, attempt)
    assert done == {("sample", "facts"), ("split", "facts"), ("write", "file"), ("write", "facts")}
    parts = len(work.rewrite.rewritten)
    assert [len(watch.executions(stage)) for stage in STAGES] == [parts, parts, OUTPUTS]
    for stage in STAGES:
        assert max(len(executions) for executions in watch.executions(stage).values()) > 1
    assert_made_as_alone(made, alone)
    assert files_of(table) - before == {Path(file.path).name for file in made.rewrite.data_files}


@pytest.mark.parametrize("stage", STAGES)
def test_a_cancelled_group_ends_in_every_stage_and_leaves_nothing(
    backend: SparkBackend, world: World, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_slices(monkeypatch)
    table = group_table(world.catalog)
    attempt, work = group_of(world, table, LINEAR)
    before = files_of(table)
    cancelled = threading.Event()

    def cancel(told: Told) -> None:
        if told.stage == stage:
            cancelled.set()
            wait_until(lambda: told.job.is_over, "the job is told to stop")

    Watch(monkeypatch, cancel)
    with in_thread(lambda: clustered(backend, work, attempt, is_cancelled=cancelled.is_set)) as call:
        call.wait()
    assert cancelled.is_set()
    assert isinstance(call.raised, AttemptAbandoned)
    assert files_of(table) == before


def test_a_group_leaves_the_next_free_core_to_other_tables(
    spark_application: Application, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, context = spark_application.backend, spark_application.context
    small_slices(monkeypatch)
    attempt, work = group_of(world, group_table(world.catalog), LINEAR)
    small = group_table(world.catalog, "db.small")
    other, beside = only_task(world, small)
    begun, told, ended = threading.Event(), threading.Event(), list[str]()

    def wait_for_the_other(one: Told) -> None:
        # Both cores are busy with the group; it has more parts than these.
        if one.stage == "split" and not told.is_set():
            begun.set()
            assert told.wait(PATIENCE_S)

    watch = Watch(monkeypatch, wait_for_the_other)
    tracker = context.statusTracker()

    def rewrite() -> None:
        rewritten(backend, beside, other)
        ended.append("small")

    with in_thread(lambda: clustered(backend, work, attempt), told.set) as group:
        assert begun.wait(PATIENCE_S)
        with in_thread(rewrite, told.set) as quick:
            wait_until(lambda: len(tracker.getActiveJobsIds()) == 2, "the small table's job waits")
            told.set()
            quick.wait()
            assert quick.raised is None
            assert len(watch.executions("write")) < OUTPUTS, "the small table waited for all of the group"
        group.wait()
    assert (ended, group.raised) == (["small"], None)
    store = context._jsc.sc().statusStore()
    jobs = jobs_of(context, str(attempt))
    stages = [store.lastStageAttempt(number) for job in jobs for number in items_of(job.stageIds())]
    assert {stage.name() for stage in stages} == {f"{name} cat.db.group" for name in STAGES}
    assert {stage.schedulingPool().split("-")[0] for stage in stages} == {"amoro"}


MANY_OUTPUTS = 8
SETTINGS = {
    "spark.executor.memory": "512m",
    # As if each executor had a machine of its own: what a dead one leaves on disk nobody reads.
    "spark.shuffle.readHostLocalDisk": "false",
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "100ms",
}


def test_a_killed_executor_costs_what_it_had_made_and_the_files_are_the_same(tmp_path: Path) -> None:
    """In another process: there can be one application at a time in each, and pytest's process has one."""
    (tmp_path / "home").mkdir()
    program = f"from {__name__} import Path, lose_an_executor as run; run(Path({str(tmp_path)!r}))"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S, cwd=ROOT)
    assert done.returncode == 0, done.stderr


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
        attempt, work = group_of(world, table, HILBERT, MANY_OUTPUTS)
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
            wait_until(lambda: backend.slots == 2, "both executors are there")
            watch = Watch(patch, kill_an_executor)
            made = clustered(backend, work, attempt)
        assert len(killed) == 1
        assert_made_as_alone(made, alone)
        assert files_of(table) - before == {Path(file.path).name for file in made.rewrite.data_files}
        counts = {stage: [len(one) for one in watch.executions(stage).values()] for stage in STAGES}
        assert counts["sample"] == [1] * parts, "the sample was taken again"
        assert len(counts["split"]) == parts
        assert 1 <= sum(counts["split"]) - parts < parts, "what the other executor had split was split again"
        assert len(counts["write"]) == MANY_OUTPUTS


def splitters() -> list[str]:
    """The executors that have split rows, for each part."""
    store = SparkContext.getOrCreate()._jsc.sc().statusStore()
    stages = [
        store.lastStageAttempt(number) for job in items_of(store.jobsList(None)) for number in items_of(job.stageIds())
    ]
    return [
        task.executorId()
        for stage in stages
        if stage.name().startswith("split ")
        for task in items_of(store.taskList(stage.stageId(), stage.attemptId(), 1000))
        if task.status() == "SUCCESS"
    ]


def executor_pid(cluster: Cluster, executor_id: str) -> int:
    """The JVM of an executor."""
    below = {pid: command_of(pid) for worker in cluster.workers for pid in descendants(worker.popen.pid)}
    (found,) = (
        pid for pid, words in below.items() if ("--executor-id", executor_id) in pairwise(words) and "java" in words[0]
    )
    return found
