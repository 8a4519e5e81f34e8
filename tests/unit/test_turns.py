"""Whose turn it is under fifo, priority and value, and what the prediction of work learns."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import median

import pytest

from amoro_core.errors import InvalidArgument
from amoro_core.model.group_config import parse_group
from amoro_core.planning.optimizing.forecast import learned, value_of
from amoro_core.scheduling.policy import ORDERED, POLICIES, PendingTable, Use, choose_tasks, order_pending

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
AGING = timedelta(seconds=10)


def waiting(table_id: int, waited_s: float, priority: int = 5, value: float = 0.0) -> PendingTable:
    since = NOW - timedelta(seconds=waited_s)
    return PendingTable(table_id, 1, since=since, priority=priority, value=value, aging=AGING)


def turns(policy: str, *tables: PendingTable) -> list[int]:
    return [table.table_id for table in order_pending(tables, POLICIES[policy], NOW)]


def test_each_policy_orders_by_its_own_key_and_each_aging_of_waiting_is_a_class() -> None:
    tables = (waiting(1, 5, value=1.0), waiting(2, 9, priority=7), waiting(3, 1, priority=0), waiting(4, 2, value=8.0))
    assert turns("fifo", *tables) == [2, 1, 4, 3]
    assert turns("priority", *tables) == [3, 1, 4, 2]
    assert turns("value", *tables) == [3, 4, 1, 2]
    assert turns("quota", *tables) == turns("balanced", *tables) == [1, 2, 3, 4], "neither knows class or value"
    assert turns("priority", waiting(1, 9.999, 2), waiting(2, 0, 1)) == [2, 1]
    assert turns("priority", waiting(1, 10, 2), waiting(2, 0, 1)) == [1, 2]
    assert turns("priority", waiting(1, 89.999, 9), waiting(2, 0, 0)) == [2, 1]
    assert turns("priority", waiting(1, 90, 9), waiting(2, 89, 0)) == [1, 2], "nine agings, and it waits longer"
    assert turns("priority", waiting(1, -60, 9), waiting(2, 0, 9)) == [2, 1], "a clock that was set back"


def test_aging_is_a_duration_above_0() -> None:
    assert parse_group([("priority-aging", "10s")]).priority_aging == AGING
    assert parse_group([]).priority_aging == timedelta(hours=1)
    for value in ("0s", "soon", "-1s"):
        with pytest.raises(InvalidArgument, match=f"priority-aging has the malformed value '{value}'"):
            parse_group([("priority-aging", value)])


def test_after_ten_processes_the_prediction_of_most_tables_is_within_a_quarter() -> None:
    chance = random.Random(7)
    errors: list[list[float]] = [[] for _ in range(11)]
    for _ in range(500):
        true_rate, rate = min(max(chance.lognormvariate(0, 0.6), 0.25), 4.0), 1.0
        for number in range(11):
            first_s = chance.lognormvariate(1, 1)
            measured_s = first_s * true_rate * chance.lognormvariate(0, 0.12)
            predicted_s = first_s * rate
            errors[number].append(abs(measured_s / predicted_s - 1))
            rate = learned(rate, predicted_s, measured_s)
    assert median(errors[0]) > 0.3
    assert median(errors[10]) <= 0.25
    assert learned(1.0, 1.0, 1e9) == 4.0
    assert learned(0.3, 1e9, 1.0) == 0.25
    assert learned(2.0, 0.0, 5.0) == learned(2.0, 5.0, 0.0) == 2.0, "nothing was predicted, or nothing measured"


@dataclass
class Job:
    table: PendingTable
    files: int  # that it saves
    took_s: float


def mixed_jobs(chance: random.Random, count: int) -> list[Job]:
    """Streams of tiny files, tables of large ones, and those between; predictions are a quarter off."""
    jobs = []
    for table_id in range(1, count + 1):
        kind = table_id % 3
        files = chance.randint(*((80, 400), (10, 40), (4, 12))[kind])
        took_s = files * chance.uniform(*((0.01, 0.03), (0.1, 0.4), (1.0, 3.0))[kind])
        value = value_of(files, 10.0, took_s * chance.lognormvariate(0, 0.25))
        optimized_at = NOW - timedelta(minutes=chance.randint(1, 600))
        since = NOW - timedelta(seconds=chance.random())
        jobs.append(Job(PendingTable(table_id, 2, (), optimized_at, since, value=value), files, took_s))
    return jobs


def removed_within(jobs: list[Job], policy: str, threads: int, budget_s: float) -> float:
    """Files that are removed for each thread second, within the time; one task a table, from planning to hand-out."""
    by_id = {job.table.table_id: job for job in jobs}
    planned = [table.table_id for table in order_pending([job.table for job in jobs], POLICIES[policy], NOW)]
    free_s, files, used_s = [0.0] * threads, 0, 0.0
    while planned and min(free_s) < budget_s:
        if policy in ORDERED:
            table_id = planned[0]
        else:
            (table_id,) = choose_tasks(planned, lambda one: [one], dict.fromkeys(planned, Use(0, 2, 0.5)), 1, 60.0)
        planned.remove(table_id)
        thread = free_s.index(min(free_s))
        free_s[thread] += by_id[table_id].took_s
        used_s += by_id[table_id].took_s
        files += by_id[table_id].files if free_s[thread] <= budget_s else 0
    return files / used_s


def test_value_removes_half_as_many_files_again_as_balanced_of_60_mixed_tables() -> None:
    ratios = []
    for seed in range(20):
        jobs = mixed_jobs(random.Random(seed), 60)
        budget_s = sum(job.took_s for job in jobs) / 2 / 4
        ratios.append(removed_within(jobs, "value", 2, budget_s) / removed_within(jobs, "balanced", 2, budget_s))
    assert min(ratios) >= 1.5
