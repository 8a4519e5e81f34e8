"""Which snapshots of a table must have the same rows: a rewrite's and the one it was committed on."""

from collections.abc import Mapping, Sequence

from amoro_core.errors import InvalidArgument, SnapshotNotFound
from amoro_core.model.commits import PROCESS_ID
from amoro_core.model.tables import SnapshotFacts
from amoro_core.model.verification import ComparisonSelection, Span

#: The operation of a commit that changes files but no row (Iceberg's specification, snapshots).
_REPLACE = "replace"


def select(snapshots: Sequence[SnapshotFacts], head: int, before: int | None, after: int | None) -> ComparisonSelection:
    """The snapshots to compare, of those that the metadata still has.

    Without `before` and `after`: the last optimizing commit in the head's history and its parent, regardless of other
    writers. With `after` alone: that and its parent. With `before`: all up to `after`, or to the head; if others wrote
    in between, each rewrite with its own parent, directly before it.
        Raises SnapshotNotFound, InvalidArgument when `before` does not come before `after`.
    """
    known = {item.snapshot_id: item for item in snapshots}
    for asked in (before, after):
        if asked is not None and asked not in known:
            raise SnapshotNotFound(
                f"snapshot {asked} is not one of those that the table has", hint="See: amoro table snapshots TABLE"
            )
    end = head if after is None else after
    chain = _history(known, end)
    if before is not None:
        return _between(chain, before, end)
    if after is None:
        ours = next((item for item in chain if PROCESS_ID in item.summary), None)
        if ours is None:
            return ComparisonSelection(head, (), note="no snapshot of its history was made by an optimizing process")
        chain = _history(known, ours.snapshot_id)
    if len(chain) < 2:
        parent = "none" if chain[0].parent_id is None else f"{chain[0].parent_id}, which has expired"
        return ComparisonSelection(end, (), note=f"the parent of snapshot {chain[0].snapshot_id} is {parent}")
    return ComparisonSelection(end, (_span(chain[:1], chain[1].snapshot_id),))


def _history(known: Mapping[int, SnapshotFacts], snapshot_id: int) -> list[SnapshotFacts]:
    """The snapshot and its known ancestors, newest first."""
    chain: list[SnapshotFacts] = []
    found = known.get(snapshot_id)
    while found is not None:
        chain.append(found)
        found = known.get(found.parent_id) if found.parent_id is not None else None
    return chain


def _between(chain: list[SnapshotFacts], before: int, end: int) -> ComparisonSelection:
    steps = [item.snapshot_id for item in chain]
    if before not in steps[1:]:
        raise InvalidArgument(
            f"snapshot {before} is not an ancestor of snapshot {end}",
            hint="Name the older one with --before. See: amoro table snapshots TABLE",
        )
    made = chain[: steps.index(before)]
    others = tuple(item.snapshot_id for item in reversed(made) if item.operation != _REPLACE)
    if not others:
        return ComparisonSelection(end, (_span(made, before),))
    spans = tuple(
        _span([item], item.parent_id)
        for item in reversed(made)
        if item.operation == _REPLACE and item.parent_id is not None
    )
    note = "" if spans else f"nothing was rewritten between snapshots {before} and {end}"
    return ComparisonSelection(end, spans, others, note)


def _span(made: Sequence[SnapshotFacts], before: int) -> Span:
    processes = tuple(item.summary[PROCESS_ID] for item in reversed(made) if PROCESS_ID in item.summary)
    return Span(before, made[0].snapshot_id, processes)
