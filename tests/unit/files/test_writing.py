"""Written Parquet files: layout and metrics; and what their footers say."""

import math
import struct
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from amoro_core.errors import AmoroError, DataFileMissing, UnreadableFile
from amoro_core.files.footers import read_facts
from amoro_core.files.io import FileAccess, open_access
from amoro_core.files.options import writer_options
from amoro_core.files.schema import arrow_schema
from amoro_core.files.writing import ParquetOutput, WrittenFile
from amoro_core.model.commits import FileFacts

NS = Schema(NestedField(1, "n", LongType()), NestedField(2, "s", StringType()))


@pytest.fixture
def access(tmp_path: Path) -> FileAccess:
    return open_access({}, str(tmp_path), read_locations=[str(tmp_path)], write_locations=[str(tmp_path)])


def write(
    access: FileAccess,
    root: Path,
    schema: Schema,
    batches: list[dict[str, list[Any]]],
    properties: dict[str, str] | None = None,
    memory_bytes: int | None = None,
) -> WrittenFile:
    path = f"{root}/out.parquet"
    output = ParquetOutput(access, path, schema, writer_options(properties or {}), memory_bytes=memory_bytes)
    for rows in batches:
        output.write(pa.RecordBatch.from_pydict(rows, schema=arrow_schema(schema)))
    return output.close()


def row_groups(path: str) -> list[int]:
    metadata = pq.ParquetFile(path).metadata
    return [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]


def long(number: int) -> bytes:
    return number.to_bytes(8, "little", signed=True)


def test_batches_are_collected_to_row_groups(access: FileAccess, tmp_path: Path) -> None:
    batches = [{"n": [n] * 7, "s": ["x"] * 7} for n in range(10)]

    written = write(access, tmp_path, NS, batches, {"write.parquet.row-group-limit": "30"})

    assert row_groups(written.path) == [30, 30, 10]
    assert (written.record_count, len(written.split_offsets)) == (70, 3)
    assert pq.read_table(written.path)["n"].to_pylist() == [n for n in range(10) for _ in range(7)]


@pytest.mark.parametrize(("properties", "memory"), [({"write.parquet.row-group-size-bytes": "1600"}, None), ({}, 1600)])
def test_row_groups_are_bounded_by_bytes_of_measured_rows(
    access: FileAccess, tmp_path: Path, properties: dict[str, str], memory: int | None
) -> None:
    schema = Schema(NestedField(1, "n", LongType()))

    written = write(access, tmp_path, schema, [{"n": list(range(1000))}], properties, memory)

    assert row_groups(written.path) == [200] * 5


def test_codec_pages_and_checksums_are_as_configured(access: FileAccess, tmp_path: Path) -> None:
    properties = {"write.parquet.compression-codec": "snappy", "write.parquet.page-row-limit": "10"}

    written = write(access, tmp_path, NS, [{"n": list(range(100)), "s": ["x"] * 100}], properties)

    chunk = pq.ParquetFile(written.path).metadata.row_group(0).column(0)
    assert (chunk.compression, chunk.has_offset_index) == ("SNAPPY", True)


@pytest.mark.parametrize(("codec", "low", "high"), [("zstd", 1, 19), ("gzip", 1, 9), ("brotli", 0, 9)])
def test_a_higher_level_makes_smaller_files(
    access: FileAccess, tmp_path: Path, codec: str, low: int, high: int
) -> None:
    texts = [f"{n * 7919 % 9973:06} some text {n % 13} and more" for n in range(20_000)]
    rows = {"n": list(range(20_000)), "s": texts}

    def size(level: int) -> int:
        properties = {"write.parquet.compression-codec": codec, "write.parquet.compression-level": str(level)}
        written = write(access, tmp_path, NS, [rows], properties)
        chunk = pq.ParquetFile(written.path).metadata.row_group(0).column(1)
        assert chunk.compression == codec.upper()
        Path(written.path).unlink()
        return written.size_bytes

    assert size(high) < size(low)


