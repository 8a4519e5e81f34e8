"""`kill -9` of an optimizer in the middle of a task."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from amoro_core.model.rewrite import MAP_ENDING
from tests.acceptance.processes import Installation, Process, address_of, wait_until
from tests.acceptance.tables import (
    assert_optimized_once,
    is_optimized,
    look,
    name_of,
    partitioned_table,
    unreferenced_files,
)


@pytest.fixture(scope="module")
def coordinator(shared: Installation) -> Process:
    return shared.up()


@pytest.mark.parametrize(("failpoint", "left_over"), [("task.before_write", 0), ("task.before_complete", 1)])
def test_a_second_optimizer_finishes_what_a_killed_one_began(
    shared: Installation, coordinator: Process, failpoint: str, left_over: int
) -> None:
    table = partitioned_table(shared.catalog)
    before = look(table)
    killed = shared.optimizer(address_of(coordinator), failpoints=f"{failpoint}=kill")
    planned = shared.ask("optimize", name_of(table), "--type", "full")
    assert killed.wait() == -signal.SIGKILL
    assert look(table) == before

    second = shared.optimizer(address_of(coordinator))
    wait_until(lambda: is_optimized(table), "the second optimizer's work is committed")
    process = wait_until(lambda: shared.ended(planned["process_id"]), "the process ends")
    assert (process["status"], process["tasks_done"], process["tasks_total"]) == ("success", 3, 3)
    assert sorted(task["attempt"] for task in process["tasks"]) == [1, 1, 2]
    assert_optimized_once(table, before, files=3)
    # What a killed process has written is nobody's: orphan cleaning finds it. A map is there where rows were left out.

    def left() -> Counter[bool]:
        return Counter(name.endswith(MAP_ENDING) for name in unreferenced_files(table))

    # Maps of what was committed are removed once the process has ended.
    wait_until(lambda: left()[True] <= left_over, "no map of what was committed is left over", 120.0)
    assert left()[False] == left_over
    (optimizer,) = shared.ask("optimizer", "list")["optimizers"]
    assert optimizer["labels"]["pid"] == str(second.popen.pid)
    assert second.terminate() == 0
