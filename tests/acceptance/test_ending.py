"""How coordinators, optimizers and commands start and end: by signals, as the unit file says, whatever hangs."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from amoro_core.bootstrap.launcher import ENDING
from amoro_core.model.properties import parse_duration
from tests.acceptance import tables
from tests.acceptance.processes import PATIENCE_S, ROOT, STEADY, Installation, address_of, free_port, wait_until
from tests.acceptance.tables import assert_optimized_once, is_optimized, look, name_of, small_table


def test_an_optimizer_that_is_told_to_stop_finishes_and_reports_its_task(installation: Installation) -> None:
    address = address_of(installation.up())
    mark = installation.directory / "held"
    first = installation.optimizer(address, failpoints=f"task.before_write=hold:{mark}")
    table = tables.partitioned_table(installation.catalog)
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
    tables.assert_nothing_is_left(table)
    assert second.terminate() == 0


def test_a_result_made_while_the_coordinator_was_gone_is_delivered_to_the_next_one(installation: Installation) -> None:
    port, mark = free_port(), installation.directory / "held"
    coordinator = installation.up(port=port)
    optimizer = installation.optimizer(f"127.0.0.1:{port}", failpoints=f"task.before_complete=hold:{mark}")
    table = tables.partitioned_table(installation.catalog)
    before, known = look(table), installation.ask("optimizer", "list")["optimizers"]
    planned = installation.ask("optimize", name_of(table), "--type", "full")
    wait_until(mark.exists, "the optimizer has written its first output")
    coordinator.kill()
    mark.unlink()
    optimizer.wait_for("result.undelivered")

    installation.up(port=port)
    process = wait_until(lambda: installation.ended(planned["process_id"]), "the process ends")
    assert (process["status"], [task["attempt"] for task in process["tasks"]]) == ("success", [1, 1, 1])
    assert_optimized_once(table, before, files=3)
    tables.assert_nothing_is_left(table)
    again = installation.ask("optimizer", "list")["optimizers"]
    assert [one["optimizer_id"] for one in again] == [one["optimizer_id"] for one in known]


def test_up_serves_the_commands_of_its_state_directory_and_refuses_a_second_one(installation: Installation) -> None:
    table = small_table(installation.catalog)
    before = look(table)
    first = installation.up("--threads", "1")
    address = address_of(first)

    second = installation.run("up", "--port", "0")
    assert (second.status, second.stdout) == (5, "")
    assert second.said[0] == (
        f"Error: another coordinator works on the state directory {installation.home} "
        f"(pid {first.popen.pid}, address {address}) [AMORO-5003]"
    )

    served = installation.run("optimize", name_of(table), "--type", "minor", "--wait")
    assert served.status == 0, served.stderr
    assert "No coordinator runs" not in served.stderr
    assert '"event": "process.planned"' in first.output
    assert_optimized_once(table, before)

    assert first.terminate() == 0
    assert not (installation.home / "coordinator.json").exists()
    assert '"event": "optimizer.deregistered"' in first.output
    assert '"event": "coordinator.stopped"' in first.output


def test_a_coordinator_serves_rest_tells_where_and_ends_with_connections_open(installation: Installation) -> None:
    port = free_port()
    served = {"AMORO_HTTP_PORT": str(port)}
    first = installation.start("up", "--port", "0", "--without-optimizer", environment=served)
    assert first.wait_for("REST: ") == f"REST: http://127.0.0.1:{port}/api/v1"
    token = (installation.home / "admin.token").read_text().strip()
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as kept:
        kept.request("GET", "/api/v1/status", headers={"Authorization": f"Bearer {token}"})
        answer = kept.getresponse()
        assert (answer.status, f'"http_address":"http://127.0.0.1:{port}"' in answer.read().decode()) == (200, True)
        link = first.wait_for("/login/link?code=")
        assert link.startswith(f"    http://127.0.0.1:{port}/login/link?code=")
        lines = first.output.splitlines()
        begun = next(number for number, line in enumerate(lines) if '"event": "coordinator.started"' in line)
        assert (lines.index(link) > begun, lines[lines.index(link) + 1]) == (True, "")

        other = str(installation.directory / "other")
        second = installation.run("up", "--port", "0", "--home", other, environment=served)
        assert second.status == 2
        assert second.said[0].startswith(f"Error: 127.0.0.1:{port} can't be listened on: process {first.popen.pid} (")
        assert second.said[1].startswith("Hint: Stop what listens there, or choose another http-port")

        assert first.terminate() == 0


@pytest.fixture(scope="module")
def service() -> dict[str, str]:
    """What stands under [Service]; a key that stands twice has its last value."""
    parser = ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read(ROOT / "docs" / "examples" / "amoro.service", encoding="utf-8")
    return dict(parser["Service"])


def test_what_it_starts_runs_until_sigterm_and_ends_in_time(
    installation: Installation, service: dict[str, str]
) -> None:
    program, *command = service["ExecStart"].split()
    assert Path(program).name == "amoro"
    started = installation.start(*command, environment={"AMORO_PORT": "0"})
    started.wait_for("amoro listens on")
    assert '"event": "coordinator.started"' in started.output  # in lines for machines: it has no terminal
    assert started.terminate() == 0
    # systemd would take a start for done once the program runs: it neither forks nor tells when it is ready.
    assert service["Type"] == "exec"
    assert parse_duration(f"{service['TimeoutStopSec']}s") > ENDING


def test_what_may_pass_is_started_again_and_the_rest_not(installation: Installation, service: dict[str, str]) -> None:
    final, command = service["RestartPreventExitStatus"].split(), service["ExecStart"].split()[1:]
    assert (service["Restart"], "5" in final, "2" in final, "1" in final) == ("on-failure", False, True, False)
    first = installation.up("--without-optimizer")
    assert installation.run(*command, environment={"AMORO_PORT": "0"}).status == 5
    other = {"AMORO_HOME": str(installation.directory / "other")}
    for wrong in ("http", address_of(first).rpartition(":")[2]):  # no port, and one that is taken
        assert installation.run(*command, environment={**other, "AMORO_PORT": wrong}).status == 2
    first.kill()
    assert first.popen.returncode == -9


@pytest.fixture
def silent(installation: Installation) -> Iterator[socket.socket]:
    """A catalog `silent` beside the other, which could hang for an hour."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        uri = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with (installation.directory / ".pyiceberg.yaml").open("a") as file:
            file.write(f"  silent:\n    type: rest\n    uri: {uri}\n")
        (installation.home / "amoro.yaml").write_text(f"{STEADY}catalog-timeout: 1h\n")
        yield listener


