"""Coordinators and optimizers on Spark, each a process of its own."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core import failpoints
from tests.acceptance.conftest import installation, pytest_runtest_makereport, shared
from tests.engine.writer import make_catalog
from tests.spark_backend.spark import ENVIRONMENT, PIPES, SETTINGS

if TYPE_CHECKING:
    from amoro_optimizer.backends.spark.driver import SparkBackend

__all__ = ["installation", "pytest_runtest_makereport", "shared"]


def missing_parts() -> list[str]:
    """What this machine lacks, by name."""
    java = shutil.which("java") or (Path(os.environ.get("JAVA_HOME", "/nonexistent")) / "bin" / "java").exists()
    parts = {"pyspark": importlib.util.find_spec("pyspark"), "a JDK": java}
    return [name for name, found in parts.items() if not found]


@pytest.fixture(autouse=True)
def _pipes_are_allowed() -> Iterator[None]:
    """Pipes are read in this process, too."""
    failpoints.arm(PIPES)
    yield
    failpoints.arm("")


@pytest.fixture(scope="package", autouse=True)
def _spark_is_installed() -> None:
    """Skip by name; where CI says that all must run, fail."""
    if missing := missing_parts():
        reason = f"Spark's tests need {', '.join(missing)}: run make test"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkBackend]:
    """A local application of two cores in this process, for all tests of a module."""
    with open_backend("local[2]", tmp_path_factory.mktemp("spark")) as opened:
        yield opened


@contextmanager
def open_backend(
    master: str, directory: Path, settings: Mapping[str, str] = MappingProxyType({})
) -> Iterator[SparkBackend]:
    """An application whose driver is this process, for the time of the block; there can be one at a time."""
    from amoro_optimizer.backends.spark.driver import spark_backend

    with pytest.MonkeyPatch.context() as patch:
        for key, value in ENVIRONMENT.items():
            patch.setenv(key, value)
        patch.setenv("SPARK_LOCAL_DIRS", str(directory))
        with spark_backend(master, {**SETTINGS, **settings}) as opened:
            yield opened


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    made = make_catalog(tmp_path)
    yield made
    made.close()


def pytest_configure(config: pytest.Config) -> None:
    """Let pyspark leave the sockets of its jobs to the garbage collector: it does not close them itself."""
    config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")
