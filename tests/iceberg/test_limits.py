"""Requests to catalogs end whatever a server does, and an unchanged table is not loaded again."""

import json
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog import sql
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from sqlalchemy import create_engine

from amoro_core.errors import CatalogUnavailable, InvalidSettings
from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.iceberg.catalog import timeouts
from amoro_core.iceberg.catalog.catalogs import ETags, close_catalogs
from amoro_core.iceberg.catalog.rest import TimedRequests
from amoro_core.iceberg.catalog.timeouts import Limits, Watchdog, limit_requests
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier
from amoro_core.scheduling.policy import REFRESH_INTERVAL
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.iceberg.scenarios import http_server, limited_requests
from tests.services.world import World

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

    engine = timeouts.watched_engine(create_engine("sqlite://", connect_args={"factory": Connection}))
    with mine, other, engine.connect():
        assert mine.recv(1) == b""
    engine.dispose()


def test_a_server_of_postgresql_is_asked_to_connect_in_time_unless_its_uri_says_otherwise() -> None:
    made: list[str] = []

    def note(url: object) -> object:
        made.append(str(url))
        return create_engine("sqlite://")

    module = type("Module", (), {"create_engine": staticmethod(note)})()
    timeouts._limit_sql(module)
    with limited_requests(5.0):
        for uri in ("postgresql+psycopg2://db/x", "postgresql+psycopg2://db/x?connect_timeout=3", "sqlite:///x.db"):
            module.create_engine(uri)
    assert made == [
        "postgresql+psycopg2://db/x?connect_timeout=5",
        "postgresql+psycopg2://db/x?connect_timeout=3",
        "sqlite:///x.db",
    ]


def test_a_catalog_of_sql_is_opened_with_the_limits() -> None:
    timeouts.limit_driver("sql")
    assert sql.create_engine is not create_engine
    timeouts.limit_driver("rest")
    timeouts.limit_driver("no such kind")


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
    assert timeouts.limits() == Limits(10.0, 90.0)
    limit_requests(timedelta(seconds=3))
    assert timeouts.limits() == Limits(3.0, 3.0)
    with pytest.raises(InvalidSettings, match="catalog-timeout is zero"):
        limit_requests(timedelta(0))


# A REST catalog is asked with the ETag of the last load whether a table has changed; 304 says that it has not


TABLE = TableIdentifier("cat", ("db",), "t")


class Rest:
    """A REST catalog of one table, which another catalog has; it notes what was asked of the table."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.has_etags = True
        self.is_broken = False
        self.asked: list[str] = []  # the ETag of each request for the table

    def answer(self, path: str, headers: Mapping[str, str]) -> tuple[int, dict[str, str], str]:
        etag = headers.get("If-None-Match", "")
        if not path.partition("?")[0].endswith("/tables/t"):
            return 200, {}, '{"defaults": {}, "overrides": {}, "namespaces": []}'
        self.asked.append(etag)
        if self.is_broken:
            return 500, {}, "{}"
        place = self.table.metadata_location
        own = {"ETag": f'"{place}"'} if self.has_etags else {}
        if etag and etag == own.get("ETag"):
            return 304, own, ""
        metadata = json.loads(self.table.metadata.model_dump_json())
        return 200, own, json.dumps({"metadata-location": place, "metadata": metadata})


@pytest.fixture
def rest(catalog: SqlCatalog) -> Rest:
    return Rest(writer.make_table(catalog, "db.t", SCHEMA))


@pytest.fixture
def rest_config(rest: Rest, tmp_path: Path) -> Iterator[CatalogConfig]:
    with http_server(rest.answer) as uri:
        yield CatalogConfig("cat", (("type", "rest"), ("uri", uri), ("warehouse", (tmp_path / "warehouse").as_uri())))


def is_unchanged(config: CatalogConfig, location: str) -> bool:
    return IcebergFormat().is_unchanged(config, TABLE, location)


def test_a_table_is_unchanged_until_it_changes(rest: Rest, rest_config: CatalogConfig) -> None:
    location = rest.table.metadata_location
    assert not is_unchanged(rest_config, location)  # never loaded: nobody knows
    assert IcebergFormat().load(rest_config, TABLE).facts.metadata_location == location
    assert rest.asked == [""]
    assert is_unchanged(rest_config, location)
    assert rest.asked == ["", f'"{location}"']
    writer.append(rest.table, [row(1)])
    rest.table.refresh()
    assert not is_unchanged(rest_config, location)
    IcebergFormat().load(rest_config, TABLE)
    assert not is_unchanged(rest_config, location)  # what is known is older than what was loaded
    assert is_unchanged(rest_config, rest.table.metadata_location)


def test_nothing_is_asked_of_a_server_without_etags_or_through_another_configuration(
    rest: Rest, rest_config: CatalogConfig
) -> None:
    location = rest.table.metadata_location
    IcebergFormat().load(rest_config, TABLE)
    assert not is_unchanged(replace(rest_config, properties=(*rest_config.properties, ("table.x", "y"))), location)
    rest.has_etags = False
    IcebergFormat().load(rest_config, TABLE)
    assert not is_unchanged(rest_config, location)
    assert rest.asked == ["", ""]


def test_a_server_that_fails_says_nothing(rest: Rest, rest_config: CatalogConfig) -> None:
    IcebergFormat().load(rest_config, TABLE)
    rest.is_broken = True
    assert not is_unchanged(rest_config, rest.table.metadata_location)
    with pytest.raises(CatalogUnavailable):
        IcebergFormat().load(rest_config, TABLE)


def test_no_more_etags_are_kept_than_there_may_be() -> None:
    kept, config = ETags(2), CatalogConfig("cat", ())
    tables = [TableIdentifier("cat", ("db",), f"t{number}") for number in range(3)]
    for table in tables:
        kept.keep(config, table, "e", "place")
    assert [kept.find(config, table, "place") for table in tables] == ["", "e", "e"]
    kept.keep(config, tables[2], "", "place")
    assert kept.find(config, tables[2], "place") == ""


def test_the_refresh_of_an_unchanged_table_is_spared_until_something_comes_due(
    rest: Rest, rest_config: CatalogConfig, catalog: SqlCatalog, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    world = World(home, catalog, config=rest_config)
    try:
        table_id = world.table().table_id
        assert not world.discovery.postpone_unchanged(table_id)  # never refreshed
        refreshed = world.tables.refresh(table_id)
        world.later(60)
        assert world.discovery.postpone_unchanged(table_id)
        after = world.table()
        assert after.refresh_at is not None
        assert after.refresh_at >= world.now + REFRESH_INTERVAL
        assert replace(after, refresh_at=None) == replace(refreshed or after, refresh_at=None)
        world.later(timedelta(hours=6).total_seconds())
        assert not world.discovery.postpone_unchanged(table_id)  # it is time to load it, whatever is said
        world.tables.refresh(table_id)
        assert world.discovery.postpone_unchanged(table_id)
        writer.append(rest.table, [row(1)])
        rest.table.refresh()
        assert not world.discovery.postpone_unchanged(table_id)
        assert world.discovery.compare("cat") is None
    finally:
        world.close()
