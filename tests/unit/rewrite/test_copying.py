"""Tasks that copy row groups byte for byte: which they copy, which they decode, and what the outputs hold."""

from __future__ import annotations

import math
import struct
import subprocess
import sys
from dataclasses import replace
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, DoubleType, LongType, NestedField

from amoro_core.errors import AttemptAbandoned, UnreadableFile
from amoro_core.files.row_groups.merge import split_offsets
from amoro_core.files.row_groups.parquet_format import Struct
from amoro_core.model.clustering import is_copied
from amoro_core.model.files import ColumnMetrics, DataFile, DeleteFile
from amoro_core.model.task_payload import CopyRule, PositionMap, RewriteOutput

from .builders import (
    AVRO_NS,
    EVERYTHING,
    NS,
    NS_COLUMNS,
    ORC_NS,
    avro_file,
    change_footer,
    col,
    context,
    data_file,
    equality_deletes,
    groups_of,
    numbered,
    numbers_of,
    orc_file,
    position_deletes,
    run,
    task,
    written_under,
)


def file(root: Path, first: int = 0, count: int = 100, **options: Any) -> DataFile:
    """Ascending numbers in row groups of ten rows."""
    return numbered(root, count, first, row_group_size=10, **{"write_page_checksum": True, **options})


def copying(
    root: Path,
    files: list[DataFile],
    deletes: list[DeleteFile] | None = None,
    rule: CopyRule | None = EVERYTHING,
    *,
    schema: Schema = NS,
    properties: dict[str, str] | None = None,
    limit: int = 512 << 20,
    **more: Any,
) -> RewriteOutput:
    table = context(root, schema, properties=properties)
    return run(task(table, files, deletes or [], copy=rule, **more), memory_limit_bytes=limit)


def test_files_without_deletes_are_copied_where_a_rule_allows_it(tmp_path: Path) -> None:
    files = [file(tmp_path), file(tmp_path, 100)]
    output = copying(tmp_path, files)
    assert (numbers_of(output), groups_of(output)) == (list(range(200)), [10] * 20)
    assert (output.files_copied, output.encoded_because) == (2, "")
    assert (output.rows_read, output.rows_deleted, output.rows_written) == (200, 0, 200)
    (made,) = output.data_files
    assert (made.sort_order_id, made.split_offsets, made.record_count) == (0, (4,), 200)
    output = copying(tmp_path, files, rule=None)
    assert (numbers_of(output), groups_of(output), output.files_copied) == (list(range(200)), [200], 0)


def test_files_of_which_a_row_is_deleted_are_decoded_in_their_place(tmp_path: Path) -> None:
    files = [file(tmp_path, 100 * number) for number in range(5)]
    gone = [115, 127, *range(140, 150)]
    deletes = [
        position_deletes(tmp_path, [(files[1].path, n - 100) for n in gone]),
        equality_deletes(tmp_path, [1], NS_COLUMNS[:1], {"n": [299, 1000]}),
    ]
    output = copying(tmp_path, files, deletes)
    assert numbers_of(output) == [n for n in range(500) if n not in (*gone, 299)]
    assert groups_of(output) == [*[10] * 10, 187, *[10] * 20]
    assert (output.files_copied, output.encoded_files) == (3, {"rows of it are deleted": 2})
    assert output.rows_deleted == 13
    whole = copying(tmp_path, files[:2], [position_deletes(tmp_path, [(files[1].path, n) for n in range(100)])])
    assert (groups_of(whole), whole.files_copied, whole.rows_deleted) == ([10] * 10, 2, 100)


def test_files_with_small_row_groups_are_encoded(tmp_path: Path) -> None:
    texts = {"n": list(range(2000)), "s": ["x" * 900] * 2000}
    large, small = data_file(tmp_path, NS_COLUMNS, texts, use_dictionary=False), file(tmp_path, 2000)
    limit = large.size_bytes - 1
    output = copying(tmp_path, [large, small], rule=CopyRule(limit, 1024))
    assert (numbers_of(output), groups_of(output), output.files_copied) == (list(range(2100)), [2000, 100], 1)
    reason = f"its row groups are smaller than {limit / 2**20:.3g} MiB on average"
    assert (output.encoded_because, output.encoded_files) == (reason, {reason: 1})
    # Its footer tells that it has ten. With half the rows that are written they are not small.
    assert copying(tmp_path, [small], rule=CopyRule(small.size_bytes, 1024)).files_copied == 0
    for rows, copied in ((20, 1), (21, 0)):
        properties = {"write.parquet.row-group-limit": str(rows)}
        assert copying(tmp_path, [file(tmp_path)], None, CopyRule(1 << 30, 1024), properties=properties) \
            .files_copied == copied  # fmt: skip


