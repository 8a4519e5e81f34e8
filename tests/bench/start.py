"""How long commands take from the first letter: `python -m tests.bench.start [--runs 5]`.

Help, the shell's completion of a table's name, a coordinator until it is ready, and one whole `amoro optimize` of five
files of 4 MB in process. Wall seconds, medians and the best; nothing is asserted.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from tests.acceptance.processes import Installation, install
from tests.engine import writer

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "text", StringType(), required=False))
FILE_BYTES = 4 * 1024 * 1024


def main() -> None:
    """Parse the command line and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as directory:
        installation = install(Path(directory))
        try:
            _print("amoro --help", 0.4, runs, lambda: _run(installation, "--help"))
            _print("amoro --version", 0.4, runs, lambda: _run(installation, "--version"))
            _print("amoro up, until it is ready", 3.0, runs, lambda: _up(installation))
            numbers = iter(range(runs))
            _print("amoro optimize, 5 files of 4 MB", 2.0, runs, lambda: _optimize(installation, next(numbers)))
            words = {"_AMORO_COMPLETE": "complete_bash", "COMP_WORDS": "amoro plan cat.db.t", "COMP_CWORD": "2"}
            _print("completion of a table's name", 0.3, runs, lambda: _run(installation, environment=words))
        finally:
            installation.close()


def _print(name: str, wanted: float, runs: int, measure: Callable[[], float]) -> None:
    times = [measure() for _ in range(runs)]
    print(f"{name:<34} median {statistics.median(times):.2f} s, best {min(times):.2f} s (wanted: below {wanted:g} s)")


def _run(installation: Installation, *arguments: str, environment: dict[str, str] | None = None) -> float:
    program = str(Path(sys.executable).with_name("amoro"))
    begun = time.perf_counter()
    subprocess.run(
        [program, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=installation.directory,
        env={**installation.environment, **(environment or {})},
        check=True,
    )
    return time.perf_counter() - begun


def _up(installation: Installation) -> float:
    begun = time.perf_counter()
    process = installation.start("up", "--port", "0")
    while "amoro listens on" not in process.output:
        time.sleep(0.005)
    taken = time.perf_counter() - begun
    process.terminate()
    return taken


def _optimize(installation: Installation, number: int) -> float:
    five_files(installation, f"db.t{number}", number)
    return _run(installation, "optimize", f"cat.db.t{number}", "--type", "full")


def five_files(installation: Installation, name: str, seed: int) -> None:
    """A table of five files of 4 MB."""
    table = writer.make_table(installation.catalog, name, SCHEMA)
    noise = np.random.default_rng(seed)
    rows = FILE_BYTES // 72
    for file in range(5):
        texts = [noise.bytes(32).hex() for _ in range(rows)]
        data = pa.table({"id": np.arange(rows) + file * rows, "text": texts})
        writer.append(table, data)


if __name__ == "__main__":
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    main()
