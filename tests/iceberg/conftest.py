"""A SQL catalog as most tests here need one, and a table of two files."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from amoro_core.iceberg.catalog.catalogs import close_catalogs
from tests.engine.writer import append, make_catalog, make_table
from tests.iceberg.scenarios import SCHEMA, rows


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    opened = make_catalog(tmp_path)
    yield opened
    opened.close()
    close_catalogs()


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    made = make_table(catalog, "db.t", SCHEMA)
    append(made, rows(1, 2))
    append(made, rows(3, 4))
    return made
