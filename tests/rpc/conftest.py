import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.app import Coordinator
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.trust import PLAIN
from amoro_core.settings import Settings
from amoro_optimizer.client import Client
from tests.engine.writer import make_catalog


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    made = make_catalog(tmp_path)
    yield made
    made.close()


@pytest.fixture
def coordinator(tmp_path: Path, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> Iterator[Coordinator]:
    """A coordinator that listens, does nothing by itself, and knows one catalog."""
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    settings = replace(Settings(), port=0, heartbeat_timeout=timedelta(seconds=30))
    made = Coordinator(tmp_path / "home", settings, watch=False)
    made.start()
    made.catalogs.add(CatalogConfig("cat", tuple({**catalog.properties, "type": "sql"}.items())))
    yield made
    made.stop()


@pytest.fixture
def client(coordinator: Coordinator) -> Iterator[Client]:
    made = Client(coordinator.address, PLAIN, stopping=threading.Event())
    yield made
    made.close()
