from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyiceberg.catalog import Catalog

from amoro_core.model.processes import CatalogConfig
from tests.rewrite import random_tables


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Catalog, CatalogConfig]]:
    """A catalog for random tables, and how it is reached."""
    with random_tables.warehouse(tmp_path_factory.mktemp("random")) as made:
        yield made
