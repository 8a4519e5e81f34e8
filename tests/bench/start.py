"""How long commands take from the first letter: `python -m tests.bench.start [--runs 5] [--against PATH]` prints JSON.

Seconds by the clock, medians and the best: help, the shell's completion of a table's name, `amoro up` until it is
ready, one whole `amoro optimize` of five files of 4 MB that works by itself, and one beside an `amoro up` that is idle,
with the time from the plan to the commit. And what an `amoro up` with its optimizer and its pages has resident once it
was idle for a while. `--against` names another checkout, whose commands run in turn with ours;
it must know the setting http-port.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import zlib
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from tests.acceptance.processes import Installation, Process, free_port, install
from tests.bench.machine import described, in_turn, medians, modules_of
from tests.engine import writer

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "text", StringType(), required=False))
FILE_BYTES = 4 * 1024 * 1024
#: Until what is measured as idle.
IDLE_S = 20.0


def main() -> None:
    """Parse the command line and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--against", type=Path, help="another checkout, measured in turn with this one")
    given = parser.parse_args()
    checkouts = in_turn(given.against)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in checkouts}
    for _ in range(given.runs):
        for name, checkout in checkouts.items():
            with modules_of(checkout) as path:
                found[name].append(_once({"PYTHONPATH": path}))
            print(f"{name}: {found[name][-1]}", file=sys.stderr, flush=True)
    told = {
        name: {"medians": medians(done), "best": {what: min(one[what] for one in done) for what in done[0]}}
        for name, done in found.items()
    }
    print(json.dumps({"seconds and MB": told, "runs": given.runs, **described(checkouts)}, indent=2))


def _once(modules: dict[str, str]) -> dict[str, float]:
    """Every figure, once, of the `amoro` with these modules."""
    words = {"_AMORO_COMPLETE": "complete_bash", "COMP_WORDS": "amoro plan cat.db.t", "COMP_CWORD": "2"}
    with tempfile.TemporaryDirectory() as directory:
        installation = install(Path(directory))
        try:
            found = {
                "amoro --help": _run(installation, modules, "--help"),
                "amoro --version": _run(installation, modules, "--version"),
                "amoro up, until it is ready": _up(installation, modules),
                "amoro optimize by itself": _optimize(installation, modules, "by_itself"),
                "completion of a table's name": _run(installation, {**modules, **words}),
            }
            process, found["idle amoro up MB"] = _idle(installation, modules)
            whole, inner = _beside(installation, modules, "beside")
            process.terminate()
        finally:
            installation.close()
    return {**found, "amoro optimize beside amoro up": whole, "of it from the plan to the commit": inner}


def _run(installation: Installation, environment: dict[str, str], *arguments: str) -> float:
    program = str(Path(sys.executable).with_name("amoro"))
    begun = time.perf_counter()
    subprocess.run(
        [program, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=installation.directory,
        env={**installation.environment, **environment},
        check=True,
    )
    return time.perf_counter() - begun


def _up(installation: Installation, modules: dict[str, str]) -> float:
    begun = time.perf_counter()
    process = installation.start("up", "--port", "0", environment=modules)
    while "amoro listens on" not in process.output:
        if process.popen.poll() is not None:
            raise SystemExit(f"amoro up ended: {process.output}")
        time.sleep(0.005)
    taken = time.perf_counter() - begun
    process.terminate()
    return taken


def _optimize(installation: Installation, modules: dict[str, str], name: str) -> float:
    five_files(installation, f"db.{name}", zlib.crc32(name.encode()))
    return _run(installation, modules, "optimize", f"cat.db.{name}")


def _idle(installation: Installation, modules: dict[str, str]) -> tuple[Process, int]:
    """An `amoro up` that has had a table for a while, and what it has resident."""
    five_files(installation, "db.idle", 0)
    process = installation.start("up", "--port", "0", environment={**modules, "AMORO_HTTP_PORT": str(free_port())})
    process.wait_for("amoro listens on")
    time.sleep(IDLE_S)
    status = Path(f"/proc/{process.popen.pid}/status").read_text()
    (line,) = (one for one in status.splitlines() if one.startswith("VmRSS"))
    return process, int(line.split()[1]) // 1024


def _beside(installation: Installation, modules: dict[str, str], name: str) -> tuple[float, float]:
    """The whole command, and its process from the plan to the commit."""
    whole = _optimize(installation, modules, name)
    asked = installation.run("process", "list", "--table", f"cat.db.{name}", "-o", "json", environment=modules)
    (found,) = asked.document["processes"]
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
