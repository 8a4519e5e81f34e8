"""The line between the driver and the Python workers: progress, the request to stop, and the names of files.

Spark tells a worker nothing while a task runs, kills it without warning, and may run a task again elsewhere. So each
execution of a task keeps a connection to the driver, over which it asks before it creates a file. The driver thereby
knows every file that a killed worker can have left, lets only the newest execution of a job write, and none once
the job is over.

Both ends prove that they know the key, which travels with the task; the line itself carries row counts and paths.
"""

import json
import secrets
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any, TypeAlias

from amoro_core.errors import AttemptAbandoned, OptimizerError

CONNECT_S = 10.0
PROGRESS_EVERY_S = 0.5
_GO, _STOP = b"go", b"stop"

Line: TypeAlias = "Connection[Any, Any]"


class Job:
    """What the driver knows of the executions of one Spark job. An execution is a number that grows with each."""

    def __init__(self, on_progress: Callable[[int, int], None]) -> None:
        self._on_progress = on_progress
        self._changed = threading.Condition()
        self._lines: dict[int, Line] = {}
        self._newest = -1
        self._over = False
        self._files: list[str] = []

    def stop(self) -> None:
        """Let no execution write any further, and tell those that run; they remove what they wrote."""
        with self._changed:
            self._over = True
            for line in self._lines.values():
                _send(line, _STOP)

    def settle(self, seconds: float) -> tuple[str, ...]:
        """The files that were ever begun, once no execution is connected or the time is over; none is begun after."""
        self.stop()
        with self._changed:
            self._changed.wait_for(lambda: not self._lines, seconds)
            return tuple(self._files)

    @property
    def is_running(self) -> bool:
        """Whether an execution is connected."""
        with self._changed:
            return bool(self._lines)

    def serve(self, line: Line, execution: int) -> None:
        """Answer an execution until it hangs up. A newer one takes the place of those that run."""
        with self._changed:
            if self._over or execution <= self._newest:
                _send(line, _STOP)
                return
            for earlier in self._lines.values():
                _send(earlier, _STOP)
            self._newest = execution
            self._lines[execution] = line
            _send(line, _GO)
        try:
            while True:
                said = json.loads(line.recv_bytes())
                if "file" in said:
                    self._grant(line, execution, said["file"])
                else:
                    self._on_progress(*said["rows"])
        except (OSError, EOFError):
            return
        finally:
            with self._changed:
                del self._lines[execution]
                self._changed.notify_all()

    def _grant(self, line: Line, execution: int, path: str) -> None:
        with self._changed:
            granted = not self._over and execution == self._newest
            if granted:
                self._files.append(path)
            _send(line, _GO if granted else _STOP)


class Channel:
    """The driver's end: listens on a port for the executions of its jobs."""

    def __init__(self, bind: str, port: int = 0) -> None:
        self.key = secrets.token_bytes(32)
        self._jobs: dict[str, Job] = {}
        self._server = _Server((bind, port), self._answer)
        self._thread = threading.Thread(target=self._server.serve_forever, name="spark-channel", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @contextmanager
    def job(self, on_progress: Callable[[int, int], None]) -> Iterator[tuple[str, Job]]:
        """A job and its name, known for the time of the block."""
        name, job = secrets.token_hex(8), Job(on_progress)
        self._jobs[name] = job
        try:
            yield name, job
        finally:
            del self._jobs[name]

    def _answer(self, line: Line) -> None:
        with suppress(OSError, EOFError, AuthenticationError):
            # Strangers prove themselves first: who could have a challenge answered could pass ours on to us.
            deliver_challenge(line, self.key)
            answer_challenge(line, self.key)
            said = json.loads(line.recv_bytes())
            job = self._jobs.get(said["job"])
            if job is None:
                _send(line, _STOP)
            else:
                job.serve(line, said["execution"])


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
    """A worker's end, for one execution of a job."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._stopped = False
        self._told_at = 0.0

    @property
    def is_stopped(self) -> bool:
        """Whether the driver wants no more of this execution, or is gone."""
        with self._failing_means_stop():
            if not self._stopped and self._line.poll(0):
                self._stopped = self._line.recv_bytes() == _STOP
        return self._stopped

    def announce(self, path: str) -> None:
        """Ask whether the file may be created. Raises AttemptAbandoned."""
        with self._failing_means_stop():
            if not self._stopped:
                self._line.send_bytes(json.dumps({"file": path}).encode())
                self._stopped = self._line.recv_bytes() == _STOP
        if self._stopped:
            raise AttemptAbandoned("the driver wants no more of this execution")

    def progress(self, rows_done: int, rows_total: int) -> None:
        """Tell how far the work is, now and then."""
        now = time.monotonic()
        if now - self._told_at < PROGRESS_EVERY_S:
            return
        self._told_at = now
        with self._failing_means_stop():
            self._line.send_bytes(json.dumps({"rows": [rows_done, rows_total]}).encode())

    @contextmanager
    def _failing_means_stop(self) -> Iterator[None]:
        try:
            yield
        except (OSError, EOFError):
            self._stopped = True


@contextmanager
def connected(address: tuple[str, int], key: bytes, job: str, execution: int) -> Iterator[WorkerLine]:
    """A worker's line to the driver; raises OptimizerError when it is not reached, AttemptAbandoned when not wanted."""
    try:
        with socket.create_connection(address, timeout=CONNECT_S) as made:
            made.settimeout(None)
            _speak_at_once(made)
            line: Line = Connection(made.detach())
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
            line.send_bytes(json.dumps({"job": job, "execution": execution}).encode())
            wanted = line.recv_bytes() == _GO
        except (OSError, EOFError, AuthenticationError) as error:
            raise AttemptAbandoned(f"the driver closed the connection: {error}") from error
        if not wanted:
            raise AttemptAbandoned("the driver wants no such execution")
        yield WorkerLine(line)


def _speak_at_once(connection: socket.socket) -> None:
    # Messages are short and answered: collecting them would hold each back for as long as an acknowledgement takes.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _send(line: Line, said: bytes) -> None:
    # Who hung up is told nothing; the thread that reads its line sees to the rest.
    with suppress(OSError):
        line.send_bytes(said)
