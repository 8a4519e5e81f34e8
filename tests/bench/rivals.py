"""What other engines take to merge the same files: `python tests/bench/rivals.py polars DIRECTORY OUT`.

It imports nothing of ours, so that an engine whose dependencies clash with ours runs in an environment of its own.
Every engine writes row groups of a million rows, zstd level 3, with one thread where it lets itself be told.
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

GROUP_ROWS = 1_000_000
LEVEL = 3


def polars(files: list[str], out: Path) -> Callable[[], None]:
    os.environ["POLARS_MAX_THREADS"] = "1"
    import polars as pl

    def merge() -> None:
        rows = pl.scan_parquet(files)
        rows.sink_parquet(out, compression="zstd", compression_level=LEVEL, row_group_size=GROUP_ROWS)

    return merge


def duckdb(files: list[str], out: Path) -> Callable[[], None]:
    import duckdb as engine

    db = engine.connect()
    db.execute("SET threads = 1")
    db.execute("SET preserve_insertion_order = true")
    options = f"FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL {LEVEL}, ROW_GROUP_SIZE {GROUP_ROWS}"
    return lambda: db.execute(f"COPY (SELECT * FROM read_parquet({files!r})) TO '{out}' ({options})") and None


def daft(files: list[str], out: Path) -> Callable[[], None]:
    os.environ["DAFT_PROGRESS_BAR"] = "0"
    import daft as engine

    engine.set_runner_native(num_threads=1)
    # Daft takes its row groups' size in bytes: one above all of the table's makes them as large as it can.
    engine.set_execution_config(parquet_target_row_group_size=1 << 30, parquet_target_filesize=1 << 40)
    return lambda: engine.read_parquet(files).write_parquet(str(out), compression="zstd") and None


def main() -> None:
    """One measurement: CPU and wall seconds, the peak of memory, imports apart."""
    name, directory, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    files = sorted(str(path) for path in directory.glob("in-*.parquet"))
    merge = {"polars": polars, "duckdb": duckdb, "daft": daft}[name](files, out)
    version = sys.modules[name].__version__
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    merge()
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # What `getrusage` tells of memory counts the program that started this one, too.
    (peak_kb,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    print(json.dumps({"cpu": cpu, "wall": wall, "peak_mb": int(peak_kb) / 1024, "version": version}))


if __name__ == "__main__":
    main()
