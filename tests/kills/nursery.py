"""Processes of `amoro` that start in a moment: forked from one that has loaded everything and done nothing.

Loading takes seconds, which would be most of the time of a test that kills a process every few. A child is a process
of its own in all that matters here: memory, files, locks, sockets, and death by SIGKILL.
"""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import json
import os
import random
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from amoro_core import failpoints
from amoro_core.bootstrap import composition
from tests.large import count_as_large

ROOT = Path(__file__).parents[2]
_PR_SET_PDEATHSIG = 1
_ALLOCATOR = "jemalloc_bg_thd"
_LOADED = (
    "amoro_core.__main__",
    "amoro_core.bootstrap.launcher",
    "amoro_core.bootstrap.coordinator_app",
    "amoro_optimizer.work_kinds",
)


@dataclass(frozen=True, slots=True)
class Child:
    """A process that was started; what it says goes to a file."""

    name: str
    pid: int
    descriptor: int  # readable once the process is gone
    log: Path

    @property
    def is_alive(self) -> bool:
        return not self._is_gone(0.0)

    def kill(self) -> bool:
        """SIGKILL, and wait until it is gone; False when it was gone before."""
        if self._is_gone(0.0):
            return False
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.descriptor, signal.SIGKILL)
        assert self._is_gone(60.0)
        return True

    def ask_where(self) -> None:
        """Let it write down where each of its threads is."""
        if self.is_alive:
            signal.pidfd_send_signal(self.descriptor, signal.SIGUSR1)

    def _is_gone(self, within_s: float) -> bool:
        return bool(select.select([self.descriptor], [], [], within_s)[0])


class Nursery:
    """Starts children until the context is left, and kills those that live then."""

    def __init__(self) -> None:
        self._children: list[Child] = []

    def __enter__(self) -> Self:
        self._mother = subprocess.Popen(
            [sys.executable, "-m", "tests.kills.nursery"],
            cwd=ROOT,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "GRPC_VERBOSITY": "ERROR"},  # no threads of numpy's
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._said() == "ready"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in self._children:
            child.kill()
            os.close(child.descriptor)
        self._mother.communicate()

    def start(
        self,
        arguments: tuple[str, ...],
        environment: Mapping[str, str],
        armed: str,
        log: Path,
        with_tasks: bool = False,
    ) -> Child:
        """A new process `amoro` with these arguments, whose failpoints are armed, and which looks by difference.

        It knows the packages in the environment's PYTHONPATH. `with_tasks`: maintenance is work for optimizers.
        """
        given = {
            "arguments": arguments,
            "environment": dict(environment),
            "armed": armed,
            "log": str(log),
            "with_tasks": with_tasks,
        }
        assert self._mother.stdin is not None
        self._mother.stdin.write(json.dumps(given) + "\n")
        self._mother.stdin.flush()
        pid = int(self._said())
        child = Child(arguments[0], pid, os.pidfd_open(pid), log)
        # It goes on only now, so that its descriptor can't be that of another process with the same number.
        os.kill(pid, signal.SIGCONT)
        self._children.append(child)
        return child

    def _said(self) -> str:
        assert self._mother.stdout is not None
        return self._mother.stdout.readline().strip()


def main() -> None:
    for name in _LOADED:
        importlib.import_module(name)
    # Whoever forks with threads may leave a lock behind that nobody will ever release. jemalloc sees to its own.
    threads = {path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")}
    assert threads - {_ALLOCATOR} == {Path("/proc/self/comm").read_text().strip()}
    signal.signal(signal.SIGCHLD, _reap)
    print("ready", flush=True)
    for line in sys.stdin:
        given = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _live(given)
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
        print(pid, flush=True)


def _reap(number: int, frame: object) -> None:
    """Wait for all that have ended, so that their CPU time counts as this process's."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _live(given: Mapping[str, Any]) -> None:
    """Become that process; never returns."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # nobody outlives the test
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGSTOP)
    status = 1
    try:
        output = os.open(str(given["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        faulthandler.register(signal.SIGUSR1)  # says where each thread is
        os.environ.clear()
        os.environ.update(given["environment"])
        os.chdir(os.environ["HOME"])
        sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        random.seed()
        composition.TableManifestCache = partial(composition.TableManifestCache, least_files=0)
        if given["with_tasks"]:
            count_as_large(pytest.MonkeyPatch())
        failpoints.arm(str(given["armed"]))
        sys.argv = ["amoro", *given["arguments"]]
        importlib.import_module("amoro_core.__main__").main()
        status = 0
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
