"""The engine beside others on the same files: `python -m tests.bench.rewrite [--files 400] [--pairs 5]` prints JSON.

Every measurement is a process of its own: CPU, wall and peak memory of it, imports apart. Ratios are medians of
interleaved pairs. The bare merge by pyarrow reads each file whole, collects a million rows and writes them as a row
group; how the others do it say `tests/bench/rivals.py` (Polars, DuckDB, Daft) and `tests/bench/spark_rewrite.py`.
Rows that were written are counted in each round, and in the first compared with the inputs', with keys with those that
the keys leave. `--against` names another checkout, whose engine runs in the same rounds as `engine-before` and
`engine-2-tasks-before`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from amoro_core.files.io import open_access
from amoro_core.model.files import DataFile
from amoro_core.model.processes import Attempt, TaskId
from amoro_core.model.rewrite import RewriteInput
from amoro_optimizer.rewrite.engine import rewrite
from tests.bench.data import TABLES, task, write_files, write_keys
from tests.bench.machine import OURS as CHECKOUT
from tests.bench.machine import described, modules_of, peak_mb
from tests.bench.rows import Rows, check_count, check_rows, read_rows

GROUP_ROWS = 1_000_000
MEMORY = 2 << 30  # so that a row group of a million rows is not cut short
OURS = (
    "merge",
    "engine",
    "engine-defaults",
    "engine-copies",
    "engine-keys",
    "engine-2-tasks",
    "engine-2-threads",
    "engine-2-processes",  # what the machine gives to two that share nothing
)
#: What another checkout runs, too.
AGAINST, BEFORE = ("engine", "engine-2-tasks"), "-before"
RIVALS = ("polars", "duckdb", "daft")
Figures = dict[str, float]


def main() -> None:
    """Parse the command line and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--keys", type=int, default=0, help="equality-delete keys; by default a tenth of the rows")
    parser.add_argument("--daft", default=sys.executable, help="the Python of an environment that has Daft")
    parser.add_argument("--without-spark", action="store_true")
    parser.add_argument("--against", type=Path, help="another checkout, whose engine runs in the same rounds")
    parser.add_argument("--root", type=Path)
    parser.add_argument("--run", choices=OURS, help="one measurement in this process")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    if given.run is not None:
        (kind,) = given.tables
        print(json.dumps(measured(given.run, kind, given.root, given.files, given.keys, profile=given.profile)))
        return
    root = given.root or Path(tempfile.mkdtemp(prefix="amoro-bench-"))
    try:
        found = {kind: compare(kind, root / kind, given) for kind in given.tables}
        checkouts = {"ours": CHECKOUT} | ({} if given.against is None else {"before": given.against})
        print(json.dumps({"tables": found, "pairs": given.pairs, **described(checkouts)}, indent=2))
    finally:
        if given.root is None:
            shutil.rmtree(root)


def compare(kind: str, root: Path, given: argparse.Namespace) -> dict[str, Any]:
    """The medians and ratios of a table; each measurement is told as it is made."""
    files = write_files(kind, root, given.files)
    nbytes, rows = sum(file.size_bytes for file in files), sum(file.record_count for file in files)
    keys = given.keys or rows // 10
    _tell(f"{kind}: {len(files)} files, {nbytes / len(files) / 1e6:.2f} MB each, {rows:,} rows, {keys:,} deleted keys")
    mine = [sys.executable, str(Path(__file__).resolve()), "--tables", kind, "--root", str(root)]
    mine += ["--files", str(given.files), "--keys", str(keys)]
    commands: dict[str, list[str]] = {}
    for name in OURS:
        commands[name] = [*mine, "--run", name]
        if given.against is not None and name in AGAINST:
            commands[f"{name}{BEFORE}"] = commands[name]
    for name in RIVALS:
        python = given.daft if name == "daft" else sys.executable
        if python == sys.executable and find_spec(name) is None:
            _tell(f"  {name} is not installed here: left out")
            continue
        script = Path(__file__).with_name("rivals.py")
        commands[name] = [python, str(script), name, str(root / "data"), str(root / "out" / f"{name}.parquet")]
    every: dict[str, list[Figures]] = {name: [] for name in commands}
    wanted: dict[str, Rows] = dict.fromkeys(commands, read_rows(file.path for file in files))
    for number in range(given.pairs):
        for name, command in commands.items():
            every[name].append(_run(name, root, command, given.against if name.endswith(BEFORE) else CHECKOUT))
            if name == "engine-keys" and number == 0:  # which has made the keys
                wanted[name] = read_rows((file.path for file in files), _left(kind, root))
            (check_count if number else check_rows)(name, wanted[name], _written(root))
    if not given.without_spark:
        spark = [sys.executable, "-m", "tests.bench.spark_rewrite", kind, str(root), str(given.files)]
        every["spark"] = [_run("spark", root, spark, CHECKOUT)]
        check_rows("spark", wanted["merge"], _written(root))
    shutil.rmtree(root / "out")
    cpu = {name: [one["cpu"] for one in some] for name, some in every.items()}
    rivals = [name for name in RIVALS if name in every]
    return {
        "files": len(files),
        "MB": round(nbytes / 1e6),
        "rows": rows,
        "medians": {
            name: {key: round(statistics.median(one[key] for one in some), 3) for key in ("cpu", "wall", "peak_mb")}
            for name, some in every.items()
        },
        "versions": {name: some[0]["version"] for name, some in every.items() if "version" in some[0]},
        "cpu ratios": {
            **{f"engine / {name}": _ratio(cpu["engine"], cpu[name]) for name in every if name != "engine"},
            "engine / the least of merge and rivals": _ratio(
                cpu["engine"], [min(some) for some in zip(cpu["merge"], *(cpu[name] for name in rivals), strict=True)]
            ),
            **({"spark / engine-copies": _ratio(cpu["spark"], cpu["engine-copies"])} if "spark" in cpu else {}),
        },
        **{
            f"wall of 2 {what} / 1": _ratio(
                *([one["wall"] for one in every[name]] for name in (f"engine-2-{what}", "engine-2-tasks"))
            )
            for what in ("threads", "processes")
        },
    }


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _run(name: str, root: Path, command: list[str], checkout: Path) -> Figures:
    """The figures of one process with the modules of that checkout; what it writes is there until the next one."""
    shutil.rmtree(root / "out", ignore_errors=True)
    (root / "out").mkdir()
    with modules_of(checkout) as path:
        env = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=False, text=True)
    if done.returncode:
        hint = "" if checkout == CHECKOUT else f": {checkout} may lack what this bench needs"
        raise SystemExit(f"{name} ended with {done.returncode}{hint}; its errors are above")
    found: Figures = json.loads(done.stdout.splitlines()[-1])
    _tell(f"  {name:21s} cpu {found['cpu']:6.2f} s  wall {found['wall']:6.2f} s  peak {found['peak_mb']:6.0f} MB")
    return found


