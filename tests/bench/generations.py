"""What readers gain by copying small row groups together and by encoding them, and what each costs.

`python -m tests.bench.generations [--files 400] [--groups 2000 1000 128 64 32] [--pairs 5]` prints JSON. The same rows
as files of 1.3 MB, copied into one file, encoded into one, and written as one file of so many row groups. DuckDB,
pyarrow, and Spark with Iceberg's reader (a table for each, with bounds of ids and with split offsets as of copies) read
everything, one column and one id with one thread: seconds of CPU, medians of interleaved rounds. pyarrow and DuckDB
read in a process for each measurement, Spark in one JVM that has answered each query twice before. Rows are compared
with those written. `mean MB` is the size of a row group; `cost` is the CPU of the engine for a GB of the small files.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.manifest import FileFormat as EntryFormat
from pyiceberg.typedef import Record
from pyiceberg.types import LongType

from amoro_core.files.splicing import split_offsets
from tests.bench.copying import TABLE, Figures, run_process, timed, write_small
from tests.bench.machine import OURS, described
from tests.bench.rows import check_rows, read_rows
from tests.bench.spark_rewrite import cpu_of, fast_session
from tests.engine.commits import Change, commit
from tests.spark.catalogs import register_in_spark, sqlite_uri, warehouse_uri
from tests.spark.session import missing_parts

QUERIES = ("all", "one column", "one id")
READERS = ("duckdb", "pyarrow")
ID = 1_234_567
GB = 10**9
#: Rounds of Spark that are not counted.
WARM = 2


def main() -> None:
    """Measure one thing in this process, or everything in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--groups", type=int, nargs="*", default=[2000, 1000, 128, 64, 32])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        print(json.dumps(timed(_query(*given.run, given.root))))
        return
    if missing := missing_parts():
        sys.exit(f"Spark needs {', '.join(missing)}: run make test")
    with tempfile.TemporaryDirectory(prefix="amoro-generations-") as made:
        root = Path(made)
        costs = _made(root, given.files, given.groups, given.pairs)
        found = _read(root, given.pairs)
        print(json.dumps({"readers' cpu": found, "cost": costs, "pairs": given.pairs, **described()}, indent=2))


def _made(root: Path, files: int, groups: Sequence[int], pairs: int) -> dict[str, float]:
    """Make every stage, a directory each below `stages`; the costs of copying and encoding."""
    stages = root / "stages"
    stages.mkdir()
    write_small(root / "small", files, TABLE.file_rows, None)
    wanted = read_rows(_files(root / "small" / "data"))
    costs: dict[str, list[float]] = {"copied": [], "decoded": []}
    for _ in range(pairs):
        for name, found in costs.items():
            found.append(run_process(name, root, OURS)["cpu"])
            shutil.rmtree(stages / name, ignore_errors=True)
            shutil.move(root / "small" / "out", stages / name)
    (stages / "decoded").rename(stages / "encoded")
    shutil.move(root / "small" / "data", stages / "written")
    for count in groups:
        directory = stages / f"{count} row groups"
        directory.mkdir()
        _written_again(_files(stages / "written"), directory / "all.parquet", files * TABLE.file_rows, count)
    for stage in sorted(stages.iterdir()):
        check_rows(stage.name, wanted, _files(stage))
    size = sum(path.stat().st_size for path in _files(stages / "written"))
    named = {"copied": costs["copied"], "encoded": costs["decoded"]}
    return {name: round(statistics.median(found) * GB / size, 2) for name, found in named.items()}


