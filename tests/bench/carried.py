"""What deletes that come meanwhile add to a commit: `python -m tests.bench.carried [--files 100] [--deletes 1000]`.

A table of so many files is rewritten as a whole. Before the rewrite is committed another writer deletes rows by
position, in one delete file (or vector) for each data file, or appends one row; rounds of both take turns. The CPU is
that of validating, translating, writing the deletes of the outputs, and committing. The rows are compared afterwards.
"""

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from pyiceberg.table import Table

from amoro_core.model.files import FORMAT_WITH_VECTORS
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType
from tests.engine import oracle, writer, writer3
from tests.engine.builders import SCHEMA
from tests.services.world import World

ROWS = 1000  # of each file


def main() -> None:
    """Parse the command line, and print a line of JSON for each format."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--deletes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--formats", type=int, nargs="*", default=(2, 3))
    given = parser.parse_args()
    for version in given.formats:
        took: dict[bool, list[float]] = {True: [], False: []}
        for number in range(given.rounds):
            for deletes in (True, False):
                took[deletes].append(_round(version, given.files, given.deletes if deletes else 0, number))
        with_them, without = (statistics.median(took[which]) for which in (True, False))
        figures = {
            "format": version,
            "files": given.files,
            "deletes": given.deletes,
            "cpu_s": round(with_them, 3),
            "cpu_s_without": round(without, 3),
            "more_cpu_s": round(with_them - without, 3),
            "load": round(os.getloadavg()[0], 1),
        }
        print(json.dumps(figures), flush=True)


def _round(version: int, files: int, deletes: int, seed: int) -> float:
    """The CPU seconds of one commit."""
    with tempfile.TemporaryDirectory(prefix="amoro-carried-") as directory:
        catalog = writer.make_catalog(Path(directory))
        world = World(Path(directory), catalog)
        try:
            table = writer.make_table(catalog, "db.t", SCHEMA, format_version=version)
            writer.append(table, _rows(0, files * ROWS), files=files)
            process_id = world.begin(OptimizingType.FULL, force=True)
            world.run_all(process_id)
            expected = files * ROWS - _written(table, deletes, seed)
            began = time.process_time()
            status = world.committing.commit(process_id)
            took = time.process_time() - began
            found = oracle.live_rows(table.refresh()).total()
            if (status, found) != (ProcessStatus.SUCCESS, expected):
                raise SystemExit(f"{status}: {found} rows, where {expected} are right")
            return took
        finally:
            world.close()


def _written(table: Table, deletes: int, seed: int) -> int:
    """Delete so many rows, as many of each file, or append one; how many rows are fewer then."""
    if not deletes:
        writer.append(table, _rows(-1, 0))
        return -1
    chance = random.Random(seed)
    paths = [file.path for file in oracle.files_in(table.refresh().metadata)]
    marked = {path: sorted(chance.sample(range(ROWS), deletes // len(paths))) for path in paths}
    if table.metadata.format_version == FORMAT_WITH_VECTORS:
        writer3.delete_positions(table, marked)
    else:
        writer.row_delta(table, position_deletes=marked.items(), per_file=True)
    return sum(map(len, marked.values()))


def _rows(start: int, end: int) -> pa.Table:
    numbers = range(start, end)
    text = [str(number) for number in numbers]
    return pa.table({"id": list(numbers), "part": ["p"] * len(text), "value": text})


if __name__ == "__main__":
    main()
