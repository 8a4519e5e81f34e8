"""The coordinator and the optimizers of the simulation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amoro_core.actions.registry import Actions
from amoro_core.bootstrap.composition import CoordinatorHooks, Dependencies, Services
from amoro_core.bootstrap.settings import Settings
from amoro_core.containers.base import ExternalContainer
from amoro_core.errors import GroupNotFound, UnknownToken
from amoro_core.formats.tables import Formats
from amoro_core.loops.coordinator import CoordinatorLoops, Limits
from amoro_core.model.clustering import CLUSTER, ClusterOutput, group_suffix
from amoro_core.model.files import DataFile, DeleteFile, DeleteKind
from amoro_core.model.group_config import EXTERNAL
from amoro_core.model.processes import Attempt, CatalogConfig, ResourceGroup
from amoro_core.model.task_payload import InputFile, RewriteInput, RewriteOutput, WorkResult
from amoro_core.protocol.codec import decode_cluster_input, encode_cluster_output
from amoro_core.scheduling.policy import POLICIES
from amoro_core.services.optimizers import Registered
from amoro_core.services.task_lifecycle import Failure, ScheduledTask
from amoro_core.store import groups
from amoro_core.store.database import Connection, Store
from tests.condemning import Sweeping
from tests.simulation.lake import Lake, LakeFormat, Rows, data_file, delete_file
from tests.store.builders import open_store
from tests.work import as_result, rewrite_input

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


if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


class Unanswered(Exception):
    """The message or its answer was lost: nobody knows which."""


@dataclass(slots=True)
class Work:
    """What a thread works on."""

    handed: ScheduledTask
    acked: bool = False
    result: RewriteOutput | WorkResult | Failure | None = None

    @property
    def attempt(self) -> Attempt:
        return self.handed.attempt


@dataclass(slots=True)
class Worker:
    """One optimizer process; `step` is one thing that one of its threads does."""

    name: int
    group: str
    threads: int
    token: str = ""
    optimizer_id: str = ""
    draining: bool = False
    gone: bool = False
    hung: bool = False
    works: dict[int, Work] = field(default_factory=dict)

    def step(self, world: Simulation) -> object:
        return self.attempt(world, self._step)

    def attempt(self, world: Simulation, what: Callable[[Simulation], object]) -> object:
        """Do it as far as the coordinator answers, and knows who asks."""
        try:
            return what(world)
        except Unanswered:
            return "unanswered"
        except UnknownToken:
            self.token = ""
            return "unknown"
        except GroupNotFound:
            return "no group"

    def _step(self, world: Simulation) -> str:
        if not self.token:
            return self.register(world)
        if self.hung:
            return self.heartbeat(world)
        what = world.chance.choice(("heartbeat", "poll", "poll", "work", "work", "work"))
        if what == "heartbeat":
            return self.heartbeat(world)
        if what == "poll" and len(self.works) < self.threads and not self.draining:
            return self.poll(world)
        if self.works:
            return self.work(world, world.chance.choice(sorted(self.works)))
        if self.draining:
            return self.leave(world)
        return "idle"

    def register(self, world: Simulation) -> str:
        running, previous = tuple(work.attempt for work in self.works.values() if work.acked), self.optimizer_id
        registered = world.call(lambda: world.coordinator.register(self.group, self.threads, running, previous))
        self.token, self.optimizer_id = registered.token, registered.optimizer.optimizer_id
        self.works = {
            thread: work for thread, work in self.works.items() if work.attempt in registered.adopted or not work.acked
        }
        return f"registered {self.optimizer_id[-6:]}"

    def heartbeat(self, world: Simulation) -> str:
        token, running = self.token, tuple(work.attempt for work in self.works.values() if work.acked)
        abandon, draining = world.call(lambda: world.coordinator.heartbeat(token, self.threads, running))
        self.works = {thread: work for thread, work in self.works.items() if work.attempt not in abandon}
        self.draining = self.draining or draining
        return f"beat, abandons {len(abandon)}"

    def poll(self, world: Simulation) -> str:
        free = tuple(thread for thread in range(1, self.threads + 1) if thread not in self.works)
        token, group = self.token, self.group
        handed = world.call(lambda: world.polled(group, free, lambda: world.coordinator.poll(token, free)))
        for task in handed:
            self.works[task.thread_id] = Work(task)
        return f"got {[f'{task.attempt.task_id.number}-{task.attempt.number}' for task in handed]}"

    def work(self, world: Simulation, thread: int) -> str:
        """Acknowledge, then execute, then report; each may take several tries."""
        work, token = self.works[thread], self.token
        if not work.acked:
            if not world.call(lambda: world.coordinator.ack(token, work.attempt)):
                self._let_go(thread, work)
                return "stale ack"
            work.acked = True
            return "acked"
        if work.result is None:
            if world.faulty and world.chance.random() < 0.08:
                work.result = Failure("AMORO-1001", "out of luck")
            else:
                work.result = execute(work.handed, world.lake)
            return "executed"
        accepted = world.call(lambda: world.completed(token, work))
        self._let_go(thread, work)
        return f"completed {accepted}"

    def _let_go(self, thread: int, work: Work) -> None:
        # While the answer was under way the thread may have got other work.
        if self.works.get(thread) is work:
            del self.works[thread]

    def leave(self, world: Simulation) -> str:
        token = self.token
        world.call(lambda: world.coordinator.deregister(token))
        self.gone = True
        return "left"


def execute(handed: ScheduledTask, lake: Lake) -> RewriteOutput | WorkResult:
    """The task's result, its files written to the lake."""
    if handed.work.kind != CLUSTER:
        return rewrite(rewrite_input(handed.work), handed.attempt, lake)
    given = decode_cluster_input(handed.work.payload)
    made = rewrite(given.rewrite, handed.attempt, lake, group_suffix(given.group_id))
    return WorkResult(CLUSTER, encode_cluster_output(ClusterOutput(made, b"", ())))


def rewrite(work: RewriteInput, attempt: Attempt, lake: Lake, suffix: str = "") -> RewriteOutput:
    """What rewriting makes, its files written to the lake under names with that end."""
    start = f"{work.table.data_location}/{attempt.task_id.process_id}-{attempt.task_id.number}-{attempt.number}"
    read = sum(given.data.record_count for given in work.rewritten)

    def left(given: InputFile) -> Rows:
        return lake.left(given.data.path, (work.deletes[at] for at in given.deletes))

    rows = sorted(row for given in work.rewritten for row in left(given))
    data: list[DataFile] = []
    deletes: list[DeleteFile] = []
    for part in range(min(work.output_count, len(rows))):
        path = f"{start}-{part}{suffix}.parquet"
        lake.files[path] = frozenset(rows[part :: work.output_count])
        kept = len(rows[part :: work.output_count])
        data.append(data_file(path, work.rewritten[0].data.partition, kept, work.sequence_number))
    for part, given in enumerate(work.converted):
        gone = lake.rows_of(given.data.path) - left(given)
        if gone:
            path = f"{start}-{part}-deletes.parquet"
            lake.files[path] = gone
            kind, partition = DeleteKind.POSITION, given.data.partition
            deletes.append(delete_file(path, partition, kind, len(gone), work.sequence_number, given.data.path))
    return RewriteOutput(
        data_files=tuple(data),
        delete_files=tuple(deletes),
        rows_read=read,
        rows_deleted=read - len(rows),
        rows_written=len(rows),
        positions_written=sum(file.record_count for file in deletes),
        bytes_read=0,
        duration_ms=0,
        peak_memory_bytes=0,
    )
