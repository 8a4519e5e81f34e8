"""Random tables, rewritten: the rows are those of the slow reader, and the metrics those of the rows.

`AMORO_TABLES` says how many tables, `AMORO_SEED` the first one's seed, which is the number in the test's name.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.iceberg.catalogs import close_catalogs
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier
from amoro_optimizer.rewrite.engine import rewrite
from tests.engine import oracle, writer
from tests.rewrite import tables
from tests.rewrite.checking import ATTEMPT, access_to, assert_right, tasks
from tests.rewrite.metrics import assert_true_metrics

TABLES = int(os.environ.get("AMORO_TABLES", "300"))
FIRST = int(os.environ.get("AMORO_SEED", "0"))


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Catalog, CatalogConfig]]:
    root: Path = tmp_path_factory.mktemp("random")
    catalog = writer.make_catalog(root)
    uri = f"sqlite:///{root / 'catalog.db'}"
    properties = {"type": "sql", "uri": uri, "warehouse": (root / "warehouse").as_uri()}
    yield catalog, CatalogConfig("cat", tuple(sorted(properties.items())))
    catalog.close()
    close_catalogs()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + TABLES))
def test_a_random_table_keeps_its_rows_and_tells_the_truth_of_them(
    warehouse: tuple[Catalog, CatalogConfig], seed: int
) -> None:
    catalog, config = warehouse
    made = tables.make(catalog, seed)
    print(f"seed {seed}: {' '.join(made.steps)}")
    live = defaultdict(list)
    for row in oracle.live_rows_with_positions(made.table):
        live[row.path].append(row)

    loaded = IcebergFormat().load(config, TableIdentifier("cat", ("db",), f"t{seed}"))
    for work in tasks(loaded, made.chance):
        limit = made.chance.choice([512 << 20, 1 << 20, 1])
        output = rewrite(
            work,
            access_to(work.table),
            ATTEMPT,
            on_progress=lambda done, total: None,
            is_cancelled=lambda: False,
            memory_limit_bytes=limit,
        )
        assert_right(work, output, live)
        for file in output.data_files:
            assert_true_metrics(file, made.table.schema(), made.table.properties)


@pytest.mark.parametrize("seed", [12345, 23456, 34567, 45678, 56789])
def test_equal_seeds_make_equal_tables(tmp_path: Path, seed: int) -> None:
    found = []
    for name in ("one", "other"):
        catalog = writer.make_catalog(tmp_path / name)
        found.append(oracle.live_rows(tables.make(catalog, seed).table))
        catalog.close()
    assert found[0] == found[1]
