"""More equality-delete keys than the memory holds: `python -m tests.bench.many_keys [--keys 50000000] [--strings]`.

The table has five columns; half of the keys are those of rows. Prints whether the right rows are left, the peak of
memory of a process that only rewrites, and what importing and opening alone take.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from amoro_core.files.io import open_access
from amoro_core.files.schema import arrow_schema
from amoro_core.model.files import DataFile, DeleteFile, DeleteKind, FileFormat
from amoro_core.model.processes import Attempt, TaskId
from amoro_core.model.rewrite import InputFile, RewriteInput, TableContext
from amoro_optimizer.rewrite.engine import rewrite
from amoro_optimizer.rewrite.memory import resident_bytes

FILE_ROWS = 1_000_000
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    NestedField(3, "place", StringType()),
    NestedField(4, "value", DoubleType()),
    NestedField(5, "count", LongType()),
)


def main() -> None:
    """Parse the command line, make the files, rewrite them in a process of its own and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--keys", type=int, default=50_000_000)
    parser.add_argument("--strings", action="store_true", help="keys of two string columns")
    parser.add_argument("--memory", type=int, default=512, help="MB")
    parser.add_argument("--root", type=Path)
    parser.add_argument("--run", action="store_true", help="rewrite files that were made, in this process")
    given = parser.parse_args()
    if given.run:
        print(json.dumps(measured(given.root, given.memory << 20)))
        return
    root = given.root or Path(tempfile.mkdtemp(prefix="amoro-bench-"))
    try:
        make(root, given.rows, given.keys, with_strings=given.strings)
        command = [sys.executable, "-m", "tests.bench.many_keys", "--run", "--root", str(root)]
        done = subprocess.run([*command, "--memory", str(given.memory)], check=True, stdout=subprocess.PIPE, text=True)
        found = json.loads(done.stdout.splitlines()[-1])
        ids = pq.read_table(root / "out", columns=["id"]).column(0).to_numpy()
        numbers = np.arange(given.rows)
        expected = numbers[(numbers % 2 == 0) | (numbers >= given.keys)]
        assert np.array_equal(ids, expected), f"{len(ids):,} rows are left, not {len(expected):,} or others"
        kind = "keys of two strings" if given.strings else "keys"
        print(
            f"{given.rows:,} rows, {given.keys:,} {kind}, limit {given.memory} MB: the right {len(ids):,} rows are left"
        )
        print(f"peak {found['peak_mb']:.0f} MB, of which {found['base_mb']:.0f} before the start")
        print(f"CPU {found['cpu']:.1f} s, wall {found['wall']:.1f} s")
    finally:
        if given.root is None:
            shutil.rmtree(root)


def make(root: Path, rows: int, keys: int, *, with_strings: bool) -> None:
    """The data files, and delete files with odd numbers below `keys` and as many that no row has."""
    for name in ("data", "deletes", "out"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for first in range(0, rows, FILE_ROWS):
        pq.write_table(_rows(np.arange(first, min(rows, first + FILE_ROWS))), root / "data" / f"{first:012}.parquet")
    chosen = ["name", "place"] if with_strings else ["id"]
    for first in range(0, keys, FILE_ROWS):
        numbers = np.arange(first, min(keys, first + FILE_ROWS))
        numbers[numbers % 2 == 0] += 1_000_000_000
        pq.write_table(_rows(numbers).select(chosen), root / "deletes" / f"{first:012}.parquet")


def _rows(numbers: np.ndarray) -> pa.Table:
    texts = pa.array(numbers).cast(pa.string())
    columns = [pa.array(numbers), texts, pa.array([f"place-{at:04}" for at in range(1000)]).take(numbers % 1000)]
    return pa.Table.from_arrays([*columns, pa.array(numbers / 7), pa.array(numbers % 13)], schema=arrow_schema(SCHEMA))


def measured(root: Path, memory_bytes: int) -> dict[str, float]:
    """The rewrite of all files with all deletes."""
    work = _task(root)
    access = open_access({}, str(root), read_locations=[str(root)], write_locations=[str(root)])
    base = resident_bytes()
    cpu, wall = time.process_time(), time.perf_counter()
    output = rewrite(
        work,
        access,
        Attempt(TaskId("0197c0de-0000-7000-8000-000000000001", 1), 1),
        on_progress=lambda done, total: None,
        is_cancelled=lambda: False,
        memory_limit_bytes=memory_bytes,
        spill_root=str(root / "spill"),
    )
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    peak = output.peak_memory_bytes
    return {"cpu": cpu, "wall": wall, "peak_mb": peak / 1e6, "base_mb": base / 1e6}


def _task(root: Path) -> RewriteInput:
    context = TableContext(
        catalog="bench",
        table="bench.keys",
        table_uuid="0e0e0e0e-0000-4000-8000-000000000000",
        format_version=2,
        location=str(root),
        data_location=str(root / "out"),
        schema_json=SCHEMA.model_dump_json(),
        spec_json=UNPARTITIONED_PARTITION_SPEC.model_dump_json(),
        name_mapping_json=None,
        dropped_fields_json=(),
        sort_order_json=None,
        properties={},
        read_locations=(str(root),),
    )
    files, deletes = [], []
    for path in sorted((root / "data").iterdir()):
        rows = pq.read_metadata(path).num_rows
        files.append(DataFile(str(path), FileFormat.PARQUET, 0, (), rows, path.stat().st_size, 1))
    for path in sorted((root / "deletes").iterdir()):
        columns = pq.read_schema(path).names
        ids = tuple(SCHEMA.find_field(name).field_id for name in columns)
        rows, size = pq.read_metadata(path).num_rows, path.stat().st_size
        deletes.append(DeleteFile(str(path), DeleteKind.EQUALITY, FileFormat.PARQUET, 0, (), rows, size, 2, ids))
    applying = tuple(range(len(deletes)))
    inputs = tuple(InputFile(file, applying) for file in files)
    return RewriteInput(context, inputs, (), tuple(deletes), 5, 1 << 40, 1)


if __name__ == "__main__":
    main()
