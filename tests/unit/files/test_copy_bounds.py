"""Statistics of files that are to be copied, which must be what the manifest tells of the file."""

from __future__ import annotations

import datetime
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

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
    ListType,
    LongType,
    NestedField,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from amoro_core.files.copy_bounds import compared_columns, require_told
from amoro_core.files.copy_source import NotCopied
from amoro_core.files.parquet_format import Struct
from amoro_core.files.schema import arrow_schema
from amoro_core.model.files import ColumnMetrics
from amoro_core.model.lineage import LINEAGE_IDS
from tests.unit.files.copies import (
    FLAT,
    NESTED,
    WRITERS,
    Writer,
    by_arrow,
    by_duckdb,
    by_polars,
    change_footer,
    flat_rows,
    nested_rows,
    source,
    told,
)

INT, LONG = struct.Struct("<i").pack, struct.Struct("<q").pack
DAY, MOMENT = datetime.date, datetime.datetime
#: A type with its values, ascending.
VALUES: Mapping[str, tuple[IcebergType, Sequence[Any]]] = {
    "boolean": (BooleanType(), [False, True]),
    "int": (IntegerType(), [-(2**31), -1, 0, 300]),
    "long": (LongType(), [-(2**63), -1, 0, 2**40]),
    "date": (DateType(), [DAY(1960, 1, 1), DAY(1970, 1, 1), DAY(2026, 1, 1)]),
    "time": (TimeType(), [datetime.time(1), datetime.time(2), datetime.time(23, 59, 59, 999_999)]),
    "timestamp": (TimestampType(), [MOMENT(1900, 1, 1), MOMENT(1970, 1, 1), MOMENT(2026, 1, 1, 0, 0, 0, 1)]),
    "timestamptz": (
        TimestamptzType(),
        [MOMENT(1900, 1, 1, tzinfo=datetime.UTC), MOMENT(2026, 1, 1, tzinfo=datetime.UTC)],
    ),
    "timestamp_ns": (TimestampNanoType(), [MOMENT(1969, 1, 1), MOMENT(1970, 1, 1), MOMENT(2026, 1, 1)]),
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


def one_column(root: Path, kind: IcebergType, values: Sequence[Any], **options: Any) -> tuple[Path, Schema]:
    schema, path = Schema(NestedField(1, "v", kind)), root / "in.parquet"
    by_arrow(pa.Table.from_pydict({"v": list(values)}, schema=arrow_schema(schema)), path, **options)
    return path, schema


def require(path: Path, schema: Schema, metrics: ColumnMetrics, are_reached: bool = True) -> None:
    """Raises NotCopied if statistics contradict the metrics."""
    one = source(path)
    require_told(one, compared_columns(one.schema, schema), schema, metrics, are_reached=are_reached)


def assert_refused(path: Path, schema: Schema, metrics: ColumnMetrics, **more: Any) -> None:
    with pytest.raises(NotCopied, match=r"^statistics of column v contradict the manifest$"):
        require(path, schema, metrics, **more)


def change(path: Path, group: int = 0, column: int = 0, **fields: Any) -> None:
    """Set fields of a chunk's statistics."""

    def set_fields(footer: Struct) -> None:
        vars(footer.row_groups[group].columns[column].meta_data.statistics).update(fields)

    change_footer(path, set_fields)


def statistics(path: Path, group: int = 0) -> Struct:
    found: Struct = source(path).footer.row_groups[group].columns[0].meta_data.statistics
    return found


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS.keys())
def test_files_of_all_writers_are_as_their_manifests_tell(tmp_path: Path, writer: Writer) -> None:
    path = tmp_path / "in.parquet"
    writer(flat_rows(0, 2500), path)
    assert [column.field_id for column in compared_columns(source(path).schema, FLAT)] == [1, 2, 3, 4]
    require(path, FLAT, told(path, FLAT))


