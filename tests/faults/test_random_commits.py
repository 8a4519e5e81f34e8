"""Two hundred and forty commits, each with faults by chance, while another writer goes on and the coordinator dies.

AMORO_FAULT_SEEDS=first:count runs other tables (ten commits each); the seed stands in the test's name.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.faults import random_commits

FIRST, COUNT = (int(part) for part in os.environ.get("AMORO_FAULT_SEEDS", "0:20").split(":"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_commits_with_random_faults_land_at_most_once_and_keep_every_row(tmp_path: Path, seed: int) -> None:
    totals: Counter[str] = Counter()
    random_commits.run(seed, tmp_path, totals)
    assert totals["commits"] == random_commits.COMMITS_PER_TABLE


@pytest.mark.parametrize("seed", range(4))
def test_commits_with_random_faults_carry_over_what_others_delete_meanwhile(tmp_path: Path, seed: int) -> None:
    totals: Counter[str] = Counter()
    random_commits.run(seed, tmp_path, totals, carries_deletes=True)
    assert totals["commits"] == random_commits.COMMITS_PER_TABLE
    assert totals["faulty commits with deletes carried over"] > 0
