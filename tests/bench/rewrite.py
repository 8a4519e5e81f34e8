"""The engine beside a bare merge by pyarrow: `python -m tests.bench.rewrite [--files 400] [--pairs 5]`.

Every measurement is a process of its own: CPU, wall and peak memory of it, imports apart. Ratios are medians of
interleaved pairs. The bare merge reads each file whole, collects a million rows and writes them as a row group.
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
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from amoro_core.files.io import open_access
from amoro_core.model.files import DataFile
from amoro_core.model.processes import Attempt, TaskId
from amoro_core.model.rewrite import RewriteInput
from amoro_optimizer.rewrite.engine import rewrite
from tests.bench.data import ROWS_OF_A_FILE, task, write_keys, write_mixed

GROUP_ROWS = 1_000_000
MEMORY = 2 << 30  # so that a row group of a million rows is not cut short
KINDS = ("merge", "engine", "engine-keys", "engine-2-tasks", "engine-2-threads")


def main() -> None:
    """Parse the command line and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--keys", type=int, default=0, help="equality-delete keys; by default a tenth of the rows")
    parser.add_argument("--root", type=Path)
    parser.add_argument("--run", choices=KINDS, help="one measurement in this process")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    if given.run is not None:
        print(json.dumps(measured(given.run, given.root, given.files, given.keys, profile=given.profile)))
        return
    root = given.root or Path(tempfile.mkdtemp(prefix="amoro-bench-"))
    try:
        compare(root, given.files, given.pairs, given.keys or given.files * ROWS_OF_A_FILE // 10)
    finally:
        if given.root is None:
            shutil.rmtree(root)


def compare(root: Path, files: int, pairs: int, keys: int) -> None:
    """Print each measurement, then the medians and ratios."""
    nbytes = sum(file.size_bytes for file in write_mixed(root, files))
    print(f"{files} files, {nbytes / files / 1e6:.2f} MB each, {files * ROWS_OF_A_FILE:,} rows, {keys:,} deleted keys")
    every: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    for _ in range(pairs):
        for kind in KINDS:
            command = [sys.executable, "-m", "tests.bench.rewrite", "--run", kind, "--root", str(root)]
            command += ["--files", str(files), "--keys", str(keys)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found = json.loads(done.stdout.splitlines()[-1])
            every[kind].append(found)
            print(
                f"  {kind:17s} cpu {found['cpu']:6.2f} s  wall {found['wall']:6.2f} s  peak {found['peak_mb']:6.0f} MB"
            )
    print(f"{'median':19s} {'MB/CPU s':>9s} {'wall s':>7s} {'peak MB':>8s} {'CPU / merge':>12s}")
    for kind in KINDS:
        cpu, wall, peak = (statistics.median(one[name] for one in every[kind]) for name in ("cpu", "wall", "peak_mb"))
        ratio = _ratio(every[kind], every["merge"], "cpu")
        print(f"  {kind:17s} {nbytes / 1e6 / cpu:9.1f} {wall:7.2f} {peak:8.0f} {ratio:12.2f}")
    print(f"with keys / without, CPU: {_ratio(every['engine-keys'], every['engine'], 'cpu'):.2f}")
    print(f"2 threads / 1, wall: {_ratio(every['engine-2-threads'], every['engine-2-tasks'], 'wall'):.2f}")


def _ratio(ours: list[dict[str, float]], theirs: list[dict[str, float]], name: str) -> float:
    return statistics.median(one[name] / other[name] for one, other in zip(ours, theirs, strict=True))


def measured(kind: str, root: Path, count: int, keys: int, *, profile: bool = False) -> dict[str, float]:
    """CPU and wall seconds and the peak of memory of one run."""
    files = write_mixed(root, count)
    out = root / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    run = _prepared(kind, root, files, keys)
    profiler = _profiler() if profile else None
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    run()
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    if profiler is not None:
        profiler()
    shutil.rmtree(out)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu": cpu, "wall": wall, "peak_mb": after.ru_maxrss / 1024}


def _profiler() -> Callable[[], None]:
    import cProfile
    import pstats

    profiler = cProfile.Profile()
    profiler.enable()

    def end() -> None:
        profiler.disable()
        pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(25)

    return end


def _prepared(kind: str, root: Path, files: list[DataFile], keys: int) -> Callable[[], None]:
    half = len(files) // 2
    match kind:
        case "merge":
            return lambda: bare_merge(files, root / "out" / "merged.parquet")
        case "engine":
            return lambda: run_engine(task(root, files))
        case "engine-keys":
            delete = write_keys(root, "keys", _keys(files, keys), (1,))
            return lambda: run_engine(task(root, files, (delete,)))
        case "engine-2-tasks":
            return lambda: [run_engine(task(root, part)) for part in (files[:half], files[half:])] and None
        case _:
            return lambda: in_threads([task(root, part) for part in (files[:half], files[half:])])


def _keys(files: list[DataFile], count: int) -> pa.Table:
    """Every second one is the id of a row."""
    rows = len(files) * ROWS_OF_A_FILE
    step = max(1, 2 * rows // count)
    numbers = [number * step if number % 2 else -number - 1 for number in range(count)]
    field = pa.field("id", pa.int64(), metadata={b"PARQUET:field_id": b"1"})
    return pa.table([pa.array(numbers)], schema=pa.schema([field]))


def run_engine(work: RewriteInput) -> None:
    """Rewrite as the optimizer does."""
    location = work.table.location
    rewrite(
        work,
        open_access({}, location, read_locations=[location], write_locations=[location]),
        Attempt(TaskId("0197c0de-0000-7000-8000-000000000001", 1), 1),
        on_progress=lambda done, total: None,
        is_cancelled=lambda: False,
        memory_limit_bytes=MEMORY * 4,
    )


def in_threads(works: list[RewriteInput]) -> None:
    """Each task in a thread of its own, as an optimizer with as many threads."""
    threads = [threading.Thread(target=run_engine, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def bare_merge(files: list[DataFile], path: Path) -> None:
    """What any program must do at least: decode, collect, encode."""
    writer = None
    pending: list[pa.Table] = []
    rows = 0
    for file in files:
        table = pq.ParquetFile(file.path).read(use_threads=False)
        if writer is None:
            writer = pq.ParquetWriter(path, table.schema, compression="zstd", compression_level=3, store_schema=False)
        pending.append(table)
        rows += table.num_rows
        if rows >= GROUP_ROWS:
            writer.write_table(pa.concat_tables(pending), row_group_size=rows)
            pending, rows = [], 0
    if writer is not None:
        if pending:
            writer.write_table(pa.concat_tables(pending), row_group_size=rows)
        writer.close()


if __name__ == "__main__":
    main()