def test_smaller_pages_are_more_pages(access: FileAccess, tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "n", LongType()))
    batch = pa.RecordBatch.from_pydict({"n": list(range(10_000))}, schema=arrow_schema(schema))

    def pieces(properties: dict[str, str]) -> int:
        """How often something was written: each page is."""
        told: list[int] = []
        options = writer_options({"write.parquet.dict-size-bytes": "1", **properties})
        path = f"{tmp_path}/{uuid.uuid4()}.parquet"
        output = ParquetOutput(access, path, schema, options, checkpoint=lambda: told.append(1))
        output.write(batch)
        output.close()
        return len(told)

    whole = pieces({})
    assert pieces({"write.parquet.page-size-bytes": "20000"}) >= whole + 3  # of 80,000
    assert pieces({"write.parquet.page-row-limit": "500"}) >= whole + 18  # of 10,000


def test_counts_and_bounds_cover_all_row_groups(access: FileAccess, tmp_path: Path) -> None:
    batches = [{"n": [3, None], "s": ["b" * 20, "a"]}, {"n": [-5, 9], "s": [None, "z" * 20]}]

    metrics = write(access, tmp_path, NS, batches, {"write.parquet.row-group-limit": "2"}).metrics

    assert (metrics.value_counts, metrics.null_value_counts) == ({1: 4, 2: 4}, {1: 1, 2: 1})
    assert metrics.lower_bounds == {1: long(-5), 2: b"a"}
    assert metrics.upper_bounds == {1: long(9), 2: b"z" * 15 + b"{"}
    assert set(metrics.column_sizes) == {1, 2}


def test_bounds_are_left_out_where_a_row_group_does_not_say_them(access: FileAccess, tmp_path: Path) -> None:
    batches = [{"n": [1, 2], "s": ["a", "b"]}, {"n": [3, 4], "s": ["c", "z" * 5000]}]

    metrics = write(access, tmp_path, NS, batches, {"write.parquet.row-group-limit": "2"}).metrics

    assert (metrics.lower_bounds, metrics.upper_bounds) == ({1: long(1)}, {1: long(4)})
    assert metrics.value_counts == {1: 4, 2: 4}


def test_a_row_group_of_nulls_leaves_the_others_bounds(access: FileAccess, tmp_path: Path) -> None:
    batches = [{"n": [None, None], "s": ["a", "b"]}, {"n": [3, 4], "s": [None, None]}]

    metrics = write(access, tmp_path, NS, batches, {"write.parquet.row-group-limit": "2"}).metrics

    assert metrics.lower_bounds == {1: long(3), 2: b"a"}
    assert metrics.upper_bounds == {1: long(4), 2: b"b"}


def test_nan_is_counted_and_is_no_bound(access: FileAccess, tmp_path: Path) -> None:
    inner = StructType(NestedField(4, "f", FloatType()))
    schema = Schema(NestedField(1, "d", DoubleType()), NestedField(2, "all", DoubleType()), NestedField(3, "s", inner))
    nan = math.nan
    batches = [
        {"d": [1.0, nan, None], "all": [nan] * 3, "s": [{"f": nan}, None, {"f": 1.0}]},
        {"d": [0.0, nan, -1.0], "all": [nan] * 3, "s": [{"f": nan}, None, None]},
    ]

    metrics = write(access, tmp_path, schema, batches).metrics

    assert metrics.nan_value_counts == {1: 2, 2: 6, 4: 2}
    assert metrics.lower_bounds == {1: struct.pack("<d", -1.0), 4: struct.pack("<f", 1.0)}
    assert metrics.upper_bounds == {1: struct.pack("<d", 1.0), 4: struct.pack("<f", 1.0)}


