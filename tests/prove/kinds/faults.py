"""Commits through a REST catalog whose answers lie, fail or never come."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.faults import random_commits
from tests.model.conftest import quick_directory

NAME = "faults"
WHAT = (
    "Ten commits to a table over a REST catalog behind a faulting proxy, while others write and the coordinator dies "
    "(`tests/faults/random_commits.py`). A mismatch: a commit that lands twice, is called what it is not, or never "
    "ends; a row too many or too few; a file of an open attempt removed."
)
TARGETS = {"faulty commits": 1500, "faulty commits with deletes carried over": 200}
SECONDS = 30.0
REPLAYS = False  # the choices are the seed's; when a late commit is applied depends on the client's timing, too

#: The last of them carries deletes over with each commit.
TABLES_PER_BATCH = 5


def run(seed: int, totals: Counter[str]) -> None:
    first, last = seed * TABLES_PER_BATCH, (seed + 1) * TABLES_PER_BATCH - 1
    for number in range(first, last + 1):
        with quick_directory() as made:
            random_commits.run(number, Path(made), totals, carries_deletes=number == last)
