"""The unit file for systemd that the documentation shows: what it says of the service is so."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

import pytest

from amoro_core.launcher import ENDING
from amoro_core.model.quantities import parse_duration
from tests.acceptance.processes import ROOT, Installation, address_of

UNIT = ROOT / "docs" / "examples" / "amoro.service"


@pytest.fixture(scope="module")
def service() -> dict[str, str]:
    """What stands under [Service]; a key that stands twice has its last value."""
    parser = ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read_string(UNIT.read_text(encoding="utf-8"))
    return dict(parser["Service"])


@pytest.fixture
def command(service: dict[str, str]) -> list[str]:
    """What it starts, without the program's path."""
    program, *arguments = service["ExecStart"].split()
    assert Path(program).name == "amoro"
    return arguments


def test_what_it_starts_runs_until_sigterm_and_ends_well_in_time(
    installation: Installation, service: dict[str, str], command: list[str]
) -> None:
    started = installation.start(*command, environment={"AMORO_PORT": "0"})
    started.wait_for("amoro listens on")
    assert '"event": "coordinator.started"' in started.output  # in lines for machines: it has no terminal
    assert started.terminate() == 0
    # systemd would take a start for done once the program runs: it neither forks nor tells when it is ready.
    assert service["Type"] == "exec"
    assert parse_duration(f"{service['TimeoutStopSec']}s") > ENDING


def test_what_may_pass_is_started_again_and_what_does_not_is_not(
    installation: Installation, service: dict[str, str], command: list[str]
) -> None:
    final = service["RestartPreventExitStatus"].split()
    assert service["Restart"] == "on-failure"
    first = installation.up("--without-optimizer")
    second = installation.run(*command, environment={"AMORO_PORT": "0"})
    assert (second.status, "5" in final) == (5, False)
    elsewhere = {"AMORO_HOME": str(installation.directory / "other")}
    wrong = installation.run(*command, environment={**elsewhere, "AMORO_PORT": "http"})
    assert (wrong.status, "2" in final) == (2, True)
    port = address_of(first).rpartition(":")[2]
    taken = installation.run(*command, environment={**elsewhere, "AMORO_PORT": port})
    assert (taken.status, "2" in final) == (2, True)
    first.kill()
    assert (first.popen.returncode, "1" in final) == (-9, False)
