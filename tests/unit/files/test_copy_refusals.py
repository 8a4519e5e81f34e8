"""Why files are not copied: indexes, bloom filters and histograms that do not agree, and odd layouts that do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from amoro_core.files.bound_merging import CopiedFile
from amoro_core.files.copy_source import NotCopied, bloom_filter, extent
from amoro_core.files.parquet_format import MAGIC, ColumnIndex, OffsetIndex, Struct, decoded, encoded
from amoro_core.model.files import ColumnMetrics
from tests.unit.files.copies import (
    FLAT,
    by_arrow,
    change_footer,
    copied,
    files,
    flat_rows,
    footer_of,
    output,
    source,
    streamed,
)

INDEXED = partial(
    by_arrow,
    write_page_index=True,
    data_page_size=500,
    write_batch_size=100,
    bloom_filter_options={"id": {"ndv": 500, "fpp": 0.01}},
)


def one_file(root: Path) -> Path:
    return files(root, INDEXED, count=1)[0]


def assert_refused(root: Path, path: Path, reason: str) -> None:
    """The file's first row group is refused, read whole and in parts."""
    for opened in (source, streamed):
        result = output(root, FLAT, name=f"{opened.__name__}.parquet")
        with pytest.raises(NotCopied, match=reason):
            result.copy(opened(path), 0, CopiedFile(ColumnMetrics(), 2500))
        result.discard()


def behind(path: Path, content: bytes) -> int:
    """Put the content before the footer; returns where it begins."""
    before, text = footer_of(path)
    path.write_bytes(before + content + text + len(text).to_bytes(4, "little") + MAGIC)
    return len(before)


def in_chunk(footer: Struct, **fields: int | None) -> None:
    vars(footer.row_groups[0].columns[0]).update(fields)


def in_meta(footer: Struct, **fields: int | None) -> None:
    vars(footer.row_groups[0].columns[0].meta_data).update(fields)


