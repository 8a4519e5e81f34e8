"""Bounds of written columns: exact, cut where the mode says so, absent where nothing true can be said."""

import struct
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

from amoro_core.files.io import open_access
from amoro_core.files.options import writer_options
from amoro_core.files.schema import arrow_schema
from amoro_core.files.writing import ParquetOutput
from amoro_core.model.files import ColumnMetrics


def written(root: Path, schema: Schema, columns: list[pa.Array], mode: str = "truncate(16)") -> ColumnMetrics:
    """The metrics of a file of these columns, in row groups of two rows."""
    access = open_access({}, str(root), read_locations=[str(root)], write_locations=[str(root)])
    properties = {"write.metadata.metrics.default": mode, "write.parquet.row-group-limit": "2"}
    output = ParquetOutput(access, f"{root}/out.parquet", schema, writer_options(properties))
    output.write(pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema)))
    return output.close().metrics


def bounds(
    root: Path, kind: PrimitiveType, values: list[Any], mode: str = "truncate(16)"
) -> tuple[bytes | None, bytes | None]:
    schema = Schema(NestedField(1, "c", kind))
    metrics = written(root, schema, [column(arrow_schema(schema).field(0).type, values)], mode)
    assert metrics.value_counts == {1: len(values)}
    assert metrics.null_value_counts == {1: values.count(None)}
    return metrics.lower_bounds.get(1), metrics.upper_bounds.get(1)


