"""Optimizers on a cluster of real processes: with others, without amoro on its machines, parts of it killed."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tests.acceptance.processes import Installation, address_of, wait_until
from tests.acceptance.tables import assert_nothing_is_left, assert_optimized_once, look, name_of
from tests.engine import oracle, writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.parquet_rows import local_path
from tests.spark_backend import losses
from tests.spark_backend.cluster import HOST, SPARK_HOME, Cluster, start_cluster
from tests.spark_backend.spark import SETTINGS, descendants, optimize_once, spark_optimizer


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Of so many workers, with as many cores each."""
    with closing(start_cluster(tmp_path, request.param, request.param)) as made:
        yield made


@pytest.mark.timeout(1800)  # a busy machine is slow
@pytest.mark.parametrize("cluster", [2], indirect=True, ids=["two workers"])
def test_a_table_of_200_mb_is_optimized_once_although_an_executor_a_worker_and_the_driver_are_killed(
    installation: Installation, cluster: Cluster
) -> None:
    table = losses.large_table(installation, "db.large", megabytes=200, level=19)
    told = losses.lose_everything_once(installation, cluster, table)
    assert told["megabytes optimized"] >= 200
    assert told["files"] >= 250
    wait_until(lambda: losses.threads(installation) == [2], "a thread for each core that is left")
    another = cluster.add_worker()
    wait_until(lambda: losses.threads(installation) == [4], "threads for the cores of a worker that is back")
    another.kill()
    wait_until(lambda: losses.threads(installation) == [2], "no thread for the cores of a worker that is gone")


def table_of_six_tasks(catalog: Catalog, name: str) -> Table:
    """Six partitions of three files with deletes; the same rows each time."""
    table, parts = writer.make_table(catalog, name, SCHEMA, BY_PART), "abcdef"
    for first in (0, 10, 20):
        writer.append(table, [row(first + number, part, f"{number}") for number in range(10) for part in parts])
    writer.upsert(table, [row(3, part, "new") for part in parts], ["id"])
    writer.delete_where(table, lambda record: record["id"] == 21)
    return table


def contents(table: Table) -> Counter[tuple[Any, int, str]]:
    """Partition, length and digest of each data file."""
    return Counter(
        (file.partition, file.file_size_bytes, hashlib.sha256(Path(local_path(file.path)).read_bytes()).hexdigest())
        for file in oracle.live_files(table)
    )


@pytest.mark.parametrize("cluster", [1], indirect=True, ids=["one worker"])
def test_local_spark_a_cluster_and_a_standalone_optimizer_make_the_files_that_one_of_them_makes_alone(
    installation: Installation, cluster: Cluster
) -> None:
    address = address_of(installation.up())
    marks = {name: installation.directory / f"{name}-holds" for name in ("standalone", "local", "cluster")}
    hold = {name: f"task.before_write=hold:{mark}" for name, mark in marks.items()}
    on_executors = {"spark.executorEnv.AMORO_FAILPOINTS": hold["cluster"], **losses.SETTINGS}
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


def pythons(cluster: Cluster) -> set[Path]:
    """The interpreters that run below the cluster's worker."""
    found = set()
    for pid in descendants(cluster.workers[0].popen.pid):
        with suppress(psutil.Error):  # it may have ended meanwhile
            found.add(Path(psutil.Process(pid).exe()))
    return {path for path in found if path.name.startswith("python")}


def optimize_with_the_archives_python(installation: Installation, cluster: Cluster) -> None:
    optimize_once(installation)
    (found,) = pythons(cluster)
    assert found.is_relative_to(cluster.directory / "work"), found


def test_executors_rewrite_with_what_the_archive_holds_which_spark_submit_brings_too(
    installation: Installation, tmp_path: Path
) -> None:
    address, archive, loopback = address_of(installation.up()), tmp_path / "amoro.tar.gz", {"SPARK_LOCAL_IP": HOST}
    made = installation.ask("optimizer", "package", "--file", str(archive))
    assert (made["path"], made["size_bytes"]) == (str(archive), archive.stat().st_size)
    settings = {**losses.SETTINGS, "spark.pyspark.python": "./amoro/bin/python"}
    with closing(start_cluster(tmp_path, workers=1, cores=2, bare=True)) as cluster:
        given = {**settings, "spark.archives": f"{archive}#amoro"}
        optimizer = spark_optimizer(installation, address, cluster.master_url, settings=given, environment=loopback)
        optimize_with_the_archives_python(installation, cluster)
        assert optimizer.terminate() == 0
        wait_until(lambda: not pythons(cluster), "its application has left")

        script = tmp_path / "optimizer.py"
        script.write_text("from amoro_core.__main__ import main\n\nmain()\n")
        settings |= {**SETTINGS, "spark.pyspark.driver.python": sys.executable}
        submit = (
            *(str(SPARK_HOME / "bin" / "spark-submit"), "--master", cluster.master_url),
            *("--archives", f"{archive}#amoro"),
            *(part for key, value in settings.items() for part in ("--conf", f"{key}={value}")),
            str(script),
        )
        optimizer = installation.start(
            *("optimizer", "run", "--backend", "spark", "--address", address, "--heartbeat-interval", "500ms"),
            program=submit,
            environment={**loopback, "SPARK_LOCAL_DIRS": str(tmp_path), "SPARK_HOME": str(SPARK_HOME)},
        )
        optimizer.wait_for("optimizer.registered")
        optimize_with_the_archives_python(installation, cluster)
        optimizer.kill()
