"""Which snapshots must hold the same rows."""

from datetime import UTC, datetime

import pytest

from amoro_core.errors import InvalidArgument, SnapshotNotFound
from amoro_core.model.commits import PROCESS_ID
from amoro_core.model.tables import SnapshotFacts
from amoro_core.model.verification import ComparisonSelection, Span
from amoro_core.services.verification import select

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def snapshot(number: int, parent: int | None, process: str = "", operation: str = "append") -> SnapshotFacts:
    summary = {PROCESS_ID: process} if process else {}
    return SnapshotFacts(number, parent, number, NOW, "replace" if process else operation, summary, ())


#: 1 append, 2 ours, 3 append, 4 ours, 5 Spark's rewrite, 6 delete; 7 is on a branch that left main at 3.
HISTORY = (
    snapshot(1, None),
    snapshot(2, 1, "p2"),
    snapshot(3, 2),
    snapshot(4, 3, "p4"),
    snapshot(5, 4, operation="replace"),
    snapshot(6, 5, operation="delete"),
    snapshot(7, 3),
)


def test_snapshots_are_compared_at_once_and_where_others_wrote_each_rewrite_with_its_own_parent() -> None:
    assert select(HISTORY, 6, 3, 5) == ComparisonSelection(5, (Span(3, 5, ("p4",)),))
    spans = (Span(1, 2, ("p2",)), Span(3, 4, ("p4",)), Span(4, 5, ()))
    assert select(HISTORY, 6, 1, None) == ComparisonSelection(6, spans, others=(3, 6))


def test_what_cannot_be_compared_is_said_with_the_reason_or_refused_by_number() -> None:
    assert select(HISTORY[:1], 1, None, None).note == "no snapshot of its history was made by an optimizing process"
    assert select(HISTORY[1:], 6, None, 2) == ComparisonSelection(
        2, (), note="the parent of snapshot 2 is 1, which has expired"
    )
    assert select(HISTORY, 6, None, 1) == ComparisonSelection(1, (), note="the parent of snapshot 1 is none")
    only_others = select(HISTORY, 6, 5, 6)
    assert only_others == ComparisonSelection(6, (), (6,), "nothing was rewritten between snapshots 5 and 6")
    with pytest.raises(SnapshotNotFound, match="snapshot 9 is not"):
        select(HISTORY, 6, 9, None)
    for before, after in ((4, 3), (7, None), (4, 4)):
        with pytest.raises(InvalidArgument, match=f"snapshot {before} is not an ancestor of snapshot {after or 6}"):
            select(HISTORY, 6, before, after)
