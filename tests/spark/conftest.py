"""Spark and shared catalogs for the tests of this directory."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amoro_optimizer.execution import Backend
from amoro_optimizer.work_kinds import InProcess

from .optimizing import Services, services_on
from .session import SharedCatalog, application, close_application, missing_parts, require, shared_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Spark keeps a catalog under its name until the session ends: no name is used twice.
NAMES = (f"shared{number}" for number in itertools.count(1))


@pytest.fixture(scope="package", autouse=True)
def _utc() -> Iterator[None]:
    """Spark gives times with a zone as local ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """The session of this process."""
    require(missing_parts())
    return application(tmp_path_factory).session


@pytest.fixture
def catalog(spark: SparkSession, tmp_path: Path) -> Iterator[SharedCatalog]:
    """A fresh catalog of its own name for each test, with the namespace `db`."""
    with shared_catalog(spark, tmp_path / "shared", next(NAMES)) as opened:
        yield opened


@pytest.fixture
def services(catalog: SharedCatalog, tmp_path: Path) -> Iterator[Services]:
    """Our services on the test's catalog."""
    with services_on(catalog, tmp_path / "home") as opened:
        yield opened


@pytest.fixture(scope="session")
def backends(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[Backend]:
    """A standalone optimizer's, and that of the session's application."""
    return [InProcess(), application(tmp_path_factory).backend]


def pytest_configure(config: pytest.Config) -> None:
    """Let pyspark leave the sockets of `collect` to the garbage collector: it does not close them itself."""
    config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")


def pytest_unconfigure() -> None:
    close_application()
