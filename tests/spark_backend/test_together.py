"""Local Spark, a cluster and a standalone optimizer on one group: they share a table's tasks."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tests.acceptance.processes import Installation, address_of, wait_until
from tests.acceptance.tables import assert_nothing_is_left, assert_optimized_once, look, name_of
from tests.engine import oracle, writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.parquet_rows import local_path
from tests.spark_backend.cluster import Cluster, start_cluster
from tests.spark_backend.spark import spark_optimizer

PARTS = tuple("abcdef")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = start_cluster(tmp_path, workers=1, cores=1)
    yield made
    made.close()


def table_of_six_tasks(catalog: Catalog, name: str) -> Table:
    """Six partitions of three files with deletes; the same rows each time."""
    table = writer.make_table(catalog, name, SCHEMA, BY_PART)
    for first in (0, 10, 20):
        writer.append(table, [row(first + number, part, f"{number}") for number in range(10) for part in PARTS])
    writer.upsert(table, [row(3, part, "new") for part in PARTS], ["id"])
    writer.delete_where(table, lambda record: record["id"] == 21)
    return table


def contents(table: Table) -> Counter[tuple[Any, int, str]]:
    """Partition, length and digest of each data file."""
    return Counter(
        (file.partition, file.file_size_bytes, hashlib.sha256(Path(local_path(file.path)).read_bytes()).hexdigest())
        for file in oracle.live_files(table)
    )


def test_local_spark_a_cluster_and_a_standalone_optimizer_make_the_files_that_one_of_them_makes_alone(
    installation: Installation, cluster: Cluster
) -> None:
    address = address_of(installation.up())
    marks = {name: installation.directory / f"{name}-holds" for name in ("standalone", "local", "cluster")}
    hold = {name: f"task.before_write=hold:{mark}" for name, mark in marks.items()}
    on_executors = {"spark.executorEnv.AMORO_FAILPOINTS": hold["cluster"], "spark.executor.memory": "512m"}
    alone = installation.optimizer(address)
    by_one = table_of_six_tasks(installation.catalog, "db.by_one")
    before = look(by_one)
    assert installation.run("optimize", name_of(by_one), "--type", "full", "--wait").status == 0
    assert_optimized_once(by_one, before, files=6)
    assert alone.terminate() == 0

    installation.optimizer(address, failpoints=hold["standalone"])
    spark_optimizer(installation, address, "local[1]", failpoints=hold["local"])
    spark_optimizer(installation, address, cluster.master_url, "--threads", "1", settings=on_executors)
    together = table_of_six_tasks(installation.catalog, "db.together")
    planned = installation.ask("optimize", name_of(together), "--type", "full")
    wait_until(lambda: all(mark.exists() for mark in marks.values()), "each optimizer has a task")
    for mark in marks.values():
        mark.unlink()

    process = wait_until(lambda: installation.ended(planned["process_id"]), "the process ends")
    assert (process["status"], [task["attempt"] for task in process["tasks"]]) == ("success", [1] * 6)
    after = look(together)
    oracle.assert_same_rows(before.rows, after.rows)
    assert after.snapshots == before.snapshots + 1
    assert contents(together) == contents(by_one)
    assert_nothing_is_left(together)