def _written_again(paths: Sequence[Path], path: Path, rows: int, groups: int) -> None:
    """The rows of the files in one, of so many row groups."""
    size = -(-rows // groups)
    kind = pq.read_schema(paths[0])
    with pq.ParquetWriter(path, kind, compression="zstd", compression_level=3, store_schema=False) as writer:
        waiting: list[pa.Table] = []
        for number, one in enumerate(paths, 1):
            waiting.append(pq.read_table(one))
            held = pa.concat_tables(waiting).combine_chunks()
            full = held.num_rows if number == len(paths) else held.num_rows // size * size
            if full:
                writer.write_table(held.slice(0, full), size)
            waiting = [held.slice(full)]


def _files(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.parquet"))


def _read(root: Path, pairs: int) -> dict[str, dict[str, Any]]:
    """What each stage is, and the CPU of every query of every reader."""
    # In the order of the sizes of row groups; the files as written first.
    stages = sorted((root / "stages").iterdir(), key=lambda one: (one.name != "written", _shape(one)["mean MB"]))
    asked = [(reader, query) for reader in READERS for query in QUERIES if (reader, query) != ("pyarrow", "one id")]
    found: dict[str, dict[str, list[float]]] = {stage.name: {} for stage in stages}
    for _ in range(pairs):
        for reader, query in asked:
            for stage in stages:
                figures = _process(root, reader, query, stage.name)
                found[stage.name].setdefault(f"{reader} {query}", []).append(figures["cpu"])
    _read_by_spark(root, [stage.name for stage in stages], pairs, found)
    return {
        stage.name: {
            **_shape(stage),
            **{name: round(statistics.median(some), 3) for name, some in found[stage.name].items()},
        }
        for stage in stages
    }


def _shape(stage: Path) -> dict[str, float]:
    paths = _files(stage)
    size, groups = (
        sum(path.stat().st_size for path in paths),
        sum(pq.read_metadata(one).num_row_groups for one in paths),
    )
    return {
        "files": len(paths),
        "MB": round(size / 10**6),
        "row groups": groups,
        "mean MB": round(size / groups / 10**6, 2),
        "footers KB": round(sum(pq.read_metadata(one).serialized_size for one in paths) / 1000),
    }


def _process(root: Path, reader: str, query: str, stage: str) -> Figures:
    command = [sys.executable, str(Path(__file__).resolve()), "--root", str(root), "--run", reader, query, stage]
    env = {**os.environ, "PYTHONPATH": str(OURS)}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True, text=True)
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    print(f"{stage}, {reader} {query}: {figures['cpu']:.3f}", file=sys.stderr, flush=True)
    return figures


def _query(reader: str, query: str, stage: str, root: Path) -> Callable[[], None]:
    """A query of one of the readers that take a process of their own."""
    paths = list(map(str, _files(root / "stages" / stage)))
    if reader == "pyarrow":
        columns = None if query == "all" else ["count"]

        def read() -> None:
            for path in paths:
                for batch in pq.ParquetFile(path).iter_batches(columns=columns, use_threads=False):
                    del batch

        return read
    import duckdb

    db = duckdb.connect()
    db.execute("SET threads = 1")
    return lambda: db.execute(_sql(query, f"read_parquet({paths!r})")).fetchall() and None


def _sql(query: str, table: str) -> str:
    if query == "one id":
        return f"select max(comment) from {table} where id = {ID}"
    every = [field.name for field in TABLE.schema.fields if field.name not in ("created", "session")]
    asked = every if query == "all" else ["count"]
    return f"select {', '.join(f'max({name})' for name in asked)} from {table}"


def _read_by_spark(root: Path, stages: Sequence[str], pairs: int, found: dict[str, dict[str, list[float]]]) -> None:
    """The CPU of the JVM for each query of each stage."""
    warehouse = root / "spark"
    (warehouse / "warehouse").mkdir(parents=True)
    catalog = SqlCatalog("bench", uri=sqlite_uri(warehouse), warehouse=warehouse_uri(warehouse))
    catalog.create_namespace("db")
    tables = {stage: f"db.t{number}" for number, stage in enumerate(stages)}
    for stage, name in tables.items():
        _add_table(catalog, name, _files(root / "stages" / stage))
    catalog.close()
    spark = fast_session(warehouse, cores=1)
    register_in_spark(spark, warehouse, "bench")
    # Aggregates from metadata would read nothing.
    spark.conf.set("spark.sql.iceberg.aggregate-push-down.enabled", "false")
    pid = int(spark._jvm.java.lang.ProcessHandle.current().pid())
    for number in range(-WARM, pairs):
        for query in QUERIES:
            for stage in stages:
                before = cpu_of(pid)
                spark.sql(_sql(query, f"bench.{tables[stage]}")).collect()
                time.sleep(0.3)  # the JVM compiles and collects behind a query, and that is counted as the query's
                taken = cpu_of(pid) - before
                if number >= 0:
                    print(f"{stage}, spark {query}: {taken:.3f}", file=sys.stderr, flush=True)
                    found[stage].setdefault(f"spark {query}", []).append(taken)
    spark.stop()


def _add_table(catalog: SqlCatalog, name: str, paths: Sequence[Path]) -> None:
    table = catalog.create_table(name, TABLE.schema, properties={"format-version": "2"})
    added = tuple(map(_entry, paths))
    commit(table, lambda head: Change(added))


def _entry(path: Path) -> DataFile:
    """A file with what Iceberg's readers plan by."""
    footer = pq.read_metadata(path)
    ids = [footer.row_group(number).column(0) for number in range(footer.num_row_groups)]
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=str(path),
        file_format=EntryFormat.PARQUET,
        partition=Record(),
        record_count=footer.num_rows,
        file_size_in_bytes=path.stat().st_size,
        lower_bounds={1: to_bytes(LongType(), min(one.statistics.min for one in ids))},
        upper_bounds={1: to_bytes(LongType(), max(one.statistics.max for one in ids))},
        split_offsets=list(split_offsets([one.dictionary_page_offset or one.data_page_offset for one in ids])),
    )
    file.spec_id = 0
    return file


if __name__ == "__main__":
    main()
