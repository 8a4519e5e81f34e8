"""Random tables, rewritten: the rows are those of the slow reader, and the metrics those of the rows.

`AMORO_TABLES` says how many tables, `AMORO_SEED` the first one's seed, which is the number in the test's name.
`make prove` runs these and many more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from amoro_core.model.processes import CatalogConfig
from tests.engine import oracle, writer
from tests.rewrite import random_tables, tables

TABLES = int(os.environ.get("AMORO_TABLES", "100"))
FIRST = int(os.environ.get("AMORO_SEED", "0"))


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Catalog, CatalogConfig]]:
    with random_tables.warehouse(tmp_path_factory.mktemp("random")) as made:
        yield made


@pytest.mark.parametrize("seed", range(FIRST, FIRST + TABLES))
def test_a_random_table_keeps_its_rows_and_tells_the_truth_of_them(
    warehouse: tuple[Catalog, CatalogConfig], seed: int
) -> None:
    random_tables.rewrite_table(*warehouse, seed)


@pytest.mark.parametrize("seed", [12345, 23456, 34567, 45678, 56789])
def test_equal_seeds_make_equal_tables(tmp_path: Path, seed: int) -> None:
    found = []
    for name in ("one", "other"):
        catalog = writer.make_catalog(tmp_path / name)
        found.append(oracle.live_rows(tables.make(catalog, seed).table))
        catalog.close()
    assert found[0] == found[1]
