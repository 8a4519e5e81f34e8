"""The order of values against a scalar oracle: every type, transform, direction, null order; and places on curves."""

from __future__ import annotations

import math
import random
import string
import struct
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import cmp_to_key
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hilbert import encode
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
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from amoro_core.errors import TableRefused
from amoro_core.files.schema.schemas import arrow_schema
from amoro_core.model.clustering import Layout, LayoutKey, Strategy
from amoro_optimizer.cluster.range_partitioner import Coordinates, RangeBounds, hilbert, zorder
from amoro_optimizer.cluster.sort_keys import Order, flat, sort_rows, take_rows
from tests.tiers import count

from .builders import compared, transformed

ROWS = count(4_000, 20_000)  # half as many pairs
SORTED = 500


def _nan(sign: int, single: bool) -> float:
    bits = (sign << 31 | 0x7FC00000) if single else (sign << 63 | 0x7FF8000000000000)
    (value,) = struct.unpack(">f" if single else ">d", struct.pack(">I" if single else ">Q", bits))
    return float(value)


def _text(chance: random.Random) -> str:
    kind = chance.randrange(6)
    if kind == 0:
        return "x" * 40 + "".join(chance.choices(string.ascii_lowercase, k=chance.randrange(3)))
    if kind == 1:
        return "".join(chance.choices("a\0é€\uffff\U0001f600\U0010ffff", k=chance.randrange(5)))
    return "".join(chance.choices("abAB", k=chance.randrange(12)))


def _long_decimal(chance: random.Random) -> Decimal:
    digits = str(chance.choice([chance.randrange(10**38), chance.randrange(2**70), 2**64]))
    return Decimal((chance.randrange(2), tuple(map(int, digits)), -3))


EPOCH = datetime(1970, 1, 1)
MAKERS: dict[str, tuple[IcebergType, Callable[[random.Random], Any]]] = {
    "boolean": (BooleanType(), lambda c: c.random() < 0.5),
    "int": (IntegerType(), lambda c: c.choice([0, -1, 2**31 - 1, -(2**31), c.randint(-50, 50)])),
    "long": (LongType(), lambda c: c.choice([0, -1, 2**63 - 1, -(2**63), c.randint(-(2**63), 2**63 - 1), 2**53 + 1])),
    "float": (
        FloatType(),
        lambda c: c.choice([0.0, -0.0, 1.5, math.inf, -math.inf, -1.5, 2.0**-149, c.randint(-9, 9)]),
    ),
    "double": (DoubleType(), lambda c: c.choice([0.0, -0.0, math.inf, -math.inf, 5e-324, c.uniform(-1e300, 1e300)])),
    "date": (DateType(), lambda c: date(1970, 1, 1) + timedelta(days=c.randint(-30_000, 30_000))),
    "time": (TimeType(), lambda c: time(c.randrange(24), c.randrange(60), c.randrange(60), c.randrange(10**6))),
    "timestamp": (TimestampType(), lambda c: EPOCH + timedelta(microseconds=c.randint(-(10**15), 10**15))),
    "timestamptz": (
        TimestamptzType(),
        lambda c: EPOCH.replace(tzinfo=UTC) + timedelta(microseconds=c.randint(-(10**12), 10**12)),
    ),
    "string": (StringType(), _text),
    "binary": (BinaryType(), lambda c: bytes(c.choices([0, 1, 127, 128, 255], k=c.randrange(11)))),
    "fixed3": (FixedType(3), lambda c: bytes(c.choices([0, 1, 128, 255], k=3))),
    "fixed16": (FixedType(16), lambda c: bytes(c.choices([0, 128, 255], k=16))),
    "fixed20": (FixedType(20), lambda c: bytes(c.choices([0, 255], k=20))),
    "uuid": (UUIDType(), lambda c: uuid.UUID(bytes=bytes(c.choices([0, 127, 128, 255], k=16)))),
    "decimal9": (DecimalType(9, 2), lambda c: Decimal(c.randint(-999_999_999, 999_999_999)).scaleb(-2)),
    "decimal18": (DecimalType(18, 0), lambda c: Decimal(c.choice([0, 10**18 - 1, 1 - 10**18, c.randint(-9, 9)]))),
    "decimal38": (DecimalType(38, 3), _long_decimal),
}
TRANSFORMS = {
    "identity": tuple(MAKERS),
    "bucket[7]": (
        "int", "long", "date", "time", "timestamp", "timestamptz", "string", "binary", "fixed3", "fixed20", "uuid",
        "decimal9", "decimal18", "decimal38",
    ),
    "truncate[3]": ("int", "long", "string", "binary", "decimal9", "decimal18", "decimal38"),
    "year": ("date", "timestamp", "timestamptz"),
    "month": ("date", "timestamp", "timestamptz"),
    "day": ("date", "timestamp", "timestamptz"),
    "hour": ("timestamp", "timestamptz"),
}  # fmt: skip
CASES = [(transform, name) for transform, names in TRANSFORMS.items() for name in names]


