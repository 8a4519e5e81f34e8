"""Where Spark itself runs a task again, one attempt still yields one result, and files of earlier executions go."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.model.rewrite import RewriteOutput
from amoro_core.model.tables import OptimizingType
from tests.acceptance.tables import assert_optimized_once, look, name_of, unreferenced_files
from tests.services.world import World
from tests.spark_backend.conftest import open_backend
from tests.spark_backend.spark import kill, python_workers
from tests.spark_backend.stuck import in_thread, stuck_table
from tests.work import rewrite_input, rewriting

#: A local master has a number of failures of its own, one by default: `spark.task.maxFailures` does not rule there.
PATIENT = "local[1,2]"


def test_a_task_that_spark_repeats_after_its_worker_was_killed_makes_one_result_and_leaves_one_file(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    world, stuck = World(tmp_path / "home", catalog), stuck_table(catalog)
    process_id, optimizer = world.begin(OptimizingType.FULL, name_of(stuck.table)), world.optimizer()
    (task,) = world.poll(optimizer)
    world.optimizing.ack(optimizer, [task.attempt])
    work = rewrite_input(task.work)
    ended = threading.Event()
    made: list[RewriteOutput] = []
    with open_backend(PATIENT, tmp_path) as backend:

        def execute() -> None:
            made.append(rewriting(backend)(work, {}, task.attempt, lambda done, total: None, ended.is_set))

        with in_thread(execute, ended.set) as call:
            worker, file = stuck.wait_for_writer()
            assert worker in python_workers(os.getpid())
            # Whoever reads the pipe goes on waiting; the next execution finds the file as it should be.
            stuck.mend()
            before = look(stuck.table)
            kill(worker)
            assert call.ends_within(90.0)
        assert call.raised is None
    (output,) = made
    assert not file.exists()
    assert world.complete(optimizer, task.attempt, output)
    world.committing.commit(process_id)
    assert_optimized_once(stuck.table, before)
    assert unreferenced_files(stuck.table) == set()
    world.close()
