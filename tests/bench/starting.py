"""Commands from their first letter: `python -m tests.bench.starting [--pairs 5]` prints JSON.

CPU and peak of memory of `amoro optimize` of five files of 4 MB without a coordinator; the wall time of the same
beside an `amoro up`; resident memory of an idle `amoro up` with its optimizer and pages.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from tests.acceptance.processes import Installation, address_of, free_port, install
from tests.bench.machine import Figures, in_rounds, medians, memory_mb, options, run_whole, say
from tests.engine import writer

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "text", StringType(), required=False))


def main() -> None:
    """Parse the command line and print the figures."""
    given = options(__doc__, pairs=5, file_mb=4.0, idle_s=20.0)
    found = in_rounds({"starting": lambda: _once(given.file_mb, given.idle_s)}, given.pairs)
    say({**medians(found["starting"]), "rounds": given.pairs})


def _once(file_mb: float, idle_s: float) -> Figures:
    with tempfile.TemporaryDirectory(prefix="amoro-bench-") as made:
        installation = install(Path(made))
        try:
            _five_files(installation, "db.alone", file_mb)
            _five_files(installation, "db.beside", file_mb)
            environment, directory = installation.environment, installation.directory
            command = [sys.executable, "-m", "amoro_core", "optimize", "cat.db.alone"]
            whole = run_whole(command, environment, directory)
            (summary,) = [one.summary for one in installation.catalog.load_table("db.alone").snapshots()[-1:]]
            if summary is None or summary.operation.value != "replace":
                raise SystemExit("the table was not optimized")
            found = {f"optimize, {key}": value for key, value in whole.items()}
            process = installation.start("up", "--port", "0", environment={"AMORO_HTTP_PORT": str(free_port())})
            address_of(process)
            time.sleep(idle_s)
            found["up, MB"] = memory_mb("VmRSS", process.popen.pid)
            command = [str(Path(sys.executable).with_name("amoro")), "optimize", "cat.db.beside"]
            begun, output = time.perf_counter(), subprocess.DEVNULL
            subprocess.run(command, stdout=output, stderr=output, cwd=directory, env=environment, check=True)
            found["optimize beside up, s"] = time.perf_counter() - begun
            process.terminate()
            return found
        finally:
            installation.close()


def _five_files(installation: Installation, name: str, file_mb: float) -> None:
    table = writer.make_table(installation.catalog, name, SCHEMA)
    noise, rows = np.random.default_rng(len(name)), int(file_mb * 1024 * 1024 / 72)
    for file in range(5):
        texts = [noise.bytes(32).hex() for _ in range(rows)]
        writer.append(table, pa.table({"id": np.arange(rows) + file * rows, "text": texts}))


if __name__ == "__main__":
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    main()
