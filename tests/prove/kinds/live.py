"""A writer that commits each second for ten minutes, with the coordinator as it runs for real beside it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.model import live
from tests.model.conftest import quick_directory

NAME = "live"
WHAT = (
    "A writer commits each second, by turns an append and an upsert, for ten minutes, while a coordinator and its "
    "optimizer run beside it (`tests/model/live.py`); odd seeds on a partitioned table. A mismatch: the writer fails, "
    "its rows are not the model's at any of its commits, a rewrite lands twice or fails by anything but a conflict, or "
    "fewer than two land."
)
TARGETS = {"live seconds": 1200}
SECONDS = 620.0
REPLAYS = False

WRITING_S = 600.0


def run(seed: int, totals: Counter[str]) -> None:
    with quick_directory() as made:
        live.run(WRITING_S, seed, Path(made), totals, partitioned=seed % 2 == 1)
