"""Chooses and suggests clustering columns by the cost of a group and the gain of readers."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from math import floor, log2, sqrt
from types import MappingProxyType

import numpy as np

from amoro_core.documents.formatting import many
from amoro_core.model.clustering import MAX_CURVE_COLUMNS, Strategy
from amoro_core.model.files import DeleteKind
from amoro_core.model.scan_stats import ColumnChoice, ScanUse
from amoro_core.planning.clustering.grouping import depth, ranges_of
from amoro_core.planning.clustering.layouts import Layouts, layout_name, newest_layout
from amoro_core.planning.clustering.model import ClusterFacts
from amoro_core.scan.live_files import LiveFiles

MB = 1024 * 1024
#: What a core reads of data in a second, as far as reads that are spared are concerned.
_READ_BYTES_PER_S = 100_000_000
#: The days of which scans are counted.
SCAN_DAYS = 7


@dataclass(frozen=True, slots=True)
class Reading:
    """How a table is read in a day: sets of columns that are filtered by, with the number of such scans."""

    per_day: Mapping[frozenset[str], float]

    @property
    def has_scans(self) -> bool:
        """Whether any scan was reported."""
        return bool(self.per_day)

    def spared_ms(self, size_bytes: int, columns: Mapping[str, tuple[float, float]]) -> float:
        """CPU milliseconds a day that scans save; `columns`: shares of the bytes of a point query, before and after."""
        spared = 0.0
        for filtered, scans in self.per_day.items():
            before = after = 1.0
            for name in filtered & columns.keys():
                before, after = before * columns[name][0], after * columns[name][1]
            spared += scans * size_bytes * max(0.0, before - after)
        return 1000 * spared / _READ_BYTES_PER_S


def reading_of(scans: Iterable[ScanUse], today: date) -> Reading:
    """The scans of the last days, per day."""
    since = today - timedelta(days=SCAN_DAYS)
    counted = [scan for scan in scans if scan.day > since]
    weights: dict[frozenset[str], float] = {}
    for scan_use in counted:
        columns = frozenset(item.column for item in scan_use.filters)
        weights[columns] = weights.get(columns, 0.0) + scan_use.scans / SCAN_DAYS
    return Reading(weights)


def core_ms(size_bytes: int, per_mb: float) -> int:
    """The CPU milliseconds that reading the bytes takes, at least 1."""
    return max(1, round(size_bytes / MB * per_mb))


def pays_back(cost_ms: int, spared_ms_a_day: float, within: timedelta) -> bool:
    """Whether the reads that are spared in that time take as long as the work."""
    return cost_ms <= spared_ms_a_day * (within / timedelta(days=1))


def rank(gain: float) -> int:
    """Gains that are less than 1.4 times each other are about equal: the order of partitions decides between them."""
    return floor(2 * log2(gain)) if gain > 0 else -1000


def mean(values: Sequence[float]) -> float:
    """The mean; 1.0 of nothing."""
    return sum(values) / len(values) if values else 1.0


#: Scans of the last days that are enough to choose by.
ENOUGH_SCANS = 100
#: Another choice must save this many times what the present one saves.
BETTER = 1.3
#: The least time between two choices.
PAUSE = timedelta(days=7)
#: A column is taken only if it, or it and those after it, add this share of what is spared without.
_LEAST_ADDED = 0.1
#: Another choice must be better by this many standard errors: scans of random columns differ by chance.
_ERRORS = 6.0
#: A column with a larger share of the savings than this becomes the only order column.
_ALONE = 0.8
#: A smaller table is treated as if it had grown: with two files a second column would never save much.
_LEAST_FILES = 64.0


@dataclass(frozen=True, slots=True)
class Decided:
    """The choice in force, or None while there is none, and why."""

    choice: ColumnChoice | None
    reason: str


@dataclass(frozen=True, slots=True)
class _Use:
    """Scans that filter by the same columns."""

    columns: frozenset[str]
    weight: float  # how many there are: without skipping each reads the same bytes


def decide(facts: ClusterFacts) -> Decided:
    """The columns by the scans of the last days; a choice stays a week and until another spares 1.3 times as much."""
    before = facts.choice
    usable = {column.name for column in facts.sorting.columns if not column.problem}
    usable -= {column.name for column in facts.sorting.columns if column.field_id in facts.sorting.partitioned_by}
    counted = [scan for scan in facts.scans if scan.day > (facts.now - timedelta(days=SCAN_DAYS)).date()]
    scans = sum(scan_use.scans for scan_use in counted)
    if before is not None and not usable.issuperset(before.columns):
        before = None
    if before is not None and facts.now - before.chosen_at < PAUSE:
        return Decided(before, f"chosen {before.chosen_at:%Y-%m-%d}, for {PAUSE.days} d at least")
    if scans < ENOUGH_SCANS:
        if before is not None:
            return Decided(before, f"{many(scans, 'scan')} in {SCAN_DAYS} d: too few for another choice")
        return Decided(None, f"auto needs {ENOUGH_SCANS} scans in {SCAN_DAYS} d to choose columns, and knows {scans}")
    files = _files(facts)
    usable -= _constants(facts, {item.column for scan_use in counted for item in scan_use.filters} & usable)
    uses = _uses(counted, usable)
    column_choice = _greedy(uses, files, facts, scans)
    if column_choice is None:
        return Decided(before, f"none of {scans} scans filters by a column that rows can be ordered by")
    if before is None:
        return Decided(column_choice, f"chosen by {scans} scans")
    if column_choice.columns == before.columns:
        return Decided(before, "the same columns as before are the best")
    spared_before = spared(uses, before.columns, before.strategy, files)
    if column_choice.saved < BETTER * spared_before:
        better = f"{column_choice.saved / spared_before:.2f} ×" if spared_before else "no more"
        return Decided(before, f"{', '.join(column_choice.columns)} would spare {better}, {BETTER} × needed")
    if _is_chance(uses, column_choice, before, files):
        return Decided(before, f"{', '.join(column_choice.columns)} may be better by chance alone, by {scans} scans")
    return Decided(column_choice, f"chosen by {scans} scans")


def _constants(facts: ClusterFacts, names: Collection[str]) -> set[str]:
    """Those of the columns that have one value in the whole table, which order nothing; one file says nothing."""
    if facts.scan is None or len(facts.scan.files) < 2:
        return set()
    datas = [file.data for file in facts.scan.files]
    ranged = ((item, facts.sorting.bound_key(item.field_id)) for item in facts.sorting.columns if item.name in names)
    return {column.name for column, key in ranged if ranges_of(datas, column.field_id, key).constant is not None}


def _is_chance(uses: Sequence[_Use], new: ColumnChoice, before: ColumnChoice, files: float) -> bool:
    """Whether the difference between two choices may be chance, given the number of scans."""

    def share(use: _Use, choice: ColumnChoice) -> float:
        return spared((use,), choice.columns, choice.strategy, files)

    scans = sum(use.weight for use in uses)
    differences = [(use.weight, share(use, new) - share(use, before)) for use in uses]
    mean = sum(weight * value for weight, value in differences) / scans
    variance = sum(weight * (value - mean) ** 2 for weight, value in differences) / scans
    return mean <= _ERRORS * sqrt(variance / scans)


def spared(uses: Sequence[_Use], columns: Sequence[str], strategy: Strategy, files: float) -> float:
    """The share of the bytes that the scans need not read with the table clustered by these columns."""
    total = sum(use.weight for use in uses)
    if not total or not columns:
        return 0.0
    useful = columns[:1] if strategy is Strategy.LINEAR else columns
    share = float(files ** (-1 / len(useful)))
    return sum(use.weight * (1 - share ** len(use.columns.intersection(useful))) for use in uses) / total


def _greedy(uses: Sequence[_Use], files: float, facts: ClusterFacts, scans: int) -> ColumnChoice | None:
    by_column: dict[str, float] = {}
    for use in uses:
        for name in use.columns:
            by_column[name] = by_column.get(name, 0.0) + use.weight
    if not by_column:
        return None
    first = min(by_column, key=lambda name: (-by_column[name], name))
    chain = [(first, spared(uses, (first,), Strategy.LINEAR, files))]
    if by_column[first] <= _ALONE * sum(use.weight for use in uses if use.columns):
        while len(chain) < min(MAX_CURVE_COLUMNS, len(by_column)):
            chosen = tuple(name for name, _ in chain)
            reached = {
                name: spared(uses, (*chosen, name), Strategy.HILBERT, files) for name in by_column if name not in chosen
            }
            best = min(reached, key=lambda name: (-reached[name], name))
            chain.append((best, reached[best]))
    count = 1
    for length in range(2, len(chain) + 1):  # two columns may add enough together, of which one does not
        if chain[length - 1][1] >= (1 + _LEAST_ADDED) * chain[count - 1][1]:
            count = length
    chosen, reached_by = tuple(name for name, _ in chain[:count]), [value for _, value in chain[:count]]
    evidence = dict(zip(chosen, (after - before for before, after in pairwise((0.0, *reached_by))), strict=True))
    strategy = Strategy.LINEAR if len(chosen) == 1 else Strategy.HILBERT
    return ColumnChoice(chosen, strategy, facts.now, scans, reached_by[-1], evidence)


def _uses(scans: Iterable[ScanUse], usable: set[str]) -> list[_Use]:
    scans_of: dict[frozenset[str], float] = {}
    for scan in scans:
        columns = frozenset(item.column for item in scan.filters) & usable
        scans_of[columns] = scans_of.get(columns, 0.0) + scan.scans
    return [_Use(columns, weight) for columns, weight in sorted(scans_of.items(), key=lambda item: sorted(item[0]))]


def _files(facts: ClusterFacts) -> float:
    """How many files of target size the table has, or as many as a small one is chosen for."""
    size = 0 if facts.scan is None else int(LiveFiles.of(facts.scan.files).columns.sizes.sum())
    return max(_LEAST_FILES, size / facts.optimizing.target_size)


#: Columns that are suggested at most.
MOST_SUGGESTED = 8


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A column, and why."""

    column: str
    reason: str
    files_met: float | None = None  # by a point query on it, on average; None: nothing is known of it


