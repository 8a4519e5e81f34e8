"""Throughput on Spark: this backend, the standalone optimizer, and `rewrite_data_files` in the same session.

Run it with `python -m tests.bench.spark_throughput --files 80`: the same files on the same cores, four tasks for the
optimizers, as many groups as it likes for Spark's procedure; ways are interleaved, figures are medians of wall time.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median

from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.model.processes import Attempt, TaskId
from amoro_optimizer.backends.spark.application import open_context
from amoro_optimizer.backends.spark.driver import SparkBackend
from amoro_optimizer.backends.standalone import InProcess
from tests.bench.data import task, write_files
from tests.bench.spark_backend import QUIET, Tasks, by_threads
from tests.bench.spark_rewrite import add_table
from tests.spark.catalogs import register_in_spark, sqlite_uri, warehouse_uri
from tests.spark.session import EXTENSIONS, JARS, missing_parts

CORES, TASKS = 2, 4
_NUMBERS = itertools.count(1)


def main() -> None:
    """Measure and print the figures."""
    if missing := missing_parts():
        sys.exit(f"Spark needs {', '.join(missing)}: run make test")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=80, help="of 1.3 MB")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with tempfile.TemporaryDirectory(prefix="amoro-bench-spark-") as scratch:
        measure(Path(scratch), given.files, given.rounds)


def measure(directory: Path, count: int, rounds: int) -> None:
    """Print the medians of so many rounds over so many files."""
    from pyspark.sql import SparkSession

    (directory / "warehouse").mkdir()
    (directory / "out").mkdir()
    files = write_files("mixed", directory, count)
    megabytes = sum(file.size_bytes for file in files) / 1e6
    settings = {
        **QUIET,
        "spark.driver.memory": "3g",
        "spark.driver.extraClassPath": os.pathsep.join(str(jar) for jar in sorted(JARS.glob("*.jar"))),
        "spark.sql.extensions": EXTENSIONS,
        "spark.local.dir": str(directory),
    }
    with closing(SqlCatalog("bench", uri=sqlite_uri(directory), warehouse=warehouse_uri(directory))) as catalog:
        catalog.create_namespace("db")
        backend = SparkBackend(open_context(f"local[{CORES}]", settings))
        session = SparkSession(backend._context)
        register_in_spark(session, directory, "bench")

        def tasks() -> Tasks:
            return [
                (task(directory, files[at::TASKS]), Attempt(TaskId("bench", at + 1), next(_NUMBERS)))
                for at in range(TASKS)
            ]

        def by_procedure() -> float:
            name = f"db.t{next(_NUMBERS)}"
            add_table(catalog, "mixed", name, files)
            started = time.perf_counter()
            options = "options => map('rewrite-all', 'true')"
            (row,) = session.sql(f"CALL bench.system.rewrite_data_files(table => '{name}', {options})").collect()
            if row["rewritten_data_files_count"] != count:
                raise RuntimeError(f"Spark rewrote {row['rewritten_data_files_count']} files of {count}")
            return time.perf_counter() - started

        ways: dict[str, Callable[[], float]] = {
            "standalone, two threads": lambda: by_threads(InProcess(), CORES, tasks())[1],
            "this backend, local[2]": lambda: by_threads(backend, CORES, tasks())[1],
            "rewrite_data_files": by_procedure,
        }
        for way in ways.values():
            way()  # so that code is loaded and compiled
        seen: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                seen[name].append(way())
        print(f"{count} files, {megabytes:.0f} MB, {rounds} rounds, load {os.getloadavg()[0]:.1f}")
        for name, seconds in seen.items():
            print(f"{name:26} {median(seconds):7.2f} s {megabytes / median(seconds):7.0f} MB/s")
        backend.close()


if __name__ == "__main__":
    main()
