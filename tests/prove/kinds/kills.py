"""`kill -9` of coordinator and optimizer, at failpoints and at any moment."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.kills import rounds
from tests.model.conftest import quick_directory

NAME = "kills"
WHAT = (
    "A coordinator process and an optimizer process over one table, with a writer between; each is killed with "
    "SIGKILL, at a failpoint that was armed by chance or at any moment, and started again, some fifteen times a table "
    "(`tests/kills/rounds.py`). A mismatch: rows that differ from the model's after any round, a process that lands "
    "twice, is called what it is not or does not end, a lost task, a live file that is gone, a damaged database. The "
    "table says where they died: at a failpoint that was armed, or at a moment by chance."
)
TARGETS = {"kills": 200}
SECONDS = 120.0
REPLAYS = False

KILLS_PER_BATCH = 15


def run(seed: int, totals: Counter[str]) -> None:
    with quick_directory() as made:
        rounds.run(seed, KILLS_PER_BATCH, Path(made), totals)
