"""Commands beside one that works in its own process: they wait for their turn; none leaves its work to another."""

from __future__ import annotations

from tests.acceptance.processes import Installation, wait_until
from tests.acceptance.tables import assert_optimized_once, look, name_of, small_table


def test_each_command_does_its_own_work_when_two_run_at_once(installation: Installation) -> None:
    first_table, second_table = small_table(installation.catalog), small_table(installation.catalog)
    before = look(first_table), look(second_table)
    mark = installation.directory / "held"
    first = installation.start(
        "optimize", name_of(first_table), "--type", "full", failpoints=f"task.before_write=hold:{mark}"
    )
    wait_until(mark.exists, "the first one is at work")
    second = installation.start("optimize", name_of(second_table), "--type", "full", "--wait")
    second.wait_for(f"Waiting: another command works on the state directory {installation.home}")
    third = installation.run("optimize", name_of(second_table), "--type", "full", "--timeout", "100ms")
    assert (third.status, third.stdout) == (5, "")
    assert "[AMORO-5003]" in third.stderr
    # What only looks need not wait.
    listed = installation.ask("process", "list")["processes"]
    assert [(item["table"], item["status"]) for item in listed] == [(name_of(first_table), "running")]

    mark.unlink()
    assert (first.wait(), second.wait()) == (0, 0)
    for table, then, process in zip((first_table, second_table), before, (first, second), strict=True):
        after = assert_optimized_once(table, then)
        assert f"committed snapshot {after.snapshot_id}" in process.output
    assert installation.run("verify", name_of(second_table)).status == 0
