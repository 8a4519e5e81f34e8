"""Groups of files to cluster in a partition, and the depth of a column: how many files a point query meets.

Where `units` are given a file counts as that many: one of several times the target size is read like several files.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from amoro_core.model.clustering import BoundKey, SortKey, Strategy
from amoro_core.model.files import DataFile, ScannedFile
from amoro_core.planning.clustering.layouts import GroupFiles, Layouts, Resolved, Sealing
from amoro_core.planning.clustering.model import ClusterFacts, ClusteringConfig, ClusterRequest, GroupBy
from amoro_core.planning.optimizing.tasks import pack
from amoro_core.scan.columns import Mask, Numbers

#: What a layout reaches of the perfect one, by files met: measured 1.25 on Hilbert curves of two and three columns.
REACHED = 1.3

Weights = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Ranges:
    """The bounds of one column for some files, as places in the order of all of these bounds."""

    lower: Numbers
    upper: Numbers
    is_known: Mask  # others have no bounds, and may hold any value
    is_met: Mask  # others hold nulls alone: no value is among them
    constant: SortKey | None = None  # the only value, where all files have bounds and no other one

    def part(self, chosen: npt.NDArray[np.integer] | Mask) -> "Ranges":
        """Those of some of the files."""
        return Ranges(self.lower[chosen], self.upper[chosen], self.is_known[chosen], self.is_met[chosen])

    def __len__(self) -> int:
        return len(self.lower)


def ranges_of(files: Sequence[DataFile], field_id: int, key: BoundKey) -> Ranges:
    """The bounds of the column in each of the files."""
    bounds = [_bounds(file, field_id, key) for file in files]
    pairs = [pair for pair in bounds if pair is not None]
    places = {value: at for at, value in enumerate(sorted({value for pair in pairs for value in pair}))}
    return Ranges(
        lower=np.array([-1 if pair is None else places[pair[0]] for pair in bounds], np.int64),
        upper=np.array([-1 if pair is None else places[pair[1]] for pair in bounds], np.int64),
        is_known=np.array([pair is not None for pair in bounds], np.bool_),
        is_met=np.array([not _has_nulls_alone(file, field_id) for file in files], np.bool_),
        constant=next(iter(places)) if len(places) == 1 and len(pairs) == len(bounds) else None,
    )


def depth(ranges: Ranges, rows: Numbers, units: Weights | None = None) -> float:
    """How many files a point query meets, averaged over bounds weighted by rows; without bounds always; at least 1."""
    counts = np.ones(len(ranges)) if units is None else units
    here = ranges.is_known & ranges.is_met
    everywhere = float(counts[~ranges.is_known & ranges.is_met].sum())
    if not here.any():
        return max(1.0, everywhere)
    lower, upper, own = ranges.lower[here], ranges.upper[here], counts[here]
    weights = np.maximum(rows[here], 0).astype(np.float64)
    if not weights.any():
        weights = np.ones(len(lower))
    begun, ended = _running(lower, own), _running(upper, own)
    met = np.zeros(len(lower))
    for at in (lower, upper):
        met += _sum_to(begun, at, "right") - _sum_to(ended, at, "left")
    return max(1.0, everywhere + float((met * weights).sum() / (2 * weights.sum())))


def ideal(strategy: Strategy, files: float, columns: int) -> float:
    """How many files a point query on one of the counted columns reads in a perfect layout."""
    if strategy is Strategy.LINEAR or columns < 2:
        return 1.0
    return float(max(1.0, files) ** (1 - 1 / columns))


def units_of(sizes: Numbers, target: int) -> Weights:
    """How many files of target size each file is read like."""
    return np.maximum(1.0, sizes / target)


_Running = tuple[Numbers, Weights]


def _running(places: Numbers, counts: Weights) -> _Running:
    order = np.argsort(places, kind="stable")
    return places[order], np.concatenate((np.zeros(1), counts[order].cumsum()))


def _sum_to(running: _Running, at: Numbers, side: Literal["left", "right"]) -> Weights:
    places, sums = running
    weights: Weights = sums[np.searchsorted(places, at, side)]
    return weights


def _bounds(file: DataFile, field_id: int, key: BoundKey) -> tuple[SortKey, SortKey] | None:
    lower, upper = file.metrics.lower_bounds.get(field_id), file.metrics.upper_bounds.get(field_id)
    if lower is None or upper is None:
        return None
    least, greatest = key(lower), key(upper)
    if least is None or greatest is None or _is_above(least, greatest):
        return None
    return least, greatest


def _is_above(key: SortKey, other: SortKey) -> bool:
    if isinstance(key, bytes) or isinstance(other, bytes):
        return isinstance(key, bytes) and isinstance(other, bytes) and key > other
    return key > other


def _has_nulls_alone(file: DataFile, field_id: int) -> bool:
    nulls = file.metrics.null_value_counts.get(field_id)
    return nulls is not None and nulls == file.metrics.value_counts.get(field_id, -1)


#: Outputs of one group at most: cut points, open writers and partitions of a shuffle are as many.
MOST_OUTPUTS = 512
#: Bytes of the files in a group's message at most; the rest of 16 MiB is left for the schema and what goes with it.
MOST_MESSAGE_BYTES = 14 * 1024 * 1024
_FILE_BYTES, _DELETE_BYTES, _BOUND_BYTES = 96, 160, 64


@dataclass(frozen=True, slots=True)
class Candidates:
    """Files of one partition that may be clustered, by index; `ranges` are those of the layout's first column."""

    ranges: Ranges
    bytes: Numbers  # stored
    numbers: Numbers  # data sequence numbers


