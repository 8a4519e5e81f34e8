"""Optimizing beside a writer that never pauses for long. AMORO_LIVE_SECONDS says for how long."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.model import live

SECONDS = float(os.environ.get("AMORO_LIVE_SECONDS", "60"))


@pytest.mark.timeout(SECONDS + 840)
@pytest.mark.parametrize("partitioned", [False, True], ids=["plain", "partitioned"])
def test_rewrites_land_beside_a_writer_that_commits_each_second(quick_path: Path, partitioned: bool) -> None:
    """apache/fluss #4352, apache/amoro #1095: with deletes in each commit a strict rewrite never landed."""
    totals: Counter[str] = Counter()
    live.run(SECONDS, 1, quick_path, totals, partitioned=partitioned)
    print(dict(totals))