def older(root: Path, first: int) -> DataFile:
    """Like `file`, but refused: its column was promoted since."""
    columns = [col("n", pa.int32(), 1), NS_COLUMNS[1]]
    return data_file(root, columns, {"n": range(first, first + 100), "s": ["x"] * 100})


def test_outputs_of_small_row_groups_are_marked(tmp_path: Path) -> None:
    """Those of which some is copied before a full row group was encoded."""

    def marked(output: RewriteOutput) -> list[bool]:
        return [is_copied(made.path) for made in output.data_files]

    new, old = file(tmp_path), older(tmp_path, 100)
    for rule, is_marked in ((EVERYTHING, True), (CopyRule(1, 1024), False), (None, False)):
        assert marked(copying(tmp_path, [new], rule=rule)) == [is_marked]
    assert marked(copying(tmp_path, [old])) == [False]
    for files in ([new, old], [old, new]):
        output = copying(tmp_path, files)
        assert (sorted(groups_of(output)), marked(output)) == ([*[10] * 10, 100], [True])
    output = copying(tmp_path, [old, new, old], output_count=3)
    assert (marked(output), [made.record_count for made in output.data_files]) == ([False, True, False], [100] * 3)
    output = copying(tmp_path, [old, new], properties={"write.parquet.row-group-limit": "60"})
    assert (groups_of(output), marked(output)) == ([60, 40, *[10] * 10], [False])


def test_row_groups_beyond_what_an_output_may_have_are_encoded(tmp_path: Path) -> None:
    files = [file(tmp_path), file(tmp_path, 100)]
    output = copying(tmp_path, files, rule=CopyRule(0, 12))
    assert (numbers_of(output), groups_of(output)) == (list(range(200)), [*[10] * 12, 80])
    assert (output.files_copied, output.encoded_because) == (1, "its output has 12 row groups already")
    output = copying(tmp_path, files, limit=1 << 20)
    assert numbers_of(output) == list(range(200))
    assert output.encoded_because == "its output's footer would exceed the memory"


def test_several_outputs_stay_even(tmp_path: Path) -> None:
    """A row group that belongs to two outputs is left to the next where little is missing, and else decoded."""
    files = [file(tmp_path, 100 * number) for number in range(5)]
    output = copying(tmp_path, files, output_count=3)
    assert (numbers_of(output), groups_of(output)) == (list(range(500)), [10] * 50)
    assert [made.record_count for made in output.data_files] == [160, 170, 170]
    output = copying(tmp_path, files[:1], output_count=7)
    assert numbers_of(output) == list(range(100))
    assert [made.record_count for made in output.data_files] == [15, 15, 14, 14, 14, 14, 14]
    assert output.encoded_because == "its rows belong to two outputs"


OTHERS = "its columns are not those of the table's schema"


def test_files_of_other_schemas_and_formats_are_decoded_between_copied_ones(tmp_path: Path) -> None:
    rows = [{"n": n, "s": "x"} for n in range(100, 200)]
    values = {"n": range(100, 200), "s": ["x"] * 100}
    others = {
        "its format is orc": orc_file(tmp_path, pa.Table.from_pylist(rows, schema=ORC_NS)),
        "its format is avro": avro_file(tmp_path, AVRO_NS, rows),
        f"{OTHERS}: n (INT32, field id 1) instead of n (INT64, field id 1)": older(tmp_path, 100),
        f"{OTHERS}: s (BYTE_ARRAY, field id 2) instead of s (BYTE_ARRAY as string, field id 2)": data_file(
            tmp_path, [NS_COLUMNS[0], col("s", pa.binary(), 2)], values
        ),
        "it has 3 columns": data_file(tmp_path, [*NS_COLUMNS, col("x", pa.int64(), 3)], {**values, "x": values["n"]}),
    }
    for reason, other in others.items():
        output = copying(tmp_path, [file(tmp_path), other, file(tmp_path, 200)])
        assert (numbers_of(output), groups_of(output)) == (list(range(300)), [*[10] * 10, 100, *[10] * 10])
        assert output.files_copied == 2
        assert output.encoded_because.startswith(reason)


