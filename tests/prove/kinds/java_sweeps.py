"""Expiry, orphan cleaning and the sweep of random tables, with Iceberg's Java runtime asked before every batch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.model.conftest import quick_directory
from tests.spark.catalogs import shared_catalog
from tests.spark.session import missing_parts, start_session
from tests.spark.test_sweeping import FIRST, TABLES, swept_before_java

NAME = "java-sweeps"
WHAT = (
    "Twenty-five random tables as of the decoys, in a catalog that Java reads, too (`tests/spark/test_sweeping.py`). A "
    "mismatch: a batch of deletes with a file that Iceberg's Java runtime or pyiceberg reaches from any snapshot at "
    "that moment, or any other of the decoys."
)
TARGETS = {"tables swept": 500}
SECONDS = 180.0
REPLAYS = True

TABLES_PER_BATCH = 25
#: `make test` has those before.
FIRST_TABLE = FIRST + 10 * TABLES


def run(seed: int, totals: Counter[str]) -> None:
    if missing := missing_parts():
        raise RuntimeError(f"Spark needs {', '.join(missing)}")
    first = FIRST_TABLE + seed * TABLES_PER_BATCH
    found: Counter[str] = Counter()
    with quick_directory() as made:
        spark = start_session(Path(made))
        try:
            with shared_catalog(spark, Path(made) / "swept", "swept") as catalog:
                swept_before_java(spark, catalog, range(first, first + TABLES_PER_BATCH), found)
        finally:
            spark.stop()
    totals["tables swept"] += found.pop("tables")
    totals.update(found)
