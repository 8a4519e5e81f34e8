"""How large a table is, which decides where its maintenance runs: beyond a size on optimizers."""

from collections.abc import Iterable

from amoro_core.model.tables import SnapshotFacts

#: Known files up to which the coordinator works itself.
LARGE = 50_000
_TOTALS = ("total-data-files", "total-delete-files")
_REMOVED = ("deleted-data-files", "removed-delete-files")


def is_large(snapshots: Iterable[SnapshotFacts]) -> bool:
    """Whether optimizers do what is to be done with all files of a table with these snapshots."""
    return known_files(snapshots) > LARGE


def known_files(snapshots: Iterable[SnapshotFacts]) -> int:
    """About how many files the snapshots name, as their summaries say: those of the largest, and what others removed.

    What no summary says is not counted.
    """
    most, removed = 0, 0
    for one in snapshots:
        most = max(most, sum(_count(one, key) for key in _TOTALS))
        removed += sum(_count(one, key) for key in _REMOVED)
    return most + removed


def _count(snapshot: SnapshotFacts, key: str) -> int:
    text = dict(snapshot.summary).get(key, "0")
    return int(text) if text.isascii() and text.isdigit() else 0
