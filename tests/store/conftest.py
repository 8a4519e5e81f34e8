"""A real state database on a temporary path."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from amoro_core.model.processes import OptimizingProcess
from amoro_core.store import processes, tables
from amoro_core.store.database import Store
from tests.services.rigs import limits as limits
from tests.store.builders import open_store, process, runtime


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "amoro.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with open_store(path) as opened:
        yield opened


@pytest.fixture
def owner(store: Store) -> OptimizingProcess:
    """A process on a table."""
    return store.write(lambda db: processes.add(db, process(tables.add(db, runtime()))))