@dataclass(frozen=True, slots=True)
class Suggested:
    """What is suggested, the best first; and what `auto` says of the scans that are known."""

    columns: tuple[Suggestion, ...]
    auto: Decided
    files: int  # that the table has


_SPREAD = "its values are spread over many files"


def suggest(
    facts: ClusterFacts, filtered: Collection[str] = (), distinct: Mapping[int, int] = MappingProxyType({})
) -> Suggested:
    """Columns suggested by facts of the table itself.

    First those that make a row's identity or that deletes go by, those of the sort order, those in `filtered` (what
    `self-optimizing.filter` names); then others by how deep they lie and by how many values they have, of which
    `distinct` are the numbers that are known, by field id.
    """
    sorting = facts.sorting
    usable = {
        column.field_id: column.name
        for column in sorting.columns
        if not column.problem and column.field_id not in sorting.partitioned_by
    }
    met, files = _met(facts, usable)
    reasons: dict[int, list[str]] = {}

    def add(field_ids: Collection[int], reason: str) -> None:
        for field_id in field_ids:
            if field_id in usable and reason not in reasons.setdefault(field_id, []):
                reasons[field_id].append(reason)

    layouts = Layouts(facts.groups, facts.learn)
    newest = None if facts.scan is None else newest_layout(LiveFiles.of(facts.scan.files), layouts, usable)
    if newest is not None:
        name = layout_name(newest, sorting)
        add([key.field_id for key in newest.keys], f"files are clustered by {name}; another choice needs --full")
    add(sorting.identifiers, "it is an identifier field")
    add(_equality_ids(facts), "equality deletes go by it")
    add([key.field_id for key in sorting.default_order.keys], "the table's sort order names it")
    add([field_id for field_id, name in usable.items() if name in filtered], "self-optimizing.filter names it")
    named = list(reasons)
    rest = sorted(
        (field_id for field_id in met if field_id not in reasons and met[field_id] > 1),
        key=lambda field_id: (-met[field_id] * max(1, distinct.get(field_id, 1)), field_id),
    )
    for field_id in rest:
        count = distinct.get(field_id)
        add([field_id], _SPREAD if count is None else f"{_SPREAD}; it has about {many(count, 'value')}")
    suggestions = [
        Suggestion(usable[field_id], "; ".join(reasons[field_id]), met.get(field_id))
        for field_id in [*named, *(field for field in rest if field in reasons)]
    ]
    return Suggested(tuple(suggestions[:MOST_SUGGESTED]), decide(facts), files)


def _equality_ids(facts: ClusterFacts) -> list[int]:
    if facts.scan is None:
        return []
    deletes = (*LiveFiles.of(facts.scan.files).deletes, *facts.scan.dangling)
    ids = (field_id for delete in deletes if delete.kind is DeleteKind.EQUALITY for field_id in delete.equality_ids)
    return list(dict.fromkeys(ids))


def _met(facts: ClusterFacts, usable: Mapping[int, str]) -> tuple[Mapping[int, float], int]:
    """By column how many files a point query meets, for those of which bounds are known; and all files."""
    if facts.scan is None or not facts.scan.files:
        return {}, 0
    datas = [file.data for file in facts.scan.files]
    rows = np.array([data_file.record_count for data_file in datas], np.int64)
    depths = {}
    for field_id in usable:
        ranges = ranges_of(datas, field_id, facts.sorting.bound_key(field_id))
        if ranges.is_known.any() and ranges.constant is None:
            depths[field_id] = depth(ranges, rows)
    return depths, len(datas)
