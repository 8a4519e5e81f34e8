"""Files whose row groups are not copied, each for its reason, and the statistics that must be those of the manifest."""

from __future__ import annotations

import math
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from amoro_core.errors import UnreadableFile
from amoro_core.files.parquet.reading import read_facts
from amoro_core.files.row_groups.checks import CopySource, NotCopied, open_source
from amoro_core.files.row_groups.parquet_format import (
    Bytes,
    ColumnIndex,
    FileMetaData,
    OffsetIndex,
    PageHeader,
    Struct,
    encoded,
)
from amoro_core.files.schema.schemas import arrow_schema
from amoro_core.model.clustering import SUFFIX
from amoro_core.model.files import ColumnMetrics, DataFile
from amoro_core.model.task_payload import RewriteOutput

from .builders import (
    EVERYTHING,
    NS,
    NS_COLUMNS,
    access_to,
    change_footer,
    col,
    context,
    data_file,
    decoded,
    footer_of,
    numbers_of,
    run,
    task,
    with_footer,
)

ROOT = Path(__file__).parents[3]
ROWS = 200
INDEXED = {
    "write_page_index": True,
    "max_rows_per_page": 20,
    "write_batch_size": 10,
    "bloom_filter_options": {"n": {"ndv": 500, "fpp": 0.01}},
}


