"""The engine of an optimizer beside other ways to merge the same files: `python -m tests.bench.rewriting` prints JSON.

`[--table text] [--files 400] [--pairs 3] [--keys 0] [--ways encoded copied polars …]`. Every measurement is a process
of its own: CPU, wall and peak of memory, imports apart. Everybody writes row groups of a million rows, zstd level 3,
with one thread. Rows are counted in each round, and in the first compared with those that were to be written.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from amoro_core.files.storage.io import open_access
from amoro_core.model.files import DataFile
from amoro_core.model.processes import Attempt, TaskId
from amoro_core.model.task_payload import CopyRule, RewriteInput
from amoro_optimizer.rewrite.engine import rewrite
from tests.bench.data import TABLES, task, write_files, write_keys
from tests.bench.machine import ROOT, Figures, in_rounds, medians, memory_mb, ratio, say

GROUP_ROWS = 1_000_000
#: Without a limit that a row group of a million rows would meet, and the default of an optimizer for each thread.
UNLIMITED, DEFAULT = 8 << 30, 512 << 20
WAYS = {
    "encoded": "the engine, decoding and encoding every row",
    "keys": "the same with equality deletes, every other of which is one of a row",
    "copied": "the engine, copying row groups and verifying the checksums of their pages",
    "unverified": "the same without looking at checksums",
    "bytes": "reading and writing the bytes of the files",
    "threads": "two tasks in two threads, with row groups and memory as by default",
    "pyarrow": "each file read whole, a million rows collected and written",
    "polars": "scan_parquet and sink_parquet",
    "duckdb": "COPY (SELECT * FROM read_parquet(…))",
}


def main() -> None:
    """Measure one way in this process, or all in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", choices=TABLES, default="text")
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--keys", type=int, default=0, help="by default one for ten rows")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        files = write_files(given.table, given.root, given.files)
        print(json.dumps(_measured(given.run, given.table, given.root, files)))
        return
    with tempfile.TemporaryDirectory(prefix="amoro-bench-") as directory:
        say(_compared(Path(directory), given))


def _compared(root: Path, given: argparse.Namespace) -> dict[str, Any]:
    files = write_files(given.table, root, given.files)
    rows = sum(file.record_count for file in files)
    keys = given.keys or rows // 10
    deletes = root / "data" / "keys.parquet"
    write_keys(root, deletes.stem, _keys(rows, keys), (1,))
    column = TABLES[given.table].schema.fields[0].name
    left = f"{column} NOT IN (SELECT id FROM read_parquet('{deletes}'))"
    inputs = [file.path for file in files]
    wanted = {name: _hashes(inputs, left if name == "keys" else "true") for name in given.ways}
    seen: set[str] = set()

    def run(name: str) -> Figures:
        """One process; what it writes is looked at, and there until the next one."""
        shutil.rmtree(root / "out", ignore_errors=True)
        (root / "out").mkdir()
        command = [sys.executable, "-m", "tests.bench.rewriting", "--run", name, "--root", str(root)]
        command += ["--table", given.table, "--files", str(given.files)]
        # As `amoro` does before Arrow is loaded; Polars has no other way to be told.
        environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "jemalloc", "POLARS_MAX_THREADS": "1"}
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True, text=True)
        paths = [str(path) for path in root.glob("out/**/*.parquet")]
        if name == "bytes":
            rows = {}  # it is no Parquet file
        elif name in seen:
            rows = {"count": sum(pq.read_metadata(path).num_rows for path in paths)}
        else:
            rows = _hashes(paths, types=wanted[name]["types"])["rows"]
        if wrong := [key for key, value in rows.items() if value != wanted[name]["rows"][key]]:
            raise SystemExit(f"{name} has written other rows than it was to write: {', '.join(wrong)}")
        seen.add(name)
        return dict(json.loads(done.stdout))

    found = in_rounds({name: partial(run, name) for name in given.ways}, given.pairs)
    encoded = found.get("encoded")
    told: dict[str, Any] = {
        "table": given.table,
        "files": len(files),
        "MB": round(sum(file.size_bytes for file in files) / 1e6),
        "rows": rows,
        "keys": keys,
        "rounds": given.pairs,
        "medians": {name: medians(some) for name, some in found.items()},
    }
    if encoded:
        told["CPU of encoded / that of"] = {name: ratio(encoded, some) for name, some in found.items()}
        if "threads" in found:
            told["wall of two threads / one"] = ratio(found["threads"], encoded, "wall s")
    return told


