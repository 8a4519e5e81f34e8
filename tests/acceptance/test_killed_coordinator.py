"""`kill -9` of the coordinator before, in and after a commit, while its optimizer lives on."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.table import Table

from tests.acceptance.processes import Installation, Process, free_port, wait_until
from tests.acceptance.tables import (
    Seen,
    assert_nothing_is_left,
    assert_optimized_once,
    is_optimized,
    look,
    name_of,
    partitioned_table,
)

Start = Callable[[str], Process]


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def start(shared: Installation, port: int) -> Start:
    """Starts a coordinator on the one home and port; one that still runs is killed."""

    def start_one(failpoints: str = "") -> Process:
        for process in shared.processes:
            if process.name.startswith("up ") and process.popen.poll() is None:
                process.kill()
        return shared.up(port=port, failpoints=failpoints)

    return start_one


def living_optimizer(installation: Installation, port: int) -> Process:
    """The optimizer that lives through all of it, started when first needed."""
    for process in installation.processes:
        if process.name.startswith("optimizer ") and process.popen.poll() is None:
            return process
    return installation.optimizer(f"127.0.0.1:{port}")


def optimizer_ids(installation: Installation) -> list[str]:
    return [one["optimizer_id"] for one in installation.ask("optimizer", "list")["optimizers"]]


def assert_finished(installation: Installation, table: Table, process_id: str, before: Seen) -> dict[str, Any]:
    wait_until(lambda: is_optimized(table), "the process commits after the restart")
    process = wait_until(lambda: installation.ended(process_id), "the process ends")
    assert (process["status"], process["failure"]) == ("success", "")
    assert (process["tasks_done"], process["tasks_total"]) == (3, 3)
    assert process["receipt"]["base_snapshot_id"] == before.snapshot_id
    return process


@pytest.mark.parametrize("failpoint", ["commit.before_intent", "commit.after_intent", "commit.after_send"])
def test_a_commit_in_which_the_coordinator_was_killed_is_brought_to_its_end_once(
    shared: Installation, start: Start, port: int, failpoint: str
) -> None:
    table = partitioned_table(shared.catalog)
    before = look(table)
    killed = start(f"{failpoint}=kill")
    optimizer = living_optimizer(shared, port)
    known = optimizer_ids(shared)
    planned = shared.ask("optimize", name_of(table), "--type", "full")
    assert killed.wait() == -signal.SIGKILL
    assert look(table).snapshots == before.snapshots + (failpoint == "commit.after_send")

    start("")
    process = assert_finished(shared, table, planned["process_id"], before)
    assert [task["attempt"] for task in process["tasks"]] == [1, 1, 1]
    after = assert_optimized_once(table, before, files=3)
    assert process["receipt"]["snapshot_id"] == after.snapshot_id
    assert_nothing_is_left(table)
    assert shared.ask("table", "show", name_of(table))["status"] == "idle"
    assert optimizer_ids(shared) == known
    assert optimizer.popen.poll() is None


def test_a_plan_that_was_not_stored_is_made_anew(shared: Installation, start: Start, port: int) -> None:
    table = partitioned_table(shared.catalog)
    before = look(table)
    killed = start("plan.before_store=kill")
    living_optimizer(shared, port)
    outcome = shared.run("optimize", name_of(table), "--type", "full", "--wait")
    assert outcome.status == 1
    assert "[AMORO-1008]" in outcome.stderr
    assert killed.wait() == -signal.SIGKILL
    assert look(table) == before

    start("")
    assert shared.ask("process", "list", "--table", name_of(table))["processes"] == []
    document = shared.ask("optimize", name_of(table), "--type", "full", "--wait")
    assert document["outcome"] == "success"
    assert_optimized_once(table, before, files=3)
    assert_nothing_is_left(table)


def test_a_result_made_while_the_coordinator_was_gone_is_delivered_to_the_next_one(
    shared: Installation, start: Start, port: int
) -> None:
    coordinator = start("")
    for earlier in shared.processes:
        if earlier.name.startswith("optimizer ") and earlier.popen.poll() is None:
            assert earlier.terminate() == 0
    mark = shared.directory / "held"
    held = shared.optimizer(f"127.0.0.1:{port}", failpoints=f"task.before_complete=hold:{mark}")
    table = partitioned_table(shared.catalog)
    before = look(table)
    own = max(optimizer_ids(shared))  # one before it may have left without a word, and is forgotten later
    planned = shared.ask("optimize", name_of(table), "--type", "full")
    wait_until(mark.exists, "the optimizer has written its first output")
    coordinator.kill()
    mark.unlink()
    held.wait_for("result.undelivered")

    start("")
    process = assert_finished(shared, table, planned["process_id"], before)
    assert [task["attempt"] for task in process["tasks"]] == [1, 1, 1]
    assert_optimized_once(table, before, files=3)
    assert_nothing_is_left(table)
    assert max(optimizer_ids(shared)) == own
