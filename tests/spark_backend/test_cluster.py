"""Optimizers on a cluster of real processes: with others, without amoro on its machines, parts of it killed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyiceberg.table import Table

from tests.acceptance.processes import Installation, address_of, wait_until
from tests.acceptance.tables import assert_nothing_is_left, assert_optimized_once, is_optimized, look, name_of
from tests.engine import writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.spark_backend import losses
from tests.spark_backend.cluster import SPARK_HOME, Cluster, start_cluster
from tests.spark_backend.spark import SETTINGS, descendants, spark_optimizer


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = start_cluster(tmp_path, workers=2, cores=2)
    yield made
    made.close()


@pytest.mark.timeout(1800)  # a busy machine is slow
def test_a_table_of_200_mb_is_optimized_once_although_an_executor_a_worker_and_the_driver_are_killed(
    installation: Installation, cluster: Cluster
) -> None:
    address = address_of(installation.up())
    table = losses.large_table(installation, "db.large", megabytes=200, level=19)
    optimizer = spark_optimizer(installation, address, cluster.master_url, settings=losses.SETTINGS)
    told = losses.lose_everything_once(installation, address, cluster, optimizer, table)
    assert told["megabytes optimized"] >= 200
    assert told["files"] >= 250
    wait_until(lambda: losses.threads(installation) == [2], "a thread for each core that is left")
    another = cluster.add_worker()
    wait_until(lambda: losses.threads(installation) == [4], "threads for the cores of a worker that is back")
    another.kill()
    wait_until(lambda: losses.threads(installation) == [2], "no thread for the cores of a worker that is gone")


PARTS = ("a", "b")
PYTHON = "./amoro/bin/python"
LOOPBACK = {"SPARK_LOCAL_IP": "127.0.0.1"}


@pytest.fixture(scope="module")
def bare_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = start_cluster(tmp_path_factory.mktemp("bare"), workers=1, cores=2, bare=True)
    yield made
    made.close()


@pytest.fixture(scope="module")
def address(shared: Installation) -> str:
    return address_of(shared.up())


@pytest.fixture(scope="module")
def archive(shared: Installation, bare_cluster: Cluster) -> Path:
    path = bare_cluster.directory / "amoro.tar.gz"
    made = shared.ask("optimizer", "package", "--file", str(path))
    assert (made["path"], made["size_bytes"]) == (str(path), path.stat().st_size)
    return path


def optimize(installation: Installation, name: str) -> None:
    """Have a new table rewritten by whoever is registered, and look at it."""
    table = partitioned_table(installation, name)
    before = look(table)
    planned = installation.ask("optimize", name_of(table), "--type", "full")
    wait_until(lambda: is_optimized(table), "the process commits")
    process = wait_until(lambda: installation.ended(planned["process_id"]), "the process ends")
    assert (process["status"], process["tasks_done"]) == ("success", len(PARTS))
    assert_optimized_once(table, before, files=len(PARTS))
    assert_nothing_is_left(table)


def partitioned_table(installation: Installation, name: str) -> Table:
    table = writer.make_table(installation.catalog, name, SCHEMA, BY_PART)
    for commit in range(4):
        writer.append(table, [row(commit * 10 + number, part, "x") for number in range(10) for part in PARTS])
    writer.upsert(table, [row(3, part, "new") for part in PARTS], ["id"])
    return table


def pythons(bare_cluster: Cluster) -> set[Path]:
    """The interpreters that run below the cluster's worker."""
    found = set()
    for pid in descendants(bare_cluster.workers[0].pid):
        with suppress(OSError):  # it may have ended meanwhile
            found.add(Path(os.readlink(f"/proc/{pid}/exe")))
    return {path for path in found if path.name.startswith("python")}


def assert_only_the_archives_python(bare_cluster: Cluster) -> None:
    (found,) = pythons(bare_cluster)
    assert found.is_relative_to(bare_cluster.directory / "work"), found


def test_spark_submit_starts_an_optimizer_and_brings_the_archive(
    shared: Installation, address: str, bare_cluster: Cluster, archive: Path
) -> None:
    script = shared.directory / "optimizer.py"
    script.write_text("from amoro_core.__main__ import main\n\nmain()\n")
    settings = {
        **SETTINGS,
        "spark.executor.memory": "512m",
        "spark.pyspark.python": PYTHON,
        "spark.pyspark.driver.python": sys.executable,
    }
    submit = (
        *(
            str(SPARK_HOME / "bin" / "spark-submit"),
            "--master",
            bare_cluster.master_url,
            "--archives",
            f"{archive}#amoro",
        ),
        *(part for key, value in settings.items() for part in ("--conf", f"{key}={value}")),
        str(script),
    )
    optimizer = shared.start(
        *("optimizer", "run", "--backend", "spark", "--address", address, "--heartbeat-interval", "500ms"),
        program=submit,
        environment={**LOOPBACK, "SPARK_LOCAL_DIRS": str(shared.directory), "SPARK_HOME": str(SPARK_HOME)},
    )
    optimizer.wait_for("optimizer.registered")
    optimize(shared, "db.submitted")
    assert_only_the_archives_python(bare_cluster)
    optimizer.kill()
