"""Processes on this machine that outlive the coordinator, and are found again by their resource id."""

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path

import psutil

from amoro_core.errors import AmoroError
from amoro_core.model.group_config import CA_FILE, Launch, Liveness, Observation, Resource
from amoro_core.model.text_sanitizing import without_secrets

#: Number of logs of earlier processes to keep.
KEPT_LOGS = 200
#: Environment variables that are not passed on: they may contain the admin token.
_WITHHELD = ("AMORO_TOKEN",)


class LocalContainer:
    """Runs each optimizer as a process on this machine, as the coordinator's user.

    Their command lines contain the ids of their resources, so that a reused process id is detected. The handle of a
    resource is its process id.
    """

    launches = True
    status_interval_s = 0.0  # looking up a process is cheap

    def __init__(self, home: Path) -> None:
        self._logs = home / "logs"
        self._children: dict[str, subprocess.Popen[bytes]] = {}  # to be reaped; empty after a restart

    def check(self, properties: Mapping[str, str]) -> None:
        """Accepts any properties."""

    def start(self, launch: Launch) -> str:
        """Raises AmoroError."""
        arguments = optimizer_arguments(launch, str(launch.token_file))
        return self.run(launch.resource_id, [sys.executable, "-m", "amoro_core", *arguments])

    def run(self, resource_id: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
        """Start a process whose command names the resource; its output goes to a log file of its own.

        Raises AmoroError.
        """
        inherited = {key: value for key, value in os.environ.items() if key not in _WITHHELD}
        try:
            self._logs.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._remove_old_logs()
            with open(self._log_of(resource_id), "ab", opener=partial(os.open, mode=0o600)) as output:
                child = subprocess.Popen(  # noqa: S603 - a list, no shell
                    list(command),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**inherited, **(environment or {})},
                    # Ctrl-C at the coordinator must not reach it, and it can be killed with all its children.
                    start_new_session=True,
                )
        except OSError as error:
            raise AmoroError(f"{command[0]} can't be started: {error.strerror or error}") from error
        self._children[resource_id] = child
        return str(child.pid)

    def status(self, resource: Resource) -> Observation:
        """ALIVE or ENDED, then with the last line of its log."""
        child = self._children.get(resource.resource_id)
        status = child.poll() if child is not None else None
        if status is None and self._find(resource) is not None:
            return Observation(Liveness.ALIVE)
        self._children.pop(resource.resource_id, None)
        how = "" if status is None else f" with status {status}"
        last = self.logs(resource, 1)
        return Observation(Liveness.ENDED, f"its process has ended{how}{f': {last[0]}' if last else ''}")

    def stop(self, resource: Resource, *, by_force: bool) -> None:
        """SIGKILL to the group, or SIGTERM to the process that drains: the innermost one with the resource's id."""
        leader = self._find(resource)
        if leader is None:
            return
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            if by_force:
                os.killpg(leader.pid, signal.SIGKILL)
                return
            inner = [item for item in leader.children(recursive=True) if _names(item, resource.resource_id)]
            (inner[-1] if inner else leader).terminate()

    def logs(self, resource: Resource, lines: int) -> list[str]:
        """The last lines of its log, without secrets."""
        with suppress(OSError), self._log_of(resource.resource_id).open(encoding="utf-8", errors="replace") as log:
            last = deque((line for line in log if line.strip()), lines)
            return [without_secrets(line.rstrip("\n")) for line in last]
        return []

    def _find(self, resource: Resource) -> psutil.Process | None:
        """The process that was started for the resource, if it runs."""
        if resource.handle:
            with suppress(psutil.Error):
                process = psutil.Process(int(resource.handle))
                return process if _names(process, resource.resource_id) else None
            return None
        return next((item for item in psutil.process_iter() if _is_leader(item, resource.resource_id)), None)

    def _log_of(self, resource_id: str) -> Path:
        return self._logs / f"optimizer-{resource_id}.log"

    def _remove_old_logs(self) -> None:
        # Ids sort by time.
        running = {f"optimizer-{resource_id}.log" for resource_id in self._children}
        for log in sorted(self._logs.glob("optimizer-*.log"))[:-KEPT_LOGS]:
            if log.name not in running:
                log.unlink(missing_ok=True)


def _names(process: psutil.Process, resource_id: str) -> bool:
    try:
        return any(resource_id in word for word in process.cmdline())
    except psutil.Error:
        return False


def _is_leader(process: psutil.Process, resource_id: str) -> bool:
    """Whether the process names the resource and leads a session, like those started here."""
    with suppress(OSError):
        return _names(process, resource_id) and os.getsid(process.pid) == process.pid
    return False


def optimizer_arguments(launch: Launch, token_file: str) -> list[str]:
    """The arguments of `amoro` for the optimizer; the token itself is in a file."""
    properties = dict(launch.properties)
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
        *([f"--ca-file={properties[CA_FILE]}"] if CA_FILE in properties else []),
    ]
