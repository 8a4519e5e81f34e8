"""CPU of evaluating and planning a table: `python -m tests.bench.planning [--files 100000] [--runs 5] [--limit 3]`.

Tables of one partition and of a thousand, without deletes and with both kinds, partitions filtered or not. The scan is
in memory already. With a limit the command ends with 1 when a median of both together is above it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

from amoro_core.live.matching import match
from amoro_core.model.config import OptimizingConfig
from amoro_core.model.files import DataFile, DeleteFile, DeleteKind, FileFormat, TableScan
from amoro_core.planning.evaluating import evaluate
from amoro_core.planning.planner import plan

MIB = 1024 * 1024
NOW = datetime(2026, 1, 1, tzinfo=UTC)
BUDGET = 1 << 50  # every partition is planned
TABLES = ((1, False), (1, True), (1000, False), (1000, True))


def main() -> None:
    """Parse the command line and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--limit", type=float, help="seconds of CPU that evaluating and planning may take")
    given = parser.parse_args()
    print(f"{given.files} data files, medians of {given.runs} runs, seconds of CPU")
    slowest = 0.0
    for partitions, deletes in TABLES:
        scan = made_up(given.files, partitions, deletes)
        for selects in (None, _second_half_of(partitions)) if partitions > 1 else (None,):
            evaluating, planning, tasks = measured(scan, given.runs, selects)
            slowest = max(slowest, evaluating + planning)
            name = f"{partitions} partitions, {'with' if deletes else 'no'} deletes{', filtered' if selects else ''}"
            print(f"{name:<42} evaluate {evaluating:.2f}, plan {planning:.2f}, {tasks} tasks")
    if given.limit is not None and slowest > given.limit:
        sys.exit(f"{slowest:.2f} s are above the limit of {given.limit} s")


def measured(scan: TableScan, runs: int, selects: Callable[[DataFile], bool] | None = None) -> tuple[float, float, int]:
    """Medians of the CPU of evaluating and of planning, and the number of tasks."""
    config = OptimizingConfig(max_file_count=10**9)
    times = []
    for _ in range(runs):
        begun = time.process_time()
        evaluation = evaluate(scan, config, {}, NOW, selects=selects)
        evaluated = time.process_time()
        made = plan(scan, evaluation, config, threads=1, max_input_per_thread=BUDGET)
        times.append((evaluated - begun, time.process_time() - evaluated))
    evaluating, planning = (statistics.median(one) for one in zip(*times, strict=True))
    return evaluating, planning, len(made.tasks) if made is not None else 0


def made_up(files: int, partitions: int, deletes: bool) -> TableScan:
    """Files of 1 to 130 MiB; with deletes, a tenth has a position delete and each partition two equality deletes."""
    keys = [(f"{number:05}".encode(),) for number in range(partitions)]
    data = [
        DataFile(
            f"/t/data/f{at:06}.parquet",
            FileFormat.PARQUET,
            1,
            keys[at % partitions],
            1000,
            (at * 7919 % 130 + 1) * MIB,
            1,
        )
        for at in range(files)
    ]
    found: list[DeleteFile] = []
    if deletes:
        found += [_position_delete(file) for file in data[::10]]
        found += [_equality_delete(key, number) for key in keys for number in (2, 3)]
    matched, dangling = match(data, found, frozenset())
    return TableScan(1, 3, matched, dangling)


def _position_delete(file: DataFile) -> DeleteFile:
    path = file.path.replace(".parquet", "-d.parquet")
    position = DeleteKind.POSITION
    return DeleteFile(
        path, position, FileFormat.PARQUET, 1, file.partition, 10, 1000, 2, referenced_data_file=file.path
    )


def _equality_delete(key: tuple[bytes], number: int) -> DeleteFile:
    path = f"/t/data/e{key[0].decode()}-{number}.parquet"
    return DeleteFile(path, DeleteKind.EQUALITY, FileFormat.PARQUET, 1, key, 10, 1000, number, equality_ids=(1,))


def _second_half_of(partitions: int) -> Callable[[DataFile], bool]:
    half = f"{partitions // 2:05}".encode()
    return lambda file: (file.partition[0] or b"") >= half


if __name__ == "__main__":
    main()
