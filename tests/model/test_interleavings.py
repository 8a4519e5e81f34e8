"""Each operation of another writer at each point of a process: no row is lost or doubled.

Half of the kinds of tables are here at each point; `make prove` runs the whole matrix, and pairs of operations too.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from amoro_core.model.processes import ProcessStatus
from tests.model.interleaving import MATRIX, SAMPLE, Case, Happening, Point, TableCase, carry_out
from tests.model.operations import OPERATIONS, Kind
from tests.model.stages import Stages
from tests.services.remembering import DECODED


@pytest.mark.parametrize("case", SAMPLE, ids=str)
def test_rows_are_kept_whatever_others_do_at_any_point(quick_path: Path, stages: Stages, case: Case) -> None:
    carry_out(case, quick_path, stages)


def test_partitioned_tables_are_looked_at_by_difference_and_fragments_are_copied(
    quick_path: Path, stages: Stages
) -> None:
    (nothing,) = (one for one in OPERATIONS if one.name == "nothing")
    counts: Counter[str] = Counter()
    case = Case(TableCase(2, True, Kind.REWRITE), (Happening(nothing, Point.BEFORE_EXECUTE),))
    assert carry_out(case, quick_path, stages, counts) is ProcessStatus.SUCCESS
    assert counts["files copied"]
    assert counts[DECODED]


def test_the_sample_has_each_operation_at_each_point_and_on_each_kind_of_table() -> None:
    def pairs(cases: tuple[Case, ...]) -> set[tuple[str, str]]:
        single = [(case.table, case.happenings[0]) for case in cases]
        return {
            pair
            for table, one in single
            for pair in ((one.operation.name, one.point), (one.operation.name, str(table)), (one.point, str(table)))
        }

    assert pairs(SAMPLE) == pairs(MATRIX)
    assert set(SAMPLE) < set(MATRIX)
    assert len(SAMPLE) * 2 <= len(MATRIX)