def test_indexes_of_many_row_groups_are_written_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amoro_core.files.row_groups.merge._PIECE_BYTES", 300)
    output = copying(tmp_path, [file(tmp_path, write_page_index=True)])
    (made,) = output.data_files
    assert (output.files_copied, numbers_of(output)) == (1, list(range(100)))
    assert duckdb.sql(f"select s from '{made.path}' where n = 57").fetchall() == [("57",)]


def large(root: Path, **options: Any) -> DataFile:
    """A file of more than a MiB, which is a stream where there is little memory."""
    texts = [f"{n:012000}" for n in range(100)]
    plain = {"use_dictionary": False, "compression": "none", "row_group_size": 10}
    made = data_file(root, NS_COLUMNS, {"n": range(100), "s": texts}, **{**plain, **options})
    assert made.size_bytes > 1 << 20
    return made


def test_a_large_file_is_copied_from_a_stream_as_from_memory(tmp_path: Path) -> None:
    one = large(tmp_path, write_page_index=True, write_page_checksum=True)
    outputs = [copying(tmp_path, [one], limit=limit) for limit in (512 << 20, 16 << 20)]
    assert [output.files_copied for output in outputs] == [1, 1]
    contents = [Path(made.path).read_bytes() for output in outputs for made in output.data_files]
    assert contents[0] == contents[1]
    # A column that is larger than the memory is decoded.
    output = copying(tmp_path, [large(tmp_path, row_group_size=100)], limit=2 << 20)
    assert (numbers_of(output), output.encoded_because) == (list(range(100)), "a column exceeds the memory")


def test_a_file_with_another_number_of_rows_is_refused_and_splits_begin_where_they_are_worth_it(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="has 100 rows, but the manifest says 101"):
        copying(tmp_path, [replace(file(tmp_path), record_count=101)])
    every = [4, 5, (32 << 20) + 3, (32 << 20) + 4, (40 << 20), (64 << 20) + 3, (64 << 20) + 4]
    assert split_offsets(every) == (4, (32 << 20) + 4, (64 << 20) + 4)
    assert split_offsets([]) == ()


def with_bounds(one: DataFile, least: int, greatest: int) -> DataFile:
    low, high = (struct.pack("<q", number) for number in (least, greatest))
    return replace(one, metrics=ColumnMetrics(lower_bounds={1: low}, upper_bounds={1: high}))


def bounds_of(output: RewriteOutput) -> tuple[int | None, ...]:
    (made,) = output.data_files
    told = made.metrics.lower_bounds.get(1), made.metrics.upper_bounds.get(1)
    return tuple(None if bound is None else struct.unpack("<q", bound)[0] for bound in told)


def test_bounds_are_those_of_the_manifests_and_of_the_rows_that_are_encoded(tmp_path: Path) -> None:
    one, other = with_bounds(file(tmp_path), 0, 99), older(tmp_path, 100)
    output = copying(tmp_path, [one])
    assert bounds_of(output) == (0, 99)
    assert output.data_files[0].metrics.value_counts == {1: 100, 2: 100}
    assert output.data_files[0].metrics.null_value_counts == {1: 0, 2: 0}
    assert bounds_of(copying(tmp_path, [one, other])) == (0, 199)
    assert bounds_of(copying(tmp_path, [replace(one, metrics=ColumnMetrics()), other])) == (None, None)