def values_of(name: str, seed: int, rows: int = ROWS) -> list[Any]:
    chance = random.Random(seed)
    kind, make = MAKERS[name]
    values = [None if chance.random() < 0.1 else make(chance) for _ in range(rows)]
    if isinstance(kind, FloatType | DoubleType):
        nans = [_nan(sign, isinstance(kind, FloatType)) for sign in (0, 1)]
        values = [chance.choice(nans) if chance.random() < 0.05 else value for value in values]
        if isinstance(kind, FloatType):
            values = [value if value is None else float(np.float32(value)) for value in values]
    return values


def array_of(kind: IcebergType, values: list[Any]) -> pa.Array:
    wanted = arrow_schema(Schema(NestedField(1, "v", kind, required=False))).field(0).type
    if isinstance(kind, UUIDType):
        stored = pa.array([None if one is None else one.bytes for one in values], pa.binary(16))
        return pa.ExtensionArray.from_storage(wanted, stored)
    return pa.array(values, wanted)


def order_of(kind: IcebergType, key: LayoutKey, required: bool = False) -> Order:
    return Order(Schema(NestedField(1, "v", kind, required=required)), Layout(Strategy.LINEAR, (key,)))


def batch_of(order: Order, array: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([array], schema=arrow_schema(order.schema))


@pytest.mark.parametrize(("transform", "name"), CASES, ids=str)
def test_pairs_of_values_order_as_iceberg_says(transform: str, name: str) -> None:
    kind, _ = MAKERS[name]
    values = values_of(name, 1)
    if transform == "truncate[3]" and name in ("int", "long"):
        values = [one if one is None or abs(one) < 2**31 - 9 else 0 for one in values]  # others wrap in Java
    # A slice, whose buffers begin elsewhere.
    array = array_of(kind, [None, *values, None]).slice(1, len(values))
    known = [None if one is None else transformed(kind, LayoutKey(1, transform), one) for one in values]
    key = LayoutKey(1, transform)
    parts = flat(order_of(kind, key).parts(batch_of(order_of(kind, key), array)))
    half = len(values) // 2
    lower, upper = known[:half], known[half:]
    signs = [compared(key, one, other) for one, other in zip(lower, upper, strict=True)]
    assert signs_of(parts, half) == signs
    for descending, nulls_last in ((False, False), (True, False), (False, True), (True, True)):
        key = LayoutKey(1, transform, descending, nulls_last)
        order = order_of(kind, key)
        parts = flat(order.parts(batch_of(order, array.slice(0, SORTED))))
        expected = sorted(range(SORTED), key=cmp_to_key(lambda a, b, key=key: compared(key, known[a], known[b])))
        assert sort_rows(parts, flat(order.descending)).tolist() == expected


def signs_of(parts: list[Any], half: int) -> list[int]:
    """The first half of the rows compared with the second, one by one."""
    rows = list(
        zip(*(part.tolist() if isinstance(part, np.ndarray) else part.to_pylist() for part in parts), strict=True)
    )
    return [(one > other) - (one < other) for one, other in zip(rows[:half], rows[half:], strict=True)]


@pytest.mark.parametrize("name", list(MAKERS))
@pytest.mark.parametrize("descending", [False, True])
def test_points_are_counted_as_by_comparing_one_by_one(name: str, descending: bool) -> None:
    kind, _ = MAKERS[name]
    key = LayoutKey(1, "identity", descending, True)
    order = order_of(kind, key)
    values = values_of(name, 2, 600)
    known = [None if one is None else transformed(kind, key, one) for one in values]
    parts, down = flat(order.parts(batch_of(order, array_of(kind, values)))), flat(order.descending)
    chosen = sort_rows(parts, down)[5::37]
    ordered = [known[row] for row in chosen]
    kept = [at for at in range(len(ordered)) if not at or compared(key, ordered[at - 1], ordered[at])]
    points = RangeBounds([take_rows(part, chosen[kept]) for part in parts], down)
    expected = [sum(compared(key, ordered[at], value) <= 0 for at in kept) for value in known]
    assert points.count_up_to(parts).tolist() == expected


def test_a_row_that_equals_a_bound_counts_it_and_points_are_left_as_they_were() -> None:
    def words(*values: int) -> Any:
        return np.array(values, np.uint64)

    rows = words(2, 3, 4, 5, 9)
    for others in (words(7, 7), words(6, 7)):  # a part in which all rows are equal, and one in which they are not
        bounds = RangeBounds([words(3, 5), others], (False, False))
        assert bounds.count_up_to([rows, words(7, 7, 7, 7, 7)]).tolist() == [0, 1, 1, 2, 2]
    assert RangeBounds([words(3)], (False,)).count_up_to([words(3, 3)]).tolist() == [1, 1]
    assert RangeBounds([words()], (False,)).count_up_to([rows]).tolist() == [0] * 5
    points = random_points(3, 100)
    before = [point.copy() for point in points]
    hilbert(points)
    assert all((one == other).all() for one, other in zip(points, before, strict=True))


def test_rows_are_compared_column_by_column_within_structs_too() -> None:
    schema = Schema(
        NestedField(1, "s", StructType(NestedField(2, "a", IntegerType(), required=True)), required=False),
        NestedField(3, "b", StringType(), required=True),
    )
    layout = Layout(Strategy.LINEAR, (LayoutKey(2, nulls_last=True), LayoutKey(3, "truncate[1]", True), LayoutKey(3)))
    rows = [
        {"s": {"a": 2}, "b": "x"}, {"s": None, "b": "a"}, {"s": {"a": 1}, "b": "az"}, {"s": {"a": 1}, "b": "b"},
        {"s": {"a": 1}, "b": "aa"},
    ]  # fmt: skip
    order = Order(schema, layout)
    batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(schema))
    assert sort_rows(flat(order.parts(batch)), flat(order.descending)).tolist() == [3, 4, 2, 0, 1]


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (Layout(Strategy.LINEAR, ()), "without columns"),
        (Layout(Strategy.LINEAR, (LayoutKey(9),)), "column id 9"),
        (Layout(Strategy.LINEAR, (LayoutKey(3),)), "column id 3"),
        (Layout(Strategy.LINEAR, (LayoutKey(1, "void"),)), "void"),
        (Layout(Strategy.LINEAR, (LayoutKey(1, "spiral[3]"),)), "spiral"),
        (Layout(Strategy.LINEAR, (LayoutKey(1, "year"),)), "year of a column of type int"),
        (Layout(Strategy.HILBERT, tuple(LayoutKey(1) for _ in range(5))), "at most 4 columns"),
        (Layout(Strategy.ZORDER, (LayoutKey(1),), curve_version=2), "version 2"),
    ],
)
def test_a_layout_that_is_not_handled_is_refused_by_name(layout: Layout, message: str) -> None:
    schema = Schema(
        NestedField(1, "a", IntegerType(), required=True),
        NestedField(2, "l", ListType(3, IntegerType(), element_required=False), required=False),
    )
    with pytest.raises(TableRefused, match=message) as refused:
        Order(schema, layout)
    assert refused.value.reason == "configuration"


def random_points(count: int, rows: int) -> list[Coordinates]:
    chance = np.random.default_rng(count)
    return [chance.integers(0, 1 << 16, rows).astype(np.uint16) for _ in range(count)]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_hilbert_is_that_of_another_implementation(count: int) -> None:
    points = random_points(count, 10_000)
    assert (hilbert(points) == encode(np.stack(points, axis=1).astype(np.uint64), count, 16).astype(np.uint64)).all()


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_zorder_takes_the_bits_by_turns(count: int) -> None:
    points = random_points(count, 500)
    bits = ["".join(f"{point[row]:016b}"[at] for at in range(16) for point in points) for row in range(500)]
    assert zorder(points).tolist() == [int(one, 2) for one in bits]
