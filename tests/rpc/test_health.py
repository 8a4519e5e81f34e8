"""Whether a coordinator serves, as a container's probe and doctor see it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from amoro_core.app import Coordinator
from amoro_core.diagnosis import Diagnosis, diagnose
from amoro_core.health import coordinator_health
from tests.acceptance.processes import free_port


def probe(home: Path) -> tuple[int, str]:
    """How the image's probe ends, and what it says."""
    command = [sys.executable, "-m", "amoro_core.health"]
    environment = {**os.environ, "AMORO_HOME": str(home), "GRPC_VERBOSITY": "NONE"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    return done.returncode, done.stdout


def doctor(home: Path) -> list[Diagnosis]:
    return [each for each in diagnose(home, None) if each.name == "coordinator"]


@pytest.fixture
def gone(tmp_path: Path) -> tuple[Path, str]:
    """A state directory that names a process which lives, and an address where nobody answers."""
    address = f"127.0.0.1:{free_port()}"
    (tmp_path / "coordinator.json").write_text(json.dumps({"pid": os.getpid(), "address": address}))
    return tmp_path, address


def test_a_coordinator_that_serves_is_healthy(coordinator: Coordinator) -> None:
    said = f"{coordinator.address} says SERVING"
    assert coordinator_health(coordinator.home) == (True, said)
    assert probe(coordinator.home) == (0, f"{said}\n")
    assert [(each.ok, each.detail) for each in doctor(coordinator.home)] == [(True, said)]


def test_one_that_runs_and_does_not_answer_is_not(gone: tuple[Path, str]) -> None:
    home, address = gone
    status, said = probe(home)
    assert (status, said.startswith(f"{address} does not answer: ")) == (1, True)
    assert [each.ok for each in doctor(home)] == [False]


def test_where_none_runs_there_is_nothing_to_ask(tmp_path: Path) -> None:
    assert coordinator_health(tmp_path) is None
    assert probe(tmp_path) == (0, "no coordinator runs here\n")
    assert doctor(tmp_path) == []
