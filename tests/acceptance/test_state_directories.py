"""State directories that can't be used: each command says so in two lines, with a code, and leaves nothing behind."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from amoro_cli.main import run
from amoro_core.command import LazyLauncher


def _is_file(home: Path) -> str:
    home.write_text("")
    return f"the state directory {home} can't be used: it is not a directory [AMORO-2002]"


def _below_file(home: Path) -> str:
    home.parent.rmdir()
    home.parent.write_text("")
    return f"the state directory {home} can't be used: Not a directory [AMORO-2002]"


def _token_is_directory(home: Path) -> str:
    (home / "admin.token").mkdir(parents=True)
    return f"token file {home / 'admin.token'} can't be read: Is a directory [AMORO-4001]"


def _token_is_empty(home: Path) -> str:
    home.mkdir()
    (home / "enrolment.token").write_text("\n")
    return f"token file {home / 'enrolment.token'} can't be used: it is empty [AMORO-2002]"


def _token_is_another_file(home: Path) -> str:
    home.mkdir()
    (home / "admin.token").write_bytes(os.urandom(3000))
    return f"token file {home / 'admin.token'} can't be used: it holds something other than one token [AMORO-2002]"


def _record_is_directory(home: Path) -> str:
    (home / "coordinator.json").mkdir(parents=True)
    return f"the state directory {home} can't be used: coordinator.json: Is a directory [AMORO-2002]"


def _settings_are_directory(home: Path) -> str:
    (home / "amoro.yaml").mkdir(parents=True)
    return f"settings file {home / 'amoro.yaml'} can't be read: Is a directory [AMORO-2002]"


def _settings_are_no_utf_8(home: Path) -> str:
    home.mkdir()
    (home / "amoro.yaml").write_bytes(b"\xff\xfe")
    return f"settings file {home / 'amoro.yaml'} can't be read: it is not UTF-8 [AMORO-2002]"


def _settings_are_no_yaml(home: Path) -> str:
    home.mkdir()
    (home / "amoro.yaml").write_text("port: 1\ngroups: [a\n")
    return (
        f"settings file {home / 'amoro.yaml'} can't be read: line 3, column 1: "
        "expected ',' or ']', but got '<stream end>' [AMORO-2002]"
    )


BROKEN = (
    _is_file,
    _below_file,
    _token_is_directory,
    _token_is_empty,
    _token_is_another_file,
    _record_is_directory,
    _settings_are_directory,
    _settings_are_no_utf_8,
    _settings_are_no_yaml,
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("AMORO_ADDRESS", "AMORO_TOKEN", "AMORO_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "place").mkdir()
    return tmp_path / "place" / "home"


@pytest.mark.parametrize("breaks", BROKEN, ids=lambda breaks: breaks.__name__.strip("_"))
def test_a_state_directory_that_cannot_be_used_is_told_as_that(
    home: Path, breaks: Callable[[Path], str], capfd: pytest.CaptureFixture[str]
) -> None:
    said = breaks(home)
    before = sorted(home.rglob("*"))
    status = run(LazyLauncher(), ["optimize", "cat.db.t", "--home", str(home)])
    told = [line for line in capfd.readouterr().err.splitlines() if not line.startswith("No coordinator runs")]
    assert told[0] == f"Error: {said}"
    assert (status, told[1][:6], len(told)) == (4 if "AMORO-4" in said else 2, "Hint: ", 2)
    made = {"amoro.lock", "admin.token", "enrolment.token", "amoro.db", "amoro.db-shm", "amoro.db-wal"}
    assert [path for path in sorted(home.rglob("*")) if path.name not in made and path not in before] == []


@pytest.mark.parametrize("name", ["x" * 300, "\udcff"])
def test_a_state_directory_that_no_file_system_or_text_holds_is_wrong_usage(
    home: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(LazyLauncher(), ["table", "list", "--home", str(home.parent / name)]) == 2
    assert "[AMORO-200" in capfd.readouterr().err


@pytest.mark.parametrize("command", [("optimize", "cat.db.t"), ("up", "--port", "0")])
def test_a_state_directory_without_rights_is_told_as_that(
    home: Path, command: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    run(LazyLauncher(), ["doctor", "--home", str(home)])  # loads what could not be loaded without rights
    home.parent.chmod(0o000)
    root = os.geteuid() == 0
    if root:  # who may do everything
        os.seteuid(65534)
    try:
        assert run(LazyLauncher(), [*command, "--home", str(home)]) == 2
    finally:
        if root:
            os.seteuid(0)
        home.parent.chmod(0o700)
    assert "can't be read: Permission denied [AMORO-2002]\nHint: " in capfd.readouterr().err


@pytest.mark.parametrize("breaks", [_is_file, _below_file, _settings_are_directory])
def test_doctor_names_a_state_directory_that_cannot_be_used(
    home: Path, breaks: Callable[[Path], str], capfd: pytest.CaptureFixture[str]
) -> None:
    breaks(home)
    assert run(LazyLauncher(), ["doctor", "--home", str(home), "-o", "name"]) == 1
    assert set(capfd.readouterr().out.split("\n")) & {"state directory", "settings"}
