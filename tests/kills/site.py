"""One table with its writer, a coordinator and an optimizer that die, and what must hold in the end."""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from amoro_cli.client import AdminClient
from amoro_cli.connection import Endpoint, recorded_address
from amoro_core import failpoints
from amoro_core.errors import AmoroError, CommitConflict, WorkFailed
from amoro_core.iceberg.catalog.catalogs import close_catalogs
from amoro_core.model.text_sanitizing import Secret
from amoro_core.protocol import admin_pb2 as pb
from tests.acceptance.processes import PATIENCE_S, WITHOUT_PAGES, free_port, install
from tests.engine import oracle
from tests.engine.parquet_rows import local_path
from tests.kills.nursery import Child, Nursery
from tests.model.lake import COPIES, Lake, ids_are, process_of, row

#: So long, a busy machine does not look like a death. Optimizers that died are released by hand, and nothing waits.
SILENCE = "30s"
PROPERTIES = {
    "self-optimizing.target-size": "4000",
    "self-optimizing.major.trigger.duplicate-ratio": "1.0",
    f"{COPIES}.enabled": "true",
    f"{COPIES}.min-avg-row-group-size-bytes": "0",
}
TABLE = "cat.db.t"
S = TypeVar("S", bound="Site")
ACTIVE = ("running", "committing", "commit_unknown")
LANDED = ("success", "partial")


