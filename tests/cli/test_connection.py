import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from amoro_cli.client import AdminClient
from amoro_cli.connection import Endpoint
from amoro_core.errors import StateDirectoryLocked
from amoro_core.model.text_sanitizing import Secret
from amoro_core.protocol import admin_pb2 as pb
from tests.cli.conftest import Cli, record
from tests.cli.fakes import TOKEN, Failure, FakeAdmin, FakeLauncher
from tests.cli.messages import PROCESS, nothing, plan, process, table


@pytest.mark.parametrize(
    ("token", "status", "said"),
    [
        ("wrong", 4, "unknown token [AMORO-4002]\nHint: On the coordinator's machine the token is read from "),
        ("zweiundzwanzig\u00fc", 2, "AMORO_TOKEN can't be used: it holds something other than one token [AMORO-2001]"),
    ],
)
def test_a_wrong_token_says_where_tokens_come_from_and_what_can_be_none_is_not_sent(
    bare_cli: Cli, address: str, monkeypatch: pytest.MonkeyPatch, token: str, status: int, said: str
) -> None:
    monkeypatch.setenv("AMORO_TOKEN", token)
    result = bare_cli("table", "list", "--address", address)
    assert (result.status, result.out, result.err.startswith(f"Error: {said}")) == (status, "", True)


