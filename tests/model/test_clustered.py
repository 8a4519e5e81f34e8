"""Each operation of another writer beside a process that clusters: no row is lost, doubled or brought back."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.model.clustered import ClusterCase, carry_out, pair, quick
from tests.model.stages import Stages


@pytest.mark.parametrize("case", quick(), ids=str)
def test_rows_are_kept_whatever_others_do_while_a_table_is_clustered(
    quick_path: Path, stages: Stages, case: ClusterCase
) -> None:
    carry_out(case, quick_path, stages)


def test_a_pair_is_of_two_operations() -> None:
    for seed in range(500):
        (first, _), (second, _) = pair(random.Random(seed)).happenings
        assert first is not second
