"""Each operation of another writer at each point of a process: no row is lost or doubled.

`make test` has each operation on tables with and without partitions that are rewritten and converted, and each fate at
each point and in each version of the format; `make test-all` has a quarter of the matrix, with each operation at each
point and on each kind of table; `make prove` all, and pairs of operations.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from itertools import combinations
from pathlib import Path
from typing import TypeVar

import pytest

from amoro_core.model.processes import ProcessStatus
from tests.model import clustered
from tests.model.interleaving import MATRIX, SAMPLE, Point, carry_out
from tests.model.lake import Stages
from tests.model.operations import OPERATIONS, Case, Kind
from tests.services.rigs import DECODED
from tests.tiers import current_tier, sample

C = TypeVar("C")


def pairwise(cases: Sequence[C], *views: Callable[[C], Sequence[Hashable]]) -> list[C]:
    """A few cases, always the same ones, in their order. A view gives values of a case, each two of which are to meet.

    First those that add the most pairs are taken, then those that add fewer, in an order by chance: what no view asks
    for is spread.
    """
    numbers: dict[Hashable, int] = {}
    pairs = []
    for case in cases:
        met = [(at, pair) for at, view in enumerate(views) for pair in combinations(enumerate(view(case)), 2)]
        pairs.append(sum(1 << numbers.setdefault(pair, len(numbers)) for pair in met))
    order = random.Random(0).sample(range(len(pairs)), len(pairs))
    chosen: set[int] = set()
    missing = (1 << len(numbers)) - 1
    for least in range(max((one.bit_count() for one in pairs), default=0), 0, -1):
        for at in order:
            own = pairs[at]
            if (own & missing).bit_count() >= least:
                chosen.add(at)
                missing &= ~own
    return [cases[at] for at in sorted(chosen)]


def by_operation(case: Case) -> tuple[Hashable, ...]:
    return case.happenings[0][0].name, case.partitioned, case.how


def by_fate(case: Case) -> tuple[Hashable, ...]:
    ((operation, point),) = case.happenings
    return operation.fate, point, case.version, case.partitioned, case.how


CASES = SAMPLE if current_tier() == "all" else pairwise(MATRIX, by_operation, by_fate)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows_are_kept_whatever_others_do_at_any_point(quick_path: Path, stages: Stages, case: Case) -> None:
    carry_out(case, quick_path, stages)


@pytest.mark.parametrize("case", sample(clustered.quick(), every=8), ids=str)
def test_rows_are_kept_whatever_others_do_while_a_table_is_clustered(
    quick_path: Path, stages: Stages, case: Case
) -> None:
    clustered.carry_out(case, quick_path, stages)


def test_partitioned_tables_are_looked_at_by_difference_and_fragments_are_copied(
    quick_path: Path, stages: Stages
) -> None:
    (nothing,) = (one for one in OPERATIONS if one.name == "nothing")
    counts: Counter[str] = Counter()
    case = Case(((nothing, Point.BEFORE_EXECUTE),), 2, True, Kind.REWRITE)
    assert carry_out(case, quick_path, stages, counts) is ProcessStatus.SUCCESS
    assert counts["files copied"]
    assert counts[DECODED]
