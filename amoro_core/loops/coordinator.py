"""The loops of a coordinator: periodic steps, and pools that work on keys, each at most once at a time."""

import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Generic, Protocol, TypeVar

from amoro_core.admin.context import Services as OperationServices
from amoro_core.errors import AmoroError
from amoro_core.logger import get_logger
from amoro_core.model import metrics
from amoro_core.model.processes import ACTIVE_PROCESS_STATUSES, STATISTICS
from amoro_core.model.tables import OPTIMIZING, BlockedOperation, OptimizingStatus, Pending
from amoro_core.services.committing import CommittingService
from amoro_core.services.discovery import DiscoveryService
from amoro_core.services.history import HistoryService
from amoro_core.services.post_commit_cleanup import ClearingService
from amoro_core.transactions.store_plan import EVALUATION

log = get_logger("amoro.loops")


class Loop:
    """Calls a step repeatedly: after its interval, or when woken.

    An exception of a step is logged, and the loop continues.
    """

    def __init__(self, name: str, step: Callable[[], object], interval_s: float) -> None:
        self._name = name
        self._step = step
        self._interval = interval_s
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Run the next step at once."""
        self._wake.set()

    def stop(self, patience_s: float | None = None) -> None:
        """End after the step that runs now, if any; it is awaited for so long, None: until its end."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(patience_s)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                self._step()
            except Exception:
                log.exception("loop.failed", loop=self._name)
            self._wake.wait(self._interval)


K = TypeVar("K", bound=Hashable)
L = TypeVar("L", bound=Hashable)
#: Makes an executor of that name with that many workers.
Workers = Callable[[str, int], Executor]


def threads_of(name: str, threads: int) -> Executor:
    """Workers that are threads of this process."""
    return ThreadPoolExecutor(threads, thread_name_prefix=name)


@dataclass(eq=False)
class KeyedPool(Generic[K]):
    """Threads that work on keys, in their order; a key submitted while it waits or is being worked on is ignored."""

    name: str
    threads: int
    work: Callable[[K], object]
    most: int | None = None  # the maximum of keys at a time, including waiting ones
    workers: Workers = threads_of
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _waiting: OrderedDict[K, None] = field(init=False, default_factory=OrderedDict)  # the pool has a run for each
    _busy: set[K] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self._pool = self.workers(self.name, self.threads)

    def submit(self, key: K, *, first: bool = False) -> bool:
        """Work on the key in a thread; False when that is under way or waits already, or too many are waiting.

        `first`: before all others that wait, also if it waits already.
        """
        with self._lock:
            waits = key in self._waiting
            if waits and first:
                self._waiting.move_to_end(key, last=False)
                return True
            count = len(self._busy) + len(self._waiting)
            if waits or key in self._busy or (self.most is not None and count >= self.most):
                return False
            self._waiting[key] = None
            if first:
                self._waiting.move_to_end(key, last=False)
        self._pool.submit(self._run)
        return True

    def stop(self) -> None:
        """Finish what has begun, and drop what waits."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(self) -> None:
        """Work on the key that waits longest, or was submitted as first."""
        with self._lock:
            key, _ = self._waiting.popitem(last=False)
            self._busy.add(key)
        try:
            _run_logged(self.name, self.work, key)
        finally:
            with self._lock:
                self._busy.discard(key)


@dataclass(eq=False)
class LanedPool(Generic[K, L]):
    """Threads for each lane, created when it is first used; slow work in one lane does not delay others."""

    name: str
    threads: int
    work: Callable[[K], object]
    most: int | None = None  # the maximum of keys at a time in each lane
    workers: Workers = threads_of
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _lanes: dict[L, KeyedPool[K]] = field(init=False, default_factory=dict)

    def submit(self, key: K, lane: L, *, first: bool = False) -> bool:
        """Work on the key in a thread of the lane, as `KeyedPool.submit`."""
        with self._lock:
            if lane not in self._lanes:
                self._lanes[lane] = KeyedPool(f"{self.name}-{lane}", self.threads, self.work, self.most, self.workers)
            pool = self._lanes[lane]
        return pool.submit(key, first=first)

    def stop(self) -> None:
        """Finish what has begun, and drop what waits."""
        with self._lock:
            pools = list(self._lanes.values())
        for pool in pools:
            pool.stop()


@dataclass(eq=False)
class TurnPool(Generic[K]):
    """Threads that work on keys in the order of the last offer; each lane has threads of its own.

    A new offer replaces the waiting keys of earlier ones, so that the order can change at any time. Slow work in one
    lane does not delay others.
    """

    name: str
    threads: int
    work: Callable[[K], object]
    workers: Workers = threads_of
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _pools: dict[str, Executor] = field(init=False, default_factory=dict)
    _waiting: dict[str, deque[K]] = field(init=False, default_factory=dict)
    _serving: Counter[str] = field(init=False, default_factory=Counter)  # threads at work, by lane
    _busy: set[K] = field(init=False, default_factory=set)

    def offer(self, turns: Iterable[tuple[K, str]]) -> None:
        """Replace the waiting keys by these, each in its lane, in this order; work in progress continues."""
        with self._lock:
            self._waiting = {}
            for key, lane in turns:
                if key not in self._busy:
                    self._waiting.setdefault(lane, deque()).append(key)
            for lane, keys in self._waiting.items():
                if lane not in self._pools:
                    self._pools[lane] = self.workers(f"{self.name}-{lane}", self.threads)
                for _ in range(min(len(keys), self.threads - self._serving[lane])):
                    self._serving[lane] += 1
                    self._pools[lane].submit(self._serve, lane)

    def stop(self) -> None:
        """Finish what has begun, and drop what waits."""
        with self._lock:
            self._waiting = {}
            pools = list(self._pools.values())
        for pool in pools:
            pool.shutdown(wait=True, cancel_futures=True)

    def _serve(self, lane: str) -> None:
        """Work on the lane's next key, and resubmit the thread while there are more."""
        with self._lock:
            keys = self._waiting.get(lane)
            if not keys:
                self._serving[lane] -= 1
                return
            key = keys.popleft()
            self._busy.add(key)
        try:
            _run_logged(self.name, self.work, key)
        finally:
            with self._lock:
                self._busy.discard(key)
                if self._waiting.get(lane):
                    self._pools[lane].submit(self._serve, lane)
                else:
                    self._serving[lane] -= 1


