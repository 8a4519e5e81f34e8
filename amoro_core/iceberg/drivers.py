"""Time limits for catalog clients that don't use our HTTP sessions: Hive's, Glue's, and databases'.

Each is patched when a catalog of its kind is first opened, for the whole process: their libraries are installed with
pyiceberg's extras only.
"""

import importlib
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from pyiceberg.exceptions import NotInstalledError

from amoro_core.iceberg.limits import Watchdog, limits

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
        made = make(*args, **kwargs)
        open_, read, write = made.open, made.read, made.write
        deadline: list[float] = []  # of the call whose answer is awaited

        def opening() -> None:
            made.setTimeout(limits().connect_s * 1000)
            open_()

        def writing(content: bytes) -> None:
            deadline.clear()
            made.setTimeout(limits().whole_s * 1000)
            write(content)

        def reading(size: int) -> bytes:
            if not deadline:
                deadline.append(time.monotonic() + limits().whole_s)
            left = deadline[0] - time.monotonic()
            if left <= 0:
                raise failure(failure.TIMED_OUT, limits().told)
            made.setTimeout(left * 1000)
            found: bytes = read(size)
            return found

        made.open, made.read, made.write = opening, reading, writing
        return made

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

    def taken(connection: Any, record: Any, proxy: Any) -> None:
        record.info["watchdog"] = watchdog = Watchdog(limits().whole_s)
        watchdog.cuts(lambda: cut(connection))
        watchdog.start()

    def given_back(connection: Any, record: Any) -> None:
        if watchdog := record.info.pop("watchdog", None):
            watchdog.end()

    event.listen(engine, "checkout", taken)
    event.listen(engine, "checkin", given_back)
    return engine


def cut(connection: Any) -> None:
    """Shut down a database connection's socket, which ends the wait on it; the waiting thread closes it."""
    descriptor = getattr(connection, "fileno", lambda: -1)()
    if descriptor < 0:
        return
    with socket.socket(fileno=os.dup(descriptor)) as same:
        same.shutdown(socket.SHUT_RDWR)


_LIMITED: dict[str, Callable[[Any], None]] = {"hive": _limit_hive, "glue": _limit_glue, "sql": _limit_sql}
