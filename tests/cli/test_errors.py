import pickle
import re
import resource
import sqlite3
import subprocess
import sys
from itertools import product
from pathlib import Path

import grpc
import pytest

from amoro_core import connect, errors
from amoro_core.bootstrap.secrets import ensure_token
from amoro_core.errors import AddressInUse, AmoroError
from amoro_core.protocol import admin_pb2 as pb
from tests.cli.conftest import Cli
from tests.cli.fakes import TOKEN, Failure, FakeAdmin, FakeLauncher


def test_an_error_of_the_coordinator_keeps_its_message_hint_code_and_status(cli: Cli, admin: FakeAdmin) -> None:
    known = {f"AMORO-{status}001": status for status in range(1, 8)}
    for code, status in {**known, "AMORO-8001": 124, "AMORO-9999": 9}.items():
        admin.script("GetTable", Failure("table a.b.c → no", code, status, "Look → there."))
        result = cli("table", "show", "a.b.c")
        assert (result.status, result.out) == (status, "")
        assert result.err == f"Error: table a.b.c → no [{code}]\nHint: Look → there.\n"


def test_an_error_of_grpc_itself_becomes_one_of_ours(cli: Cli, admin: FakeAdmin) -> None:
    for failed, status, message in (
        (grpc.StatusCode.UNAVAILABLE, 1, "does not answer: boom [AMORO-1008]"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, 1, "did not answer within 120 s [AMORO-1008]"),
        (grpc.StatusCode.UNIMPLEMENTED, 1, "cannot do this: boom [AMORO-1001]"),
        (grpc.StatusCode.PERMISSION_DENIED, 4, "Error: boom [AMORO-4001]"),
        (grpc.StatusCode.INTERNAL, 1, "failed: boom [AMORO-1001]"),
    ):
        admin.script("GetTable", Failure("boom", status=failed))
        result = cli("table", "show", "a.b.c")
        assert (result.status, result.out) == (status, "")
        assert message in result.err.splitlines()[0]
        assert "Traceback" not in result.err


def test_what_nobody_expected_is_told_with_a_traceback_if_it_is_asked_for(
    bare_cli: Cli, launcher: FakeLauncher
) -> None:
    launcher.error = ZeroDivisionError("division by zero")
    result = bare_cli("up")
    assert result.status == 1
    assert result.err == (
        "Error: This should not have happened: ZeroDivisionError: division by zero [AMORO-1000]\n"
        "Hint: Run it again with --debug for the traceback, and report it.\n"
    )
    for words in (("up", "--debug"), ("--debug", "up")):
        assert "ZeroDivisionError: division by zero\nError: " in bare_cli(*words).err
    launcher.error = KeyboardInterrupt()
    assert bare_cli("up").status == 130


BY_EXIT_STATUS = {
    1: errors.WorkFailed,
    2: errors.InvalidArgument,
    3: errors.NotFound,
    4: errors.NotAllowed,
    5: errors.Conflict,
    6: errors.TableRefused,
    7: errors.CommitUnknown,
    124: errors.WaitTimeout,
}


def test_whatever_its_code_an_error_is_of_the_class_of_its_exit_status(admin: FakeAdmin, address: str) -> None:
    admin.script("GetStatus", pb.GetStatusResponse())
    with connect(address, TOKEN) as client:
        for (status, kind), code in product(BY_EXIT_STATUS.items(), ("AMORO-9999", "AMORO-1002")):
            admin.script("GetTable", Failure("why", code, status, "what to do"))
            with pytest.raises(kind) as told:
                client.table("a.b.c")
            error = told.value
            assert (error.exit_status, error.message, error.hint, error.code) == (status, "why", "what to do", code)


@pytest.mark.parametrize(
    "error",
    [
        errors.TableRefused("no", reason="encryption", hint="Decrypt it."),
        errors.TableNotFound("gone", table="a.b.c"),
        errors.VerificationFailed("differs", verification=(1, 2)),
        AddressInUse("taken"),
    ],
)
def test_an_error_reaches_another_process_whole(error: AmoroError) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert type(again) is type(error)
    assert (vars(again), again.args, str(again)) == (vars(error), error.args, str(error))


def _amoro(*arguments: str, closed: str = "") -> tuple[int, str, str]:
    """How the program itself ends and what it says, with streams closed as a shell's `>&-` does."""
    command = ("sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "amoro_core", *arguments)
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_a_stream_that_is_closed_or_full_is_written_to_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    status, _, error = _amoro("config", "shw", closed=">&-")
    assert (status, "Did you mean 'show'?" in error) == (2, True)
    assert _amoro("--version", closed=">&-") == (0, "", "")
    assert _amoro("config", "shw", closed="2>&-")[0] == 2
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    status, out, _ = _amoro("--version", closed="2>/dev/full")
    assert (status, out.startswith("amoro ")) == (0, True)
    assert _amoro("config", "shw", closed="2>/dev/full")[0] == 2


@pytest.mark.parametrize(
    ("command", "unbuffered"),
    [("doctor --home {home}", ""), ("table", ""), ("table", "1"), ("optimize -h", ""), ("--version", "1")],
)
def test_a_stdout_that_cannot_be_written_ends_any_command_with_one_and_one_line(
    home: Path, command: str, unbuffered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    said = "Error: stdout can't be written: No space left on device [AMORO-1012]\n"
    assert _amoro(*command.format(home=home).split(), closed=">/dev/full") == (1, "", said)


@pytest.mark.parametrize("words", [(), ("table",)])
def test_a_command_alone_prints_its_help(words: tuple[str, ...]) -> None:
    assert _amoro(*words) == (0, _amoro(*words, "-h")[1], "")


def test_what_the_system_says_of_a_file_is_no_fault_of_ours(bare_cli: Cli, launcher: FakeLauncher) -> None:
    launcher.error = PermissionError(13, "Permission denied", "/data/x")
    told = bare_cli("up")
    assert told.status == 1
    assert (
        told.err == "Error: /data/x: Permission denied [AMORO-1001]\nHint: Check the file's permissions and its disk.\n"
    )
    launcher.error = OSError(28, "No space left on device")
    assert bare_cli("up").err.startswith("Error: No space left on device [AMORO-1003]\nHint: Free some space")
    full = OSError(122, "Disk quota exceeded"), sqlite3.OperationalError("database or disk is full")
    broken = errors.InvalidSettings("/data/x can't be used"), errors.InvalidArgument("no"), RuntimeError("no")
    for error, cause in product(broken, full):
        error.__cause__ = cause
        launcher.error = error
        told = bare_cli("up")
        assert told.status == 1
        assert told.err.startswith(f"Error: {error} [AMORO-1003]\nHint: Free some space")


def test_a_token_that_a_full_disk_has_cut_off_is_not_left_for_the_next_start(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(OSError, match=re.escape(str(tmp_path / "admin.token"))):
            ensure_token(tmp_path / "admin.token")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert ensure_token(tmp_path / "admin.token").reveal().startswith("amo_")
