"""How processes end, and who serves a state directory meanwhile."""

from __future__ import annotations

import resource

from tests.acceptance.processes import Installation, address_of, wait_until
from tests.acceptance.tables import (
    assert_nothing_is_left,
    assert_optimized_once,
    is_optimized,
    look,
    name_of,
    partitioned_table,
    small_table,
)


def test_an_optimizer_that_is_told_to_stop_finishes_and_reports_its_task(installation: Installation) -> None:
    address = address_of(installation.up())
    mark = installation.directory / "held"
    first = installation.optimizer(address, failpoints=f"task.before_write=hold:{mark}")
    table = partitioned_table(installation.catalog)
    before = look(table)
    planned = installation.ask("optimize", name_of(table), "--type", "full")
    wait_until(mark.exists, "the optimizer is about to write")
    first.popen.terminate()
    first.wait_for("optimizer.draining")
    assert first.popen.poll() is None
    mark.unlink()
    assert first.wait() == 0

    assert installation.ask("optimizer", "list")["optimizers"] == []
    process = installation.ask("process", "show", planned["process_id"])
    found = sorted((task["status"], task["attempt"]) for task in process["tasks"])
    assert (process["status"], found) == ("running", [("planned", 0), ("planned", 0), ("success", 1)])

    second = installation.optimizer(address)
    wait_until(lambda: is_optimized(table), "the next optimizer does the rest")
    assert_optimized_once(table, before, files=3)
    assert_nothing_is_left(table)
    assert second.terminate() == 0


def test_up_serves_the_commands_of_its_state_directory_and_refuses_a_second_one(installation: Installation) -> None:
    table = small_table(installation.catalog)
    before = look(table)
    first = installation.up("--threads", "1")
    address = address_of(first)

    used = _processor_seconds()
    second = installation.run("up", "--port", "0")
    used = _processor_seconds() - used
    assert (second.status, second.stdout) == (5, "")
    assert second.said[0] == (
        f"Error: another coordinator works on the state directory {installation.home} "
        f"(pid {first.popen.pid}, address {address}) [AMORO-5003]"
    )
    assert used < 2.0, "the refusal comes before everything is loaded"

    served = installation.run("optimize", name_of(table), "--type", "minor", "--wait")
    assert served.status == 0, served.stderr
    assert "No coordinator runs" not in served.stderr
    assert '"event": "process.planned"' in first.output
    assert_optimized_once(table, before)

    assert first.terminate() == 0
    assert not (installation.home / "coordinator.json").exists()
    assert '"event": "optimizer.deregistered"' in first.output
    assert '"event": "coordinator.stopped"' in first.output


def test_without_a_coordinator_a_table_is_optimized_in_the_commands_own_process(installation: Installation) -> None:
    table = partitioned_table(installation.catalog)
    before = look(table)
    outcome = installation.run("optimize", name_of(table), "--type", "full", "-o", "json")
    assert outcome.status == 0, outcome.stderr
    assert outcome.stderr.startswith(f"No coordinator runs on {installation.home}: working in this process.\n")
    after = assert_optimized_once(table, before, files=3)
    assert outcome.document["process"]["receipt"]["snapshot_id"] == after.snapshot_id
    assert not (installation.home / "coordinator.json").exists()


def _processor_seconds() -> float:
    """What the ended children of this process have used."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
