"""What a task costs on Spark beyond its rewriting: jobs of one task in a fair pool against one job for many tasks.

Run it with `python -m tests.bench.spark_backend --master 'local[2]'`. Every way runs the same small rewrites (seven
files of a few rows, with deletes) over the same channel; ways are interleaved, figures are medians.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import median

from amoro_core.model.processes import Attempt
from amoro_core.model.rewrite import RewriteInput
from amoro_core.model.tables import OptimizingType
from amoro_core.model.work import REWRITE
from amoro_core.protocol import codec
from amoro_optimizer.backends.spark.application import open_context
from amoro_optimizer.backends.spark.driver import SparkBackend
from amoro_optimizer.backends.spark.worker import Assignment, run_partition
from amoro_optimizer.backends.standalone import InProcess
from amoro_optimizer.running import Backend
from tests.acceptance.tables import messy_table, name_of
from tests.engine import writer
from tests.services.world import World
from tests.work import rewrite_input, rewrite_work, rewriting

MEMORY_BYTES = 256 * 2**20
QUIET = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.log.level": "ERROR"}

#: Seconds until the first result and until the last.
Times = tuple[float, float]
Tasks = list[tuple[RewriteInput, Attempt]]
_NUMBERS = itertools.count(1)


@contextmanager
def small_work(directory: Path) -> Iterator[tuple[RewriteInput, Attempt]]:
    """The input of a small rewrite, and its attempt."""
    (directory / "home").mkdir(parents=True)
    with closing(writer.make_catalog(directory)) as catalog:
        world = World(directory / "home", catalog)
        world.begin(OptimizingType.FULL, name_of(messy_table(catalog)))
        (task,) = world.poll(world.optimizer())
        yield rewrite_input(task.work), task.attempt
        world.close()


def repeated(work: RewriteInput, attempt: Attempt, count: int) -> Tasks:
    """The same work so many times, each an attempt of its own."""
    return [(work, Attempt(attempt.task_id, next(_NUMBERS))) for _ in range(count)]


def by_threads(backend: Backend, threads: int, tasks: Tasks) -> Times:
    """Each task from a thread of its own, as the runner does."""
    started = time.perf_counter()
    ends: list[float] = []

    def run(task: tuple[RewriteInput, Attempt]) -> None:
        work, attempt = task
        rewriting(backend, MEMORY_BYTES)(work, {}, attempt, lambda done, total: None, lambda: False)
        ends.append(time.perf_counter() - started)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(run, tasks))
    return ends[0], ends[-1]


def as_batch(backend: SparkBackend, tasks: Tasks, *, iterate: bool) -> Times:
    """All tasks as one RDD: one job that is collected, or a local iterator over its partitions."""
    with ExitStack() as jobs:
        assignments = []
        for work, attempt in tasks:
            name, _ = jobs.enter_context(backend._channel.job(lambda done, total: None))
            assignments.append(
                Assignment(
                    attempt=codec.encode_attempt(attempt).SerializeToString(),
                    kind=REWRITE,
                    work=rewrite_work(work).payload,
                    io_properties={},
                    memory_bytes=MEMORY_BYTES,
                    driver=("127.0.0.1", backend._channel.port),
                    key=backend._channel.key,
                    job=name,
                )
            )
        started = time.perf_counter()
        made = backend._context.parallelize(assignments, len(assignments)).mapPartitions(run_partition)
        results = made.toLocalIterator(prefetchPartitions=True) if iterate else iter(made.collect())
        ends = [time.perf_counter() - started for _ in results]
    return ends[0], ends[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tasks", type=int, nargs="+", default=[4, 100, 1000])
    parser.add_argument("--spark-daemon", action="store_true", help="with Spark's own daemon of Python workers")
    given = parser.parse_args()
    settings = {**QUIET, **({"spark.python.daemon.module": "pyspark.daemon"} if given.spark_daemon else {})}
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with tempfile.TemporaryDirectory() as directory, small_work(Path(directory)) as (work, attempt):
        started = time.perf_counter()
        backend = SparkBackend(open_context(given.master, settings))
        print(f"start of the application   {time.perf_counter() - started:6.2f} s")
        for title in ("first task", "second task"):
            _, seconds = by_threads(backend, 1, repeated(work, attempt, 1))
            print(f"{title:26} {seconds:6.2f} s")
        cores = backend.slots()
        ways: dict[str, Callable[[Tasks], Times]] = {
            "standalone threads": lambda tasks: by_threads(InProcess(), cores, tasks),
            "one-task jobs, fair": lambda tasks: by_threads(backend, cores, tasks),
            "one job, collected": lambda tasks: as_batch(backend, tasks, iterate=False),
            "one RDD, local iterator": lambda tasks: as_batch(backend, tasks, iterate=True),
        }
        for way in ways.values():
            way(repeated(work, attempt, cores))
        print(f"\n{given.master}, {cores} cores, {given.rounds} rounds, load {os.getloadavg()[0]:.1f}")
        print(f"{'tasks':>5}  {'way':24} {'first result':>12} {'all':>8} {'per task and core':>18}")
        for count in given.tasks:
            seen: dict[str, list[Times]] = {name: [] for name in ways}
            for _ in range(given.rounds):
                for name, way in ways.items():
                    seen[name].append(way(repeated(work, attempt, count)))
            for name, times in seen.items():
                first, last = median(one for one, _ in times), median(one for _, one in times)
                each = last / count * min(cores, count) * 1000
                print(f"{count:5}  {name:24} {first:10.2f} s {last:6.2f} s {each:15.0f} ms")
        backend.close()


if __name__ == "__main__":
    main()