def _run_logged(name: str, work: Callable[[K], object], key: K) -> None:
    try:
        work(key)
    except AmoroError as error:
        log.warning("work.failed", pool=name, key=str(key), code=error.code, error=error.message)
    except Exception:
        log.exception("work.failed", pool=name, key=str(key))


REFRESH_TICK_S = 1.0
KEEP_INTERVAL_S = 1.0
COMMIT_SWEEP_S = 5.0
TRIM_INTERVAL_S = 3600.0
#: Interval of the look for new events, and how long a listener is awaited at the end: it gets the event again.
LISTENER_INTERVAL_S, LISTENER_PATIENCE_S = 1.0, 0.5
#: Interval of the check whether another minute has begun: each has one sample, however long sampling takes.
SAMPLE_TICK_S = 5.0
REFRESH_THREADS = 4
PLAN_THREADS = 2
COMMIT_THREADS = 4
#: Of each catalog, for processes of the lane `statistics`.
READ_THREADS = 1
SCALE_INTERVAL_S = 1.0
ALERT_INTERVAL_S = 20.0
#: Interval of the check which catalogs are due for a comparison.
COMPARE_TICK_S = 2.0
SCALE_THREADS = 4


@dataclass(frozen=True, slots=True)
class Limits:
    """Timeouts, intervals and sizes of the loops."""

    ack_timeout: timedelta
    start_to_close: timedelta
    explore_interval: timedelta
    explore_threads: int
    explore_queue: int  # the maximum of a catalog's tables that wait for a refresh
    maintenance_threads: int = 2  # of each catalog


class Services(OperationServices, Protocol):
    """The services of the operations, and those that only the loops drive."""

    discovery: DiscoveryService
    committing: CommittingService
    clearing: ClearingService
    history: HistoryService


