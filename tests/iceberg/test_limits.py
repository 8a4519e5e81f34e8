"""Requests to catalogs end, whatever a server does: one that is silent, and one that never stops to answer."""

import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from pyiceberg.catalog import sql
from sqlalchemy import create_engine

from amoro_core.errors import CatalogUnavailable, InvalidSettings
from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.iceberg import drivers, limits
from amoro_core.iceberg.catalogs import close_catalogs
from amoro_core.iceberg.limits import Limits, Watchdog, limit_requests
from amoro_core.iceberg.sessions import TimedRequests
from amoro_core.model.processes import CatalogConfig
from tests.iceberg.listed import limited_requests

#: Of a request whose server sends a byte much more often than that.
WHOLE_S = 1.0
ENDLESS = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"


@pytest.fixture(autouse=True)
def _short() -> Iterator[None]:
    with limited_requests(WHOLE_S):
        yield
    close_catalogs()


@contextmanager
def server(begin: bytes, trickle: bytes) -> Iterator[int]:
    """The port of a server that takes everything, answers with `begin`, and sends `trickle` a few times a second."""
    ended = threading.Event()
    taken: list[socket.socket] = []

    def answer(connection: socket.socket) -> None:
        try:
            connection.recv(65536)
            connection.sendall(begin)
            while trickle and not ended.wait(0.1):
                connection.sendall(trickle)
        except OSError:
            return

    def accept() -> None:
        while True:
            try:
                taken.append(listener.accept()[0])
            except OSError:
                return
            threading.Thread(target=answer, args=(taken[-1],), daemon=True).start()

    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()
        for connection in taken:
            connection.close()


def config(**properties: str) -> CatalogConfig:
    return CatalogConfig("cat", tuple(sorted(properties.items())))


ANSWERS = {
    "nothing": (b"", b""),
    "an endless status": (b"HTTP/1.1 ", b"2"),
    "endless headers": (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n"),
    "an endless body": (ENDLESS, b" "),
    "an endless body of no length": (b"HTTP/1.1 200 OK\r\n\r\n", b" "),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_request_to_a_rest_catalog_ends_as_a_whole(answer: str) -> None:
    with server(*ANSWERS[answer]) as port, pytest.raises(CatalogUnavailable) as failed:
        IcebergFormat().check(config(type="rest", uri=f"http://127.0.0.1:{port}"))
    assert "there was no complete answer within 1 s (catalog-timeout)" in failed.value.message


def test_a_request_through_a_proxy_ends_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(ENDLESS, b" ") as port:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        with pytest.raises(CatalogUnavailable, match="no complete answer within 1 s"):
            IcebergFormat().check(config(type="rest", uri="http://catalog.example"))


def test_a_request_for_a_token_ends_as_a_whole() -> None:
    with server(ENDLESS, b" ") as port, pytest.raises(OSError, match="no complete answer within 1 s"):
        TimedRequests.post(f"http://127.0.0.1:{port}/token")


@pytest.mark.parametrize(("begin", "trickle"), [(b"", b""), (b"\x00\x01", b"\x00")])
def test_a_call_of_a_hive_metastore_ends_as_a_whole(begin: bytes, trickle: bytes) -> None:
    with server(begin, trickle) as port, pytest.raises(CatalogUnavailable, match="does not answer as it should"):
        IcebergFormat().check(config(type="hive", uri=f"thrift://127.0.0.1:{port}"))


def test_a_call_of_glue_ends() -> None:
    with server(b"", b"") as port:
        properties = {
            "type": "glue",
            "glue.endpoint": f"http://127.0.0.1:{port}",
            "glue.region": "eu-central-1",
            "glue.access-key-id": "access-key",
            "glue.secret-access-key": "secret-key",
            "glue.max-retries": "1",
        }
        with pytest.raises(CatalogUnavailable, match="Read timeout on endpoint"):
            IcebergFormat().check(config(**properties))


def test_a_database_that_is_silent_is_hung_up_on() -> None:
    mine, other = socket.socketpair()

    class Connection(sqlite3.Connection):
        def fileno(self) -> int:
            return mine.fileno()

    engine = drivers.watched_engine(create_engine("sqlite://", connect_args={"factory": Connection}))
    with mine, other, engine.connect():
        assert mine.recv(1) == b""
    engine.dispose()


def test_a_server_of_postgresql_is_asked_to_connect_in_time_unless_its_uri_says_otherwise() -> None:
    made: list[str] = []

    def note(url: object) -> object:
        made.append(str(url))
        return create_engine("sqlite://")

    module = type("Module", (), {"create_engine": staticmethod(note)})()
    drivers._limit_sql(module)
    for uri in ("postgresql+psycopg2://db/x", "postgresql+psycopg2://db/x?connect_timeout=3", "sqlite:///x.db"):
        module.create_engine(uri)
    assert made == [
        "postgresql+psycopg2://db/x?connect_timeout=5",
        "postgresql+psycopg2://db/x?connect_timeout=3",
        "sqlite:///x.db",
    ]


def test_a_catalog_of_sql_is_opened_with_the_limits() -> None:
    drivers.limit_driver("sql")
    assert sql.create_engine is not create_engine
    drivers.limit_driver("rest")
    drivers.limit_driver("no such kind")


def test_what_ends_in_time_is_not_cut() -> None:
    cuts: list[float] = []
    with Watchdog(60.0) as watchdog:
        watchdog.cuts(lambda: cuts.append(time.monotonic()))
    assert (watchdog.expired, cuts) == (False, [])
    with Watchdog(0.0) as watchdog:
        happened = threading.Event()
        watchdog.cuts(happened.set)
        assert happened.wait(60)
    assert watchdog.expired


def test_the_settings_limit_every_request() -> None:
    limit_requests(timedelta(seconds=90))
    assert limits.limits() == Limits(10.0, 90.0)
    limit_requests(timedelta(seconds=3))
    assert limits.limits() == Limits(3.0, 3.0)
    with pytest.raises(InvalidSettings, match="catalog-timeout is zero"):
        limit_requests(timedelta(0))
