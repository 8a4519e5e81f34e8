"""Time limits of requests to catalogs, and a watchdog that enforces them."""

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Self

from amoro_core.errors import InvalidSettings
from amoro_core.records import record

CONNECT_S = 10.0
_AGAIN_S = 0.2


@record
class Limits:
    """Time limits in seconds: to connect, and to receive a complete answer."""

    connect_s: float = CONNECT_S
    whole_s: float = 60.0

    @property
    def told(self) -> str:
        """The message for a request that timed out."""
        return f"there was no complete answer within {self.whole_s:g} s (catalog-timeout)"


_limits = Limits()
_now = threading.local()


def limits() -> Limits:
    """The limits of this process."""
    return _limits


def limit_requests(whole: timedelta) -> None:
    """Set the time limit of requests to catalogs, for the whole process. Raises InvalidSettings."""
    global _limits
    seconds = whole.total_seconds()
    if seconds <= 0:
        raise InvalidSettings("catalog-timeout is zero", hint="Set a duration, such as 60s.")
    _limits = Limits(min(CONNECT_S, seconds), seconds)


class Watchdog:
    """Cuts the connections of a request that takes too long, from a thread of its own.

    A socket's timeout restarts with each byte received: a server that sends one now and then could hold a request for
    ever. A thread waiting on a cut connection gets an error, and checks `expired` for its cause.
    """

    def __init__(self, seconds: float) -> None:
        self.expired = False
        self._seconds = seconds
        self._over = threading.Event()
        self._cuts: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        self._outer: Watchdog | None = current_watchdog()
        _now.watchdog = self
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _now.watchdog = self._outer
        self.end()

    def start(self) -> None:
        threading.Thread(target=self._watch, name="request-limit", daemon=True).start()

    def end(self) -> None:
        """Note that the request is over; a second call does nothing."""
        self._over.set()

    def cuts(self, cut: Callable[[], None]) -> None:
        """Register a function that is called when time is up, repeatedly until the request ends."""
        self._cuts.append(cut)

    def _watch(self) -> None:
        if self._over.wait(self._seconds):
            return
        self.expired = True
        while True:
            for cut in tuple(self._cuts):
                with suppress(OSError):  # not connected (any more)
                    cut()
            if self._over.wait(_AGAIN_S):
                return


def current_watchdog() -> Watchdog | None:
    """The watchdog of this thread's present request."""
    found: Watchdog | None = getattr(_now, "watchdog", None)
    return found