def indexed(root: Path, **options: Any) -> DataFile:
    """A file with page indexes and a bloom filter, of two row groups."""
    rows = {"n": range(ROWS), "s": [f"text {number}" for number in range(ROWS)]}
    return data_file(root, NS_COLUMNS, rows, row_group_size=ROWS // 2, **{**INDEXED, **options})


def copying(root: Path, *files: DataFile, schema: Schema = NS, **options: Any) -> RewriteOutput:
    """The files, which have other sizes by now, rewritten."""
    given = [replace(file, size_bytes=Path(file.path).stat().st_size) for file in files]
    table = context(root, schema, properties=options.pop("properties", None))
    return run(task(table, given, copy=EVERYTHING), **options)


def opened(content: bytes) -> CopySource | str:
    """What the file is as a source of copies, or why it is none."""
    try:
        return open_source(lambda at, length: content[at : at + length], len(content), content)
    except NotCopied as reason:
        return str(reason)


def assert_refused(root: Path, file: DataFile, reason: str) -> None:
    """Fail unless that is why nothing of the file is copied, and its rows are decoded or damaged."""
    told = opened(Path(file.path).read_bytes())
    try:
        because = copying(root, file).encoded_because or "it was copied"
    except UnreadableFile as error:
        because = reason if file.path in str(error) else str(error)
    assert because.startswith(reason)
    assert not isinstance(told, str) or told == because or because == reason


def chunk(footer: Struct, group: int = 0, column: int = 0) -> Struct:
    found: Struct = footer.row_groups[group].columns[column]
    return found


def set_in(what: str, **fields: Any) -> Callable[[Struct], None]:
    """Sets fields of the first column chunk, or of what it has by that name."""

    def change(footer: Struct) -> None:
        place = chunk(footer)
        for name in what.split(".") if what else ():
            place = getattr(place, name)
        vars(place).update(fields)

    return change


def added(name: str, difference: int, *, column: int = 0) -> Callable[[Struct], None]:
    def change(footer: Struct) -> None:
        meta = chunk(footer, column=column).meta_data
        setattr(meta, name, getattr(meta, name) + difference)

    return change


def more_rows(footer: Struct) -> None:
    footer.row_groups[0].num_rows += 1
    footer.num_rows += 1


def other_index(footer: Struct) -> None:
    one, two = (chunk(footer, column=number) for number in (0, 1))
    one.offset_index_offset, two.offset_index_offset = two.offset_index_offset, one.offset_index_offset
    one.offset_index_length, two.offset_index_length = two.offset_index_length, one.offset_index_length


FOOTERS: Mapping[str, tuple[Callable[[Struct], object], str]] = {
    "no orders": (lambda footer: setattr(footer, "column_orders", None), "its columns have no order"),
    "an old writer": (
        lambda footer: setattr(footer, "created_by", b"parquet-mr version 1.9.0 (build 38262e2c80015d0935dad20f8e)"),
        "statistics of parquet-mr version 1.9.0 are not believed",
    ),
    "no writer": (lambda footer: setattr(footer, "created_by", None), "its footer does not say who wrote it"),
    "another file": (set_in("", file_path=b"elsewhere.parquet"), "a column lies in another file"),
    "another id": (
        lambda footer: setattr(footer.schema[2], "field_id", 9),
        "its columns are not those of the table's schema: s (BYTE_ARRAY as string, field id 9) instead of s (BYTE",
    ),
    "more rows": (more_rows, "a column has another number of values than of rows"),
    "rows elsewhere": (
        lambda footer: setattr(footer, "num_rows", ROWS + 1),
        "its row groups do not have the rows that the footer says",
    ),
    "fewer columns": (lambda footer: footer.row_groups[0].columns.pop(), "a row group has other columns than the"),
    "another column": (set_in("meta_data", path_in_schema=[b"s"]), "a column is not the one that the schema says"),
    "no pages": (set_in("meta_data", total_compressed_size=0), "a column has no pages, or an index page"),
    "an overlap": (added("total_compressed_size", 1), "its parts overlap"),
    "beyond its end": (set_in("meta_data", bloom_filter_offset=1 << 40), "it ends before a part that the footer names"),
    "another codec": (set_in("meta_data", codec=6), "a page is not compressed as the footer says"),
    "another page": (added("data_page_offset", 1), "its pages are not those that the footer says"),
    "another encoding": (set_in("meta_data", encodings=[4]), "a page has an encoding that the footer does not name"),
    "other encodings": (
        lambda footer: setattr(chunk(footer).meta_data.encoding_stats[-1], "count", 99),
        "its pages have other encodings than the footer says",
    ),
    "an index of another": (other_index, "its pages are not those that the offset index says"),
    "an index without a length": (set_in("", offset_index_length=None), "an index has an offset without a length"),
    "definition levels": (
        set_in("meta_data.size_statistics", definition_level_histogram=[1] * 4),
        "a column has a histogram of other levels",
    ),
    "repetition levels": (
        set_in("meta_data.size_statistics", repetition_level_histogram=[1] * 4),
        "a column has a histogram of other levels",
    ),
    "a filter's length": (added("bloom_filter_length", -1), "a bloom filter has another length than it says"),
    "too few elements": (lambda footer: footer.schema.pop(), "its schema ends early"),
    "too many elements": (
        lambda footer: setattr(footer.schema[0], "num_children", 1),
        "its schema has more elements than its tree",
    ),
    "no schema": (lambda footer: footer.schema.clear(), "it has no schema"),
    "no type": (lambda footer: setattr(footer.schema[1], "type", None), "its column b'n' has no type"),
    "no metadata": (set_in("", meta_data=None), "its footer lacks a required field"),
}


UUIDS = Schema(NestedField(1, "u", UUIDType()), NestedField(2, "f", FixedType(4)), NestedField(3, "n", LongType()))
UUID_COLUMNS = [col("u", pa.uuid(), 1), col("f", pa.binary(4), 2), col("n", pa.int64(), 3)]
NARROW = "a column has statistics of another width than its values"


def only_bounds(column: int, **stored: bytes | None) -> Callable[[Struct], object]:
    """Sets bounds of a column and no others."""
    none = dict.fromkeys(("min", "max", "min_value", "max_value"))
    return lambda footer: vars(chunk(footer, column=column).meta_data.statistics).update({**none, **stored})


#: What pyarrow's metadata raises in C++, where it ends the process: histograms and sizes in `column()`, bounds that are
#: too short in `statistics`.
FATAL: Mapping[str, tuple[Callable[[Struct], object], str]] = {
    "definition levels": FOOTERS["definition levels"],
    "repetition levels": FOOTERS["repetition levels"],
    "sizes": (
        set_in("meta_data.size_statistics", unencoded_byte_array_data_bytes=9),
        "a column has sizes of byte arrays, and holds none",
    ),
    "a short uuid": (only_bounds(0, min_value=b"x", max_value=b"x"), NARROW),
    "an empty fixed": (only_bounds(1, min_value=b"", max_value=b"wxyz"), NARROW),
    "a narrow number": (only_bounds(2, min_value=bytes(4), max_value=bytes(4)), NARROW),
    "older bounds": (only_bounds(2, min=bytes(4), max=bytes(4)), NARROW),
}


def rewrite_fatal_footers(root: Path) -> None:
    """Rewrite a file of each kind, and read its facts as the coordinator does."""
    rows = {"u": [bytes([at] * 16) for at in (1, 2, 3)], "f": [b"abcd", b"bcde", None], "n": [1, 2, 3]}
    for name, (change, reason) in FATAL.items():
        file = data_file(root, UUID_COLUMNS, rows)
        change_footer(file.path, change)
        output = copying(root, file, schema=UUIDS)
        assert (output.files_copied, output.encoded_because, numbers_of(output)) == (0, reason, [1, 2, 3]), name
        assert read_facts(access_to(root), file.path).value_counts == {1: 3, 2: 3, 3: 3}, name


def test_statistics_on_which_arrow_ends_the_process_are_not_asked_for(tmp_path: Path) -> None:
    """Such a file counts as one without them: it is read and encoded."""
    code = f"from pathlib import Path; from {__name__} import *; rewrite_fatal_footers(Path({str(tmp_path)!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", FOOTERS)
