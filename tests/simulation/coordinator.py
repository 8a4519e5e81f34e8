"""A coordinator that lives on one thread: its pools queue what they are to do, and it may die at any of its effects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from amoro_core.actions.registry import Actions
from amoro_core.bootstrap.composition import CoordinatorHooks, Dependencies, Services
from amoro_core.bootstrap.settings import Settings
from amoro_core.containers.base import ExternalContainer
from amoro_core.formats.tables import Formats
from amoro_core.loops.coordinator import CoordinatorLoops, Limits
from amoro_core.model.group_config import EXTERNAL
from amoro_core.model.processes import Attempt, CatalogConfig, ResourceGroup
from amoro_core.model.task_payload import RewriteOutput, WorkResult
from amoro_core.scheduling.policy import POLICIES
from amoro_core.services.optimizers import Registered
from amoro_core.services.task_lifecycle import Failure, ScheduledTask
from amoro_core.store import groups
from amoro_core.store.database import Connection, Store
from tests.condemning import Sweeping
from tests.simulation.lake_format import LakeFormat
from tests.store.builders import open_store
from tests.work import as_result

ACK = timedelta(seconds=30)
CLOSE = timedelta(minutes=10)
HEARTBEAT = timedelta(seconds=60)
SETTINGS = replace(
    Settings(), heartbeat_timeout=HEARTBEAT, blocker_timeout=timedelta(minutes=1), history_keep=timedelta(hours=1)
)
GROUPS = ("default", "other")
CATALOG = CatalogConfig("cat", ())


class Died(BaseException):
    """The coordinator is no more: nothing that comes after has an effect."""


class MortalStore:
    """The store of a coordinator; around each write others may act, or it dies. The dead neither write nor read."""

    only_reads = False

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

    def submit_all(self, runs: Sequence[Callable[[Connection], Any]]) -> list[Future[Any]]:
        self._at("write")
        self._refuse_dead()
        futures = self._store.submit_all(runs)
        wait(futures)
        self._at("written")
        self._refuse_dead()
        return futures

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
        self.file = open_store(path)
        self.jobs: list[tuple[str, Callable[[], object]]] = []
        self.mortal = MortalStore(self.file, at)
        store: Store = self.mortal
        around = CoordinatorHooks(
            commit_due=lambda process_id, catalog: self.loops.commit_due(process_id, catalog),
            left_over=lambda process_id, catalog: self.loops.clean_up_due(process_id, catalog),
            explore=lambda: None,
            address=str,
            local_address=str,
        )
        external = {EXTERNAL: ExternalContainer(path.parent)}
        parts = Dependencies(
            Formats([lake]),
            external,
            POLICIES,
            lambda: [CATALOG],
            Actions((Sweeping(lake.lake.to_be_swept),)),
            clock=clock,
            monotonic=monotonic,
        )
        made = Services(store, path.parent, SETTINGS, {}, around, parts)
        self.tables, self.planning, self.optimizing = made.tables, made.planning, made.optimizing
        self.optimizers, self.committing, self.blockers = made.optimizers, made.committing, made.blockers
        self.catalogs, self.groups, self.maintaining = made.catalogs, made.groups, made.maintaining
        self.starting = made.starting
        self.loops = CoordinatorLoops(
            made,
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
            kinds=("rewrite", "cluster"),
            max_cluster_bytes=1 << 40,
        )

    def heartbeat(self, token: str, threads: int, running: tuple[Attempt, ...]) -> tuple[list[Attempt], bool]:
        optimizer = self.optimizers.authenticate(token)
        self.optimizers.touch(optimizer.optimizer_id, threads, dict.fromkeys(running, (0, 1)))
        return self.optimizing.abandoned(optimizer.optimizer_id, running), optimizer.draining

    def poll(self, token: str, threads: tuple[int, ...]) -> list[ScheduledTask]:
        optimizer = self.optimizers.authenticate(token)
        if optimizer.draining:
            return []
        return self.optimizing.poll(optimizer.optimizer_id, optimizer.group, threads)

    def ack(self, token: str, attempt: Attempt) -> bool:
        return self.optimizing.ack(self.optimizers.authenticate(token).optimizer_id, [attempt]) != [None]

    def complete(self, token: str, attempt: Attempt, result: RewriteOutput | WorkResult | Failure) -> bool:
        return self.optimizing.complete(self.optimizers.authenticate(token).optimizer_id, attempt, as_result(result))

    def deregister(self, token: str) -> None:
        optimizer = self.optimizers.authenticate(token)
        self.optimizing.dismiss(optimizer.optimizer_id, "the optimizer left", lost=False)
        self.optimizers.forget(optimizer.optimizer_id)
