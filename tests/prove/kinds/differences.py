"""Random histories of tables, looked at by difference and anew."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from amoro_core.iceberg.column_reading import read_here
from amoro_core.iceberg.decoding import DecodingWorkers
from tests.engine import writer
from tests.engine.chance import seed_ids
from tests.iceberg.looking import watched
from tests.model.conftest import quick_directory
from tests.model.lake import Lake
from tests.unit.planning.differences import lived

NAME = "differences"
WHAT = (
    "100 tables in memory whose manifests come and go by chance (`tests/unit/planning/differences.py`), and a real one "
    "of 12 commits of all kinds (`tests/iceberg/looking.py`) while the cache on disk is cut, flipped and removed. Each "
    "commit is followed by a look by what is known of the manifests, and by one anew. A mismatch: another scan, match, "
    "verdict or plan."
)
TARGETS = {"histories": 2000, "real histories": 20}
SECONDS = 25.0
REPLAYS = True

HISTORIES, COMMITS = 100, 12
#: Every other real history is read by another process.
WORKERS = DecodingWorkers(1, least_files=0)


def run(seed: int, totals: Counter[str]) -> None:
    for number in range(seed * HISTORIES, (seed + 1) * HISTORIES):
        lived(number)
        totals["histories"] += 1
    chance = random.Random(seed)
    with quick_directory() as made, pytest.MonkeyPatch.context() as patch:
        seed_ids(patch, chance)
        lake = Lake.created(writer.make_catalog(Path(made)), partitioned=chance.random() < 0.8)
        seen = watched(lake, Path(made) / "cache", chance, COMMITS, WORKERS.read if seed % 2 else read_here)
    totals["real histories"] += 1
    totals["broken files of the cache"] += seen["broken"]
