"""Ctrl-C, at each point of a command that waits: status 130, a word on what became of the work, nothing half done."""

from __future__ import annotations

import getpass
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyiceberg.table import Table

from tests.acceptance.processes import PATIENCE_S, ROOT, Installation, Process, wait_until
from tests.acceptance.tables import assert_optimized_once, is_optimized, look, name_of, small_table


def held(installation: Installation, table: Table, point: str, *then: str) -> tuple[Process, Path]:
    """`amoro optimize` in its own process, which stands at that point until the file is removed, and then at others."""
    mark = installation.directory / "held"
    holds = [f"{point}=hold:{mark}", *(f"{one}=hold:{mark.with_name(one)}" for one in then)]
    process = installation.start("optimize", name_of(table), "--type", "full", failpoints=",".join(holds))
    wait_until(mark.exists, f"it reached {point}")
    return process, mark


def interrupt(process: Process) -> None:
    process.popen.send_signal(signal.SIGINT)


def test_what_runs_in_the_interrupted_process_is_cancelled(installation: Installation) -> None:
    table = small_table(installation.catalog)
    before = look(table)
    process, mark = held(installation, table, "task.before_write")
    interrupt(process)
    process.wait_for("cancelled: the table is as it was")
    mark.unlink()
    assert process.wait() == 130
    assert process.output.splitlines()[-1] == "Interrupted."
    assert look(table) == before
    (closed,) = installation.ask("process", "list")["processes"]
    said = f"cancelled by user {getpass.getuser()} with the token admin; 0 of 1 tasks were done"
    assert (closed["status"], closed["failure"]) == ("closed", said)

    assert installation.run("optimize", name_of(table), "--type", "full").status == 0
    assert_optimized_once(table, before)


def test_what_was_planned_meanwhile_is_cancelled_too(installation: Installation) -> None:
    table = small_table(installation.catalog)
    before = look(table)
    process, mark = held(installation, table, "plan.before_store", "task.before_write")
    interrupt(process)
    mark.unlink()
    process.wait_for("cancelled: the table is as it was")

    def has_ended() -> bool:
        """With the task released, should it stand at its point by now."""
        mark.with_name("task.before_write").unlink(missing_ok=True)
        return process.popen.poll() is not None

    wait_until(has_ended, "it ends")
    assert process.wait() == 130
    assert process.output.splitlines()[-1] == "Interrupted."
    assert look(table) == before
    (closed,) = installation.ask("process", "list")["processes"]
    assert closed["status"] == "closed"
    assert installation.ask("table", "show", name_of(table))["status"] in ("idle", "pending")


def test_a_commit_that_has_begun_is_finished_and_told(installation: Installation) -> None:
    table = small_table(installation.catalog)
    before = look(table)
    process, mark = held(installation, table, "commit.after_intent")
    interrupt(process)
    mark.unlink()
    assert process.wait() == 130
    assert "had been committed already\nInterrupted.\n" in process.output
    assert_optimized_once(table, before)


def test_a_second_interrupt_changes_nothing_of_that(installation: Installation) -> None:
    table = small_table(installation.catalog)
    before = look(table)
    process, mark = held(installation, table, "task.before_write")
    interrupt(process)
    process.wait_for("cancelled: the table is as it was")
    interrupt(process)
    mark.unlink()
    assert process.wait() in (130, -signal.SIGINT)
    assert "Traceback" not in process.output
    assert look(table) == before
    assert installation.run("optimize", name_of(table), "--type", "full").status == 0
    assert_optimized_once(table, before)


def test_what_a_coordinator_does_goes_on(installation: Installation) -> None:
    table = small_table(installation.catalog)
    before = look(table)
    mark = installation.directory / "held"
    installation.up("--threads", "1", failpoints=f"task.before_write=hold:{mark}")
    process = installation.start("optimize", name_of(table), "--type", "full", "--wait")
    wait_until(mark.exists, "the task is about to write")
    process.wait_for("planned full")  # it knows which process it waits for
    interrupt(process)
    assert process.wait() == 130
    (planned,) = installation.ask("process", "list")["processes"]
    assert process.output.endswith(
        f"The process goes on. See: amoro process show {planned['process_id']}\nInterrupted.\n"
    )
    mark.unlink()
    wait_until(lambda: is_optimized(table), "the coordinator commits")
    assert_optimized_once(table, before)


@pytest.mark.parametrize("arguments", [("process", "list", "--watch"), ("table", "list", "--watch", "-o", "json")])
def test_watching_ends_with_success(site: Installation, arguments: tuple[str, ...]) -> None:
    process = site.start(*arguments)
    wait_until(lambda: process.output, "it shows the list")
    interrupt(process)
    assert process.wait() == 0
    assert "Interrupted" not in process.output


def test_while_modules_are_loaded_it_ends_as_any_program(tmp_path: Path) -> None:
    script = """
import sys, time

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "amoro_core.bootstrap.launcher":
            print("loading", flush=True)
            time.sleep(60)

sys.meta_path.insert(0, Slow())
from amoro_core.__main__ import main
main()
"""
    popen = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={"PYTHONPATH": str(ROOT)}
    )
    assert popen.stdout is not None
    assert popen.stdout.readline() == b"loading\n"
    popen.send_signal(signal.SIGINT)
    out, err = popen.communicate(timeout=PATIENCE_S)
    assert (popen.returncode, out, err) == (-signal.SIGINT, b"", b"")