@pytest.mark.parametrize("writer", [by_arrow, partial(by_arrow, store_decimal_as_integer=False)], ids=["int", "fixed"])
def test_columns_within_structs_are_compared_and_those_within_lists_are_not(tmp_path: Path, writer: Writer) -> None:
    path = tmp_path / "in.parquet"
    writer(nested_rows(0, 2500), path)
    assert [column.field_id for column in compared_columns(source(path).schema, NESTED)] == [1, 13, 14, 5, 6, 7, 8, 9]
    require(path, NESTED, told(path, NESTED))


@pytest.mark.parametrize("rows", [1, 1000])
@pytest.mark.parametrize(("kind", "values"), VALUES.values(), ids=VALUES.keys())
def test_each_type_is_compared(tmp_path: Path, kind: IcebergType, values: Sequence[Any], rows: int) -> None:
    path, schema = one_column(tmp_path, kind, [None, *values], row_group_size=rows)
    metrics = told(path, schema)
    assert (set(metrics.lower_bounds), len(compared_columns(source(path).schema, schema))) == ({1}, 1)
    require(path, schema, metrics)


WRONG = {name: one for name, one in VALUES.items() if len(one[1]) > 2}


@pytest.mark.parametrize("end", ["min_value", "max_value"])
@pytest.mark.parametrize(("kind", "values"), WRONG.values(), ids=WRONG.keys())
def test_a_row_group_that_would_hide_values_is_refused(
    tmp_path: Path, kind: IcebergType, values: Sequence[Any], end: str
) -> None:
    path, schema = one_column(tmp_path, kind, values)
    metrics = told(path, schema)
    (tmp_path / "inner").mkdir()
    inner = statistics(one_column(tmp_path / "inner", kind, values[1:2])[0]).min_value
    change(path, **{end: inner})
    assert_refused(path, schema, metrics)
    require(path, schema, metrics, are_reached=False)


def test_what_is_outside_of_the_bounds_is_refused_in_every_row_group(tmp_path: Path) -> None:
    path, schema = one_column(tmp_path, LongType(), range(30), row_group_size=10)
    metrics, content = told(path, schema), path.read_bytes()
    for fields in ({"min_value": LONG(-1)}, {"max_value": LONG(30)}, {"min_value": LONG(20)}, {"max_value": LONG(9)}):
        for are_reached in (True, False):
            change(path, 1, **fields)
            assert_refused(path, schema, metrics, are_reached=are_reached)
            path.write_bytes(content)


def test_bounds_of_one_side_are_compared_alone(tmp_path: Path) -> None:
    path, schema = one_column(tmp_path, LongType(), range(30))
    change(path, min_value=LONG(5), max_value=LONG(20))
    require(path, schema, ColumnMetrics())
    assert_refused(path, schema, ColumnMetrics(lower_bounds={1: LONG(0)}))
    assert_refused(path, schema, ColumnMetrics(upper_bounds={1: LONG(29)}))
    require(path, schema, ColumnMetrics(lower_bounds={1: LONG(5)}, upper_bounds={2: LONG(29)}))


def test_a_row_group_that_says_it_has_nulls_alone_is_refused(tmp_path: Path) -> None:
    path, schema = one_column(tmp_path, LongType(), range(30))
    metrics = told(path, schema)
    change(path, null_count=30)
    assert_refused(path, schema, metrics, are_reached=False)
    change(path, min_value=None, max_value=None, min=None, max=None)
    assert_refused(path, schema, ColumnMetrics(lower_bounds=metrics.lower_bounds))
    assert_refused(path, schema, ColumnMetrics(upper_bounds=metrics.upper_bounds))


def test_nulls_alone_are_no_contradiction(tmp_path: Path) -> None:
    path, schema = one_column(tmp_path, LongType(), [None] * 10 + list(range(10)), row_group_size=10)
    require(path, schema, told(path, schema))


def test_without_statistics_of_one_row_group_the_others_need_not_reach_the_bounds(tmp_path: Path) -> None:
    path, schema = one_column(tmp_path, LongType(), range(30), row_group_size=10)
    metrics = told(path, schema)
    change(path, 0, min_value=None)
    require(path, schema, metrics)
    change(path, 2, max_value=LONG(25))
    assert_refused(path, schema, metrics)
    change_footer(path, drop_statistics)
    require(path, schema, metrics)


