"""How often something may be tried: at most so many times within a while, for each key."""

from collections import deque
from collections.abc import Callable
from datetime import timedelta
from time import monotonic

_MOST_KEYS = 10_000


class Throttle:
    """Counts tries by key, within a sliding window; the keys that were tried longest ago are forgotten first."""

    def __init__(self, most: int, within: timedelta, clock: Callable[[], float] = monotonic) -> None:
        """`clock` gives seconds."""
        self._most = most
        self._within = within.total_seconds()
        self._clock = clock
        self._tries: dict[str, deque[float]] = {}

    def take(self, key: str) -> float:
        """Count a try; 0 if it is allowed, else the seconds until the next one is, and it does not count."""
        now = self._clock()
        tries = self._tries.pop(key, None) or deque()
        while tries and tries[0] <= now - self._within:
            tries.popleft()
        allowed = len(tries) < self._most
        if allowed:
            tries.append(now)
        self._tries[key] = tries
        if len(self._tries) > _MOST_KEYS:
            del self._tries[next(iter(self._tries))]
        return 0.0 if allowed else tries[0] + self._within - now
