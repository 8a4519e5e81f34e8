"""Threads that run a step periodically, and pools that work on keys, each at most once at a time."""

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Generic, TypeVar

from amoro_core.errors import AmoroError
from amoro_core.logger import get_logger

log = get_logger("amoro.loops")


class Loop:
    """Calls a step repeatedly: after its interval, or when woken.

    An exception of a step is logged, and the loop continues.
    """

    def __init__(self, name: str, step: Callable[[], None], interval_s: float) -> None:
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

    def stop(self) -> None:
        """End after the step that runs now, if any."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

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


class KeyedPool(Generic[K]):
    """Threads that work on keys, in their order; a key submitted while it waits or is being worked on is ignored."""

    def __init__(
        self,
        name: str,
        threads: int,
        work: Callable[[K], object],
        most: int | None = None,
        workers: Workers = threads_of,
    ) -> None:
        self._name = name
        self._work = work
        self._most = most  # the maximum of keys at a time, including waiting ones
        self._pool = workers(name, threads)
        self._lock = threading.Lock()
        self._waiting: OrderedDict[K, None] = OrderedDict()  # the pool has a run for each of them
        self._busy: set[K] = set()

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
            if waits or key in self._busy or (self._most is not None and count >= self._most):
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
            _run_logged(self._name, self._work, key)
        finally:
            with self._lock:
                self._busy.discard(key)


class LanedPool(Generic[K, L]):
    """Threads for each lane, created when it is first used; slow work in one lane does not delay others."""

    def __init__(
        self,
        name: str,
        threads: int,
        work: Callable[[K], object],
        most: int | None = None,
        workers: Workers = threads_of,
    ) -> None:
        self._name = name
        self._threads = threads
        self._most = most  # the maximum of keys at a time in each lane
        self._work = work
        self._workers = workers
        self._lock = threading.Lock()
        self._lanes: dict[L, KeyedPool[K]] = {}

    def submit(self, key: K, lane: L, *, first: bool = False) -> bool:
        """Work on the key in a thread of the lane, as `KeyedPool.submit`."""
        with self._lock:
            if lane not in self._lanes:
                self._lanes[lane] = KeyedPool(
                    f"{self._name}-{lane}", self._threads, self._work, self._most, self._workers
                )
            pool = self._lanes[lane]
        return pool.submit(key, first=first)

    def stop(self) -> None:
        """Finish what has begun, and drop what waits."""
        with self._lock:
            pools = list(self._lanes.values())
        for pool in pools:
            pool.stop()


class TurnPool(Generic[K]):
    """Threads that work on keys in the order of the last offer; each lane has threads of its own.

    A new offer replaces the waiting keys of earlier ones, so that the order can change at any time. Slow work in one
    lane does not delay others.
    """

    def __init__(self, name: str, threads: int, work: Callable[[K], object], workers: Workers = threads_of) -> None:
        self._name = name
        self._threads = threads
        self._work = work
        self._workers = workers
        self._lock = threading.Lock()
        self._pools: dict[str, Executor] = {}
        self._waiting: dict[str, deque[K]] = {}
        self._serving: Counter[str] = Counter()  # threads at work, by lane
        self._busy: set[K] = set()

    def offer(self, turns: Iterable[tuple[K, str]]) -> None:
        """Replace the waiting keys by these, each in its lane, in this order; work in progress continues."""
        with self._lock:
            self._waiting = {}
            for key, lane in turns:
                if key not in self._busy:
                    self._waiting.setdefault(lane, deque()).append(key)
            for lane, keys in self._waiting.items():
                if lane not in self._pools:
                    self._pools[lane] = self._workers(f"{self._name}-{lane}", self._threads)
                for _ in range(min(len(keys), self._threads - self._serving[lane])):
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
            _run_logged(self._name, self._work, key)
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
