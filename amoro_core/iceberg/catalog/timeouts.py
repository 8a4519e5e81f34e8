"""Time limits of requests to catalogs, and a watchdog that enforces them."""

import importlib
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, Self

from pyiceberg.exceptions import NotInstalledError

from amoro_core.errors import InvalidSettings

CONNECT_S = 10.0
_AGAIN_S = 0.2


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits in seconds: to connect, and to receive a complete answer."""

    connect_s: float = CONNECT_S
    whole_s: float = 60.0

    @property
    def message(self) -> str:
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

    def __exit__(self, *error: object) -> None:
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
    result: Watchdog | None = getattr(_now, "watchdog", None)
    return result


_LIBPQ = ("psycopg", "psycopg2")


def limit_driver(kind: str) -> None:
    """Make requests to catalogs of this kind time out; does nothing if its extra is not installed."""
    if kind in _LIMITED:
        with suppress(ImportError, NotInstalledError):  # reported when the catalog is opened
            module = importlib.import_module(f"pyiceberg.catalog.{kind}")
            if not vars(module).setdefault("_has_limits_of_amoro", False):
                _LIMITED[kind](module)
                vars(module)["_has_limits_of_amoro"] = True


def _limit_hive(hive: Any) -> None:
    """Thrift's sockets have one timeout for each wait; a call consists of writing and then reading."""
    make, failure = hive.TSocket.TSocket, hive.TTransport.TTransportException

    def limited(*args: Any, **kwargs: Any) -> Any:
        transport = make(*args, **kwargs)
        open_, read, write = transport.open, transport.read, transport.write
        deadline: list[float] = []  # of the call whose answer is awaited

        def opening() -> None:
            transport.setTimeout(limits().connect_s * 1000)
            open_()

        def writing(content: bytes) -> None:
            deadline.clear()
            transport.setTimeout(limits().whole_s * 1000)
            write(content)

        def reading(size: int) -> bytes:
            if not deadline:
                deadline.append(time.monotonic() + limits().whole_s)
            rest = deadline[0] - time.monotonic()
            if rest <= 0:
                raise failure(failure.TIMED_OUT, limits().message)
            transport.setTimeout(rest * 1000)
            result: bytes = read(size)
            return result

        transport.open, transport.read, transport.write = opening, reading, writing
        return transport

    vars(hive)["TSocket"] = SimpleNamespace(TSocket=limited)


def _limit_glue(glue: Any) -> None:
    """Limits each of boto's tries, whose number is `glue.max-retries`."""
    make = glue.Config

    def limited(**given: Any) -> Any:
        return make(**{"connect_timeout": limits().connect_s, "read_timeout": limits().whole_s, **given})

    vars(glue)["Config"] = limited


def _limit_sql(sql: Any) -> None:
    """SQLite by default waits five seconds for a lock; a server may stay silent for ever."""
    make: Callable[..., Any] = sql.create_engine

    def limited(uri: str, **options: Any) -> Any:
        url = importlib.import_module("sqlalchemy").make_url(uri)
        if url.get_backend_name() == "sqlite":
            return make(uri, **options)
        if url.get_driver_name() in _LIBPQ and "connect_timeout" not in url.query:
            url = url.update_query_dict({"connect_timeout": str(max(2, round(limits().connect_s)))})
        return watched_engine(make(url, **options))

    vars(sql)["create_engine"] = limited


def watched_engine(engine: Any) -> Any:
    """The engine, changed so that a connection in use for longer than a request may take is cut."""
    event = importlib.import_module("sqlalchemy.event")

    def start(connection: Any, record: Any, proxy: Any) -> None:
        record.info["watchdog"] = watchdog = Watchdog(limits().whole_s)
        watchdog.cuts(lambda: cut(connection))
        watchdog.start()

    def end(connection: Any, record: Any) -> None:
        if watchdog := record.info.pop("watchdog", None):
            watchdog.end()

    event.listen(engine, "checkout", start)
    event.listen(engine, "checkin", end)
    return engine


def cut(connection: Any) -> None:
    """Shut down a database connection's socket, which ends the wait on it; the waiting thread closes it."""
    descriptor = getattr(connection, "fileno", lambda: -1)()
    if descriptor < 0:
        return
    with socket.socket(fileno=os.dup(descriptor)) as same:
        same.shutdown(socket.SHUT_RDWR)


_LIMITED: dict[str, Callable[[Any], None]] = {"hive": _limit_hive, "glue": _limit_glue, "sql": _limit_sql}
