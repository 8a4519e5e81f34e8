"""Commits of maintenance, each with faults by chance, while another writer goes on and the coordinator dies.

AMORO_MAINTENANCE_SEEDS=first:count runs other tables (four commits each); the seed stands in the test's name.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.faults import random_maintenance

FIRST, COUNT = (int(part) for part in os.environ.get("AMORO_MAINTENANCE_SEEDS", "0:3").split(":"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_maintenance_with_random_faults_lands_at_most_once_and_keeps_every_row(tmp_path: Path, seed: int) -> None:
    totals: Counter[str] = Counter()
    random_maintenance.run(seed, tmp_path, totals)
    assert totals["commits"] == len(random_maintenance.ACTIONS)