def column(kind: pa.DataType, values: list[Any]) -> pa.Array:
    """Dates and times as the numbers that Iceberg stores, strings as bytes, decimals as their unscaled numbers."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    if pa.types.is_decimal(kind):
        stored = [None if one is None else one.to_bytes(16, "little", signed=True) for one in values]
        return pa.array(stored, pa.binary(16)).view(kind)
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    return pa.array(values, pa.binary()).view(kind) if pa.types.is_string(kind) else pa.array(values, kind)


def long(value: int) -> bytes:
    return struct.pack("<q", value)


MOST = 10**38 - 1


@pytest.mark.parametrize(
    ("kind", "values", "lower", "upper"),
    [
        (BooleanType(), [True, None, False, True], b"\0", b"\1"),
        (IntegerType(), [2**31 - 1, 0, None, -(2**31)], struct.pack("<i", -(2**31)), struct.pack("<i", 2**31 - 1)),
        (LongType(), [-(2**63), None, None, 2**63 - 1], long(-(2**63)), long(2**63 - 1)),
        (FloatType(), [1.5, -2.5, float("inf"), None], struct.pack("<f", -2.5), struct.pack("<f", float("inf"))),
        (DoubleType(), [0.0, 0.0, 0.0, 1e300], struct.pack("<d", -0.0), struct.pack("<d", 1e300)),
        # Beyond Python's calendar, which has the years 1 to 9999.
        (DateType(), [-(2**31), 2**31 - 1, 0], struct.pack("<i", -(2**31)), struct.pack("<i", 2**31 - 1)),
        (TimestampType(), [-(2**63) + 1, None, 2**63 - 1], long(-(2**63) + 1), long(2**63 - 1)),
        (TimestamptzType(), [2**62, -(2**62), 0], long(-(2**62)), long(2**62)),
        (TimeType(), [0, 86_399_999_999, None], long(0), long(86_399_999_999)),
        (UUIDType(), [b"\xff" * 16, b"\0" * 15 + b"\1", None], b"\0" * 15 + b"\1", b"\xff" * 16),
        (FixedType(20), [b"\xff" * 20, b"b" * 20, None], b"b" * 20, b"\xff" * 20),
        (DecimalType(9, 2), [-1, 10**9 - 1, 0], b"\xff", (10**9 - 1).to_bytes(4, "big")),
        (DecimalType(18, 0), [127, 128, -128], b"\x80", b"\0\x80"),
        (DecimalType(38, 4), [MOST, -MOST, 5], (-MOST).to_bytes(16, signed=True), MOST.to_bytes(16)),
        (DecimalType(38, 4), [-3, -2, -1], b"\xfd", b"\xff"),
    ],
    ids=lambda value: str(value)[:14],
)  # fmt: skip
def test_bounds_are_the_values_in_the_form_of_manifests(
    tmp_path: Path, kind: PrimitiveType, values: list[Any], lower: bytes, upper: bytes
) -> None:
    assert bounds(tmp_path, kind, values) == (lower, upper)


LAST = "\U0010ffff"


@pytest.mark.parametrize(
    ("mode", "values", "lower", "upper"),
    [
        ("truncate(16)", ["é" * 20, "ü" * 16], "é" * 16, "ü" * 16),
        ("truncate(16)", ["é" * 20], "é" * 16, "é" * 15 + "ê"),
        ("truncate(2)", ["日本語", "日"], "日", "日札"),
        ("truncate(1)", ["😀b"], "😀", "😁"),
        ("truncate(2)", ["a\ud7ffz"], "a\ud7ff", "a\ue000"),  # what follows are surrogates, which are no characters
        ("truncate(2)", ["a\uffffz"], "a\uffff", "a\U00010000"),
        ("truncate(2)", ["a" + LAST + "z"], "a" + LAST, "b"),
        ("truncate(2)", [LAST * 2 + "z", "a"], "a", None),
        ("truncate(2)", [LAST * 2, ""], "", LAST * 2),
        ("full", ["é" * 20, "b" * 20], "b" * 20, "é" * 20),
        ("counts", ["a"], None, None),
    ],
)
def test_strings_are_cut_between_characters_and_raised(
    tmp_path: Path, mode: str, values: list[str], lower: str | None, upper: str | None
) -> None:
    found = bounds(tmp_path, StringType(), [value.encode() for value in values], mode)

    assert found == tuple(None if one is None else one.encode() for one in (lower, upper))


@pytest.mark.parametrize(
    ("mode", "values", "lower", "upper"),
    [
        ("truncate(2)", [b"abc", b"abd"], b"ab", b"ac"),
        ("truncate(2)", [b"a\xff\0"], b"a\xff", b"b"),
        ("truncate(2)", [b"\xff\xff\0", b""], b"", None),
        ("truncate(2)", [b"\xff\xff", b"\0\0\0"], b"\0\0", b"\xff\xff"),
        ("full", [b"\xff" * 40, b"\0" * 40], b"\0" * 40, b"\xff" * 40),
    ],
)
def test_binary_values_are_cut_and_raised(
    tmp_path: Path, mode: str, values: list[bytes], lower: bytes, upper: bytes | None
) -> None:
    assert bounds(tmp_path, BinaryType(), values, mode) == (lower, upper)


@pytest.mark.parametrize("values", [[b"a", b"\xff\xfe"], [b"\xe9t\xe9" * 9, b"\xe9"], [b"a" * 15 + "é".encode()[:1]]])
def test_strings_that_are_no_utf_8_are_kept_and_have_no_bounds(tmp_path: Path, values: list[bytes]) -> None:
    assert bounds(tmp_path, StringType(), values) == (None, None)


def test_a_row_group_that_does_not_say_its_bounds_takes_those_of_the_column(tmp_path: Path) -> None:
    assert bounds(tmp_path, DoubleType(), [1.0, 2.0, float("nan")]) == (None, None)
    assert bounds(tmp_path / "other", BinaryType(), [b"a", b"b", b"z" * 5000]) == (None, None)


def test_a_row_group_of_nulls_alone_changes_nothing(tmp_path: Path) -> None:
    assert bounds(tmp_path, LongType(), [None, None, 5, 7]) == (long(5), long(7))
    assert bounds(tmp_path / "other", LongType(), [None, None, None]) == (None, None)


def test_members_of_structs_have_bounds_as_columns_have_whatever_their_names(tmp_path: Path) -> None:
    inner = StructType(NestedField(3, "a.b", LongType()), NestedField(4, "list", StringType()))
    schema = Schema(
        NestedField(1, "a", inner), NestedField(5, "list.a", LongType()), NestedField(6, "日 x", LongType())
    )
    kinds = arrow_schema(schema)
    rows = [{"a_x2Eb": 1, "list": "p"}, None, {"a_x2Eb": 3, "list": None}]
    columns = [pa.array(rows, kinds.field(0).type), pa.array([7, 8, 9]), pa.array([None, None, 4])]

    metrics = written(tmp_path, schema, columns)

    assert metrics.lower_bounds == {3: long(1), 4: b"p", 5: long(7), 6: long(4)}
    assert metrics.upper_bounds == {3: long(3), 4: b"p", 5: long(9), 6: long(4)}
    assert metrics.null_value_counts == {3: 1, 4: 2, 5: 0, 6: 2}
