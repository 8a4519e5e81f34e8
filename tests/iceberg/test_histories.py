"""Random histories of real tables: what is known of manifests shows what every entry of them shows."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from amoro_core.iceberg.catalogs import close_catalogs
from tests.engine.chance import seed_ids
from tests.iceberg.histories import CHANGES, random_lake
from tests.iceberg.looking import watched

COMMITS, MOST = 12, 80
#: What histories must have met. Some take about ten of them.
WANTED = {
    *CHANGES,
    *(f"rewrite × format {version}" for version in (1, 2, 3)),
    *("conversions", "merged", "looks at the branch", "known", "read", "broken"),
}


def test_random_tables_are_seen_as_without_memory_while_the_cache_on_disk_breaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """History after history until all that is wanted was met. `make prove` goes on with other seeds."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    seed_ids(monkeypatch, chance)
    seen: Counter[str] = Counter()
    for number in range(MOST):
        (place := tmp_path / str(number)).mkdir()
        seen += watched(random_lake(place, chance), place / "cache", chance, COMMITS)
        close_catalogs()
        if seen.keys() >= WANTED:
            break
    assert WANTED - seen.keys() == set(), seen
