"""Written files: row groups, pages, encodings, filters, counts and bounds, as the properties of the table want them."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    UUIDType,
)

from amoro_core.errors import DataFileMissing, TableRefused, UnreadableFile
from amoro_core.files.parquet.reading import open_parquet, read_facts
from amoro_core.files.row_groups.parquet_format import Bytes, FileMetaData
from amoro_core.files.schema.schemas import arrow_schema
from amoro_core.model.commits import FileFacts
from amoro_core.model.files import ColumnMetrics, DataFile
from tests.unit.rewrite.builders import NS, access_to, context, data_file, footer_of, run, task

Properties = Mapping[str, str]


def rewritten(root: Path, schema: Schema, rows: Mapping[str, Sequence[Any]] | pa.Table, **properties: Any) -> DataFile:
    """The file that these rows are written to; properties begin with `write.parquet.`, `_` is `-` in them."""
    kind = arrow_schema(schema)
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pydict(dict(rows), schema=kind)
    told = {f"write.parquet.{key.replace('_', '-')}": str(value) for key, value in properties.items()}
    return written_by(root, schema, table, told)


def written_by(root: Path, schema: Schema, table: pa.Table, properties: Properties) -> DataFile:
    source = data_file(root, list(table.schema), table, version="2.6")
    (made,) = run(task(context(root, schema, properties=dict(properties)), [source])).data_files
    return made


def row_groups(file: DataFile) -> list[pq.RowGroupMetaData]:
    footer = pq.read_metadata(file.path)
    return [footer.row_group(number) for number in range(footer.num_row_groups)]


def chunks(file: DataFile) -> dict[str, pq.ColumnChunkMetaData]:
    """The column chunks of the first row group by their paths."""
    group = row_groups(file)[0]
    found = [group.column(index) for index in range(group.num_columns)]
    return {one.path_in_schema: one for one in found}


def columns_with(file: DataFile, said: str) -> list[str]:
    return [path for path, one in chunks(file).items() if getattr(one, said)]


N = Schema(NestedField(1, "n", LongType()))


def test_row_groups_are_bounded_by_rows_and_by_bytes_of_measured_rows(tmp_path: Path) -> None:
    file = rewritten(tmp_path, NS, {"n": range(70), "s": ["x"] * 70}, row_group_limit=30)
    assert [group.num_rows for group in row_groups(file)] == [30, 30, 10]
    assert (file.record_count, len(file.split_offsets)) == (70, 3)
    assert pq.read_table(file.path)["n"].to_pylist() == list(range(70))
    file = rewritten(tmp_path, N, {"n": range(1000)}, row_group_size_bytes=1600)
    *sizes, _ = [group.num_rows for group in row_groups(file)]
    assert set(sizes) <= set(range(150, 201))
    assert len(set(sizes)) == 1


def test_pages_are_as_large_as_configured(tmp_path: Path) -> None:
    def pages(**properties: int) -> int:
        file = rewritten(tmp_path, N, {"n": range(10_000)}, dict_size_bytes=1, **properties)
        (group,) = Bytes(footer_of(file.path)[1]).read(FileMetaData, 0)[0].row_groups
        return sum(one.count for one in group.columns[0].meta_data.encoding_stats if one.page_type in (0, 3))

    whole = pages()
    assert pages(page_size_bytes=20_000) >= whole + 2  # of 80,000
    assert pages(page_row_limit=500) >= whole + 18  # of 10,000


@pytest.mark.parametrize("page_bytes", [1, 4, 1024])
def test_tiny_pages_lose_no_list(tmp_path: Path, page_bytes: int) -> None:
    schema = Schema(NestedField(1, "tags", ListType(2, StringType())))
    file = rewritten(tmp_path, schema, {"tags": [["a"]]}, page_size_bytes=page_bytes)
    assert pq.read_table(file.path).to_pylist() == [{"tags": ["a"]}]


@pytest.mark.parametrize(
    ("codec", "low", "high"), [("zstd", 1, 19), ("gzip", 1, 9), ("brotli", 0, 9), ("snappy", 1, 5), ("lz4", 1, 5)]
)
def test_a_higher_level_makes_smaller_files_where_the_codec_has_levels(
    tmp_path: Path, codec: str, low: int, high: int
) -> None:
    texts = [f"{n * 7919 % 9973:06} some text {n % 13} and more" for n in range(20_000)]
    files = [
        rewritten(tmp_path, NS, {"n": range(20_000), "s": texts}, compression_codec=codec, compression_level=level)
        for level in (low, high)
    ]
    for file in files:
        assert (chunks(file)["s"].compression, chunks(file)["s"].has_offset_index) == (codec.upper(), True)
    smaller = files[1].size_bytes < files[0].size_bytes
    assert smaller == (codec not in ("snappy", "lz4"))
    assert chunks(rewritten(tmp_path, NS, {"n": [1], "s": ["x"]}, compression_codec="UNCOMPRESSED"))["s"].compression \
        == "UNCOMPRESSED"  # fmt: skip


# Dictionaries and levels, column by column

ROWS = 70_000
KINDS = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "kind", StringType()),
    NestedField(3, "flag", BooleanType()),
    NestedField(4, "tags", ListType(5, StringType())),
    NestedField(6, "uid", UUIDType()),
    NestedField(7, "in", StructType(NestedField(8, "n", LongType()))),
)


def kinds(count: int) -> pa.Table:
    numbers = np.arange(count)
    uids = pa.array([int(number).to_bytes(16, "big") for number in numbers], pa.binary(16))
    columns = [
        pa.array(numbers),
        pa.array(["a", "b"]).take(numbers % 2),
        pa.array(numbers % 2 == 0),
        pa.array([["x"]] * count),
        pa.ExtensionArray.from_storage(pa.uuid(), uids),
        pa.StructArray.from_arrays([pa.array(numbers)], ["n"]),
    ]
    kind = arrow_schema(KINDS)
    arrays = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(columns, kind, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=kind)


def test_columns_of_ever_new_values_get_no_dictionary(tmp_path: Path) -> None:
    for limit in (100_000, 2 << 20):
        file = rewritten(tmp_path, KINDS, kinds(ROWS), dict_size_bytes=limit)
        assert columns_with(file, "has_dictionary_page") == ["kind", "tags.list.element", "in.n"]
    assert "id" in columns_with(rewritten(tmp_path, KINDS, kinds(1000)), "has_dictionary_page")  # too few tell nothing


def test_bloom_filters_are_made_for_the_columns_that_want_them(tmp_path: Path) -> None:
    prefix = "write.parquet.bloom-filter-"
    wanted = {f"{prefix}enabled.column.{name}": "TRUE" for name in ("id", "tags.element", "in.n", "flag", "gone", "in")}
    file = written_by(tmp_path, KINDS, kinds(100), {**wanted, f"{prefix}enabled.column.kind": "false"})
    assert columns_with(file, "bloom_filter_offset") == ["id", "tags.list.element", "in.n"]
    lengths = []
    for more in ({}, {f"{prefix}fpp.column.n": "0.5"}, {f"{prefix}max-bytes": "4096"}):
        table = pa.table([pa.array(range(20_000))], schema=arrow_schema(N))
        file = written_by(tmp_path, N, table, {f"{prefix}enabled.column.n": "true", **more})
        lengths.append(chunks(file)["n"].bloom_filter_length)
    assert lengths[0] > lengths[1] > 4096 + 64 >= lengths[2] > 0  # with its header


def long(number: int) -> bytes:
    return struct.pack("<q", number)


def metrics_of(root: Path, schema: Schema, columns: list[pa.Array], mode: str = "truncate(16)") -> ColumnMetrics:
    """The metrics of a file of these columns, in row groups of two rows."""
    properties = {"write.metadata.metrics.default": mode, "write.parquet.row-group-limit": "2"}
    return written_by(root, schema, pa.Table.from_arrays(columns, schema=arrow_schema(schema)), properties).metrics


def bounds(
    root: Path, kind: PrimitiveType, values: list[Any], mode: str = "truncate(16)"
) -> tuple[bytes | None, bytes | None]:
    schema = Schema(NestedField(1, "c", kind))
    metrics = metrics_of(root, schema, [column(arrow_schema(schema).field(0).type, values)], mode)
    assert metrics.value_counts == {1: len(values)}
    assert metrics.null_value_counts == {1: values.count(None)}
    return metrics.lower_bounds.get(1), metrics.upper_bounds.get(1)


def column(kind: pa.DataType, values: list[Any]) -> pa.Array:
    """Dates and times as the numbers that Iceberg stores, strings as bytes, decimals as their unscaled numbers."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    if pa.types.is_decimal(kind):
        stored = [None if one is None else one.to_bytes(16, "little", signed=True) for one in values]
        return pa.array(stored, pa.binary(16)).view(kind)
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    return pa.array(values, pa.binary()).view(kind) if pa.types.is_string(kind) else pa.array(values, kind)


