"""What expiry and orphan cleaning take of random tables, beside what Iceberg's Java runtime takes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.model.conftest import quick_directory
from tests.spark.catalogs import shared_catalog
from tests.spark.session import missing_parts, start_session
from tests.spark.test_expiring import expired_as_by_java
from tests.spark.test_orphans import PROTECTED, differences_from_java

NAME = "java"
WHAT = (
    "Fifty random tables that are expired by Iceberg's Java runtime after we have said what we would take "
    "(`tests/spark/test_expiring.py`), and fifty whose orphan files are listed by both "
    "(`tests/spark/test_orphans.py`). A mismatch: other snapshots, references or files than Java's, but for what the "
    "documented protections keep."
)
TARGETS = {"tables expired": 500, "tables cleaned": 500}
SECONDS = 180.0
REPLAYS = True

TABLES = 50
#: `make test` has the first ones.
FIRST_HISTORY, FIRST_TABLE = 1000, 100


def run(seed: int, totals: Counter[str]) -> None:
    if missing := missing_parts():
        raise RuntimeError(f"Spark needs {', '.join(missing)}")
    with quick_directory() as made:
        spark = start_session(Path(made))
        try:
            with shared_catalog(spark, Path(made) / "expired", "expired") as catalog:
                first = FIRST_HISTORY + seed * TABLES
                went, released = expired_as_by_java(catalog, range(first, first + TABLES))
                totals.update({"tables expired": TABLES, "snapshots expired": went, "files released": released})
            with shared_catalog(spark, Path(made) / "cleaned", "cleaned") as catalog:
                first = FIRST_TABLE + seed * TABLES
                found = differences_from_java(spark, catalog, range(first, first + TABLES))
                assert found <= PROTECTED, found - PROTECTED
                totals["tables cleaned"] += TABLES
        finally:
            spark.stop()
