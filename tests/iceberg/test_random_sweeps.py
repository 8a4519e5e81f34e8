"""Random tables with decoys and writers at work: no file that anybody needs is in any batch of deletes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from amoro_core.actions import orphans
from amoro_core.maintaining.orphans import Search
from tests.iceberg import random_sweeps

#: With ten on a faulting storage they are 150. `make prove` goes on with other tables.
TABLES = range(140)


def test_no_live_file_is_in_any_batch_and_planted_orphans_go(tmp_path: Path) -> None:
    totals: Counter[str] = Counter()
    random_sweeps.run(TABLES, tmp_path, totals)
    assert totals["tables"] + totals["tables in a shared place"] / 2 == len(TABLES)
    assert min(totals["tables seen inside another"], totals["unseen tables inside another"]) >= 2
    assert min(totals["batches"], totals["planted orphans"]) > 5 * len(TABLES)
    assert min(totals["guard spoke"], totals["expire-snapshots success"], totals["commits between batches"]) >= 2


def test_without_the_guard_one_would_be(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="would be deleted"):
        random_sweeps.run(TABLES, tmp_path, Counter(), guarded=False)


def test_without_refusing_shared_places_one_would_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphans, "refuse_shared", lambda *_: None)
    for asked in ("opened", "_require_opened"):
        monkeypatch.setattr(Search, asked, lambda *_: None)
    monkeypatch.setattr(random_sweeps, "SharedSweep", random_sweeps.Sweep)
    with pytest.raises(AssertionError, match="would be deleted"):
        random_sweeps.run(range(random_sweeps.EACH - 1, TABLES.stop, random_sweeps.EACH), tmp_path, Counter())
