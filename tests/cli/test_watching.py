import io
import json
import re
import sys
from pathlib import Path

import pytest
import yaml

from amoro_cli import watching
from amoro_cli.launcher import Endpoint
from amoro_core.model.secrets import Secret
from amoro_core.protocol import admin_pb2 as pb
from tests.cli.conftest import Cli
from tests.cli.fakes import TOKEN, Failure, FakeAdmin, FakeLauncher
from tests.cli.messages import PROCESS, listed, process, table, task

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
        "ListTasks",
        listed(process(status="running"), task(task_id=1, status="acked")),
        listed(process(status="success"), task(task_id=1, status="success")),
    )
    assert cli("task", "list", PROCESS, *QUICKLY, "-o", "name").out == f"{PROCESS}-1\n{PROCESS}-1\n"
    admin.script("ListTasks", listed(process(status="success"), task(task_id=1, status="success")))
    assert cli("task", "show", f"{PROCESS}-1", *QUICKLY, "-o", "name").out == f"{PROCESS}-1\n"


def test_a_list_is_shown_at_each_change_until_something_ends_it(cli: Cli, admin: FakeAdmin) -> None:
    first, second = (pb.ListTablesResponse(tables=[table(table=name)]) for name in ("sales.db.a", "sales.db.b"))
    admin.script("ListTables", first, first, second, Failure("gone", "AMORO-1008", 1))
    result = cli("table", "list", *QUICKLY, "-o", "name")
    assert (result.status, result.out) == (1, "sales.db.a\nsales.db.b\n")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch, columns: int = 120) -> Terminal:
    """A terminal without colours in place of stdout; fixtures come too early, capturing would undo it."""
    made = Terminal()
    monkeypatch.setattr(sys, "stdout", made)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    return made


CLEAR = "\x1b[H\x1b[2J"


