"""A table of more than 1 GB on a Spark cluster, parts of which are killed."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.acceptance.processes import address_of, install

NAME = "spark-cluster"
WHAT = (
    "A table of more than 1 GB in 1,300 files with deletes, on a standalone Spark cluster of a master and two workers "
    "on this machine; an executor, a worker and the driver are killed with SIGKILL while it is optimized, and another "
    "driver ends it (`tests/spark_backend/losses.py`). A mismatch: rows that differ, a second commit, a task done "
    "again that was done, more attempts than were lost, a file left over but whole ones whose result was on its way to "
    "the coordinator."
)
TARGETS = {"megabytes optimized": 1000}
SECONDS = 400.0
REPLAYS = False  # what is lost depends on the moment


def run(seed: int, totals: Counter[str]) -> None:
    optimize_and_kill(f"db.large{seed}", ("--type", "full"), {}, totals)


def optimize_and_kill(name: str, asked: Sequence[str], properties: Mapping[str, str], totals: Counter[str]) -> None:
    """Optimize a large table of that name on a cluster, parts of which are killed; count what was done."""
    # Only this kind needs PySpark.
    from tests.spark_backend.cluster import start_cluster
    from tests.spark_backend.losses import SETTINGS, large_table, lose_everything_once
    from tests.spark_backend.spark import spark_optimizer

    # On a disk: it is several times the table's size.
    with tempfile.TemporaryDirectory(prefix="amoro-cluster-", ignore_cleanup_errors=True) as made:
        directory = Path(made)
        cluster = start_cluster(directory, workers=2, cores=2)
        installation = install(directory)
        try:
            address = address_of(installation.up())
            table = large_table(installation, name, megabytes=1050, level=15, more=properties)
            optimizer = spark_optimizer(installation, address, cluster.master_url, settings=SETTINGS)
            totals.update(lose_everything_once(installation, address, cluster, optimizer, table, asked))
        finally:
            installation.close()
            cluster.close()
