"""Processes on one installation: started, watched, killed, with their logs kept; and commands beside them.

A command runs in the test's own process, as `amoro` runs it. Where its start, a signal or its exit is the subject it
has a process of its own.
"""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from amoro_cli.main import run
from amoro_core.bootstrap.launcher import LocalLauncher
from tests.cli.fakes import check_document
from tests.engine import writer

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
PROGRAM = (sys.executable, "-m", "amoro_core")
#: Until a process is up, or a condition holds: it only ends a wait for what will never be, however busy the machine is.
PATIENCE_S = 600.0
#: Several coordinators are on this machine.
WITHOUT_PAGES = {"AMORO_HTTP_PORT": "0"}
#: An optimizer that was killed is soon known to be lost. A machine that stands still loses living ones, too.
SETTINGS = "heartbeat-interval: 500ms\nheartbeat-timeout: 6s\n"
#: No optimizer is lost because the machine is busy.
STEADY = "heartbeat-interval: 500ms\nheartbeat-timeout: 10min\n"
#: Who listens there is long gone when as many others were asked for.
_RESERVED: deque[socket.socket] = deque()
_RESERVED_AT_MOST = 200


def wait_until(condition: Callable[[], T | None], what: str, seconds: float = PATIENCE_S) -> T:
    """The first true value of the condition, asked again and again; fails when there is none in time."""
    deadline = time.monotonic() + seconds
    while True:
        if value := condition():
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(0.05)


def free_port() -> int:
    """A port for whoever listens there; the system gives it to nobody else meanwhile.

    A socket is bound to it that never listens: where both say SO_REUSEADDR, as servers do, another one may.
    """
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    _RESERVED.append(reserved)
    if len(_RESERVED) > _RESERVED_AT_MOST:
        _RESERVED.popleft().close()
    port: int = reserved.getsockname()[1]
    return port


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command said and how it ended."""

    status: int
    stdout: str
    stderr: str

    @property
    def document(self) -> dict[str, Any]:
        """What it printed with `-o json`."""
        check_document(self.stdout)
        found: dict[str, Any] = json.loads(self.stdout)
        return found

    @property
    def said(self) -> list[str]:
        """The error and the hint, without progress."""
        return [line for line in self.stderr.splitlines() if line.startswith(("Error: ", "Hint: "))]


@dataclass(frozen=True, slots=True)
class Process:
    """A process that was started; what it says goes to a file."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path

    @property
    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, text: str) -> str:
        """The first line with that text; fails when the process ends before."""

        def found() -> str | None:
            ended = self.popen.poll() is not None
            line = next((line for line in self.output.splitlines() if text in line), None)
            if line is None and ended:
                raise AssertionError(f"{self.name} ended with {self.popen.returncode} before it said {text!r}")
            return line

        return wait_until(found, f"{self.name} says {text!r}")

    def wait(self) -> int:
        """How the process ended; minus the signal that killed it."""
        return self.popen.wait(PATIENCE_S)

    def terminate(self) -> int:
        """SIGTERM, and how it ended."""
        self.popen.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """SIGKILL; it is gone afterwards."""
        self.popen.kill()
        self.wait()


@dataclass(slots=True)
class Installation:
    """A state directory, a catalog `cat` beside it, and the processes started on them."""

    directory: Path
    catalog: SqlCatalog
    processes: list[Process] = field(default_factory=list)

    @property
    def home(self) -> Path:
        return self.directory / "home"

    @property
    def environment(self) -> dict[str, str]:
        """Nothing of the machine's own configuration."""
        own = {"AMORO_HOME": str(self.home), "PYICEBERG_HOME": str(self.directory), "HOME": str(self.directory)}
        return {**bare_environment(), **own, "PYTHONPATH": str(ROOT)}

    def start(
        self,
        *words: str,
        failpoints: str = "",
        environment: Mapping[str, str] | None = None,
        program: Sequence[str] = PROGRAM,
    ) -> Process:
        """Start `amoro` with these arguments."""
        log = self.directory / f"{len(self.processes)}-{words[0]}.log"
        env = {**self.environment, **WITHOUT_PAGES, "AMORO_FAILPOINTS": failpoints, **(environment or {})}
        with log.open("wb") as output:
            streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
            popen = subprocess.Popen([*program, *words], cwd=self.directory, env=env, **streams)
        process = Process(" ".join(words), popen, log)
        self.processes.append(process)
        return process

    def held(self, table: Table, point: str, *then: str) -> tuple[Process, Path]:
        """`amoro optimize` that stands at that point until the file is removed, and then at others."""
        mark = self.directory / "held"
        holds = [f"{point}=hold:{mark}", *(f"{one}=hold:{mark.with_name(one)}" for one in then)]
        name = ".".join(("cat", *table.name()))
        process = self.start("optimize", name, "--type", "full", failpoints=",".join(holds))
        wait_until(mark.exists, f"it reached {point}")
        return process, mark

    def up(self, *options: str, port: int = 0, failpoints: str = "") -> Process:
        """A coordinator that listens, without optimizer unless the options name its threads."""
        alone = () if "--threads" in options else ("--without-optimizer",)
        process = self.start("up", "--port", str(port), *alone, *options, failpoints=failpoints)
        process.wait_for("amoro listens on")
        return process

    def optimizer(self, address: str, *options: str, failpoints: str = "") -> Process:
        """An optimizer of one thread that is registered."""
        every = ("--address", address, "--threads", "1", "--heartbeat-interval", "500ms", *options)
        process = self.start("optimizer", "run", *every, failpoints=failpoints)
        process.wait_for("optimizer.registered")
        return process

    def run(self, *arguments: str, environment: Mapping[str, str] | None = None) -> Outcome:
        """Run one command to its end, in this process."""
        return amoro(arguments, self._environment_of(arguments, environment), self.directory)

    def run_apart(self, *arguments: str, program: Sequence[str] = PROGRAM) -> Outcome:
        """Run one command to its end, in a process of its own."""
        return apart(arguments, self._environment_of(arguments, None), self.directory, program)

    def _environment_of(self, arguments: Sequence[str], more: Mapping[str, str] | None) -> dict[str, str]:
        return {**self.environment, **(WITHOUT_PAGES if "up" in arguments else {}), **(more or {})}

    def ask(self, *arguments: str) -> dict[str, Any]:
        """What a command that succeeds prints as JSON."""
        outcome = self.run(*arguments, "-o", "json")
        assert outcome.status == 0, outcome.stderr
        return outcome.document

    def ended(self, process_id: str) -> dict[str, Any] | None:
        """The process, once it is closed."""
        process = self.ask("process", "show", process_id)
        return process if process["status"] not in ("running", "committing", "commit_unknown") else None

    def logs(self) -> list[tuple[str, str]]:
        """What each process said, by its command."""
        return [(process.name, process.output) for process in self.processes]

    def close(self) -> None:
        """Kill what still runs."""
        for process in self.processes:
            if process.popen.poll() is None:
                process.kill()
        self.catalog.close()