def test_row_groups_without_rows_tell_nothing(tmp_path: Path) -> None:
    path, schema = one_column(tmp_path, LongType(), range(30))
    metrics = told(path, schema)
    change_footer(path, add_empty_row_group)
    require(path, schema, metrics)
    change(path, min_value=LONG(1))
    assert_refused(path, schema, metrics)


def add_empty_row_group(footer: Struct) -> None:
    (group,) = footer.row_groups
    (chunk,) = group.columns
    vacant = copy(chunk)
    vacant.meta_data = copy(chunk.meta_data)
    vacant.meta_data.num_values, vacant.meta_data.statistics = 0, None
    added = copy(group)
    added.num_rows, added.columns = 0, [vacant]
    footer.row_groups.append(added)


def drop_statistics(footer: Struct) -> None:
    footer.row_groups[2].columns[0].meta_data.statistics = None


@pytest.mark.parametrize("nans", [None, 1])
def test_columns_with_nan_values_need_not_reach_the_bounds(tmp_path: Path, nans: int | None) -> None:
    path, schema = one_column(tmp_path, DoubleType(), [-1.0, 0.0, math.nan, 9.0])
    bounds = {"lower_bounds": {1: struct.pack("<d", -1)}, "upper_bounds": {1: struct.pack("<d", 9)}}
    metrics = ColumnMetrics(nan_value_counts={} if nans is None else {1: nans}, **bounds)
    require(path, schema, metrics)
    change(path, min_value=struct.pack("<d", 0), max_value=struct.pack("<d", math.nan))
    require(path, schema, metrics)
    assert_refused(path, schema, ColumnMetrics(nan_value_counts={1: 0}, **bounds))
    change(path, min_value=struct.pack("<d", -2))
    assert_refused(path, schema, metrics)


def test_a_bound_that_is_nan_is_not_compared(tmp_path: Path) -> None:
    path, schema = one_column(tmp_path, DoubleType(), [-1.0, 9.0])
    nan = {1: struct.pack("<d", math.nan)}
    require(path, schema, ColumnMetrics(nan_value_counts={1: 0}, lower_bounds=nan, upper_bounds=nan))


def test_zeros_are_the_same_whatever_their_sign(tmp_path: Path) -> None:
    path, schema = one_column(tmp_path, FloatType(), [0.0, 1.0])
    change(path, min_value=struct.pack("<f", -0.0))
    require(
        path,
        schema,
        ColumnMetrics(nan_value_counts={1: 0}, lower_bounds={1: struct.pack("<f", 0.0)}),
    )


@pytest.mark.parametrize("writer", [by_duckdb, by_polars])
def test_nan_values_of_other_writers_are_no_contradiction(tmp_path: Path, writer: Callable[..., None]) -> None:
    schema, path = Schema(NestedField(1, "v", DoubleType())), tmp_path / "in.parquet"
    values = [-math.inf, math.nan, -0.0, 0.0, 2.5, -math.nan, None]
    writer(pa.Table.from_pydict({"v": values}, schema=arrow_schema(schema)), path)
    bounds = {"lower_bounds": {1: struct.pack("<d", -math.inf)}, "upper_bounds": {1: struct.pack("<d", 2.5)}}
    require(path, schema, ColumnMetrics(nan_value_counts={1: 2}, **bounds))


def test_bounds_of_promoted_columns_may_be_shorter(tmp_path: Path) -> None:
    for kind, values, lower in ((LongType(), [-5, 5], INT(-5)), (DoubleType(), [-5.0, 5.0], struct.pack("<f", -5.0))):
        path, schema = one_column(tmp_path, kind, values)
        require(path, schema, ColumnMetrics(nan_value_counts={1: 0}, lower_bounds={1: lower}))