def _hashes(paths: Sequence[str], where: str = "true", types: dict[str, str] | None = None) -> dict[str, Any]:
    """The number of rows, and by column and for whole rows the sum of their hashes, whatever their order.

    Values are cast to the types, for Polars writes UUIDs as bytes.
    """
    import duckdb

    db: Any = duckdb.connect()
    db.execute("SET enable_progress_bar = false")  # it goes to stdout
    kinds = {name: kind for name, kind, *_ in db.execute("DESCRIBE SELECT * FROM read_parquet($1)", [paths]).fetchall()}
    values = [f'CAST("{name}" AS {(types or kinds)[name]})' for name in kinds]
    sums = ", ".join(f"sum(hash({value}))" for value in (*values, ", ".join(values)))
    found = db.execute(f"SELECT count(*), {sums} FROM read_parquet($1) WHERE {where}", [paths]).fetchone()
    db.close()
    return {"types": types or kinds, "rows": dict(zip(("count", *kinds, "whole rows"), found, strict=True))}


def _keys(rows: int, count: int) -> pa.Table:
    step = max(1, 2 * rows // count)
    numbers = [number * step if number % 2 else -number - 1 for number in range(count)]
    field = pa.field("id", pa.int64(), metadata={b"PARQUET:field_id": b"1"})
    return pa.table([pa.array(numbers)], schema=pa.schema([field]))


def _measured(name: str, kind: str, root: Path, files: list[DataFile]) -> Figures:
    run = _prepared(name, kind, root, files)
    base = memory_mb("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    cpu, wall = time.process_time(), time.perf_counter()
    run()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = memory_mb("VmHWM")
    return {"cpu s": cpu, "wall s": wall, "peak MB": peak, "MB beyond the base": peak - base}


def _prepared(name: str, kind: str, root: Path, files: list[DataFile]) -> Callable[[], object]:
    out, paths = root / "out" / "all.parquet", [file.path for file in files]
    work = task(root, files, kind=kind)
    match name:
        case "encoded":
            return lambda: _run_engine(work)
        case "keys":
            delete = write_keys(root, "keys", pq.read_table(root / "data" / "keys.parquet"), (1,))
            return lambda: _run_engine(task(root, files, (delete,), kind=kind))
        case "copied" | "unverified":
            return lambda: _run_engine(replace(work, copy=CopyRule(0, 1024, name == "copied")))
        case "threads":
            defaults = replace(work.table, properties={})
            halves = [replace(task(root, files[at::2], kind=kind), table=defaults) for at in range(2)]
            threads = ThreadPoolExecutor(2)
            return lambda: list(threads.map(_run_engine, halves, (1, 2), (DEFAULT, DEFAULT)))
        case "bytes":
            return lambda: _copy_bytes(paths, out)
        case "pyarrow":
            return lambda: _merge(paths, out)
        case "polars":
            import polars

            options: dict[str, Any] = {"compression": "zstd", "compression_level": 3, "row_group_size": GROUP_ROWS}
            return lambda: polars.scan_parquet(paths).sink_parquet(out, **options)
        case _:
            import duckdb

            db: Any = duckdb.connect()
            db.execute("SET threads = 1")
            db.execute("SET enable_progress_bar = false")
            written = f"FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 3, ROW_GROUP_SIZE {GROUP_ROWS}"
            return lambda: db.execute(f"COPY (SELECT * FROM read_parquet({paths!r})) TO '{out}' ({written})")


def _run_engine(work: RewriteInput, number: int = 1, limit: int = UNLIMITED) -> None:
    """Rewrite as the optimizer does."""
    location = work.table.location
    rewrite(
        work,
        open_access({}, location, read_locations=[location], write_locations=[location]),
        Attempt(TaskId("0197c0de-0000-7000-8000-000000000001", number), 1),
        on_progress=lambda done, total: None,
        is_cancelled=lambda: False,
        memory_limit_bytes=limit,
    )


def _copy_bytes(paths: list[str], out: Path) -> None:
    with out.open("wb") as file:
        for path in paths:
            file.write(Path(path).read_bytes())


def _merge(paths: list[str], out: Path) -> None:
    pending: list[pa.Table] = []
    schema = pq.read_schema(paths[0])
    with pq.ParquetWriter(out, schema, compression="zstd", compression_level=3, store_schema=False) as writer:
        for at, path in enumerate(paths):
            pending.append(pq.ParquetFile(path).read(use_threads=False))
            if (rows := sum(map(len, pending))) >= GROUP_ROWS or at == len(paths) - 1:
                writer.write_table(pa.concat_tables(pending), row_group_size=rows)
                pending = []


if __name__ == "__main__":
    main()
