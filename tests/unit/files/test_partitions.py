"""Partition values out of their bytes: paths and constants."""

from __future__ import annotations

import uuid
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    UUIDType,
)

from amoro_core.files.schema.schemas import partition_path

U = uuid.UUID("12345678-1234-5678-1234-567812345678")


@pytest.mark.parametrize(
    ("kind", "transform", "value", "shown"),
    [
        (StringType(), IdentityTransform(), b"a=b&c/d e", "a%3Db%26c%2Fd+e"),
        (IntegerType(), IdentityTransform(), to_bytes(IntegerType(), -3), "-3"),
        (BooleanType(), IdentityTransform(), b"\1", "true"),
        (DateType(), IdentityTransform(), to_bytes(DateType(), -1), "1969-12-31"),
        (DecimalType(9, 2), IdentityTransform(), to_bytes(DecimalType(9, 2), Decimal("1.20")), "1.20"),
        (UUIDType(), IdentityTransform(), U.bytes, str(U)),
        (BinaryType(), IdentityTransform(), b"ab", "YWI%3D"),
        (DateType(), MonthTransform(), to_bytes(IntegerType(), 3), "1970-04"),
        (DateType(), YearTransform(), to_bytes(IntegerType(), -1), "1969"),
        (TimestampType(), HourTransform(), to_bytes(IntegerType(), 25), "1970-01-02-01"),
        (TimestampType(), DayTransform(), to_bytes(DateType(), 2**31 - 1), "5881580-07-11"),
        (
            TimestamptzType(),
            IdentityTransform(),
            to_bytes(LongType(), 2**62),
            "148108-07-06T14%3A00%3A27.387904%2B00%3A00",
        ),
        (
            TimestamptzNanoType(),
            IdentityTransform(),
            to_bytes(LongType(), -1),
            "1969-12-31T23%3A59%3A59.999999999%2B00%3A00",
        ),
        (StringType(), TruncateTransform(2), b"ab", "ab"),
        (StringType(), VoidTransform(), None, "null"),
        (StringType(), IdentityTransform(), None, "null"),
    ],
)
def test_paths_are_those_of_iceberg(
    kind: PrimitiveType, transform: Transform[Any, Any], value: bytes | None, shown: str
) -> None:
    schema = Schema(NestedField(1, "c", kind))
    spec = PartitionSpec(PartitionField(1, 1000, transform, "p q"))

    assert partition_path(spec, (value,), schema) == f"p+q={shown}"


def test_paths_of_dropped_source_columns_show_the_bytes_and_unpartitioned_ones_are_empty() -> None:
    spec = PartitionSpec(PartitionField(9, 1000, IdentityTransform(), "p"))

    assert partition_path(spec, (b"\1\2",), Schema(NestedField(1, "c", LongType()))) == "p=0102"
    assert partition_path(PartitionSpec(), (), Schema(NestedField(1, "c", LongType()))) == ""