@pytest.mark.parametrize(
    ("mode", "counts", "lower"),
    [("none", {}, {}), ("counts", {2: 1}, {}), ("truncate(2)", {2: 1}, {2: b"ab"}), ("full", {2: 1}, {2: b"abcdef"})],
)
def test_metrics_modes_are_honoured(
    access: FileAccess, tmp_path: Path, mode: str, counts: dict[int, int], lower: dict[int, bytes]
) -> None:
    properties = {"write.metadata.metrics.default": "none", "write.metadata.metrics.column.s": mode}

    metrics = write(access, tmp_path, NS, [{"n": [1], "s": ["abcdef"]}], properties).metrics

    assert (metrics.value_counts, metrics.lower_bounds) == (counts, lower)
    assert metrics.null_value_counts == dict.fromkeys(counts, 0)


def test_columns_behind_the_first_hundred_have_no_inferred_metrics(access: FileAccess, tmp_path: Path) -> None:
    schema = Schema(*(NestedField(n, f"c{n}", IntegerType()) for n in range(1, 104)))
    rows = {f"c{n}": [n] for n in range(1, 104)}
    properties = {"write.metadata.metrics.column.c103": "full"}

    metrics = write(access, tmp_path, schema, [rows], properties).metrics

    assert set(metrics.value_counts) == {*range(1, 101), 103}
    assert set(metrics.lower_bounds) == {*range(1, 101), 103}


NESTED = Schema(
    NestedField(1, "s", StructType(NestedField(2, "x", IntegerType()))),
    NestedField(3, "l", ListType(4, StringType(), False)),
    NestedField(5, "m", MapType(6, StringType(), 7, DoubleType(), False)),
)
NESTED_ROWS = {"s": [{"x": None}, None, {"x": 1}], "l": [["a", "b"], None, []], "m": [[("k", math.nan)], [], None]}


def test_only_sizes_are_known_of_columns_in_lists_and_maps(access: FileAccess, tmp_path: Path) -> None:
    metrics = write(access, tmp_path, NESTED, [NESTED_ROWS]).metrics

    assert (metrics.value_counts, metrics.null_value_counts) == ({2: 3}, {2: 2})
    assert (metrics.lower_bounds, metrics.nan_value_counts) == ({2: b"\1\0\0\0"}, {})
    assert set(metrics.column_sizes) == {2, 4, 6, 7}


def test_facts_are_those_of_the_footer(access: FileAccess, tmp_path: Path) -> None:
    written = write(access, tmp_path, NESTED, [NESTED_ROWS, NESTED_ROWS], {"write.parquet.row-group-limit": "3"})

    assert read_facts(access, written.path) == FileFacts(written.size_bytes, 6, {2: 6}, {2: 4})


def test_facts_of_a_missing_or_broken_file_are_errors(access: FileAccess, tmp_path: Path) -> None:
    with pytest.raises(DataFileMissing):
        read_facts(access, f"{tmp_path}/none.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"no parquet at all")
    with pytest.raises(UnreadableFile, match=r"broken\.parquet"):
        read_facts(access, f"{tmp_path}/broken.parquet")


def test_a_discarded_file_is_gone(access: FileAccess, tmp_path: Path) -> None:
    output = ParquetOutput(access, f"{tmp_path}/x.parquet", NS, writer_options({}))
    output.write(pa.RecordBatch.from_pydict({"n": [1], "s": ["a"]}, schema=arrow_schema(NS)))

    output.discard()

    assert list(tmp_path.iterdir()) == []


def test_a_file_is_created_when_something_is_written(access: FileAccess, tmp_path: Path) -> None:
    output = ParquetOutput(access, f"{tmp_path}/x.parquet", NS, writer_options({}))
    assert list(tmp_path.iterdir()) == []
    output.close()
    assert pq.read_table(tmp_path / "x.parquet").num_rows == 0


def test_a_file_that_was_there_before_is_left(access: FileAccess, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(b"another's")
    with pytest.raises(AmoroError):
        ParquetOutput(access, str(path), NS, writer_options({})).close()
    ParquetOutput(access, str(path), NS, writer_options({})).discard()
    assert path.read_bytes() == b"another's"