def amoro(words: Sequence[str], environment: Mapping[str, str], directory: Path, *, merged: bool = False) -> Outcome:
    """Run one command to its end in this process, with that environment alone; `merged`: all it says is in stdout."""
    out = _stream()
    err = _stream(out.buffer) if merged else _stream()
    with _environment(environment), _in_directory(directory), redirect_stdout(out), redirect_stderr(err):
        status = run(LocalLauncher(), list(words))
    said = [stream.buffer.getvalue().decode() for stream in (out, err)]
    return Outcome(status, said[0], "" if merged else said[1])


def bare_environment() -> dict[str, str]:
    """This process's, without what configures us or pyiceberg."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("AMORO_", "PYICEBERG_", "COV_CORE"))}


def apart(
    words: Sequence[str], environment: Mapping[str, str], directory: Path, program: Sequence[str] = PROGRAM
) -> Outcome:
    """Run one command to its end in a process of its own, with that environment alone."""
    kept = {"stdin": subprocess.DEVNULL, "capture_output": True, "encoding": "utf-8", "timeout": PATIENCE_S}
    done = subprocess.run([*program, *words], cwd=directory, env=environment, check=False, **kept)
    return Outcome(done.returncode, done.stdout, done.stderr)


def _stream(below: io.BytesIO | None = None) -> io.TextIOWrapper:
    return io.TextIOWrapper(below or io.BytesIO(), encoding="utf-8", write_through=True)


@contextmanager
def _in_directory(path: Path) -> Iterator[None]:
    """That working directory during the block; the way back needs no rights on what lies above the one before."""
    before = os.open(".", os.O_RDONLY)
    os.chdir(path)
    try:
        yield
    finally:
        os.fchdir(before)
        os.close(before)


@contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """That environment during the block, and the one before afterwards, as what `up` changes of the interpreter."""
    before = dict(os.environ)
    with ExitStack() as ending:
        ending.callback(sys.setswitchinterval, sys.getswitchinterval())
        ending.callback(os.environ.update, before)
        ending.callback(os.environ.clear)
        os.environ.clear()
        os.environ.update(wanted)
        yield


def address_of(coordinator: Process) -> str:
    """Where the coordinator listens, as it says."""
    return coordinator.wait_for("amoro listens on").split("amoro listens on ")[1].split(",")[0]


def install(directory: Path, settings: str = SETTINGS, properties: Mapping[str, str] | None = None) -> Installation:
    """A new installation in the directory: a catalog that pyiceberg's configuration names, and settings.

    `properties` are further ones of the catalog, for the processes and not for the test.
    """
    catalog = writer.make_catalog(directory)
    configure(directory, catalog, properties)
    made = Installation(directory, catalog)
    made.home.mkdir(mode=0o700)
    (made.home / "amoro.yaml").write_text(settings)
    return made


def configure(directory: Path, catalog: SqlCatalog, properties: Mapping[str, str] | None = None) -> None:
    """Name the catalog in pyiceberg's configuration of that directory, with these properties besides."""
    known = {**{key: catalog.properties[key] for key in ("uri", "warehouse")}, **(properties or {})}
    lines = ("catalog:", "  cat:", "    type: sql", *(f"    {key}: {value}" for key, value in known.items()))
    (directory / ".pyiceberg.yaml").write_text("\n".join(lines) + "\n")
