"""Sketches of different values: the hashes, the set and the form of Apache's own library, for every primitive type."""

from __future__ import annotations

import random
import struct
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import datasketches
import pyarrow as pa
import pytest
from pyiceberg.conversions import to_bytes
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
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from amoro_core.files.hashing import NOMINAL, ThetaSketch, value_hashes
from amoro_core.files.schema.schemas import arrow_type

EXAMPLES: list[tuple[PrimitiveType, list[Any]]] = [
    (BooleanType(), [True, False]),
    (IntegerType(), [0, -1, 34, 2**31 - 1, -(2**31)]),
    (LongType(), [0, -1, 34, 2**63 - 1, -(2**63)]),
    (FloatType(), [0.0, -0.0, 1.5, float("inf")]),
    (DoubleType(), [0.0, -0.0, 1.5, float("-inf")]),
    (DateType(), [date(1970, 1, 1), date(1969, 12, 31), date(2026, 3, 1)]),
    (TimeType(), [time(0), time(23, 59, 59, 999999)]),
    (TimestampType(), [datetime(1970, 1, 1), datetime(2026, 3, 1, 12, 0, 0, 1)]),
    (TimestamptzType(), [datetime(1969, 1, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)]),
    (StringType(), ["a", "ü", "x" * 8, "y" * 9, "z" * 16, "w" * 17, "v" * 100, "\U0001f600" * 11]),
    (BinaryType(), [b"\x00", b"\x00" * 15, b"\xff" * 16, bytes(range(256))]),
    (FixedType(5), [b"12345", b"\x00" * 5]),
    (UUIDType(), [UUID(int=0), UUID(int=2**127 + 5)]),
    *(
        (DecimalType(precision, 2), [Decimal(f"{number}E-2") for number in numbers])
        for precision, numbers in ((9, (0, 1, -1, 127, 128, -128, -129, 32768)), (38, (0, 10**37, -(10**37), 2**64)))
    ),
]


def native(values: list[Any]) -> list[int]:
    """The hashes that Apache's library keeps of texts, byte by byte, and of longs."""
    sketch = datasketches.update_theta_sketch()
    for value in values:
        sketch.update(value)
    return sorted(sketch.compact())


def test_texts_have_the_hashes_of_the_native_library_and_empty_values_are_passed_over_as_java_does() -> None:
    chance = random.Random(1)
    texts = ["".join(chance.choices("abcdefg ü", k=length)) for length in range(1, 200)]
    assert sorted(value_hashes(pa.array(texts)).tolist()) == native(texts)
    assert value_hashes(pa.array(["", None, "a", ""])).tolist() == value_hashes(pa.array(["a"])).tolist()
    assert len(value_hashes(pa.array([b"", b""]))) == 0
    assert len(value_hashes(pa.array([], pa.string()))) == 0
    assert len(value_hashes(pa.array([None, None], pa.decimal128(9, 2)))) == 0
    assert len(value_hashes(pa.array([], pa.int32()))) == 0


@pytest.mark.parametrize(("kind", "values"), EXAMPLES, ids=str)
def test_each_type_is_hashed_by_its_single_value_form(kind: PrimitiveType, values: list[Any]) -> None:
    stored = [to_bytes(kind, value) for value in values]
    wanted = arrow_type(kind)
    if isinstance(kind, UUIDType):
        array = pa.ExtensionArray.from_storage(wanted, pa.array([value.bytes for value in values], pa.binary(16)))
    else:
        array = pa.array(values, wanted)
    expected = value_hashes(pa.array(stored, pa.binary())).tolist()
    assert value_hashes(array).tolist() == expected
    # Nulls, and what lies around a slice, are no values.
    around = pa.concat_arrays([array.slice(0, 1), pa.nulls(2, wanted), array]).slice(1)
    assert value_hashes(around).tolist() == expected


def test_the_serialized_form_is_read_by_the_native_library() -> None:
    for count in (0, 1, 2, NOMINAL, NOMINAL + 1, 50_000):
        sketch = sketch_of(range(count))
        read = datasketches.compact_theta_sketch.deserialize(sketch.serialized())
        assert sorted(read) == sketch.hashes.tolist()
        assert read.get_estimate() == pytest.approx(sketch.estimate, rel=1e-9)
        assert (read.is_empty(), read.is_estimation_mode()) == (count == 0, count > NOMINAL)
        assert read.is_ordered()
    assert sketch_of(range(50_000)).estimate == pytest.approx(50_000, rel=0.05)
    assert (len(sketch_of(range(50_000)).hashes), sketch_of(range(NOMINAL)).estimate) == (NOMINAL, NOMINAL)


def test_the_serialized_form_is_the_one_of_the_library_byte_by_byte() -> None:
    for values in ([], [5], list(range(100))):
        native_one = datasketches.update_theta_sketch()
        for value in values:
            native_one.update(value)
        ours, theirs = sketch_of(values).serialized(), native_one.compact().serialize()
        # Java says read-only and a single item, in bits 1 and 5, and that nothing was sampled, in bytes 12 to 15.
        known = bytearray(theirs)
        known[5] |= 2 | (32 if len(values) == 1 else 0)
        if len(values) > 1:
            known[12:16] = struct.pack("<f", 1.0)
        assert (ours, ours[6:8]) == (bytes(known), b"\xcc\x93")


def test_parts_merge_by_union_in_any_order() -> None:
    whole = sketch_of(range(20_000))
    parts = [sketch_of(range(start, start + 6000)) for start in range(0, 15_000, 2000)]
    for seed in range(5):
        merged = ThetaSketch()
        for part in random.Random(seed).sample(parts, len(parts)):
            merged = merged.union(part)
        assert (merged.hashes.tolist(), merged.theta) == (whole.hashes.tolist(), whole.theta)
        assert merged.serialized() == whole.serialized()


def sketch_of(numbers: Any) -> ThetaSketch:
    sketch = ThetaSketch()
    every = value_hashes(pa.array(list(numbers), pa.int64()))
    for start in range(0, len(every), 3000):
        sketch = sketch.updated(every[start : start + 3000])
    return sketch
