"""The connection between the driver and the Python workers: progress, requests to stop, and names of files.

Spark sends a worker nothing while a task runs, kills it without warning, and may run a task again elsewhere. So each
execution of a part of a job keeps a connection to the driver, over which it asks before it creates a file. The driver
thereby knows every file that a killed worker can have left, lets only the newest execution of a part write, and none
once the job is over.

Both ends prove that they know the key, which travels with the task; the line itself carries row counts and paths.
"""

import json
import secrets
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any, TypeAlias

from amoro_core.errors import AttemptAbandoned, OptimizerError

CONNECT_S = 10.0
PROGRESS_EVERY_S = 0.5
_GO, _STOP, _SUPERSEDED = b"go", b"stop", b"superseded"

Line: TypeAlias = "Connection[Any, Any]"


#: Told a part, its rows done, its rows in all, and the time that all parts have had cores so far, in ms.
Progress: TypeAlias = Callable[[str, int, int, int], None]


class Superseded(Exception):
    """A newer execution has replaced this one: Spark must not take its output for the part's result."""


class Job:
    """The executions of one attempt's Spark jobs: of each part (a partition of a stage), numbered upwards."""

    def __init__(self, on_progress: Progress, age_s: Callable[[], float] = lambda: 0.0) -> None:
        """`age_s`: how old the attempt's ack is."""
        self._on_progress = on_progress
        self._age_s = age_s
        self._changed = threading.Condition()
        self._lines: dict[tuple[str, int], Line] = {}
        self._began: dict[tuple[str, int], float] = {}
        self._newest: dict[str, int] = {}
        self._over = False
        self._files: list[str] = []
        self._failure: tuple[str, str] | None = None
        self._facts: dict[str, Mapping[str, int]] = {}
        self._core_s = 0.0  # of the executions that have hung up

    def stop(self) -> None:
        """Forbid all executions to write any further, and tell running ones; they remove what they wrote."""
        with self._changed:
            self._over = True
            for line in self._lines.values():
                _send(line, _STOP)

    def settle(self, seconds: float) -> tuple[str, ...]:
        """Every file ever begun, once no execution is connected or the time is over; none is begun afterwards."""
        self.stop()
        with self._changed:
            self._changed.wait_for(lambda: not self._lines, seconds)
            return tuple(self._files)

    @property
    def is_running(self) -> bool:
        """Whether an execution is connected."""
        with self._changed:
            return bool(self._lines)

    @property
    def is_over(self) -> bool:
        """Whether no execution may write any further."""
        with self._changed:
            return self._over

    @property
    def core_ms(self) -> int:
        """For how long executions have had cores so far, repeated ones included."""
        now = time.monotonic()
        with self._changed:
            return round((self._core_s + sum(now - began for began in self._began.values())) * 1000)

    @property
    def failure(self) -> tuple[str, str] | None:
        """The code and message of the first failure that a part told, by which the job was over."""
        with self._changed:
            return self._failure

    def facts(self, stage: str) -> dict[str, Mapping[str, int]]:
        """What the parts of a stage, whose names begin with its, have told at their end."""
        with self._changed:
            return {part: stored for part, stored in self._facts.items() if part.startswith(f"{stage} ")}

    def serve(self, line: Line, part: str, execution: int) -> None:
        """Answer an execution of a part until it hangs up. It replaces earlier ones of the part."""
        with self._changed:
            if self._over or execution <= self._newest.get(part, -1):
                _send(line, _STOP if self._over else _SUPERSEDED)
                return
            for (other, _), earlier in self._lines.items():
                if other == part:
                    _send(earlier, _SUPERSEDED)
            self._newest[part] = execution
            self._lines[part, execution] = line
            self._began[part, execution] = time.monotonic()
            _send(line, _GO)
        try:
            while True:
                stated = json.loads(line.recv_bytes())
                if "rows" in stated:
                    done, total = stated["rows"]
                    self._on_progress(part, done, total, self.core_ms)
                else:
                    self._answer(line, part, execution, stated)
        except (OSError, EOFError):
            return
        finally:
            with self._changed:
                del self._lines[part, execution]
                self._core_s += time.monotonic() - self._began.pop((part, execution))
                self._changed.notify_all()

    def _answer(self, line: Line, part: str, execution: int, values: Mapping[str, Any]) -> None:
        """Handle a message of an execution, if it may still send one, and answer it."""
        with self._changed:
            is_newest = execution == self._newest[part]
            if not is_newest or self._over:
                _send(line, _STOP if is_newest else _SUPERSEDED)
                return
            if "file" in values:
                self._files.append(values["file"])
            elif "facts" in values:
                self._facts[part] = values["facts"]
            elif "age" in values:
                _send(line, f"{self._age_s():.6f}".encode())
                return
            else:
                code, message = values["failed"]
                self._failure = code, message
                self.stop()
                return
            _send(line, _GO)


