"""A REST catalog that fails by a script, and the coordinator's services on a state directory beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.model.processes import CatalogConfig
from tests.faults.proxy import Proxy
from tests.faults.rest import RestServer, give_up_hanging
from tests.faults.world import World, rest_catalog

Place = tuple[SqlCatalog, RestServer, CatalogConfig]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with rest_catalog(tmp_path) as made:
        yield made


@pytest.fixture
def server(place: Place) -> RestServer:
    return place[1]


@pytest.fixture
def proxy(server: RestServer, monkeypatch: pytest.MonkeyPatch) -> Proxy:
    """What it leaves without an answer ends at once."""
    give_up_hanging(monkeypatch, server.proxy)
    return server.proxy


@pytest.fixture
def kind() -> dict[str, Any]:
    """Version and partitioning of the table; tests are parametrized by others."""
    return {}


@pytest.fixture
def world(place: Place, tmp_path: Path, kind: dict[str, Any]) -> Iterator[World]:
    """An empty table, which the services reach by REST."""
    made = World(tmp_path / "home", place[0], place[2], **kind)
    yield made
    made.store.close()
