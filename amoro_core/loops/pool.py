"""Work on things by key, at most once at a time for each key."""

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

import structlog

from amoro_core.errors import AmoroError

log = structlog.get_logger("amoro.loops")

K = TypeVar("K", bound=Hashable)
L = TypeVar("L", bound=Hashable)


class KeyedPool(Generic[K]):
    """Threads that work on keys; a key that is submitted while it is worked on is not worked on twice."""

    def __init__(self, name: str, threads: int, work: Callable[[K], object], most: int | None = None) -> None:
        self._name = name
        self._work = work
        self._most = most  # keys at a time, waiting ones included
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._busy: set[K] = set()

    def submit(self, key: K) -> bool:
        """Work on the key in some thread; False when it is worked on already, or too many are waiting."""
        with self._lock:
            if key in self._busy or (self._most is not None and len(self._busy) >= self._most):
                return False
            self._busy.add(key)
        self._pool.submit(self._run, key)
        return True

    def stop(self) -> None:
        """Finish what has begun, drop what waits."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(self, key: K) -> None:
        try:
            self._work(key)
        except AmoroError as error:
            log.warning("work.failed", pool=self._name, key=str(key), code=error.code, error=error.message)
        except Exception:
            log.exception("work.failed", pool=self._name, key=str(key))
        finally:
            with self._lock:
                self._busy.discard(key)


class LanedPool(Generic[K, L]):
    """Threads for each lane, made when it is first used; what is slow in one lane holds up no other."""

    def __init__(self, name: str, threads: int, work: Callable[[K], object], most: int | None = None) -> None:
        self._name = name
        self._threads = threads
        self._most = most  # keys at a time in each lane
        self._work = work
        self._lock = threading.Lock()
        self._lanes: dict[L, KeyedPool[K]] = {}

    def submit(self, key: K, lane: L) -> bool:
        """Work on the key in some thread of the lane; False when it is worked on already, or too many are waiting."""
        with self._lock:
            if lane not in self._lanes:
                self._lanes[lane] = KeyedPool(f"{self._name}-{lane}", self._threads, self._work, self._most)
            pool = self._lanes[lane]
        return pool.submit(key)

    def stop(self) -> None:
        """Finish what has begun, drop what waits."""
        with self._lock:
            pools = list(self._lanes.values())
        for pool in pools:
            pool.stop()
