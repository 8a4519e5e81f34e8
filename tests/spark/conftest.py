"""Spark and shared catalogs for the tests of this directory."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amoro_optimizer.backends.standalone import InProcess
from amoro_optimizer.running import Backend

from .catalogs import SharedCatalog, shared_catalog
from .optimizing import Services, services_on
from .session import missing_parts, start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Spark keeps a catalog under its name until the session ends: no name is used twice.
NAMES = (f"shared{number}" for number in itertools.count(1))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of this run; its start takes about ten seconds."""
    if missing := missing_parts():
        reason = f"Spark's tests need {', '.join(missing)}: run make test"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    session = start_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


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


@pytest.fixture(scope="module")
def backends(spark: SparkSession) -> Iterator[list[Backend]]:
    """A standalone optimizer's, and that of an application which is the session's."""
    from amoro_optimizer.backends.spark.driver import SparkBackend

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spark.sparkContext, "stop", lambda: None)  # the session goes on
        on_spark = SparkBackend(spark.sparkContext)
        yield [InProcess(), on_spark]
        on_spark.close()


def pytest_configure(config: pytest.Config) -> None:
    """Let pyspark leave the sockets of `collect` to the garbage collector: it does not close them itself."""
    config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")
