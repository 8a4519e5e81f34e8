"""Many tables in one application: the next free core is for the table that has the fewest."""

from __future__ import annotations

import threading
from contextlib import ExitStack

from amoro_core.model.processes import Attempt
from amoro_core.model.rewrite import RewriteInput, RewriteOutput
from amoro_core.model.tables import OptimizingType
from amoro_optimizer.backends.spark.pools import Pools
from tests.acceptance.processes import wait_until
from tests.acceptance.tables import name_of
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.services.world import World
from tests.spark.session import Application
from tests.spark_backend.stuck import Call, in_thread, stuck_table
from tests.work import rewrite_input, rewriting

CORES, QUEUED = 2, 6


def test_a_small_table_gets_the_next_free_core_before_the_queue_of_a_big_one(
    spark_application: Application, world: World
) -> None:
    stuck, small = stuck_table(world.catalog), writer.make_table(world.catalog, "db.small", SCHEMA)
    for first in (0, 10, 20):
        writer.append(small, [row(first + number) for number in range(10)])
    works = works_of(world, "cat.db.stuck", name_of(small))
    cancelled = [threading.Event() for _ in range(QUEUED)]
    ended = threading.Event()
    written: list[RewriteOutput] = []
    backend, tracker = spark_application.backend, spark_application.context.statusTracker()

    def execute(name: str, number: int, event: threading.Event) -> None:
        attempt, work = works[name]
        one = Attempt(attempt.task_id, attempt.number + number)
        output = rewriting(backend)(work, {}, one, lambda done, total: None, lambda: ended.is_set() or event.is_set())
        written.append(output)

    with ExitStack() as calls:

        def call(name: str, number: int, event: threading.Event) -> Call:
            return calls.enter_context(in_thread(lambda: execute(name, number, event), ended.set))

        big = [call("cat.db.stuck", number, cancelled[number]) for number in range(CORES)]
        wait_until(lambda: len(stuck.writers()) == CORES, "all cores are taken")
        for number in range(CORES, QUEUED):
            big.append(call("cat.db.stuck", number, cancelled[number]))
        wait_until(lambda: len(tracker.getActiveJobsIds()) == QUEUED, "the jobs of the big table wait")
        quick = call(name_of(small), 0, ended)
        wait_until(lambda: len(tracker.getActiveJobsIds()) == QUEUED + 1, "the small table's job waits")
        cancelled[0].set()
        # What is of the big table never ends by itself: first come first served, the small one would wait forever.
        quick.wait()
        assert quick.raised is None
        assert [output.rows_written for output in written] == [30]
        big[0].wait()
        assert [call.is_alive() for call in big] == [False, *[True] * (QUEUED - 1)]


def works_of(world: World, *names: str) -> dict[str, tuple[Attempt, RewriteInput]]:
    """The only task of a full rewrite of each table, handed to a thread of its own."""
    for name in names:
        world.begin(OptimizingType.FULL, name)
    handed = world.poll(world.optimizer(threads=len(names)), *range(1, len(names) + 1))
    works = {}
    for task in handed:
        work = rewrite_input(task.work)
        works[work.table.table] = task.attempt, work
    return works


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
