"""`kill -9` of a coordinator that maintains a table, at failpoints and at any moment."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.kills import upkeep
from tests.model.conftest import quick_directory

NAME = "upkeep"
WHAT = (
    "A coordinator process that expires, cleans, sweeps, clusters, tags, counts and takes back on one table with a "
    "writer between (`tests/kills/upkeep.py`); it is killed with SIGKILL, at a failpoint that was armed by chance or "
    "at any moment, and started again, some twenty times a table. A mismatch: rows of the head or of any snapshot "
    "that differ from those of before, a file that any snapshot reaches gone, a process that lands twice or does not "
    "end, a condemned file or an orphan that is forgotten, a damaged database."
)
TARGETS = {
    "kills": 1000,
    **{
        f"{name} × coordinator": 3  # each place between two effects
        for name in upkeep.UPKEEP
    },
}
SECONDS = 150.0
REPLAYS = False

KILLS_PER_BATCH = 20


def run(seed: int, totals: Counter[str]) -> None:
    with quick_directory() as made:
        upkeep.run(seed, KILLS_PER_BATCH, Path(made), totals)