def test_bounds_of_a_file_in_two_outputs_need_not_be_reached_and_none_are_taken_away(tmp_path: Path) -> None:
    one = with_bounds(file(tmp_path), 0, 99)
    output = copying(tmp_path, [one], output_count=2)
    low, high = output.data_files
    assert (low.metrics, low.record_count) == (replace(high.metrics, column_sizes=low.metrics.column_sizes), 50)
    again = copying(tmp_path, [low])
    assert (numbers_of(again), again.files_copied, bounds_of(again)) == (list(range(50)), 1, (0, 99))
    renamed = Path(low.path).rename(tmp_path / "in" / "other.parquet")
    assert copying(tmp_path, [replace(low, path=str(renamed))]).files_copied == 0
    files = []
    for numbers, low, high in (([1, 2], 1, 2), ([None, None], None, None), ([5], 5, 5)):
        one = data_file(tmp_path, NS_COLUMNS, {"n": numbers, "s": ["x"] * len(numbers)})
        files.append(one if low is None else with_bounds(one, low, high))
    assert bounds_of(copying(tmp_path, files)) == (1, 5)


@pytest.mark.parametrize(
    ("nans", "is_whole", "expected"), [({}, True, None), ({2: 0}, True, 0), ({2: 1}, True, 1), ({2: 1}, False, None)]
)
def test_floats_have_bounds_only_where_their_nans_are_counted(
    tmp_path: Path, nans: dict[int, int], is_whole: bool, expected: int | None
) -> None:
    schema = Schema(NestedField(1, "n", LongType()), NestedField(2, "f", DoubleType()))
    columns = [NS_COLUMNS[0], col("f", pa.float64(), 2)]
    one = data_file(tmp_path, columns, {"n": [1, 2], "f": [1.0, math.nan]}, row_group_size=1)
    bound = struct.pack("<d", 1.0)
    told = ColumnMetrics(nan_value_counts=nans, lower_bounds={2: bound}, upper_bounds={2: bound})
    outputs = copying(tmp_path, [replace(one, metrics=told)], schema=schema, output_count=1 if is_whole else 2)
    for made in outputs.data_files:
        assert made.metrics.nan_value_counts.get(2) == expected
        assert (2 in made.metrics.lower_bounds, 2 in made.metrics.upper_bounds) == (expected is not None,) * 2


DECIMALS = Schema(
    NestedField(1, "n", LongType()),
    NestedField(2, "short", DecimalType(9, 2)),
    NestedField(3, "long", DecimalType(18, 4)),
    NestedField(4, "wide", DecimalType(38, 6)),
)
DECIMAL_COLUMNS = [
    NS_COLUMNS[0],
    *(
        col(field.name, pa.decimal128(field.field_type.precision, field.field_type.scale), field.field_id)
        for field in DECIMALS.fields
        if isinstance(field.field_type, DecimalType)
    ),
]
FIXED, INTEGER = "FIXED_LEN_BYTE_ARRAY", ("INT32", "INT64", "FIXED_LEN_BYTE_ARRAY")


def decimals_at(first: int) -> dict[str, list[Any]]:
    """Numbers from −50 on, every seventh missing; the widest have 38 digits."""
    numbers = range(first - 50, first - 40)
    scaled = [None if number % 7 == 0 else Decimal(number) for number in numbers]
    wide = [None if number is None else number + number.copy_sign(Decimal(10) ** 31) for number in scaled]
    return {"n": list(numbers), "short": scaled, "long": scaled, "wide": wide}


def decimals(root: Path, first: int, *, as_integers: bool, **options: Any) -> DataFile:
    """Ten rows in the layout of Iceberg's own writers, or in that of pyarrow's defaults."""
    return data_file(root, DECIMAL_COLUMNS, decimals_at(first), store_decimal_as_integer=as_integers, **options)


def as_binary(root: Path, first: int) -> DataFile:
    """The same with decimals of whatever length they need."""
    rows = decimals_at(first)
    scales = {"short": 2, "long": 4, "wide": 6}
    columns = [NS_COLUMNS[0], *(col(name, pa.binary(), number) for number, name in enumerate(scales, 2))]
    stored = {
        name: [None if one is None else unscaled(one.scaleb(scale, Context(40))) for one in rows[name]]
        for name, scale in scales.items()
    }
    one = data_file(root, columns, {"n": rows["n"], **stored}, write_statistics=["n"])

    def change(footer: Struct) -> None:
        _, _, *elements = footer.schema
        for element, field in zip(elements, DECIMAL_COLUMNS[1:], strict=True):
            element.converted_type, element.scale, element.precision = 5, field.type.scale, field.type.precision

    change_footer(one.path, change)
    return replace(one, size_bytes=Path(one.path).stat().st_size)


