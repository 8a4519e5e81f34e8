"""Tags made at random moments while snapshots are removed through a REST catalog, read back by Spark."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

from tests.spark import random_tags
from tests.spark.catalogs import shared_catalog
from tests.spark.session import missing_parts, start_session

NAME = "tags"
WHAT = (
    "Fifty expiries of a table over a REST catalog, during each of which somebody makes a tag on a snapshot that is to "
    "go: before the plan, after it, within the one request of the commit, or after (`tests/spark/random_tags.py`). A "
    "mismatch: a tag that was made and is not there in the end, or whose rows are others by Spark. On SQL catalogs 500 "
    "tags are part of `make test`."
)
TARGETS = {"tags made": 500}
SECONDS = 120.0
REPLAYS = False

TAGS = 50


def run(seed: int, totals: Counter[str]) -> None:
    if missing := missing_parts():
        raise RuntimeError(f"Spark needs {', '.join(missing)}")
    with tempfile.TemporaryDirectory(prefix="amoro-tags-") as made:
        spark = start_session(Path(made))
        try:
            with shared_catalog(spark, Path(made) / "shared", "tagged") as catalog:
                random_tags.run(catalog, Path(made) / "state", seed, TAGS, totals)
        finally:
            spark.stop()
