"""Random tables, and tables that data arrives at day by day."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import timedelta

import numpy as np

from amoro_core.model.scan_stats import ColumnChoice, ColumnFilter, Operator, ScanUse
from amoro_core.planning.clustering.auto_columns import decide
from amoro_core.planning.clustering.model import ClusterRequest, GroupBy
from tests.unit.planning.clustering.world import (
    COLUMNS,
    MIB,
    START,
    TARGET,
    Table,
    config,
    of_size,
    partition,
    scattered,
)


def random_table(seed: int) -> Table:
    choice, rng = random.Random(seed), np.random.default_rng(seed)
    columns = choice.choice([("a",), ("a", "b"), ("a", "b"), ("a", "b", "c")])
    table = Table(
        config(
            columns=columns,
            group_by=choice.choice(list(GroupBy)),
            seal_bytes=choice.choice([4, 8, 32]) * TARGET,
            tier_fanout=choice.choice([0, 2, 4]),
            trigger_depth_ratio=choice.choice([1.5, 2.0]),
        )
    )
    for at in range(choice.randint(1, 3)):
        for _ in range(choice.randint(1, 4)):
            size = choice.choice([2, 20, 64, 128, 400]) * MIB
            points = scattered(rng, choice.randint(1, 40), 3)
            match choice.randrange(4):
                case 0:  # in order of arrival already
                    points = [one + np.array([number * 2**41, 0, 0]) for number, one in enumerate(points)]
                case 1:  # one value in most rows
                    points = [np.where(rng.random(one.shape) < 0.6, 7, one) for one in points]
            table.append(of_size(points, size), partition(at))
    return table


def arrivals(columns: tuple[str, ...], days: int, a_day: int, shape: str, seed: int = 1) -> tuple[Table, float]:
    """A table after so many days of as many files of a quarter of the target; and the greatest ratio of the files that
    a point query on any of the columns meets to those of a table that is clustered at once."""
    rng = np.random.default_rng(seed)
    table = Table(config(columns=columns, quiet=timedelta(minutes=10)))
    worst = 0.0
    for day in range(days):
        points = scattered(rng, a_day, len(columns), points=10)
        if shape == "time":  # the last column is the time of arrival
            for one in points:
                one[:, -1] = day * 2**40 + one[:, -1]
        table.append(of_size(points, TARGET // 4))
        table.now += timedelta(hours=12)
        table.settle()
        table.now += timedelta(hours=12)
        if day >= 10 and day % 7 == 3:
            worst = max(worst, compared(table, columns, rng))
    return table, worst


def compared(table: Table, columns: tuple[str, ...], rng: np.random.Generator) -> float:
    everything = np.concatenate(list(table.points.values()))
    once = Table(table.config)
    once.append([(everything, sum(file.size_bytes for file in table.files.values()))])
    plan = once.plan(ClusterRequest(asked=True, full=True)).plan
    assert plan is not None
    once.apply(plan)
    at = rng.choice(len(everything), 200)
    met = [
        table.points_met(column, everything[at, column]) / once.points_met(column, everything[at, column])
        for column in range(len(columns))
    ]
    return max(met)


def changes_of_choice(seed: int, days: int = 60, a_day: int = 60) -> int:
    """How often `auto` takes other columns while each query filters by a column of ten that chance chooses."""
    choice, changes = random.Random(seed), 0
    names = [one.name for one in COLUMNS]
    scans: list[ScanUse] = []
    kept: ColumnChoice | None = None
    table = Table(config())
    for day in range(days):
        now = START + timedelta(days=day)
        asked = [choice.choice(names) for _ in range(a_day)]
        counts: Mapping[str, int] = {name: asked.count(name) for name in sorted(set(asked))}
        scans += [ScanUse(now.date(), (ColumnFilter(name, Operator.EQUAL),), count) for name, count in counts.items()]
        scans = [one for one in scans if one.day > (now - timedelta(days=30)).date()]
        found = decide(table.facts(scans=tuple(scans), choice=kept, now=now)).choice
        changes += kept is not None and found is not kept
        kept = found
    assert kept is not None
    return changes
