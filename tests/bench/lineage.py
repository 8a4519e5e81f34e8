"""What the lineage of rows and vectors cost: `python -m tests.bench.lineage [--files 100] [--pairs 5]` prints JSON.

The same rows are rewritten as a table of format 2 and as one of format 3, whose outputs hold lineage: decoded and
copied, from files as writers leave them and from files that store lineage with a tenth of the ids missing. And those of
format 3 without deletes and with vectors that delete a twentieth of the rows of each file, both decoded. Each run is
a process of its own; ratios of CPU seconds are medians of interleaved pairs, those of bytes are of the outputs. Before
ratios count, the ids of the outputs are compared with those of the inputs.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from amoro_core.files.io import open_access
from amoro_core.files.vector_writing import write_vectors
from amoro_core.model.files import DataFile, FileFormat
from amoro_core.model.lineage import LINEAGE_IDS, LINEAGE_NAMES
from amoro_core.model.rewrite import CopyRule
from amoro_core.positions import PositionSet
from tests.bench.data import TABLES, task
from tests.bench.machine import described
from tests.bench.rewrite import run_engine

TABLE = TABLES["mixed"]
INPUTS = ("plain", "stored")
#: How, of which inputs, in which version of the format.
Run = tuple[str, str, str]
#: In format 2 nothing stores lineage: the same rows without it.
COMPARED: dict[str, tuple[Run, Run]] = {
    **{f"{way}, {kind}": ((way, "plain", "2"), (way, kind, "3")) for way in ("decoded", "copied") for kind in INPUTS},
    "vectors": (("decoded", "plain", "3"), ("deleted", "plain", "3")),
}
#: Share of the rows that vectors delete.
DELETED = 0.05
Figures = dict[str, float]


def main() -> None:
    """Measure one run in this process, or everything in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--compare", nargs="*", choices=COMPARED, default=list(COMPARED))
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        print(json.dumps(_measured(tuple(given.run), given.root)))
        return
    with tempfile.TemporaryDirectory(prefix="amoro-lineage-") as made:
        root = Path(made)
        ids = _write(root, given.files)
        print(json.dumps(_compared(root, given.compare, given.pairs, ids), indent=2))


