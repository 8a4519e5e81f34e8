from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from amoro_core.bootstrap.coordinator_app import Coordinator
from amoro_core.bootstrap.settings import Settings
from tests.acceptance.tables import config_of
from tests.engine import writer
from tests.engine.builders import SCHEMA, row


@pytest.fixture(autouse=True)
def _clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AMORO_HOME", "AMORO_ADDRESS", "AMORO_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    made = writer.make_catalog(tmp_path)
    yield made
    made.close()


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    """Three small files of ten rows."""
    made = writer.make_table(catalog, "db.t", SCHEMA)
    for first in (0, 10, 20):
        writer.append(made, [row(first + number) for number in range(10)])
    return made


@pytest.fixture
def coordinator(home: Path, catalog: SqlCatalog) -> Iterator[Coordinator]:
    """One that runs on the state directory and knows the catalog, without optimizer."""
    running = Coordinator(home, Settings(port=0), watch=False, catalogs=[config_of(catalog)])
    running.start()
    yield running
    running.stop()
