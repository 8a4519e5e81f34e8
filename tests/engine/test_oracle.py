"""The tests' own writer and slow reader: against a plain list of rows, and exact for every type."""

from __future__ import annotations

import math
import random
import uuid
from collections import Counter
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from tests.engine import writer
from tests.engine.builders import as_pyiceberg_reads, make, row
from tests.engine.oracle import POSITION_DELETES, assert_same_rows, live_files, live_rows
from tests.engine.values import canonical, rows_of

EVERY_TYPE = Schema(
    NestedField(1, "bool", BooleanType(), required=False),
    NestedField(2, "date", DateType(), required=False),
    NestedField(3, "time", TimeType(), required=False),
    NestedField(4, "ts", TimestampType(), required=False),
    NestedField(5, "tstz", TimestamptzType(), required=False),
    NestedField(6, "uuid", UUIDType(), required=False),
    NestedField(7, "fixed", FixedType(3), required=False),
    NestedField(8, "binary", BinaryType(), required=False),
    NestedField(9, "decimal", DecimalType(38, 4), required=False),
    NestedField(10, "float", FloatType(), required=False),
    NestedField(11, "list", ListType(12, StringType(), element_required=False), required=False),
    NestedField(13, "map", MapType(14, StringType(), 15, LongType(), value_required=False), required=False),
    NestedField(
        16, "struct", StructType(
            NestedField(17, "x y", ListType(18, LongType(), element_required=False), required=False),
            NestedField(19, "uuids", ListType(20, UUIDType(), element_required=False), required=False),
        ),
        required=False,
    ),
)  # fmt: skip
EDGES = {
    "bool": False,
    "date": date(1869, 12, 31),
    "time": time(23, 59, 59, 999999),
    "ts": datetime(1600, 1, 1, 0, 0, 0, 1),
    "tstz": datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    "uuid": uuid.UUID(int=2**127 + 1),
    "fixed": b"\x00\xff\x00",
    "binary": b"",
    "decimal": Decimal("-9999999999999999999999999999999999.9999"),
    "float": -0.0,
    "list": ["", None],
    "map": [("k", None), ("", 1)],
    "struct": {"x y": None, "uuids": [uuid.UUID(int=5)]},
}


@pytest.fixture
def catalog(tmp_path: Path):
    opened = writer.make_catalog(tmp_path)
    yield opened
    opened.close()


def changed(model: list[dict[str, Any]], number: int, chance: random.Random, table: Table) -> list[dict[str, Any]]:
    """Do one random operation on the table, and return the rows that a plain list would then hold."""
    parts = ["a", "b", None]
    some = {chance.randrange(12) for _ in range(4)}
    fresh = [row(id_, chance.choice(parts), f"{number}") for id_ in sorted(some)]
    keys = {(one["id"], one["part"]) for one in fresh}
    match chance.choice(["append", "upsert", "delete", "equality", "rewrite", "global"]):
        case "append":
            writer.append(table, fresh, files=2)
            return [*model, *fresh]
        case "upsert":
            writer.upsert(table, fresh, ["id", "part"])
            return [*(one for one in model if (one["id"], one["part"]) not in keys), *fresh]
        case "delete":
            writer.delete_where(table, lambda r: r["id"] in some, per_file=chance.random() < 0.5)
            return [one for one in model if one["id"] not in some]
        case "equality":
            writer.row_delta(table, fresh[:1], [(["id", "part"], fresh)])
            return [*(one for one in model if (one["id"], one["part"]) not in keys), *fresh[:1]]
        case "rewrite":
            writer.copy_on_write(table, lambda r: r["id"] in some, lambda r: {**r, "value": "new"})
            return [{**one, "value": "new"} if one["id"] in some else one for one in model]
        case _:
            spec_id = writer.unpartitioned_spec_id(table)
            writer.row_delta(table, equality_deletes=[(["id"], [{"id": id_} for id_ in some], None, spec_id)])
            return [one for one in model if one["id"] not in some]


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_random_operations_leave_the_rows_of_a_plain_list(catalog, seed, partitioned):
    table = make(catalog)
    if partitioned:
        with table.update_spec() as update:
            update.add_identity("part")
    chance, model = random.Random(seed), []
    for number in range(12):
        model = changed(model, number, chance, table)
        assert_same_rows(rows_of(table.schema(), model), live_rows(table))


