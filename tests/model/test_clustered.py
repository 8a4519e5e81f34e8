"""Each operation of another writer beside a process that clusters: no row is lost, doubled or brought back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.clustered import ClusterCase, carry_out, quick
from tests.model.stages import Stages


@pytest.mark.parametrize("case", quick(), ids=str)
def test_rows_are_kept_whatever_others_do_while_a_table_is_clustered(
    quick_path: Path, stages: Stages, case: ClusterCase
) -> None:
    carry_out(case, quick_path, stages)
