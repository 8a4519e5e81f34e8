"""Equality deletes while rewriting: every type as a key, with the values at its edges."""

import math
import struct
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
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
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from amoro_core.errors import TableRefused, UnreadableFile

from .builders import col, context, data_file, equality_deletes, rows_of, run, task

U1, U2 = uuid.UUID(int=1), uuid.UUID(int=2**127)

#: type, Arrow type, values in the file, keys deleted: the values that are also keys go, null goes with null.
KEYS: list[tuple[PrimitiveType, pa.DataType, list[Any], list[Any]]] = [
    (BooleanType(), pa.bool_(), [True, False, None], [False]),
    (BooleanType(), pa.bool_(), [True, False, None], [None]),
    (IntegerType(), pa.int32(), [-(2**31), 0, 2**31 - 1, None], [-(2**31), 2**31 - 1]),
    (IntegerType(), pa.int32(), [-1, 0, 1, None], [None]),
    (LongType(), pa.int64(), [-(2**63), 2**63 - 1, 2**53, 2**53 + 1, None], [2**63 - 1, 2**53 + 1]),
    (DateType(), pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31), None], [date(1969, 12, 31)]),
    (TimeType(), pa.time64("us"), [time(0), time(23, 59, 59, 999999), None], [time(23, 59, 59, 999999), None]),
    (
        TimestampType(),
        pa.timestamp("us"),
        [datetime(1600, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2262, 4, 12), None],
        [datetime(1600, 1, 1), datetime(2262, 4, 12)],
    ),
    (
        TimestamptzType(),
        pa.timestamp("us", "UTC"),
        [datetime(1, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC), None],
        [datetime(1, 1, 1, tzinfo=UTC)],
    ),
    (StringType(), pa.string(), ["", "a", "a\0", "A", "é", "é", "x" * 5000, None], ["", "a\0", "é", "x" * 5000]),
    (StringType(), pa.string(), ["", None], [None]),
    (BinaryType(), pa.binary(), [b"", b"\0", b"\0\0", b"\xff\xfe", None], [b"", b"\0\0"]),
    (FixedType(3), pa.binary(3), [b"\0\0\0", b"abc", b"\xff\xff\xff", None], [b"\0\0\0", None]),
    (UUIDType(), pa.uuid(), [U1.bytes, U2.bytes, None], [U2.bytes]),
    (DecimalType(9, 2), pa.decimal128(9, 2), [Decimal("-9999999.99"), Decimal("0.00"), None], [Decimal("-9999999.99")]),
    (DecimalType(18, 6), pa.decimal128(18, 6), [Decimal("0.000001"), Decimal("1.000000"), None], [Decimal("1.000000")]),
    (
        DecimalType(38, 0),
        pa.decimal128(38, 0),
        [Decimal(10**38 - 1), Decimal(-(10**38) + 1), Decimal(10**38 - 2), None],
        [Decimal(10**38 - 1), None],
    ),
]


def kept_values(values: list[Any], keys: list[Any]) -> list[Any]:
    return [value for value in values if value not in keys]


@pytest.mark.parametrize(("kind", "arrow", "values", "keys"), KEYS, ids=lambda value: str(value)[:12])
def test_exactly_the_rows_with_a_deleted_key_go(
    tmp_path: Path, kind: PrimitiveType, arrow: pa.DataType, values: list[Any], keys: list[Any]
) -> None:
    schema = Schema(NestedField(1, "n", LongType()), NestedField(2, "k", kind))
    columns = [col("n", pa.int64(), 1), col("k", arrow, 2)]
    file = data_file(tmp_path, columns, {"n": list(range(len(values))), "k": values}, store_decimal_as_integer=True)
    delete = equality_deletes(tmp_path, [2], [col("other name", arrow, 2)], {"other name": keys})

    output = run(task(context(tmp_path, schema), [file], [delete]))

    expected = [number for number, value in enumerate(values) if value not in keys]
    assert [row["n"] for row in rows_of(output)] == expected
    raw = [row["k"].bytes if isinstance(row["k"], uuid.UUID) else row["k"] for row in rows_of(output)]
    assert raw == kept_values(values, keys)
    assert (output.rows_read, output.rows_deleted, output.rows_written) == (
        len(values),
        len(values) - len(expected),
        len(expected),
    )


NAN_OTHER_BITS = struct.unpack("<d", b"\x01\0\0\0\0\0\xf8\xff")[0]


@pytest.mark.parametrize(("kind", "arrow"), [(DoubleType(), pa.float64()), (FloatType(), pa.float32())])
def test_nan_equals_any_nan_and_minus_zero_is_not_zero(tmp_path: Path, kind: PrimitiveType, arrow: pa.DataType) -> None:
    schema = Schema(NestedField(1, "n", LongType()), NestedField(2, "k", kind))
    values = [1.0, None, math.nan, 0.0, -0.0, 5.0, NAN_OTHER_BITS, math.inf, -math.inf]
    file = data_file(tmp_path, [col("n", pa.int64(), 1), col("k", arrow, 2)], {"n": range(9), "k": values})
    delete = equality_deletes(tmp_path, [2], [col("k", arrow, 2)], {"k": [None, math.nan, 0.0, math.inf]})

    output = run(task(context(tmp_path, schema), [file], [delete]))

    assert [row["n"] for row in rows_of(output)] == [0, 4, 5, 8]


