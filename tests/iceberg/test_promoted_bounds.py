"""Bounds and partition values of nanoseconds, and bounds that were written while a timestamp was a date."""

import random
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, Transform, parse_transform
from pyiceberg.types import (
    DateType,
    DoubleType,
    LongType,
    NestedField,
    PrimitiveType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    UUIDType,
)

from amoro_core.errors import TableRefused
from amoro_core.files.hashing import value_hashes
from amoro_core.files.schema.schemas import identity_constants, partition_path, promoted
from amoro_core.iceberg.manifest.reading import read_manifest, to_partition
from amoro_core.iceberg.manifest.writing import added_entry, new_header, write_manifest
from amoro_core.iceberg.metadata import bound_key
from amoro_core.maintenance.data_expiry import DataExpiryConfig, Limit, _latest
from amoro_core.model.files import ColumnMetrics, DataFile, FileFormat, Partition
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
