"""Random tables, rewritten: the rows are those of the slow reader, and the metrics those of the rows.

The number in a test's name is the seed of its table. `make prove` runs these and many more.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from amoro_core.model.processes import CatalogConfig
from tests.engine import oracle, writer
from tests.rewrite import random_tables, tables
from tests.tiers import seeds


@pytest.mark.parametrize("seed", seeds(12, 36))
def test_a_random_table_keeps_its_rows_and_tells_the_truth_of_them(
    warehouse: tuple[Catalog, CatalogConfig], seed: int
) -> None:
    random_tables.rewrite_table(*warehouse, seed)


@pytest.mark.parametrize("seed", [12345, 23456])
def test_equal_seeds_make_equal_tables(tmp_path: Path, seed: int) -> None:
    found = []
    for name in ("one", "other"):
        catalog = writer.make_catalog(tmp_path / name)
        found.append(oracle.live_rows(tables.make(catalog, seed).table))
        catalog.close()
    assert found[0] == found[1]
