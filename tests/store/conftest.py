"""A real state database on a temporary path."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from amoro_core.store.database import Store
from tests.services.rigs import limits as limits
from tests.store.builders import open_store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "amoro.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with open_store(path) as opened:
        yield opened
