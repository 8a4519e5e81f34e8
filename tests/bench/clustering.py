"""Clustering without Spark: `python -m tests.bench.clustering [--pairs 5] [--files 105] [--skipping] [--resident MB]`.

CPU of clustering beside our own full rewrite of the same files into as many outputs, in memory and through disk, each
in a process of its own, ratios of interleaved pairs; `--skipping`: the share of 256 files that a point or a box meets,
as pyiceberg plans by the bounds of our files; `--resident`: the peak of memory of so many decoded MB under 512 MB.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThanOrEqual, LessThan
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator
from pyiceberg.manifest import DataFile as Entry
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from amoro_core.files.io import open_access
from amoro_core.model.clustering import ClusterInput, ClusterOutput, Layout, LayoutKey, Strategy
from amoro_core.model.processes import Attempt, TaskId
from amoro_core.model.rewrite import RewriteInput
from amoro_optimizer.cluster.engine import cluster
from amoro_optimizer.rewrite.engine import rewrite
from amoro_optimizer.rewrite.memory import resident_bytes
from tests.bench.data import task, write_files

ATTEMPT = Attempt(TaskId("0197c0de-0000-7000-8000-000000000001", 1), 1)
OUTPUTS = 4
LAYOUTS = {
    "sort": Layout(Strategy.LINEAR, (LayoutKey(3),)),
    "hilbert": Layout(Strategy.HILBERT, (LayoutKey(3), LayoutKey(5), LayoutKey(1))),
}
RUNS = ("rewrite", "sort", "sort-disk", "hilbert", "hilbert-disk")


def main() -> None:
    """Parse the command line and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=105, help="of 1.27 MB, 16,000 rows of 15 columns")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--skipping", action="store_true")
    parser.add_argument("--resident", type=int, default=0)
    parser.add_argument("--root", type=Path)
    parser.add_argument("--run", choices=RUNS)
    parser.add_argument("--memory", type=int, default=4096, help="MB of one measurement in memory")
    given = parser.parse_args()
    if given.run is not None:
        print(json.dumps(measured(given.run, given.root, given.files, given.memory)))
        return
    root = given.root or Path(tempfile.mkdtemp(prefix="amoro-bench-"))
    try:
        if given.skipping:
            skipping(root)
        elif given.resident:
            resident(root, given.resident)
        else:
            compare(root, given)
    finally:
        if given.root is None:
            shutil.rmtree(root)


