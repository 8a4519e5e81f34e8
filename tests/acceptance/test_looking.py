"""Commands that look: without a coordinator they read what is there, change nothing and wait for nobody."""

from __future__ import annotations

import json
from pathlib import Path

from tests.acceptance.processes import Installation, wait_until
from tests.acceptance.tables import assert_optimized_once, look, name_of, small_table


def contents(directory: Path) -> dict[str, bytes]:
    """Every file, but the index of the state database's log, which each reader keeps, and a log without content."""
    found = {
        str(file.relative_to(directory)): file.read_bytes()
        for file in directory.rglob("*")
        if file.is_file() and not file.name.endswith((".db-shm", ".log"))
    }
    return {name: content for name, content in found.items() if content or not name.endswith(".db-wal")}


def test_what_a_killed_command_left_is_shown_and_neither_carried_on_nor_changed(installation: Installation) -> None:
    table = small_table(installation.catalog)
    seen, name = look(table), name_of(table)
    killed = installation.start("optimize", name, "--type", "full", failpoints="commit.after_intent=kill")
    assert killed.wait() == -9
    before = contents(installation.directory)

    planned = installation.run("plan", name, "--type", "full")
    assert planned.status == 0, planned.stderr
    assert planned.stderr == f"No coordinator runs on {installation.home}: reading its state without one.\n"
    listed = installation.ask("process", "list", "--table", name)["processes"]
    assert f"in the plan of process {listed[0]['process_id']} (full, committing)" in " ".join(planned.stdout.split())
    assert [(item["table"], item["status"]) for item in listed] == [(name, "committing")]
    assert installation.ask("table", "show", name)["status"] == "committing"
    assert [item["touched_at"] for item in installation.ask("optimizer", "list")["optimizers"]] == [None]
    assert installation.run("doctor").status == 0
    assert contents(installation.directory) == before

    # What changes something carries on with what was left, first.
    assert installation.run("optimize", name).status == 0
    assert_optimized_once(table, seen)


def test_a_first_look_makes_no_state_directory(installation: Installation) -> None:
    name = name_of(small_table(installation.catalog))
    home = installation.directory / "elsewhere"
    for arguments in (
        ("plan", name),
        ("table", "show", name),
        ("table", "list"),
        ("group", "list"),
        ("process", "list", "--table", name),
    ):
        done = installation.run(*arguments, "--home", str(home))
        assert done.status == 0, done.stderr
    assert not home.exists()


def test_who_looks_does_not_wait_for_a_command_that_works(installation: Installation) -> None:
    first, second = small_table(installation.catalog), small_table(installation.catalog)
    mark = installation.directory / "held"
    at_work = installation.start("optimize", name_of(first), failpoints=f"task.before_write=hold:{mark}")
    wait_until(mark.exists, "it is at work")
    assert installation.ask("plan", name_of(second), "--type", "full")["tasks"] == 1
    assert [item["status"] for item in installation.ask("process", "list")["processes"]] == ["running"]
    mark.unlink()
    assert at_work.wait() == 0


def test_after_a_command_has_optimized_a_table_it_is_listed_as_it_is_now(installation: Installation) -> None:
    table = small_table(installation.catalog)
    before = look(table)
    assert installation.run("optimize", name_of(table), "--type", "full").status == 0
    after = assert_optimized_once(table, before)
    (listed,) = installation.ask("table", "list")["tables"]
    assert (listed["snapshot_id"], listed["files"]["data_files"]) == (after.snapshot_id, 1)


def test_without_a_coordinator_the_settings_are_those_that_one_would_be_started_with(
    installation: Installation,
) -> None:
    (installation.home / "amoro.yaml").write_text("metrics-port: 1630\ninsecure: true\nhost: 10.0.0.1\n")
    shown = installation.ask("config", "show", "--origin")["settings"]
    told = {item["key"]: (item["value"], item["origin"]) for item in shown}
    file = f"file {installation.home / 'amoro.yaml'}"
    assert told["port"] == ("1261", "default")
    assert (told["host"], told["metrics-port"]) == (("10.0.0.1", file), ("1630", file))


def test_a_coordinator_waits_for_the_command_before_it_and_says_for_whom(installation: Installation) -> None:
    table = small_table(installation.catalog)
    before = look(table)
    mark = installation.directory / "held"
    first = installation.start("optimize", name_of(table), failpoints=f"task.before_write=hold:{mark}")
    wait_until(mark.exists, "it is at work")
    second = installation.start("up", "--port", "0", "--without-optimizer")
    second.wait_for(
        f"Waiting up to 30 s: another command works on the state directory {installation.home} (pid {first.popen.pid}, "
    )
    mark.unlink()
    assert first.wait() == 0
    second.wait_for("amoro listens on")
    assert json.loads((installation.home / "coordinator.json").read_text())["pid"] == second.popen.pid
    assert second.terminate() == 0
    assert_optimized_once(table, before)
