from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kills.nursery import Nursery
from tests.model.conftest import quick_path

__all__ = ["quick_path"]


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """One for all tests of this process: it takes seconds to be ready."""
    with Nursery() as made:
        yield made