def unscaled(value: Decimal) -> bytes:
    number = int(value)
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


def types_of(made: DataFile) -> tuple[str, ...]:
    group = pq.read_metadata(made.path).row_group(0)
    return tuple(group.column(number).physical_type for number in range(1, 4))


def assert_decimals(output: RewriteOutput, firsts: list[int]) -> None:
    """As pyarrow and DuckDB read them, DuckDB by filters that skip row groups, too."""
    paths = [made.path for made in output.data_files]
    kind = pa.schema(DECIMAL_COLUMNS)
    expected = pa.concat_tables(pa.table(decimals_at(first), schema=kind) for first in firsts).to_pylist()
    read = [row for path in paths for row in pq.read_table(path).to_pylist()]
    assert read == expected
    for name in ("short", "long", "wide"):
        for number in (-45, -36, -1, 0, 5, 44):
            low = f"{number}" if name != "wide" else f"{number + int(math.copysign(10**31, number))}"
            wanted = sorted(row["n"] for row in expected if row[name] is not None and row[name] <= Decimal(low))
            sql = f"select n from read_parquet({paths!r}) where {name} <= {low}::decimal(38, 6) order by n"
            assert [n for (n,) in duckdb.sql(sql).fetchall()] == wanted
    nulls = [made.metrics.null_value_counts.get(3) for made in output.data_files]
    if None not in nulls:
        assert sum(map(int, filter(None, nulls))) == sum(row["long"] is None for row in expected)


def test_decimals_are_copied_in_whatever_type_the_format_allows_and_each_layout_has_outputs_of_its_own(
    tmp_path: Path,
) -> None:
    fixed = [decimals(tmp_path, first, as_integers=False) for first in (0, 10, 20)]
    integer = [decimals(tmp_path, first, as_integers=True) for first in (30, 40)]
    binary = [as_binary(tmp_path, first) for first in (50, 60)]
    for files, types in ((fixed, (FIXED,) * 3), (integer, INTEGER), (binary, ("BYTE_ARRAY",) * 3)):
        output = copying(tmp_path, files, schema=DECIMALS)
        assert (output.files_copied, [types_of(made) for made in output.data_files]) == (len(files), [types])
    mixed = [fixed[0], integer[0], binary[0], fixed[1], binary[1], integer[1], fixed[2]]
    work = task(context(tmp_path, DECIMALS), mixed, copy=EVERYTHING)
    output = run(replace(work, tells_left_out=True, may_reorder=True))
    assert (output.files_copied, output.encoded_files) == (7, {})
    assert [types_of(made) for made in output.data_files] == [(FIXED,) * 3, INTEGER, ("BYTE_ARRAY",) * 3]
    assert output.position_map == PositionMap("", 0, (), (0, 3, 6, 1, 5, 2, 4))
    assert_decimals(output, [0, 10, 20, 30, 40, 50, 60])


def test_a_single_file_of_another_layout_and_rows_without_those_deleted_are_encoded_like_the_others(
    tmp_path: Path,
) -> None:
    """Else a task could make as many files as it had. A layout that can't be encoded keeps its rows for itself."""
    fixed = [decimals(tmp_path, first, as_integers=False) for first in (0, 10, 20)]
    other = decimals(tmp_path, 30, as_integers=True)
    work = task(context(tmp_path, DECIMALS), [fixed[0], other, fixed[1]], copy=EVERYTHING)
    output = run(replace(work, may_reorder=True, tells_left_out=True))
    reason = "its columns are stored in another way than those of the other files"
    assert (output.files_copied, output.encoded_files) == (2, {reason: 1})
    assert ([types_of(made) for made in output.data_files], groups_of(output)) == ([(FIXED,) * 3], [10, 10, 10])
    assert_decimals(output, [0, 10, 30])
    alone = copying(tmp_path, [fixed[0], other, fixed[1]], schema=DECIMALS)  # whose coordinator knows no other order
    assert (alone.files_copied, [types_of(made) for made in alone.data_files]) == (2, [(FIXED,) * 3])
    assert_decimals(alone, [0, 30, 10])
    deletes = [position_deletes(tmp_path, [(fixed[0].path, at) for at in range(9)])]
    first = copying(tmp_path, fixed, deletes, schema=DECIMALS, applicable={0: [0]})
    assert (groups_of(first), [types_of(made) for made in first.data_files]) == ([1, 10, 10], [(FIXED,) * 3])
    binary = [as_binary(tmp_path, 40), fixed[0], as_binary(tmp_path, 50)]
    work = task(context(tmp_path, DECIMALS), binary, deletes, applicable={1: [0]}, copy=EVERYTHING)
    apart = run(replace(work, may_reorder=True))
    assert [types_of(made) for made in apart.data_files] == [("BYTE_ARRAY",) * 3, INTEGER]
    assert numbers_of(apart) == [*range(-10, 0), -41, *range(10)]


