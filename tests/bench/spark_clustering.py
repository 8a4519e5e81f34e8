"""CPU of clustering: this backend and Iceberg's `rewrite_data_files` by sort and z-order, in the same session.

Run it with `python -m tests.bench.spark_clustering --files 104`: 133 MB in 15 columns, into four files, on `local[2]`;
ways are interleaved, figures are medians of the CPU of the JVM, of its Python workers and of the driver's own Python.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from statistics import median

import psutil
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.model.clustering import CLUSTER, ClusterInput, Layout, LayoutKey, Strategy
from amoro_core.model.processes import Attempt, TaskId
from amoro_core.model.work import Work
from amoro_core.protocol.cluster_codec import decode_cluster_output, encode_cluster_input
from amoro_optimizer.backends.spark.application import open_context
from amoro_optimizer.backends.spark.driver import SparkBackend
from amoro_optimizer.kinds import Run
from tests.bench.data import MIXED, task, write_files
from tests.bench.spark_backend import QUIET
from tests.bench.spark_rewrite import add_table
from tests.spark.catalogs import register_in_spark, sqlite_uri, warehouse_uri
from tests.spark.session import EXTENSIONS, JARS, missing_parts

CORES, OUTPUTS = 2, 4
#: One column to sort by, and three for the curves.
SORTED, CURVE = "customer", ("customer", "created", "count")
_NUMBERS = itertools.count(1)


def main() -> None:
    """Measure and print the figures."""
    if missing := missing_parts():
        sys.exit(f"Spark needs {', '.join(missing)}: run make test")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=104, help="of 1.3 MB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["sort", "curve"])
    given = parser.parse_args()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with tempfile.TemporaryDirectory(prefix="amoro-bench-spark-") as scratch:
        measure(Path(scratch), given.files, given.rounds, given.only)


def measure(directory: Path, count: int, rounds: int, only: str | None) -> None:
    """Print the medians of so many rounds over so many files."""
    from pyspark.sql import SparkSession

    (directory / "warehouse").mkdir()
    (directory / "out").mkdir()
    files = write_files("mixed", directory, count)
    size = sum(file.size_bytes for file in files)
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

        def by_procedure(order: str) -> None:
            name = f"db.t{next(_NUMBERS)}"
            add_table(catalog, "mixed", name, files)
            options = f"map('rewrite-all', 'true', 'target-file-size-bytes', '{size // OUTPUTS}')"
            (row,) = session.sql(
                f"CALL bench.system.rewrite_data_files(table => '{name}', strategy => 'sort',"
                f" sort_order => '{order}', options => {options})"
            ).collect()
            if row["rewritten_data_files_count"] != count:
                raise RuntimeError(f"Spark rewrote {row['rewritten_data_files_count']} files of {count}")

        def by_us(strategy: Strategy, *columns: str) -> None:
            keys = tuple(LayoutKey(MIXED.find_field(column).field_id) for column in columns)
            work = ClusterInput(
                task(directory, files, outputs=OUTPUTS), Layout(strategy, keys), "0123456789ab", next(_NUMBERS)
            )
            attempt = Attempt(TaskId("bench", next(_NUMBERS)), 1)
            run = Run(attempt, {}, 512 << 20, lambda done, total: None, lambda: False)
            made = backend.execute(Work(CLUSTER, encode_cluster_input(work)), "bench.mixed", run)
            for file in decode_cluster_output(made.payload).rewrite.data_files:
                Path(file.path).unlink()

        ways: dict[str, Callable[[], None]] = {
            "sort, this backend": lambda: by_us(Strategy.LINEAR, SORTED),
            "sort, rewrite_data_files": lambda: by_procedure(f"{SORTED} ASC NULLS FIRST"),
            "hilbert, this backend": lambda: by_us(Strategy.HILBERT, *CURVE),
            "zorder, rewrite_data_files": lambda: by_procedure(f"zorder({', '.join(CURVE)})"),
        }
        if only is not None:
            ways = {name: way for name, way in ways.items() if name.startswith("sort") == (only == "sort")}
        for way in ways.values():
            way()  # so that code is loaded and compiled
        seen: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                before, started = cpu_seconds(), time.perf_counter()
                way()
                seen[name].append((cpu_seconds() - before, time.perf_counter() - started))
                print(f"{name:28} {seen[name][-1][0]:6.2f} CPU s", flush=True)
        print(f"{count} files, {size / 1e6:.0f} MB, {rounds} rounds, load {os.getloadavg()[0]:.1f}")
        for name, figures in seen.items():
            cpu, wall = (median(one) for one in zip(*figures, strict=True))
            print(f"{name:28} {cpu:6.2f} CPU s {wall:7.2f} s")
        backend.close()


def cpu_seconds() -> float:
    """What this process and all below it have used, those that have ended included."""
    total = 0.0
    ours = psutil.Process()
    for process in (ours, *ours.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


if __name__ == "__main__":
    main()
