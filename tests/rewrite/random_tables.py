"""One random table at a time, rewritten: its rows are those of the slow reader, and the metrics those of the rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyiceberg.catalog import Catalog

from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.iceberg.catalog.catalogs import close_catalogs
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier
from amoro_core.model.task_payload import RewriteInput
from tests.engine import oracle, writer
from tests.rewrite import tables
from tests.rewrite.checking import assert_right, assert_true_metrics, rewritten, tasks


@contextmanager
def warehouse(root: Path) -> Iterator[tuple[Catalog, CatalogConfig]]:
    """A catalog below the directory, and how it is reached."""
    catalog = writer.make_catalog(root)
    uri = f"sqlite:///{root / 'catalog.db'}"
    properties = {"type": "sql", "uri": uri, "warehouse": (root / "warehouse").as_uri()}
    try:
        yield catalog, CatalogConfig("cat", tuple(sorted(properties.items())))
    finally:
        catalog.close()
        close_catalogs()


def random_work(
    catalog: Catalog, config: CatalogConfig, seed: int
) -> tuple[tables.RandomTable, Mapping[str, list[oracle.LiveRow]], list[RewriteInput]]:
    """The table of the seed, its live rows by file, and the tasks that rewrite all of it."""
    made = tables.make(catalog, seed)
    print(f"seed {seed}: {' '.join(made.steps)}")
    live = defaultdict(list)
    for row in oracle.live_rows_with_positions(made.table):
        live[row.path].append(row)

    loaded = IcebergFormat().load(config, TableIdentifier("cat", ("db",), f"t{seed}"))
    return made, live, tasks(loaded, made.chance)


def rewrite_table(catalog: Catalog, config: CatalogConfig, seed: int) -> int:
    """Make the table of the seed and rewrite all of it; how many tasks that took.

    Raises AssertionError unless the rows are those that the slow reader finds, and the metrics those of the rows.
    """
    made, live, works = random_work(catalog, config, seed)
    for work in works:
        output = rewritten(work, made.chance.choice([512 << 20, 1 << 20, 1]))
        assert_right(work, output, live)
        for file in output.data_files:
            assert_true_metrics(file, made.table.schema(), made.table.properties)
    return len(works)
