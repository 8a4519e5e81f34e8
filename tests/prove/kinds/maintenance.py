"""Maintenance of files, manifests and tags through a REST catalog whose answers lie, fail or never come."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.faults import random_expiries, random_maintenance
from tests.model.conftest import quick_directory

NAME = "maintenance"
WHAT = (
    "Data expiry, dangling deletes, manifests and tags of one table over a REST catalog behind a faulting proxy, while "
    "others write and the coordinator dies (`tests/faults/random_maintenance.py`). A mismatch: a commit that lands "
    "twice, is called what it is not, or never ends; a row too many or too few; a manifest that is gone. Then ten "
    "expiries of a table, with tags that are made meanwhile (`tests/faults/random_expiries.py`). A mismatch: one that "
    "does not end, a snapshot that can't be read, a file condemned that any reaches, a tag that is lost."
)
TARGETS = {"ambiguous commits": 200, "ambiguous expiries": 50}
SECONDS = 50.0
REPLAYS = False  # when a late commit is applied depends on the client's timing, too

TABLES_PER_BATCH, EXPIRIES = 5, 10


def run(seed: int, totals: Counter[str]) -> None:
    for number in range(seed * TABLES_PER_BATCH, (seed + 1) * TABLES_PER_BATCH):
        with quick_directory() as made:
            random_maintenance.run(number, Path(made), totals)
    with quick_directory() as made:
        random_expiries.run(seed, EXPIRIES, Path(made), totals)
