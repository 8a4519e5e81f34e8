"""Which files of a partition would be put in order together, and gain by it."""

from collections.abc import Iterator, Mapping

import numpy as np

from amoro_core.live.columns import Numbers
from amoro_core.planning.clustering import words
from amoro_core.planning.clustering.depth import REACHED, depth, units_of
from amoro_core.planning.clustering.grouping import (
    MOST_MESSAGE_BYTES,
    Candidates,
    fitting,
    grouped,
    merging_tiers,
    message_bytes,
)
from amoro_core.planning.clustering.kept import KeptFiles
from amoro_core.planning.clustering.partition import PartitionCase
from amoro_core.records import record

#: What is predicted has to be below this share of what is.
_WORTH = 0.7


@record
class Piece:
    """Files that would become a group, by index; `ratio` is how deep they lie now by what is ideal."""

    at: Numbers
    why: str
    ratio: float
    before: tuple[float, ...]
    predicted: tuple[float, ...]
    shares: Mapping[str, tuple[float, float]]  # of the bytes that a point query reads, before and after, by column

    @property
    def saved(self) -> float:
        """The share of the files that a point query meets which it would not meet any more."""
        return max(0.0, 1 - REACHED / self.ratio)


def reached_ratio() -> float:
    """The ratio that clustering is expected to reach."""
    return REACHED


def pieces_of(case: PartitionCase, *, with_candidates: bool) -> list[Piece]:
    """The groups that would gain: sealed ones that become one and, where these are due, what is not clustered."""
    found = list(_merges(case))
    if with_candidates:
        found += [_piece(case, at, "") for at in _groups(case) if _gains(case, at)]
    return found


def _groups(case: PartitionCase) -> Iterator[Numbers]:
    terms, at = case.terms, case.candidates
    first = terms.resolved.counted[0]
    here = Candidates(case.ranges[first].part(at), case.sizes[at], case.numbers[at])
    for indexes in grouped(here, terms.config.group_by, terms.most_bytes):
        ordered, start = at[indexes], 0
        for part in fitting([case.rows[one] for one in ordered.tolist()]):
            yield ordered[start : start + len(part)]
            start += len(part)


def _gains(case: PartitionCase, at: Numbers) -> bool:
    if len(at) == 1 and not case.has_deletes[at[0]] and case.outputs(at) == 1:
        return False
    if case.terms.request.full:
        return True
    if case.is_in_order(at) or int(case.sizes[at].sum()) > case.terms.most_bytes:
        return False
    return (len(at) == 1 and bool(case.has_deletes[at[0]])) or _is_worth(case, case.ratio_of(at))


def _is_worth(case: PartitionCase, ratio: float) -> bool:
    """Whether what is reached is enough better than what is; who asks is content with less."""
    return (1.0 if case.terms.request.asked else _WORTH) * ratio > REACHED


def _merges(case: PartitionCase) -> Iterator[Piece]:
    if case.terms.request.full or not case.may_merge:
        return
    first = case.ranges[case.terms.resolved.counted[0]]

    def span(one: KeptFiles) -> tuple[int, int]:
        if not first.is_known[one.at].all():
            return -1, int(first.upper.max(initial=0))
        return int(first.lower[one.at].min()), int(first.upper[one.at].max())

    sealed = [one for one in case.groups.sealed if case.is_free(one.at)]
    for parts in merging_tiers(sealed, span, case.sizes, case.terms.sealing, case.terms.most_bytes):
        at = np.sort(np.concatenate([one.at for one in parts]))
        if message_bytes(case.rows[one] for one in at.tolist()) <= MOST_MESSAGE_BYTES:
            yield _piece(case, at, words.by_tier(len(parts)))


def _piece(case: PartitionCase, at: Numbers, why: str) -> Piece:
    counted = case.terms.resolved.counted
    now = {one: case.depth(one, at) for one in counted}
    later = {one: min(now[one], REACHED * case.ideal(one, at)) for one in counted}
    units = float(units_of(case.sizes[at], case.terms.target).sum())
    files = max(1.0, float(case.live[at].sum()) / case.terms.target)
    shares = {
        case.terms.facts.sorting.name_of(one): (min(1.0, now[one] / units), min(1.0, later[one] / files))
        for one in counted
    }
    before = tuple(depth(case.ranges[one].part(at), case.records[at]) for one in counted)
    return Piece(at, why, case.ratio_of(at), before, tuple(later[one] for one in counted), shares)
