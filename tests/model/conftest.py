from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from amoro_core.iceberg.catalog.catalogs import close_catalogs
from tests.model.lake import Stages

#: Memory, where the system offers it as files: thousands of small commits would otherwise wait for the disk.
_SHARED_MEMORY = Path("/dev/shm")


def quick_directory() -> tempfile.TemporaryDirectory[str]:
    """A new directory, in memory if possible, which goes with all that is in it."""
    return tempfile.TemporaryDirectory(
        prefix="amoro-model-", dir=_SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None, ignore_cleanup_errors=True
    )


@pytest.fixture
def quick_path() -> Iterator[Path]:
    with quick_directory() as made:
        yield Path(made)


@pytest.fixture(scope="session")
def stages() -> Iterator[Stages]:
    """Prepared tables, each made when it is first asked for."""
    with quick_directory() as made:
        prepared = Stages(Path(made))
        yield prepared
        close_catalogs()
        prepared.close()
