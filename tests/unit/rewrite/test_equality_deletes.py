"""Equality deletes while rewriting: every type as a key, with the values at its edges, and keys by their hashes."""

from __future__ import annotations

import math
import random
import struct
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
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
from amoro_optimizer.rewrite.delete_filter import ABSENT, HashFilter, KeyIndex, build_index
from tests.tiers import seeds

from .builders import col, context, data_file, equality_deletes, numbers_of, rows_of, run, task

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
    assert raw == [value for value in values if value not in keys]
    assert (output.rows_read, output.rows_deleted, output.rows_written) == (
        len(values),
        len(values) - len(expected),
        len(expected),
    )


NAN_OTHER_BITS = struct.unpack("<d", b"\x01\0\0\0\0\0\xf8\xff")[0]


@pytest.mark.parametrize(("kind", "arrow"), [(DoubleType(), pa.float64()), (FloatType(), pa.float32())])
@pytest.mark.parametrize(("zero", "kept"), [(0.0, [0, 4, 5, 8]), (-0.0, [0, 3, 5, 8])])
def test_nan_equals_any_nan_and_minus_zero_is_not_zero(
    tmp_path: Path, kind: PrimitiveType, arrow: pa.DataType, zero: float, kept: list[int]
) -> None:
    schema = Schema(NestedField(1, "n", LongType()), NestedField(2, "k", kind))
    values = [1.0, None, math.nan, 0.0, -0.0, 5.0, NAN_OTHER_BITS, math.inf, -math.inf]
    file = data_file(tmp_path, [col("n", pa.int64(), 1), col("k", arrow, 2)], {"n": range(9), "k": values})
    delete = equality_deletes(tmp_path, [2], [col("k", arrow, 2)], {"k": [None, math.nan, zero, math.inf]})

    assert numbers_of(run(task(context(tmp_path, schema), [file], [delete]))) == kept


AB = Schema(NestedField(1, "a", LongType()), NestedField(2, "b", StringType()), NestedField(3, "c", DoubleType()))
AB_COLUMNS = [col("a", pa.int64(), 1), col("b", pa.string(), 2), col("c", pa.float64(), 3)]


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


def test_a_key_that_is_no_column_of_the_table_or_of_its_file_is_refused_by_its_id(tmp_path: Path) -> None:
    file = data_file(tmp_path, AB_COLUMNS, {"a": [1], "b": ["b"], "c": [0.0]})
    foreign = equality_deletes(tmp_path, [77], [col("z", pa.int32(), 77)], {"z": [1]})
    with pytest.raises(TableRefused, match="column id 77") as refused:
        run(task(context(tmp_path, AB), [file], [foreign]))
    assert refused.value.reason == "equality-ids"
    lacking = equality_deletes(tmp_path, [2], [AB_COLUMNS[0]], {"a": [1]})
    with pytest.raises(UnreadableFile, match=r"lacks the key columns \[2\]"):
        run(task(context(tmp_path, AB), [file], [lacking]))


def test_a_column_whose_name_looks_like_a_path_is_not_taken_for_another(tmp_path: Path) -> None:
    inner = pa.struct([col("x", pa.int64(), 3)])
    columns = [col("s", inner, 2), col("s.x", pa.int64(), 1)]
    rows = pa.Table.from_arrays([pa.array([{"x": 1}], inner), pa.array([50])], schema=pa.schema(columns))
    file = data_file(tmp_path, columns, rows)
    assert pq.read_metadata(file.path).num_columns == 2
    delete = equality_deletes(tmp_path, [1], [col("k", pa.int64(), 1)], {"k": [50]})

    output = run(task(context(tmp_path, Schema(NestedField(1, "k", LongType()))), [file], [delete]))

    assert rows_of(output) == []


HASHED: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [None, True, False]),
    (pa.int32(), [None, 0, 1, -1, 2**31 - 1, -(2**31)]),
    (pa.int64(), [None, 0, 1, -1, 2**63 - 1, -(2**63)]),
    (pa.binary(), [None, b"", b"\0", b"\0\0", b"a", b"a" * 8, b"a" * 9, b"a" * 3000, b"a" * 2999 + b"b"]),
    (pa.binary(3), [None, b"\0\0\0", b"abc"]),
    (pa.binary(16), [None, b"\0" * 16, b"\0" * 15 + b"\1", b"x" * 16]),
]


@pytest.mark.parametrize("seed", seeds(10, 30))
def test_levels_are_those_of_a_plain_dictionary(seed: int) -> None:
    chance = random.Random(seed)
    chosen = chance.sample(HASHED, chance.randint(1, 3))
    keys = [[chance.choice(values) for _, values in chosen] for _ in range(chance.choice([1, 5, 60]))]
    rows = [[chance.choice(values) for _, values in chosen] for _ in range(200)]
    levels = [chance.randrange(3) for _ in keys]
    lowest: dict[Any, int] = {}
    for key, level in zip(keys, levels, strict=True):
        lowest[tuple(key)] = min(level, lowest.get(tuple(key), level))

    index = build_index(_sliced(keys, chosen), np.array(levels, np.int32), 1 << 20)

    absent = int(ABSENT)
    assert index.levels_of(_sliced(rows, chosen)).tolist() == [lowest.get(tuple(row), absent) for row in rows]
    assert len(lowest) <= len(index.hashes) <= len(keys)


def _sliced(rows: list[list[Any]], chosen: list[tuple[pa.DataType, list[Any]]]) -> list[pa.Array]:
    """The columns as slices of longer arrays, as batches often are."""
    padded = [rows[0], *rows, rows[0]]
    return [
        pa.array([row[index] for row in padded], kind).slice(1, len(rows)) for index, (kind, _) in enumerate(chosen)
    ]


def test_different_keys_with_one_hash_are_told_apart_by_their_values() -> None:
    found = HashFilter(3, 1024)
    zeros = np.zeros(3, np.uint64)
    found.add(zeros)
    index = KeyIndex(zeros, np.array([4, 5, 6], np.int32), (pa.array([10, None, 30]),), found)

    levels = index.levels_of([pa.array([30, 10, 20, None])], np.zeros(4, np.uint64))

    assert levels.tolist() == [6, 4, ABSENT, 5]
