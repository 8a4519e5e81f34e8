"""Amoro's planner for Iceberg tables by its rules alone, which give what was measured in `verdicts.json`.

Left out: its overflow above 2 GiB, tables that are disabled, its limit of pending partitions, whose order is by hash.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from amoro_core.model.config import OptimizingConfig
from amoro_core.model.files import DeleteFile, DeleteKind, ScannedFile, TableScan
from amoro_core.model.plans import PartitionKey
from amoro_core.model.tables import LastOptimized, OptimizingType
from amoro_core.planning.planner import WEIGHT

MINOR, MAJOR, FULL = OptimizingType
Task = tuple[list[ScannedFile], list[ScannedFile]]  # rewritten, converted


@dataclass(frozen=True, slots=True)
class AmoroPlan:
    """What Amoro decides: the type of the process, None without tasks, and each task's files."""

    is_pending: bool
    type: OptimizingType | None
    tasks: list[Task]


@dataclass(slots=True)
class _Partition:
    config: OptimizingConfig
    last: LastOptimized
    now: datetime
    fragments: list[ScannedFile] = field(default_factory=list)
    undersized: list[ScannedFile] = field(default_factory=list)
    rewritten: list[ScannedFile] = field(default_factory=list)  # segments
    converted: list[ScannedFile] = field(default_factory=list)
    deletes: dict[str, DeleteFile] = field(default_factory=dict)
    combined: int = 0

    @property
    def is_full(self) -> bool:
        return self.has_passed(self.last.full, self.config.full_trigger_interval)

    def has_passed(self, last: datetime | None, interval: timedelta | None) -> bool:
        return interval is not None and (last is None or self.now - last > interval)

    def add(self, file: ScannedFile) -> None:
        size = file.data.size_bytes
        if size <= self.config.fragment_size:
            self.fragments.append(file)
        elif self.is_wanted(file, is_small=size <= self.config.min_target_size):
            self.rewritten.append(file)
        elif size <= self.config.min_target_size:
            self.undersized.append(file)
        elif is_converted(file):
            self.converted.append(file)
            self.combined += len(positions_of(file)) > 1
        else:
            return
        self.deletes |= {delete.path: delete for delete in file.deletes}

    def is_wanted(self, file: ScannedFile, *, is_small: bool) -> bool:
        if self.is_full:
            return self.config.full_rewrite_all_files or is_small or bool(file.deletes)
        deleted = sum(delete.record_count for delete in positions_of(file))
        return deleted > file.data.record_count * self.config.major_trigger_duplicate_ratio

    @property
    def type(self) -> OptimizingType | None:
        equality = sum(delete.kind is DeleteKind.EQUALITY for delete in self.deletes.values())
        small = len(self.fragments) + equality
        sizes = sorted(file.data.size_bytes for file in self.undersized)
        target = self.config.target_size
        if self.is_full:
            several = len(self.fragments) > 1 or len(self.undersized) > 1
            return FULL if several or self.deletes or self.rewritten or self.converted else None
        if self.rewritten or (len(sizes) > 1 and sum(sizes) >= target and sum(sizes[:2]) <= target):
            return MAJOR
        interval = small > 1 and self.has_passed(self.last.minor, self.config.minor_trigger_interval)
        return MINOR if small >= self.config.minor_trigger_file_count or interval or self.combined else None

    @property
    def cost(self) -> int:
        small = [*self.fragments, *self.undersized, *self.rewritten]
        files = len(small) + len(self.converted) + len(self.deletes)
        deleted = sum(delete.size_bytes for delete in self.deletes.values())
        return 2 * _bytes(small) + _bytes(self.converted) // 10 + deleted + files * self.config.open_file_cost

    def tasks(self) -> list[Task]:
        capacity = max(self.config.target_size, self.config.max_task_size)
        packed = _pack(self.undersized, capacity)
        singles = [some[0] for some in packed if len(some) == 1 and is_converted(some[0])]
        made: list[Task] = [(some, []) for some in packed if len(some) > 1]
        converted = [*self.converted, *singles]
        chosen = {file.data.path for file in converted}
        for some in _pack([*self.fragments, *self.rewritten, *converted], capacity):
            rewritten = [file for file in some if file.data.path not in chosen]
            if len(some) > 1 or not rewritten or rewritten[0].deletes:
                made.append((rewritten, [file for file in some if file.data.path in chosen]))
        return made


def plan_as_amoro(
    scan: TableScan,
    config: OptimizingConfig,
    last: Mapping[PartitionKey, LastOptimized],
    now: datetime,
    budget: int,
) -> AmoroPlan:
    """What Amoro plans on the scan, for one thread with that budget of cost."""
    partitions: dict[PartitionKey, _Partition] = {}
    for file in scan.files:
        key = PartitionKey(file.data.spec_id, file.data.partition)
        partitions.setdefault(key, _Partition(config, last.get(key, LastOptimized()), now)).add(file)
    due = sorted((one for one in partitions.values() if one.type is not None), key=lambda one: -one.cost)
    tasks: list[Task] = []
    kinds: list[OptimizingType] = []
    spent = 0
    for partition in due:
        if spent > budget and tasks:
            break
        spent += partition.cost
        tasks += partition.tasks()
        kinds += [partition.type] if partition.type is not None else []
    return AmoroPlan(bool(due), max(kinds, key=WEIGHT.__getitem__) if tasks else None, tasks)


def positions_of(file: ScannedFile) -> list[DeleteFile]:
    return [delete for delete in file.deletes if delete.kind is DeleteKind.POSITION]


def is_converted(file: ScannedFile) -> bool:
    """Whether a segment has several position deletes, one that Amoro did not write for it, or equality deletes."""
    positions = positions_of(file)
    stem = file.data.path.rpartition("/")[2].rpartition(".")[0]
    foreign = [delete for delete in positions if f"/{stem}-delete-" not in delete.path]
    return len(positions) > 1 or bool(foreign) or len(positions) < len(file.deletes)


def _pack(files: Sequence[ScannedFile], capacity: int) -> list[list[ScannedFile]]:
    """The first bin with room for a file's bytes takes it."""
    room: dict[int, int] = defaultdict(lambda: capacity)
    bins: list[list[ScannedFile]] = []
    for file in files:
        at = next((at for at in range(len(bins)) if file.data.size_bytes <= room[at]), len(bins))
        if at == len(bins):
            bins.append([])
        bins[at].append(file)
        room[at] -= file.data.size_bytes
    return bins


def _bytes(files: Iterable[ScannedFile]) -> int:
    return sum(file.data.size_bytes for file in files)
