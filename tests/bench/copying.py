"""CPU of rewriting by copying beside decoding: `python -m tests.bench.copying` prints JSON.

`[--files 400] [--large 1] [--pairs 5] [--against PATH]`. Small files of 1.3 MB with page indexes and checksums are read
and written as bytes alone, copied, copied without being verified, and decoded; large files of ten row groups, one of
which has deleted rows, are copied in part and decoded. Each measurement is a process of its own, ratios are medians of
interleaved rounds. Rows are counted in each round, and in the first compared with those that were to be written.
`--against` names another checkout, whose engine decodes the same files in turn with ours. What readers gain is measured
by `generations`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from amoro_core.model.files import DataFile, DeleteFile, DeleteKind, FileFormat
from tests.bench.data import TABLES, task
from tests.bench.machine import OURS, described, modules_of, peak_mb
from tests.bench.rewrite import run_engine
from tests.bench.rows import check_count, check_rows, read_rows

TABLE = TABLES["mixed"]
SMALL = ("cat", "copied", "copied unverified", "decoded")
LARGE = ("copied in part", "decoded with deletes")
LARGE_ROWS = 1_600_000
Figures = dict[str, float]


def main() -> None:
    """Measure one thing in this process, or everything in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--large", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--against", type=Path, help="another checkout, measured in turn with this one")
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        print(json.dumps(timed(_prepared(given.run, given.root))))
        return
    with tempfile.TemporaryDirectory(prefix="amoro-copying-") as made:
        root = Path(made)
        write_small(root / "small", given.files, TABLE.file_rows, None)
        write_small(root / "large", given.large, LARGE_ROWS, LARGE_ROWS // 10)
        print(json.dumps(_compared(root, given.pairs, given.against), indent=2))


def write_small(root: Path, files: int, rows: int, group: int | None) -> None:
    """Files of so many rows with page indexes and checksums; `group`: the rows of a row group, else one has all."""
    (root / "data").mkdir(parents=True)
    for number in range(files):
        options: dict[str, Any] = {"row_group_size": group, "write_page_index": True, "write_page_checksum": True}
        pq.write_table(
            TABLE.rows(number * rows, rows, number),
            root / "data" / f"in-{number:05}.parquet",
            compression="zstd",
            compression_level=3,
            store_schema=False,
            store_decimal_as_integer=True,
            **options,
        )


def _compared(root: Path, pairs: int, against: Path | None) -> dict[str, Any]:
    names = [*SMALL, *LARGE]
    every: dict[str, list[Figures]] = {name: [] for name in (*names, *(["before"] if against else []))}
    small, large = _inputs(root / "small"), _inputs(root / "large")
    wanted = dict.fromkeys(names, read_rows(small)) | dict.fromkeys(LARGE, read_rows(large, _left(large[0])))
    for number in range(pairs):
        for name in every:
            checkout, run = (against, "decoded") if name == "before" and against else (OURS, name)
            every[name].append(run_process(run, root, checkout))
            if name != "cat":
                (check_count if number else check_rows)(name, wanted[run], _part(name, root).glob("out/**/*.parquet"))
    ratios = {
        "copied / decoded": _ratio(every["copied"], every["decoded"]),
        "copied / cat": _ratio(every["copied"], every["cat"]),
        "copied unverified / decoded": _ratio(every["copied unverified"], every["decoded"]),
        "copied unverified / cat": _ratio(every["copied unverified"], every["cat"]),
        "copied in part / decoded with deletes": _ratio(every["copied in part"], every["decoded with deletes"]),
    }
    if against:
        ratios["copied / before"] = _ratio(every["copied"], every["before"])
    return {
        "medians": {name: _medians(found) for name, found in every.items()},
        "cpu ratios": ratios,
        "pairs": pairs,
        "files": len(list((root / "small" / "data").iterdir())),
        **described({"ours": OURS, **({"before": against} if against else {})}),
    }


def run_process(name: str, root: Path, checkout: Path) -> Figures:
    """The figures of one process with the modules of that checkout; what it writes is there until the next one."""
    out = _part(name, root) / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    command = [sys.executable, str(Path(__file__).resolve()), "--run", name, "--root", str(root)]
    with modules_of(checkout) as path:
        env = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True, text=True)
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    print(f"{name}: {figures}", file=sys.stderr, flush=True)
    return figures


def _part(name: str, root: Path) -> Path:
    """Where the files are that a run reads."""
    return root / ("large" if name in LARGE else "small")


def timed(work: Callable[[], None]) -> Figures:
    """CPU and wall seconds, the memory before, and its peak."""
    base = peak_mb()
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    work()
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu": cpu, "wall": wall, "base_mb": base, "peak_mb": peak_mb()}


def _prepared(name: str, root: Path) -> Callable[[], None]:
    part = _part(name, root)
    files = _files(part)
    if name == "cat":
        return lambda: _cat(files, part / "out" / "all")
    deletes = (_deletes(part, files[0]),) if name in LARGE else ()
    work = task(part, files, deletes)
    if name.startswith("copied"):
        from amoro_core.model.rewrite import CopyRule  # another checkout may not have it

        work = replace(work, copy=CopyRule(0, 1024, name != "copied unverified"))
    return lambda: run_engine(work)


def _inputs(part: Path) -> list[Path]:
    return sorted((part / "data").glob("in-*.parquet"))


def _files(part: Path) -> list[DataFile]:
    paths = _inputs(part)
    rows = {path: pq.read_metadata(path).num_rows for path in paths}
    return [DataFile(str(path), FileFormat.PARQUET, 0, (), rows[path], path.stat().st_size, 1) for path in paths]


def _left(file: Path) -> str:
    """The condition in SQL for what `_deletes` leaves."""
    return f"NOT (filename = '{file}' AND file_row_number < {LARGE_ROWS // 10} AND file_row_number % 10 = 0)"


def _deletes(part: Path, file: DataFile) -> DeleteFile:
    """Every tenth row of the first of ten row groups."""
    path = part / "data" / "deletes.parquet"
    kind = pa.schema(
        [
            pa.field("file_path", pa.string(), False, {b"PARQUET:field_id": b"2147483546"}),
            pa.field("pos", pa.int64(), False, {b"PARQUET:field_id": b"2147483545"}),
        ]
    )
    count = LARGE_ROWS // 100
    table = pa.table([[file.path] * count, list(range(0, 10 * count, 10))], schema=kind)
    pq.write_table(table, path, store_schema=False)
    size = path.stat().st_size
    return DeleteFile(str(path), DeleteKind.POSITION, FileFormat.PARQUET, 0, (), count, size, 2)


def _cat(files: list[DataFile], path: Path) -> None:
    with path.open("wb") as out:
        for file in files:
            out.write(Path(file.path).read_bytes())


def _ratio(ours: list[Figures], theirs: list[Figures]) -> float:
    return round(statistics.median(one["cpu"] / other["cpu"] for one, other in zip(ours, theirs, strict=True)), 3)


def _medians(found: list[Figures]) -> Figures:
    return {key: round(statistics.median(one[key] for one in found), 3) for key in found[0]}


if __name__ == "__main__":
    main()