def test_a_footer_that_does_not_agree_with_its_file_is_refused(tmp_path: Path, name: str) -> None:
    file, (change, reason) = indexed(tmp_path), FOOTERS[name]
    change_footer(file.path, change)
    assert_refused(tmp_path, file, reason)


def test_a_field_that_is_not_known_in_a_footer_or_a_page_header_is_refused(tmp_path: Path) -> None:
    file = indexed(tmp_path)
    before, text = footer_of(file.path)
    with_footer(file.path, before, text[:-1] + b"\x85\x02\x00")  # field 15 is a 32-bit 1
    assert_refused(tmp_path, file, "its footer has fields that are not known here")
    # A checksum that says it has 64 bits is none.
    file = indexed(tmp_path, write_page_checksum=True)
    before, text = footer_of(file.path)
    begin = chunk(decoded(FileMetaData, text)).meta_data.dictionary_page_offset
    header, _ = Bytes(before).read(PageHeader, begin)
    sizes = {name: getattr(header, name) for name in ("type", "uncompressed_page_size", "compressed_page_size")}
    at = begin + len(encoded(PageHeader(**sizes))) - 1
    assert before[at] == 0x15
    with_footer(file.path, before[:at] + b"\x16" + before[at + 1 :], text)
    assert_refused(tmp_path, file, "a page header has fields that are not known here")


@pytest.mark.parametrize("content", [b"PAR1", b"PAR1" * 5, b"PARE" * 10, b"PAR1\xff\xff\xff\x7fPAR1" * 2])
def test_what_is_no_parquet_file_is_neither_copied_nor_read(tmp_path: Path, content: bytes) -> None:
    file = indexed(tmp_path)
    Path(file.path).write_bytes(content)
    assert isinstance(opened(content), str)
    with pytest.raises(UnreadableFile, match=file.path):
        copying(tmp_path, file)


def index_changed(kind: type[Struct], change: Callable[[Struct], object]) -> Callable[[bytes], bytes]:
    def changed(content: bytes) -> bytes:
        index = decoded(kind, content)
        change(index)
        return encoded(index)

    return changed


def first_row(page: int, row: int) -> Callable[[bytes], bytes]:
    return index_changed(OffsetIndex, lambda index: setattr(index.page_locations[page], "first_row_index", row))


#: Changes of the first column's indexes. A field far behind the others is unknown.
INDEXES: Mapping[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "no first page": ("offset_index", first_row(0, 1), "its offset index is not understood"),
    "twice the same row": ("offset_index", first_row(2, 20), "its offset index is not understood"),
    "behind the rows": ("offset_index", first_row(-1, 1000), "its offset index is not understood"),
    "an unknown field": (
        "offset_index",
        lambda text: text[:-1] + b"\xe5\x02\x00",
        "its offset index is not understood",
    ),
    "an unknown field of values": (
        "column_index",
        lambda text: text[:-1] + b"\xe5\x02\x00",
        "its column index is not understood",
    ),
    "no offsets": ("offset_index", lambda text: b"\xff" * len(text), "its page index can't be read"),
    "an endless list": ("column_index", lambda text: text[:1] + b"\xfc\xff\xff\xff\x0f", "its page index can't be"),
    "fewer bounds": (
        "column_index",
        index_changed(ColumnIndex, lambda index: index.min_values.pop()),
        "its column index has another number of pages",
    ),
    "fewer counts": (
        "column_index",
        index_changed(ColumnIndex, lambda index: index.null_counts.pop()),
        "its column index has another number of pages",
    ),
    "other levels": (
        "column_index",
        index_changed(ColumnIndex, lambda index: setattr(index, "definition_level_histograms", [1] * 15)),
        "its column index has histograms of other levels",
    ),
}