class Site:
    """A state directory, a catalog and a partitioned table; processes are started as they are asked for."""

    def __init__(
        self,
        directory: Path,
        nursery: Nursery,
        properties: Mapping[str, str] = PROPERTIES,
        *,
        with_tasks: bool = False,
        silence: str = SILENCE,
    ) -> None:
        self._nursery, self._with_tasks = nursery, with_tasks
        self._copies = f"{COPIES}.enabled" in properties
        settings = f"heartbeat-interval: 300ms\nheartbeat-timeout: {silence}\n"
        self._installation = install(directory, settings)
        self.home = self._installation.home
        self.armed = {"coordinator": "", "optimizer": ""}  # their failpoints
        self._port = free_port()
        self._started = 0
        self.lake = Lake.created(self._installation.catalog, partitioned=True, properties=properties)
        self.lake.append([row(id_, part) for part in "ab" for id_ in range(8)], files=3)
        self.coordinator: Child | None = None
        self.optimizer: Child | None = None

    def set(self, settings: str) -> None:
        """More settings, for the coordinators that are started from now on."""
        with (self.home / "amoro.yaml").open("a", encoding="utf-8") as file:
            file.write(settings)

    # Processes

    def start_coordinator(self, armed: str = "") -> None:
        """A coordinator, killed first where one runs."""
        if self.coordinator is not None:
            self.coordinator.kill()
        self.armed["coordinator"] = armed
        self.coordinator = self._start(("up", "--port", str(self._port), "--without-optimizer"), armed)

    def start_optimizer(self, armed: str = "") -> None:
        """An optimizer, killed first where one runs. It waits for its coordinator."""
        if self.optimizer is not None:
            self.optimizer.kill()
        address = f"127.0.0.1:{self._port}"
        self.armed["optimizer"] = armed
        options = ("--address", address, "--threads", "1", "--heartbeat-interval", "300ms")
        self.optimizer = self._start(("optimizer", "run", *options), armed)

    def _start(self, arguments: tuple[str, ...], armed: str) -> Child:
        self._started += 1
        log = self._installation.directory / f"{self._started}-{arguments[0]}.log"
        return self._nursery.start(
            arguments, {**self._installation.environment, **WITHOUT_PAGES}, armed, log, self._with_tasks
        )

    def close(self) -> None:
        for child in (self.coordinator, self.optimizer):
            if child is not None:
                child.kill()
        close_catalogs()
        self._installation.close()

    def said(self) -> str:
        """The logs of all processes, and where the living ones are, for the report of a failure."""
        for child in (self.coordinator, self.optimizer):
            if child is not None:
                child.ask_where()
        time.sleep(1.0)
        logs = sorted(self._installation.directory.glob("*.log"), key=lambda path: path.stat().st_mtime)
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')}" for log in logs)

    def release_optimizers(self) -> None:
        """Tell the coordinator that all optimizers that it knows are gone; what they held is planned again."""
        self.wait(lambda: self.ask(release_all) is not None, "the optimizers are released")

    # Asking

    def ask(self, call: Callable[[AdminClient], Any]) -> Any:
        """What the coordinator answers; None when it does not, or refuses."""
        return ask(self.home, call)

    def optimize(self, kind: str = "full") -> bool:
        """Ask for optimizing; whether a process was planned."""
        request = pb.OptimizeTableRequest(table=TABLE, type=kind, force=kind == "full")
        answer = self.ask(lambda client: client.OptimizeTable(request, timeout=PATIENCE_S))
        return answer is not None and answer.process_id != ""

    # Writing

    def write(self, chance: random.Random, *, alone: bool) -> None:
        """One commit of another writer; beside a process that works, nothing that names files."""
        ids = chance.sample(range(12), 2)
        rows = [row(id_, chance.choice("ab"), str(chance.randrange(10**6))) for id_ in ids]
        match chance.choice(("append", "upsert", "positions", "equal", "overwrite", "remove")):
            case "append":
                self.lake.append(rows)
            case "positions":
                self.lake.delete_positions(ids_are(*ids))
            case "equal":
                self.lake.delete_equal(rows)
            case "overwrite":
                self.lake.overwrite(ids_are(ids[0]), {"value": "over"})
            case "remove" if alone:
                self.lake.remove_file(ids_are(ids[0]))
                self.lake.append(rows)  # without data files there is nothing to optimize
            case _:
                self.lake.upsert(rows)

    # Looking

    def processes(self) -> dict[str, tuple[str, str]]:
        """Status and failure's code of each process in the state database."""
        return {one: (status, code) for one, status, code in self._rows(_PROCESSES)}

    def _rows(self, query: str) -> Sequence[tuple[Any, ...]]:
        path = self.home / "amoro.db"
        if not path.exists():
            return []
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30.0)) as db:
            try:
                return db.execute(query).fetchall()
            except sqlite3.OperationalError as error:
                if "no such table" not in str(error):
                    raise
                return []  # the first coordinator died before it had made its tables

    def events(self) -> dict[int, str]:
        """The table of each event that is kept, by its number."""
        return dict(self._rows("SELECT event_id, table_name FROM event"))

    @property
    def is_busy(self) -> bool:
        return any(status in ACTIVE for status, _ in self.processes().values())

    @property
    def is_listening(self) -> bool:
        return recorded_address(self.home) is not None

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Raises AssertionError when the condition does not hold in time."""
        until = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < until, f"not within {PATIENCE_S:g} s: {what}"
            time.sleep(0.02)

    # What must hold

    def require(self, totals: Counter[str]) -> None:
        """Undisturbed, all comes to its end: rows are the model's, each process landed once or says that it did not."""
        self._keep_alive()
        self.wait(lambda: not self.is_busy, "all processes end")
        before = len(self.processes())
        self.lake.append([row(1, "a"), row(1, "b")])
        self.wait(lambda: self.optimize() or self.is_busy, "the table can be optimized")
        self.wait(lambda: not self.is_busy, "the last process ends")
        processes = self.processes()
        assert len(processes) == before + 1
        assert list(processes.values())[-1] == ("success", "")
        self.lake.require()
        landed = [found for one in self.lake.table.metadata.snapshots if (found := process_of(one)) is not None]
        assert sorted(set(landed)) == sorted(one for one, (status, _) in processes.items() if status in LANDED)
        # Clustering alone may commit more than once: group by group.
        done, clustered = self._rows(_DONE), {one for (one,) in self._rows(_CLUSTERED)}
        assert Counter(landed) == Counter(one for one, _ in done)
        assert {one for one, count in Counter(landed).items() if count > 1} <= clustered
        groups = [(one, group) for one, told in done for group in json.loads(told)]
        assert len(groups) == len(set(groups)), "a group was committed twice"
        # Losing to a writer, or a task whose optimizers died too often.
        codes = {code for status, code in processes.values() if status == "failed"}
        assert codes <= {CommitConflict.code, WorkFailed.code}, codes
        assert self._rows("SELECT count(*) FROM commit_attempt WHERE outcome IN ('sent', 'unknown')") == [(0,)]
        # No task is lost: those of a process that landed wholly have all been done, and nobody holds one.
        assert self._rows(_TASKS_NOT_DONE) == [(0,)]
        assert self._rows("SELECT count(*) FROM task_runtime WHERE status IN ('scheduled', 'acked')") == [(0,)]
        assert self._rows("PRAGMA integrity_check") == [("ok",)]
        paths = [file.path for file in oracle.live_files(self.lake.table)]
        assert not self._copies or any("-copied" in path for path in paths)
        missing = [path for path in paths if not Path(local_path(path)).exists()]
        assert missing == []
        totals["groups committed"] += len(groups)
        for status, code in processes.values():
            totals[f"processes {status} {code}".strip()] += 1

    def _of_coordinator(self) -> str:
        """The command lines of all processes that it began."""
        assert self.coordinator is not None
        parent, found = str(self.coordinator.pid), []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it is gone
                if (process / "stat").read_text().rpartition(")")[2].split()[1] == parent:
                    found.append((process / "cmdline").read_text())
        return " ".join(found)

    def _keep_alive(self) -> None:
        """Two processes with nothing armed: those that live, or new ones."""
        if self.coordinator is None or self.armed["coordinator"] or not self.coordinator.is_alive:
            self.start_coordinator()
        if self.optimizer is None or self.armed["optimizer"] or not self.optimizer.is_alive:
            self.start_optimizer()


