"""Each operation of another writer at each point of a process: no row is lost or doubled.

`make test` has each operation on tables with and without partitions that are rewritten and converted, and each fate at
each point and in each version of the format; `make test-all` has a quarter of the matrix, with each operation at each
point and on each kind of table; `make prove` all, and pairs of operations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from pathlib import Path

import pytest

from amoro_core.model.processes import ProcessStatus
from tests.model import clustered
from tests.model.interleaving import MATRIX, SAMPLE, Point, carry_out
from tests.model.lake import Stages
from tests.model.operations import OPERATIONS, Case, Kind
from tests.model.pairwise import pairwise
from tests.services.rigs import DECODED
from tests.tiers import current_tier, sample


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