def test_on_a_terminal_each_takes_the_place_of_the_one_before(
    cli: Cli, admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = terminal(monkeypatch)
    admin.script("GetProcess", process(status="running"), process(status="success"))
    cli("process", "show", PROCESS, *QUICKLY)
    first, second = screen.getvalue().split(CLEAR)[1:]
    assert "status    running" in first
    assert "status    success" in second
    assert "\x1b[3J" not in screen.getvalue()  # what was scrolled off is the user's


def test_a_dumb_terminal_is_not_steered(cli: Cli, admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    monkeypatch.setenv("TERM", "dumb")
    admin.script("GetProcess", process(status="running"), process(status="success"))
    cli("process", "show", PROCESS, *QUICKLY)
    assert "\x1b" not in screen.getvalue()
    assert screen.getvalue().count(PROCESS) == 4  # twice shown, twice in the receipt: once to undo it


def _listed(*done: tuple[str, int]) -> pb.ListProcessesResponse:
    """Processes on these tables, with so many of the 1000 rows of 100 MB rewritten; −1: it has ended."""
    rows = [
        process(
            status="running" if rows >= 0 else "success",
            process_id=f"01997a4c-0000-7000-8000-{number:012}",
            table=name,
            tasks_done=0,
            input_bytes=100 * 2**20,
            input_bytes_done=rows * 100 * 2**20 // 1000,
            busy_optimizers=1,
        )
        for number, (name, rows) in enumerate(done)
    ]
    return pb.ListProcessesResponse(processes=rows)


def test_each_process_that_runs_has_a_bar_which_moves(
    cli: Cli, admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = terminal(monkeypatch)
    admin.script(
        "ListProcesses",
        _listed(("sales.db.a", 250), ("sales.db.b", 0)),
        _listed(("sales.db.a", 750), ("sales.db.b", 500)),
        _listed(("sales.db.a", -1), ("sales.db.b", 500)),
        Failure("gone", "AMORO-1008", 1),
    )
    cli("process", "list", *QUICKLY)
    looks = [look.split("\n\n")[1].splitlines() for look in screen.getvalue().split(CLEAR)[1:]]
    assert [len(bars) for bars in looks] == [2, 2, 1]
    words = "running, 0/3 tasks"
    assert [[bar.split(", 1 optimizer")[0] for bar in bars] for bars in looks] == [
        [f"sales.db.a {_bar(0.25)} {words}, 25 MB of 100 MB", f"sales.db.b {_bar(0)} {words}, 0 B of 100 MB"],
        [f"sales.db.a {_bar(0.75)} {words}, 75 MB of 100 MB", f"sales.db.b {_bar(0.5)} {words}, 50 MB of 100 MB"],
        [f"sales.db.b {_bar(0.5)} {words}, 50 MB of 100 MB"],
    ]
    speeds = [bar.split(", 1 optimizer")[1].split() for bars in looks for bar in bars]
    assert [words[-2] for words in speeds] == ["ETA"] * 5
    assert speeds[0] == ["?", "ETA", "-:--:--"]  # nothing to go by yet
    assert speeds[2][1].endswith("B/s")
    assert re.fullmatch(r"\d:\d\d:\d\d", speeds[2][-1])


def _bar(part: float) -> str:
    """What rich draws of a bar of 24 columns without colours."""
    full = int(part * 24)
    return "━" * full + " " * (24 - full)


def test_who_interrupts_the_first_look_ends_with_success_too(
    cli: Cli, admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin.script("ListProcesses", _listed(("sales.db.a", 250)))

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watching, "write", interrupted)
    assert cli("process", "list", *QUICKLY).status == 0


def test_a_narrow_terminal_still_shows_how_fast_it_goes(
    cli: Cli, admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = terminal(monkeypatch, columns=80)
    name = "warehouse.finance.quarterly_ledger"
    admin.script("ListProcesses", _listed((name, 250)), _listed((name, 500)), Failure("gone", "AMORO-1008", 1))
    cli("process", "list", *QUICKLY)
    bar = screen.getvalue().split("\n\n")[-1].splitlines()[0]
    assert bar.startswith("…terly_ledger ━━━")
    assert "running, 0/3 tasks " in bar
    assert re.search(r"B/s \d:\d\d:\d\d$", bar)
    assert len(bar) <= 80


def test_lists_are_filtered_by_group(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListTables", pb.ListTablesResponse(tables=[table(table="sales.db.b", group="two")]))
    assert cli("table", "list", "--group", "two", "-o", "name").out == "sales.db.b\n"
    assert admin.asked("ListTables") == [pb.ListTablesRequest(group="two")]
    admin.script("ListOptimizers", pb.ListOptimizersResponse(optimizers=[pb.Optimizer(optimizer_id="o", group="one")]))
    body = json.loads(cli("optimizer", "list", "--group", "one", "-o", "json").out)
    assert [item["group"] for item in body["optimizers"]] == ["one"]
    assert admin.asked("ListOptimizers") == [pb.ListOptimizersRequest(group="one")]


def test_without_a_coordinator_nothing_changes_and_it_is_shown_once(
    bare_cli: Cli, admin: FakeAdmin, launcher: FakeLauncher, address: str, home: Path
) -> None:
    launcher.endpoint = Endpoint(address, Secret(TOKEN))
    admin.script("GetProcess", process(status="running"))
    result = bare_cli("process", "show", PROCESS, *QUICKLY, "-o", "name", "--home", str(home))
    assert (result.status, result.out) == (0, f"{PROCESS}\n")


def test_blockers_are_watched(cli: Cli, admin: FakeAdmin) -> None:
    first, second = (pb.ListBlockersResponse(blockers=[pb.Blocker(blocker_id=name)]) for name in ("a", "b"))
    admin.script("ListBlockers", first, first, second, Failure("gone", "AMORO-1008", 1))
    result = cli("table", "blockers", *QUICKLY, "-o", "name")
    assert (result.status, result.out) == (1, "a\nb\n")
