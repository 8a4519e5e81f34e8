"""Bounds and partition values of nanoseconds, and bounds that were written while a timestamp was a date."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable
from decimal import Decimal
from functools import cmp_to_key
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    UnknownTransform,
    VoidTransform,
    parse_transform,
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
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from amoro_core.errors import TableRefused
from amoro_core.files.hashing import value_hashes
from amoro_core.files.schema.schemas import identity_constants, partition_path, promoted
from amoro_core.iceberg.manifest.reading import read_manifest, to_partition
from amoro_core.iceberg.manifest.writing import added_entry, new_header, write_manifest
from amoro_core.iceberg.metadata import bound_key
from amoro_core.maintenance.data_expiry import DataExpiryConfig, Limit, _latest
from amoro_core.model.clustering import LayoutKey
from amoro_core.model.files import ColumnMetrics, DataFile, FileFormat, Partition
from amoro_core.model.plans import PartitionKey
from amoro_optimizer.cluster.sort_keys import transform_parts
from tests.iceberg.scenarios import port

DAY = 86_400_000_000  # microseconds
NANOS = (TimestampNanoType(), TimestamptzNanoType())


def of_int(number: int) -> bytes:
    return struct.pack("<i", number)


def of_long(number: int) -> bytes:
    return struct.pack("<q", number)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (LongType(), of_int(-7), of_long(-7)),
        (DoubleType(), struct.pack("<f", 0.5), struct.pack("<d", 0.5)),
        (TimestampType(), of_int(-1), of_long(-DAY)),
        (TimestampNanoType(), of_int(2), of_long(2000 * DAY)),
        (TimestampNanoType(), of_int(106_752), None),  # 2262-04-12 is beyond nanoseconds
        (TimestampNanoType(), of_int(-106_752), None),
        (TimestampType(), of_int(2**31 - 1), None),
        (TimestampType(), of_long(5), of_long(5)),
        (DateType(), of_int(5), of_int(5)),
    ],
)
def test_values_from_before_a_promotion(kind: PrimitiveType, value: bytes, expected: bytes | None) -> None:
    assert promoted(kind, value) == expected


@pytest.mark.parametrize("kind", [TimestampType(), TimestampNanoType()])
def test_bounds_of_dates_compare_as_their_midnights(kind: PrimitiveType) -> None:
    a_day = DAY if isinstance(kind, TimestampType) else 1000 * DAY
    key = bound_key(kind)
    assert key(of_int(3)) == key(of_long(3 * a_day)) == 3 * a_day
    assert key(of_int(-3)) == key(of_long(-3 * a_day)) == -3 * a_day
    assert key(of_int(2**31 - 1)) is None


@pytest.mark.parametrize("kind", [TimestamptzType(), TimestamptzNanoType()])
def test_a_bound_of_four_bytes_is_no_time_with_a_zone(kind: PrimitiveType) -> None:
    assert bound_key(kind)(of_int(3)) is None


def metadata_of(kind: PrimitiveType, *fields: PartitionField) -> TableMetadata:
    schema = Schema(NestedField(1, "at", kind, required=False), NestedField(2, "u", UUIDType(), required=False))
    return new_table_metadata(
        schema, PartitionSpec(*fields), UNSORTED_SORT_ORDER, "/t", properties={"format-version": "3"}
    )


def file_of(lower: bytes, upper: bytes, partition: Partition = ()) -> DataFile:
    metrics = ColumnMetrics({}, {1: 9}, {1: 0}, {}, {1: lower}, {1: upper})
    return DataFile("/t/data/a.parquet", FileFormat.PARQUET, 0, partition, 9, 1000, 1, metrics)


def test_a_filter_goes_by_bounds_of_dates() -> None:
    dated = file_of(of_int(10), of_int(20))  # 1970-01-11 to 1970-01-21
    for condition, expected in (
        ("at > '1970-01-21T00:00:00'", False),
        ("at >= '1970-01-21T00:00:00'", True),
        ("at < '1970-01-11T00:00:00'", False),
    ):
        assert port(metadata_of(TimestampType())).selects(condition)(dated) is expected


@pytest.mark.parametrize(("kind", "zone"), [(NANOS[0], ""), (NANOS[1], "+00:00"), (NANOS[1], "Z")])
@pytest.mark.parametrize("transform", [None, IdentityTransform(), DayTransform(), BucketTransform(3)])
def test_a_filter_goes_by_nanoseconds(kind: PrimitiveType, zone: str, transform: Transform[Any, Any] | None) -> None:
    moment = 86_400_000_000_007  # 1970-01-02T00:00:00.000000007
    value = None if transform is None else transform.transform(kind)(moment)
    stored = () if transform is None else (to_bytes(transform.result_type(kind), value),)
    parts = () if transform is None else (PartitionField(1, 1000, transform, "p"),)
    file = file_of(of_long(moment), of_long(moment), stored)
    for condition, expected in (
        ("at = '1970-01-02T00:00:00.000000007{}'", True),
        ("at > '1970-01-02T00:00:00.000000007{}'", False),
        ("at >= '1970-01-02T00:00:00.000000007{}'", True),
        ("at < '1970-01-02T00:00{}'", False),
        ("at < '1970-01-02T00:00:00.00000001{}'", True),
        ("at < '1970-01-01T23:59:59.9{}'", False),
        ("at IS NULL", False),
    ):
        assert port(metadata_of(kind, *parts)).selects(condition.format(zone))(file) is expected


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        (NANOS[0], "1970-01-02", "'1970-01-02' is no moment such as"),
        (NANOS[0], "1970-01-02T00:00:00Z", "has a zone, unlike a column of timestamp_ns"),
        (NANOS[1], "1970-01-02T00:00:00", "has no zone, unlike a column of timestamptz_ns"),
        (NANOS[0], "1970-13-02T00:00:00", "month must be in"),
    ],
)
def test_texts_that_are_no_moments_are_told(kind: PrimitiveType, text: str, said: str) -> None:
    with pytest.raises(TableRefused, match=said):
        port(metadata_of(kind)).selects(f"at < '{text}'")


def test_data_expires_by_nanoseconds_rounded_up_and_by_bounds_of_dates() -> None:
    def latest(kind: PrimitiveType, upper: bytes, *parts: PartitionField, partition: Partition = ()) -> int | None:
        column = port(metadata_of(kind, *parts)).time_column("at")
        limit = Limit(column, DataExpiryConfig(), None, 0)  # type: ignore[arg-type]  # a zone is for strings
        file = file_of(upper, upper, partition)
        if parts:
            file = DataFile(file.path, file.file_format, 0, partition, 9, 1000, 1)
        return _latest(file, limit)

    for kind in NANOS:
        assert latest(kind, of_long(1)) == 1
        assert latest(kind, of_long(-1)) == 0
        assert latest(kind, of_long(2000)) == 2
        day = PartitionField(1, 1000, DayTransform(), "d")
        assert latest(kind, b"", day, partition=(of_int(4),)) == 5 * DAY
    assert latest(TimestampNanoType(), of_int(4)) == latest(TimestampType(), of_int(4)) == 4 * DAY


@pytest.mark.parametrize("kind", NANOS)
@pytest.mark.parametrize("transform", ["identity", "bucket[7]", "year", "month", "day", "hour"])
def test_transforms_of_nanoseconds_are_those_of_the_specification(kind: PrimitiveType, transform: str) -> None:
    choice = random.Random(7)
    values = [choice.randint(-(2**63) + 1, 2**63 - 1) for _ in range(300)] + [-1, 0, 999, 1000, -1000, -1001]
    zone = "UTC" if isinstance(kind, TimestamptzNanoType) else None
    array = pa.array([*values, None], pa.int64()).view(pa.timestamp("ns", zone))

    (part,) = transform_parts(transform, kind)(array)

    found = [int(word) for word in part.tolist()]
    if not transform.startswith("bucket"):
        found = [(one ^ 1 << 63) - (1 << 64 if (one ^ 1 << 63) >> 63 else 0) for one in found]
    apply = parse_transform(transform).transform(kind)
    assert found[:-1] == [apply(value) for value in values]


@pytest.mark.parametrize(("kind", "zone"), [(NANOS[0], ""), (NANOS[1], "%2B00%3A00")])
def test_nanoseconds_in_paths_of_partitions_and_as_constants(kind: PrimitiveType, zone: str) -> None:
    schema = Schema(NestedField(1, "at", kind))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"))
    partition = (of_long(-1),)
    assert partition_path(spec, partition, schema) == f"p=1969-12-31T23%3A59%3A59.999999999{zone}"
    assert identity_constants(spec, partition, schema)[1].cast(pa.int64()).to_pylist() == [-1]


def test_nanoseconds_are_counted_as_their_numbers() -> None:
    assert port(metadata_of(NANOS[0])).countable_columns() == {"at": 1, "u": 2}
    numbers = pa.array([1, 2, None, 2**62], pa.int64())
    assert value_hashes(numbers.view(pa.timestamp("ns"))).tolist() == value_hashes(numbers).tolist()


@pytest.mark.parametrize("kind", NANOS)
def test_manifests_of_partitions_by_nanoseconds_come_back_as_they_were(kind: PrimitiveType, tmp_path: Path) -> None:
    """pyiceberg writes such manifests, and reads none."""
    metadata = metadata_of(kind, PartitionField(1, 1000, IdentityTransform(), "p"))
    header, io = new_header(metadata, 0), PyArrowFileIO()
    files = [file_of(of_long(-1), of_long(-1), (value,)) for value in (of_long(-1), of_long(2**62 + 1), None)]
    entries = [added_entry(file, header, 5) for file in files]

    made = write_manifest(io, f"{tmp_path}/m.avro", 2, ManifestContent.DATA, header, 5, entries)
    back = read_manifest(io, made)

    assert back.header.partition_type == header.partition_type
    assert [to_partition(entry.data_file.partition, (kind,)) for entry in back.entries] == [
        file.partition for file in files
    ]
    (summary,) = made.partitions or ()
    assert (summary.lower_bound, summary.upper_bound) == (of_long(-1), of_long(2**62 + 1))


# What a table's metadata says of orders of its rows


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
