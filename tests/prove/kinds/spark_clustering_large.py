"""One table of more than 10 GB that a Spark cluster clusters as a whole."""

from __future__ import annotations

import itertools
import math
import os
import tempfile
from collections import Counter
from pathlib import Path

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

NAME = "spark-clustering-large"
WHAT = (
    "One table of more than 10 GB in twelve partitions, each of which is a group, is sorted in one process by a "
    "standalone Spark cluster of a master and two workers on this machine, with executors of 512 MB. A mismatch: rows "
    "(by a digest of each) that are missing, changed or too many, a file that is not in order or overlaps another of "
    "its partition, no or a second commit, a file left over."
)
TARGETS = {"megabytes clustered": 10_000}
SECONDS = 1500.0
REPLAYS = True

MB = 1_000_000
PARTS = tuple("abcdefghijkl")
WORDS = 25  # of 64 bits in a payload: noise, so that bytes in memory are bytes on disk
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


def run(seed: int, totals: Counter[str]) -> None:
    # Only Spark's kinds need PySpark.
    from tests.spark_backend.cluster import start_cluster
    from tests.spark_backend.spark import spark_optimizer

    megabytes = int(os.environ.get("AMORO_LARGE_MB", "10500"))
    # On a disk: it is several times the table's size.
    with tempfile.TemporaryDirectory(prefix="amoro-cluster-", ignore_cleanup_errors=True) as made:
        directory = Path(made)
        cluster = start_cluster(directory, workers=2, cores=2)
        installation = install(directory)
        try:
            address = address_of(installation.up())
            table = writer.make_table(installation.catalog, f"db.large{seed}", SCHEMA, BY_PART, properties=PROPERTIES)
            size, digest = _fill(table, megabytes, seed)
            installation.ask("group", "update", "default", "--property", "max-input-file-size-per-thread=64GB")
            spark_optimizer(installation, address, cluster.master_url, settings=SETTINGS)
            planned = installation.ask("optimize", name_of(table), "--type", "cluster", "--columns", "rank")
            process = wait_until(lambda: installation.ended(planned["process_id"]), "the process ends", 3600.0)
            assert process["status"] == "success", process
            snapshots = len(table.refresh().metadata.snapshots)
            assert snapshots == math.ceil(megabytes * MB / _commit_bytes()) + 1
            assert is_optimized(table)
            assert _digest(table) == digest, "rows differ"
            _require_order(table)
            wait_until(lambda: not unreferenced_files(table), "no file is left over")
        finally:
            installation.close()
            cluster.close()
    totals.update({"megabytes clustered": size // MB, "tasks": len(process["tasks"])})


def _commit_bytes() -> int:
    return len(PARTS) * ROWS * (WORDS + 2) * 8


def _fill(table: Table, megabytes: int, seed: int) -> tuple[int, tuple[int, int]]:
    """Append so much of random rows; the bytes of all files, and the digest of all rows."""
    noise, digest = np.random.default_rng(seed), (0, 0)
    for commit in range(math.ceil(megabytes * MB / _commit_bytes())):
        parts = [_rows(noise, part, (commit * len(PARTS) + number) * ROWS) for number, part in enumerate(PARTS)]
        writer.append(table, pa.concat_tables(parts))
        for part in parts:
            digest = _added(digest, part)
    return sum(file.file_size_bytes for file in oracle.live_files(table)), digest


def _rows(noise: np.random.Generator, part: str, first: int) -> pa.Table:
    words = noise.integers(0, 2**64, (ROWS, WORDS), dtype=np.uint64, endpoint=False)
    offsets = np.arange(ROWS + 1, dtype=np.int32) * WORDS * 8
    payload = pa.Array.from_buffers(pa.binary(), ROWS, [None, pa.py_buffer(offsets), pa.py_buffer(words)])
    return pa.table(
        {
            "id": np.arange(first, first + ROWS),
            "part": pa.repeat(part, ROWS),
            "rank": noise.integers(-(2**62), 2**62, ROWS),
            "payload": payload,
        }
    )


def _digest(table: Table) -> tuple[int, int]:
    digest = (0, 0)
    for file in oracle.live_files(table):
        for batch in pq.ParquetFile(local_path(file.path)).iter_batches(100_000):
            digest = _added(digest, pa.Table.from_batches([batch]))
    return digest


def _added(digest: tuple[int, int], rows: pa.Table) -> tuple[int, int]:
    """The digest with these rows: their number, and the sum of a hash of each one's values together."""
    count, total = digest
    payload = rows.column("payload").combine_chunks()
    assert payload.null_count == 0
    words = np.frombuffer(b"".join(payload.to_pylist()), np.uint64).reshape(len(rows), WORDS)
    part = np.array([ord(one) for one in rows.column("part").to_pylist()], np.uint64)
    columns = [rows.column(name).to_numpy().view(np.uint64) for name in ("id", "rank")]
    hashes = np.zeros(len(rows), np.uint64)
    for column in (*columns, part, *words.T):
        hashes = (hashes ^ column) * np.uint64(0x9E3779B97F4A7C15)
        hashes ^= hashes >> np.uint64(29)
    return count + len(rows), (total + int(hashes.sum(dtype=np.uint64))) % 2**64


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