def grouped(candidates: Candidates, group_by: GroupBy, most_bytes: int) -> list[Numbers]:
    """The candidates by index in groups of limited size; a larger file is a group of its own."""
    if not len(candidates.bytes):
        return []
    match group_by:
        case GroupBy.ANY:
            return [np.array(group, np.int64) for group in pack(candidates.bytes.tolist(), most_bytes)]
        case GroupBy.TIME:
            order = np.argsort(candidates.numbers, kind="stable")
            return list(_cut(order, candidates.bytes, None, most_bytes))
        case GroupBy.KEY_RANGE:
            order, spans = _by_range(candidates.ranges)
            return list(_cut(order, candidates.bytes, spans, most_bytes))
        case GroupBy.OVERLAP:
            order, (lower, upper) = _by_range(candidates.ranges)
            begins = np.flatnonzero(lower[1:] > np.maximum.accumulate(upper)[:-1]) + 1
            return [
                piece
                for part in np.split(np.arange(len(order)), begins)
                for piece in _cut(order[part], candidates.bytes, (lower[part], upper[part]), most_bytes)
            ]


_Spans = tuple[Numbers, Numbers]


def _by_range(ranges: Ranges) -> tuple[Numbers, _Spans]:
    """The files by lower bound, with the bounds; one without overlaps with all, one of nulls alone comes first."""
    above = int(ranges.upper.max(initial=0)) + 1
    unknown = ranges.is_met & ~ranges.is_known
    lower, upper = np.where(unknown, -2, ranges.lower), np.where(unknown, above, ranges.upper)
    order = np.lexsort((upper, lower))
    return order, (lower[order], upper[order])