@pytest.mark.parametrize(
    ("lower", "upper", "is_told"),
    [
        (b"abc", b"xyz", True),
        (b"ab", b"xz", True),
        (b"", b"y", False),
        (b"a", b"y", True),
        (b"abb", None, False),
        (b"abcd", None, False),
        (b"b", None, False),
        (None, b"xyy", False),
        (None, b"xy", False),
        (None, b"z", False),
        (None, b"xyz0", False),
        (None, b"\xff", False),
    ],
)
@pytest.mark.parametrize("kind", [StringType(), BinaryType()], ids=str)
def test_bounds_of_texts_may_be_cut(
    tmp_path: Path, kind: IcebergType, lower: bytes | None, upper: bytes | None, is_told: bool
) -> None:
    path, schema = one_column(tmp_path, kind, ["abc", "m", "xyz"] if kind == StringType() else [b"abc", b"m", b"xyz"])
    metrics = ColumnMetrics(
        lower_bounds={} if lower is None else {1: lower}, upper_bounds={} if upper is None else {1: upper}
    )
    if is_told:
        require(path, schema, metrics)
    else:
        assert_refused(path, schema, metrics)


def test_statistics_that_are_said_to_be_cut_are_not_compared(tmp_path: Path) -> None:
    path, schema = one_column(tmp_path, StringType(), ["abc", "xyz"])
    metrics = told(path, schema)
    change(path, min_value=b"ab", max_value=b"y")
    assert_refused(path, schema, metrics)
    change(path, is_min_value_exact=False, is_max_value_exact=False)
    require(path, schema, metrics)


def test_statistics_of_another_width_are_refused(tmp_path: Path) -> None:
    path, schema = one_column(tmp_path, LongType(), range(30))
    change(path, min_value=b"\0")
    assert_refused(path, schema, ColumnMetrics(lower_bounds={1: LONG(0)}))


def test_older_fields_of_statistics_are_compared_where_readers_believe_them(tmp_path: Path) -> None:
    for kind, values, is_compared in ((LongType(), [0, 9], True), (StringType(), ["a", "b"], False)):
        path, schema = one_column(tmp_path, kind, values)
        metrics, found = told(path, schema), statistics(path)
        # min and max, both of the least value
        change(path, min_value=None, max_value=None, min=found.min_value, max=found.min_value)
        if is_compared:
            assert_refused(path, schema, metrics)
        else:
            require(path, schema, metrics)


@pytest.mark.parametrize(
    ("kind", "values", "stored"),
    [
        (UUIDType(), [UUID(int=1).bytes, UUID(int=2).bytes], None),
        (LongType(), [1, 2], pa.int32()),
        (IntegerType(), [1, 2], pa.uint32()),
        (DecimalType(9, 2), [1, 2], pa.int32()),
        (TimestampType(), [1, 2], pa.timestamp("ms")),
        (TimestampNanoType(), [1, 2], pa.timestamp("us")),
        (ListType(2, LongType()), [[1], [2]], None),
    ],
)
def test_what_is_stored_in_another_way_is_not_compared(
    tmp_path: Path, kind: IcebergType, values: Sequence[Any], stored: pa.DataType | None
) -> None:
    schema, path = Schema(NestedField(1, "v", kind)), tmp_path / "in.parquet"
    columns = arrow_schema(schema)
    if stored is not None:
        columns = pa.schema([columns.field(0).with_type(stored)])
    by_arrow(pa.Table.from_arrays([pa.array(values, columns.field(0).type)], schema=columns), path)
    assert compared_columns(source(path).schema, schema) == ()


def test_columns_that_the_table_lacks_and_lineage_are_not_compared(tmp_path: Path) -> None:
    path, _ = one_column(tmp_path, LongType(), [1, 2])
    schema = source(path).schema
    assert compared_columns(schema, Schema(NestedField(2, "v", LongType()))) == ()
    assert len(compared_columns(schema, Schema(NestedField(1, "w", LongType())))) == 1
    (path, lineage) = tmp_path / "lineage.parquet", Schema(NestedField(LINEAGE_IDS[0], "_row_id", LongType()))
    by_arrow(pa.Table.from_pydict({"_row_id": [1]}, schema=arrow_schema(lineage)), path)
    assert compared_columns(source(path).schema, lineage) == ()