@pytest.mark.parametrize(
    ("kind", "values", "lower", "upper"),
    [
        # Beyond Python's calendar, which has the years 1 to 9999.
        (DateType(), [-(2**31), 2**31 - 1, 0], struct.pack("<i", -(2**31)), struct.pack("<i", 2**31 - 1)),
        (TimestampType(), [-(2**63) + 1, None, 2**63 - 1], long(-(2**63) + 1), long(2**63 - 1)),
        (DoubleType(), [0.0, 0.0, 0.0, 1e300], struct.pack("<d", -0.0), struct.pack("<d", 1e300)),
        # A row group that does not say its bounds takes those of the column.
        (DoubleType(), [1.0, 2.0, float("nan")], None, None),
        (BinaryType(), [b"a", b"b", b"z" * 5000], None, None),
        (BinaryType(), [b"a\xff" + b"\xff" * 15, b"\xff" * 16 + b"\0"], b"a" + b"\xff" * 15, None),
    ],
    ids=lambda value: str(value)[:14],
)  # fmt: skip
def test_bounds_are_the_values_in_the_form_of_manifests(
    tmp_path: Path, kind: PrimitiveType, values: list[Any], lower: bytes | None, upper: bytes | None
) -> None:
    assert bounds(tmp_path, kind, values) == (lower, upper)