def _cut(order: Numbers, sizes: Numbers, spans: _Spans | None, most_bytes: int) -> Iterator[Numbers]:
    """Runs of limited size, half full at least, that end where the smallest share of their ranges goes on."""
    sums = np.concatenate((np.zeros(1, np.int64), sizes[order].cumsum()))
    start = 0
    while int(sums[-1] - sums[start]) > most_bytes:
        last = max(start + 1, int(np.searchsorted(sums, sums[start] + most_bytes, "right")) - 1)
        first = int(np.searchsorted(sums, sums[start] + most_bytes // 2, "left"))
        ends = np.arange(min(max(start + 1, first), last), last + 1)[::-1]
        end = last if spans is None or last == len(order) else int(ends[np.argmin(_crossing(spans, start, ends))])
        yield order[start:end]
        start = end
    if start < len(order):
        yield order[start:]


def _crossing(spans: _Spans, start: int, ends: Numbers) -> npt.NDArray[np.float64]:
    """The share of the ranges from `start` to each end that go on behind it."""
    lower, upper = spans
    done = np.searchsorted(np.sort(upper[start : int(ends.max())]), lower[ends], "left")
    return 1 - done / (ends - start)


def fitting(files: Sequence[ScannedFile]) -> Iterator[Sequence[ScannedFile]]:
    """The files in as few parts as fit into a message each, halved where they do not."""
    if len(files) < 2 or message_bytes(files) <= MOST_MESSAGE_BYTES:
        yield files
        return
    middle = len(files) // 2
    yield from fitting(files[:middle])
    yield from fitting(files[middle:])


def message_bytes(files: Iterable[ScannedFile]) -> int:
    """What the files take in the message of a group, with their deletes, each of which stands there once."""
    total, seen = 0, set()
    for file in files:
        total += _FILE_BYTES + len(file.data.path.encode()) + sum(len(value or b"") for value in file.data.partition)
        named = {field_id for delete in file.deletes for field_id in delete.equality_ids}
        total += 4 * len(file.deletes) + _BOUND_BYTES * len(named)
        for delete in file.deletes:
            if delete.identity not in seen:
                seen.add(delete.identity)
                total += _DELETE_BYTES + 4 * len(delete.path.encode())
    return total


@dataclass(frozen=True, slots=True)
class _Tiered:
    """One or several sealed groups as if they were one already."""

    tier: int
    lower: int
    upper: int
    live_bytes: int
    stored_bytes: int
    parts: tuple[GroupFiles, ...]


def merging_tiers(
    sealed: Sequence[GroupFiles],
    span: Callable[[GroupFiles], tuple[int, int]],
    stored: Numbers,
    sealing: Sealing,
    most_bytes: int,
) -> list[tuple[GroupFiles, ...]]:
    """Sealed groups that become one: `fanout` of a tier that overlap; the result joins a higher tier at once."""
    if sealing.fanout < 2:
        return []
    groups = [
        _Tiered(files.group.tier, *span(files), files.group.live_bytes, int(stored[files.at].sum()), (files,))
        for files in sealed
    ]
    tier = 0
    while tier <= max((group.tier for group in groups), default=-1):
        here = sorted((group for group in groups if group.tier == tier), key=lambda item: (item.lower, item.upper))
        others = [group for group in groups if group.tier != tier]
        groups = others + [joined for part in _overlapping(here) for joined in _joined(part, sealing, most_bytes)]
        tier += 1
    runs = [group.parts for group in groups if len(group.parts) > 1]
    return sorted(runs, key=lambda parts: parts[0].group.group_id)


def _overlapping(groups: Sequence[_Tiered]) -> Iterator[list[_Tiered]]:
    part: list[_Tiered] = []
    reached = 0
    for group in groups:
        if part and group.lower > reached:
            yield part
            part = []
        reached = max(reached, group.upper) if part else group.upper
        part.append(group)
    if part:
        yield part


def _joined(part: Sequence[_Tiered], sealing: Sealing, most_bytes: int) -> Iterator[_Tiered]:
    for at in range(0, len(part), sealing.fanout):
        some = part[at : at + sealing.fanout]
        stored = sum(group.stored_bytes for group in some)
        if len(some) < sealing.fanout or stored > most_bytes:
            yield from some
            continue
        live = sum(group.live_bytes for group in some)
        yield _Tiered(
            max(sealing.tier(live), some[0].tier + 1),
            min(group.lower for group in some),
            max(group.upper for group in some),
            live,
            stored,
            tuple(sorted((files for group in some for files in group.parts), key=lambda item: item.group.group_id)),
        )


@dataclass(frozen=True, slots=True)
class PlanContext:
    """What holds for all partitions of a table."""

    facts: ClusterFacts
    config: ClusteringConfig
    request: ClusterRequest
    resolved: Resolved
    layouts: Layouts

    @property
    def target(self) -> int:
        """Bytes of an output."""
        return self.facts.optimizing.target_size

    @property
    def sealing(self) -> Sealing:
        return Sealing(self.config.sealed_bytes(self.target), self.config.tier_fanout)

    @property
    def most_bytes(self) -> int:
        """Bytes of a group at most."""
        return min(self.config.max_group_bytes, self.config.max_plan_bytes, MOST_OUTPUTS * self.target)
