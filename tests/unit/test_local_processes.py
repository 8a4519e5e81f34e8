"""Processes of this machine, found again by the id of their resource."""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from amoro_core.containers.processes import Processes
from amoro_core.errors import AmoroError
from amoro_core.model.containers import Liveness, Resource, ResourceState
from amoro_core.model.ids import uuid7
from tests.acceptance.processes import wait_until

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
#: Says what of its environment it must not have, then waits to be ended.
SLEEPER = "import os, sys, time; print(os.environ.get('AMORO_TOKEN'), flush=True); time.sleep(300)"


@pytest.fixture
def sleeping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Processes, Resource]]:
    monkeypatch.setenv("AMORO_TOKEN", "the-admin-token")
    processes, resource_id = Processes(tmp_path), uuid7(datetime.now(UTC))
    handle = processes.start(resource_id, [sys.executable, "-c", SLEEPER, resource_id])
    made = Resource(resource_id, "g", "local", ResourceState.STARTING, NOW, NOW, handle)
    wait_until(lambda: processes.logs(made, 1), "it has begun")
    yield processes, made
    processes.stop(made, by_force=True)
    with suppress(ChildProcessError):
        os.waitpid(int(handle), 0)


def ended(processes: Processes, resource: Resource) -> str:
    os.waitid(os.P_PID, int(resource.handle), os.WEXITED | os.WNOWAIT)
    observed = processes.status(resource)
    assert observed.liveness is Liveness.ENDED
    return observed.detail


def test_a_process_is_found_by_its_handle_and_by_its_resource_alone(
    tmp_path: Path, sleeping: tuple[Processes, Resource]
) -> None:
    processes, resource = sleeping
    assert processes.status(resource).liveness is Liveness.ALIVE
    later = Processes(tmp_path)  # of a coordinator that was restarted
    lost = Resource(resource.resource_id, "g", "local", ResourceState.STARTING, NOW, NOW, "")
    assert [later.status(item).liveness for item in (resource, lost)] == [Liveness.ALIVE] * 2
    other = Resource(uuid7(NOW), "g", "local", ResourceState.STARTING, NOW, NOW, resource.handle)
    assert later.status(other).liveness is Liveness.ENDED  # its number was given anew
    later.stop(other, by_force=True)
    assert processes.status(resource).liveness is Liveness.ALIVE
    later.stop(lost, by_force=False)
    assert "its process has ended with status -15: None" in ended(processes, resource)


def test_force_ends_it_too_and_the_admin_token_stays_with_the_coordinator(
    tmp_path: Path, sleeping: tuple[Processes, Resource]
) -> None:
    processes, resource = sleeping
    processes.stop(resource, by_force=True)
    assert "its process has ended with status -9" in ended(processes, resource)
    processes.stop(resource, by_force=True)
    (log,) = tmp_path.iterdir()
    assert (log.stat().st_mode & 0o777, "the-admin-token" in log.read_text()) == (0o600, False)


def test_what_can_not_be_started_says_so(tmp_path: Path) -> None:
    with pytest.raises(AmoroError, match="/no/such/program can't be started: No such file or directory"):
        Processes(tmp_path).start("r", ["/no/such/program"])