LAST = "\U0010ffff"


@pytest.mark.parametrize(
    ("mode", "values", "lower", "upper"),
    [
        ("truncate(16)", ["é" * 20, "ü" * 16], "é" * 16, "ü" * 16),
        ("truncate(16)", ["é" * 20], "é" * 16, "é" * 15 + "ê"),
        ("truncate(2)", ["a\ud7ffz"], "a\ud7ff", "a\ue000"),  # what follows are surrogates, which are no characters
        ("truncate(2)", ["a" + LAST + "z"], "a" + LAST, "b"),
        ("truncate(2)", [LAST * 2 + "z", "a"], "a", None),
        ("full", ["é" * 20, "b" * 20], "b" * 20, "é" * 20),
        ("counts", ["a"], None, None),
        # No UTF-8
        ("truncate(16)", [b"a", b"\xff\xfe"], None, None),
        ("truncate(16)", [b"a" * 15 + b"\xc3"], None, None),
    ],
)
def test_strings_are_cut_between_characters_and_raised(
    tmp_path: Path, mode: str, values: list[str | bytes], lower: str | None, upper: str | None
) -> None:
    stored = [value.encode() if isinstance(value, str) else value for value in values]
    found = bounds(tmp_path, StringType(), stored, mode)
    assert found == tuple(None if one is None else one.encode() for one in (lower, upper))


def test_members_of_structs_have_bounds_as_columns_have_whatever_their_names(tmp_path: Path) -> None:
    inner = StructType(NestedField(3, "a.b", LongType()), NestedField(4, "list", StringType()))
    schema = Schema(
        NestedField(1, "a", inner), NestedField(5, "list.a", LongType()), NestedField(6, "日 x", LongType())
    )
    rows = [{"a_x2Eb": 1, "list": "p"}, None, {"a_x2Eb": 3, "list": None}]
    columns = [pa.array(rows, arrow_schema(schema).field(0).type), pa.array([7, 8, 9]), pa.array([None, None, 4])]
    metrics = metrics_of(tmp_path, schema, columns)
    assert metrics.lower_bounds == {3: long(1), 4: b"p", 5: long(7), 6: long(4)}
    assert metrics.upper_bounds == {3: long(3), 4: b"p", 5: long(9), 6: long(4)}
    assert metrics.null_value_counts == {3: 1, 4: 2, 5: 0, 6: 2}


@pytest.mark.parametrize(
    ("more", "count"), [({}, 100), ({"write.metadata.metrics.max-inferred-column-defaults": "7"}, 7)]
)
def test_columns_behind_the_first_ones_have_no_inferred_metrics(
    tmp_path: Path, more: dict[str, str], count: int
) -> None:
    schema = Schema(*(NestedField(n, f"c{n}", IntegerType()) for n in range(1, 104)))
    table = pa.Table.from_pydict({f"c{n}": [n] for n in range(1, 104)}, schema=arrow_schema(schema))
    metrics = written_by(tmp_path, schema, table, {"write.metadata.metrics.column.c103": "full", **more}).metrics
    assert set(metrics.value_counts) == set(metrics.lower_bounds) == {*range(1, count + 1), 103}