def test_a_coordinator_told_to_stop_ends_whatever_hangs(installation: Installation, silent: socket.socket) -> None:
    coordinator = installation.up("--threads", "1")
    connection, _ = silent.accept()  # it looks for the catalog's tables
    with connection:
        assert coordinator.terminate() == 0
    assert '"event": "coordinator.cut"' in coordinator.output
    assert not (installation.home / "coordinator.json").exists()
    assert installation.run("process", "list").status == 0


def test_a_command_ends_by_its_timeout_whatever_hangs_and_tells_of_a_catalog_that_takes_too_long(
    installation: Installation, silent: socket.socket
) -> None:
    for options in ((), ("--dry-run",)):
        ended = installation.run_apart("optimize", "silent.db.t", "--timeout", "2s", *options)
        assert (ended.status, ended.stdout, "[AMORO-8001]" in ended.stderr) == (124, "", True), ended.stderr
    environment = {"AMORO_CATALOG_TIMEOUT": "1s"}
    ended = installation.run("plan", "silent.db.t", environment=environment)
    assert (ended.status, ended.stdout) == (1, "")
    assert "catalog silent" in ended.said[0]
    assert "no complete answer within 1 s (catalog-timeout)" in ended.said[0]
    found = installation.run("doctor", "-o", "json", environment=environment)
    answers = {item["name"]: item["ok"] for item in found.document["findings"]}
    assert (found.status, answers["catalog silent"], answers["catalog cat"]) == (1, False, True)


def test_an_interrupt_ends_the_statement_in_the_coordinator(installation: Installation) -> None:
    (installation.home / "amoro.yaml").write_text(f"{STEADY}terminal.enabled: true\nterminal.max-sessions: 1\n")
    installation.up()

    def short() -> int:
        return installation.run("sql", "-e", "SELECT 1").status

    assert short() == 0
    endless = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t"
    process = installation.start("sql", "-e", endless)
    wait_until(lambda: len(installation.ask("audit", "list")["audit"]) == 2, "the statement has begun")
    assert short() == 5, "it runs, and no other can"
    process.popen.send_signal(signal.SIGINT)
    assert (process.wait(), process.output.splitlines()[-1]) == (130, "Interrupted.")
    wait_until(lambda: short() == 0, "it has ended", 10)


def test_what_was_planned_meanwhile_is_cancelled_too(installation: Installation) -> None:
    table = small_table(installation.catalog)
    before = look(table)
    process, mark = installation.held(table, "plan.before_store", "task.before_write")
    process.popen.send_signal(signal.SIGINT)
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
    process, mark = installation.held(table, "commit.after_intent")
    process.popen.send_signal(signal.SIGINT)
    mark.unlink()
    assert process.wait() == 130
    assert "had been committed already\nInterrupted.\n" in process.output
    assert_optimized_once(table, before)


def test_a_second_interrupt_changes_nothing_of_that(installation: Installation) -> None:
    table = small_table(installation.catalog)
    before = look(table)
    process, mark = installation.held(table, "task.before_write")
    process.popen.send_signal(signal.SIGINT)
    process.wait_for("cancelled: the table is as it was")
    process.popen.send_signal(signal.SIGINT)
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
    process.popen.send_signal(signal.SIGINT)
    assert process.wait() == 130
    (planned,) = installation.ask("process", "list")["processes"]
    see = f"The process goes on. See: amoro process show {planned['process_id']}"
    assert process.output.endswith(f"{see}\nInterrupted.\n")
    mark.unlink()
    wait_until(lambda: is_optimized(table), "the coordinator commits")
    assert_optimized_once(table, before)


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
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    popen = subprocess.Popen([sys.executable, "-c", script], env={"PYTHONPATH": str(ROOT)}, **pipes)
    assert popen.stdout is not None
    assert popen.stdout.readline() == b"loading\n"
    popen.send_signal(signal.SIGINT)
    out, err = popen.communicate(timeout=PATIENCE_S)
    assert (popen.returncode, out, err) == (-signal.SIGINT, b"", b"")