class Channel:
    """The driver's end: listens on a port for executions of its jobs."""

    def __init__(self, bind: str, port: int = 0) -> None:
        self.key = secrets.token_bytes(32)
        self._jobs: dict[str, Job] = {}
        self._server = _Server((bind, port), self._answer)
        self._thread = threading.Thread(target=self._server.serve_forever, name="spark-channel", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @contextmanager
    def job(self, on_progress: Progress, age_s: Callable[[], float] = lambda: 0.0) -> Iterator[tuple[str, Job]]:
        """A job and its name, known during the block."""
        name, job = secrets.token_hex(8), Job(on_progress, age_s)
        self._jobs[name] = job
        try:
            yield name, job
        finally:
            del self._jobs[name]

    def _answer(self, line: Line) -> None:
        with suppress(OSError, EOFError, AuthenticationError):
            # Clients authenticate first: if we answered a challenge first, a stranger could relay ours back to us.
            deliver_challenge(line, self.key)
            answer_challenge(line, self.key)
            stated = json.loads(line.recv_bytes())
            job = self._jobs.get(stated["job"])
            if job is None:
                _send(line, _STOP)
            else:
                job.serve(line, stated["part"], stated["execution"])


class _Server(socketserver.ThreadingTCPServer):
    """A thread for each connection."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], answer: Callable[[Line], None]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._answer = answer
        super().__init__(address, socketserver.BaseRequestHandler)

    def finish_request(self, request: Any, client_address: Any) -> None:
        _speak_at_once(request)
        with Connection(request.detach()) as line:
            self._answer(line)


class WorkerLine:
    """A worker's end, for one execution of a part of a job."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._stopped = False
        self._told_at = 0.0
        #: Whether a newer execution has taken the place of this one.
        self.is_superseded = False
        #: Whether the driver has said that the job is over.
        self.is_over = False

    @property
    def is_stopped(self) -> bool:
        """Whether the driver has stopped this execution, or is gone."""
        with self._failing_means_stop():
            if not self._stopped and self._line.poll(0):
                self._hear()
        return self._stopped

    def announce(self, path: str) -> None:
        """Ask whether the file may be created. Raises AttemptAbandoned."""
        self._say({"file": path})

    def conclude(self, facts: Mapping[str, int]) -> None:
        """Report at the end of a part what it took and made. Raises AttemptAbandoned."""
        self._say({"facts": facts})

    def fail(self, code: str, message: str) -> bool:
        """Report that the part failed, which ends the job; returns whether the driver received it."""
        with suppress(AttemptAbandoned):
            self._say({"failed": [code, message]})
        return self.is_over

    def _say(self, message: Mapping[str, object]) -> bytes:
        """Send a message, and return the driver's answer. Raises AttemptAbandoned."""
        answer = b""
        with self._failing_means_stop():
            if not self._stopped:
                self._line.send_bytes(json.dumps(message).encode())
                answer = self._hear()
        if self._stopped:
            raise AttemptAbandoned("the driver wants no more of this execution")
        return answer

    def ask_age(self) -> float:
        """How old the attempt's ack is, in seconds. Raises AttemptAbandoned."""
        return float(self._say({"age": True}))

    def progress(self, rows_done: int, rows_total: int) -> None:
        """Report progress, at most every so often."""
        now = time.monotonic()
        if now - self._told_at < PROGRESS_EVERY_S:
            return
        self._told_at = now
        with self._failing_means_stop():
            self._line.send_bytes(json.dumps({"rows": [rows_done, rows_total]}).encode())

    def _hear(self) -> bytes:
        stated = self._line.recv_bytes()
        self.is_superseded = stated == _SUPERSEDED
        self.is_over = stated == _STOP
        self._stopped = self.is_superseded or self.is_over
        return stated

    @contextmanager
    def _failing_means_stop(self) -> Iterator[None]:
        try:
            yield
        except (OSError, EOFError):
            self._stopped = True


@contextmanager
def connected(address: tuple[str, int], key: bytes, job: str, part: str, execution: int) -> Iterator[WorkerLine]:
    """A worker's line to the driver.

    Raises OptimizerError when the driver is not reached, AttemptAbandoned when the job is over, Superseded when a newer
    execution of the part has begun.
    """
    try:
        with socket.create_connection(address, timeout=CONNECT_S) as output:
            output.settimeout(None)
            _speak_at_once(output)
            line: Line = Connection(output.detach())
    except OSError as error:
        host, port = address
        raise OptimizerError(
            f"{socket.gethostname()} can't reach the optimizer's driver at {host}:{port}: {error}",
            hint="set spark.driver.host, and spark.amoro.port where only some ports are open",
        ) from error
    with line:
        try:
            answer_challenge(line, key)
            deliver_challenge(line, key)
            line.send_bytes(json.dumps({"job": job, "part": part, "execution": execution}).encode())
            stated = line.recv_bytes()
        except (OSError, EOFError, AuthenticationError) as error:
            raise AttemptAbandoned(f"the driver closed the connection: {error}") from error
        if stated == _SUPERSEDED:
            raise Superseded(f"a newer execution of {part} runs already")
        if stated != _GO:
            raise AttemptAbandoned("the driver wants no such execution")
        yield WorkerLine(line)


def _speak_at_once(connection: socket.socket) -> None:
    # Messages are short and answered: Nagle's algorithm would delay each until the last one is acknowledged.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _send(line: Line, data: bytes) -> None:
    # A closed connection is handled by the thread that reads it.
    with suppress(OSError):
        line.send_bytes(data)
