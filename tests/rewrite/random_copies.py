"""Random files of several writers, copied by one task: every reader finds the rows, and metrics hold for them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq

from amoro_core.model.files import DataFile, FileFormat
from amoro_core.model.rewrite import CopyRule, RewriteOutput
from tests.rewrite.metrics import assert_holding_metrics
from tests.unit.files.copies import (
    FLAT,
    NESTED,
    Writer,
    by_arrow,
    by_duckdb,
    by_polars,
    flat_rows,
    nested_rows,
    told,
)
from tests.unit.rewrite.builders import context, position_deletes, run, task

_DELTAS = {"id": "DELTA_BINARY_PACKED", "s": "DELTA_BYTE_ARRAY", "f": "BYTE_STREAM_SPLIT"}


def copy_files(root: Path, seed: int, totals: Counter[str]) -> None:
    """Write two to four files, rewrite them in a task that copies, and read the outputs by three readers.

    Raises AssertionError unless the rows are those that are not deleted, in their order.
    """
    chance = random.Random(seed)
    is_nested = chance.random() < 0.3
    schema, make = (NESTED, nested_rows) if is_nested else (FLAT, flat_rows)
    tables: list[pa.Table] = []
    files: list[DataFile] = []
    for number in range(chance.randint(2, 4)):
        path = root / f"in-{number}.parquet"
        table = make(number * 10_000, chance.choice((1, 30, 200, 200, 400)))
        _writer(chance, is_nested)(table, path)
        tables.append(table)
        size, metrics = path.stat().st_size, told(path, schema)
        files.append(DataFile(str(path), FileFormat.PARQUET, 0, (), table.num_rows, size, 1, metrics))
    gone = [
        sorted(chance.sample(range(table.num_rows), chance.choice((0, 0, 1, table.num_rows // 9)))) for table in tables
    ]
    deletes = [position_deletes(root, [(file.path, at) for at in some]) for file, some in zip(files, gone, strict=True)]
    applicable = {number: [number] for number, some in enumerate(gone) if some}
    outputs = chance.choice((1, 1, 2))
    work = task(context(root, schema), files, deletes, applicable=applicable, output_count=outputs)
    output = run(replace(work, copy=CopyRule(0, chance.choice((3, 1024)))))
    kept = (_without(table, some) for table, some in zip(tables, gone, strict=True))
    _require(output, pa.concat_tables(kept), is_nested)
    for file in output.data_files:
        assert_holding_metrics(file, schema)
    totals["files"] += len(files)
    totals["files copied whole"] += output.files_copied


def _without(table: pa.Table, gone: Sequence[int]) -> pa.Table:
    deleted = set(gone)
    return table.filter(pa.array([at not in deleted for at in range(table.num_rows)], pa.bool_()))


def _require(output: RewriteOutput, expected: pa.Table, is_nested: bool) -> None:
    paths = [file.path for file in output.data_files]
    if not expected.num_rows:
        assert not paths
        return
    found = pa.concat_tables(pq.read_table(path, page_checksum_verification=True) for path in paths)
    assert found.cast(expected.schema).equals(expected)
    (ids,) = zip(*duckdb.sql(f"select id from read_parquet({paths!r})").fetchall(), strict=True)
    assert list(ids) == expected.column("id").to_pylist()
    by_duckdb_ = duckdb.sql(f"select * from read_parquet({paths!r})").to_arrow_table()
    by_polars_ = polars.read_parquet(paths).to_arrow()
    if is_nested:  # these have other names for what is within lists and maps
        for one in (by_duckdb_, by_polars_):
            assert one.column("d").cast(expected.schema.field("d").type).equals(expected.column("d"))
            assert one.column("l").to_pylist() == expected.column("l").to_pylist()
    else:
        for one in (by_duckdb_, by_polars_):
            assert one.cast(expected.schema).equals(expected)


def _writer(chance: random.Random, is_nested: bool) -> Writer:
    kind = "arrow" if is_nested else chance.choice(("arrow", "arrow", "arrow in parts", "duckdb", "polars"))
    codec = chance.choice(("none", "snappy", "gzip", "brotli", "lz4", "zstd"))
    if kind == "duckdb":
        codec = {"none": "uncompressed", "lz4": "lz4_raw"}.get(codec, codec)
        return partial(by_duckdb, codec=codec, parquet_version=chance.choice(("v1", "v2")))
    if kind == "polars":
        codec = {"none": "uncompressed", "brotli": "zstd"}.get(codec, codec)
        return partial(by_polars, compression=codec, data_page_size=chance.choice((500, 100_000)))
    options: dict[str, Any] = {
        "compression": codec,
        "data_page_version": chance.choice(("1.0", "2.0")),
        "use_dictionary": chance.random() < 0.5,
        "write_statistics": chance.random() < 0.8,
        "write_page_index": chance.random() < 0.5,
        "write_page_checksum": chance.random() < 0.5,
        "data_page_size": chance.choice((200, 1 << 20)),
        "write_batch_size": chance.choice((20, 1024)),
    }
    if not is_nested and not options["use_dictionary"] and chance.random() < 0.5:
        options["column_encoding"] = _DELTAS
    if chance.random() < 0.3:
        options["bloom_filter_options"] = {"id": {"ndv": 500, "fpp": 0.01}}
    if kind == "arrow in parts":
        return partial(_in_parts, **options)
    return partial(by_arrow, row_group_size=chance.choice((7, 50, 1000)), **options)


def _in_parts(table: pa.Table, path: Path, **options: Any) -> None:
    """A row group without rows first, in between, and last."""
    half = table.num_rows // 2
    with pq.ParquetWriter(path, table.schema, store_schema=False, store_decimal_as_integer=True, **options) as writer:
        for part in (table.slice(0, 0), table.slice(0, half), table.slice(0, 0), table.slice(half), table.slice(0, 0)):
            writer.write_table(part)
