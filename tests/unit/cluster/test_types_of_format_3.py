"""Clustering by nanoseconds and by columns that some files lack, beside columns that are not written."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, TimestampNanoType, UnknownType

from amoro_core.model.clustering import Layout, LayoutKey, Strategy
from tests.unit.cluster.builders import curve, group, linear, run, tables
from tests.unit.rewrite.builders import col, data_file

SCHEMA = Schema(
    NestedField(1, "u", UnknownType()),
    NestedField(2, "id", LongType()),
    NestedField(3, "at", TimestampNanoType()),
    NestedField(4, "c", StringType(), initial_default="m"),
)
COLUMNS = [col("id", pa.int64(), 2), col("at", pa.timestamp("ns"), 3), col("c", pa.string(), 4)]
ROWS = 20_000


@pytest.mark.parametrize("memory", [512 << 20, 2 << 20], ids=["in memory", "through disk"])
@pytest.mark.parametrize("layout", [linear(4, LayoutKey(3, descending=True)), curve(Strategy.ZORDER, 3, 4)])
def test_files_without_a_column_are_ordered_by_its_default(tmp_path: Path, layout: Layout, memory: int) -> None:
    moments = np.random.default_rng(7).integers(-(2**62), 2**62, 2 * ROWS)
    old = {"id": range(ROWS), "at": pa.array(moments[:ROWS]).cast(pa.timestamp("ns"))}
    new = {
        "id": range(ROWS, 2 * ROWS),
        "at": pa.array(moments[ROWS:]).cast(pa.timestamp("ns")),
        "c": ["az"[number % 2] for number in range(ROWS)],
    }
    files = [
        data_file(tmp_path, COLUMNS[:2], old, version="2.6"),
        data_file(tmp_path, COLUMNS, new, version="2.6", row_group_size=4000),
    ]

    output = run(group(tmp_path, SCHEMA, layout, files, outputs=4), memory_limit_bytes=memory)

    found = pa.concat_tables(tables(output))
    assert found.column_names == ["id", "at", "c"]
    assert (output.spill_bytes > 0) == (memory == 2 << 20)
    words = found.column("c").to_pylist()
    numbers = found.column("at").cast(pa.int64()).to_numpy()
    by_id = dict(zip(found.column("id").to_pylist(), zip(numbers.tolist(), words, strict=True), strict=True))
    assert by_id == {
        number: (int(moment), "m" if number < ROWS else "az"[number % 2]) for number, moment in enumerate(moments)
    }
    if layout.strategy is Strategy.LINEAR:
        keys = [(word, -number) for word, number in zip(words, numbers.tolist(), strict=True)]
        assert keys == sorted(keys)
