"""The process's Spark application, and coordinators and optimizers on Spark as processes of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from amoro_core import failpoints
from tests.acceptance.conftest import impatient as installation
from tests.acceptance.conftest import pytest_runtest_makereport
from tests.services.conftest import catalog, new_world, world
from tests.spark.conftest import pytest_configure, pytest_unconfigure
from tests.spark.session import PIPES, Application, application, lacking_for_backend, require

if TYPE_CHECKING:
    from amoro_optimizer.backends.spark.driver import SparkBackend

#: There is a jar of Hudi for Spark 3.5 alone, with which `make test-all` runs tests of this package once more.
collect_ignore = [] if os.environ.get("PYSPARK_SERIES") == "3.5" else ["test_procedures.py"]

__all__ = [
    "catalog",
    "installation",
    "new_world",
    "pytest_configure",
    "pytest_runtest_makereport",
    "pytest_unconfigure",
    "world",
]


@pytest.fixture(autouse=True)
def _pipes_are_allowed() -> Iterator[None]:
    """Pipes are read in this process, too."""
    failpoints.arm(PIPES)
    yield
    failpoints.arm("")


@pytest.fixture(scope="package", autouse=True)
def _spark_is_installed() -> None:
    require(lacking_for_backend())


@pytest.fixture(scope="session")
def spark_application(tmp_path_factory: pytest.TempPathFactory) -> Application:
    """The application of this process: of two cores, and what is lost for the third time fails."""
    return application(tmp_path_factory)


@pytest.fixture
def backend(spark_application: Application) -> SparkBackend:
    return spark_application.backend
