"""Each operation of another writer at each point of a process, for every kind of table: no row is lost or doubled."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.interleaving import MATRIX, Case, carry_out
from tests.model.stages import Stages


@pytest.mark.parametrize("case", MATRIX, ids=str)
def test_rows_are_kept_whatever_others_do_at_any_point(quick_path: Path, stages: Stages, case: Case) -> None:
    carry_out(case, quick_path, stages)
