from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from amoro_cli.main import run
from amoro_core.command import LazyLauncher
from tests.acceptance.processes import Installation, Process, install
from tests.badinput.oracle import Ended

Call = Callable[[Sequence[str]], Ended]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """One installation for all inputs of a module."""
    made = install(tmp_path_factory.mktemp("bad"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def coordinator(installed: Installation) -> Process:
    """One that runs on it, with an optimizer."""
    return installed.up("--threads", "1")


@pytest.fixture
def call(installed: Installation, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """`amoro` with these arguments on the installation, in this process."""
    for key in [key for key in os.environ if key.startswith(("AMORO_", "PYICEBERG_"))]:
        monkeypatch.delenv(key)
    for key, value in installed.environment.items():
        monkeypatch.setenv(key, value)
    monkeypatch.chdir(installed.directory)

    def ended(arguments: Sequence[str]) -> Ended:
        status = run(LazyLauncher(), arguments)
        said = capfd.readouterr()
        return Ended(arguments, status, said.out, said.err)

    return ended


@pytest.fixture
def directory(installed: Installation) -> Path:
    return installed.directory
