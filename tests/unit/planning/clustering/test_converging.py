"""Clustering comes to rest, and stays cheap while data arrives."""

from __future__ import annotations

import pytest

from tests.tiers import count
from tests.unit.planning.clustering.random_tables import arrivals, random_table


def test_random_tables_are_idle_after_two_plans() -> None:
    for seed in range(count(10, 36)):
        table = random_table(seed)
        plans = table.settle()
        assert len(plans) <= 2, seed
        assert table.plan().plan is None


@pytest.mark.parametrize(("columns", "shape"), [(("a", "b"), "anywhere"), (("a", "b"), "time")])
def test_months_of_arrivals_cost_little_and_stay_near_a_table_clustered_at_once(
    columns: tuple[str, ...], shape: str
) -> None:
    table, worst = arrivals(columns, count(25, 60), 8, shape)
    assert table.written <= 8 * table.arrived
    assert worst <= 4