def test_columns_with_other_names_and_without_nulls_are_copied_as_they_are(tmp_path: Path) -> None:
    columns = [col("m", pa.int64(), 1, nullable=False), col("t", pa.string(), 2)]
    old = [data_file(tmp_path, columns, {"m": range(at, at + 5), "t": ["x"] * 5}) for at in (0, 5)]
    files = [file(tmp_path, 10, 5), old[0], file(tmp_path, 15, 5), old[1]]
    bloom = {"write.parquet.bloom-filter-enabled.column.s": "true"}
    lacks = "it lacks a bloom filter that the table wants"
    assert copying(tmp_path, old[:1], properties=bloom).encoded_files == {lacks: 1}
    output = run(replace(task(context(tmp_path, NS), files, copy=EVERYTHING), may_reorder=True))
    assert (output.files_copied, [pq.read_schema(made.path).names for made in output.data_files]) == (
        4,
        [["n", "s"], ["m", "t"]],
    )
    renamed = [col("n", pa.int64(), 1), col("t", pa.string(), 2)]
    before = [data_file(tmp_path, renamed, {"n": range(at, at + 5), "t": ["x"] * 5}) for at in (20, 25)]
    deleted = [position_deletes(tmp_path, [(before[1].path, 4)])]
    kept = copying(tmp_path, before, deleted, applicable={1: [0]})
    assert (groups_of(kept), numbers_of(kept)) == ([5, 4], list(range(20, 29)))
    (made,) = kept.data_files
    assert pq.read_schema(made.path).names == ["n", "t"]
    assert made.metrics.value_counts == {1: 9, 2: 9}
    assert duckdb.sql(f"select count(*) from '{made.path}' where t = 'x'").fetchall() == [(9,)]


WITHOUT_CODEC = """
import sys
from pathlib import Path
sys.modules.update({"thrift.protocol.fastbinary": None, "zlib_ng": None, "zlib_ng.zlib_ng": None})
from tests.unit.rewrite.test_copying import copying, file, groups_of, numbers_of
root = Path(sys.argv[1])
output = copying(root, [file(root), file(root, 100)])
print(numbers_of(output) == list(range(200)), groups_of(output), output.files_copied, output.encoded_because, sep="; ")
"""


def test_nothing_is_copied_where_thrift_lacks_its_codec(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_CODEC, str(tmp_path)], capture_output=True, text=True)
    reason = "the package thrift is installed without its C extension"
    assert (done.stdout, done.stderr) == (f"True; [200]; 0; {reason}\n", "")


@pytest.mark.parametrize("size", [1, 12_000], ids=["copied", "encoded"])
def test_a_cancelled_attempt_leaves_nothing(tmp_path: Path, size: int) -> None:
    """Encoded rows are written while they are encoded."""
    files = [file(tmp_path, 100 * n) for n in range(5)] if size == 1 else [large(tmp_path), older(tmp_path, 100)]
    work = task(context(tmp_path, Schema(*NS.fields, NestedField(3, "new", LongType()))), files, copy=EVERYTHING)
    work = work if size > 1 else task(context(tmp_path, NS), files, copy=EVERYTHING)
    with pytest.raises(AttemptAbandoned):
        run(work, is_cancelled=lambda: bool(written_under(tmp_path)))
    assert written_under(tmp_path) == []