def _written(root: Path) -> list[Path]:
    return [path for path in (root / "out").rglob("*.parquet") if path.is_file()]


def _left(kind: str, root: Path) -> str:
    """The condition in SQL for what the keys leave."""
    column = TABLES[kind].schema.fields[0].name
    return f"{column} NOT IN (SELECT id FROM read_parquet('{root / 'data' / 'keys.parquet'}'))"


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median over the rounds that both were in."""
    return round(statistics.median(one / other for one, other in zip(ours, theirs, strict=False)), 3)


def measured(name: str, kind: str, root: Path, count: int, keys: int, *, profile: bool = False) -> Figures:
    """CPU and wall seconds and the peak of memory of one run."""
    files = write_files(kind, root, count)
    (root / "out").mkdir(exist_ok=True)
    run = _prepared(name, kind, root, files, keys)
    profiler = _profiler() if profile else None
    before, started = time.process_time(), time.perf_counter()
    others = run() or ()  # of processes that it has begun
    wall, cpu = time.perf_counter() - started, time.process_time() - before
    if profiler is not None:
        profiler()
    peaks = [figures["peak_mb"] for figures in others] or [peak_mb()]
    return {"cpu": cpu + sum(figures["cpu"] for figures in others), "wall": wall, "peak_mb": sum(peaks)}


def _profiler() -> Callable[[], None]:
    import cProfile
    import pstats

    profiler = cProfile.Profile()
    profiler.enable()

    def end() -> None:
        profiler.disable()
        pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(25)

    return end


def _prepared(
    name: str, kind: str, root: Path, files: list[DataFile], keys: int
) -> Callable[[], Sequence[Figures] | None]:
    half = len(files) // 2
    match name:
        case "merge":
            return lambda: bare_merge(files, root / "out" / "merged.parquet")
        case "engine":
            return lambda: run_engine(task(root, files, kind=kind))
        case "engine-defaults":  # row groups as tables have them that say nothing: of 128 MiB
            work = task(root, files, kind=kind)
            return lambda: run_engine(replace(work, table=replace(work.table, properties={})))
        case "engine-copies":
            from amoro_core.model.rewrite import CopyRule  # another checkout may not have it

            return lambda: run_engine(replace(task(root, files, kind=kind), copy=CopyRule(0, 1024, True)))
        case "engine-keys":
            delete = write_keys(root, "keys", _keys(files, keys), (1,))
            return lambda: run_engine(task(root, files, (delete,), kind=kind))
        case "engine-2-tasks":
            return lambda: [run_engine(task(root, part, kind=kind)) for part in (files[:half], files[half:])] and None
        case "engine-2-processes":
            return _in_processes([task(root, part, kind=kind) for part in (files[:half], files[half:])])
        case _:
            return lambda: in_threads([task(root, part, kind=kind) for part in (files[:half], files[half:])])


def _keys(files: list[DataFile], count: int) -> pa.Table:
    """Every second one is the number of a row, or of an order."""
    rows = sum(file.record_count for file in files)
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


def _in_processes(works: list[RewriteInput]) -> Callable[[], Sequence[Figures]]:
    """Each task in a process of its own, which has begun and imported everything before."""
    pool = ProcessPoolExecutor(len(works), mp_context=multiprocessing.get_context("spawn"))
    list(pool.map(time.sleep, [1.0] * len(works)))  # one for each of them; this module is imported first
    return lambda: list(pool.map(_alone, works))


def _alone(work: RewriteInput) -> Figures:
    before = time.process_time()
    run_engine(work)
    return {"cpu": time.process_time() - before, "peak_mb": peak_mb()}


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
