from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amoro_core.errors import InvalidArgument
from amoro_core.scheduling.policy import CandidateTask, PendingTable, choose_tasks, order_pending
from amoro_core.scheduling.quota import TaskRun

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def table(table_id: int, used: int = 0, *, limit: int = 1, ago: int | None = None) -> PendingTable:
    """A table that ran so many of the last minutes and was last optimized so many minutes ago."""
    runs = (TaskRun(NOW - used * MINUTE),) if used else ()
    return PendingTable(table_id, limit, runs, NOW - ago * MINUTE if ago is not None else None)


def ids(tables: list[PendingTable]) -> list[int]:
    return [table.table_id for table in tables]


def tasks(table_id: int, count: int) -> list[CandidateTask]:
    return [CandidateTask(f"p{table_id}", number, table_id) for number in range(1, count + 1)]


def test_quota_takes_the_lowest_occupation_first() -> None:
    tables = [table(1, 30), table(2, 10), table(3, 20, limit=4)]
    assert ids(order_pending(tables, "quota", NOW)) == [3, 2, 1]


def test_equal_occupation_goes_by_the_time_of_the_last_optimizing() -> None:
    assert ids(order_pending([table(1, ago=5), table(2, ago=9), table(3)], "quota", NOW)) == [3, 2, 1]


def test_balanced_takes_what_was_never_or_longest_ago_optimized_first() -> None:
    tables = [table(1, ago=5), table(2, 50, ago=9), table(3, 50)]
    assert ids(order_pending(tables, "balanced", NOW)) == [3, 2, 1]


def test_equal_tables_go_by_their_ids() -> None:
    for policy in ("quota", "balanced"):
        assert ids(order_pending([table(2), table(1)], policy, NOW)) == [1, 2]


def test_unknown_policy_is_named() -> None:
    with pytest.raises(InvalidArgument, match="unknown scheduling policy 'fifo'"):
        order_pending([table(1)], "fifo", NOW)


def test_nothing_is_chosen_without_slots_or_candidates() -> None:
    assert choose_tasks(tasks(1, 3), {}, {1: 2}, 0) == []
    assert choose_tasks([], {}, {1: 2}, 4) == []


def test_tasks_of_one_table_keep_their_order() -> None:
    assert choose_tasks(tasks(1, 3), {}, {1: 5}, 2) == tasks(1, 2)


def test_equal_tables_take_turns() -> None:
    chosen = choose_tasks([*tasks(1, 3), *tasks(2, 3)], {}, {1: 2, 2: 2}, 4)
    assert [(task.table_id, task.number) for task in chosen] == [(1, 1), (2, 1), (1, 2), (2, 2)]


def test_table_furthest_below_its_share_comes_first() -> None:
    chosen = choose_tasks([*tasks(1, 9), *tasks(2, 9)], {1: 4, 2: 1}, {1: 8, 2: 4}, 2)
    assert [task.table_id for task in chosen] == [2, 1]


def test_limit_holds_while_another_table_is_below_its_own() -> None:
    chosen = choose_tasks([*tasks(1, 9), *tasks(2, 9)], {1: 1}, {1: 1, 2: 3}, 3)
    assert [task.table_id for task in chosen] == [2, 2, 2]


def test_threads_are_lent_beyond_the_limit_while_others_are_idle() -> None:
    assert choose_tasks(tasks(1, 4), {1: 1}, {1: 1}, 3) == tasks(1, 3)
    chosen = choose_tasks([*tasks(1, 4), *tasks(2, 1)], {1: 1}, {1: 1, 2: 1}, 3)
    assert [task.table_id for task in chosen] == [2, 1, 1]


def test_table_without_limit_only_borrows() -> None:
    chosen = choose_tasks([*tasks(1, 2), *tasks(2, 2)], {}, {1: 0, 2: 1}, 4)
    assert [task.table_id for task in chosen] == [2, 1, 1, 2]


@given(
    waiting=st.dictionaries(st.integers(1, 5), st.integers(1, 8), min_size=1),
    running=st.dictionaries(st.integers(1, 5), st.integers(0, 8)),
    limits=st.dictionaries(st.integers(1, 5), st.integers(0, 8)),
    slots=st.integers(0, 20),
)
def test_no_slot_is_idle_and_nothing_is_lent_before_every_limit_is_reached(
    waiting: dict[int, int], running: dict[int, int], limits: dict[int, int], slots: int
) -> None:
    candidates = [task for table_id, count in waiting.items() for task in tasks(table_id, count)]
    chosen = choose_tasks(candidates, running, limits, slots)
    assert len(chosen) == len(set(chosen)) == min(slots, len(candidates))
    taken = Counter(task.table_id for task in chosen)
    lent = any(running.get(table_id, 0) + count > limits.get(table_id, 0) for table_id, count in taken.items())
    for table_id, count in waiting.items():
        if lent and taken[table_id] < count:
            assert running.get(table_id, 0) + taken[table_id] >= limits.get(table_id, 0)