def ask(home: Path, call: Callable[[AdminClient], Any]) -> Any:
    """What the coordinator of the state directory answers; None when it does not, or refuses."""
    address = recorded_address(home)
    if address is None:
        return None
    token = (home / "admin.token").read_text().strip()
    with closing(AdminClient(Endpoint(address, Secret(token)))) as client:
        try:
            return call(client)
        except AmoroError as error:
            print(f"asked in vain: {error.code} {error.message}")
            return None


def release_all(client: AdminClient) -> bool:
    """Unregister every optimizer; one that lives registers again."""
    for one in client.ListOptimizers(pb.ListOptimizersRequest()).optimizers:
        client.ReleaseOptimizer(pb.ReleaseOptimizerRequest(optimizer_id=one.optimizer_id))
    return True


_PROCESSES = "SELECT process_id, status, failure_code FROM table_process ORDER BY process_id"
_DONE = "SELECT process_id, groups_json FROM commit_attempt WHERE outcome = 'done'"
_CLUSTERED = "SELECT process_id FROM table_process WHERE process_type = 'cluster'"
_TASKS_NOT_DONE = (
    "SELECT count(*) FROM task_runtime JOIN table_process USING (process_id) "
    "WHERE table_process.status = 'success' AND task_runtime.status <> 'success'"
)


@contextmanager
def required(site: S, totals: Counter[str] | None = None) -> Iterator[S]:
    """Offer the site, and require at the end what must hold; a failure tells what its processes said."""
    try:
        yield site
        site.require(Counter() if totals is None else totals)
    except BaseException:
        print(site.said())
        raise
    finally:
        site.close()


OF_OPTIMIZER = sorted(name for name in failpoints.NAMES if name.startswith("task."))
#: Nobody cancels anything here, and no rewrite removes files after its work.
OF_COORDINATOR = sorted(
    name for name in failpoints.NAMES if not name.startswith(("task.", "cancel.", "clear.", "sweep.", "instance."))
)
#: Reached only by the next coordinator after a death there.
FOLLOWING = {"commit.after_intent": "commit.before_resend"}
#: Silence counts only after so long, so that a busy machine does not look like a death.
SHORT_SILENCE = "4s"
#: More deaths of its optimizers than that make a task poisoned, which ends a process as it should.
MOST_OPTIMIZERS_LOST = 2
ANY_MOMENT = "any moment"
#: A coordinator that is busy, or starts, is not asked at once again.
ASKS_AFTER_S = 0.1