@pytest.fixture
def free_address() -> Iterator[str]:
    """An address where nobody answers, and which nobody else gets meanwhile."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{sock.getsockname()[1]}"


@pytest.fixture
def embedded(launcher: FakeLauncher, address: str) -> FakeLauncher:
    """A launcher whose embedded coordinator is the fake one."""
    launcher.endpoint = Endpoint(address, Secret(TOKEN))
    return launcher


@pytest.fixture
def alone(bare_cli: Cli, home: Path) -> Cli:
    """The command line on a state directory without a coordinator."""
    return lambda *words: bare_cli(*words, "--home", str(home))


LIST = ("table", "list", "-o", "name")
TABLES = pb.ListTablesResponse(tables=[table()])
NAMES = "sales.db.orders\n"


@pytest.fixture(autouse=True)
def _tables(admin: FakeAdmin) -> None:
    admin.script("ListTables", TABLES)


def test_a_named_coordinator_takes_its_token_from_a_file_or_a_pipe(alone: Cli, address: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    options = ("--address", address, "--token-file", str(token))
    assert alone(*LIST, *options).out == alone(*options, *LIST).out == NAMES
    reading, writing = os.pipe()
    os.write(writing, f"{TOKEN}\n".encode())
    os.close(writing)
    assert alone(*LIST, "--address", address, "--token-file", f"/dev/fd/{reading}").out == NAMES
    os.close(reading)


def test_the_token_of_the_state_directory_is_for_a_coordinator_on_this_machine_alone(
    alone: Cli, address: str, home: Path, free_address: str
) -> None:
    record(home, os.getpid(), free_address)
    assert alone(*LIST, "--address", address).out == NAMES
    assert alone(*LIST, "--address", "coordinator.example:1261").status == 4


@pytest.mark.parametrize("address", ["coordinator.example:1261", "127.0.0.1:1261"])
def test_without_a_token_nothing_is_asked(alone: Cli, address: str) -> None:
    result = alone("table", "list", "--address", address)
    assert (result.status, result.out) == (4, "")
    assert result.err == (
        f"Error: There is no token for the coordinator at {address} [AMORO-4001]\n"
        "Hint: Give its admin token with --token-file or AMORO_TOKEN; "
        "it is in admin.token in its state directory.\n"
    )


UNUSABLE = "it holds something other than one token"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "it is empty"),
        ("two\nlines", UNUSABLE),
        ("x" * 1025, UNUSABLE),
        ("/", "Is a directory"),
        ("/dev/zero", UNUSABLE),
    ],
)
def test_a_token_file_without_one_token_is_wrong_usage(
    bare_cli: Cli, address: str, tmp_path: Path, content: str, said: str
) -> None:
    path = Path(content) if content.startswith("/") else tmp_path / "token"
    if path.parent == tmp_path:
        path.write_bytes(content.encode("latin-1"))
    result = bare_cli("table", "list", "--address", address, "--token-file", str(path))
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith(f"Error: The token file {path} can't be used: {said} [AMORO-2001]\n")


def test_a_state_directory_without_its_token_is_not_ours(bare_cli: Cli, home: Path, coordinator: str) -> None:
    (home / "admin.token").unlink()
    result = bare_cli("table", "list", "--home", str(home))
    assert result.status == 4
    assert result.err.startswith(f"Error: The admin token {home / 'admin.token'} can't be used: it does not exist [")
    assert f"Run this as the user who owns {home}" in result.err


def test_a_named_coordinator_that_does_not_answer_is_not_replaced_by_one_of_our_own(
    bare_cli: Cli, embedded: FakeLauncher, free_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMORO_TOKEN", TOKEN)
    result = bare_cli("table", "list", "--address", free_address)
    assert (result.status, result.out, embedded.calls) == (1, "", [])
    assert result.err == (
        f"Error: The coordinator at {free_address} does not answer: Failed to connect to remote host: "
        "Connection refused [AMORO-1008]\nHint: Start one with: amoro up. Or name another with --address or --home.\n"
    )


def test_without_a_coordinator_who_looks_reads_the_state_and_waits_for_nobody(
    alone: Cli, embedded: FakeLauncher, admin: FakeAdmin, home: Path
) -> None:
    embedded.locked = StateDirectoryLocked("another coordinator works on it (pid 7)")
    arguments = (*LIST, "--config", "c.yaml")
    result = alone(*arguments)
    assert (result.status, result.out, result.err) == (0, NAMES, "")
    admin.script("PlanTable", nothing())
    assert alone("optimize", "a.b.c", "--dry-run").status == 0
    read = [[("reading", home, config), "reading ended"] for config in (Path("c.yaml"), None)]
    assert embedded.calls == read[0] + read[1]
    for verbose in (("-v", *arguments), (*arguments, "--verbose")):
        assert alone(*verbose).err == f"No coordinator runs on {home}: reading its state without one.\n"


@pytest.mark.parametrize(
    ("command", "way"), [("table list", ("reading",)), ("table enable sales.db.orders", ("embedded", timedelta(0)))]
)
def test_a_coordinator_that_ends_with_its_command_meanwhile_is_replaced_by_this_process(
    alone: Cli, embedded: FakeLauncher, admin: FakeAdmin, home: Path, command: str, way: tuple[Any, ...]
) -> None:
    admin.script("SetTableEnabled", table())
    with ending() as gone:
        record(home, os.getpid(), gone, passing=True)
        result = alone(*command.split(), "-o", "name")
    assert (result.status, result.out, result.err == "") == (0, NAMES, way[0] == "reading")
    assert embedded.calls == [(way[0], home, None, *way[1:]), f"{way[0]} ended"]


@pytest.mark.usefixtures("embedded")
@pytest.mark.parametrize(
    ("known", "cancelled"),
    [
        (table(process_id=PROCESS), [PROCESS]),
        (Failure("table sales.db.orders is not known", "AMORO-3002", 3), []),  # no catalog has answered yet
    ],
)
def test_after_ctrl_c_while_it_was_planned_a_table_is_asked_for_without_its_catalog(
    alone: Cli, admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch, known: object, cancelled: list[str]
) -> None:
    plain = AdminClient.ask

    def ask(client: AdminClient, method: str, request: Any, timeout: float | None = None) -> Any:
        if method == "OptimizeTable":
            raise KeyboardInterrupt
        return plain(client, method, request, timeout)

    monkeypatch.setattr(AdminClient, "ask", ask)
    admin.script("GetTable", known)
    admin.script("CancelProcess", process())
    assert alone("optimize", "sales.db.orders").status == 130
    assert admin.asked("GetTable") == [pb.GetTableRequest(table="sales.db.orders", known_only=True)]
    assert [one.process_id for one in admin.asked("CancelProcess")] == cancelled


def test_a_coordinator_that_stays_is_not_replaced_when_it_does_not_answer(
    alone: Cli, embedded: FakeLauncher, home: Path
) -> None:
    with ending() as gone:
        record(home, os.getpid(), gone)
        result = alone("table", "list")
    assert (result.status, embedded.calls) == (1, [])
    assert result.err.startswith(f"Error: The coordinator at {gone} does not answer: ")


@contextmanager
def ending() -> Iterator[str]:
    """An address where somebody is found, and gone when he is asked."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def end() -> None:
            listener.accept()[0].close()
            listener.close()

        thread = threading.Thread(target=end)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"pid": "x", "address": "a:1"}', '{"pid": 1, "address": 5}', None]
)
def test_a_broken_record_is_passed_over_and_one_that_a_dead_coordinator_left(
    alone: Cli, embedded: FakeLauncher, home: Path, free_address: str, text: str | None
) -> None:
    record(home, os.getpid(), free_address)
    if text is not None:
        (home / "coordinator.json").write_text(text)
    assert alone(*LIST).out == NAMES
    assert embedded.calls[-1] == "reading ended"


