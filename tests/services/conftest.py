from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.engine.writer import make_catalog
from tests.services.world import World


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    made = make_catalog(tmp_path)
    yield made
    made.close()


@pytest.fixture
def world(tmp_path: Path, catalog: SqlCatalog) -> Iterator[World]:
    home = tmp_path / "home"
    home.mkdir()
    made = World(home, catalog)
    yield made
    made.close()
