"""A coordinator that lives on one thread: its pools queue what they are to do, and it may die at any of its effects."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from amoro_core.actions.known import Actions
from amoro_core.formats.tables import Formats, Tables
from amoro_core.loops.coordinator import CoordinatorLoops, Limits
from amoro_core.model.processes import Attempt, CatalogConfig, ResourceGroup
from amoro_core.model.rewrite import RewriteOutput
from amoro_core.services.blockers import BlockerService
from amoro_core.services.catalogs import CatalogService
from amoro_core.services.committing import CommittingService
from amoro_core.services.containers import ContainerService, Joining, Registrations
from amoro_core.services.groups import GroupService
from amoro_core.services.history import HistoryService
from amoro_core.services.optimizers import OptimizerService, Registered
from amoro_core.services.optimizing import Failure, HandedTask, OptimizingService, Signals
from amoro_core.services.planning import PlanningService
from amoro_core.services.tables import TableService
from amoro_core.store import groups, tables
from amoro_core.store.database import Connection, Store
from tests.simulation.lake_format import LakeFormat
from tests.work import as_result

ACK = timedelta(seconds=30)
CLOSE = timedelta(minutes=10)
HEARTBEAT = timedelta(seconds=60)
GROUPS = ("default", "other")
CATALOG = CatalogConfig("cat", ())


class Died(BaseException):
    """The coordinator is no more: nothing that comes after has an effect."""


class MortalStore:
    """The store of a coordinator; around each write others may act, or it dies. The dead neither write nor read."""

    def __init__(self, store: Store, at: Callable[[str], None]) -> None:
        self._store = store
        self._at = at
        self.dead = False

    def write(self, run: Callable[[Connection], Any]) -> Any:
        self._at("write")
        self._refuse_dead()
        result = self._store.write(run)
        self._at("written")
        self._refuse_dead()
        return result

    def read(self, run: Callable[[Connection], Any]) -> Any:
        self._refuse_dead()
        return self._store.read(run)

    def require_own(self) -> None:
        self._refuse_dead()
        self._store.require_own()

    def _refuse_dead(self) -> None:
        if self.dead:
            raise Died


class Queue(Executor):
    """Workers of one pool; what they are to do waits until somebody lets them."""

    def __init__(self, jobs: list[tuple[str, Callable[[], object]]], name: str) -> None:
        self._jobs = jobs
        self._name = name

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self._jobs.append((self._name, lambda: fn(*args, **kwargs)))
        return Future()


def without_containers(store: Store, clock: Callable[[], datetime]) -> ContainerService:
    """A service that has nothing to keep: here optimizers come and go by themselves."""
    return ContainerService(
        store,
        clock,
        {},
        Joining(str, Path(), HEARTBEAT),
        Registrations(list, lambda optimizer_id: None, lambda optimizer_id: None),
    )


class Coordinator:
    """All services and loops' steps on one state file, as `app` wires them."""

    def __init__(
        self,
        path: Path,
        lake: LakeFormat,
        clock: Callable[[], datetime],
        monotonic: Callable[[], float],
        at: Callable[[str], None],
    ) -> None:
        self.file = Store.open(path)
        self.jobs: list[tuple[str, Callable[[], object]]] = []
        self.mortal = MortalStore(self.file, at)
        store: Store = self.mortal  # type: ignore[assignment]
        formats = Formats([lake])
        self.catalogs = CatalogService(store, formats, lambda: [CATALOG], dict)
        tables_of = Tables(formats, self._catalog, lambda name: store.read(lambda db: tables.find(db, name)))
        self.tables = TableService(store, tables_of, clock)
        signals = Signals(
            work_planned=lambda: None,
            commit_due=lambda process_id, catalog: self.loops.commit_due(process_id, catalog),
            left_over=lambda process_id, catalog: self.loops.left_over(process_id, catalog),
            changed=lambda: None,
        )
        self.planning = PlanningService(
            store, tables_of, Actions().of, clock, work_planned=lambda: None, changed=lambda: None
        )
        self.optimizing = OptimizingService(store, tables_of, clock, signals)
        self.optimizers = OptimizerService(store, clock, monotonic, self.optimizing.adopt, HEARTBEAT)
        self.groups = GroupService(store, clock)
        self.blockers = BlockerService(store, clock, timedelta(minutes=1))
        self.committing = CommittingService(store, tables_of, Actions().of, clock, lambda: None)
        self.history = HistoryService(store, clock, timedelta(hours=1))
        self.containers = without_containers(store, clock)
        self.loops = CoordinatorLoops(
            self,
            Limits(ACK, CLOSE, timedelta(minutes=3), explore_threads=2, explore_queue=100),
            watch=True,
            monotonic=monotonic,
            workers=lambda name, threads: Queue(self.jobs, name),
        )

    def start(self) -> None:
        def prepare(db: Connection) -> None:
            for name in GROUPS:
                groups.add(db, ResourceGroup(name))

        self.mortal.write(prepare)
        self.optimizing.recover()

    def kill(self) -> None:
        """Nothing of it has an effect any more; its file can be opened by another."""
        self.mortal.dead = True
        self.jobs.clear()

    def _catalog(self, name: str) -> CatalogConfig:
        assert name == CATALOG.name
        return CATALOG

    # What optimizers call, as the servicer does it

    def register(self, group: str, threads: int, running: tuple[Attempt, ...], previous_id: str) -> Registered:
        return self.optimizers.register(
            group=group,
            threads=threads,
            memory_bytes=1,
            labels={},
            heartbeat_interval=timedelta(seconds=10),
            running=running,
            previous_id=previous_id,
        )

    def heartbeat(self, token: str, threads: int, running: tuple[Attempt, ...]) -> tuple[list[Attempt], bool]:
        optimizer = self.optimizers.authenticate(token)
        self.optimizers.touch(optimizer.optimizer_id, threads, dict.fromkeys(running, (0, 1)))
        return self.optimizing.abandoned(optimizer.optimizer_id, running), optimizer.draining

    def poll(self, token: str, threads: tuple[int, ...]) -> list[HandedTask]:
        optimizer = self.optimizers.authenticate(token)
        if optimizer.draining:
            return []
        return self.optimizing.poll(optimizer.optimizer_id, optimizer.group, threads)

    def ack(self, token: str, attempt: Attempt) -> bool:
        return self.optimizing.ack(self.optimizers.authenticate(token).optimizer_id, [attempt]) != [None]

    def complete(self, token: str, attempt: Attempt, result: RewriteOutput | Failure) -> bool:
        return self.optimizing.complete(self.optimizers.authenticate(token).optimizer_id, attempt, as_result(result))

    def deregister(self, token: str) -> None:
        optimizer = self.optimizers.authenticate(token)
        self.optimizing.dismiss(optimizer.optimizer_id, "the optimizer left", lost=False)
        self.optimizers.forget(optimizer.optimizer_id)