def test_a_stranger_on_the_port_of_a_dead_coordinator_gets_no_token(
    alone: Cli, embedded: FakeLauncher, home: Path, dead_pid: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        stranger.settimeout(0)
        record(home, dead_pid, f"127.0.0.1:{stranger.getsockname()[1]}")
        assert alone("table", "list").status == 0
        with pytest.raises(BlockingIOError):
            stranger.accept()
    assert embedded.calls[-1] == "reading ended"


OPTIMIZE = ("optimize", "sales.db.orders", "--timeout")
PLANNED = pb.OptimizeTableResponse(process_id=PROCESS, plan=plan())


def embeddings(home: Path, *waits_s: float, ended: bool = True) -> list[Any]:
    """What the launcher is asked for: a coordinator, after waiting so long for the lock."""
    return [("embedded", home, None, timedelta(seconds=wait)) for wait in waits_s] + ["embedded ended"] * ended


def test_optimizing_in_process_always_waits(alone: Cli, embedded: FakeLauncher, admin: FakeAdmin, home: Path) -> None:
    admin.script("OptimizeTable", PLANNED)
    admin.script("GetProcess", process())
    result = alone(*OPTIMIZE, "3m")
    assert result.status == 0
    assert result.out.splitlines()[0] == f"{PROCESS}  committed snapshot 5120000000000000902 in 14.2 s"
    assert embedded.calls == embeddings(home, 0)


def test_who_waits_for_the_lock_asks_a_coordinator_that_was_only_starting_when_it_was_looked_for(
    alone: Cli, embedded: FakeLauncher, admin: FakeAdmin, address: str, home: Path
) -> None:
    embedded.locked = StateDirectoryLocked("another coordinator works on it (pid 7)")
    embedded.while_locked = lambda: record(home, os.getpid(), address)
    admin.script("OptimizeTable", pb.OptimizeTableResponse(plan=nothing()))
    result = alone(*OPTIMIZE, "3m")
    assert result.status == 0
    assert result.err.endswith(
        f"Waiting: another coordinator works on it (pid 7)\nA coordinator runs on {home} now: using it.\n"
    )
    assert embedded.calls == embeddings(home, 0, 1, ended=False)


def test_who_waits_for_the_lock_gives_no_work_to_a_coordinator_that_serves_another_command(
    alone: Cli, embedded: FakeLauncher, address: str, home: Path
) -> None:
    embedded.locked = StateDirectoryLocked("another command works on it (pid 7)", hint="Wait for its end.")
    embedded.while_locked = lambda: record(home, os.getpid(), address, passing=True)
    assert alone(*OPTIMIZE, "2500ms").status == 5
    assert embedded.calls == embeddings(home, 0, 1, 1, 0.5, ended=False)


def test_a_coordinator_that_only_serves_another_command_is_asked_but_given_no_work(
    alone: Cli, embedded: FakeLauncher, admin: FakeAdmin, address: str, home: Path
) -> None:
    record(home, os.getpid(), address, passing=True)
    assert (alone(*LIST).out, embedded.calls) == (NAMES, [])
    admin.script("OptimizeTable", pb.OptimizeTableResponse(plan=nothing()))
    assert alone(*OPTIMIZE[:2]).status == 0
    assert embedded.calls == embeddings(home, 0)


LATE = Failure("late", status=grpc.StatusCode.DEADLINE_EXCEEDED)
GONE = Failure("gone", status=grpc.StatusCode.UNAVAILABLE)


@pytest.mark.parametrize(
    ("answer", "known", "said"),
    [
        (PLANNED, table(), ""),
        (LATE, table(process_id=PROCESS), f"Process {PROCESS} did not end in time: it is running, and goes on"),
        (LATE, table(), "The planning of sales.db.orders did not end in time, and goes on"),
        (LATE, GONE, "The planning of sales.db.orders did not end in time, an"),
    ],
    ids=["a process", "a process that was being planned", "planning", "planning, and nobody answers"],
)
def test_what_does_not_end_in_time_goes_on_with_the_next_coordinator(
    alone: Cli, embedded: FakeLauncher, admin: FakeAdmin, answer: Any, known: Any, said: str
) -> None:
    admin.script("OptimizeTable", answer)
    admin.script("GetTable", known)
    admin.script("GetProcess", process("running"))
    result = alone(*OPTIMIZE, "200ms" if answer is PLANNED else "3m")
    assert result.status == 124
    assert f"Error: {said}" in result.err
    assert "goes on with the next coordinator or command on this state directory [AMORO-8001]\n" in result.err
    assert embedded.calls[-1] == "embedded ended"
