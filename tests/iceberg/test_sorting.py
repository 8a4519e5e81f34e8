"""What a table's metadata says of orders of its rows."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable
from decimal import Decimal
from functools import cmp_to_key
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    UnknownTransform,
    VoidTransform,
)
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
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from amoro_core.iceberg.metadata import bound_key
from amoro_core.model.clustering import LayoutKey
from amoro_core.model.plans import PartitionKey
from tests.iceberg.scenarios import port

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "at", TimestamptzType(), required=False),
    NestedField(
        4, "place", StructType(NestedField(6, "city", StringType(), required=False)), required=False
    ),
    NestedField(5, "tags", ListType(7, StringType(), element_required=False), required=False),
    identifier_field_ids=[1],
)  # fmt: skip


def table(
    *, order: tuple[SortField, ...] = (), spec: tuple[tuple[int, Transform[Any, Any]], ...] = ()
) -> TableMetadata:
    fields = [PartitionField(source, 1000 + at, made, f"part_{at}") for at, (source, made) in enumerate(spec)]
    return new_table_metadata(
        SCHEMA, PartitionSpec(*fields), SortOrder(*order) if order else SortOrder(order_id=0), "/t"
    )


def test_columns_have_their_names_and_why_rows_cannot_be_ordered_by_them() -> None:
    found = {one.name: one.problem for one in port(table()).sorting().columns}
    assert found == {
        "id": "",
        "name": "",
        "at": "",
        "place": "is a struct, which has no order",
        "place.city": "",
        "tags": "is a list, which has no order",
        "tags.element": "lies within a list, whose values have no bounds",
    }
    assert port(table()).sorting().identifiers == (1,)
    assert port(table()).sorting().default_order.keys == ()


def test_sort_orders_are_keys_of_layouts() -> None:
    order = (
        SortField(1, BucketTransform(16), SortDirection.DESC, NullOrder.NULLS_LAST),
        SortField(6, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_FIRST),
    )
    found = port(table(order=order)).sorting()
    assert found.default_order.order_id == found.default_order_id == 1
    assert found.default_order.keys == (LayoutKey(1, "bucket[16]", True, True), LayoutKey(6))
    assert found.default_order.problem == ""


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        (SortField(1, UnknownTransform("zap")), "has the transform 'zap' of id, which is not known"),
        (SortField(1, VoidTransform()), "has the transform void of id, which orders nothing"),
        (SortField(1, DayTransform()), "has the transform day of id, which a long does not have"),
        (SortField(7, IdentityTransform()), "names column tags.element, which lies within a list"),
        (SortField(99, IdentityTransform()), "names field 99, which the schema does not have"),
    ],
)
def test_a_sort_order_that_cannot_be_followed_says_why(field: SortField, problem: str) -> None:
    metadata = table()
    changed = metadata.model_copy(update={"sort_orders": [SortOrder(field, order_id=3)], "default_sort_order_id": 3})
    found = port(changed).sorting().default_order
    assert found.order_id == 3
    assert found.problem.startswith(problem)


def test_columns_that_have_one_value_in_a_partition_are_those_of_identity() -> None:
    found = port(table(spec=((1, IdentityTransform()), (2, BucketTransform(4)), (3, DayTransform())))).sorting()
    assert found.partitioned_by == {1}


def test_partitions_are_ordered_by_what_tells_a_time_first_and_nulls_come_first() -> None:
    order = (
        port(table(spec=((2, IdentityTransform()), (3, MonthTransform()), (1, VoidTransform()))))
        .sorting()
        .partition_order
    )

    def place(name: str | None, month: int | None) -> PartitionKey:
        values = (None if name is None else name.encode(), None if month is None else struct.pack("<i", month), None)
        return PartitionKey(0, values)

    expected = [place("b", None), place(None, -1), place("a", -1), place("b", -1), place("a", 300), place("a", 301)]
    assert sorted({*expected}, key=order) == expected


def decimal_of(choice: random.Random) -> Decimal:
    unscaled = choice.randint(1 - 10 ** choice.randint(1, 38), 10 ** choice.randint(1, 38) - 1)
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -2))


MANY: list[tuple[PrimitiveType, Callable[[random.Random], Any]]] = [
    (BooleanType(), lambda choice: choice.random() < 0.5),
    (IntegerType(), lambda choice: choice.randint(-(2**31), 2**31 - 1)),
    (LongType(), lambda choice: choice.choice([choice.randint(-(2**63), 2**63 - 1), choice.randint(-3, 3)])),
    (DateType(), lambda choice: choice.randint(-(2**31), 2**31 - 1)),
    (TimeType(), lambda choice: choice.randint(0, 86_399_999_999)),
    (TimestampType(), lambda choice: choice.randint(-(2**63), 2**63 - 1)),
    (DoubleType(), lambda choice: choice.choice([-0.0, 0.0, math.inf, -math.inf, choice.random(), -5e-324])),
    (FloatType(), lambda choice: choice.choice([-0.0, 0.0, float("inf"), -float("inf"), choice.uniform(-1, 1)])),
    (DecimalType(38, 2), lambda choice: decimal_of(choice)),
    (StringType(), lambda choice: "".join(choice.choice("aé\uffff😀") for _ in range(choice.randint(0, 4)))),
    (BinaryType(), lambda choice: choice.randbytes(choice.randint(0, 3))),
    (FixedType(3), lambda choice: choice.randbytes(3)),
    (UUIDType(), lambda choice: UUID(bytes=choice.randbytes(16))),
]  # fmt: skip


def compared(kind: IcebergType, one: Any, other: Any) -> int:
    """Iceberg's order, value by value."""
    if isinstance(kind, FloatType | DoubleType):
        one, other = ((value, struct.pack(">d", value)[0] < 128) for value in (one, other))
    elif isinstance(kind, StringType):
        one, other = one.encode(), other.encode()
    elif isinstance(kind, UUIDType):
        one, other = one.bytes, other.bytes
    return (one > other) - (one < other)


@pytest.mark.parametrize(("kind", "make"), MANY, ids=lambda item: str(item) if isinstance(item, IcebergType) else "")
def test_bounds_compare_as_their_values(kind: PrimitiveType, make: Callable[[random.Random], Any]) -> None:
    choice = random.Random(7)
    to_key = bound_key(kind)
    values = [make(choice) for _ in range(300)]

    def by_bounds(one: Any, other: Any) -> int:
        here, there = to_key(to_bytes(kind, one)), to_key(to_bytes(kind, other))
        return (here > there) - (here < there)  # type: ignore[operator]

    for one, other in pairwise(values):
        assert by_bounds(one, other) == compared(kind, one, other), (one, other)
    ordered = sorted(values, key=cmp_to_key(by_bounds))
    assert all(compared(kind, one, other) <= 0 for one, other in pairwise(ordered))


@pytest.mark.parametrize(
    ("kind", "bound"),
    [(LongType(), b"abc"), (DoubleType(), b"abc"), (DoubleType(), struct.pack("<d", float("nan"))),
     (DecimalType(9, 2), b"")],
)  # fmt: skip
def test_bytes_that_are_no_value_of_the_type_are_no_bounds(kind: IcebergType, bound: bytes) -> None:
    assert bound_key(kind)(bound) is None
