"""Requests that carry a key, so that repeating one does nothing twice."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """What was answered over HTTP; `content` is empty where it held a secret, which is kept nowhere."""

    status: int
    media_type: str
    location: str  # of what was begun; "": nothing
    content: bytes


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request with a key that was begun; `answer` is None until it has ended."""

    key_hash: str  # of the key and of who sent it
    request_hash: str
    begun_at: datetime
    answer: KeptAnswer | None


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
