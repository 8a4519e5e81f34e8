"""The last commit that added data to a table, from which data expiry counts back."""

from collections.abc import Sequence
from datetime import UTC, datetime

from amoro_core.model.commits import PROCESS_ID
from amoro_core.model.tables import SnapshotFacts
from amoro_core.model.times import DataCommit

#: Amoro's words for commits that are maintenance, including ours.
_MAINTENANCE = frozenset({"OPTIMIZE", "DATA_EXPIRATION", "CLEAN_DANGLING_DELETE"})
_ADDED = ("added-records", "added-data-files")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def last_data_commit(
    snapshots: Sequence[SnapshotFacts], head_id: int | None, kept: DataCommit | None
) -> DataCommit | None:
    """The newest commit on main that added data and is not maintenance; None if unknown.

    `kept` is the previous result. It is used when main's history no longer has such a commit, as after an expiry (some
    writers then drop the parent id), but not if its snapshot still exists: main was then rolled back.
    """
    known = {one.snapshot_id: one for one in snapshots}
    remaining, snapshot_id = dict(known), head_id
    while snapshot_id is not None and (found := remaining.pop(snapshot_id, None)) is not None:
        if _brought_data(found):
            return DataCommit(found.snapshot_id, round((found.committed_at - _EPOCH).total_seconds() * 1000))
        snapshot_id = found.parent_id
    return kept if kept is not None and kept.snapshot_id not in known else None


def _brought_data(snapshot: SnapshotFacts) -> bool:
    summary = snapshot.summary
    if PROCESS_ID in summary or summary.get("snapshot.producer") in _MAINTENANCE or snapshot.operation == "replace":
        return False
    return any(summary.get(key, "0").strip("0").isdecimal() for key in _ADDED)
