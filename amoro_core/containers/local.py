"""Optimizers as processes on the coordinator's machine."""

import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from amoro_core.containers.processes import Processes
from amoro_core.model.containers import CA_FILE, Launch, Observation, Resource


def optimizer_arguments(launch: Launch, token_file: str) -> list[str]:
    """The arguments of `amoro` for the optimizer; the token itself is in a file."""
    known = dict(launch.properties)
    return [
        "optimizer",
        "run",
        f"--address={launch.address}",
        f"--group={launch.group}",
        *([f"--threads={launch.threads}"] if launch.threads else []),
        f"--memory={launch.memory_bytes // 1024**2}MB",
        f"--heartbeat-interval={launch.heartbeat_interval // timedelta(milliseconds=1)}ms",
        f"--token-file={token_file}",
        f"--resource-id={launch.resource_id}",
        *([f"--ca-file={known[CA_FILE]}"] if CA_FILE in known else []),
    ]


class LocalContainer:
    """Runs each optimizer as a process on this machine, as the coordinator's user."""

    launches = True
    status_interval_s = 0.0  # looking up a process is cheap

    def __init__(self, home: Path, program: Sequence[str] = (sys.executable, "-m", "amoro_core")) -> None:
        self._processes = Processes(home / "logs")
        self._program = tuple(program)

    def check(self, properties: Mapping[str, str]) -> None:
        """Accepts any properties."""

    def start(self, launch: Launch) -> str:
        """Raises AmoroError."""
        arguments = optimizer_arguments(launch, str(launch.token_file))
        return self._processes.start(launch.resource_id, [*self._program, *arguments])

    def status(self, resource: Resource) -> Observation:
        return self._processes.status(resource)

    def stop(self, resource: Resource, *, by_force: bool) -> None:
        self._processes.stop(resource, by_force=by_force)

    def logs(self, resource: Resource, lines: int) -> list[str]:
        return self._processes.logs(resource, lines)