def test_minus_zero_as_key_leaves_zero(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "k", DoubleType()))
    file = data_file(tmp_path, [col("k", pa.float64(), 1)], {"k": [0.0, -0.0]})
    delete = equality_deletes(tmp_path, [1], [col("k", pa.float64(), 1)], {"k": [-0.0]})

    output = run(task(context(tmp_path, schema), [file], [delete]))

    assert [math.copysign(1, row["k"]) for row in rows_of(output)] == [1.0]


AB = Schema(NestedField(1, "a", LongType()), NestedField(2, "b", StringType()), NestedField(3, "c", DoubleType()))
AB_COLUMNS = [col("a", pa.int64(), 1), col("b", pa.string(), 2), col("c", pa.float64(), 3)]


def test_a_key_of_several_columns_matches_only_when_all_do(tmp_path: Path) -> None:
    rows = {
        "a": [1, 1, 2, 2, None, None, 3],
        "b": ["x", "y", "x", "y", None, "x", None],
        "c": [0.0, 0.0, 0.0, math.nan, 0.0, 0.0, 1.0],
    }
    file = data_file(tmp_path, AB_COLUMNS, rows)
    keys = {"b": ["x", "y", None, "y", "z"], "c": [0.0, math.nan, 0.0, 0.0, 0.0], "a": [2, 2, None, 9, 1]}
    delete = equality_deletes(tmp_path, [2, 1, 3], [AB_COLUMNS[1], AB_COLUMNS[2], AB_COLUMNS[0]], keys)

    output = run(task(context(tmp_path, AB), [file], [delete]))

    assert [(row["a"], row["b"]) for row in rows_of(output)] == [(1, "x"), (1, "y"), (None, "x"), (3, None)]


def test_deletes_by_different_sets_of_ids_apply_to_one_file(tmp_path: Path) -> None:
    file = data_file(tmp_path, AB_COLUMNS, {"a": [1, 2, 3, 4], "b": ["p", "q", "r", "s"], "c": [0.0] * 4})
    by_a = equality_deletes(tmp_path, [1], [AB_COLUMNS[0]], {"a": [1]})
    by_b = equality_deletes(tmp_path, [2], [AB_COLUMNS[1]], {"b": ["r"]})
    by_both = equality_deletes(tmp_path, [1, 2], AB_COLUMNS[:2], {"a": [4, 2], "b": ["s", "no"]})

    output = run(task(context(tmp_path, AB), [file], [by_a, by_b, by_both]))

    assert [row["a"] for row in rows_of(output)] == [2]


def test_a_delete_applies_only_to_the_files_it_is_listed_for(tmp_path: Path) -> None:
    older = data_file(tmp_path, AB_COLUMNS, {"a": [1, 2], "b": ["old", "old"], "c": [0.0] * 2})
    newer = data_file(tmp_path, AB_COLUMNS, {"a": [1, 2], "b": ["new", "new"], "c": [0.0] * 2})
    first = equality_deletes(tmp_path, [1], [AB_COLUMNS[0]], {"a": [1]})
    second = equality_deletes(tmp_path, [1], [AB_COLUMNS[0]], {"a": [2]})
    work = task(context(tmp_path, AB), [older, newer], [first, second], applicable={0: [0, 1], 1: [1]})

    assert [(row["a"], row["b"]) for row in rows_of(run(work))] == [(1, "new")]


def test_a_key_nested_in_a_struct_is_null_where_the_struct_is(tmp_path: Path) -> None:
    inner = StructType(NestedField(3, "x", IntegerType()), NestedField(4, "y", StringType()))
    schema = Schema(NestedField(1, "n", LongType()), NestedField(2, "s", inner))
    arrow = pa.struct([col("x", pa.int32(), 3), col("y", pa.string(), 4)])
    rows = {"n": [0, 1, 2, 3], "s": [{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}, {"x": 2, "y": "c"}]}
    file = data_file(tmp_path, [col("n", pa.int64(), 1), col("s", arrow, 2)], rows)
    narrow = pa.struct([col("x", pa.int32(), 3)])
    delete = equality_deletes(tmp_path, [3], [col("s", narrow, 2)], {"s": [{"x": 2}, {"x": None}]})

    output = run(task(context(tmp_path, schema), [file], [delete]))

    assert rows_of(output) == [{"n": 0, "s": {"x": 1, "y": "a"}}]


def test_a_dropped_column_is_still_a_key_and_is_not_written(tmp_path: Path) -> None:
    dropped = NestedField(9, "a", IntegerType())  # its name belongs to another column now
    file = data_file(tmp_path, [*AB_COLUMNS, col("old", pa.int32(), 9)], _with_old([5, 6, None]))
    delete = equality_deletes(tmp_path, [9], [col("old", pa.int32(), 9)], {"old": [6, None]})

    output = run(task(context(tmp_path, AB, dropped=[dropped]), [file], [delete]))

    assert rows_of(output) == [{"a": 0, "b": "b", "c": 0.0}]


