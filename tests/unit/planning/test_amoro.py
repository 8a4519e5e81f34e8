"""Where Amoro's planner, ported from its source, and ours differ: each case is a row of docs/differences.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from amoro_core.model.files import DataFile, DeleteFile, DeleteKind, ScannedFile, TableScan
from amoro_core.model.optimizing_config import OptimizingConfig
from amoro_core.model.plans import PartitionKey
from amoro_core.model.tables import LastOptimized, OptimizingType
from amoro_core.planning.optimizing.evaluator import evaluate
from amoro_core.planning.optimizing.partitions import FileClass, classify, is_own
from amoro_core.planning.optimizing.planner import plan
from tests.unit.planning.builders import MIB, NOW, data, equality_delete, in_both_forms, many, names, scan_of

CONFIG = OptimizingConfig()
MINOR, MAJOR, FULL = OptimizingType
Tasks = list[tuple[list[str], list[str]]]  # the names of the rewritten and of the converted files


@dataclass(frozen=True)
class AmoroPartition:
    """Amoro's `CommonPartitionEvaluator`, `AbstractPartitionPlan` and `BinPackingTaskSplitter` (96d4a78) for one
    partition of which no interval is over; files in their order, where Amoro has that of a hash map."""

    files: Sequence[ScannedFile]
    config: OptimizingConfig

    def _of(self, file_class: FileClass) -> list[ScannedFile]:
        return [file for file in self.files if classify(file.data.size_bytes, self.config) is file_class]

    @property
    def rewritten(self) -> list[ScannedFile]:
        """Fragments, and segments of which position deletes delete too many rows; equality deletes don't count."""

        def is_due(file: ScannedFile) -> bool:
            positions = sum(one.record_count for one in file.deletes if one.kind is DeleteKind.POSITION)
            return positions > file.data.record_count * self.config.major_trigger_duplicate_ratio

        fragments = self._of(FileClass.FRAGMENT)
        return [file for file in self.files if file in fragments or is_due(file)]

    @property
    def undersized(self) -> list[ScannedFile]:
        return [file for file in self._of(FileClass.UNDERSIZED) if file not in self.rewritten]

    @property
    def converted(self) -> list[ScannedFile]:
        return [file for file in self._of(FileClass.TARGET_SIZE) if file not in self.rewritten and _converts(file)]

    @property
    def deletes(self) -> dict[str, DeleteFile]:
        counted = (*self.rewritten, *self.undersized, *self.converted)
        return {delete.path: delete for file in counted for delete in file.deletes}

    @property
    def cost(self) -> int:
        twice = sum(file.data.size_bytes for file in (*self.rewritten, *self.undersized))
        tenth = sum(file.data.size_bytes for file in self.converted)
        files = len(self.rewritten) + len(self.undersized) + len(self.converted) + len(self.deletes)
        read = sum(delete.size_bytes for delete in self.deletes.values())
        return 2 * twice + tenth // 10 + read + files * self.config.open_file_cost

    @property
    def type(self) -> OptimizingType | None:
        sizes = sorted(file.data.size_bytes for file in self.undersized)
        target = self.config.target_size
        fragments = self._of(FileClass.FRAGMENT)
        if len(self.rewritten) > len(fragments) or (sum(sizes) >= target and sum(sizes[:2]) <= target):
            return MAJOR
        equality = sum(delete.kind is DeleteKind.EQUALITY for delete in self.deletes.values())
        return MINOR if len(fragments) + equality >= self.config.minor_trigger_file_count else None

    @property
    def tasks(self) -> Tasks:
        done, converted = [], self.converted
        for bin_ in self._packed(self.undersized):
            if len(bin_) > 1:
                done.append((bin_, []))
            else:
                converted += [file for file in bin_ if _converts(file)]
        rewritten = self.rewritten
        for bin_ in self._packed([*rewritten, *converted]):
            one = [file for file in bin_ if file in rewritten]
            done.append((one, [file for file in bin_ if file not in rewritten]))
        # Iceberg's plan drops a single file without deletes.
        kept = [(one, rest) for one, rest in done if len(one) > 1 or rest or any(file.deletes for file in one)]
        return [(_names(one), _names(rest)) for one, rest in kept]

    def _packed(self, files: Iterable[ScannedFile]) -> list[list[ScannedFile]]:
        """Iceberg's `ListPacker`: each into the first bin that has room for its data."""
        bins: list[list[ScannedFile]] = []
        for file in files:
            room = max(self.config.target_size, self.config.max_task_size) - file.data.size_bytes
            bin_ = next((one for one in bins if sum(other.data.size_bytes for other in one) <= room), None)
            bins.append([file]) if bin_ is None else bin_.append(file)
        return bins


