"""Expiry, orphan cleaning and the sweep of random tables with planted files, watched before every batch of deletes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.faults import random_sweeps as faulty_sweeps
from tests.iceberg import random_sweeps
from tests.model.conftest import quick_directory

NAME = "decoys"
WHAT = (
    "Twenty-five random tables (`tests/iceberg/random_sweeps.py`) of formats 1 and 2 with branches, tags, rolled-back "
    "snapshots, files added again and paths in six spellings, with planted files of every kind: orphans, and such as "
    "only look like orphans; those counted as of all shapes also have staged and picked snapshots, several specs, and "
    "hashes in their paths. They are expired, cleaned and emptied while others write. One of fourteen has another "
    "table in its location (kind `shared-places`). A mismatch: a batch of deletes with a "
    "file that pyiceberg reaches from any snapshot at that moment, a file that is needed or too young gone, a guard "
    "that speaks where nobody committed what was condemned, or fewer than 99 of 100 planted "
    "orphans found. Five more tables are on a storage that is busy, lies in its listings, deletes by halves and loses "
    "manifests (`tests/faults/random_sweeps.py`)."
)
TARGETS = {"tables": 5000, "tables of all shapes": 5000}
SECONDS = 120.0
REPLAYS = True

TABLES, FAULTY = 25, 5


def run(seed: int, totals: Counter[str]) -> None:
    with quick_directory() as made:
        random_sweeps.run(range(seed * TABLES, (seed + 1) * TABLES), Path(made), totals)
    with quick_directory() as made:
        faulty_sweeps.run(range(seed * FAULTY, (seed + 1) * FAULTY), Path(made), totals)
