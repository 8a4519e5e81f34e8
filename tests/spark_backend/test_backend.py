"""The backend in the Spark application of this process: results, errors, cancelling, what is left, whose turn it is."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyspark
import pytest

from amoro_core.errors import AttemptAbandoned, CheckFailed, DataFileMissing, OptimizerError
from amoro_core.model.maintenance import FileKind
from amoro_core.model.processes import Attempt, ProcessStatus
from amoro_core.model.tables import OptimizingType
from amoro_core.model.task_payload import RewriteInput, RewriteOutput
from amoro_optimizer.backends.spark.driver import Pools, SparkBackend
from tests.acceptance.processes import PATIENCE_S, wait_until
from tests.acceptance.tables import assert_optimized_once, look, messy_table, name_of, unreferenced_files
from tests.engine import writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.parquet_rows import local_path
from tests.large import Worker, count_as_large
from tests.services import test_inspecting as inspecting
from tests.services import test_orphans as orphans
from tests.services import test_sweeping as sweeping
from tests.services.test_orphans import Place
from tests.services.world import World
from tests.spark.session import FAILURES, Application, jobs_of
from tests.spark_backend.groups import only_task, rewritten
from tests.spark_backend.spark import Call, in_thread, is_alive, kill, python_workers, stuck_table
from tests.work import rewrite_input


@contextmanager
def going_on(
    backend: SparkBackend, attempt: Attempt, work: RewriteInput, made: list[RewriteOutput] | None = None
) -> Iterator[tuple[Call, threading.Event]]:
    """The attempt in a thread, which adds what it makes, and what cancels it, at the latest with the block."""
    cancelled, outputs = threading.Event(), [] if made is None else made
    execute = partial(rewritten, backend, work, attempt, is_cancelled=cancelled.is_set)
    with in_thread(lambda: outputs.append(execute()), cancelled.set) as call:
        yield call, cancelled


def test_the_application_is_of_the_series_of_spark_that_is_to_be_tried(spark_application: Application) -> None:
    series = os.environ.get("PYSPARK_SERIES", "4.0")  # `make test` says 3.5 for its second run
    assert (pyspark.__version__.rpartition(".")[0], spark_application.context.version) == (series, pyspark.__version__)


def test_what_the_engine_raises_arrives_as_it_was(backend: SparkBackend, world: World) -> None:
    table = messy_table(world.catalog)
    attempt, work = only_task(world, table)
    with pytest.raises(AttemptAbandoned):
        rewritten(backend, work, attempt, is_cancelled=lambda: True)  # before it begins
    Path(local_path(work.rewritten[-1].data.path)).unlink()
    with pytest.raises(DataFileMissing, match=r"does not exist \(the table's metadata names it"):
        rewritten(backend, work, attempt)
    elsewhere = replace(work.rewritten[0], data=replace(work.rewritten[0].data, spec_id=9))
    with pytest.raises(CheckFailed, match="the files of one task lie in 2 partitions"):
        rewritten(backend, replace(work, converted=(elsewhere,)), attempt)
    assert unreferenced_files(table) == set()


def test_a_cancelled_attempt_whose_job_and_stages_say_whose_they_are_stops_by_itself_and_its_file_is_removed(
    spark_application: Application, world: World
) -> None:
    backend, context, stuck = spark_application.backend, spark_application.context, stuck_table(world.catalog)
    attempt, work = only_task(world, stuck.table)
    with going_on(backend, attempt, work) as (call, cancelled):
        worker, file = stuck.wait_for_writer()
        (job,) = jobs_of(context, str(attempt))
        stage = context._jsc.sc().statusStore().lastStageAttempt(job.stageIds().head())
        told = f"cat.db.stuck · process {attempt.task_id.process_id} · task 1 · attempt 1"
        assert (job.description().get(), stage.description().get()) == (told, told)
        assert (stage.name(), stage.schedulingPool().split("-")[0]) == ("rewrite cat.db.stuck", "amoro")
        cancelled.set()
        call.wait()
        assert isinstance(call.raised, AttemptAbandoned)
        assert not file.exists()
        assert is_alive(worker)
    stuck.mend()
    assert unreferenced_files(stuck.table) == set()
    again, rows = Attempt(attempt.task_id, attempt.number + 1), list[tuple[int, int]]()
    output = rewritten(backend, work, again, on_progress=lambda *told: rows.append(told))
    assert (output.rows_read, output.rows_written) == (20, 20)
    assert rows == sorted(rows)
    assert {total for _, total in rows} == {20}


def test_a_cancelled_attempt_whose_worker_hears_nothing_is_ended_and_its_file_removed(
    spark_application: Application, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, mark = messy_table(world.catalog), tmp_path / "held"
    attempt, work = only_task(world, table)
    # Workers with other variables are made anew.
    monkeypatch.setitem(spark_application.context.environment, "AMORO_FAILPOINTS", f"task.after_file=hold:{mark}")
    others = python_workers(os.getpid())
    with going_on(spark_application.backend, attempt, work) as (call, cancelled):
        wait_until(mark.exists, "a worker holds, a file written")
        (worker,) = python_workers(os.getpid()) - others
        assert len(unreferenced_files(table)) == 1
        cancelled.set()
        call.wait()
        assert isinstance(call.raised, AttemptAbandoned)
        assert unreferenced_files(table) == set()
        wait_until(lambda: not is_alive(worker), "the worker is gone")


def test_a_task_whose_workers_are_killed_fails_the_attempt_and_their_files_are_removed(
    backend: SparkBackend, world: World
) -> None:
    stuck, begun = stuck_table(world.catalog), set()
    with going_on(backend, *only_task(world, stuck.table)) as (call, _):
        for _ in range(FAILURES):  # Spark repeats it twice
            pid, file = stuck.wait_for_writer()
            assert pid in python_workers(os.getpid())
            kill(pid)
            begun.add(file)
        call.wait()
        assert [file for file in begun if file.exists()] == []
    assert len(begun) == FAILURES
    assert isinstance(call.raised, OptimizerError)
    assert call.raised.message.startswith("Spark could not run the task: Lost task 0.2 in stage")
    assert "Python worker exited unexpectedly (crashed)" in call.raised.message
    stuck.mend()
    assert unreferenced_files(stuck.table) == set()


def test_a_task_that_spark_repeats_after_its_worker_was_killed_makes_one_result_and_leaves_one_file(
    backend: SparkBackend, world: World
) -> None:
    stuck = stuck_table(world.catalog)
    process_id, optimizer = world.begin(OptimizingType.FULL, name_of(stuck.table)), world.optimizer()
    task, made = world.take(optimizer), list[RewriteOutput]()
    with going_on(backend, task.attempt, rewrite_input(task.work), made) as (call, _):
        worker, file = stuck.wait_for_writer()
        # Whoever reads the pipe goes on waiting; the next execution finds the file as it should be.
        stuck.mend()
        before = look(stuck.table)
        kill(worker)
        call.wait()
    assert call.raised is None
    (output,) = made
    assert not file.exists()
    assert world.complete(optimizer, task.attempt, output)
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert_optimized_once(stuck.table, before)
    assert unreferenced_files(stuck.table) == set()


def test_an_attempt_cancelled_before_spark_has_heard_of_its_job_does_not_wait_for_a_core(
    spark_application: Application, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, backend, context = stuck_table(world.catalog), spark_application.backend, spark_application.context
    attempt, work = only_task(world, stuck.table)
    first, second, third = (Attempt(attempt.task_id, number) for number in (1, 2, 3))
    cancelled, told, cancel_group, run_job = (
        threading.Event(),
        threading.Event(),
        context.cancelJobGroup,
        context.runJob,
    )

    def cancel(group: str) -> None:
        cancel_group(group)
        told.set()

    def run_late(*arguments: Any) -> list[Any]:
        cancelled.set()
        assert told.wait(PATIENCE_S)
        return run_job(*arguments)

    with going_on(backend, first, work), going_on(backend, second, work):
        wait_until(lambda: len(stuck.writers()) == 2, "both cores are taken")
        monkeypatch.setattr(context, "cancelJobGroup", cancel)
        monkeypatch.setattr(context, "runJob", run_late)
        with in_thread(lambda: rewritten(backend, work, third, is_cancelled=cancelled.is_set)) as late:
            late.wait()
            assert isinstance(late.raised, AttemptAbandoned)


def test_a_small_table_gets_the_next_free_core_before_the_queue_of_a_big_one(
    spark_application: Application, world: World
) -> None:
    stuck, small = stuck_table(world.catalog), writer.make_table(world.catalog, "db.small", SCHEMA)
    for first in (0, 10, 20):
        writer.append(small, [row(first + number) for number in range(10)])
    backend, tracker = spark_application.backend, spark_application.context.statusTracker()
    attempt, work = only_task(world, stuck.table)
    attempts = [going_on(backend, Attempt(attempt.task_id, attempt.number + at), work) for at in range(6)]
    written: list[RewriteOutput] = []
    with ExitStack() as calls:
        big = [calls.enter_context(one) for one in attempts[:2]]
        wait_until(lambda: len(stuck.writers()) == 2, "all cores are taken")
        big += [calls.enter_context(one) for one in attempts[2:]]
        wait_until(lambda: len(tracker.getActiveJobsIds()) == 6, "the jobs of the big table wait")
        quick, _ = calls.enter_context(going_on(backend, *only_task(world, small), written))
        wait_until(lambda: len(tracker.getActiveJobsIds()) == 7, "the small table's job waits")
        big[0][1].set()
        # What is of the big table never ends by itself: first come first served, the small one would wait forever.
        quick.wait()
        assert quick.raised is None
        assert [output.rows_written for output in written] == [30]
        big[0][0].wait()
        assert [call.is_alive() for call, _ in big] == [False, *[True] * 5]


def test_each_table_with_jobs_has_a_pool_of_its_own_which_is_given_anew_after_its_last_job() -> None:
    pools, tables = Pools(), [f"cat.db.t{number}" for number in range(40)]
    with ExitStack() as jobs:
        given = [jobs.enter_context(pools.pool_of(table)) for table in tables]
        assert given == [f"amoro-{number}" for number in range(1, 41)]
        assert [jobs.enter_context(pools.pool_of(table)) for table in tables] == given
    with pools.pool_of("cat.db.a") as first:
        with pools.pool_of("cat.db.b") as second, pools.pool_of("cat.db.b") as again:
            assert (first, second, again) == ("amoro-1", "amoro-2", "amoro-2")
        with pools.pool_of("cat.db.c") as third:
            assert third == "amoro-2"


def test_files_are_listed(backend: SparkBackend, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    count_as_large(monkeypatch, files_of_a_task=3)
    place = Place(world)
    other = place.put("data/part=b/y.parquet")
    assert Worker(world, backend=backend).run(orphans.NAME).status is ProcessStatus.SUCCESS
    assert orphans.condemned_now(place) == sorted([place.orphan, other])


def test_values_are_counted(backend: SparkBackend, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    count_as_large(monkeypatch)
    table = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART)
    writer.append(table, [row(number, "a" if number < 5 else "b", f"value {number % 3}") for number in range(10)])
    writer.upsert(table, [row(1, "a", "new")], ["id"])
    assert Worker(world, backend=backend).run(inspecting.NAME).status is ProcessStatus.SUCCESS
    assert inspecting.ndv(table) == {1: 10, 2: 2, 3: 4}


def test_files_are_deleted_and_none_that_is_begun_too_late(
    backend: SparkBackend, new_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker asks the driver, whose optimizer has sent the ack, how old it is."""
    count_as_large(monkeypatch)
    place = sweeping.Place(new_world)
    place.action.keep = timedelta()
    place.stray(3, FileKind.DATA)
    place.run()
    worker = Worker(place.world, backend=backend)
    process_id = place.world.maintaining.begin(place.table_id, "empty-trash", trigger="request").process_id
    (task,) = worker.poll()
    assert worker.ack(task)
    worker.age_s = 601.0
    with pytest.raises(OptimizerError, match="were not begun to be deleted within 600 s of their ack"):
        worker.execute(task)
    assert len(place.left()) == 3
    worker.age_s = 300.0
    assert worker.complete(task, worker.execute(task))
    assert place.world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert sweeping.figures(place.world.process(process_id))["data_files_deleted"] == 3
    assert place.left() == []
