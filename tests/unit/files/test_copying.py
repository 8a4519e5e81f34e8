"""Row groups copied byte for byte: what readers see afterwards, and what is not copied."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField

from amoro_core.errors import AttemptAbandoned, CheckFailed
from amoro_core.files import behind_rows, splicing
from amoro_core.files.bound_merging import CopiedFile
from amoro_core.files.copy_pages import verify_pages
from amoro_core.files.copy_source import FooterSchema, Leaf, NotCopied, bloom_filter, extent, open_source, page_index
from amoro_core.files.parquet_format import (
    Bytes,
    ColumnMetaData,
    DataPage,
    FileMetaData,
    PageHeader,
    Struct,
    decoded,
    encoded,
    is_known,
)
from amoro_core.files.schema import arrow_schema
from amoro_core.files.splicing import CREATED_BY
from amoro_core.model.files import ColumnMetrics
from tests.unit.files.copies import (
    FLAT,
    NESTED,
    WRITERS,
    Writer,
    by_arrow,
    by_duckdb,
    by_polars,
    change_footer,
    copied,
    files,
    flat_rows,
    footer_of,
    nested_rows,
    output,
    source,
    streamed,
    with_footer,
)


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS.keys())
def test_readers_see_the_rows_of_all_files_in_order(tmp_path: Path, writer: Writer) -> None:
    paths = files(tmp_path, writer)
    written = copied(tmp_path, FLAT, paths)
    expected = flat_rows(0, 7500)
    assert pq.read_table(written.path).cast(expected.schema).equals(expected)
    assert duckdb.sql(f"select * from '{written.path}'").to_arrow_table().cast(expected.schema).equals(expected)
    groups = [pq.ParquetFile(path).metadata.num_row_groups for path in paths]
    assert pq.ParquetFile(written.path).metadata.num_row_groups == sum(groups) > len(paths)
    assert (written.record_count, written.size_bytes) == (7500, Path(written.path).stat().st_size)


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS.keys())
def test_footers_of_all_writers_are_the_same_bytes_when_encoded_again(tmp_path: Path, writer: Writer) -> None:
    (path,) = files(tmp_path, writer, count=1)
    text = footer_of(path)[1]
    assert is_known(decoded(FileMetaData, text), text)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_nested_columns_are_copied(tmp_path: Path, version: str) -> None:
    paths = files(tmp_path, partial(by_arrow, data_page_version=version, write_page_index=True), nested_rows)
    written = copied(tmp_path, NESTED, paths)
    expected = nested_rows(0, 7500)
    assert pq.read_table(written.path).equals(expected)
    said = duckdb.sql(f"select sum(len(l)), count(r.b), sum(big) from '{written.path}'").fetchall()
    assert said == duckdb.sql("select sum(len(l)), count(r.b), sum(big) from expected").fetchall()


def test_files_of_several_writers_and_codecs_share_an_output(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.parquet" for number in range(4)]
    writers = (by_arrow, by_duckdb, by_polars, partial(by_arrow, compression="zstd"))
    for number, (writer, path) in enumerate(zip(writers, paths, strict=True)):
        writer(flat_rows(number * 2000, 2000), path)
    written = copied(tmp_path, FLAT, paths)
    expected = flat_rows(0, 8000)
    assert pq.read_table(written.path).cast(expected.schema).equals(expected)
    assert duckdb.sql(f"select * from '{written.path}'").to_arrow_table().cast(expected.schema).equals(expected)
    assert decoded(FileMetaData, footer_of(written.path)[1]).created_by == CREATED_BY


def test_the_name_of_one_writer_is_kept(tmp_path: Path) -> None:
    written = copied(tmp_path, FLAT, files(tmp_path, by_polars))
    assert decoded(FileMetaData, footer_of(written.path)[1]).created_by.startswith(b"Polars (python) version")


def test_row_groups_without_rows_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    rows = flat_rows(0, 300)
    with pq.ParquetWriter(path, rows.schema, store_schema=False) as writer:
        for part in (rows.slice(0, 0), rows.slice(0, 200), rows.slice(0, 0), rows.slice(200)):
            writer.write_table(part)
    assert pq.ParquetFile(path).metadata.num_row_groups == 4
    written = copied(tmp_path, FLAT, [path])
    assert pq.ParquetFile(written.path).metadata.num_row_groups == 2
    assert pq.read_table(written.path).equals(rows)


def test_the_page_indexes_of_a_large_file_are_read_at_once(tmp_path: Path) -> None:
    (path,) = files(tmp_path, partial(by_arrow, write_page_index=True), count=1)
    content, reads = path.read_bytes(), list[int]()

    def read(at: int, length: int) -> bytes:
        reads.append(at)
        return content[at : at + length]

    one = open_source(read, len(content))
    opened = len(reads)
    for group in one.footer.row_groups:
        for leaf, chunk in zip(one.leaves, group.columns, strict=True):
            assert page_index(one, leaf, chunk, group.num_rows) == page_index(source(path), leaf, chunk, group.num_rows)
    # The last bytes, the first ones, the footer, all indexes.
    assert (opened, len(reads)) == (4, 4)


def test_a_large_file_is_copied_from_a_stream_as_from_memory(tmp_path: Path) -> None:
    paths = files(tmp_path, partial(by_arrow, write_page_index=True, write_page_checksum=True))
    whole = copied(tmp_path, FLAT, paths, name="whole.parquet")
    parts = copied(tmp_path, FLAT, paths, streamed, name="parts.parquet")
    assert Path(whole.path).read_bytes() == Path(parts.path).read_bytes()
    assert whole.metrics == parts.metrics


def test_page_indexes_point_to_the_pages_that_were_copied(tmp_path: Path) -> None:
    paths = files(tmp_path, partial(by_arrow, write_page_index=True, max_rows_per_page=100, write_batch_size=50))
    written = copied(tmp_path, FLAT, paths)
    one = source(Path(written.path))
    content, pages = Path(written.path).read_bytes(), 0
    for group in one.footer.row_groups:
        for leaf, chunk in zip(one.leaves, group.columns, strict=True):
            index = page_index(one, leaf, chunk, group.num_rows)
            assert index is not None
            begin, _ = extent(chunk.meta_data)
            verify_pages(Bytes(content), memoryview(content), leaf, chunk.meta_data, begin, index[0])
            pages += len(index[0].page_locations)
    # 2,500 rows of a file in pages of 100, for each of four columns.
    assert pages == 3 * 25 * 4


def test_readers_skip_as_many_row_groups_and_pages_as_before(tmp_path: Path) -> None:
    (path,) = files(tmp_path, partial(by_arrow, write_page_index=True, max_rows_per_page=100), count=1)
    written = copied(tmp_path, FLAT, [path])
    kept = ["row_groups_pruned_statistics=3 total → 1 matched", "page_index_rows_pruned=1.00 K total → 100 matched"]
    for place in (path, written.path):
        context = datafusion.SessionContext()
        context.register_parquet("t", str(place))
        plan = context.sql("explain analyze select * from t where id between 1210 and 1220").to_arrow_table()
        said = " ".join(plan.column("plan").to_pylist())
        assert [words for words in kept if words in said] == kept


def test_bloom_filters_exclude_the_same_row_groups(tmp_path: Path) -> None:
    # Ids of a file are all even or all odd, so that bounds don't exclude them.
    paths = [tmp_path / f"{number}.parquet" for number in range(2)]
    for number, path in enumerate(paths):
        rows = pa.Table.from_pylist(
            [{"id": 2 * n + number, "s": None, "f": None, "i": None} for n in range(1000)], schema=arrow_schema(FLAT)
        )
        by_arrow(rows, path, bloom_filter_options={"id": {"ndv": 1000, "fpp": 0.001}})
    written = copied(tmp_path, FLAT, paths, properties={"write.parquet.bloom-filter-enabled.column.id": "true"})
    probe = f"select bloom_filter_excludes from parquet_bloom_probe('{written.path}', 'id', {{}})"
    assert duckdb.sql(probe.format(500)).fetchall() == [(False,), (True,)]
    assert duckdb.sql(probe.format(501)).fetchall() == [(True,), (False,)]


def test_filters_and_indexes_lie_where_the_footer_of_an_output_says(tmp_path: Path) -> None:
    filters = {"bloom_filter_options": {"id": {"ndv": 1000, "fpp": 0.01}, "i": {"ndv": 100, "fpp": 0.01}}}
    paths = files(tmp_path, partial(by_arrow, write_page_index=True, **filters))
    written = Path(copied(tmp_path, FLAT, paths).path)
    text = footer_of(written)[1]
    assert is_known(decoded(FileMetaData, text), text)
    found = source(written)
    inputs = [(one, group) for path in paths for one in [source(path)] for group in one.footer.row_groups]
    for (one, theirs), ours in zip(inputs, found.footer.row_groups, strict=True):
        for leaf, chunk, was in zip(found.leaves, ours.columns, theirs.columns, strict=True):
            assert bloom_filter(found, chunk.meta_data) == bloom_filter(one, was.meta_data)
            index, old = (page_index(which, leaf, it, ours.num_rows) for which, it in ((found, chunk), (one, was)))
            assert index is not None
            assert old is not None
            assert index[1] == old[1]
            assert index[0].page_locations[0].offset == chunk.meta_data.data_page_offset


def test_a_file_without_a_wanted_bloom_filter_is_not_copied(tmp_path: Path) -> None:
    paths = files(tmp_path, by_arrow)
    with pytest.raises(NotCopied, match="it lacks a bloom filter that the table wants"):
        copied(tmp_path, FLAT, paths, properties={"write.parquet.bloom-filter-enabled.column.id": "true"})


def test_rows_encoded_between_copies_keep_their_place(tmp_path: Path) -> None:
    first, second = files(tmp_path, by_polars, count=2)
    result = output(tmp_path, FLAT)
    for path, begin in ((first, 2500), (second, 9000)):
        one = source(path)
        file = CopiedFile(ColumnMetrics(), sum(one.rows))
        for number in range(len(one.rows)):
            result.copy(one, number, file)
        for batch in flat_rows(begin + 5000, 500).to_batches():
            result.write(batch)
    written = result.close()
    expected = [(0, 2500), (7500, 500), (2500, 2500), (14_000, 500)]
    assert (
        pq.read_table(written.path)
        .cast(arrow_schema(FLAT))
        .equals(pa.concat_tables([flat_rows(*one) for one in expected]))
    )
    assert decoded(FileMetaData, footer_of(written.path)[1]).created_by == CREATED_BY
    # Nothing is told of the copied ones, so no column has bounds.
    assert (written.metrics.lower_bounds, written.metrics.upper_bounds) == ({}, {})
    assert written.metrics.value_counts == {1: 6000, 2: 6000, 3: 6000, 4: 6000}


def random_rows(count: int) -> pa.Table:
    """Rows that no codec makes much smaller."""
    chance = random.Random(count)
    rows = flat_rows(0, count)
    return rows.set_column(
        1, rows.schema.field(1), pa.array([f"{chance.getrandbits(400):0100x}" for _ in range(count)])
    )


def test_rows_between_copies_are_written_while_they_are_encoded(tmp_path: Path) -> None:
    """An encoded row group is never in memory as a whole."""
    steps = [0]
    result = output(tmp_path, FLAT, checkpoint=lambda: steps.append(result.written_bytes if steps[1:] else 0))
    for batch in random_rows(60_000).to_batches():
        result.write(batch)
    written = result.close()
    assert pq.read_metadata(written.path).num_row_groups == 1
    assert written.size_bytes > 3 << 20
    assert max(end - begin for begin, end in pairwise(steps)) < 2 << 20
    assert pq.read_table(written.path).equals(random_rows(60_000))


def test_an_output_whose_rows_can_not_be_written_to_their_end_is_deleted(tmp_path: Path) -> None:
    def checkpoint() -> None:
        if armed and result.written_bytes > 1 << 20:
            raise AttemptAbandoned("cancelled")

    armed: list[bool] = []
    result = output(tmp_path, FLAT, checkpoint=checkpoint)
    armed.append(True)
    for batch in random_rows(60_000).to_batches():
        result.write(batch)
    with pytest.raises(AttemptAbandoned):
        result.close()
    assert list(tmp_path.iterdir()) == []


def test_rows_that_do_not_end_where_they_were_written_fail_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = splicing._RowsApart.write

    def write_more(sink: Any, content: Any) -> int:
        if sink._rows is not None:
            sink._rows.write(b"?")
        return write(sink, content)

    monkeypatch.setattr(splicing._RowsApart, "write", write_more)
    result = output(tmp_path, FLAT)
    for batch in random_rows(100).to_batches():
        result.write(batch)
    with pytest.raises(CheckFailed, match="do not end where they were written"):
        result.close()
    assert list(tmp_path.iterdir()) == []


def test_rows_between_copies_have_their_filters_and_indexes(tmp_path: Path) -> None:
    properties = {"write.parquet.bloom-filter-enabled.column.id": "true", "write.parquet.row-group-limit": "2000"}
    result = output(tmp_path, FLAT, properties=properties)
    for batch in flat_rows(0, 5000).to_batches():
        result.write(batch)
    found = source(Path(result.close().path))
    assert found.rows == (2000, 2000, 1000)
    for group in found.footer.row_groups:
        assert bloom_filter(found, group.columns[0].meta_data) is not None
        for leaf, chunk in zip(found.leaves, group.columns, strict=True):
            assert page_index(found, leaf, chunk, group.num_rows) is not None


def test_metrics_hold_for_what_was_copied_and_what_was_encoded(tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    by_arrow(flat_rows(1000, 1000), path)
    one, result = source(path), output(tmp_path, FLAT)
    low, high = struct.pack("<q", 1000), struct.pack("<q", 1999)
    told = ColumnMetrics(nan_value_counts={3: 0}, lower_bounds={1: low, 2: b"text"}, upper_bounds={1: high, 2: b"texu"})
    result.copy(one, 0, CopiedFile(told, 1000))
    for batch in flat_rows(5, 3).to_batches():
        result.write(batch)
    metrics = result.close().metrics
    assert metrics.lower_bounds[1] == struct.pack("<q", 5)
    assert metrics.upper_bounds[1] == high
    assert (metrics.lower_bounds[2], metrics.upper_bounds[2]) == (b"text", b"texu")
    assert 4 not in metrics.lower_bounds
    assert metrics.null_value_counts[2] == 143 + 1


def test_row_groups_without_a_value_take_no_bounds_away(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.parquet" for number in range(3)]
    kind = arrow_schema(FLAT)
    for path, (ids, texts) in zip(paths, (([1, 2], ["a", None]), ([3, 4], [None, None]), ([5], ["c"])), strict=True):
        rows = {"id": ids, "s": texts, "f": [0.5] * len(ids), "i": [None] * len(ids)}
        by_arrow(pa.Table.from_pydict(rows, schema=kind), path)
    metrics = copied(tmp_path, FLAT, paths).metrics
    assert (metrics.lower_bounds[2], metrics.upper_bounds[2]) == (b"a", b"c")
    assert (metrics.lower_bounds[1], metrics.upper_bounds[1]) == (struct.pack("<q", 1), struct.pack("<q", 5))
    assert metrics.null_value_counts == {1: 0, 2: 3, 3: 0, 4: 5}
    assert 4 not in metrics.lower_bounds


FLOATS = Schema(NestedField(1, "id", LongType()), NestedField(2, "f", DoubleType()))


@pytest.mark.parametrize(
    ("nans", "expected"),
    [({}, None), ({2: 0}, 0), ({2: 1}, 1)],
    ids=["not counted", "none", "one"],
)
def test_floats_have_bounds_only_where_their_nans_are_counted(
    tmp_path: Path, nans: dict[int, int], expected: int | None
) -> None:
    path, kind = tmp_path / "in.parquet", arrow_schema(FLOATS)
    by_arrow(pa.Table.from_pydict({"id": [1, 2], "f": [1.0, math.nan]}, schema=kind), path)
    bound = struct.pack("<d", 1.0)
    told = ColumnMetrics(nan_value_counts=nans, lower_bounds={2: bound}, upper_bounds={2: bound})
    result = output(tmp_path, FLOATS)
    result.copy(source(path), 0, CopiedFile(told, 2))
    metrics = result.close().metrics
    assert metrics.nan_value_counts.get(2) == expected
    assert (2 in metrics.lower_bounds, 2 in metrics.upper_bounds) == (expected is not None,) * 2


def test_nans_of_a_file_copied_in_part_are_not_known(tmp_path: Path) -> None:
    path, kind = tmp_path / "in.parquet", arrow_schema(FLOATS)
    rows = pa.Table.from_pydict({"id": [1, 2], "f": [1.0, math.nan]}, schema=kind)
    by_arrow(rows, path, row_group_size=1)
    bound = struct.pack("<d", 1.0)
    told = ColumnMetrics(nan_value_counts={2: 1}, lower_bounds={2: bound}, upper_bounds={2: bound})
    result = output(tmp_path, FLOATS)
    result.copy(source(path), 0, CopiedFile(told, 2))
    metrics = result.close().metrics
    assert (metrics.nan_value_counts, metrics.lower_bounds, metrics.upper_bounds) == ({}, {}, {})


def test_row_groups_beyond_the_limit_are_not_copied(tmp_path: Path) -> None:
    (path,) = files(tmp_path, by_arrow, count=1)
    one, result = source(path), output(tmp_path, FLAT, max_row_groups=2)
    file = CopiedFile(ColumnMetrics(), 2500)
    result.copy(one, 0, file)
    result.copy(one, 1, file)
    with pytest.raises(NotCopied, match="its output has 2 row groups already"):
        result.copy(one, 2, file)
    assert pq.read_table(result.close().path).equals(flat_rows(0, 2000))


def test_a_footer_beyond_the_memory_is_not_written(tmp_path: Path) -> None:
    (path,) = files(tmp_path, by_arrow, count=1)
    result = output(tmp_path, FLAT, memory_bytes=30_000)
    file = CopiedFile(ColumnMetrics(), 2500)
    result.copy(source(path), 0, file)
    with pytest.raises(NotCopied, match="footer would exceed the memory"):
        result.copy(source(path), 1, file)
    result.discard()


def test_bloom_filters_count_as_the_footers_memory(tmp_path: Path) -> None:
    (path,) = files(tmp_path, partial(by_arrow, bloom_filter_options={"id": {"ndv": 100_000, "fpp": 0.01}}), count=1)
    length = source(path).footer.row_groups[0].columns[0].meta_data.bloom_filter_length
    result = output(tmp_path, FLAT, memory_bytes=length + 8 * 4096)
    file = CopiedFile(ColumnMetrics(), 2500)
    result.copy(source(path), 0, file)
    with pytest.raises(NotCopied, match="footer would exceed the memory"):
        result.copy(source(path), 1, file)
    result.discard()


def test_indexes_of_many_row_groups_are_written_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (splicing, behind_rows):
        monkeypatch.setattr(module, "_PIECE_BYTES", 300)
    written = copied(tmp_path, FLAT, files(tmp_path, partial(by_arrow, write_page_index=True)))
    assert pq.read_table(written.path).equals(flat_rows(0, 7500))
    condition = "id = 5001"
    assert duckdb.sql(f"select count(*) from '{written.path}' where {condition}").fetchall() == [(1,)]


def drop_orders(footer: Struct) -> None:
    footer.column_orders = None


def old_writer(footer: Struct) -> None:
    footer.created_by = b"parquet-mr version 1.9.0 (build 38262e2c80015d0935dad20f8e18f2d6f9fbd03c)"


def nameless_writer(footer: Struct) -> None:
    footer.created_by = None


def other_file(footer: Struct) -> None:
    footer.row_groups[0].columns[1].file_path = b"elsewhere.parquet"


def other_id(footer: Struct) -> None:
    footer.schema[2].field_id = 9


def no_id(footer: Struct) -> None:
    footer.schema[1].field_id = None


def renamed(footer: Struct) -> None:
    footer.schema[2].name = b"other"
    for group in footer.row_groups:
        group.columns[1].meta_data.path_in_schema = [b"other"]


def more_rows(footer: Struct) -> None:
    footer.row_groups[0].num_rows += 1
    footer.num_rows += 1


def beyond(footer: Struct) -> None:
    footer.row_groups[-1].columns[-1].meta_data.total_compressed_size += 100_000


def overlapping(footer: Struct) -> None:
    footer.row_groups[0].columns[0].meta_data.total_compressed_size += 1


def other_codec(footer: Struct) -> None:
    footer.row_groups[0].columns[0].meta_data.codec = 6


def other_page(footer: Struct) -> None:
    meta = footer.row_groups[0].columns[0].meta_data
    meta.data_page_offset += 1


def other_index(footer: Struct) -> None:
    one, two = (footer.row_groups[0].columns[number] for number in (0, 2))
    one.offset_index_offset, two.offset_index_offset = two.offset_index_offset, one.offset_index_offset
    one.offset_index_length, two.offset_index_length = two.offset_index_length, one.offset_index_length


REFUSED = {
    drop_orders: "its columns have no order",
    old_writer: "statistics of parquet-mr version 1.9.0 are not believed",
    nameless_writer: "does not say who wrote it",
    other_file: "a column lies in another file",
    other_id: "its columns are not as they would be written: s .*9.* instead of s .*2",
    no_id: "its columns are not as they would be written: id",
    renamed: "its columns are not as they would be written: other",
    more_rows: "a column has another number of values than of rows",
    beyond: "it ends before a part that the footer names|its parts overlap",
    overlapping: "its parts overlap",
    other_codec: "a page is not compressed as the footer says",
    other_page: "its pages are not those that the footer says",
    other_index: "its pages are not those that the offset index says",
}


@pytest.mark.parametrize("change", REFUSED, ids=lambda change: change.__name__)
def test_what_does_not_agree_is_not_copied(tmp_path: Path, change: Callable[[Struct], None]) -> None:
    (path,) = files(tmp_path, partial(by_arrow, write_page_index=True, row_group_size=5000), count=1)
    change_footer(path, change)
    result = output(tmp_path, FLAT)
    with pytest.raises(NotCopied, match=REFUSED[change]):
        result.copy(source(path), 0, CopiedFile(ColumnMetrics(), 2500))


def test_a_footer_with_an_unknown_field_is_not_copied(tmp_path: Path) -> None:
    (path,) = files(tmp_path, by_arrow, count=1)
    text = footer_of(path)[1]
    with_footer(path, text[:-1] + b"\x85\x02\x00")  # field 15 is a 32-bit 1
    assert pq.read_table(path).equals(flat_rows(0, 2500))
    with pytest.raises(NotCopied, match="fields that are not known here"):
        source(path)


def outcome(content: bytes, like: FooterSchema | None) -> object:
    """What the file is as a source of copies, or why it is none."""
    try:
        one = open_source(lambda at, length: content[at : at + length], len(content), content, like)
    except NotCopied as reason:
        return str(reason).partition(":")[0]
    return one.footer, one.leaves, one.agreement


def test_a_schema_that_was_read_before_changes_nothing(tmp_path: Path) -> None:
    one, other = (tmp_path / name for name in ("one.parquet", "other.parquet"))
    by_arrow(flat_rows(0, 100), one)
    by_polars(flat_rows(0, 100), other)
    contents, schemas = [path.read_bytes() for path in (one, other)], [source(path).schema for path in (one, other)]
    assert schemas[0].text != schemas[1].text
    for content, schema in product(contents, schemas):
        assert outcome(content, schema) == outcome(content, None)


@pytest.mark.parametrize("seed", range(3))
def test_a_schema_that_was_read_before_hides_no_damage(tmp_path: Path, seed: int) -> None:
    chance, path = random.Random(seed), tmp_path / "in.parquet"
    by_arrow(flat_rows(0, 100), path, write_page_index=True)
    whole, schema = path.read_bytes(), source(path).schema
    begin = len(footer_of(path)[0])
    shared = 0
    for _ in range(1500):
        content = bytearray(whole)
        at = chance.randrange(begin, len(content))
        content[at] = chance.choice((content[at] ^ (1 << chance.randrange(8)), chance.randrange(256)))
        if chance.random() < 0.1:
            del content[at]
        shared += bytes(content[begin:]).startswith(schema.text)
        assert outcome(bytes(content), schema) == outcome(bytes(content), None)
    assert shared > 500


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" * 4, b"PARE" * 10, b"x" * 100, b"PAR1\xff\xff\xff\x7fPAR1"])
def test_what_is_no_parquet_file_is_not_copied(content: bytes) -> None:
    with pytest.raises(NotCopied):
        open_source(lambda at, length: content[at : at + length], len(content), content)


def test_a_flipped_bit_in_a_page_with_a_checksum_is_not_copied(tmp_path: Path) -> None:
    (path,) = files(tmp_path, partial(by_arrow, write_page_checksum=True), count=1)
    one = source(path)
    begin, length = extent(one.footer.row_groups[1].columns[2].meta_data)
    content = bytearray(path.read_bytes())
    content[begin + length - 5] ^= 1
    path.write_bytes(content)
    for opened in (source, streamed):
        with pytest.raises(NotCopied, match="a page is not as its checksum says"):
            copied(tmp_path, FLAT, [path], opened, name=f"{opened.__name__}.parquet")


def test_a_page_that_ends_with_the_mark_of_its_codec_is_not_copied() -> None:
    values = DataPage(num_values=1, encoding=0, definition_level_encoding=3, repetition_level_encoding=3)
    mark = b"\x28\xb5\x2f\xfd"
    header = PageHeader(type=0, uncompressed_page_size=8, compressed_page_size=4, data_page_header=values)
    content = encoded(header) + mark
    meta = ColumnMetaData(
        encodings=[0], codec=6, num_values=1, total_compressed_size=len(content), data_page_offset=0, type=2
    )
    with pytest.raises(NotCopied, match="a page is not compressed as the footer says"):
        verify_pages(Bytes(content), memoryview(content), Leaf((b"id",), 2, 0, 0), meta, 0, None)


def test_pages_are_not_verified_on_request(tmp_path: Path) -> None:
    (path,) = files(tmp_path, partial(by_arrow, write_page_checksum=True), count=1)
    one = source(path)
    begin, length = extent(one.footer.row_groups[1].columns[2].meta_data)
    content = bytearray(path.read_bytes())
    content[begin + length - 5] ^= 1
    path.write_bytes(content)
    result = output(tmp_path, FLAT, verifies=False)
    result.copy(source(path), 1, CopiedFile(ColumnMetrics(), 2500))
    assert result.close().record_count == 1000


def test_nans_of_a_file_in_two_outputs_are_not_counted_twice(tmp_path: Path) -> None:
    path, kind = tmp_path / "in.parquet", arrow_schema(FLOATS)
    by_arrow(pa.Table.from_pydict({"id": [1, 2], "f": [1.0, math.nan]}, schema=kind), path, row_group_size=1)
    one, file = source(path), CopiedFile(ColumnMetrics(nan_value_counts={2: 1}), 2)
    for number in range(2):
        result = output(tmp_path, FLOATS, name=f"{number}.parquet")
        result.copy(one, number, file)
        assert result.close().metrics.nan_value_counts == {}


def test_an_output_without_rows_is_a_file(tmp_path: Path) -> None:
    written = output(tmp_path, FLAT, copied_path=f"{tmp_path}/copied.parquet").close()
    assert (written.path, written.record_count) == (f"{tmp_path}/out.parquet", 0)
    assert pq.read_table(written.path).equals(flat_rows(0, 0))
