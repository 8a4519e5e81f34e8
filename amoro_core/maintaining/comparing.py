"""Two snapshots of a table compared, by what their summaries say: no manifest is read."""

from collections.abc import Mapping, Sequence

from amoro_core.model.commits import PROCESS_ID
from amoro_core.model.tables import SnapshotFacts
from amoro_core.records import record

_ABSURD_DIGITS = 20


@record
class SnapshotTotals:
    """What a snapshot's summary says of all its files; None: it does not say."""

    data_files: int | None
    delete_files: int | None
    records: int | None
    position_deletes: int | None  # rows
    equality_deletes: int | None  # rows
    bytes: int | None  # of data and delete files


@record
class Comparison:
    """Two snapshots, and how one led to the other."""

    before: SnapshotFacts
    after: SnapshotFacts
    totals_before: SnapshotTotals
    totals_after: SnapshotTotals
    is_ancestor: bool  # whether `after` was made of `before`
    commits: int  # from `before` to `after`, with the latter; 0 where one did not lead to the other
    own_commits: int  # those of them that Amoro made


def totals_of(summary: Mapping[str, str]) -> SnapshotTotals:
    """The totals of a snapshot's summary; what is missing or no number is not known."""

    def number(key: str) -> int | None:
        text = summary.get(key, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < _ABSURD_DIGITS else None

    return SnapshotTotals(
        data_files=number("total-data-files"),
        delete_files=number("total-delete-files"),
        records=number("total-records"),
        position_deletes=number("total-position-deletes"),
        equality_deletes=number("total-equality-deletes"),
        bytes=number("total-files-size"),
    )


def compare(snapshots: Sequence[SnapshotFacts], before: SnapshotFacts, after: SnapshotFacts) -> Comparison:
    """Compare two of the table's snapshots, all of which are given."""
    known = {one.snapshot_id: one for one in snapshots}
    path: list[SnapshotFacts] = []
    seen: set[int] = set()
    at: SnapshotFacts | None = after
    while at is not None and at.snapshot_id != before.snapshot_id and at.snapshot_id not in seen:
        seen.add(at.snapshot_id)
        path.append(at)
        at = None if at.parent_id is None else known.get(at.parent_id)
    led = at is not None and at.snapshot_id == before.snapshot_id
    return Comparison(
        before,
        after,
        totals_of(before.summary),
        totals_of(after.summary),
        led,
        len(path) if led else 0,
        sum(PROCESS_ID in one.summary for one in path) if led else 0,
    )