def compare(root: Path, given: argparse.Namespace) -> None:
    """Interleaved runs, then their medians."""
    files = write_files("mixed", root, given.files)
    print(f"{len(files)} files, {sum(file.size_bytes for file in files) / 1e6:.0f} MB")
    every: dict[str, list[dict[str, float]]] = {name: [] for name in RUNS}
    for _ in range(given.pairs):
        for name in RUNS:
            memory = 512 if name.endswith("-disk") else given.memory
            command = [sys.executable, "-m", "tests.bench.clustering", "--root", str(root), "--run", name]
            found = subprocess.run(
                [*command, "--files", str(given.files), "--memory", str(memory)],
                check=True, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            every[name].append(json.loads(found.stdout.splitlines()[-1]))
    for name, runs in every.items():
        ratios = [one["cpu"] / other["cpu"] for one, other in zip(runs, every["rewrite"], strict=True)]
        cpu, wall, peak, made, spilled = (
            statistics.median(one[key] for one in runs) for key in ("cpu", "wall", "peak_mb", "made_mb", "spill_mb")
        )
        print(
            f"  {name:13s} cpu {cpu:5.2f} s  wall {wall:5.2f} s  peak {peak:5.0f} MB  written {made:4.0f} MB"
            f"  spilled {spilled:4.0f} MB  CPU / rewrite {statistics.median(ratios):4.2f}"
        )


def measured(name: str, root: Path, count: int, memory_mb: int) -> dict[str, float]:
    """One run in this process."""
    files = write_files("mixed", root, count)
    work = replace(task(root, files), output_count=OUTPUTS)
    layout = LAYOUTS.get(name.removesuffix("-disk"))
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    made, spilled = (_rewritten(work, memory_mb), 0) if layout is None else _clustered(work, layout, memory_mb)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    shutil.rmtree(root / "out", ignore_errors=True)
    return {
        "cpu": cpu, "wall": wall, "peak_mb": after.ru_maxrss / 1024, "made_mb": made / 1e6, "spill_mb": spilled / 1e6,
    }  # fmt: skip


def _rewritten(work: RewriteInput, memory_mb: int) -> int:
    output = rewrite(
        work, _access(work), ATTEMPT, on_progress=lambda done, total: None, is_cancelled=lambda: False,
        memory_limit_bytes=memory_mb << 20,
    )  # fmt: skip
    return sum(file.size_bytes for file in output.data_files)


def _clustered(work: RewriteInput, layout: Layout, memory_mb: int) -> tuple[int, int]:
    output = _cluster(work, layout, memory_mb << 20)
    return sum(file.size_bytes for file in output.rewrite.data_files), output.spill_bytes


def _cluster(work: RewriteInput, layout: Layout, memory_bytes: int) -> ClusterOutput:
    return cluster(
        ClusterInput(work, layout, "0123456789ab", 7), _access(work), ATTEMPT, on_progress=lambda done, total: None,
        is_cancelled=lambda: False, memory_limit_bytes=memory_bytes,
    )  # fmt: skip


def _access(work: RewriteInput):
    location = work.table.location
    return open_access({}, location, read_locations=[location], write_locations=[location])


def resident(root: Path, decoded_mb: int) -> None:
    """The peak of memory of a large group under 512 MB."""
    subprocess.run([sys.executable, "-c", _MAKE, str(root), str(decoded_mb)], check=True)
    files = write_files("mixed", root, len(list((root / "data").iterdir())))
    work = replace(task(root, files), output_count=8)
    work = replace(work, table=replace(work.table, properties={}))
    for name, layout in LAYOUTS.items():
        base = resident_bytes()
        Path("/proc/self/clear_refs").write_text("5")
        started = time.process_time()
        output = _cluster(work, layout, 512 << 20)
        (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
        peak = int(line.split()[1]) / 1024
        print(
            f"{name}: {len(files)} files, {sum(file.size_bytes for file in files) / 1e6:.0f} MB stored,"
            f" {output.spill_bytes / 1e6:.0f} MB spilled, CPU {time.process_time() - started:.1f} s,"
            f" base {base >> 20} MB, peak {peak:.0f} MB, beyond the base {peak - (base >> 20):.0f} MB", flush=True,
        )  # fmt: skip
        shutil.rmtree(root / "out")


_MAKE = """
import sys
from pathlib import Path
from tests.bench.data import TABLES, write_files
one = TABLES["mixed"].rows(0, 16_000, 0).nbytes
write_files("mixed", Path(sys.argv[1]), int(sys.argv[2]) * 1_000_000 // one + 1)
"""


def skipping(root: Path) -> None:
    """The share of the files that points and boxes meet, by pyiceberg's evaluation of our files' bounds."""
    schema = Schema(*(NestedField(number, f"c{number}", LongType(), required=True) for number in range(1, 5)))
    ranges = {1: 10**9, 2: 2 * 10**6, 3: 10**5, 4: 10**9}
    chance = np.random.default_rng(11)
    rows = {number: chance.integers(0, most, 2_000_000) for number, most in ranges.items()}
    for strategy, ids in (
        (Strategy.LINEAR, (1,)),
        (Strategy.HILBERT, (1, 2)), (Strategy.ZORDER, (1, 2)),
        (Strategy.HILBERT, (1, 2, 3)), (Strategy.ZORDER, (1, 2, 3)),
        (Strategy.HILBERT, (1, 2, 3, 4)),
    ):  # fmt: skip
        entries = _clustered_entries(root, schema, rows, Layout(strategy, tuple(LayoutKey(one) for one in ids)))
        points = [
            statistics.mean(
                _share(schema, entries, EqualTo(f"c{one}", int(chance.integers(ranges[one])))) for _ in range(200)
            )
            for one in ids
        ]
        boxes = statistics.mean(_share(schema, entries, _box(chance, ranges, ids[:2])) for _ in range(200))
        told = ", ".join(f"{one:.3f}" for one in points)
        print(
            f"{strategy} of {len(ids)}: points {told}, mean {statistics.mean(points):.3f}, boxes of 5 % {boxes:.4f}",
            flush=True,
        )


def _clustered_entries(root: Path, schema: Schema, rows: dict[int, np.ndarray], layout: Layout) -> list[Entry]:
    from tests.unit.cluster.builders import files_of, group, run, table_of

    table = table_of(schema, [pa.array(rows[number]) for number in sorted(rows)])
    output = run(group(root, schema, layout, files_of(root, schema, table, 4), outputs=256), memory_limit_bytes=2 << 30)
    shutil.rmtree(root / "data")
    return [
        Entry.from_args(
            file_path=file.path, file_format=FileFormat.PARQUET, partition=Record(), record_count=file.record_count,
            value_counts=file.metrics.value_counts, null_value_counts=file.metrics.null_value_counts,
            nan_value_counts={}, lower_bounds=file.metrics.lower_bounds, upper_bounds=file.metrics.upper_bounds,
        )
        for file in output.rewrite.data_files
    ]  # fmt: skip


def _box(chance: np.random.Generator, ranges: dict[int, int], ids: tuple[int, ...]) -> BooleanExpression:
    found: list[BooleanExpression] = []
    for one in ids:
        low = int(chance.integers(ranges[one] * 95 // 100))
        found += [GreaterThanOrEqual(f"c{one}", low), LessThan(f"c{one}", low + ranges[one] // 20)]
    return And(*found) if len(found) > 1 else found[0]


def _share(schema: Schema, entries: list[Entry], condition: BooleanExpression) -> float:
    met = _InclusiveMetricsEvaluator(schema, condition)
    return sum(met.eval(entry) for entry in entries) / len(entries)


if __name__ == "__main__":
    main()
