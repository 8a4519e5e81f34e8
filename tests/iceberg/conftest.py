"""A SQL catalog, as most tests here need one, and as a coordinator knows it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.iceberg.catalog.catalogs import close_catalogs
from tests.engine.writer import make_catalog


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    opened = make_catalog(tmp_path)
    yield opened
    opened.close()
    close_catalogs()
