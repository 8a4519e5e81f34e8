"""Installations whose processes end with the test, and whose logs stand in the report of a failure."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.processes import Installation, install

_INSTALLATIONS: list[Installation] = []


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    """An installation of the test's own."""
    yield from _installed(tmp_path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """One installation for all tests of a module; each takes tables of its own."""
    yield from _installed(tmp_path_factory.mktemp("shared"))


def _installed(directory: Path) -> Iterator[Installation]:
    made = install(directory)
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