def _write(root: Path, files: int) -> dict[str, int]:
    """Write the inputs of each kind; the sums of their rows' ids."""
    (root / "plain" / "data").mkdir(parents=True)
    (root / "stored" / "data").mkdir(parents=True)
    chance = np.random.default_rng(1)
    sums = dict.fromkeys(INPUTS, 0)
    for number in range(files):
        rows = TABLE.rows(number * TABLE.file_rows, TABLE.file_rows, number)
        _write_file(root / "plain" / "data" / f"in-{number:05}.parquet", rows, {})
        first = number * 2 * TABLE.file_rows
        ids = np.sort(chance.choice(TABLE.file_rows * 10 // 9, TABLE.file_rows, replace=False)) + first
        for field_id, name, column in zip(LINEAGE_IDS, LINEAGE_NAMES, (ids, _updates(chance)), strict=True):
            field = pa.field(name, pa.int64(), metadata={b"PARQUET:field_id": str(field_id).encode()})
            rows = rows.append_column(field, pa.array(column))
        _write_file(root / "stored" / "data" / f"in-{number:05}.parquet", rows, {"_row_id": "DELTA_BINARY_PACKED"})
        sums["plain"] += sum(range(first, first + TABLE.file_rows))
        sums["stored"] += int(ids.sum())
    return sums


def _updates(chance: np.random.Generator) -> Any:
    """Most rows were updated last by one commit, some by later ones."""
    return np.where(chance.random(TABLE.file_rows) < 0.9, 2, chance.integers(3, 5, TABLE.file_rows))


def _write_file(path: Path, rows: pa.Table, encodings: dict[str, str]) -> None:
    pq.write_table(
        rows,
        path,
        compression="zstd",
        compression_level=3,
        store_schema=False,
        store_decimal_as_integer=True,
        write_page_index=True,
        write_page_checksum=True,
        use_dictionary=[name for name in rows.column_names if name not in encodings],
        column_encoding=encodings or None,
    )


def _compared(root: Path, names: list[str], pairs: int, ids: dict[str, int]) -> dict[str, Any]:
    every: dict[str, list[tuple[Figures, Figures]]] = {name: [] for name in names}
    for number in range(pairs):
        for name in names:
            before, after = COMPARED[name]
            if number % 2:  # which runs first takes turns
                new, old = _process(after, root, ids), _process(before, root, ids)
            else:
                old, new = _process(before, root, ids), _process(after, root, ids)
            every[name].append((old, new))
    return {
        "cpu ratios": {name: _ratio(found, "cpu") for name, found in every.items()},
        "byte ratios": {name: _ratio(found, "bytes") for name, found in every.items()},
        "cpu before": {name: _median(found, 0) for name, found in every.items()},
        "cpu after": {name: _median(found, 1) for name, found in every.items()},
        "pairs": pairs,
        "rows": TABLE.file_rows * len(list((root / "plain" / "data").iterdir())),
        **described(),
    }


def _process(run: Run, root: Path, ids: dict[str, int]) -> Figures:
    way, kind, version = run
    out = root / kind / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    command = [sys.executable, "-m", "tests.bench.lineage", "--run", *run, "--root", str(root)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    written = list(out.rglob("*.parquet"))
    figures["bytes"] = sum(path.stat().st_size for path in written)
    if version == "3":
        columns = [pq.read_table(path, columns=["_row_id"]).column(0).to_numpy() for path in written]
        found = sum(int(column.sum()) for column in columns)
        assert found == ids[kind] - figures["ids_deleted"], f"{way}, {kind}: the ids are not those of the inputs"
    print(f"{way}, {kind}, format {version}: {figures}", file=sys.stderr, flush=True)
    return figures


def _measured(run: Run, root: Path) -> Figures:
    """CPU and wall seconds of one rewrite, and the sum of the ids of deleted rows."""
    way, kind, version = run
    files = []
    for number, path in enumerate(sorted((root / kind / "data").glob("in-*.parquet"))):
        first = number * 2 * TABLE.file_rows if version == "3" else None
        size = path.stat().st_size
        files.append(DataFile(str(path), FileFormat.PARQUET, 0, (), TABLE.file_rows, size, 2, first_row_id=first))
    work = task(root / kind, files)
    gone = [_deleted(number) for number in range(len(files))] if way == "deleted" else []
    if gone:
        access = open_access({}, str(root), read_locations=[str(root)], write_locations=[str(root)])
        vectors = [(file, PositionSet.of(some)) for file, some in zip(files, gone, strict=True)]
        deletes = write_vectors(access, f"{root}/{kind}/out/{uuid4()}.puffin", vectors, 3)
        inputs = tuple(replace(one, deletes=(at,)) for at, one in enumerate(work.rewritten))
        work = replace(work, rewritten=inputs, deletes=deletes)
    rule = CopyRule(0, 1024) if way == "copied" else None
    work = replace(work, table=replace(work.table, format_version=int(version)), copy=rule)
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    run_engine(work)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    ids_deleted = sum(number * 2 * TABLE.file_rows * some.size + int(some.sum()) for number, some in enumerate(gone))
    return {"cpu": cpu, "wall": wall, "ids_deleted": ids_deleted}


def _deleted(number: int) -> NDArray[np.int64]:
    """Positions that are deleted in a file."""
    chance = np.random.default_rng(number)
    found = chance.choice(TABLE.file_rows, round(TABLE.file_rows * DELETED), replace=False)
    return np.sort(found).astype(np.int64)


def _ratio(found: list[tuple[Figures, Figures]], key: str) -> float:
    return round(statistics.median(new[key] / old[key] for old, new in found), 4)


def _median(found: list[tuple[Figures, Figures]], side: int) -> float:
    return round(statistics.median(pair[side]["cpu"] for pair in found), 3)


if __name__ == "__main__":
    main()
