import pickle
import re
import resource
import sqlite3
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from amoro_core import connect, errors
from amoro_core.bootstrap.secrets import ensure_token
from amoro_core.errors import AddressInUse, AmoroError, InvalidArgument, InvalidSettings
from amoro_core.protocol import admin_pb2 as pb
from tests.cli.conftest import Cli
from tests.cli.fakes import TOKEN, Failure, FakeAdmin, FakeLauncher


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("AMORO-1002", 1),
        ("AMORO-2001", 2),
        ("AMORO-3002", 3),
        ("AMORO-4001", 4),
        ("AMORO-5001", 5),
        ("AMORO-6001", 6),
        ("AMORO-7001", 7),
        ("AMORO-8001", 124),
        ("AMORO-9999", 9),
    ],
)
def test_an_error_of_the_coordinator_keeps_its_message_hint_code_and_status(
    cli: Cli, admin: FakeAdmin, code: str, status: int
) -> None:
    admin.script("GetTable", Failure("table a.b.c → no", code, status, "Look → there."))
    result = cli("table", "show", "a.b.c")
    assert (result.status, result.out) == (status, "")
    assert result.err == f"Error: table a.b.c → no [{code}]\nHint: Look → there.\n"


@pytest.mark.parametrize(
    ("failure", "status", "message"),
    [
        (Failure("gone", status=grpc.StatusCode.UNAVAILABLE), 1, "does not answer: gone [AMORO-1008]"),
        (Failure("late", status=grpc.StatusCode.DEADLINE_EXCEEDED), 1, "did not answer within 120 s [AMORO-1008]"),
        (Failure("what?", status=grpc.StatusCode.UNIMPLEMENTED), 1, "cannot do this: what? [AMORO-1001]"),
        (Failure("no", status=grpc.StatusCode.PERMISSION_DENIED), 4, "Error: no [AMORO-4001]"),
        (Failure("boom", status=grpc.StatusCode.INTERNAL), 1, "failed: boom [AMORO-1001]"),
    ],
)
def test_an_error_of_grpc_itself_becomes_one_of_ours(
    cli: Cli, admin: FakeAdmin, failure: Failure, status: int, message: str
) -> None:
    admin.script("GetTable", failure)
    result = cli("table", "show", "a.b.c")
    assert (result.status, result.out) == (status, "")
    assert message in result.err.splitlines()[0]
    assert "Traceback" not in result.err


def test_what_nobody_expected_is_told_with_a_traceback_only_when_it_is_asked_for(
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


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (1, errors.WorkFailed),
        (2, errors.InvalidArgument),
        (3, errors.NotFound),
        (4, errors.NotAllowed),
        (5, errors.Conflict),
        (6, errors.TableRefused),
        (7, errors.CommitUnknown),
        (124, errors.WaitTimeout),
    ],
)
def test_whatever_its_code_an_error_is_in_python_of_the_class_of_its_exit_status(
    admin: FakeAdmin, address: str, status: int, kind: type[AmoroError]
) -> None:
    admin.script("GetStatus", pb.GetStatusResponse())
    with connect(address, TOKEN) as client:
        for code in ("AMORO-9999", "AMORO-1002"):
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


def _amoro(*arguments: str, closed: str = "") -> "subprocess.CompletedProcess[str]":
    """The program itself, with streams closed as a shell's `>&-` does."""
    command = [sys.executable, "-m", "amoro_core", *arguments]
    script = f'exec "$@" {closed}'
    return subprocess.run(["sh", "-c", script, "sh", *command], capture_output=True, text=True)


def test_a_stream_that_is_closed_or_full_is_written_to_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    told = _amoro("config", "shw", closed=">&-")
    assert (told.returncode, "Did you mean 'show'?" in told.stderr) == (2, True)
    assert (_amoro("--version", closed=">&-").returncode, _amoro("--version", closed=">&-").stderr) == (0, "")
    assert _amoro("config", "shw", closed="2>&-").returncode == 2
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    told = _amoro("--version", closed="2>/dev/full")
    assert (told.returncode, told.stdout.startswith("amoro ")) == (0, True)
    assert _amoro("config", "shw", closed="2>/dev/full").returncode == 2


@pytest.mark.parametrize(
    ("command", "unbuffered"),
    [("doctor --home {home}", ""), ("table", ""), ("table", "1"), ("optimize -h", ""), ("--version", "1")],
)
def test_a_stdout_that_cannot_be_written_ends_any_command_with_one_and_one_line(
    home: Path, command: str, unbuffered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    told = _amoro(*command.format(home=home).split(), closed=">/dev/full")
    assert (told.returncode, told.stderr) == (
        1,
        "Error: stdout can't be written: No space left on device [AMORO-1012]\n",
    )


@pytest.mark.parametrize("name", ["amoro", "table"])
def test_a_command_alone_prints_its_help(name: str) -> None:
    arguments = [] if name == "amoro" else [name]
    told = _amoro(*arguments)
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout == _amoro(*arguments, "-h").stdout


def test_what_the_system_says_of_a_file_is_no_fault_of_ours(bare_cli: Cli, launcher: FakeLauncher) -> None:
    launcher.error = PermissionError(13, "Permission denied", "/data/x")
    told = bare_cli("up")
    assert (told.status, told.err) == (
        1,
        "Error: /data/x: Permission denied [AMORO-1001]\nHint: Check the file's permissions and its disk.\n",
    )
    launcher.error = OSError(28, "No space left on device")
    assert bare_cli("up").err.startswith("Error: No space left on device [AMORO-1003]\nHint: Free some space")


@pytest.mark.parametrize(
    "cause", [OSError(122, "Disk quota exceeded"), sqlite3.OperationalError("database or disk is full")]
)
@pytest.mark.parametrize("error", [InvalidSettings("/data/x can't be used"), InvalidArgument("no"), RuntimeError("no")])
def test_a_full_disk_ends_with_one_whatever_it_broke(
    bare_cli: Cli, launcher: FakeLauncher, error: Exception, cause: Exception
) -> None:
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
