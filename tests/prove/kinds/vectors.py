"""Deletion vectors of random sets of positions, as Iceberg's Java runtime and as we write them."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

from tests.model.conftest import quick_directory
from tests.spark.catalogs import shared_catalog
from tests.spark.session import missing_parts, start_session
from tests.spark.test_vectors import SETS_OF_A_TABLE, compare_vectors

NAME = "vectors"
WHAT = (
    "Fifty random sets of positions, of single ones, shares, runs, almost all and the edges of containers, that Spark "
    "deletes from fifty files of a table of format 3 (`tests/spark/test_vectors.py`). A mismatch: a vector that "
    "differs from ours in one byte, or is read by us as another set."
)
TARGETS = {"sets": 1000}
SECONDS = 40.0
REPLAYS = True


def run(seed: int, totals: Counter[str]) -> None:
    if missing := missing_parts():
        raise RuntimeError(f"Spark needs {', '.join(missing)}")
    with quick_directory() as made:
        root = Path(made)
        spark = start_session(root)
        try:
            with shared_catalog(spark, root / "vectors", "vectors") as catalog:
                compare_vectors(catalog, root, random.Random(seed), SETS_OF_A_TABLE, "sets")
                totals["sets"] += SETS_OF_A_TABLE
        finally:
            spark.stop()
