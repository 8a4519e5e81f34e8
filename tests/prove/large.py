"""One table of more than 10 GB that a Spark cluster clusters as a whole."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import BinaryType, LongType, NestedField, StringType

from tests.acceptance.processes import address_of, install, wait_until
from tests.acceptance.tables import is_optimized, name_of, unreferenced_files
from tests.engine import oracle, writer
from tests.engine.builders import BY_PART
from tests.engine.parquet_rows import local_path
from tests.spark_backend.cluster import start_cluster
from tests.spark_backend.spark import spark_optimizer

MB = 1_000_000
PARTS = tuple("abcdefghijkl")
PAYLOAD_BYTES = 200  # noise, so that bytes in memory are bytes on disk
ROWS = 33_000  # of a file: 7 MB
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "part", StringType(), required=False),
    NestedField(3, "rank", LongType(), required=False),
    NestedField(4, "payload", BinaryType(), required=False),
)
SETTINGS = {"spark.executor.memory": "512m"}
#: One commit of all groups, whose waves are as large as they like.
PROPERTIES = {"self-optimizing.cluster.partial-progress": "false"}


def cluster_large(seed: int, megabytes: int, totals: Counter[str]) -> None:
    """Make the table, cluster it, compare."""
    # On a disk: it is several times the table's size.
    with tempfile.TemporaryDirectory(prefix="amoro-cluster-", ignore_cleanup_errors=True) as made:
        directory = Path(made)
        cluster = start_cluster(directory, workers=2, cores=2)
        installation = install(directory)
        try:
            address = address_of(installation.up())
            table = writer.make_table(installation.catalog, f"db.large{seed}", SCHEMA, BY_PART, properties=PROPERTIES)
            noise, commits = np.random.default_rng(seed), 0
            while (size := sum(file.file_size_bytes for file in oracle.live_files(table))) < megabytes * MB:
                _append(table, noise, commits)
                commits += 1
            before = _digest(table)
            installation.ask("group", "update", "default", "--property", "max-input-file-size-per-thread=64GB")
            spark_optimizer(installation, address, cluster.master_url, settings=SETTINGS)
            planned = installation.ask("optimize", name_of(table), "--type", "cluster", "--columns", "rank")
            process = wait_until(lambda: installation.ended(planned["process_id"]), "the process ends", 3600.0)
            assert process["status"] == "success", process
            assert len(table.refresh().metadata.snapshots) == commits + 1
            assert is_optimized(table)
            assert _digest(table) == before, "rows differ"
            _require_order(table)
            wait_until(lambda: not unreferenced_files(table), "no file is left over")
        finally:
            installation.close()
            cluster.close()
    totals.update({"megabytes clustered": size // MB, "tasks": len(process["tasks"])})


def _append(table: Table, noise: np.random.Generator, commit: int) -> None:
    rows = len(PARTS) * ROWS
    offsets = np.arange(rows + 1, dtype=np.int32) * PAYLOAD_BYTES
    payload = [None, pa.py_buffer(offsets), pa.py_buffer(noise.bytes(rows * PAYLOAD_BYTES))]
    columns = {
        "id": np.arange(commit * rows, (commit + 1) * rows),
        "part": pa.array(np.repeat(PARTS, ROWS)),
        "rank": noise.integers(-(2**62), 2**62, rows),
        "payload": pa.Array.from_buffers(pa.binary(), rows, payload),
    }
    writer.append(table, pa.table(columns))


def _digest(table: Table) -> tuple[int, int]:
    """The number of rows, and the sum of a hash of each one's values together."""
    paths = [local_path(file.path) for file in oracle.live_files(table)]
    with duckdb.connect() as db:
        asked = "SELECT count(*), sum(hash(id, part, rank, payload)) FROM read_parquet($1)"
        count, total = db.execute(asked, [paths]).fetchall()[0]
    return int(count), int(total)


def _require_order(table: Table) -> None:
    """Each file is in order, and no two of a partition overlap."""
    ranges: dict[str, list[tuple[int, int]]] = {part: [] for part in PARTS}
    for file in oracle.live_files(table):
        rows = pq.read_table(local_path(file.path), columns=["part", "rank"])
        (part,) = rows.column("part").unique().to_pylist()
        ranks = rows.column("rank").to_numpy()
        assert (np.diff(ranks) >= 0).all(), file.path
        ranges[part].append((int(ranks[0]), int(ranks[-1])))
    for ordered in map(sorted, ranges.values()):
        assert all(one[1] <= next_[0] for one, next_ in itertools.pairwise(ordered))
