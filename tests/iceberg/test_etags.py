"""A REST catalog is asked with the ETag of the last load whether a table has changed; 304 says that it has not."""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from pyiceberg.table import Table

from amoro_core.errors import CatalogUnavailable
from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.iceberg.catalogs import close_catalogs
from amoro_core.iceberg.etags import ETags
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier
from amoro_core.scheduling.refreshing import REFRESH_INTERVAL
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.services.world import World

TABLE = TableIdentifier("cat", ("db",), "t")


class Rest:
    """A REST catalog of one table, which another catalog has; it notes what was asked of the table."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.has_etags = True
        self.is_broken = False
        self.asked: list[str] = []  # the ETag of each request for the table

    def answer(self, path: str, etag: str) -> tuple[int, str, str]:
        """Status, ETag, body."""
        if not path.endswith("/tables/t"):
            return 200, "", '{"defaults": {}, "overrides": {}, "namespaces": []}'
        self.asked.append(etag)
        if self.is_broken:
            return 500, "", "{}"
        place = self.table.metadata_location
        own = f'"{place}"' if self.has_etags else ""
        if etag and etag == own:
            return 304, own, ""
        metadata = json.loads(self.table.metadata.model_dump_json())
        return 200, own, json.dumps({"metadata-location": place, "metadata": metadata})


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    catalog = writer.make_catalog(tmp_path)
    yield Rest(writer.make_table(catalog, "db.t", SCHEMA))
    catalog.close()


@pytest.fixture
def config(rest: Rest, tmp_path: Path) -> Iterator[CatalogConfig]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, etag, body = rest.answer(self.path.partition("?")[0], self.headers.get("If-None-Match", ""))
            self.send_response(status)
            if etag:
                self.send_header("ETag", etag)
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        uri = f"http://127.0.0.1:{server.server_address[1]}"
        yield CatalogConfig("cat", (("type", "rest"), ("uri", uri), ("warehouse", (tmp_path / "warehouse").as_uri())))
        close_catalogs()
        server.shutdown()
        thread.join()


def is_unchanged(config: CatalogConfig, location: str) -> bool:
    return IcebergFormat().is_unchanged(config, TABLE, location)


def test_a_table_is_unchanged_until_it_changes(rest: Rest, config: CatalogConfig) -> None:
    location = rest.table.metadata_location
    assert not is_unchanged(config, location)  # never loaded: nobody knows
    assert IcebergFormat().load(config, TABLE).facts.metadata_location == location
    assert rest.asked == [""]
    assert is_unchanged(config, location)
    assert rest.asked == ["", f'"{location}"']
    writer.append(rest.table, [row(1)])
    rest.table.refresh()
    assert not is_unchanged(config, location)
    IcebergFormat().load(config, TABLE)
    assert not is_unchanged(config, location)  # what is known is older than what was loaded
    assert is_unchanged(config, rest.table.metadata_location)


def test_nothing_is_asked_of_a_server_without_etags_or_through_another_configuration(
    rest: Rest, config: CatalogConfig
) -> None:
    location = rest.table.metadata_location
    IcebergFormat().load(config, TABLE)
    assert not is_unchanged(replace(config, properties=(*config.properties, ("table.x", "y"))), location)
    rest.has_etags = False
    IcebergFormat().load(config, TABLE)
    assert not is_unchanged(config, location)
    assert rest.asked == ["", ""]


def test_a_server_that_fails_says_nothing(rest: Rest, config: CatalogConfig) -> None:
    IcebergFormat().load(config, TABLE)
    rest.is_broken = True
    assert not is_unchanged(config, rest.table.metadata_location)
    with pytest.raises(CatalogUnavailable):
        IcebergFormat().load(config, TABLE)


def test_no_more_etags_are_kept_than_there_may_be() -> None:
    kept, config = ETags(2), CatalogConfig("cat", ())
    tables = [TableIdentifier("cat", ("db",), f"t{number}") for number in range(3)]
    for table in tables:
        kept.keep(config, table, "e", "place")
    assert [kept.find(config, table, "place") for table in tables] == ["", "e", "e"]
    kept.keep(config, tables[2], "", "place")
    assert kept.find(config, tables[2], "place") == ""


def test_the_refresh_of_an_unchanged_table_is_spared_until_something_comes_due(
    rest: Rest, config: CatalogConfig, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    catalog = writer.make_catalog(tmp_path)
    world = World(home, catalog, config=config)
    try:
        table_id = world.table().table_id
        assert not world.comparing.spares(table_id)  # never refreshed
        refreshed = world.tables.refresh(table_id)
        world.later(60)
        assert world.comparing.spares(table_id)
        after = world.table()
        assert after.refresh_at is not None
        assert after.refresh_at >= world.now + REFRESH_INTERVAL
        assert replace(after, refresh_at=None) == replace(refreshed or after, refresh_at=None)
        world.later(timedelta(hours=6).total_seconds())
        assert not world.comparing.spares(table_id)  # it is time to load it, whatever is said
        world.tables.refresh(table_id)
        assert world.comparing.spares(table_id)
        writer.append(rest.table, [row(1)])
        rest.table.refresh()
        assert not world.comparing.spares(table_id)
        assert world.comparing.compare("cat") is None
    finally:
        world.close()
        catalog.close()
