"""Whose turn it is under fifo, priority and value, and what the prediction of work learns."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from amoro_core.errors import InvalidArgument, TableRefused
from amoro_core.model.group_config import parse_group
from amoro_core.model.optimizing_config import parse_config
from amoro_core.planning.optimizing.forecast import learned
from amoro_core.scheduling.policy import POLICIES, PendingTable, order_pending

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
AGING = timedelta(seconds=10)


def waiting(table_id: int, waited_s: float, priority: int = 5, value: float = 0.0) -> PendingTable:
    since = NOW - timedelta(seconds=waited_s)
    return PendingTable(table_id, 1, since=since, priority=priority, value=value, aging=AGING)


def turns(policy: str, *tables: PendingTable) -> list[int]:
    return [table.table_id for table in order_pending(tables, POLICIES[policy], NOW)]


def test_each_policy_orders_by_its_own_key() -> None:
    tables = (waiting(1, 5, value=1.0), waiting(2, 9, priority=7), waiting(3, 1, priority=0), waiting(4, 2, value=8.0))
    assert turns("fifo", *tables) == [2, 1, 4, 3]
    assert turns("priority", *tables) == [3, 1, 4, 2]
    assert turns("value", *tables) == [3, 4, 1, 2]
    assert turns("quota", *tables) == turns("balanced", *tables) == [1, 2, 3, 4], "neither knows class or value"


def test_each_aging_of_waiting_is_a_class_and_class_0_is_the_first() -> None:
    assert turns("priority", waiting(1, 9.999, 2), waiting(2, 0, 1)) == [2, 1]
    assert turns("priority", waiting(1, 10, 2), waiting(2, 0, 1)) == [1, 2]
    assert turns("priority", waiting(1, 89.999, 9), waiting(2, 0, 0)) == [2, 1]
    assert turns("priority", waiting(1, 90, 9), waiting(2, 89, 0)) == [1, 2], "nine agings, and it waits longer"
    assert turns("priority", waiting(1, -60, 9), waiting(2, 0, 9)) == [2, 1], "a clock that was set back"


@pytest.mark.parametrize(("key", "value"), [("priority", "10"), ("priority", "-1"), ("priority", "first")])
def test_a_class_beyond_0_to_9_is_refused_by_key_and_value(key: str, value: str) -> None:
    with pytest.raises(TableRefused, match=rf"self-optimizing.{key} has the malformed value '{value}'"):
        parse_config({f"self-optimizing.{key}": value})


def test_aging_is_a_duration_above_0() -> None:
    assert parse_group([("priority-aging", "10s")]).priority_aging == AGING
    assert parse_group([]).priority_aging == timedelta(hours=1)
    for value in ("0s", "soon", "-1s"):
        with pytest.raises(InvalidArgument, match=f"priority-aging has the malformed value '{value}'"):
            parse_group([("priority-aging", value)])


def test_the_rate_of_a_table_is_learned_within_bounds() -> None:
    assert 1.0 < learned(1.0, 10.0, 20.0) < 2.0
    assert learned(1.0, 1.0, 1e9) == 4.0
    assert learned(0.3, 1e9, 1.0) == 0.25
    assert learned(2.0, 0.0, 5.0) == learned(2.0, 5.0, 0.0) == 2.0, "nothing was predicted, or nothing measured"
