"""Commands without a coordinator: each works by itself and waits for its turn; who looks waits for nobody.

So does a coordinator whose state directory is another's, gone or replaced: it ends, and commits nothing any more.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from amoro_core.store.database import Store
from tests.acceptance.processes import Installation, address_of, wait_until
from tests.acceptance.tables import assert_optimized_once, look, messy_table, name_of, small_table
from tests.tiers import sample


def test_each_command_does_its_own_work_when_two_run_at_once(installation: Installation) -> None:
    first_table, second_table = small_table(installation.catalog), small_table(installation.catalog)
    before = look(first_table), look(second_table)
    first, mark = installation.held(first_table, "task.before_write")
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


def contents(directory: Path) -> dict[Path, bytes]:
    """Every file, but the index of the state database's log, which each reader keeps, and a log without content."""
    files = (file for file in directory.rglob("*") if file.is_file() and file.suffix not in (".db-shm", ".log"))
    found = {file: file.read_bytes() for file in files}
    return {file: content for file, content in found.items() if content or file.suffix != ".db-wal"}


def test_what_a_killed_command_left_is_shown_and_neither_carried_on_nor_changed(installation: Installation) -> None:
    table = small_table(installation.catalog)
    seen, name = look(table), name_of(table)
    killed = installation.start("optimize", name, "--type", "full", failpoints="commit.after_intent=kill")
    assert killed.wait() == -9
    before = contents(installation.directory)

    planned = installation.run("plan", name, "--type", "full")
    assert planned.status == 0, planned.stderr
    assert planned.stderr == ""
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
    for words in (f"plan {name}", f"table show {name}", "table list", "group list", f"process list --table {name}"):
        done = installation.run(*words.split(), "--home", str(home))
        assert done.status == 0, done.stderr
    assert not home.exists()


def test_what_is_due_is_done_in_order(installation: Installation) -> None:
    eager = {"self-optimizing.enabled": "true", "history.expire.max-snapshot-age-ms": "1"}
    table = messy_table(installation.catalog, eager)
    name, before = name_of(table), look(table)
    installation.ask("optimize", name, "--type", "full", "--wait")
    done = installation.ask("table", "maintain", name)
    found = {one["action"]: one["outcome"] for one in done["actions"]}
    assert found["expire-snapshots"] == "success"
    assert list(found) == ["clean-dangling-delete-files", "rewrite-manifests", "expire-snapshots"]
    assert look(table).rows == before.rows
    assert installation.ask("table", "maintain", name)["actions"] == []


def test_a_coordinator_waits_for_the_command_before_it_and_says_for_whom(installation: Installation) -> None:
    table = small_table(installation.catalog)
    before = look(table)
    first, mark = installation.held(table, "task.before_write")
    second = installation.start("up", "--port", "0", "--without-optimizer")
    second.wait_for("Waiting up to 30 s: another command works on the state directory ")
    assert f"state directory {installation.home} (pid {first.popen.pid}, " in second.output
    mark.unlink()
    assert first.wait() == 0
    second.wait_for("amoro listens on")
    assert json.loads((installation.home / "coordinator.json").read_text())["pid"] == second.popen.pid
    assert second.terminate() == 0
    assert_optimized_once(table, before)


def fenced(home: Path) -> None:
    """As a second coordinator does that was let in, say after the lock file was removed."""
    Store.open(home / "amoro.db").close()


def removed(home: Path) -> None:
    shutil.rmtree(home)


def database_replaced(home: Path) -> None:
    shutil.copy(home / "amoro.db", home / "backup.db")
    (home / "backup.db").rename(home / "amoro.db")


def lock_replaced(home: Path) -> None:
    (home / "amoro.lock").unlink()
    (home / "amoro.lock").touch()


WAYS: dict[Callable[[Path], None], str] = {
    fenced: "another coordinator has opened the state database since; this one must no longer write",
    removed: "the lock of the state directory {home} is gone since it was taken",
    database_replaced: "the state database {home}/amoro.db is another file since it was opened",
    lock_replaced: "the lock of the state directory {home} is another file since it was taken",
}


@pytest.mark.parametrize("lose", sample(list(WAYS), every=4), ids=lambda lose: lose.__name__)
def test_a_coordinator_that_lost_its_state_directory_ends_with_the_reason_and_commits_nothing(
    installation: Installation, lose: Callable[[Path], None]
) -> None:
    """Its commit is held just before it is sent; the embedded optimizer ends with it."""
    table = small_table(installation.catalog)
    before, mark = look(table), installation.directory / "held"
    coordinator = installation.up("--threads", "1", failpoints=f"commit.after_intent=hold:{mark}")
    address_of(coordinator)
    installation.ask("optimize", name_of(table), "--type", "full")
    wait_until(mark.exists, "the commit is about to be sent")

    lose(installation.home)
    announced = installation.home / "coordinator.json"
    if installation.home.exists():
        announced.write_text('{"pid": 1, "address": "127.0.0.1:1"}')  # whoever has it now says so
    if lose is not lock_replaced:  # as long as the database is ours what is committed stands there
        mark.unlink()  # the commit goes on

    reason = WAYS[lose].format(home=installation.home)
    assert coordinator.wait() == 5
    assert f"Error: {reason} [AMORO-5005]" in coordinator.output.splitlines()
    (event,) = [line for line in coordinator.output.splitlines() if '"coordinator.lost"' in line]
    assert (json.loads(event)["level"], json.loads(event)["why"]) == ("critical", reason)
    assert look(table) == before
    assert announced.exists() == installation.home.exists()
