"""A warehouse, a REST catalog over it, and the coordinator's services on a state directory beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.iceberg.catalog.catalogs import close_catalogs
from amoro_core.model.processes import CatalogConfig
from tests.engine import writer
from tests.faults.proxy import Proxy
from tests.faults.rest import RestServer
from tests.faults.system import System


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    """The writer's own way to the tables."""
    made = writer.make_catalog(tmp_path)
    yield made
    close_catalogs()
    made.close()


@pytest.fixture
def server(tmp_path: Path, catalog: SqlCatalog) -> Iterator[RestServer]:
    """A REST catalog over the writer's."""
    beneath = writer.make_catalog(tmp_path)
    with RestServer(beneath) as made:
        yield made
        # What the proxy still held back must find the catalog open.
        made.proxy.release()
    beneath.close()


@pytest.fixture
def proxy(server: RestServer) -> Proxy:
    return server.proxy


@pytest.fixture
def over_rest(server: RestServer, tmp_path: Path) -> CatalogConfig:
    """The REST catalog as the coordinator knows it."""
    warehouse = (tmp_path / "warehouse").as_uri()
    return CatalogConfig("cat", (("type", "rest"), ("uri", server.uri), ("warehouse", warehouse)))


@pytest.fixture
def over_sql(tmp_path: Path, catalog: SqlCatalog) -> CatalogConfig:
    """The SQL catalog as the coordinator knows it."""
    warehouse = (tmp_path / "warehouse").as_uri()
    return CatalogConfig("cat", (("type", "sql"), ("uri", catalog.properties["uri"]), ("warehouse", warehouse)))


@pytest.fixture
def system(catalog: SqlCatalog, over_rest: CatalogConfig, tmp_path: Path) -> Iterator[System]:
    """The coordinator's services, which reach the table by REST."""
    with System(tmp_path / "home", catalog, over_rest) as made:
        yield made
