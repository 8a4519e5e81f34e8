"""Our Spark backend beside the standalone optimizer and Spark's own procedures: `python -m tests.bench.spark WHAT`.

- `throughput [--files 80]`: wall of the same files as four tasks by threads and by the backend, and of
  `rewrite_data_files` in the same session.
- `clustering [--files 104]`: CPU of JVM, Python workers and driver, beside `rewrite_data_files` by sort and by z-order.

All run on `local[2]`; ways are interleaved, and figures are medians of `--rounds`, after a first one that loads and
compiles.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile as Entry
from pyiceberg.manifest import DataFileContent
from pyiceberg.manifest import FileFormat as EntryFormat
from pyiceberg.typedef import Record

from amoro_core.model.clustering import CLUSTER, ClusterInput, Layout, LayoutKey, Strategy
from amoro_core.model.files import DataFile
from amoro_core.model.processes import Attempt, TaskId
from amoro_core.model.task_payload import RewriteInput, Work
from amoro_core.protocol.codec import decode_cluster_output, encode_cluster_input
from amoro_optimizer.backends.spark.driver import SparkBackend
from amoro_optimizer.backends.spark.shuffle import open_context
from amoro_optimizer.backends.standalone import InProcess
from amoro_optimizer.execution import Backend
from amoro_optimizer.work_kinds import Run
from tests.bench.data import MIXED, task, write_files
from tests.engine.commits import Change, commit
from tests.spark.catalogs import register_in_spark, sqlite_uri, warehouse_uri
from tests.spark.session import EXTENSIONS, JARS, missing_parts
from tests.work import rewriting

CORES, OUTPUTS = 2, 4
MEMORY_BYTES = 512 << 20
#: One column to sort by, and three for the curves.
SORTED, CURVE = "customer", ("customer", "created", "count")
_NUMBERS = itertools.count(1)
#: Seconds of CPU and by the clock.
Times = tuple[float, float]
Tasks = list[tuple[RewriteInput, Attempt]]


def main() -> None:
    """Measure and print the figures."""
    if missing := missing_parts():
        sys.exit(f"Spark needs {', '.join(missing)}: run make test-all")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["throughput", "clustering"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--files", type=int, help="of 1.3 MB")
    given = parser.parse_args()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with tempfile.TemporaryDirectory(prefix="amoro-bench-spark-") as scratch:
        directory = Path(scratch)
        settings = {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.log.level": "ERROR",
            "spark.driver.memory": "3g",
            "spark.driver.extraClassPath": os.pathsep.join(str(jar) for jar in sorted(JARS.glob("*.jar"))),
            "spark.sql.extensions": EXTENSIONS,
            "spark.local.dir": str(directory),
        }
        begun = time.perf_counter()
        backend = SparkBackend(open_context(f"local[{CORES}]", settings))
        print(f"the application started in {time.perf_counter() - begun:.2f} s", flush=True)
        if given.what == "throughput":
            _measure_throughput(backend, directory, given.files or 80, given.rounds)
        else:
            _measure_clustering(backend, directory, given.files or 104, given.rounds)
        backend.close()


def _by_threads(backend: Backend, tasks: Tasks) -> None:
    """Each task from a thread of its own, as the runner does."""

    def run(one: tuple[RewriteInput, Attempt]) -> None:
        work, attempt = one
        rewriting(backend, MEMORY_BYTES)(work, {}, attempt, lambda done, total: None, lambda: False)

    with ThreadPoolExecutor(CORES) as pool:
        list(pool.map(run, tasks))


def _measure_throughput(backend: SparkBackend, directory: Path, count: int, rounds: int) -> None:
    files = _written(directory, count)

    def tasks() -> Tasks:
        parts = [task(directory, files[at::OUTPUTS]) for at in range(OUTPUTS)]
        return [(part, Attempt(TaskId("bench", at), next(_NUMBERS))) for at, part in enumerate(parts, 1)]

    with _procedure(directory, files) as procedure:
        ways: dict[str, Callable[[], Times]] = {
            "standalone, two threads": lambda: _timed(lambda: _by_threads(InProcess(), tasks())),
            "this backend": lambda: _timed(lambda: _by_threads(backend, tasks())),
            "rewrite_data_files": lambda: _timed(lambda: procedure("map('rewrite-all', 'true')")),
        }
        for name, (_, seconds) in _in_rounds(ways, rounds).items():
            print(f"{name:26} {seconds:7.2f} s {_megabytes(files) / seconds:7.0f} MB/s")


def _measure_clustering(backend: SparkBackend, directory: Path, count: int, rounds: int) -> None:
    files = _written(directory, count)
    options = f"map('rewrite-all', 'true', 'target-file-size-bytes', '{int(_megabytes(files) * 1e6) // OUTPUTS}')"

    def by_us(strategy: Strategy, *columns: str) -> None:
        keys = tuple(LayoutKey(MIXED.find_field(column).field_id) for column in columns)
        work = task(directory, files, outputs=OUTPUTS)
        group = ClusterInput(work, Layout(strategy, keys), "0123456789ab", next(_NUMBERS))
        run = Run(Attempt(TaskId("bench", next(_NUMBERS)), 1), {}, MEMORY_BYTES, lambda done, all_: None, lambda: False)
        made = backend.execute(Work(CLUSTER, encode_cluster_input(group)), "bench.mixed", run)
        for file in decode_cluster_output(made.payload).rewrite.data_files:
            Path(file.path).unlink()

    with _procedure(directory, files) as procedure:

        def by_spark(order: str) -> None:
            procedure(f"{options}, strategy => 'sort', sort_order => '{order}'")

        ways: dict[str, Callable[[], Times]] = {
            "sort, this backend": lambda: _timed(lambda: by_us(Strategy.LINEAR, SORTED)),
            "sort, rewrite_data_files": lambda: _timed(lambda: by_spark(f"{SORTED} ASC NULLS FIRST")),
            "hilbert, this backend": lambda: _timed(lambda: by_us(Strategy.HILBERT, *CURVE)),
            "zorder, rewrite_data_files": lambda: _timed(lambda: by_spark(f"zorder({', '.join(CURVE)})")),
        }
        for name, (cpu, wall) in _in_rounds(ways, rounds).items():
            print(f"{name:28} {cpu:6.2f} CPU s {wall:7.2f} s")


def _written(directory: Path, count: int) -> list[DataFile]:
    (directory / "warehouse").mkdir()
    (directory / "out").mkdir()
    files = write_files("mixed", directory, count)
    print(f"{count} files, {_megabytes(files):.0f} MB", flush=True)
    return files


def _megabytes(files: Sequence[DataFile]) -> float:
    return sum(file.size_bytes for file in files) / 1e6


@contextmanager
def _procedure(directory: Path, files: Sequence[DataFile]) -> Iterator[Callable[[str], None]]:
    """`rewrite_data_files` of a new table of the files, with these options, in a session of the backend's context."""
    from pyspark.sql import SparkSession

    with closing(SqlCatalog("bench", uri=sqlite_uri(directory), warehouse=warehouse_uri(directory))) as catalog:
        catalog.create_namespace("db")
        session: Any = SparkSession.builder.getOrCreate()  # of the context that is there
        register_in_spark(session, directory, "bench")

        def rewrite(options: str) -> None:
            name = f"db.t{next(_NUMBERS)}"
            table = catalog.create_table(name, MIXED, properties={"format-version": "2"})
            commit(table, lambda head: Change(tuple(map(_entry, files))))
            called = f"CALL bench.system.rewrite_data_files(table => '{name}', options => {options})"
            (row,) = session.sql(called).collect()
            if row["rewritten_data_files_count"] != len(files):
                raise RuntimeError(f"Spark rewrote {row['rewritten_data_files_count']} files of {len(files)}")

        yield rewrite


def _entry(file: DataFile) -> Entry:
    entry = Entry.from_args(
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=EntryFormat.PARQUET,
        partition=Record(),
        record_count=file.record_count,
        file_size_in_bytes=file.size_bytes,
    )
    entry.spec_id = 0
    return entry


def _timed(work: Callable[[], object]) -> Times:
    before, started = _cpu_seconds(), time.perf_counter()
    work()
    return _cpu_seconds() - before, time.perf_counter() - started


def _cpu_seconds() -> float:
    """What this process and all below it have used, those that have ended included."""
    total, ours = 0.0, psutil.Process()
    for process in (ours, *ours.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total


def _in_rounds(ways: dict[str, Callable[[], Times]], rounds: int) -> dict[str, Times]:
    """The medians of each way's figures."""
    seen: dict[str, list[Times]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            times = way()
            if number:
                seen[name].append(times)
    print(f"{rounds} rounds, load {os.getloadavg()[0]:.1f}", flush=True)
    return {name: (median(one for one, _ in some), median(one for _, one in some)) for name, some in seen.items()}


if __name__ == "__main__":
    main()