class Rounds:
    """Counts each kill by where it struck, as far as the failpoint that was armed says."""

    struck = ("coordinator", "coordinator", "optimizer")

    def __init__(
        self, site: Site, chance: random.Random, totals: Counter[str], kinds: Sequence[str] = ("full",)
    ) -> None:
        """`kinds` are asked for by chance."""
        self._site, self._kinds, self._chance, self._totals = site, kinds, chance, totals
        self._lost = 0
        self.kills = 0

    def run(self, kills: int) -> None:
        """Round after round until so many processes were killed."""
        self._begin()
        while self.kills < kills:
            self._one()
            self._totals["rounds"] += 1

    def _begin(self) -> None:
        self._site.start_coordinator()
        self._site.wait(lambda: self._site.is_listening, "the coordinator listens")
        self._site.start_optimizer()

    def _one(self) -> None:
        """Ask until a process is planned; write, and kill by chance, until it has ended."""
        site, chance, ask = self._site, self._chance, self._prepared()
        known, asked, asks_at = len(site.processes()), False, 0.0
        until = time.monotonic() + PATIENCE_S
        strikes_at = self._next_strike(until)
        writes_at = time.monotonic() + chance.uniform(0.0, 0.6) if chance.random() < 0.5 else until
        while not asked or site.is_busy:
            assert time.monotonic() < until, "the round does not end"
            if not asked and time.monotonic() > asks_at:
                asks_at = time.monotonic() + ASKS_AFTER_S
                asked = ask() or len(site.processes()) > known
            if time.monotonic() > writes_at:
                writes_at = until
                site.write(chance, alone=False)
            if time.monotonic() > strikes_at:
                strikes_at = self._next_strike(until, again=True)
                self._strike(chance.choice(self.struck))
            self._bury()
            time.sleep(0.02)
        self._look()

    def _prepared(self) -> Callable[[], bool]:
        """Write; what asks for the process of the round."""
        self._lost = 0
        for _ in range(self._chance.randrange(1, 4)):
            self._site.write(self._chance, alone=True)
        return lambda: self._site.optimize(self._chance.choice(self._kinds))

    def _next_strike(self, until: float, *, again: bool = False) -> float:
        is_struck = not again and self._chance.random() < 0.5
        return time.monotonic() + self._chance.uniform(0.0, 1.0) if is_struck else until

    def _look(self) -> None:
        self._site.lake.require()
        for who, name in tuple(self._site.armed.items()):
            if name:  # not reached
                self._strike(who)

    def _strike(self, who: str) -> None:
        if getattr(self._site, who).kill():
            self._count(who, ANY_MOMENT)
            self._restart(who)

    def _bury(self) -> None:
        """Start anew what died by its failpoint."""
        for who in sorted(set(self.struck)):
            if not getattr(self._site, who).is_alive:
                armed = self._site.armed[who].removesuffix("=kill")
                assert armed, f"the {who} ended by itself"
                self._count(who, armed)
                self._restart(who)

    def _count(self, who: str, where: str) -> None:
        self.kills += 1
        self._lost += who == "optimizer"
        self._totals["kills"] += 1
        self._totals[f"{where} × {who}"] += 1
        print(f"killed {who} at {where}")

    def _restart(self, who: str) -> None:
        of = OF_COORDINATOR if who == "coordinator" else OF_OPTIMIZER
        self._start(who, of if who == "coordinator" or self._lost < MOST_OPTIMIZERS_LOST else ())

    def _start(self, who: str, points: Sequence[str]) -> None:
        """Start it; most die at one of the points, or where only they come after the death of the one before."""
        died_at = self._site.armed[who].removesuffix("=kill")
        name = FOLLOWING.get(died_at, self._chance.choice(points)) if points and self._chance.random() < 0.7 else ""
        start = self._site.start_coordinator if who == "coordinator" else self._site.start_optimizer
        start(f"{name}=kill" if name else "")


def run_rounds(
    seed: int,
    kills: int,
    directory: Path,
    totals: Counter[str],
    *,
    kinds: Sequence[str] = ("full",),
    properties: Mapping[str, str] = PROPERTIES,
) -> None:
    """At least so many kills over one table, and what must hold afterwards."""
    with Nursery() as nursery, required(Site(directory, nursery, properties, silence=SHORT_SILENCE), totals) as made:
        Rounds(made, random.Random(seed), totals, kinds).run(kills)
    totals["worlds"] += 1
