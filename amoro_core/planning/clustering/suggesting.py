"""Columns that a table may be clustered by where nobody has told how it is read, each with the reason."""

from collections.abc import Collection, Mapping

import numpy as np

from amoro_core.live.files import LiveFiles
from amoro_core.model.files import DeleteKind
from amoro_core.planning.clustering.choice import Decided, decide
from amoro_core.planning.clustering.depth import depth, ranges_of
from amoro_core.planning.clustering.facts import ClusterFacts
from amoro_core.records import record

#: Columns that are suggested at most.
MOST_SUGGESTED = 8


@record
class Suggestion:
    """A column, and why."""

    column: str
    reason: str
    files_met: float | None = None  # by a point query on it, on average; None: nothing is known of it


@record
class Suggested:
    """What is suggested, the best first; and what `auto` says of the scans that are known."""

    columns: tuple[Suggestion, ...]
    auto: Decided
    files: int  # that the table has


def suggest(
    facts: ClusterFacts, filtered: Collection[str] = (), distinct: Mapping[int, int] | None = None
) -> Suggested:
    """Columns by what the table itself tells of its readers.

    First those that make a row's identity or that deletes go by, those of the sort order, those in `filtered` (what
    `self-optimizing.filter` names); then others by how deep they lie and by how many values they have, of which
    `distinct` are the numbers that are known, by field id.
    """
    sorting = facts.sorting
    usable = {
        one.field_id: one.name
        for one in sorting.columns
        if not one.problem and one.field_id not in sorting.partitioned_by
    }
    met, files = _met(facts, usable)
    reasons: dict[int, list[str]] = {}

    def add(field_ids: Collection[int], reason: str) -> None:
        for field_id in field_ids:
            if field_id in usable and reason not in reasons.setdefault(field_id, []):
                reasons[field_id].append(reason)

    add(sorting.identifiers, "it is an identifier field")
    add(_equality_ids(facts), "equality deletes go by it")
    add([key.field_id for key in sorting.default_order.keys], "the table's sort order names it")
    add([field_id for field_id, name in usable.items() if name in filtered], "self-optimizing.filter names it")
    named = list(reasons)
    rest = sorted(
        (field_id for field_id in met if field_id not in reasons and met[field_id] > 1),
        key=lambda field_id: (-met[field_id] * _many(field_id, distinct), field_id),
    )
    for field_id in rest:
        known = None if distinct is None else distinct.get(field_id)
        add([field_id], "it lies deep" if known is None else f"it lies deep and has about {known:,} values")
    found = [
        Suggestion(usable[field_id], "; ".join(reasons[field_id]), met.get(field_id))
        for field_id in [*named, *(one for one in rest if one in reasons)]
    ]
    return Suggested(tuple(found[:MOST_SUGGESTED]), decide(facts), files)


def _many(field_id: int, distinct: Mapping[int, int] | None) -> int:
    return 1 if distinct is None else max(1, distinct.get(field_id, 1))


def _equality_ids(facts: ClusterFacts) -> list[int]:
    if facts.scan is None:
        return []
    deletes = (*LiveFiles.of(facts.scan.files).deletes, *facts.scan.dangling)
    ids = (field_id for one in deletes if one.kind is DeleteKind.EQUALITY for field_id in one.equality_ids)
    return list(dict.fromkeys(ids))


def _met(facts: ClusterFacts, usable: Mapping[int, str]) -> tuple[Mapping[int, float], int]:
    """By column how many files a point query meets, for those of which bounds are known; and all files."""
    if facts.scan is None or not facts.scan.files:
        return {}, 0
    datas = [file.data for file in facts.scan.files]
    rows = np.array([one.record_count for one in datas], np.int64)
    found = {}
    for field_id in usable:
        ranges = ranges_of(datas, field_id, facts.sorting.bound_key(field_id))
        if ranges.is_known.any() and ranges.constant is None:
            found[field_id] = depth(ranges, rows)
    return found, len(datas)
