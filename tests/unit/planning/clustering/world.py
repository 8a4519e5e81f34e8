"""Tables of files that hold points, random ones too, and a model of the executor that puts them in order."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import numpy as np

from amoro_core.model.clustering import Column, Layout, Sorting, Strategy, group_of
from amoro_core.model.files import ColumnMetrics, DataFile, DeleteFile, FileFormat, Partition, TableScan
from amoro_core.model.optimizing_config import OptimizingConfig
from amoro_core.model.plans import PartitionKey
from amoro_core.model.scan_stats import ColumnChoice, ColumnFilter, Operator, ScanUse
from amoro_core.model.tables import SnapshotFacts
from amoro_core.planning.clustering.auto_columns import decide
from amoro_core.planning.clustering.model import (
    ClusterFacts,
    ClusteringConfig,
    ClusterPlan,
    ClusterRequest,
    ClusterVerdict,
    GroupBy,
)
from amoro_core.planning.clustering.planner import plan_clustering
from amoro_core.scan.matching import match

MIB = 1024 * 1024
TARGET = 128 * MIB
START = datetime(2026, 3, 1, tzinfo=UTC)
COLUMNS = tuple(Column(at + 1, name, "long") for at, name in enumerate("abcdefghij"))
BITS = 16


def number(value: int) -> bytes:
    return int(value).to_bytes(8, "big", signed=True)


def key(bound: bytes) -> int:
    return int.from_bytes(bound, "big", signed=True)


def sorting(**more: Any) -> Sorting:
    return replace(
        Sorting(COLUMNS, bound_key=lambda field_id: key, partition_order=lambda one: partition_order(one.partition)),
        **more,
    )


def partition_order(partition: Partition) -> tuple[tuple[int, int], ...]:
    return tuple((0, 0) if value is None else (1, key(value)) for value in partition)


def metrics_of(points: np.ndarray) -> ColumnMetrics:
    """Bounds of the columns 1, 2, ... that points have."""
    fields = range(points.shape[1])
    if not len(points):
        return ColumnMetrics()
    return ColumnMetrics(
        value_counts={at + 1: len(points) for at in fields},
        null_value_counts={at + 1: 0 for at in fields},
        lower_bounds={at + 1: number(points[:, at].min()) for at in fields},
        upper_bounds={at + 1: number(points[:, at].max()) for at in fields},
    )


@dataclass
class Table:
    """Files with their points; `now` is the time of whatever comes next."""

    config: ClusteringConfig
    optimizing: OptimizingConfig = field(default_factory=lambda: OptimizingConfig(target_size=TARGET))
    now: datetime = START
    points: dict[str, np.ndarray] = field(default_factory=dict)
    files: dict[str, DataFile] = field(default_factory=dict)
    deletes: list[DeleteFile] = field(default_factory=list)
    snapshots: list[SnapshotFacts] = field(default_factory=list)
    groups: dict[str, Layout] = field(default_factory=dict)
    footers: dict[str, Layout] = field(default_factory=dict)  # of groups, as files tell them
    written: int = 0
    arrived: int = 0
    more: dict[str, Any] = field(default_factory=dict)  # further facts
    _names: int = 0

    @property
    def sequence_number(self) -> int:
        return len(self.snapshots)

    def append(self, files: Sequence[tuple[np.ndarray, int]], partition: Partition = ()) -> list[DataFile]:
        """A commit of somebody else."""
        self._commit("append")
        found = [self._add(f"f{self._next():06}", points, size, partition) for points, size in files]
        self.arrived += sum(size for _, size in files)
        return found

    def facts(self, **more: Any) -> ClusterFacts:
        return ClusterFacts(
            **{
                "scan": self.scan() if self.snapshots else None,
                "sorting": sorting(),
                "optimizing": self.optimizing,
                "now": self.now,
                "snapshots": tuple(self.snapshots),
                "groups": dict(self.groups),
                "learn": lambda file: self.footers.get(group_of(file.path) or ""),
                "path_of": lambda one: "/".join(
                    "null" if value is None else str(key(value)) for value in one.partition
                ),
                **self.more,
                **more,
            }
        )

    def scan(self) -> TableScan:
        files, dangling = match(tuple(self.files.values()), tuple(self.deletes), frozenset({0}))
        return TableScan(self.sequence_number, self.sequence_number, files, dangling, frozenset({0}))

    def plan(self, request: ClusterRequest | None = None, **more: Any) -> ClusterVerdict:
        return plan_clustering(self.facts(**more), self.config, request or ClusterRequest())

    def apply(self, plan: ClusterPlan, *, shrink: float = 1.0) -> None:
        """Commit what the plan says, its rows in order."""
        self._commit("replace")
        for task, group in enumerate(plan.groups, start=1):
            gone = {file.data.path for file in group.files}
            rows = np.concatenate([self.points[path] for path in sorted(gone)])
            size = int(sum(self.files[path].size_bytes for path in gone) * shrink)
            for path in gone:
                del self.files[path], self.points[path]
            ordered = rows[order_of(rows, plan.layout)]
            for part in np.array_split(ordered, group.output_count):
                name = f"{self._process()}-{task}-1-{UUID(int=self._next())}-g{group.group_id}"
                self._add(name, part, size // group.output_count, group.key.partition, plan.sequence_number)
            self.written += size
            self.groups[group.group_id] = self.footers[group.group_id] = plan.layout
        live = {group_of(path) for path in self.files}
        self.groups = {one: layout for one, layout in self.groups.items() if one in live}

    def settle(self, most: int = 10) -> list[ClusterPlan]:
        """Plan and apply until there is nothing to do; the plans."""
        plans = []
        while (plan := self.plan().plan) is not None:
            plans.append(plan)
            assert len(plans) <= most, "it never comes to rest"
            self.apply(plan)
        return plans

    def points_met(self, column: int, values: np.ndarray) -> float:
        """How many files a point query on the column (0, 1, ...) meets on average."""
        low = np.sort([points[:, column].min() for points in self.points.values()])
        high = np.sort([points[:, column].max() for points in self.points.values()])
        return float((np.searchsorted(low, values, "right") - np.searchsorted(high, values, "left")).mean())

    def _add(
        self, name: str, points: np.ndarray, size: int, partition: Partition, sequence_number: int | None = None
    ) -> DataFile:
        path = f"/t/data/{name}.parquet"
        at = self.sequence_number if sequence_number is None else sequence_number
        file = DataFile(
            path, FileFormat.PARQUET, 0, partition, 1000 * max(1, len(points)), size, at, metrics_of(points)
        )
        self.files[path], self.points[path] = file, points
        return file

    def _commit(self, operation: str) -> None:
        number = len(self.snapshots) + 1
        self.snapshots.append(SnapshotFacts(number, number - 1 or None, number, self.now, operation, {}, ()))

    def _process(self) -> str:
        milliseconds = int(self.now.timestamp() * 1000)
        return str(UUID(int=milliseconds << 80 | 0x7 << 76 | 0x2 << 62 | self._next()))

    def _next(self) -> int:
        self._names += 1
        return self._names


def order_of(points: np.ndarray, layout: Layout) -> np.ndarray:
    """Linear, or by interleaved ranks, which stands for all curves."""
    columns = [points[:, one.field_id - 1] for one in layout.keys]
    if layout.strategy is Strategy.LINEAR:
        return np.lexsort(columns[::-1])
    spread = np.zeros(len(points), np.uint64)
    for at, column in enumerate(columns):
        _, ranks = np.unique(column, return_inverse=True)
        scaled = (ranks * (2**BITS - 1) // max(1, ranks.max())).astype(np.uint64)
        for bit in range(BITS):
            here = (scaled >> np.uint64(bit)) & np.uint64(1)
            spread |= here << np.uint64(bit * len(columns) + len(columns) - 1 - at)
    return np.argsort(spread, kind="stable")


def config(**values: Any) -> ClusteringConfig:
    return ClusteringConfig(**{"columns": ("a", "b"), "quiet": timedelta(), **values})


def scattered(rng: np.random.Generator, files: int, columns: int = 2, points: int = 32) -> list[np.ndarray]:
    """Files of points that lie anywhere."""
    return [rng.integers(0, 2**40, (points, columns)) for _ in range(files)]


def whole(rng: np.random.Generator, files: int, columns: int = 2, points: int = 32) -> list[np.ndarray]:
    """Files of points that reach from one end to the other."""
    found = scattered(rng, files, columns, points)
    for one in found:
        one[0], one[1] = 0, 2**40
    return found


def of_size(points: Sequence[np.ndarray], size: int) -> list[tuple[np.ndarray, int]]:
    return [(one, size) for one in points]


def planned(plan: ClusterPlan | None) -> list[str]:
    """Every path that the plan takes."""
    groups = () if plan is None else plan.groups
    return [file.data.path for group in groups for file in group.files]


def partition(*values: int) -> Partition:
    return tuple(number(value) for value in values)


def place(*values: int) -> PartitionKey:
    return PartitionKey(0, partition(*values))


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