class CoordinatorLoops:
    """All loops of a coordinator. `watch` False: only explicitly requested work is done."""

    def __init__(
        self,
        services: Services,
        limits: Limits,
        *,
        watch: bool,
        monotonic: Callable[[], float] = time.monotonic,
        workers: Workers = threads_of,
    ) -> None:
        self._services = services
        self._limits = limits
        self._monotonic = monotonic
        self._exploring = KeyedPool("explore", limits.explore_threads, self._explore_one, workers=workers)
        self._comparing = KeyedPool("compare", limits.explore_threads, self._compare_one, workers=workers)
        # Each catalog has threads of its own: a slow one does not delay others.
        self._refreshing: LanedPool[int, str] = LanedPool(
            "refresh", REFRESH_THREADS, self._refresh_if_changed, limits.explore_queue, workers
        )
        self._planning: TurnPool[int] = TurnPool("plan", PLAN_THREADS, self._plan_one, workers)
        # One action of a table at a time: two that are planned at once would conflict.
        self._maintaining: LanedPool[int, str] = LanedPool(
            "maintain", limits.maintenance_threads, services.maintaining.begin_due, workers=workers
        )
        self._committers: LanedPool[str, str] = LanedPool("commit", COMMIT_THREADS, self._commit_one, workers=workers)
        # A process that reads for hours before it commits does not delay other commits.
        self._readers: LanedPool[str, str] = LanedPool("read", READ_THREADS, self._commit_one, workers=workers)
        self._cleaners: LanedPool[str, str] = LanedPool("clean", 1, services.clearing.clean_up, workers=workers)
        # A slow container, such as spark-submit, delays only its group.
        self._scaling: KeyedPool[str] = KeyedPool("scale", SCALE_THREADS, services.containers.keep, workers=workers)
        self._planned_at_s: dict[int, float] = {}  # monotonic: a clock that is set back must not delay plans
        self._keep = Loop("keep", self._keep_step, KEEP_INTERVAL_S)
        self._commit = Loop("commit-sweep", self._commit_step, COMMIT_SWEEP_S)
        self._explore = Loop("explore", self._explore_step, limits.explore_interval.total_seconds())
        self._refresh = Loop("refresh", self._refresh_step, REFRESH_TICK_S)
        self._trim = Loop("trim", self._trim_step, TRIM_INTERVAL_S)
        self._scale = Loop("scale", self._scale_step, SCALE_INTERVAL_S)
        self._alert = Loop("alert", services.conditions.look, ALERT_INTERVAL_S)
        self._watch = watch
        self._sample = Loop("sample", services.sampling.sample, SAMPLE_TICK_S)
        self._compare = Loop("compare", self._compare_step, COMPARE_TICK_S)
        watching = [self._explore, self._compare, self._refresh, self._trim, self._scale, self._alert, self._sample]
        self._loops = [self._keep, self._commit, *(watching if watch else [])]
        # Each listener has a thread of its own: one that hangs delays no other.
        self._listeners = [
            Loop(f"listener-{listener.name}", partial(services.listening.deliver, listener), LISTENER_INTERVAL_S)
            for listener in (services.listening.receivers if watch else ())
        ]

    def start(self) -> None:
        if self._watch:
            self._services.listening.begin()
        for loop in (*self._loops, *self._listeners):
            loop.start()

    def stop(self) -> None:
        """Stop starting work, then finish what has begun; a commit is never interrupted."""
        self._services.change_notifications.stop()
        for loop in self._loops:
            loop.stop()
        for loop in self._listeners:
            loop.stop(LISTENER_PATIENCE_S)
        self._services.maintaining.interrupt()
        for pool in vars(self).values():  # in the order in which they were made
            if isinstance(pool, KeyedPool | LanedPool | TurnPool):
                pool.stop()

    def explore_now(self) -> None:
        """Discover the tables of all catalogs now, as after one was added."""
        self._explore.wake()

    def look_at(self, table_id: int, catalog: str) -> bool:
        """Refresh a table of the catalog before others that wait; False if that is under way, or too many wait."""
        return self._refreshing.submit(table_id, catalog, first=True)

    def commit_due(self, process_id: str, catalog: str) -> None:
        """Note that a process on a table of the catalog is COMMITTING."""
        process = self._services.optimizing.find_process(process_id).process
        pool = self._readers if process.lane == STATISTICS else self._committers
        pool.submit(process_id, catalog)

    def clean_up_due(self, process_id: str, catalog: str) -> None:
        """Note that a process on a table of the catalog ended without a commit."""
        self._cleaners.submit(process_id, catalog)

    def _explore_step(self) -> None:
        names = [config.name for config in self._services.catalogs.list_catalogs()]
        self._services.meters.keep_only(metrics.CATALOG_UP, ((name,) for name in names))
        for name in names:
            self._exploring.submit(name)

    def _explore_one(self, catalog: str) -> None:
        if self._services.discovery.explore(catalog).added:
            self._refresh.wake()

    def _compare_step(self) -> None:
        for config in self._services.catalogs.list_catalogs():
            if self._services.discovery.is_due(config.name):
                self._comparing.submit(config.name)

    def _compare_one(self, catalog: str) -> None:
        outcome = self._services.discovery.compare(catalog)
        if outcome is not None and outcome.changed:
            self._refresh.wake()

    def _refresh_step(self) -> None:
        for table_id, catalog in self._services.tables.list_due():
            self._refreshing.submit(table_id, catalog)
        self._plan_pending(self._services.tables.list_pending())
        self._maintain_due()

    def _refresh_if_changed(self, table_id: int) -> None:
        try:
            if self._services.discovery.postpone_unchanged(table_id):
                self._services.starting.check_files(table_id)
            else:
                self._refresh_one(table_id)
        finally:
            self._services.change_notifications.refreshed(table_id)

    def _refresh_one(self, table_id: int) -> None:
        runtime = self._services.tables.refresh(table_id)
        if runtime is None:
            return
        if runtime.status is OptimizingStatus.PENDING:
            self._refresh.wake()
        elif runtime.status in OPTIMIZING:
            self._services.optimizing.cancel_unwanted(table_id)
        self._services.starting.check_files(table_id, runtime.snapshot_id)

    def _plan_pending(self, pending: Sequence[Pending]) -> None:
        """Plan pending tables, without waiting for a poll, in the order of each group's policy."""
        blocked = self._services.blockers.blocked_from(BlockedOperation.OPTIMIZE) if pending else frozenset()
        waiting = [item for item in pending if item.table_id not in blocked and self._may_plan(item)]
        turns = self._services.groups.in_turn(waiting)
        self._planning.offer([(runtime.table_id, runtime.identifier.catalog) for runtime in turns])

    def _plan_one(self, table_id: int) -> None:
        self._planned_at_s[table_id] = self._monotonic()
        self._services.planning.begin(table_id, trigger=EVALUATION)

    def _maintain_due(self) -> None:
        due = self._services.maintaining.list_due()
        for table_id, catalog in dict.fromkeys((table_id, catalog) for table_id, _, catalog in due):
            self._maintaining.submit(table_id, catalog)

    def _may_plan(self, runtime: Pending) -> bool:
        """Whether min-plan-interval has passed since the table's last plan; forgotten at a restart, as in Amoro."""
        last_s = self._planned_at_s.get(runtime.table_id)
        if not runtime.enabled or last_s is None:
            return runtime.enabled
        interval = self._services.tables.min_plan_interval(runtime.table_id)
        return interval is None or self._monotonic() - last_s >= interval.total_seconds()

    def _commit_one(self, process_id: str) -> None:
        """Commit; unless periodic refreshes follow, also refresh the table, so that its present state is shown."""
        status = self._services.committing.commit(process_id)
        if not self._watch and status not in ACTIVE_PROCESS_STATUSES:
            self._refresh_one(self._services.optimizing.find_process(process_id).process.table_id)

    def _commit_step(self) -> None:
        self._services.starting.start_due()
        for process_id in self._services.starting.close_expired():
            log.warning("process.closed", process=process_id, reason="it was not started in time")
        for process_id, catalog in self._services.optimizing.list_committing():
            self.commit_due(process_id, catalog)

    def _trim_step(self) -> None:
        self._services.history.trim()
        self._services.auditing.trim()
        self._services.sessions.trim()
        self._services.blockers.trim()
        self._services.starting.renew_blockers()
        for process_id in self._services.maintaining.close_unconfirmed():
            log.warning("process.closed", process=process_id, reason="it was not confirmed in time")

    def _scale_step(self) -> None:
        self._services.containers.close_orphans()
        for group in self._services.containers.list_active_groups():
            self._scaling.submit(group)

    def _keep_step(self) -> None:
        for optimizer_id in self._services.optimizers.silent():
            log.warning("optimizer.lost", optimizer=optimizer_id)
            self._services.optimizing.dismiss(optimizer_id, "its optimizer has not reported for too long", lost=True)
        self._services.optimizing.sweep(self._monotonic(), self._limits.ack_timeout, self._limits.start_to_close)
