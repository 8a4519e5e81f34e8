"""A whole `amoro optimize` beside Polars, or beside another checkout: `python -m tests.bench.whole [--kind text]
[--files 400] [--pairs 5] [--against PATH]` prints JSON.

Each run is a process of its own, from the interpreter's start to its end; CPU and the peak of memory are what the
system counts for it. With a kind the files are small, of `tests.bench.data`, and Polars does
`scan_parquet` and `sink_parquet` with its defaults. With `--kind five` they are five files of 4 MB, optimized as is
due, with `five-full` fully; nearly all of it is start-up. The rows after a first run are compared with those before.
Modules of every checkout are compiled before anything is measured.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from amoro_core.model.files import DataFile
from tests.acceptance.processes import Installation, install
from tests.bench.data import TABLES, write_files
from tests.bench.machine import OURS, described
from tests.bench.rows import Rows, check_rows, read_rows
from tests.bench.spark_rewrite import add_table
from tests.bench.start import five_files
from tests.engine.parquet_rows import local_path

POLARS = """
import sys
import polars
polars.scan_parquet(sys.argv[1]).sink_parquet(sys.argv[2], compression="zstd", compression_level=3)
"""
#: It starts what is measured, so that the peak is not that of this program, which the system would count, too.
SMALL_PARENT = """
import json, os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
figures = {"cpu s": usage.ru_utime + usage.ru_stime, "peak MB": usage.ru_maxrss / 1024}
print(json.dumps({"ended": os.waitstatus_to_exitcode(status), "figures": figures}))
"""
FULL = ("--type", "full")
#: Options by kind: what is due, which is minor optimizing, and full optimizing.
FIVE: dict[str, Sequence[str]] = {"five": (), "five-full": FULL}
PACKAGES = ("amoro_core", "amoro_optimizer", "amoro_cli")


def main() -> None:
    """Measure in turn, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=[*TABLES, *FIVE], default="text")
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--against", type=Path, help="another checkout, measured in turn with this one")
    given = parser.parse_args()
    checkouts = {"ours": OURS, **({"before": given.against.resolve()} if given.against else {})}
    for path in checkouts.values():
        for package in PACKAGES:
            compileall.compile_dir(path / package, quiet=2)
    with tempfile.TemporaryDirectory(prefix="amoro-bench-whole-") as directory:
        figures = _measure(Path(directory), given.kind, given.files, given.pairs, checkouts)
    medians = {
        name: {key: round(statistics.median(run[key] for run in runs), 2) for key in runs[0]}
        for name, runs in figures.items()
    }
    ratios = {
        f"ours / {name}": {key: _ratio(figures["ours"], runs, key) for key in runs[0]}
        for name, runs in figures.items()
        if name != "ours"
    }
    found = {"kind": given.kind, "medians": medians, "ratios": ratios, "pairs": given.pairs, **described(checkouts)}
    print(json.dumps(found, indent=2))


def _ratio(ours: Sequence[Mapping[str, float]], theirs: Sequence[Mapping[str, float]], key: str) -> float:
    """The median over the pairs."""
    return round(statistics.median(one[key] / other[key] for one, other in zip(ours, theirs, strict=True)), 3)


def _measure(
    directory: Path, kind: str, count: int, pairs: int, checkouts: Mapping[str, Path]
) -> dict[str, list[dict[str, float]]]:
    figures: dict[str, list[dict[str, float]]] = {}
    files = [] if kind in FIVE else write_files(kind, directory / "files", count)
    before: Rows | None = None
    for number in range(pairs):
        for name, path in checkouts.items():
            home = directory / f"{name}-{number}"
            home.mkdir()
            installation = install(home)
            try:
                if files:
                    installation.catalog.create_namespace_if_not_exists("db")
                    add_table(installation.catalog, kind, "db.t", _linked(files, installation))
                else:
                    five_files(installation, "db.t", number)
                if number == 0:
                    before = read_rows(_paths(installation))
                figures.setdefault(name, []).append(_optimize(installation, path, FIVE.get(kind, FULL)))
                summary = installation.catalog.load_table("db.t").current_snapshot()
                if summary is None or summary.summary is None or summary.summary.operation.value != "replace":
                    raise SystemExit(f"{name} has not rewritten the table")
                if number == 0 and before is not None:
                    check_rows(name, before, _paths(installation))
            finally:
                installation.close()
        if files:
            output = directory / "polars.parquet"
            pattern = str(Path(files[0].path).parent / "*.parquet")
            figures.setdefault("polars", []).append(
                _run(
                    [sys.executable, "-c", POLARS, pattern, str(output)],
                    dict(os.environ, POLARS_MAX_THREADS="1"),
                    directory,
                )
            )
            if number == 0 and before is not None:
                check_rows("polars", before, [output])
    return figures


def _paths(installation: Installation) -> list[str]:
    return [local_path(one.file.file_path) for one in installation.catalog.load_table("db.t").scan().plan_files()]


def _linked(files: Sequence[DataFile], installation: Installation) -> list[DataFile]:
    """The same files below the catalog's warehouse, where a table's files must be."""
    data = Path(local_path(installation.catalog.properties["warehouse"]), "files")
    data.mkdir(parents=True, exist_ok=True)
    found = []
    for file in files:
        link = data / Path(file.path).name
        os.link(file.path, link)
        found.append(replace(file, path=link.as_uri()))
    return found


def _optimize(installation: Installation, checkout: Path, options: Sequence[str]) -> dict[str, float]:
    environment = {**installation.environment, "PYTHONPATH": str(checkout)}
    command = [sys.executable, "-m", "amoro_core", "optimize", "cat.db.t", *options]
    return _run(command, environment, installation.directory)


def _run(command: Sequence[str], environment: Mapping[str, str], directory: Path) -> dict[str, float]:
    """What the system counts for one process that ends well.

    In that directory: Python looks there for modules before it looks where the environment says.
    """
    parent = [sys.executable, "-ISc", SMALL_PARENT, *command]
    done = subprocess.run(parent, env=environment, cwd=directory, stdout=subprocess.PIPE, check=True, text=True)
    told = json.loads(done.stdout)
    if told["ended"]:
        raise SystemExit(f"{command[:4]} ended with {told['ended']}")
    return dict(told["figures"])


if __name__ == "__main__":
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    main()
