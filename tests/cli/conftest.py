import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from amoro_cli.main import run
from tests.cli.fakes import TOKEN, FakeAdmin, FakeLauncher, check_document, serving


@dataclass
class Result:
    """How a command ended, and what it said on both streams."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """What it printed as JSON."""
        return json.loads(self.out or "null")


Cli = Callable[..., Result]


def run_with(launcher: Any, words: Sequence[str], capfd: pytest.CaptureFixture[str]) -> Result:
    """Run a command in this process."""
    status = run(launcher, words)
    captured = capfd.readouterr()
    check_document(captured.out)
    return Result(status, captured.out, captured.err)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AMORO_HOME", "AMORO_ADDRESS", "AMORO_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def admin() -> FakeAdmin:
    return FakeAdmin()  # its methods are made from the descriptor


@pytest.fixture
def launcher() -> FakeLauncher:
    return FakeLauncher()


@pytest.fixture
def bare_cli(launcher: FakeLauncher, capfd: pytest.CaptureFixture[str]) -> Cli:
    """The command line as it is, without a state directory."""
    return lambda *words: run_with(launcher, words, capfd)


@pytest.fixture
def address(admin: FakeAdmin) -> Iterator[str]:
    with serving(admin) as place:
        yield place


@pytest.fixture
def coordinator(home: Path, address: str) -> str:
    """A running coordinator of the state directory."""
    record(home, os.getpid(), address)
    return address


@pytest.fixture
def cli(bare_cli: Cli, home: Path, coordinator: str) -> Cli:
    """The command line with a state directory whose coordinator runs."""
    return lambda *arguments: bare_cli(*arguments, "--home", str(home))


def record(home: Path, pid: int, address: str, token: str = TOKEN, *, passing: bool = False) -> None:
    """What a coordinator leaves in its state directory, one that serves another command when `passing`."""
    home.mkdir(exist_ok=True)
    (home / "coordinator.json").write_text(json.dumps({"pid": pid, "address": address, "passing": passing}))
    (home / "admin.token").write_text(f"{token}\n")


@pytest.fixture
def dead_pid() -> int:
    """The number of a process that ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid
