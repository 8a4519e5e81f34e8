from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amoro_core.errors import InvalidArgument
from amoro_core.scheduling.policy import (
    POLICIES,
    CandidateTask,
    PendingTable,
    Use,
    balanced,
    by_quota,
    choose_tasks,
    find_policy,
    order_pending,
)
from amoro_core.scheduling.quota import TaskRun
from amoro_core.scheduling.shares import LEAST_SHARE

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
    assert ids(order_pending(tables, by_quota, NOW)) == [3, 2, 1]


def test_equal_occupation_goes_by_the_time_of_the_last_optimizing() -> None:
    assert ids(order_pending([table(1, ago=5), table(2, ago=9), table(3)], by_quota, NOW)) == [3, 2, 1]


def test_balanced_takes_what_was_never_or_longest_ago_optimized_first() -> None:
    tables = [table(1, ago=5), table(2, 50, ago=9), table(3, 50)]
    assert ids(order_pending(tables, balanced, NOW)) == [3, 2, 1]


def test_equal_tables_go_by_their_ids() -> None:
    for policy in POLICIES.values():
        assert ids(order_pending([table(2), table(1)], policy, NOW)) == [1, 2]


def uses(**running_and_limit: tuple[int, int]) -> dict[int, Use]:
    """How tables stand in a group of ten threads, by `t` and their ids: tasks that run, and the limit."""
    return {
        int(name[1:]): Use(running, limit, max(limit / 10, LEAST_SHARE))
        for name, (running, limit) in running_and_limit.items()
    }


def chosen_tables(candidates: list[CandidateTask], stand: dict[int, Use], slots: int) -> list[int]:
    return [task.table_id for task in choose_tasks(candidates, stand, slots, 60)]


def test_unknown_policy_is_named_with_those_that_exist() -> None:
    with pytest.raises(InvalidArgument, match="unknown scheduling policy 'fifo'") as refused:
        find_policy(POLICIES, "fifo")
    assert refused.value.hint == "Known policies: quota, balanced."
    assert find_policy(POLICIES, "balanced") is balanced


def test_nothing_is_chosen_without_slots_or_candidates() -> None:
    assert choose_tasks(tasks(1, 3), uses(t1=(0, 2)), 0, 60) == []
    assert choose_tasks([], uses(t1=(0, 2)), 4, 60) == []


def test_tasks_of_one_table_keep_their_order() -> None:
    assert choose_tasks(tasks(1, 3), uses(t1=(0, 5)), 2, 60) == tasks(1, 2)


def test_equal_tables_take_turns() -> None:
    chosen = choose_tasks([*tasks(1, 3), *tasks(2, 3)], uses(t1=(0, 2), t2=(0, 2)), 4, 60)
    assert [(task.table_id, task.number) for task in chosen] == [(1, 1), (2, 1), (1, 2), (2, 2)]


def test_table_furthest_below_its_share_comes_first() -> None:
    assert chosen_tables([*tasks(1, 9), *tasks(2, 9)], uses(t1=(4, 8), t2=(1, 4)), 2) == [2, 1]


def test_table_that_had_less_time_for_its_share_comes_first() -> None:
    stand = {1: Use(0, 4, 0.4, 100.0), 2: Use(0, 4, 0.4)}
    assert chosen_tables([*tasks(1, 9), *tasks(2, 9)], stand, 1) == [2]
    assert chosen_tables([*tasks(1, 9), *tasks(2, 9)], {**stand, 2: Use(1, 4, 0.4)}, 1) == [1]


def test_limit_holds_while_another_table_is_below_its_own() -> None:
    assert chosen_tables([*tasks(1, 9), *tasks(2, 9)], uses(t1=(1, 1), t2=(0, 3)), 3) == [2, 2, 2]
    stand = {1: Use(1, 1, 0.1), 2: Use(0, 3, 0.3, 10000.0)}
    assert chosen_tables([*tasks(1, 9), *tasks(2, 9)], stand, 3) == [2, 2, 2]


def test_threads_are_lent_beyond_the_limit_while_others_are_idle() -> None:
    assert choose_tasks(tasks(1, 4), uses(t1=(1, 1)), 3, 60) == tasks(1, 3)
    assert chosen_tables([*tasks(1, 4), *tasks(2, 1)], uses(t1=(1, 1), t2=(0, 1)), 3) == [2, 1, 1]


def test_table_without_quota_only_borrows_and_is_not_forgotten() -> None:
    assert chosen_tables([*tasks(1, 2), *tasks(2, 2)], uses(t1=(0, 0), t2=(0, 1)), 4) == [2, 1, 2, 1]
    assert chosen_tables(tasks(1, 2), {}, 4) == [1, 1]


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
    stand = uses(**{f"t{table_id}": (running.get(table_id, 0), limits.get(table_id, 0)) for table_id in waiting})
    chosen = choose_tasks(candidates, stand, slots, 60)
    assert len(chosen) == len(set(chosen)) == min(slots, len(candidates))
    taken = Counter(task.table_id for task in chosen)
    lent = any(running.get(table_id, 0) + count > limits.get(table_id, 0) for table_id, count in taken.items())
    for table_id, count in waiting.items():
        if lent and taken[table_id] < count:
            assert running.get(table_id, 0) + taken[table_id] >= limits.get(table_id, 0)