def replaced_index(path: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    """Change the bytes of the first column chunk's index of that name, which moves to the end of the file."""
    chunk = source(path).footer.row_groups[0].columns[0]
    at, length = getattr(chunk, f"{name}_offset"), getattr(chunk, f"{name}_length")
    content = change(path.read_bytes()[at : at + length])
    places = {f"{name}_offset": behind(path, content), f"{name}_length": len(content)}
    change_footer(path, partial(in_chunk, **places))


def changed(kind: type[Struct], change: Callable[[Struct], None], content: bytes) -> bytes:
    index = decoded(kind, content)
    change(index)
    return encoded(index)


def no_first_page(index: Struct) -> None:
    index.page_locations[0].first_row_index = 1


def twice_the_same_row(index: Struct) -> None:
    index.page_locations[2].first_row_index = index.page_locations[1].first_row_index


def behind_the_rows(index: Struct) -> None:
    index.page_locations[-1].first_row_index = 1000


def fewer_bounds(index: Struct) -> None:
    index.min_values.pop()


def fewer_counts(index: Struct) -> None:
    index.null_counts.pop()


def other_levels(index: Struct) -> None:
    index.definition_level_histograms = [1] * (3 * len(index.null_pages))


@pytest.mark.parametrize(
    ("kind", "change", "reason"),
    [
        (OffsetIndex, no_first_page, "its offset index is not understood"),
        (OffsetIndex, twice_the_same_row, "its offset index is not understood"),
        (OffsetIndex, behind_the_rows, "its offset index is not understood"),
        (ColumnIndex, fewer_bounds, "its column index has another number of pages"),
        (ColumnIndex, fewer_counts, "its column index has another number of pages"),
        (ColumnIndex, other_levels, "its column index has histograms of other levels"),
    ],
)
def test_a_page_index_that_does_not_agree_is_refused(
    tmp_path: Path, kind: type[Struct], change: Callable[[Struct], None], reason: str
) -> None:
    path, name = one_file(tmp_path), "offset_index" if kind is OffsetIndex else "column_index"
    replaced_index(path, name, bytes)
    copied(tmp_path, FLAT, [path])  # that it moved changes nothing
    replaced_index(path, name, partial(changed, kind, change))
    assert_refused(tmp_path, path, reason)


def unknown_field(index: bytes) -> bytes:
    return index[:-1] + b"\xe5\x02\x00"  # a field far behind the others


def no_index(index: bytes) -> bytes:
    return b"\xff" * len(index)


def endless_list(index: bytes) -> bytes:
    return index[:1] + b"\xfc\xff\xff\xff\x0f"


@pytest.mark.parametrize("name", ["offset_index", "column_index"])
def test_an_unknown_page_index_is_refused(tmp_path: Path, name: str) -> None:
    for change, reason in (
        (unknown_field, f"its {name.replace('_', ' ')} is not understood"),
        (no_index, "its page index can't be read"),
        (endless_list, "its page index can't be read"),
    ):
        path = one_file(tmp_path)
        replaced_index(path, name, change)
        assert_refused(tmp_path, path, reason)


def test_an_offset_without_a_length_is_refused(tmp_path: Path) -> None:
    path = one_file(tmp_path)
    change_footer(path, partial(in_chunk, offset_index_length=None))
    with pytest.raises(NotCopied, match="an index has an offset without a length"):
        source(path)


def test_bloom_filters_that_are_not_understood_are_refused(tmp_path: Path) -> None:
    path = one_file(tmp_path)
    meta = source(path).footer.row_groups[0].columns[0].meta_data
    at, length = meta.bloom_filter_offset, meta.bloom_filter_length
    whole = path.read_bytes()
    for changed, reason in (
        (b"\xff" * 16, "a bloom filter can't be read"),
        (b"\x15\x00", "a bloom filter has another length than it says"),  # no bytes
        (b"\x15\x02", "a bloom filter has another length than it says"),
    ):
        path.write_bytes(whole[:at] + changed + whole[at + len(changed) :])
        assert_refused(tmp_path, path, reason)
    path.write_bytes(whole)
    change_footer(path, partial(in_meta, bloom_filter_length=length - 1))
    assert_refused(tmp_path, path, "a bloom filter has another length than it says")


def test_a_bloom_filter_without_a_length_that_is_cut_is_refused(tmp_path: Path) -> None:
    path = one_file(tmp_path)
    whole = source(path)
    meta = whole.footer.row_groups[0].columns[0].meta_data
    expected = bloom_filter(whole, meta)
    vars(meta).update(bloom_filter_length=None)
    assert bloom_filter(whole, meta) == expected
    end = meta.bloom_filter_offset + 100
    cut = type(whole)(
        lambda at, length: path.read_bytes()[at : min(at + length, end)], None, None, 0, whole.footer, whole.schema
    )
    with pytest.raises(NotCopied, match="a bloom filter is cut short"):
        bloom_filter(cut, meta)


@pytest.mark.parametrize("name", ["definition_level_histogram", "repetition_level_histogram"])
def test_histograms_of_other_levels_are_refused(tmp_path: Path, name: str) -> None:
    path = one_file(tmp_path)

    def widen(footer: Struct) -> None:
        setattr(footer.row_groups[0].columns[0].meta_data.size_statistics, name, [1] * 4)

    assert source(path).footer.row_groups[0].columns[0].meta_data.size_statistics is not None
    change_footer(path, widen)
    with pytest.raises(NotCopied, match="a column has a histogram of other levels"):
        source(path)


def test_chunks_that_lie_in_another_order_or_apart_are_copied(tmp_path: Path) -> None:
    path = files(tmp_path, by_arrow, count=1)[0]
    for column in (0, 2):  # these then lie behind all others, with gaps where they were and between them
        meta = source(path).footer.row_groups[1].columns[column].meta_data
        at, length = extent(meta)
        shift = behind(path, b"gap" + path.read_bytes()[at : at + length]) + 3 - at
        change_footer(path, partial(shifted, column, shift))
    expected = flat_rows(0, 2500)
    assert pq.read_table(path).cast(expected.schema).equals(expected)
    for opened in (source, streamed):
        made = copied(tmp_path, FLAT, [path], opened, name=f"{opened.__name__}.parquet").path
        assert pq.read_table(made).cast(expected.schema).equals(expected)
        assert duckdb.sql(f"select * from '{made}'").to_arrow_table().cast(expected.schema).equals(expected)


def shifted(column: int, shift: int, footer: Struct) -> None:
    meta = footer.row_groups[1].columns[column].meta_data
    meta.data_page_offset += shift
    meta.dictionary_page_offset += shift


def no_dictionary(footer: Struct) -> None:
    for group in footer.row_groups:
        for chunk in group.columns:
            assert chunk.meta_data.dictionary_page_offset is None
            chunk.meta_data.dictionary_page_offset = 0


def older_statistics(footer: Struct) -> None:
    for group in footer.row_groups:
        for column in (0, 3):
            told = group.columns[column].meta_data.statistics
            told.min, told.max, told.min_value, told.max_value = told.min_value, told.max_value, None, None
            told.is_min_value_exact = told.is_max_value_exact = None


@pytest.mark.parametrize("change", [no_dictionary, older_statistics], ids=lambda change: change.__name__)
def test_words_of_older_writers_are_copied(tmp_path: Path, change: Callable[[Struct], None]) -> None:
    paths = files(tmp_path, partial(by_arrow, use_dictionary=False), count=2)
    for path in paths:
        change_footer(path, change)
    made, expected = copied(tmp_path, FLAT, paths).path, flat_rows(0, 5000)
    assert pq.read_table(made).cast(expected.schema).equals(expected)
    assert duckdb.sql(f"select s from '{made}' where id = 4321").fetchall() == [("text 21",)]
    for one, column in product(source(Path(made)).footer.row_groups, (0, 3)):
        told = one.columns[column].meta_data
        if change is no_dictionary:
            assert not told.dictionary_page_offset
        else:
            assert (told.statistics.min_value, told.statistics.min is None) == (None, False)