def _converts(file: ScannedFile) -> bool:
    positions = [delete for delete in file.deletes if delete.kind is DeleteKind.POSITION]
    if len(positions) > 1 or len(positions) < len(file.deletes):
        return True
    return bool(positions) and not is_own(positions[0], file.data)


def _names(files: Iterable[ScannedFile]) -> list[str]:
    return sorted(file.data.path.removeprefix("/t/data/").removesuffix(".parquet") for file in files)


def ours(scan: TableScan, config: OptimizingConfig = CONFIG, budget: int = 1024 * MIB) -> tuple[object, Tasks]:
    """The type and the tasks of a process of ours, on a table whose partitions were optimized ten minutes ago."""
    last = {PartitionKey(file.data.spec_id, file.data.partition): LastOptimized(NOW, NOW, NOW) for file in scan.files}

    def decide(form: TableScan | None) -> tuple[object, Tasks]:
        assert form is not None
        made = plan(form, evaluate(form, config, last, NOW), config, 1, budget)
        return (None, []) if made is None else (made.type, [tuple(map(sorted, names(task))) for task in made.tasks])

    return in_both_forms(scan, decide)


SMALL = many(12, MIB)
SMALL_NAMES = _names(scan_of(SMALL).files)
DELETES = [equality_delete(f"e{number:02}") for number in range(12)]


@pytest.mark.parametrize(
    ("row", "files", "deletes", "ratio", "amoro", "here"),
    [
        (
            "Undersized files in a minor",
            [*SMALL, data("u1", 40 * MIB), data("u2", 50 * MIB)],
            [],
            0.1,
            (MINOR, [(["u1", "u2"], []), (SMALL_NAMES, [])]),
            (MINOR, [(SMALL_NAMES, [])]),
        ),
        (
            "Conversions and rewrites",
            [*(replace(one, sequence_number=3) for one in SMALL), data("large", 110 * MIB, records=100_000)],
            DELETES[:1],
            0.1,
            (MINOR, [(SMALL_NAMES, ["large"])]),
            (MINOR, [(SMALL_NAMES, []), ([], ["large"])]),
        ),
        (
            "Equality deletes on files of which one deleted row exceeds the duplicate ratio",
            [data("five", 110 * MIB, records=5)],
            DELETES,
            0.1,
            (MINOR, [([], ["five"])]),
            (MAJOR, [(["five"], [])]),
        ),
        (
            "Equality deletes on files of which one deleted row exceeds the duplicate ratio",
            [data("many", 110 * MIB, records=100_000)],
            DELETES,
            0.0,
            (MINOR, [([], ["many"])]),
            (MAJOR, [(["many"], [])]),
        ),
        # What is the same: the ratio, where a row of a file is less than that.
        (
            "",
            [data("many", 110 * MIB, records=100_000)],
            DELETES,
            0.1,
            (MINOR, [([], ["many"])]),
            (MINOR, [([], ["many"])]),
        ),
    ],
)
def test_a_partition_is_planned_as_by_amoro_but_for_what_the_page_says(
    row: str,
    files: list[DataFile],
    deletes: list[DeleteFile],
    ratio: float,
    amoro: tuple[object, Tasks],
    here: tuple[object, Tasks],
) -> None:
    scan, config = scan_of(files, deletes), replace(CONFIG, major_trigger_duplicate_ratio=ratio)
    theirs = AmoroPartition(scan.files, config)
    assert (theirs.type, theirs.tasks) == amoro
    assert ours(scan, config) == here
    assert (amoro != here) is bool(row)
    assert f"\n| {row} |" in page() or not row


def test_partitions_are_taken_by_the_cost_of_what_is_read_where_amoro_counts_every_small_file() -> None:
    files = {
        "a": [*many(12, MIB, prefix="a", partition=(b"a",)), data("alone", 90 * MIB, partition=(b"a",))],
        "b": many(12, 8 * MIB, prefix="b", partition=(b"b",)),
    }
    scan = scan_of([*files["a"], *files["b"]], unpartitioned_specs=())
    costs = {
        part: AmoroPartition([file for file in scan.files if file.data.partition == (part.encode(),)], CONFIG).cost
        for part in files
    }
    assert costs == {"a": 2 * 102 * MIB + 13 * 4 * MIB, "b": 2 * 96 * MIB + 12 * 4 * MIB}
    assert max(costs, key=costs.__getitem__) == "a"
    _, tasks = ours(scan, budget=1)
    assert [name[0] for rewritten, _ in tasks for name in rewritten] == ["b"] * 12
    assert "\n| Order of partitions, and the budget `max-input-file-size-per-thread` |" in page()


def page() -> str:
    return (Path(__file__).parents[3] / "docs" / "differences.md").read_text()
