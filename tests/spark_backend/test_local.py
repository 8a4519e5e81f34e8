"""`amoro optimizer run --backend spark --master local[N]`: Spark in the optimizer's own process."""

from __future__ import annotations

from pathlib import Path

import pytest

from amoro_core.model.clustered_files import group_of
from tests.acceptance.processes import Installation, Process, address_of, wait_until
from tests.acceptance.tables import (
    assert_nothing_is_left,
    assert_optimized_once,
    look,
    messy_table,
    name_of,
    partitioned_table,
)
from tests.engine import oracle
from tests.engine.parquet_rows import local_path
from tests.spark_backend.spark import java_of, kill, python_workers, spark_optimizer


@pytest.fixture(scope="module")
def coordinator(shared: Installation) -> Process:
    return shared.up()


@pytest.fixture(scope="module")
def optimizer(shared: Installation, coordinator: Process) -> Process:
    settings = {"spark.default.parallelism": "7"}  # says nothing of cores
    return spark_optimizer(shared, address_of(coordinator), "local[2]", settings=settings)


def test_a_table_with_deletes_is_optimized_in_spark_with_equal_rows(shared: Installation, optimizer: Process) -> None:
    table = partitioned_table(shared.catalog)
    before = look(table)
    outcome = shared.run("optimize", name_of(table), "--type", "full", "--wait")
    assert outcome.status == 0, outcome.stderr
    assert_optimized_once(table, before, files=3)
    assert_nothing_is_left(table)


def test_the_optimizer_has_as_many_threads_as_spark_has_cores(shared: Installation, optimizer: Process) -> None:
    (listed,) = shared.ask("optimizer", "list")["optimizers"]
    labels = listed["labels"]
    assert (listed["threads"], listed["memory_bytes"]) == (2, 2 * 512 * 2**20)
    assert (labels["backend"], labels["master"], labels["pid"]) == ("spark", "local[2]", str(optimizer.popen.pid))
    assert labels["application"].startswith("local-")


def test_an_error_in_a_worker_comes_back_with_its_code_and_message(shared: Installation, optimizer: Process) -> None:
    table = messy_table(shared.catalog)
    lost = Path(local_path(oracle.live_files(table)[0].path))
    kept = lost.rename(lost.with_suffix(".kept"))
    outcome = shared.run("optimize", name_of(table), "--type", "full", "--wait")
    assert outcome.status == 1
    assert f"{lost} does not exist (the table's metadata names it" in " ".join(outcome.said)
    assert "[AMORO-1002]" in " ".join(outcome.said)
    assert "Py4J" not in outcome.stderr
    kept.rename(lost)
    assert_nothing_is_left(table)


def test_a_killed_worker_costs_one_attempt_and_a_draining_optimizer_finishes_what_it_runs(
    installation: Installation,
) -> None:
    coordinator, mark = installation.up(), installation.directory / "held"
    optimizer = spark_optimizer(
        installation, address_of(coordinator), "local[1]", failpoints=f"task.before_write=hold:{mark}"
    )
    table = messy_table(installation.catalog)
    before = look(table)
    planned = installation.ask("optimize", name_of(table), "--type", "full")
    wait_until(mark.exists, "a worker holds")
    (worker,) = python_workers(optimizer.popen.pid)
    kill(worker)
    mark.unlink()
    wait_until(mark.exists, "the worker of the next attempt holds")

    optimizer.popen.terminate()
    optimizer.wait_for("optimizer.draining")
    mark.unlink()
    assert optimizer.wait() == 0
    process = wait_until(lambda: installation.ended(planned["process_id"]), "the process ends")
    assert (process["status"], [task["attempt"] for task in process["tasks"]]) == ("success", [2])
    assert_optimized_once(table, before)
    assert_nothing_is_left(table)
    assert "Spark could not run the task: Lost task 0.0" in optimizer.output


def test_an_optimizer_whose_spark_dies_gives_its_attempt_back_and_ends_with_an_error(
    installation: Installation,
) -> None:
    coordinator, mark = installation.up(), installation.directory / "held"
    optimizer = spark_optimizer(
        installation, address_of(coordinator), "local[1]", failpoints=f"task.before_write=hold:{mark}"
    )
    table = messy_table(installation.catalog)
    before = look(table)
    planned = installation.ask("optimize", name_of(table), "--type", "full")
    wait_until(mark.exists, "a worker holds")
    kill(java_of(optimizer.popen.pid))
    assert optimizer.wait() == 1
    assert "Error: the Spark application local-" in optimizer.output

    (task,) = installation.ask("process", "show", planned["process_id"])["tasks"]
    assert (task["status"], task["attempt"]) == ("planned", 1)
    installation.optimizer(address_of(coordinator))
    wait_until(lambda: installation.ended(planned["process_id"]), "the process ends")
    assert_optimized_once(table, before)
    assert_nothing_is_left(table)


def test_a_table_is_clustered_by_spark_and_committed_once(shared: Installation, optimizer: Process) -> None:
    table = messy_table(shared.catalog, {"self-optimizing.cluster.partial-progress": "false"})
    before = look(table)
    options = ("--type", "cluster", "--columns", "id", "--full", "--wait")
    outcome = shared.run("optimize", name_of(table), *options)
    assert outcome.status == 0, outcome.stderr
    after = look(table)
    oracle.assert_same_rows(before.rows, after.rows)
    assert after.snapshots == before.snapshots + 1
    assert {group_of(file.path) for file in oracle.live_files(table)} - {None}
    assert_nothing_is_left(table)
    assert '"kind": "cluster"' in optimizer.output
