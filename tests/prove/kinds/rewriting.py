"""Random tables that are rewritten, and read by the slow reader before and after."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.model.conftest import quick_directory
from tests.rewrite import random_tables

NAME = "rewriting"
WHAT = (
    "Fifty random tables (`tests/rewrite/tables.py`) of random types and specs, with deletes of all kinds, changed "
    "schemas and files as different writers make them, are rewritten with much memory and with little. A mismatch: "
    "other rows than the slow reader (`tests/engine/oracle.py`) finds, or metrics that are not those of the rows. The "
    "first 100 tables are those of `make test`."
)
TARGETS = {"tables": 1000}
SECONDS = 30.0
REPLAYS = True

TABLES_PER_BATCH = 50


def run(seed: int, totals: Counter[str]) -> None:
    with quick_directory() as made, random_tables.warehouse(Path(made)) as (catalog, config):
        for number in range(seed * TABLES_PER_BATCH, (seed + 1) * TABLES_PER_BATCH):
            totals["tasks"] += random_tables.rewrite_table(catalog, config, number)
            totals["tables"] += 1