@pytest.mark.parametrize("name", INDEXES)
def test_a_page_index_that_does_not_agree_is_refused_and_one_that_moved_is_not(tmp_path: Path, name: str) -> None:
    what, change, reason = INDEXES[name]
    for changed, copied in ((bytes, 1), (change, 0)):
        file = indexed(tmp_path)
        before, text = footer_of(file.path)
        place = chunk(decoded(FileMetaData, text))
        at, length = getattr(place, f"{what}_offset"), getattr(place, f"{what}_length")
        content = changed(before[at : at + length])
        with_footer(file.path, before + content, text)
        change_footer(file.path, set_in("", **{f"{what}_offset": len(before), f"{what}_length": len(content)}))
        output = copying(tmp_path, file)
        assert (output.files_copied, numbers_of(output)) == (copied, list(range(ROWS)))
        assert output.encoded_because.startswith("" if copied else reason)


@pytest.mark.parametrize(
    ("bytes_", "reason"),
    [
        (b"\xff" * 16, "a bloom filter can't be read"),
        (b"\x15\x00", "a bloom filter has another length than it says"),
        (b"\x15\x02", "a bloom filter has another length than it says"),
        (b"\x15\xfe\xff\x7f", "a bloom filter is cut short"),  # of a MiB, where the footer tells no length
    ],
)
def test_a_bloom_filter_that_is_not_understood_is_refused(tmp_path: Path, bytes_: bytes, reason: str) -> None:
    file = indexed(tmp_path)
    before, text = footer_of(file.path)
    at = chunk(decoded(FileMetaData, text)).meta_data.bloom_filter_offset
    with_footer(file.path, before[:at] + bytes_ + before[at + len(bytes_) :], text)
    if "cut short" in reason:
        change_footer(file.path, set_in("meta_data", bloom_filter_length=None))
    assert_refused(tmp_path, file, reason)


def test_a_bloom_filter_is_found_without_its_length_and_missed_where_the_table_wants_one(tmp_path: Path) -> None:
    file, without = indexed(tmp_path), indexed(tmp_path, bloom_filter_options=None)
    change_footer(file.path, set_in("meta_data", bloom_filter_length=None))
    wanted = {"write.parquet.bloom-filter-enabled.column.n": "true"}
    output = copying(tmp_path, file, without, properties=wanted)
    assert (output.files_copied, numbers_of(output)) == (1, [*range(ROWS)] * 2)
    assert output.encoded_because == "it lacks a bloom filter that the table wants"


def first_header(path: str, change: Callable[[Struct], object]) -> None:
    """Change the first page's header, which keeps its length."""
    before, text = footer_of(path)
    meta = chunk(decoded(FileMetaData, text)).meta_data
    begin = meta.dictionary_page_offset or meta.data_page_offset
    header, end = Bytes(before).read(PageHeader, begin)
    change(header)
    changed = encoded(header)
    assert len(changed) == end - begin
    with_footer(path, before[:begin] + changed + before[end:], text)


