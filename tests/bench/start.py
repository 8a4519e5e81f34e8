"""How long commands take from the first letter: `python -m tests.bench.start [--runs 5]` prints JSON.

Seconds by the clock, medians and the best: help, the shell's completion of a table's name, `amoro up` until it is
ready, one whole `amoro optimize` of five files of 4 MB that works by itself, and one beside an `amoro up` that is idle,
with the time from the plan to the commit. And what an `amoro up` with its optimizer and its pages has resident once it
was idle for a while.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from tests.acceptance.processes import Installation, Process, free_port, install
from tests.bench.machine import described
from tests.engine import writer

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "text", StringType(), required=False))
FILE_BYTES = 4 * 1024 * 1024
#: Until what is measured as idle.
IDLE_S = 20.0


def main() -> None:
    """Parse the command line and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as directory:
        installation = install(Path(directory))
        try:
            numbers = iter(range(runs))
            words = {"_AMORO_COMPLETE": "complete_bash", "COMP_WORDS": "amoro plan cat.db.t", "COMP_CWORD": "2"}
            alone: dict[str, Callable[[], float]] = {
                "amoro --help": lambda: _run(installation, "--help"),
                "amoro --version": lambda: _run(installation, "--version"),
                "amoro up, until it is ready": lambda: _up(installation),
                "amoro optimize by itself": lambda: _optimize(installation, f"by_itself{next(numbers)}"),
                "completion of a table's name": lambda: _run(installation, environment=words),
            }
            seconds = {name: _told([measure() for _ in range(runs)]) for name, measure in alone.items()}
            process, resident_mb = _idle(installation)
            beside = [_beside(installation, f"beside{number}") for number in range(runs)]
            process.terminate()
        finally:
            installation.close()
    seconds["amoro optimize beside amoro up"] = _told([whole for whole, _ in beside])
    seconds["of it from the plan to the commit"] = _told([inner for _, inner in beside])
    print(json.dumps({"seconds": seconds, "idle amoro up MB": resident_mb, "runs": runs, **described()}, indent=2))


def _told(times: list[float]) -> dict[str, float]:
    return {"median": round(statistics.median(times), 3), "best": round(min(times), 3)}


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


def _optimize(installation: Installation, name: str) -> float:
    five_files(installation, f"db.{name}", zlib.crc32(name.encode()))
    return _run(installation, "optimize", f"cat.db.{name}")


def _idle(installation: Installation) -> tuple[Process, int]:
    """An `amoro up` that has had a table for a while, and what it has resident."""
    five_files(installation, "db.idle", 0)
    process = installation.start("up", "--port", "0", environment={"AMORO_HTTP_PORT": str(free_port())})
    process.wait_for("amoro listens on")
    time.sleep(IDLE_S)
    status = Path(f"/proc/{process.popen.pid}/status").read_text()
    (line,) = (one for one in status.splitlines() if one.startswith("VmRSS"))
    return process, int(line.split()[1]) // 1024


def _beside(installation: Installation, name: str) -> tuple[float, float]:
    """The whole command, and its process from the plan to the commit."""
    whole = _optimize(installation, name)
    (found,) = installation.ask("process", "list", "--table", f"cat.db.{name}")["processes"]
    if found["status"] != "success":
        raise SystemExit(f"the process of {name} is {found['status']}")
    begun, ended = (datetime.fromisoformat(found[key]) for key in ("created_at", "finished_at"))
    return whole, (ended - begun).total_seconds()


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
