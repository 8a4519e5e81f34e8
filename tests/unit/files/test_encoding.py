"""Dictionaries, bloom filters and pages of written files: which columns get them."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, ListType, LongType, NestedField, StringType, StructType, UUIDType

from amoro_core.files.encoding import SAMPLE_ROWS, bloom_filter_options, compression_levels, dictionary_columns
from amoro_core.files.io import open_access
from amoro_core.files.options import WriterOptions, writer_options
from amoro_core.files.schema import arrow_schema
from amoro_core.files.splicing import SplicedOutput
from amoro_core.files.writing import ParquetOutput

ROWS = 70_000
SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "kind", StringType()),
    NestedField(3, "flag", BooleanType()),
    NestedField(4, "tags", ListType(5, StringType())),
    NestedField(6, "uid", UUIDType()),
    NestedField(7, "in", StructType(NestedField(8, "n", LongType()))),
)


def rows(count: int) -> pa.Table:
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
    kind = arrow_schema(SCHEMA)
    arrays = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(columns, kind, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=kind)


def written(root: Path, table: pa.Table, options: WriterOptions) -> pq.RowGroupMetaData:
    access = open_access({}, str(root), read_locations=[str(root)], write_locations=[str(root)])
    output = ParquetOutput(access, f"{root}/out.parquet", SCHEMA, options)
    for batch in table.to_batches():
        output.write(batch)
    output.close()
    assert pq.read_table(f"{root}/out.parquet").column(0).to_pylist() == table.column(0).to_pylist()
    return pq.read_metadata(f"{root}/out.parquet").row_group(0)


def columns_with(group: pq.RowGroupMetaData, said: str) -> list[str]:
    columns = [group.column(index) for index in range(group.num_columns)]
    return [column.path_in_schema for column in columns if getattr(column, said)]


def test_columns_of_ever_new_values_get_no_dictionary(tmp_path: Path) -> None:
    group = written(tmp_path, rows(ROWS), WriterOptions(dictionary_bytes=100_000))

    assert columns_with(group, "has_dictionary_page") == ["kind", "tags.list.element", "in.n"]


def test_columns_of_ever_new_values_get_none_either_where_it_could_hold_all_of_them() -> None:
    assert dictionary_columns(rows(ROWS), 2 << 20) == ["kind", "flag", "tags.list.element", "in.n"]


@pytest.mark.parametrize(("distinct", "expected"), [(ROWS // 4, True), (ROWS, [])])
@pytest.mark.parametrize("present", [1.0, 0.5])
def test_a_column_gets_one_if_its_values_come_back(distinct: int, expected: object, present: float) -> None:
    chance = np.random.default_rng(5)
    numbers = chance.integers(0, distinct, ROWS) if distinct < ROWS else chance.permutation(ROWS)
    column = pa.array(numbers, mask=chance.random(ROWS) >= present)

    assert dictionary_columns(pa.table({"n": column}), 2 << 20) == expected


def test_values_that_come_back_in_another_file_only_count_as_repeated() -> None:
    """As where each file has a row for each of the same things."""
    files = [pa.table({"n": np.random.default_rng(seed).permutation(17_000)}) for seed in range(5)]

    assert dictionary_columns(pa.concat_tables(files), 2 << 20) is True


NEW, ALIKE = False, True


@pytest.mark.parametrize(
    ("first", "later", "expected"),
    [
        ((20_000, NEW), (20_000, ALIKE), [False, False]),
        ((20_000, NEW), (40_000, ALIKE), [False, False]),
        ((20_000, NEW), (40_001, ALIKE), [False, True]),
        ((10_000, NEW), (20_000, NEW), [True, False]),  # the first one was too small to tell anything
    ],
)
def test_row_groups_of_an_output_get_what_one_before_got_unless_they_are_far_larger(
    tmp_path: Path, first: tuple[int, bool], later: tuple[int, bool], expected: list[bool]
) -> None:
    """Row groups between copied ones are encoded by a writer each."""
    access = open_access({}, str(tmp_path), read_locations=[str(tmp_path)], write_locations=[str(tmp_path)])
    schema, path = Schema(NestedField(1, "id", LongType())), f"{tmp_path}/out.parquet"
    output = SplicedOutput(access, path, schema, WriterOptions(), memory_bytes=1 << 20, checkpoint=lambda: None)
    columns = [pa.array(np.full(count, 7) if alike else np.arange(count)) for count, alike in (first, later)]
    for column in columns:
        output._row_group_bytes = column.nbytes
        output.write(pa.record_batch([column], schema=arrow_schema(schema)))
    output.close()

    footer = pq.read_metadata(path)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    assert [group.num_rows for group in groups] == [first[0], later[0]]
    assert [group.column(0).has_dictionary_page for group in groups] == expected
    assert pq.read_table(path).column(0).combine_chunks() == pa.concat_arrays(columns)


def test_few_rows_are_not_evaluated() -> None:
    assert dictionary_columns(rows(1000), 1) is True


#: As few as levels are compared for.
LEVEL_ROWS = 16 << 12


@cache
def texts(count: int) -> pa.Table:
    """Random digits, in which no level finds repeats, and words, of which level 3 makes less than level 1."""
    chance = np.random.default_rng(2)
    digits = [chance.bytes(16).hex() for _ in range(count)]
    words = [" ".join(f"word{number}" for number in chance.integers(0, 300, 6)) for _ in range(count)]
    inner = pa.StructArray.from_arrays([pa.array(digits), pa.array(words)], ["a.b", "words"])
    return pa.table({"digits": digits, "words": words, "in": inner, "tags": [[text] for text in digits]})


def test_a_column_gets_the_lower_level_where_it_is_no_larger_by_it() -> None:
    levels = compression_levels(texts(LEVEL_ROWS), 1, 3, {"compression": "zstd", "use_dictionary": False})

    assert levels == {"digits": 1, "words": 3, "in.a.b": 1, "in.words": 3, "tags.list.element": 1}


def test_a_column_that_no_level_changes_gets_the_lower_one() -> None:
    equal = pa.table({"n": np.zeros(LEVEL_ROWS, np.int64)})

    assert compression_levels(equal, 1, 3, {"compression": "zstd"}) == {"n": 1}


def test_rows_from_the_middle_decide() -> None:
    words = texts(LEVEL_ROWS)["words"].slice(0, SAMPLE_ROWS)
    others = pa.nulls(8 * SAMPLE_ROWS, pa.string())
    column = pa.chunked_array([others, *words.chunks, others])

    assert compression_levels(pa.table({"words": column}), 1, 3, {"compression": "zstd"}) == {"words": 3}


@pytest.mark.parametrize(("rows", "expected"), [(LEVEL_ROWS, 1 << 12), (3 * LEVEL_ROWS, 3 << 12), (1 << 19, 1 << 14)])
def test_levels_are_compared_by_few_of_the_rows(rows: int, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    written = list[int]()

    def write(writer: pq.ParquetWriter, table: pa.Table) -> None:
        written.append(table.num_rows)
        write_table(writer, table)

    write_table = pq.ParquetWriter.write_table
    monkeypatch.setattr(pq.ParquetWriter, "write_table", write)
    compression_levels(pa.table({"n": np.arange(rows)}), 1, 3, {"compression": "zstd"})

    assert written == [expected, expected]


def test_few_rows_get_the_higher_level() -> None:
    assert compression_levels(texts(LEVEL_ROWS).slice(1), 1, 3, {"compression": "zstd"}) == 3


@pytest.mark.parametrize(("properties", "digits_level"), [({}, 1), ({"write.parquet.compression-level": "3"}, 3)])
def test_levels_of_columns_are_those_of_the_file(tmp_path: Path, properties: dict[str, str], digits_level: int) -> None:
    table = texts(LEVEL_ROWS).select(["digits", "words"])
    schema = Schema(NestedField(1, "digits", StringType()), NestedField(2, "words", StringType()))
    access = open_access({}, str(tmp_path), read_locations=[str(tmp_path)], write_locations=[str(tmp_path)])
    output = ParquetOutput(access, f"{tmp_path}/out.parquet", schema, writer_options(properties))
    output.write(table.cast(arrow_schema(schema)).combine_chunks().to_batches()[0])
    output.close()

    group = pq.read_metadata(f"{tmp_path}/out.parquet").row_group(0)
    sizes = [group.column(number).total_compressed_size for number in range(2)]
    assert sizes == [column_bytes(table, "digits", digits_level), column_bytes(table, "words", 3)]
    assert column_bytes(table, "digits", 1) < column_bytes(table, "digits", 3)
    assert pq.read_table(f"{tmp_path}/out.parquet").to_pylist() == table.to_pylist()


def column_bytes(table: pa.Table, name: str, level: int) -> int:
    sink = pa.BufferOutputStream()
    pq.write_table(
        table.select([name]),
        sink,
        compression="zstd",
        compression_level=level,
        use_dictionary=False,
        max_rows_per_page=20_000,
        write_page_index=True,
        write_page_checksum=True,
    )
    return int(pq.read_metadata(pa.BufferReader(sink.getvalue())).row_group(0).column(0).total_compressed_size)


def test_bloom_filters_are_made_for_the_columns_that_want_them(tmp_path: Path) -> None:
    wanted = {f"write.parquet.bloom-filter-enabled.column.{name}": "true" for name in ("id", "tags.element", "in.n")}

    group = written(tmp_path, rows(100), writer_options(wanted))

    assert columns_with(group, "bloom_filter_offset") == ["id", "tags.list.element", "in.n"]


@pytest.mark.parametrize(
    ("rate", "most_bytes", "expected"),
    [(0.01, 1 << 20, 1000), (0.01, 100, 82), (0.01, 1, 1)],
)
def test_a_bloom_filter_has_at_most_the_bytes_of_the_property(rate: float, most_bytes: int, expected: int) -> None:
    options = WriterOptions(bloom_filters={"id": rate}, bloom_filter_bytes=most_bytes)

    assert bloom_filter_options(SCHEMA, options, 1000) == {"id": {"ndv": expected, "fpp": rate}}


def test_no_bloom_filter_is_made_of_booleans_and_of_what_is_no_column() -> None:
    options = WriterOptions(bloom_filters={"flag": 0.01, "gone": 0.01, "in": 0.01})

    assert bloom_filter_options(SCHEMA, options, 1000) == {}


def test_a_bloom_filter_is_no_larger_than_the_property_says(tmp_path: Path) -> None:
    properties: dict[str, Any] = {
        "write.parquet.bloom-filter-enabled.column.id": "true",
        "write.parquet.bloom-filter-max-bytes": "4096",
    }

    group = written(tmp_path, rows(ROWS), writer_options(properties))

    assert 0 < group.column(0).bloom_filter_length <= 4096 + 64  # and its header


@pytest.mark.parametrize("page_bytes", [1, 4, 1024])
def test_tiny_pages_lose_no_list(tmp_path: Path, page_bytes: int) -> None:
    schema = Schema(NestedField(1, "tags", ListType(2, StringType())))
    access = open_access({}, str(tmp_path), read_locations=[str(tmp_path)], write_locations=[str(tmp_path)])
    output = ParquetOutput(access, f"{tmp_path}/out.parquet", schema, WriterOptions(page_bytes=page_bytes))
    kind = arrow_schema(schema)
    output.write(pa.RecordBatch.from_arrays([pa.array([["a"]], kind.field(0).type)], schema=kind))

    output.close()

    assert pq.read_table(f"{tmp_path}/out.parquet").to_pylist() == [{"tags": ["a"]}]
