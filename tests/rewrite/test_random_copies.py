"""Random tables, rewritten by copying what can be copied: the rows are those of the slow reader, in their order.

`AMORO_COPIES` says how many tables, `AMORO_SEED` the first one's seed, which is the number in the test's name.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema

from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.iceberg.catalogs import close_catalogs
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.rewrite import CopyRule
from amoro_core.model.tables import TableIdentifier
from amoro_optimizer.rewrite.engine import rewrite
from tests.engine import oracle, writer
from tests.prove.kinds import KINDS
from tests.rewrite import tables
from tests.rewrite.checking import ATTEMPT, access_to, read_rows, tasks
from tests.rewrite.metrics import assert_holding_metrics

TABLES = int(os.environ.get("AMORO_COPIES", "12"))
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


def test_random_tables_keep_their_rows_when_they_are_copied(warehouse: tuple[Catalog, CatalogConfig]) -> None:
    catalog, config = warehouse
    copied = encoded = 0
    for seed in range(FIRST, FIRST + TABLES):
        made = tables.make(catalog, seed)
        live = defaultdict(list)
        for row in oracle.live_rows_with_positions(made.table):
            live[row.path].append(row)
        loaded = IcebergFormat().load(config, TableIdentifier("cat", ("db",), f"t{seed}"))
        for work in tasks(loaded, made.chance):
            work = replace(work, copy=CopyRule(0, made.chance.choice((2, 1024, 1024))))
            output = rewrite(
                work,
                access_to(work.table),
                ATTEMPT,
                on_progress=lambda done, total: None,
                is_cancelled=lambda: False,
                memory_limit_bytes=made.chance.choice((512 << 20, 8 << 20)),
            )
            schema = Schema.model_validate_json(work.table.schema_json)
            expected = [row.row for file in work.rewritten for row in live.get(file.data.path, ())]
            assert [row for file in output.data_files for row in read_rows(file, schema)] == expected, seed
            assert len(output.data_files) <= work.output_count
            for file in output.data_files:
                assert_holding_metrics(file, schema)
            copied += output.files_copied
            encoded += len(work.rewritten) - output.files_copied
            assert bool(output.encoded_because) == (output.files_copied < len(work.rewritten)), seed
            assert sum(output.encoded_files.values()) == len(work.rewritten) - output.files_copied, seed
    # Both ways were taken.
    assert copied >= TABLES // 6
    assert encoded >= TABLES // 6


def test_random_files_of_several_writers_are_copied_as_they_are() -> None:
    """The first batch of the proof `copies`."""
    totals: Counter[str] = Counter()
    KINDS["copies"].run(0, totals)
    assert (totals["tasks"], totals["files"]) == (40, 122)
    assert totals["files copied whole"] >= 60
    # Of tasks of which every file was.
    assert min(totals[f"files of {kind} copied whole"] for kind in ("arrow", "duckdb", "polars", "datafusion")) > 1
