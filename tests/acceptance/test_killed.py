"""`kill -9` of a coordinator before, in and after a commit, of an optimizer in a task, and of who decodes for them."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyiceberg.table import Table

from amoro_core.model.task_payload import MAP_ENDING
from tests.acceptance.conftest import installed
from tests.acceptance.processes import STEADY, Installation, Process, address_of, free_port, wait_until
from tests.acceptance.tables import (
    Seen,
    assert_nothing_is_left,
    assert_optimized_once,
    is_optimized,
    look,
    name_of,
    partitioned_table,
    unreferenced_files,
)

Start = Callable[[str], Process]


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """An installation in which an optimizer is never lost: it lives through every kill of its coordinator."""
    with installed(tmp_path_factory.mktemp("lasting"), STEADY) as made:
        yield made


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def start(lasting: Installation, port: int) -> Start:
    """Starts a coordinator on the one home and port; one that still runs is killed."""

    def start_one(failpoints: str = "") -> Process:
        for process in lasting.processes:
            if process.name.startswith("up ") and process.popen.poll() is None:
                process.kill()
        return lasting.up(port=port, failpoints=failpoints)

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


def test_a_commit_in_which_the_coordinator_was_killed_is_brought_to_its_end_once(
    lasting: Installation, start: Start, port: int
) -> None:
    table = partitioned_table(lasting.catalog)
    before = look(table)
    killed = start("commit.after_send=kill")
    optimizer = living_optimizer(lasting, port)
    known = optimizer_ids(lasting)
    planned = lasting.ask("optimize", name_of(table), "--type", "full")
    assert killed.wait() == -signal.SIGKILL
    assert look(table).snapshots == before.snapshots + 1

    start("")
    process = assert_finished(lasting, table, planned["process_id"], before)
    assert [task["attempt"] for task in process["tasks"]] == [1, 1, 1]
    after = assert_optimized_once(table, before, files=3)
    assert process["receipt"]["snapshot_id"] == after.snapshot_id
    assert_nothing_is_left(table)
    assert lasting.ask("table", "show", name_of(table))["status"] == "idle"
    assert optimizer_ids(lasting) == known
    assert optimizer.popen.poll() is None


def test_a_result_made_while_the_coordinator_was_gone_is_delivered_to_the_next_one(
    lasting: Installation, start: Start, port: int
) -> None:
    coordinator = start("")
    for earlier in lasting.processes:
        if earlier.name.startswith("optimizer ") and earlier.popen.poll() is None:
            assert earlier.terminate() == 0
    mark = lasting.directory / "held"
    held = lasting.optimizer(f"127.0.0.1:{port}", failpoints=f"task.before_complete=hold:{mark}")
    table = partitioned_table(lasting.catalog)
    before = look(table)
    own = max(optimizer_ids(lasting))  # the one before it may have left without a word
    planned = lasting.ask("optimize", name_of(table), "--type", "full")
    wait_until(mark.exists, "the optimizer has written its first output")
    coordinator.kill()
    mark.unlink()
    held.wait_for("result.undelivered")

    start("")
    process = assert_finished(lasting, table, planned["process_id"], before)
    assert [task["attempt"] for task in process["tasks"]] == [1, 1, 1]
    assert_optimized_once(table, before, files=3)
    assert_nothing_is_left(table)
    assert max(optimizer_ids(lasting)) == own


def test_a_second_optimizer_finishes_what_a_killed_one_began(shared: Installation) -> None:
    table = partitioned_table(shared.catalog)
    before = look(table)
    coordinator = shared.up()
    killed = shared.optimizer(address_of(coordinator), failpoints="task.before_complete=kill")
    planned = shared.ask("optimize", name_of(table), "--type", "full")
    assert killed.wait() == -signal.SIGKILL
    assert look(table) == before

    second = shared.optimizer(address_of(coordinator))
    wait_until(lambda: is_optimized(table), "the second optimizer's work is committed")
    process = wait_until(lambda: shared.ended(planned["process_id"]), "the process ends")
    assert (process["status"], process["tasks_done"], process["tasks_total"]) == ("success", 3, 3)
    attempts = sum(task["attempt"] for task in process["tasks"])
    assert attempts >= 4
    assert_optimized_once(table, before, files=3)
    # What a killed process has written is nobody's: orphan cleaning finds it. A map is there where rows were left out.

    def left() -> Counter[bool]:
        return Counter(name.endswith(MAP_ENDING) for name in unreferenced_files(table))

    # Maps of what was committed are removed once the process has ended.
    others = attempts - 4  # of the second optimizer, on a machine that stood still for seconds
    wait_until(lambda: left()[True] <= 1 + others, "no map of what was committed is left over", 120.0)
    assert 1 <= left()[False] <= 1 + others

    def pids() -> list[str]:
        return [one["labels"]["pid"] for one in shared.ask("optimizer", "list")["optimizers"]]

    wait_until(lambda: pids() == [str(second.popen.pid)], "the killed one is lost, and the second one is not")
    assert second.terminate() == 0