@pytest.mark.parametrize(
    "present",
    [
        [NestedField(2, "renamed", StructType(NestedField(3, "old", LongType()), NestedField(4, "new", LongType())))],
        [NestedField(2, "s", StructType(NestedField(4, "new", LongType())))],
        [],
        [NestedField(7, "s", StructType(NestedField(8, "old", IntegerType())))],
    ],
    ids=["evolved", "all members dropped", "struct dropped", "struct dropped and added again"],
)
def test_a_key_dropped_from_a_struct_still_deletes_and_is_not_written(
    tmp_path: Path, present: list[NestedField]
) -> None:
    schema = Schema(NestedField(1, "n", LongType()), *present)
    whole = pa.struct([col("x", pa.int32(), 3), col("old", pa.int32(), 9)])
    rows = [{"x": 7, "old": 1}, {"x": 8, "old": 2}, None, {"x": 9, "old": None}]
    file = data_file(tmp_path, [col("n", pa.int64(), 1), col("s", whole, 2)], {"n": [0, 1, 2, 3], "s": rows})
    narrow = pa.struct([col("old", pa.int32(), 9)])
    delete = equality_deletes(tmp_path, [9], [col("s", narrow, 2)], {"s": [{"old": 2}, {"old": None}]})
    dropped = NestedField(2, "s", StructType(NestedField(9, "old", IntegerType())))

    output = run(task(context(tmp_path, schema, dropped=[dropped]), [file], [delete]))

    assert [row["n"] for row in rows_of(output)] == [0]
    assert [column.name for column in pq.read_schema(output.data_files[0].path)] == ["n", *(f.name for f in present)]
    if present and present[0].name == "renamed":
        assert rows_of(output)[0]["renamed"] == {"old": 7, "new": None}


def _with_old(old: list[int | None]) -> dict[str, list[Any]]:
    return {"a": list(range(len(old))), "b": ["b"] * len(old), "c": [0.0] * len(old), "old": old}


def test_a_key_that_is_no_column_is_refused_by_its_id(tmp_path: Path) -> None:
    file = data_file(tmp_path, AB_COLUMNS, {"a": [1], "b": ["b"], "c": [0.0]})
    delete = equality_deletes(tmp_path, [77], [col("z", pa.int32(), 77)], {"z": [1]})

    with pytest.raises(TableRefused, match="column id 77") as refused:
        run(task(context(tmp_path, AB), [file], [delete]))
    assert refused.value.reason == "equality-ids"


def test_a_delete_file_without_its_key_column_is_unreadable(tmp_path: Path) -> None:
    file = data_file(tmp_path, AB_COLUMNS, {"a": [1], "b": ["b"], "c": [0.0]})
    delete = equality_deletes(tmp_path, [2], [AB_COLUMNS[0]], {"a": [1]})

    with pytest.raises(UnreadableFile, match=r"lacks the key columns \[2\]"):
        run(task(context(tmp_path, AB), [file], [delete]))


def test_keys_written_before_a_promotion_match_rows_of_both_types(tmp_path: Path) -> None:
    schema = Schema(
        NestedField(1, "i", LongType()), NestedField(2, "f", DoubleType()), NestedField(3, "d", DecimalType(20, 2))
    )
    old = [col("i", pa.int32(), 1), col("f", pa.float32(), 2), col("d", pa.decimal128(9, 2), 3)]
    new = [col("i", pa.int64(), 1), col("f", pa.float64(), 2), col("d", pa.decimal128(20, 2), 3)]
    rows = {"i": [1, 2], "f": [0.5, 1.5], "d": [Decimal("1.25"), Decimal("2.50")]}
    files = [data_file(tmp_path, old, rows), data_file(tmp_path, new, rows)]
    delete = equality_deletes(tmp_path, [1, 2, 3], old, {name: values[:1] for name, values in rows.items()})

    output = run(task(context(tmp_path, schema), files, [delete]))

    assert rows_of(output) == [{"i": 2, "f": 1.5, "d": Decimal("2.50")}] * 2


def test_a_column_added_after_the_file_is_a_null_key(tmp_path: Path) -> None:
    file = data_file(tmp_path, AB_COLUMNS[:1], {"a": [1, 2]})
    delete = equality_deletes(tmp_path, [1, 2], AB_COLUMNS[:2], {"a": [1, 2], "b": [None, "x"]})

    assert [row["a"] for row in rows_of(run(task(context(tmp_path, AB), [file], [delete])))] == [2]


def test_an_empty_delete_file_deletes_nothing(tmp_path: Path) -> None:
    file = data_file(tmp_path, AB_COLUMNS[:1], {"a": [1]})
    delete = equality_deletes(tmp_path, [1], AB_COLUMNS[:1], {"a": []})

    assert run(task(context(tmp_path, AB), [file], [delete])).rows_deleted == 0