def test_null_equals_null_and_floats_compare_by_bits_with_one_nan(catalog):
    schema = Schema(
        NestedField(1, "f", DoubleType(), required=False), NestedField(2, "n", IntegerType(), required=False)
    )
    table = make(catalog, schema=schema)
    values = [1.0, None, math.nan, 0.0, -0.0, 5.0]
    writer.append(table, [{"f": value, "n": at} for at, value in enumerate(values)])
    writer.row_delta(table, equality_deletes=[(["f"], [{"f": None}, {"f": math.nan}, {"f": 0.0}])])
    assert live_rows(table) == Counter({((1.0).hex(), 0): 1, ("-0x0.0p+0", 4): 1, ((5.0).hex(), 5): 1})


def test_equality_delete_on_a_column_dropped_later_still_applies(catalog):
    table = make(catalog)
    writer.append(table, [row(1, value="x"), row(2, value="y"), row(3, value=None)])
    writer.row_delta(table, equality_deletes=[(["value"], [{"value": "x"}, {"value": None}])])
    with table.update_schema() as update:
        update.delete_column("value")
    assert live_rows(table) == Counter({(2, "a"): 1})


def test_evolved_schema_is_read_by_field_id(catalog):
    schema = Schema(
        NestedField(1, "i", IntegerType(), required=False),
        NestedField(2, "f", FloatType(), required=False),
        NestedField(3, "d", DecimalType(5, 2), required=False),
    )
    table = make(catalog, schema=schema)
    writer.append(table, [{"i": 7, "f": 0.1, "d": Decimal("1.50")}])
    with table.update_schema() as update:
        update.update_column("i", LongType())
        update.update_column("f", DoubleType())
        update.update_column("d", DecimalType(10, 2))
    with table.update_schema() as update:
        update.rename_column("i", "renamed")
        update.add_column("late", StringType())
        update.move_first("d")
    writer.append(table, [{"renamed": 8, "f": 0.1, "d": Decimal("2.50"), "late": "x"}])
    narrow = pa.scalar(0.1, pa.float32()).as_py()
    expected = Counter({(Decimal("1.50"), 7, narrow.hex(), None): 1, (Decimal("2.50"), 8, (0.1).hex(), "x"): 1})
    assert live_rows(table) == expected
    assert as_pyiceberg_reads(table) == expected
    writer.row_delta(table, equality_deletes=[(["renamed", "f"], [{"renamed": 7, "f": narrow}])])
    assert live_rows(table) == Counter({(Decimal("2.50"), 8, (0.1).hex(), "x"): 1})


@pytest.mark.parametrize("name", [name for name in EDGES if name not in ("list", "map", "struct")])
def test_every_primitive_type_works_as_key_and_as_partition(catalog, name):
    plain = make(catalog, schema=EVERY_TYPE)
    writer.append(plain, [EDGES, dict.fromkeys(EDGES)])
    writer.row_delta(plain, equality_deletes=[([name], [{name: EDGES[name]}])])
    assert live_rows(plain) == rows_of(plain.schema(), [dict.fromkeys(EDGES)])
    spec = PartitionSpec(PartitionField(plain.schema().find_field(name).field_id, 1000, IdentityTransform(), "p"))
    table = writer.make_table(catalog, "db.by_value", plain.schema(), spec)
    writer.append(table, [EDGES, dict.fromkeys(EDGES)])
    value = canonical(table.schema().find_type(name), EDGES[name])
    assert sorted((file.partition for file in live_files(table)), key=repr) == sorted([(None,), (value,)], key=repr)
    writer.upsert(table, [EDGES], [name])
    writer.delete_where(table, lambda r: r["bool"] is None)
    assert live_rows(table) == rows_of(table.schema(), [EDGES])
    assert {file.partition for file in live_files(table) if file.content == POSITION_DELETES} == {(None,)}


def test_every_type_comes_back_exactly(catalog):
    table = make(catalog, schema=EVERY_TYPE)
    rows = [EDGES, dict.fromkeys(EDGES), {**EDGES, "list": [], "struct": {"x y": [], "uuids": []}, "map": []}]
    writer.append(table, rows)
    assert live_rows(table) == rows_of(table.schema(), rows)
    assert len(live_rows(table)) == 3
