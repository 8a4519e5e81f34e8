import io
import json
import sys
from pathlib import Path

import pytest
import yaml

from amoro_cli.launcher import Endpoint
from amoro_core.protocol import admin_pb2 as pb
from tests.cli.conftest import Cli
from tests.cli.fakes import TOKEN, Failure, FakeAdmin, FakeLauncher
from tests.cli.messages import PROCESS, process, table, task

QUICKLY = ("--watch", "--interval", "1ms")


def test_a_process_is_shown_at_each_change_until_its_end(cli: Cli, admin: FakeAdmin) -> None:
    running, committing = process(status="running"), process(status="committing")
    ended = process(status="success")
    admin.script("GetProcess", running, running, committing, committing, ended)
    result = cli("process", "show", PROCESS, *QUICKLY, "-o", "yaml")
    assert (result.status, result.err) == (0, "")
    assert [line for line in result.out.splitlines() if line.startswith("status: ")] == [
        "status: running",
        "status: committing",
        "status: success",
    ]
    assert [body["status"] for body in yaml.safe_load_all(result.out)] == ["running", "committing", "success"]
    assert len(admin.asked("GetProcess")) == 5


def test_a_task_is_watched_with_its_process(cli: Cli, admin: FakeAdmin) -> None:
    admin.script(
        "GetProcess",
        process(status="running", tasks=[task(task_id=1, status="acked")]),
        process(status="success", tasks=[task(task_id=1, status="success")]),
    )
    assert cli("task", "list", PROCESS, *QUICKLY, "-o", "name").out == f"{PROCESS}-1\n{PROCESS}-1\n"
    admin.script("GetProcess", process(status="success", tasks=[task(task_id=1, status="success")]))
    assert cli("task", "show", f"{PROCESS}-1", *QUICKLY, "-o", "name").out == f"{PROCESS}-1\n"


def test_a_list_is_shown_at_each_change_until_something_ends_it(cli: Cli, admin: FakeAdmin) -> None:
    first, second = (pb.ListTablesResponse(tables=[table(table=name)]) for name in ("sales.db.a", "sales.db.b"))
    admin.script("ListTables", first, first, second, Failure("gone", "AMORO-1008", 1))
    result = cli("table", "list", *QUICKLY, "-o", "name")
    assert (result.status, result.out) == (1, "sales.db.a\nsales.db.b\n")


def test_on_a_terminal_each_takes_the_place_of_the_one_before(
    cli: Cli, admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    admin.script("GetProcess", process(status="running"), process(status="success"))
    cli("process", "show", PROCESS, *QUICKLY)
    assert screen.getvalue().count("\x1b[H\x1b[2J\x1b[3J") == 2
    assert screen.getvalue().startswith("\x1b[H")


def test_lists_are_filtered_by_group(cli: Cli, admin: FakeAdmin) -> None:
    tables = [table(table="sales.db.a", group="one"), table(table="sales.db.b", group="two")]
    admin.script("ListTables", pb.ListTablesResponse(tables=tables))
    assert cli("table", "list", "--group", "two", "-o", "name").out == "sales.db.b\n"
    optimizers = [pb.Optimizer(optimizer_id=f"0199-{group}", group=group) for group in ("one", "two")]
    admin.script("ListOptimizers", pb.ListOptimizersResponse(optimizers=optimizers))
    body = json.loads(cli("optimizer", "list", "--group", "one", "-o", "json").out)
    assert [item["group"] for item in body["optimizers"]] == ["one"]


def test_without_a_coordinator_nothing_changes_and_it_is_shown_once(
    bare_cli: Cli, admin: FakeAdmin, launcher: FakeLauncher, address: str, home: Path
) -> None:
    launcher.endpoint = Endpoint(address, TOKEN)
    admin.script("GetProcess", process(status="running"))
    result = bare_cli("process", "show", PROCESS, *QUICKLY, "-o", "name", "--home", str(home))
    assert (result.status, result.out) == (0, f"{PROCESS}\n")


def test_blockers_are_watched(cli: Cli, admin: FakeAdmin) -> None:
    first, second = (pb.ListBlockersResponse(blockers=[pb.Blocker(blocker_id=name)]) for name in ("a", "b"))
    admin.script("ListBlockers", first, first, second, Failure("gone", "AMORO-1008", 1))
    result = cli("table", "blockers", *QUICKLY, "-o", "name")
    assert (result.status, result.out) == (1, "a\nb\n")
