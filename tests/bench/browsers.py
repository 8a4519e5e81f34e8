"""Fifty browsers beside two optimizers: `python -m tests.bench.browsers [--seconds 30] [--pairs 3]`.

Rounds with and without browsers take turns. Two optimizers of four threads are played, each task 0.2 s, so that what
they are handed depends on the coordinator alone, which is a process of its own. Of the browsers five are Chromium and
the others streams that fetch the content of their page at each hint, as its script does. Prints for each round how many
tasks were scheduled, the 99th percentile of their calls, and how much of a core the coordinator took.

Coordinator, optimizers and browsers are processes of their own, so that none waits for the other's Python. Browsers are
other people's machines in life: here they get of the cores what the coordinator and the optimizers leave.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import grpc

from amoro_core.launcher import SWITCH_INTERVAL_S
from amoro_core.model.processes import CatalogConfig, TaskId
from amoro_core.protocol import optimizing_pb2 as pb
from amoro_core.protocol import rewrite_pb2 as rewrite
from amoro_core.protocol.optimizing_pb2_grpc import OptimizingServiceStub
from amoro_core.store import catalogs, processes, tables, tasks
from amoro_core.store.database import Connection, Store
from tests.browser.chromium import Seat, started
from tests.dashboard import states
from tests.dashboard.served import serving
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.store import builders

THREADS, TASK_S = 4, 0.2
REAL, PLAYED = 5, 45
PROCESS = "0199eeee-0001-7000-8000-000000000000"
#: The pages that are open, each by as many browsers, and the topics of their hints.
PAGES = {
    "/": "tables,processes,events",
    "/processes": "processes",
    f"/processes/{PROCESS}": f"processes:{PROCESS}",
    "/optimizers": "optimizers,processes",
    "/groups": "groups,optimizers,processes",
}
_TASKS = 20_000
_WARM_S = 5.0
_LAST = 19  # nice


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30, help="of each round")
    parser.add_argument("--pairs", type=int, default=3, help="rounds with and without")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--optimize", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--browse", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    if given.serve:
        _serve(Path(given.serve))
        return
    if given.optimize:
        _optimize(*given.optimize)
        return
    if given.browse:
        _browse(int(given.browse[0]), given.browse[1])
        return
    with tempfile.TemporaryDirectory(prefix="amoro-browsers-") as directory:
        os.environ.update(HOME=directory, PYICEBERG_HOME=directory)
        _prepare(Path(directory))
        with _coordinator(Path(directory)) as place:
            _measure(place, given.seconds, given.pairs)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the coordinator's process answers."""

    pid: int
    grpc: str
    port: int
    admin: str
    enrolment: str

    def cpu(self) -> float:
        """Seconds of CPU that it has taken."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _prepare(directory: Path) -> None:
    """Thirty tables with what happened to them, and one whose process has tasks for the whole time."""
    catalog = writer.make_catalog(directory, "real")
    made = writer.make_table(catalog, "db.t", SCHEMA)
    writer.append(made, [row(1)])
    config = CatalogConfig("real", tuple({**catalog.properties, "type": "sql"}.items()))
    home = directory / "home"
    home.mkdir()

    def fill(db: Connection) -> None:
        states.STATES["typical"](db)
        catalogs.add(db, config)
        identifier = replace(states.table(0).identifier, catalog="real", namespace=("db",), name="t")
        uuid, location = str(made.metadata.table_uuid), made.location()
        table = tables.add(db, states.table(0, identifier=identifier, uuid=uuid, location=location))
        process = builders.process(table, PROCESS, created_at=states.now())
        processes.add(db, process)
        work = rewrite.RewriteInput().SerializeToString()
        task = builders.task(process)
        numbered = (task._replace(task_id=TaskId(PROCESS, number)) for number in range(1, _TASKS + 1))
        tasks.add_many(db, [(one, work) for one in numbered])

    with Store.open(home / "amoro.db") as store:
        store.write(fill)


def _serve(directory: Path) -> None:
    sys.setswitchinterval(SWITCH_INTERVAL_S)  # as `amoro up` does
    with serving(directory / "home") as served:
        coordinator = served.coordinator
        told = (coordinator.address, served.port, served.admin, coordinator.enrolment_token.reveal())
        print(json.dumps([os.getpid(), *told]), flush=True)
        sys.stdin.read()


@contextmanager
def _coordinator(directory: Path) -> Iterator[Place]:
    command = [sys.executable, "-m", "tests.bench.browsers", "--serve", str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield Place(*json.loads(process.stdout.readline()))
        process.communicate("", timeout=60)


def _optimize(address: str, token: str) -> None:
    """Play two optimizers; each line that comes in is answered by what they did since the one before."""
    played = Optimizers(address, token)
    threads = played.start()
    for _ in sys.stdin:
        print(json.dumps(played.told()), flush=True)
    played.over.set()
    for thread in threads:
        thread.join(30)


@dataclass
class Optimizers:
    """Two that are played: what they were handed, and how long their calls took."""

    address: str
    enrolment: str
    over: threading.Event = field(default_factory=threading.Event)
    handed: int = 0
    took: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> list[threading.Thread]:
        made = []
        for _ in range(2):
            stub = OptimizingServiceStub(grpc.insecure_channel(self.address))
            request = pb.RegisterRequest(
                group="default", threads=THREADS, memory_bytes=2**30, protocol_version=1, heartbeat_interval_ms=5000
            )
            token = stub.Register(request, metadata=_bearer(self.enrolment)).token
            made += [threading.Thread(target=self._work, args=(stub, token, number)) for number in range(THREADS)]
            made.append(threading.Thread(target=self._beat, args=(stub, token)))
        for thread in made:
            thread.start()
        return made

    def told(self) -> tuple[int, float]:
        """How many tasks they were handed, and the 99th percentile of their calls in ms; both anew from here on."""
        with self.lock:
            handed, took = self.handed, sorted(self.took)
            self.handed, self.took = 0, []
        return handed, took[max(0, round(len(took) * 0.99) - 1)] if took else 0.0

    def _beat(self, stub: OptimizingServiceStub, token: str) -> None:
        while not self.over.wait(5):
            self._timed(lambda: stub.Heartbeat(pb.HeartbeatRequest(threads=THREADS), metadata=_bearer(token)))

    def _work(self, stub: OptimizingServiceStub, token: str, number: int) -> None:
        known = _bearer(token)
        while not self.over.is_set():
            wanted = pb.PollTaskRequest(thread_ids=[number], wait_ms=1000)
            for task in self._timed(lambda wanted=wanted: stub.PollTask(wanted, metadata=known)).tasks:
                with self.lock:
                    self.handed += 1
                self._timed(lambda task=task: stub.AckTask(pb.AckTaskRequest(attempts=[task.attempt]), metadata=known))
                time.sleep(TASK_S)
                result = pb.TaskResult(attempt=task.attempt, rewrite=rewrite.RewriteOutput())
                ended = pb.CompleteTaskRequest(results=[result])
                self._timed(lambda ended=ended: stub.CompleteTask(ended, metadata=known))

    def _timed(self, call: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        answer = call()
        with self.lock:
            self.took.append((time.perf_counter() - began) * 1000)
        return answer


@contextmanager
def _optimizing(place: Place) -> Iterator[Callable[[], tuple[int, float]]]:
    """The two optimizers in a process of their own; asks them what they did since it asked before."""
    command = [sys.executable, "-m", "tests.bench.browsers", "--optimize", place.grpc, place.enrolment]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        asking, answers = process.stdin, process.stdout
        assert asking is not None
        assert answers is not None

        def ask() -> tuple[int, float]:
            asking.write("\n")
            asking.flush()
            handed, p99_ms = json.loads(answers.readline())
            return handed, p99_ms

        yield ask
        process.communicate("", timeout=60)


def _bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


class Open:
    """A page that fetches its content after a hint, as `live.js` does: one fetch is planned at a time."""

    def __init__(self, fetch: Callable[[str], object]) -> None:
        self._fetch = fetch
        self._lock = threading.Lock()
        self._fetching = threading.Lock()
        self._hinted = 0
        self._planned: threading.Timer | None = None
        self._timers: list[threading.Timer] = []  # of fetches that have not ended

    def plan(self, revision: int) -> None:
        with self._lock:
            self._hinted = max(self._hinted, revision)
            if self._planned is None:
                self._planned = threading.Timer(random.random() * 0.3, self._refresh)
                self._timers = [*(timer for timer in self._timers if timer.is_alive()), self._planned]
                self._planned.start()

    def leave(self) -> None:
        with self._lock:
            timers = self._timers
        for timer in timers:
            timer.join()

    def _refresh(self) -> None:
        with self._lock:
            hinted, self._planned = str(self._hinted), None
        with self._fetching:
            self._fetch(hinted)


def _browse(port: int, token: str) -> None:
    """Fifty browsers until nothing more comes in; then tells what the streams had."""
    os.nice(_LAST)
    over = threading.Event()
    with started() as browser:
        seats = [Seat.of(browser, f"http://127.0.0.1:{port}", token) for _ in range(REAL)]
        for seat, path in zip(seats, PAGES, strict=True):
            seat.look(path)
        _give_way(os.getpid())
        streams = Streams(port, token)
        streams.play()
        print("open", flush=True)
        threading.Thread(target=_wait, args=(over,)).start()
        while not over.is_set():
            seats[0].page.wait_for_timeout(100)  # their events
        streams.close()
        for seat in seats:
            assert seat.wrong == [], seat.wrong
    print(f"{streams.hints} hints and {streams.fetched} fetches of {PLAYED} streams", flush=True)


def _wait(over: threading.Event) -> None:
    sys.stdin.read()
    over.set()


def _give_way(process: int) -> None:
    """It and those that it has started come after all others. Sessions share the cores among them, so nice is not
    enough: Chromium has a session of its own."""
    with suppress(FileNotFoundError):  # a kernel that does not group by session, or a process that has ended
        Path(f"/proc/{process}/autogroup").write_text(str(_LAST))
    for thread in Path(f"/proc/{process}/task").iterdir():
        with suppress(FileNotFoundError):
            for child in (thread / "children").read_text().split():
                _give_way(int(child))


@contextmanager
def _browsing(place: Place) -> Iterator[None]:
    """Fifty browsers in processes of their own, which are open during the block."""
    command = [sys.executable, "-m", "tests.bench.browsers", "--browse", str(place.port), place.admin]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield
        told, _ = process.communicate("", timeout=300)
        assert process.returncode == 0
        print(f"    {told.strip()}", flush=True)


class Streams:
    """Those of the browsers that are played, from `play` to `close`."""

    def __init__(self, port: int, token: str) -> None:
        self.port = port
        self.token = token
        self.fetched = 0
        self.hints = 0
        self._over = threading.Event()
        self._streams: list[HTTPResponse] = []
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def play(self) -> None:
        """Open them."""
        paths = itertools.islice(itertools.cycle(PAGES.items()), PLAYED)
        self._threads = [threading.Thread(target=self._look, args=one, daemon=True) for one in paths]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._over.set()
        for stream in self._streams:
            with suppress(OSError, ValueError, AttributeError):
                stream.fp.raw._sock.shutdown(2)  # what waits for its next hint ends
        for thread in self._threads:
            thread.join(10)

    def _look(self, path: str, topics: str) -> None:
        headers = {"Authorization": f"Bearer {self.token}"}
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=60)) as own:
            self._fetch(own, path, headers)
            page = Open(lambda hinted: self._fetch(own, path, {**headers, "Amoro-Fragment": "1", "Amoro-Hint": hinted}))
            stream = HTTPConnection("127.0.0.1", self.port, timeout=60)
            with closing(stream), suppress(OSError, ValueError, AttributeError):
                stream.request("GET", f"/events/stream?topics={topics}&since=0", headers=headers)
                answer = stream.getresponse()
                with self._lock:
                    self._streams.append(answer)
                for line in answer:
                    if self._over.is_set():
                        break
                    if line.startswith(b"data:"):
                        with self._lock:
                            self.hints += 1
                        page.plan(json.loads(line.removeprefix(b"data:"))["revision"])
            page.leave()

    def _fetch(self, connection: HTTPConnection, path: str, headers: dict[str, str]) -> None:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, (path, answer.status)
        with self._lock:
            self.fetched += 1


@dataclass(frozen=True, slots=True)
class Round:
    """What was measured in one."""

    handed: float  # tasks a second
    p99_ms: float  # of the optimizers' calls
    cores: float  # of the coordinator


def _measure(place: Place, seconds: float, pairs: int) -> None:
    alone, beside = [], []
    with _optimizing(place) as ask:
        for number in range(pairs):
            alone.append(_round(place, ask, seconds))
            with _browsing(place):
                beside.append(_round(place, ask, seconds))
            _tell(f"pair {number + 1}", alone[-1], beside[-1])
    _tell("medians", _median(alone), _median(beside))
    print(f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")


def _round(place: Place, ask: Callable[[], tuple[int, float]], seconds: float) -> Round:
    time.sleep(_WARM_S)
    ask()
    cpu, began = place.cpu(), time.monotonic()
    time.sleep(seconds)
    wall, spent = time.monotonic() - began, place.cpu() - cpu
    handed, p99_ms = ask()
    return Round(handed / wall, p99_ms, spent / wall)


def _median(rounds: list[Round]) -> Round:
    columns = [[getattr(one, name) for one in rounds] for name in ("handed", "p99_ms", "cores")]
    return Round(*map(statistics.median, columns))


def _tell(name: str, alone: Round, beside: Round) -> None:
    print(
        f"{name}: scheduled {alone.handed:.1f} and {beside.handed:.1f} a second ({beside.handed / alone.handed:.1%}), "
        f"p99 of calls {alone.p99_ms:.0f} and {beside.p99_ms:.0f} ms, "
        f"cores {alone.cores:.3f} and {beside.cores:.3f} ({beside.cores - alone.cores:+.1%} of one)",
        flush=True,
    )


if __name__ == "__main__":
    main()
