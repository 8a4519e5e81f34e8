"""Random histories of tables, looked at by difference and anew."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from amoro_core.iceberg.catalogs import close_catalogs
from amoro_core.iceberg.column_reading import read_here
from amoro_core.iceberg.decoding import DecodingWorkers
from tests.engine.chance import seed_ids
from tests.iceberg.histories import random_lake
from tests.iceberg.looking import watched
from tests.model.conftest import quick_directory
from tests.unit.planning.differences import lived

NAME = "differences"
WHAT = (
    "20 tables in memory whose manifests come and go by chance (`tests/unit/planning/differences.py`), and 20 real ones"
    " of all formats with 12 commits of all kinds (`tests/iceberg/histories.py`): other engines', pyiceberg's, and"
    " rewrites of files and manifests by us, planned and staged by what is known of the manifests, while the cache on"
    " disk is cut, flipped and removed. Each commit is followed by a look by what is known of the manifests, and by one"
    " anew; real tables are also read entry by entry and matched file by file, and their branch is looked at sometimes."
    " A mismatch: another scan, match, verdict or plan, or other rows."
)
TARGETS = {"histories": 2000, "real histories": 2000}
SECONDS = 30.0
REPLAYS = True

#: Each batch has a hundred numbers for tables in memory, of which it takes the first.
APART, HISTORIES, REAL, COMMITS = 100, 20, 20, 12
#: Every other real history is read by another process.
WORKERS = DecodingWorkers(1, least_files=0)
CROSS = " × "


def run(seed: int, totals: Counter[str]) -> None:
    for number in range(seed * APART, seed * APART + HISTORIES):
        lived(number)
        totals["histories"] += 1
    for number in range(seed * REAL, (seed + 1) * REAL):
        seen = _watched(number)
        totals["real histories"] += 1
        totals["broken files of the cache"] += seen["broken"]
        totals["commits with merged manifests"] += seen["merged"]
        totals["commits with conversions"] += seen["conversions"]
        totals["looks at another branch"] += seen["looks at the branch"]
        totals.update({what: count for what, count in seen.items() if CROSS in what})


def _watched(seed: int) -> Counter[str]:
    chance = random.Random(seed)
    with quick_directory() as made, pytest.MonkeyPatch.context() as patch:
        seed_ids(patch, chance)
        read = WORKERS.read if seed % 2 else read_here
        try:
            return watched(random_lake(Path(made), chance), Path(made) / "cache", chance, COMMITS, read)
        except Exception as error:
            raise AssertionError(f"history {seed}: {type(error).__name__}: {error}") from error
        finally:
            close_catalogs()
