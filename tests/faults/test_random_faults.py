"""Commits, expiries and sweeps that meet faults by chance, while others write and the coordinator dies.

Nothing lands twice, no row is lost, and nothing that anybody needs goes. `make prove` goes on with other seeds.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.faults import random_commits, random_maintenance, random_sweeps
from tests.tiers import count, current_tier, seeds

FAULTS = (
    "file not listed",
    "file without time",
    "stale file",
    "listing broke off",
    "files not looked at",
    "deleted by halves",
    "answer lost",
    "manifest vanished",
)
COMMITS = count(3, random_commits.COMMITS_PER_TABLE)


@pytest.mark.parametrize("seed", seeds(3, 6))
def test_commits_land_at_most_once_and_keep_every_row(tmp_path: Path, seed: int) -> None:
    totals: Counter[str] = Counter()
    random_commits.run(seed, tmp_path, totals, commits=COMMITS)
    assert totals["commits"] == COMMITS


def test_commits_carry_over_what_others_delete_meanwhile(tmp_path: Path) -> None:
    totals: Counter[str] = Counter()
    tables = seeds(1, 2)
    for seed in tables:
        random_commits.run(seed, tmp_path / f"{seed}", totals, carries_deletes=True, commits=COMMITS)
    assert totals["commits"] == COMMITS * len(tables)
    assert totals["faulty commits with deletes carried over"] > 0


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_maintenance_lands_at_most_once_and_keeps_every_row(tmp_path: Path, seed: int) -> None:
    totals: Counter[str] = Counter()
    random_maintenance.run(seed, tmp_path, totals)
    assert totals["commits"] == len(random_maintenance.ACTIONS)


def test_whatever_a_storage_does_no_live_file_goes(tmp_path: Path) -> None:
    tables = range(count(2, 10))
    totals: Counter[str] = Counter()
    random_sweeps.run(tables, tmp_path, totals)
    if current_tier() == "all":
        assert [fault for fault in FAULTS if not totals[fault]] == []
    assert totals["found orphans"] == totals["planted orphans"] > len(tables)
