"""A served coordinator for the tests of a module."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dashboard.served import Served, serving


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory: Path = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(directory))
        patch.setenv("PYICEBERG_HOME", str(directory))
        with serving(directory / "home") as made:
            yield made
