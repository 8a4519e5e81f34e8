"""Which columns a table is clustered by, told by how it is read (`self-optimizing.cluster.columns=auto`)."""

from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from itertools import pairwise
from math import sqrt

from amoro_core.live.files import LiveFiles
from amoro_core.model.clustering import MAX_CURVE_COLUMNS, Strategy
from amoro_core.model.scans import ColumnChoice, ScanUse
from amoro_core.planning.clustering.depth import ranges_of
from amoro_core.planning.clustering.facts import ClusterFacts
from amoro_core.planning.clustering.weighing import SCAN_DAYS
from amoro_core.records import record

#: Scans of the last days that are enough to choose by.
ENOUGH_SCANS = 100
#: Another choice has to spare so many times what the present one does.
BETTER = 1.3
#: The least time between two choices.
PAUSE = timedelta(days=7)
#: A column is taken only if it, or it and those after it, add this share of what is spared without.
_LEAST_ADDED = 0.1
#: By so many standard errors another choice has to be better: what scans of random columns differ by is chance.
_ERRORS = 6.0
#: A column that has more of what filters spare than this is ordered by alone.
_ALONE = 0.8
#: A smaller table is chosen for as if it had grown: of two files a second column would never spare much.
_LEAST_FILES = 64.0
#: Of fewer files one has but one value, which says nothing.
_TWO = 2


@record
class Decided:
    """The choice in force, or None while there is none, and why."""

    choice: ColumnChoice | None
    reason: str
    is_new: bool = False


@record
class _Use:
    """Scans that filter by the same columns."""

    columns: frozenset[str]
    weight: float  # how many there are: without skipping each reads the same bytes


def decide(facts: ClusterFacts) -> Decided:
    """The columns by which the table is clustered, by the scans of the last days and the choice before.

    One that is made stays for a week and until another one spares 1.3 times as much, or until its columns can't be
    clustered by any more.
    """
    before = facts.choice
    usable = {one.name for one in facts.sorting.columns if not one.problem}
    usable -= {one.name for one in facts.sorting.columns if one.field_id in facts.sorting.partitioned_by}
    counted = [one for one in facts.scans if one.day > (facts.now - timedelta(days=SCAN_DAYS)).date()]
    scans = sum(one.scans for one in counted)
    if before is not None and not usable.issuperset(before.columns):
        before = None
    if before is not None and facts.now - before.chosen_at < PAUSE:
        return Decided(before, f"chosen {before.chosen_at:%Y-%m-%d}, for {PAUSE.days} d at least")
    if scans < ENOUGH_SCANS:
        if before is not None:
            return Decided(before, f"{scans} scans in {SCAN_DAYS} d are too few for another choice")
        return Decided(None, f"auto chooses columns by {ENOUGH_SCANS} scans in {SCAN_DAYS} d, {scans} are known")
    files = _files(facts)
    usable -= _constants(facts, {item.column for one in counted for item in one.filters} & usable)
    uses = _uses(counted, usable)
    found = _greedy(uses, files, facts, scans)
    if found is None:
        return Decided(before, f"none of {scans} scans filters by a column that rows can be ordered by")
    if before is None:
        return Decided(found, f"chosen by {scans} scans", is_new=True)
    if found.columns == before.columns:
        return Decided(before, "the same columns as before are the best")
    spared_before = spared(uses, before.columns, before.strategy, files)
    if found.saved < BETTER * spared_before:
        better = f"{found.saved / spared_before:.2f} ×" if spared_before else "no more"
        return Decided(before, f"{', '.join(found.columns)} would spare {better}, {BETTER} × needed")
    if _is_chance(uses, found, before, files):
        return Decided(before, f"{', '.join(found.columns)} may be better by chance alone, by {scans} scans")
    return Decided(found, f"chosen by {scans} scans", is_new=True)


