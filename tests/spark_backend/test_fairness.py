"""Many tables in one application: the next free core is for the table that has the fewest."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack, closing
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.model.processes import Attempt
from amoro_core.model.tables import OptimizingType
from amoro_core.protocol import codec
from amoro_core.protocol import rewrite_pb2 as pb
from amoro_optimizer.backends.spark.driver import SparkBackend
from tests.acceptance.processes import wait_until
from tests.acceptance.tables import name_of
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.services.world import World
from tests.spark_backend.spark import writers
from tests.spark_backend.stuck import in_thread, stuck_table

QUEUED = 6


def test_a_small_table_gets_the_next_free_core_before_the_queue_of_a_big_one(
    backend: SparkBackend, catalog: SqlCatalog, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    world = World(tmp_path / "home", catalog)
    stuck, small = stuck_table(catalog), writer.make_table(catalog, "db.small", SCHEMA)
    for first in (0, 10, 20):
        writer.append(small, [row(first + number) for number in range(10)])
    works = {}
    optimizer = world.optimizer()
    for table in (stuck.table, small):
        world.begin(OptimizingType.FULL, name_of(table))
        (task,) = world.poll(optimizer)
        works[name_of(table)] = (task.attempt, codec.decode_input(pb.RewriteInput.FromString(task.payload)))
    attempt, work = works["cat.db.stuck"]
    cancelled = [threading.Event() for _ in range(QUEUED)]
    tracker = backend._context.statusTracker()
    results = []

    def execute_big(number: int) -> None:
        one = Attempt(attempt.task_id, attempt.number + number)
        backend.execute(work, {}, one, lambda done, total: None, cancelled[number].is_set)

    def execute_small() -> None:
        own, input_ = works["cat.db.small"]
        results.append(backend.execute(input_, {}, own, lambda done, total: None, lambda: False))

    with closing(world), ExitStack() as calls:
        big = [calls.enter_context(in_thread(lambda n=n: execute_big(n), cancelled[n].set)) for n in range(2)]
        wait_until(lambda: len({pid for pid, _ in writers(stuck.directory, os.getpid())}) == 2, "both cores are taken")
        for number in range(2, QUEUED):
            big.append(calls.enter_context(in_thread(lambda n=number: execute_big(n), cancelled[number].set)))
            wait_until(lambda n=number: len(tracker.getActiveJobsIds()) == n + 1, "the job waits")
        quick = calls.enter_context(in_thread(execute_small, lambda: [one.set() for one in cancelled]))
        wait_until(lambda: len(tracker.getActiveJobsIds()) == QUEUED + 1, "the small table's job waits")
        cancelled[0].set()
        # What is of the big table never ends by itself: first come first served, the small one would wait forever.
        quick.join(30.0)
        assert [output.rows_written for output in results] == [30]
        assert [call.is_alive() for call in big] == [False, *[True] * (QUEUED - 1)]
