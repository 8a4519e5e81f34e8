"""`kill -9` of a driver, its JVM included: its workers remove what they have begun before they end."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tests.acceptance.processes import Installation, address_of, wait_until
from tests.acceptance.tables import (
    assert_nothing_is_left,
    assert_optimized_once,
    look,
    messy_table,
    name_of,
    unreferenced_files,
)
from tests.spark_backend.groups import group_table
from tests.spark_backend.spark import is_alive, java_of, kill, parent_of, python_workers, spark_optimizer


@pytest.mark.parametrize(
    ("made", "asked"),
    [(messy_table, ("--type", "full")), (group_table, ("--type", "cluster", "--columns", "id,value"))],
    ids=["full", "cluster"],
)
def test_a_worker_whose_driver_was_killed_removes_its_file_and_another_optimizer_finishes(
    installation: Installation, made: Callable[[Catalog], Table], asked: tuple[str, ...]
) -> None:
    address, mark = address_of(installation.up()), installation.directory / "held"
    killed = spark_optimizer(installation, address, "local[1]", failpoints=f"task.after_file=hold:{mark}")
    table = made(installation.catalog)
    before = look(table)
    planned = installation.ask("optimize", name_of(table), *asked)
    wait_until(mark.exists, "a worker has written a file")
    (worker,) = python_workers(killed.popen.pid)
    assert len(unreferenced_files(table)) == 1
    daemon, java = parent_of(worker), java_of(killed.popen.pid)
    killed.kill()
    kill(java)
    wait_until(lambda: not is_alive(daemon), "the daemon has told its workers to end and is gone")
    mark.unlink()
    wait_until(lambda: not is_alive(worker), "the worker ends")
    assert unreferenced_files(table) == set()

    installation.optimizer(address)
    process = wait_until(lambda: installation.ended(planned["process_id"]), "the process ends")
    assert (process["status"], [task["attempt"] for task in process["tasks"]]) == ("success", [2])
    assert_optimized_once(table, before)
    assert_nothing_is_left(table)
