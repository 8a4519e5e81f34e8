"""How fast files are deleted: at a rate, and slower where the storage asks for it."""

import time
from collections.abc import Callable, Mapping

from amoro_core.model.stored import Removal

#: How storages say that they are asked too often.
_SLOWER = ("503", "SlowDown", "Slow Down", "429", "ServerBusy")


class Pace:
    """Keeps to at most so many files a second: half of it once the storage has said to slow down, growing again."""

    def __init__(
        self,
        most: float,
        monotonic: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._most = most
        self._rate = most
        self._monotonic = monotonic
        self._wait = wait

    def begin(self) -> float:
        """The moment before a request, for `keep`."""
        return self._monotonic()

    def keep(self, removals: Mapping[str, Removal], began: float) -> None:
        """Wait as long as the request for these files, which began then, was faster than the rate."""
        rate = self._rate
        is_slowed = any(any(word in one.why for word in _SLOWER) for one in removals.values())
        self._rate = max(1.0, rate / 2) if is_slowed else min(self._most, rate * 1.1)
        if (left_s := len(removals) / rate - (self._monotonic() - began)) > 0:
            self._wait(left_s)
