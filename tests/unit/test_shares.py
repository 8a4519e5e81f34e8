"""Quotas, policies, and the time that tables of a busy group get."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amoro_core.scheduling.policy import (
    FIRST_GUESS_S,
    LEAST_SHARE,
    Accounts,
    TaskRun,
    Use,
    choose_tasks,
    occupation,
    quota_limit,
    settled,
    share_of,
)
from tests import tiers

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("quota", "threads", "limit"),
    [(0.5, 8, 4), (0.1, 1, 1), (0.07, 100, 7), (1.0, 8, 8), (3.0, 8, 3), (0.0, 8, 0), (0.5, 0, 0)],
)
def test_quota_is_a_share_up_to_one_and_a_number_of_threads_above(quota: float, threads: int, limit: int) -> None:
    assert quota_limit(quota, threads) == limit


def test_occupation_is_the_part_of_the_limit_used_in_the_last_hour() -> None:
    finished = TaskRun(NOW - 30 * MINUTE, NOW - 15 * MINUTE)
    running = TaskRun(NOW - 15 * MINUTE)
    assert occupation([finished, running], 2, NOW) == 0.25
    assert occupation([TaskRun(NOW - 90 * MINUTE, NOW - 30 * MINUTE)], 1, NOW) == 0.5
    assert occupation([TaskRun(NOW - 90 * MINUTE, NOW - 60 * MINUTE)], 1, NOW) == 0.0
    assert occupation([TaskRun(NOW - 30 * MINUTE, NOW + 30 * MINUTE)], 1, NOW) == 0.5
    assert occupation([TaskRun(NOW - MINUTE)], 0, NOW) == float("inf")


Task = tuple[int, int]  # its table and its number


def waiting(**counts: int) -> dict[int, list[Task]]:
    """Tasks that wait, by `t` and the ids of their tables."""
    return {int(name[1:]): [(int(name[1:]), number) for number in range(1, n + 1)] for name, n in counts.items()}


def uses(**running_and_limit: tuple[int, int]) -> dict[int, Use]:
    """How tables stand in a group of ten threads, by `t` and their ids: tasks that run, and the limit."""
    return {
        int(name[1:]): Use(running, limit, max(limit / 10, LEAST_SHARE))
        for name, (running, limit) in running_and_limit.items()
    }


def test_table_furthest_below_its_share_comes_first() -> None:
    candidates = waiting(t1=9, t2=9)
    chosen = choose_tasks(candidates, candidates.__getitem__, uses(t1=(4, 8), t2=(1, 4)), 2, 60)
    assert [table_id for table_id, _ in chosen] == [2, 1]


@given(
    counts=st.dictionaries(st.integers(1, 5), st.integers(1, 8), min_size=1),
    running=st.dictionaries(st.integers(1, 5), st.integers(0, 8)),
    limits=st.dictionaries(st.integers(1, 5), st.integers(0, 8)),
    slots=st.integers(0, 20),
)
def test_no_slot_is_idle_and_nothing_is_lent_before_every_limit_is_reached(
    counts: dict[int, int], running: dict[int, int], limits: dict[int, int], slots: int
) -> None:
    candidates = waiting(**{f"t{table_id}": count for table_id, count in counts.items()})
    stand = uses(**{f"t{table_id}": (running.get(table_id, 0), limits.get(table_id, 0)) for table_id in counts})
    chosen = choose_tasks(candidates, candidates.__getitem__, stand, slots, 60)
    assert len(chosen) == len(set(chosen)) == min(slots, sum(counts.values()))
    taken = Counter(table_id for table_id, _ in chosen)
    lent = any(running.get(table_id, 0) + count > limits.get(table_id, 0) for table_id, count in taken.items())
    for table_id, count in counts.items():
        if lent and taken[table_id] < count:
            assert running.get(table_id, 0) + taken[table_id] >= limits.get(table_id, 0)


S = timedelta(seconds=1)


@dataclass
class Group:
    """A group of threads that serve tables; `run` schedules and ends tasks until a moment or the last task."""

    threads: int
    quotas: dict[int, float]
    seconds: Callable[[int], float]  # how long a task of the table takes
    now: datetime = NOW
    accounts: Accounts = field(default_factory=lambda: Accounts(NOW))
    waiting: Counter[int] = field(default_factory=Counter)  # tasks by table
    running: list[tuple[datetime, int, datetime]] = field(default_factory=list)  # end, table, start
    ended: list[tuple[int, TaskRun]] = field(default_factory=list)
    settled: int = 0  # how many of those that ended are in the accounts
    started: list[int] = field(default_factory=list)  # tables, in order of their tasks' starts

    def run(self, until: datetime) -> None:
        while True:
            self._schedule()
            if not self.running or self.running[0][0] > until:
                self.now = max(self.now, until)
                return
            ended_at, table, started_at = heappop(self.running)
            self.now = ended_at
            self.ended.append((table, TaskRun(started_at, ended_at)))

    def _schedule(self) -> None:
        free = self.threads - len(self.running)
        tables = sorted(table for table, count in self.waiting.items() if count)
        if not free or not tables:
            return
        runs = self.ended[self.settled :]
        self.settled = len(self.ended)
        runs += [(table, TaskRun(started_at)) for _, table, started_at in self.running]
        shares = {table: share_of(quota, self.threads) for table, quota in self.quotas.items()}
        self.accounts = settled(self.accounts, runs, shares, tables, self.now)
        held = Counter(table for _, table, _ in self.running)
        uses = {
            table: Use(
                held[table],
                quota_limit(self.quotas[table], self.threads),
                shares[table],
                self.accounts.ahead_s.get(table, 0.0),
            )
            for table in tables
        }
        candidates = {table: [table] * min(free, self.waiting[table]) for table in tables}
        for table in choose_tasks(candidates, candidates.__getitem__, uses, free, self.accounts.typical_s):
            self.waiting[table] -= 1
            self.started.append(table)
            heappush(self.running, (self.now + self.seconds(table) * S, table, self.now))

    def time(self, since: datetime, until: datetime) -> dict[int, float]:
        """The part of the thread time between the two moments that each table had."""
        held: Counter[int] = Counter()
        runs = [*self.ended, *((table, TaskRun(start, end)) for end, table, start in self.running)]
        for table, run in runs:
            assert run.ended_at is not None
            held[table] += max(min(run.ended_at, until) - max(run.started_at, since), 0 * S) / S
        return {table: held[table] / (self.threads * ((until - since) / S)) for table in self.quotas}


@pytest.mark.parametrize("threads", tiers.sample([1, 2, 3, 4, 5, 7, 10, 16], every=3))
@pytest.mark.parametrize(
    "seconds",
    [{1: 60.0, 2: 60.0}, {1: 60.0, 2: 20.0}, {1: 20.0, 2: 60.0}, {1: 7.0, 2: 31.0}],
    ids=["equal", "long in the smaller", "long in the larger", "odd"],
)
def test_two_tables_of_a_busy_group_get_thread_time_by_their_quotas(threads: int, seconds: dict[int, float]) -> None:
    group = Group(threads, {1: 0.2, 2: 0.8}, seconds.__getitem__)
    group.waiting = Counter({1: 10_000, 2: 10_000})
    while len(group.started) < tiers.count(100, 200):
        group.run(group.now + 20 * S)
    shares = group.time(NOW, group.now)
    assert shares[1] == pytest.approx(0.2, rel=0.1)
    assert shares[2] == pytest.approx(0.8, rel=0.1)


def test_a_table_of_many_small_processes_does_not_begin_anew_with_each() -> None:
    """It waits with one task at a time, the other with thousands: it must not get every second turn."""
    group = Group(1, {1: 0.2, 2: 0.8}, lambda table: 60.0)
    group.waiting = Counter({2: 10_000})
    for _ in range(200):
        group.waiting[1] = min(1, group.waiting[1] + 1)
        group.run(group.now + 60 * S)
    assert group.time(NOW, group.now)[1] == pytest.approx(0.2, rel=0.1)


def test_a_quota_of_threads_counts_as_that_many_of_the_group() -> None:
    assert [share_of(quota, 8) for quota in (0.5, 1.0, 2.0, 3.9, 0.0)] == [0.5, 1.0, 0.25, 0.375, LEAST_SHARE]
    assert share_of(2.0, 0) == 2.0


def test_time_is_settled_once_by_share_and_a_clock_that_goes_back_takes_nothing_back() -> None:
    runs = [(1, TaskRun(NOW - 90 * S)), (2, TaskRun(NOW - 10 * S, NOW + 30 * S))]
    first = settled(Accounts(NOW), runs, {1: 0.5, 2: 0.25}, [1, 2], NOW + 60 * S)
    assert first == Accounts(NOW + 60 * S, {}, FIRST_GUESS_S + (40 - FIRST_GUESS_S) / 8)
    later = settled(first, [(1, TaskRun(NOW - 90 * S))], {1: 0.5, 2: 0.25}, [1, 2], NOW + 90 * S)
    assert later == Accounts(NOW + 90 * S, {1: 60.0}, first.typical_s)
    assert settled(later, [], {}, [1], NOW + 90 * S).ahead_s == {}
    before = Accounts(NOW, {1: 60.0})
    assert settled(before, [(1, TaskRun(NOW - S))], {1: 0.5}, [1, 2], NOW - 30 * S) == Accounts(NOW - 30 * S, {1: 60.0})


WORKLOADS = tiers.count(150, 600)


def test_no_table_that_waits_gets_less_than_half_of_its_part_in_random_workloads() -> None:
    for seed in range(WORKLOADS):
        chance = random.Random(seed)
        threads, tables = chance.randint(1, 8), range(chance.randint(2, 6))
        quotas = {table: chance.choice([0.1, 0.2, 0.5, 0.5, 0.8, 1.0, 2.0]) for table in tables}
        typical = {table: chance.choice([30.0, 60.0, 120.0]) for table in tables}
        group = Group(threads, quotas, lambda table, c=chance, t=typical: t[table] * c.uniform(0.5, 1.5))
        group.waiting = Counter(dict.fromkeys(tables, 10_000))
        parts = {table: share_of(quota, threads) for table, quota in quotas.items()}
        # Long enough for three tasks of the table with the least part.
        period = max(3 * typical[table] * sum(parts.values()) / parts[table] for table in tables) / threads
        group.run(NOW + period * S)
        got = group.time(NOW, group.now)
        for table in tables:
            least = parts[table] / sum(parts.values()) / 2 - 2 * 1.5 * typical[table] / (threads * period)
            assert got[table] >= least, f"seed {seed}: table {table} got {got[table]} of {quotas}"
