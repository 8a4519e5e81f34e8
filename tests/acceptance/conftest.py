"""Installations for tests; what their processes said is in the report of a failure."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.processes import SETTINGS, STEADY, Installation, address_of, install
from tests.engine import writer

_INSTALLATIONS: list[Installation] = []


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    """An installation of the test's own, in which no optimizer is lost because the machine is busy."""
    with installed(tmp_path, STEADY) as made:
        yield made


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Installation]:
    """An installation of the test's own, where an optimizer that was killed is lost within seconds."""
    with installed(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """One installation for all tests of a module; each takes tables of its own."""
    with installed(tmp_path_factory.mktemp("shared")) as made:
        yield made


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """A coordinator and an optimizer, each a process of its own, for all tests of a worker, with tables of their own.

    Beside its catalog there is an empty one `other`, so that a name's first part is a catalog's.
    """
    with installed(tmp_path_factory.mktemp("site"), STEADY) as made:
        made.optimizer(address_of(made.up()))
        writer.make_catalog(made.directory / "other").close()
        made.ask("catalog", "add", "other", "type=sql", f"uri=sqlite:///{made.directory / 'other' / 'catalog.db'}")
        yield made


@contextmanager
def installed(directory: Path, settings: str = SETTINGS) -> Iterator[Installation]:
    """An installation in the directory, whose processes are killed at the end."""
    made = install(directory, settings)
    _INSTALLATIONS.append(made)
    try:
        yield made
    finally:
        _INSTALLATIONS.remove(made)
        made.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Generator[None, Any, Any]:
    report = yield
    if report.failed:
        for made in _INSTALLATIONS:
            report.sections += [(f"log of amoro {name}", text[-8000:]) for name, text in made.logs()]
    return report