def test_only_sizes_are_known_of_columns_in_lists_and_maps_and_facts_are_those_of_the_footer(tmp_path: Path) -> None:
    schema = Schema(
        NestedField(1, "s", StructType(NestedField(2, "x", IntegerType()))),
        NestedField(3, "l", ListType(4, StringType(), False)),
        NestedField(5, "m", MapType(6, StringType(), 7, DoubleType(), False)),
    )
    rows = {"s": [{"x": None}, None, {"x": 1}], "l": [["a", "b"], None, []], "m": [[("k", math.nan)], [], None]}
    file = rewritten(tmp_path, schema, {name: values * 2 for name, values in rows.items()}, row_group_limit=3)
    metrics = file.metrics
    assert (metrics.value_counts, metrics.null_value_counts) == ({2: 6}, {2: 4})
    assert (metrics.lower_bounds, metrics.nan_value_counts) == ({2: b"\1\0\0\0"}, {})
    assert set(metrics.column_sizes) == {2, 4, 6, 7}
    access = access_to(tmp_path)
    assert read_facts(access, file.path) == FileFacts(file.size_bytes, 6, {2: 6}, {2: 4})
    whole = Path(file.path).read_bytes()
    length = int.from_bytes(whole[-8:-4], "little") + 28  # as of a signed footer; Arrow reads it without
    padded = tmp_path / "padded.parquet"
    padded.write_bytes(whole[:-8] + bytes(28) + length.to_bytes(4, "little") + whole[-4:])
    assert read_facts(access, str(padded)) == FileFacts(file.size_bytes + 28, 6, {2: 6}, {2: 4})
    with pytest.raises(DataFileMissing):
        read_facts(access, f"{tmp_path}/none.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"no parquet at all")
    with pytest.raises(UnreadableFile, match=r"broken\.parquet"):
        read_facts(access, f"{tmp_path}/broken.parquet")


RATE = "write.parquet.bloom-filter-fpp.column.a"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("write.parquet.compression-codec", "zip"),
        ("write.parquet.compression-level", "99"),
        ("write.parquet.row-group-limit", "0"),
        ("write.parquet.bloom-filter-enabled.column.a", "yes"),
        ("write.metadata.metrics.default", "some"),
        ("write.metadata.metrics.column.a", "truncate(0)"),
        (RATE, "1"),
    ],
)
def test_a_malformed_value_is_refused_with_its_key(tmp_path: Path, key: str, value: str) -> None:
    properties = {key: value, **({RATE.replace("fpp", "enabled"): "true"} if key == RATE else {})}
    table = pa.table({"n": [1]}, schema=arrow_schema(N))
    with pytest.raises(TableRefused) as refused:
        written_by(tmp_path, N, table, properties)
    told = str(refused.value)
    assert (refused.value.reason, key in told, repr(value) in told) == ("configuration", True, True)


# Reading: batches of as many rows as fit in memory, whatever the rows are


def batches(root: Path, rows: int, columns: dict[str, pa.Array], **options: Any) -> list[int]:
    """How many rows are read at once."""
    schema = Schema(
        *(
            NestedField(at, name, LongType() if pa.types.is_integer(one.type) else StringType())
            for at, (name, one) in enumerate(columns.items(), 1)
        )
    )
    table = pa.Table.from_arrays(list(columns.values()), schema=arrow_schema(schema))
    ends = [0]
    run(
        task(context(root, schema), [data_file(root, [], table, **options)]),
        on_progress=lambda done, total: ends.append(done),
    )
    assert ends[-1] == rows
    return [end - start for start, end in pairwise(ends)]


@pytest.mark.parametrize("length", [500, 3000, 6000])  # Parquet writers tell no bounds of values above 4,096 bytes
def test_values_of_a_dictionary_count_as_often_as_they_come_back(tmp_path: Path, length: int) -> None:
    rows = 10_000
    values = pa.array([f"{number:0{length}}" for number in range(10)]).take(pa.array(np.arange(rows) % 10))
    found = batches(tmp_path, rows, {f"c{number}": values for number in range(4)})
    assert 500 < max(found) < 2 * (16 << 20) / (4 * length)


def test_batches_have_few_large_rows_and_many_small_ones(tmp_path: Path) -> None:
    large = pa.array(["x" * (4 << 20) + str(number) for number in range(9)])
    assert max(batches(tmp_path, 9, {"s": large}, use_dictionary=False)) <= 4
    small = {"n": pa.array(range(100_000)), "s": pa.array(["a", "b"]).take(pa.array(np.arange(100_000) % 2))}
    assert batches(tmp_path, 100_000, small) == [1 << 16, 100_000 - (1 << 16)]


@pytest.mark.parametrize("pieces", [1, 2, 3, 7, 40])
def test_every_row_group_is_in_one_piece_of_a_file(tmp_path: Path, pieces: int) -> None:
    path, sizes = tmp_path / "pieces.parquet", [50, 1, 1, 400, 7, 50, 50]
    with pq.ParquetWriter(path, pa.schema([("id", pa.int64())])) as written:
        for size in sizes:
            written.write_table(pa.table({"id": range(size)}), row_group_size=size)
    with open_parquet(access_to(tmp_path), str(path)) as source:
        found = [source.piece(number, pieces) for number in range(pieces)]
    assert [group for groups, _ in found for group in groups] == list(range(len(sizes)))
    assert [rows for _, rows in found] == [sum(sizes[group] for group in groups) for groups, _ in found]
    assert pieces < 2 or max(rows for _, rows in found) < sum(sizes)
