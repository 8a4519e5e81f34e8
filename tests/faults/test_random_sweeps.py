"""Expiry, orphan cleaning and the sweep on a storage that fails and lies: nothing that anybody needs goes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.faults import random_sweeps

#: `make prove` goes on with other tables.
TABLES = range(10)
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


def test_whatever_a_storage_does_no_live_file_goes(tmp_path: Path) -> None:
    totals: Counter[str] = Counter()
    random_sweeps.run(TABLES, tmp_path, totals)
    assert [fault for fault in FAULTS if not totals[fault]] == []
    assert totals["found orphans"] == totals["planted orphans"] > len(TABLES)
