"""Random tables that lie in another one's location, or have one in theirs, watched before every batch of deletes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.iceberg import random_sweeps
from tests.model.conftest import quick_directory

NAME = "shared-places"
WHAT = (
    "Twenty-five pairs of the random tables of kind `decoys`, of which one lies in the other's location, in a place "
    "that a listing comes upon, and was seen before or not. Both are expired and emptied while others write, and "
    "cleaning either of its orphans is refused by name. A mismatch: as for `decoys`, no refusal, or an orphan gone."
)
TARGETS = {"tables in a shared place": 200}
SECONDS = 60.0
REPLAYS = True

PAIRS = 25


def run(seed: int, totals: Counter[str]) -> None:
    each = random_sweeps.EACH
    first = seed * PAIRS * each + each - 1
    with quick_directory() as made:
        random_sweeps.run(range(first, first + PAIRS * each, each), Path(made), totals)