def _constants(facts: ClusterFacts, names: Collection[str]) -> set[str]:
    """Those of the columns that have one value in the whole table, which orders nothing."""
    if facts.scan is None or len(facts.scan.files) < _TWO:
        return set()
    datas = [file.data for file in facts.scan.files]
    ranged = ((one, facts.sorting.bound_key(one.field_id)) for one in facts.sorting.columns if one.name in names)
    return {one.name for one, key in ranged if ranges_of(datas, one.field_id, key).constant is not None}


def _is_chance(uses: Sequence[_Use], found: ColumnChoice, before: ColumnChoice, files: float) -> bool:
    """Whether so many scans may differ by so much though they ask for both choices alike."""
    scans = sum(one.weight for one in uses)
    differences = [
        (
            one.weight,
            spared((one,), found.columns, found.strategy, files)
            - spared((one,), before.columns, before.strategy, files),
        )
        for one in uses
    ]
    mean = sum(weight * value for weight, value in differences) / scans
    variance = sum(weight * (value - mean) ** 2 for weight, value in differences) / scans
    return mean <= _ERRORS * sqrt(variance / scans)


def spared(uses: Sequence[_Use], columns: Sequence[str], strategy: Strategy, files: float) -> float:
    """The share of the bytes that the scans need not read with the table clustered by these columns."""
    total = sum(one.weight for one in uses)
    if not total or not columns:
        return 0.0
    useful = columns[:1] if strategy is Strategy.LINEAR else columns
    share = float(files ** (-1 / len(useful)))
    return sum(one.weight * (1 - share ** len(one.columns.intersection(useful))) for one in uses) / total


def _greedy(uses: Sequence[_Use], files: float, facts: ClusterFacts, scans: int) -> ColumnChoice | None:
    total = sum(one.weight for one in uses)
    by_column: dict[str, float] = {}
    for one in uses:
        for name in one.columns:
            by_column[name] = by_column.get(name, 0.0) + one.weight
    if not by_column:
        return None
    first = min(by_column, key=lambda name: (-by_column[name], name))
    everything = sum(one.weight for one in uses if one.columns) / total
    chain = [(first, spared(uses, (first,), Strategy.LINEAR, files))]
    if by_column[first] / total <= _ALONE * everything:
        while len(chain) < min(MAX_CURVE_COLUMNS, len(by_column)):
            chosen = tuple(name for name, _ in chain)
            reached = {
                name: spared(uses, (*chosen, name), Strategy.HILBERT, files) for name in by_column if name not in chosen
            }
            best = min(reached, key=lambda name: (-reached[name], name))
            chain.append((best, reached[best]))
    taken = 1
    for length in range(2, len(chain) + 1):  # two columns may add enough together, of which one does not
        if chain[length - 1][1] >= (1 + _LEAST_ADDED) * chain[taken - 1][1]:
            taken = length
    chosen, reached_by = tuple(name for name, _ in chain[:taken]), [value for _, value in chain[:taken]]
    evidence = dict(zip(chosen, (after - before for before, after in pairwise((0.0, *reached_by))), strict=True))
    strategy = Strategy.LINEAR if len(chosen) == 1 else Strategy.HILBERT
    return ColumnChoice(chosen, strategy, facts.now, scans, reached_by[-1], evidence)


def _uses(scans: Iterable[ScanUse], usable: set[str]) -> list[_Use]:
    found: dict[frozenset[str], float] = {}
    for one in scans:
        columns = frozenset(item.column for item in one.filters) & usable
        found[columns] = found.get(columns, 0.0) + one.scans
    return [_Use(columns, weight) for columns, weight in sorted(found.items(), key=lambda item: sorted(item[0]))]


def _files(facts: ClusterFacts) -> float:
    """How many files of target size the table has, or as many as a small one is chosen for."""
    size = 0 if facts.scan is None else int(LiveFiles.of(facts.scan.files).columns.sizes.sum())
    return max(_LEAST_FILES, size / facts.optimizing.target_size)