#: Zstandard's mark alone is no page.
HEADERS: Mapping[str, Callable[[Struct], object]] = {
    "shorter than its codec's mark": lambda header: setattr(header, "compressed_page_size", 4),
    "of another type": lambda header: setattr(header, "type", 1),
    "of a negative size": lambda header: setattr(header, "compressed_page_size", -5),
    "of an unknown encoding of levels": lambda header: setattr(header.data_page_header, "definition_level_encoding", 0),
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_page_that_is_not_as_it_says_is_refused(tmp_path: Path, name: str) -> None:
    file = indexed(tmp_path, compression="zstd", use_dictionary=False, write_page_index=False, max_rows_per_page=10)
    first_header(file.path, HEADERS[name])
    with pytest.raises(UnreadableFile, match=file.path):
        copying(tmp_path, file)


def test_a_dictionary_of_another_size_is_refused(tmp_path: Path) -> None:
    """How many entries it has is in no checksum."""
    file = indexed(tmp_path, compression="none")
    first_header(file.path, lambda header: setattr(header.dictionary_page_header, "num_values", ROWS // 2 - 1))
    assert_refused(tmp_path, file, "a dictionary has another size than its values")


@pytest.mark.parametrize("size", [1, 12_000], ids=["in memory", "a stream"])
def test_a_turned_bit_under_a_checksum_is_never_copied(tmp_path: Path, size: int) -> None:
    """A file of more than a MiB is a stream where there is little memory."""
    texts = [f"{number:0{size}}" for number in range(100)]
    options = {"row_group_size": 10, "use_dictionary": False, "compression": "none"}
    for checked in (True, False):
        file = data_file(tmp_path, NS_COLUMNS, {"n": range(100), "s": texts}, write_page_checksum=checked, **options)
        assert (file.size_bytes > 1 << 20) == (size > 1)
        content = bytearray(Path(file.path).read_bytes())
        content[content.index(f"{57:0{size}}".encode()) + size] ^= 1
        Path(file.path).write_bytes(content)
        if checked:
            with pytest.raises(UnreadableFile, match=file.path):
                copying(tmp_path, file, memory_limit_bytes=16 << 20)
        else:
            assert copying(tmp_path, file, memory_limit_bytes=16 << 20).files_copied == 1


def test_pages_are_not_verified_where_the_rule_says_so(tmp_path: Path) -> None:
    file = indexed(tmp_path, write_page_checksum=True, use_dictionary=False, compression="none")
    content = bytearray(Path(file.path).read_bytes())
    content[content.index(b"text 57") + 6] ^= 1
    Path(file.path).write_bytes(content)
    work = task(context(tmp_path, NS), [file], copy=replace(EVERYTHING, verifies=False))
    assert run(work).files_copied == 1


# Statistics, by which readers skip row groups: no checksum covers them

INT, LONG, FLOAT, DOUBLE = (struct.Struct(f"<{code}").pack for code in "iqfd")
#: A type with its values, ascending.
VALUES: Mapping[str, tuple[IcebergType, Sequence[Any]]] = {
    "boolean": (BooleanType(), [False, True]),
    "int": (IntegerType(), [-(2**31), -1, 0, 300]),
    "long": (LongType(), [-(2**63), -1, 0, 2**40]),
    "date": (DateType(), [date(1960, 1, 1), date(1970, 1, 1), date(2026, 1, 1)]),
    "time": (TimeType(), [time(1), time(2), time(23, 59, 59, 999_999)]),
    "timestamp": (TimestampType(), [datetime(1900, 1, 1), datetime(1970, 1, 1), datetime(2026, 1, 1, 0, 0, 0, 1)]),
    "timestamptz": (TimestamptzType(), [datetime(1900, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)]),
    "timestamp_ns": (TimestampNanoType(), [datetime(1969, 1, 1), datetime(1970, 1, 1), datetime(2026, 1, 1)]),
    "float": (FloatType(), [-math.inf, -1.5, -0.0, 0.5]),
    "double": (DoubleType(), [-1e300, -0.0, 0.1, math.inf]),
    "decimal in 4 bytes": (DecimalType(9, 2), [Decimal("-300.25"), Decimal("0.00"), Decimal("128.00")]),
    "decimal in 8 bytes": (DecimalType(18, 2), [Decimal("-300.25"), Decimal("-0.01"), Decimal("1000000000000.00")]),
    "decimal in more bytes": (DecimalType(30, 2), [Decimal(-(10**25)), Decimal("-0.01"), Decimal(10**20)]),
    "string": (StringType(), ["a", "é" * 20, "\N{PILE OF POO}" * 20]),
    "string with the last character": (StringType(), ["", "b", "b" * 15 + "\U0010ffff" * 9]),
    "binary": (BinaryType(), [b"", b"a", b"\xfe" + b"\xff" * 30]),
    "fixed": (FixedType(3), [b"\0\0\0", b"a\0c", b"\xff\xff\xfe"]),
}
CONTRADICTION = "statistics of column v contradict the manifest"


class Column:
    """A file of one column, and what a manifest tells of it: that of a rewrite of the same rows."""

    def __init__(self, root: Path, kind: IcebergType, values: Sequence[Any], **options: Any) -> None:
        self.root, self.schema = root, Schema(NestedField(1, "v", kind))
        columns = arrow_schema(self.schema)
        rows = pa.Table.from_pydict({"v": list(values)}, schema=columns)
        options = {"store_decimal_as_integer": True, "version": "2.6", **options}
        self.file = data_file(root, list(columns), rows, **options)
        self.metrics = run(task(context(root, self.schema), [self.file])).data_files[0].metrics

    def change(self, group: int = 0, **fields: Any) -> Column:
        """Let the statistics of a row group say something else."""
        change_footer(self.file.path, lambda footer: vars(chunk(footer, group).meta_data.statistics).update(fields))
        return self

    def is_copied(self, metrics: ColumnMetrics | None = None) -> bool:
        """Whether it is, where a manifest tells that of it; else its statistics are the reason."""
        file = replace(self.file, metrics=metrics or self.metrics)
        output = copying(self.root, file, schema=self.schema)
        assert output.encoded_because in ("", CONTRADICTION)
        return bool(output.files_copied)


@pytest.mark.parametrize(("kind", "values"), VALUES.values(), ids=VALUES)
def test_a_row_group_that_would_hide_values_is_refused(
    tmp_path: Path, kind: IcebergType, values: Sequence[Any]
) -> None:
    column = Column(tmp_path, kind, [None, *values])
    assert set(column.metrics.lower_bounds) == {1}
    assert column.is_copied()
    whole = Path(column.file.path).read_bytes()
    if len(values) > 2:
        inner = Column(tmp_path, kind, values[1:2])
        told = chunk(decoded(FileMetaData, footer_of(inner.file.path)[1])).meta_data.statistics.min_value
        for end in ("min_value", "max_value"):
            assert not column.change(**{end: told}).is_copied()
            Path(column.file.path).write_bytes(whole)


def test_what_is_outside_of_the_bounds_is_refused_in_every_row_group(tmp_path: Path) -> None:
    column = Column(tmp_path, LongType(), range(30), row_group_size=10)
    whole = Path(column.file.path).read_bytes()
    partial_ = Path(column.file.path.removesuffix(".parquet") + f"{SUFFIX}.parquet")  # bounds need not be reached
    for fields in ({"min_value": LONG(-1)}, {"max_value": LONG(30)}, {"min_value": LONG(20)}, {"max_value": LONG(9)}):
        assert not column.change(1, **fields).is_copied()
        partial_.write_bytes(Path(column.file.path).read_bytes())
        output = copying(
            tmp_path, replace(column.file, path=str(partial_), metrics=column.metrics), schema=column.schema
        )
        assert output.encoded_because == CONTRADICTION
        Path(column.file.path).write_bytes(whole)
    column.change(0, min_value=LONG(5))
    assert not column.is_copied()
    partial_.write_bytes(Path(column.file.path).read_bytes())
    assert copying(
        tmp_path, replace(column.file, path=str(partial_), metrics=column.metrics), schema=column.schema
    ).files_copied


def bounds(lower: bytes | None = None, upper: bytes | None = None, nans: int | None = None) -> ColumnMetrics:
    return ColumnMetrics(
        nan_value_counts={} if nans is None else {1: nans},
        lower_bounds={} if lower is None else {1: lower},
        upper_bounds={} if upper is None else {1: upper},
    )


def test_bounds_of_one_side_are_compared_alone_and_none_with_nothing(tmp_path: Path) -> None:
    column = Column(tmp_path, LongType(), range(30)).change(min_value=LONG(5), max_value=LONG(20))
    told = (ColumnMetrics(), bounds(LONG(0)), bounds(None, LONG(29)), bounds(LONG(5)), bounds(INT(5)))
    assert [column.is_copied(one) for one in told] == [True, False, False, True, True]
    narrow = replace(column.change(min_value=b"\0").file, metrics=bounds(LONG(0)))
    assert copying(tmp_path, narrow, schema=column.schema).encoded_because == NARROW
    assert not column.change(min_value=bytes(9)).is_copied(bounds(LONG(0)))


def test_a_row_group_that_says_it_has_nulls_alone_is_refused(tmp_path: Path) -> None:
    column = Column(tmp_path, LongType(), range(30)).change(null_count=30)
    assert not column.is_copied()
    column.change(min_value=None, max_value=None, min=None, max=None)
    told = column.metrics
    assert not column.is_copied(bounds(told.lower_bounds[1]))
    assert not column.is_copied(bounds(None, told.upper_bounds[1]))
    assert Column(tmp_path, LongType(), [None] * 10 + list(range(10)), row_group_size=10).is_copied()


def test_row_groups_without_statistics_or_rows_tell_nothing(tmp_path: Path) -> None:
    column = Column(tmp_path, LongType(), range(30), row_group_size=10)
    assert column.change(0, min_value=None).is_copied()
    assert not column.change(2, max_value=LONG(25)).is_copied()
    change_footer(column.file.path, lambda footer: setattr(chunk(footer, 2).meta_data, "statistics", None))
    assert column.is_copied()
    column = Column(tmp_path, LongType(), range(30))
    change_footer(column.file.path, add_empty_row_group)
    assert column.is_copied()
    assert not column.change(min_value=LONG(1)).is_copied()


def add_empty_row_group(footer: Struct) -> None:
    (group,) = footer.row_groups
    vacant, more = copy(group.columns[0]), copy(group)
    vacant.meta_data = copy(vacant.meta_data)
    vacant.meta_data.num_values, vacant.meta_data.statistics, vacant.meta_data.size_statistics = 0, None, None
    more.num_rows, more.columns = 0, [vacant]
    footer.row_groups.append(more)


def test_floating_point_numbers_need_reach_their_bounds_only_where_none_is_nan(tmp_path: Path) -> None:
    column, low, high = Column(tmp_path, DoubleType(), [-1.0, 0.0, math.nan, 9.0]), DOUBLE(-1), DOUBLE(9)
    for change, copied in (({}, True), ({"min_value": DOUBLE(0), "max_value": DOUBLE(math.nan)}, True)):
        column.change(**change)
        assert [column.is_copied(bounds(low, high, nans)) for nans in (None, 1)] == [copied] * 2
    assert not column.is_copied(bounds(low, high, 0))
    assert not column.change(min_value=DOUBLE(-2)).is_copied(bounds(low, high, 1))
    # Zeros are the same; a bound that is NaN says nothing; one from before a promotion is shorter.
    column = Column(tmp_path, DoubleType(), [0.0, 1.0]).change(min_value=DOUBLE(-0.0))
    for bound in (DOUBLE(0.0), DOUBLE(math.nan), FLOAT(0.0)):
        assert column.is_copied(bounds(bound, None, 0))


@pytest.mark.parametrize("kind", [StringType(), BinaryType()], ids=str)
def test_bounds_of_texts_may_be_cut(tmp_path: Path, kind: IcebergType) -> None:
    texts = ["abc", "m", "xyz"]
    column = Column(tmp_path, kind, texts if kind == StringType() else [text.encode() for text in texts])
    good = [(b"abc", b"xyz"), (b"ab", b"xz"), (b"a", b"y")]
    bad = [(one, None) for one in (b"", b"abb", b"abcd", b"b")]
    bad += [(None, one) for one in (b"xyy", b"xy", b"z", b"xyz0", b"\xff")]
    for both in (*good, *bad):
        assert column.is_copied(bounds(*both)) is (both in good), both


def test_statistics_are_compared_as_readers_believe_them_and_those_of_ids_not_at_all(tmp_path: Path) -> None:
    # Not those that are said to be cut, nor older fields of texts, whose order was another one.
    column = Column(tmp_path, StringType(), ["abc", "xyz"]).change(min_value=b"ab", max_value=b"y")
    assert not column.is_copied()
    assert column.change(is_min_value_exact=False, is_max_value_exact=False).is_copied()
    older: tuple[tuple[IcebergType, list[Any], bytes, bool], ...] = (
        (LongType(), [0, 9], LONG(0), False),
        (StringType(), ["a", "b"], b"a", True),
    )
    for kind, values, least, copied in older:
        column = Column(tmp_path, kind, values).change(min_value=None, max_value=None, min=least, max=least)
        assert column.is_copied() is copied
    # Writers do not agree on their order.
    ids = pa.array([bytes(15) + bytes([number]) for number in (1, 2)], pa.binary(16))
    schema = Schema(NestedField(1, "v", UUIDType()))
    columns = arrow_schema(schema)
    rows = pa.Table.from_arrays([pa.ExtensionArray.from_storage(pa.uuid(), ids)], schema=columns)
    file = data_file(tmp_path, list(columns), rows)
    metrics = run(task(context(tmp_path, schema), [file])).data_files[0].metrics
    change_footer(
        file.path,
        lambda footer: vars(chunk(footer).meta_data.statistics).update(min_value=b"z" * 16, max_value=b"z" * 16),
    )
    assert copying(tmp_path, replace(file, metrics=metrics), schema=schema).files_copied == 1
