"""Types, schemas and layouts through the engine and its oracle: exact values, fields by id, partitions, metrics."""

from __future__ import annotations

import math
import uuid
from collections import Counter
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform
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
from tests.engine.builders import BY_PART, SCHEMA, as_pyiceberg_reads, make, row
from tests.engine.files import Layout
from tests.engine.oracle import POSITION_DELETES, live_files, live_rows
from tests.engine.parquet_rows import local_path
from tests.engine.values import canonical, rows_of


@pytest.fixture
def catalog(tmp_path: Path):
    opened = writer.make_catalog(tmp_path)
    yield opened
    opened.close()


def test_null_equals_null_and_floats_compare_by_bits_with_one_nan(catalog):
    schema = Schema(
        NestedField(1, "f", DoubleType(), required=False), NestedField(2, "n", IntegerType(), required=False)
    )
    table = make(catalog, schema=schema)
    values = [1.0, None, math.nan, 0.0, -0.0, 5.0]
    writer.append(table, [{"f": value, "n": at} for at, value in enumerate(values)])
    writer.row_delta(table, equality_deletes=[(["f"], [{"f": None}, {"f": math.nan}, {"f": 0.0}])])
    assert live_rows(table) == Counter({((1.0).hex(), 0): 1, ("-0x0.0p+0", 4): 1, ((5.0).hex(), 5): 1})


def test_nested_key_deletes_by_the_inner_value(catalog):
    inner = StructType(
        NestedField(3, "a", LongType(), required=False), NestedField(4, "b", StringType(), required=False)
    )
    schema = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "s", inner, required=False))
    table = make(catalog, schema=schema)
    rows = [{"id": at, "s": {"a": at % 2, "b": str(at)}} for at in range(4)]
    writer.append(table, rows)
    writer.row_delta(table, equality_deletes=[(["s.a"], [{"s": {"a": 1}}])])
    assert live_rows(table) == rows_of(table.schema(), [rows[0], rows[2]])
    assert live_files(table)[1].equality_ids == (table.schema().find_field("s.a").field_id,)


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


def test_every_type_comes_back_exactly(catalog):
    table = make(catalog, schema=EVERY_TYPE)
    rows = [EDGES, dict.fromkeys(EDGES), {**EDGES, "list": [], "struct": {"x y": [], "uuids": []}, "map": []}]
    writer.append(table, rows)
    expected = rows_of(table.schema(), rows)
    assert len(expected) == 3
    assert live_rows(table) == expected
    writer.copy_on_write(table, lambda r: r["list"] == [])
    assert live_rows(table) == rows_of(table.schema(), rows[:2])


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


def test_partition_transforms_agree_with_pyiceberg(catalog):
    spec = PartitionSpec(
        PartitionField(1, 1000, BucketTransform(4), "bucket"),
        PartitionField(2, 1001, DayTransform(), "day"),
        PartitionField(3, 1002, TruncateTransform(2), "short name"),
    )
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "at", TimestampType(), required=False),
        NestedField(3, "name", StringType(), required=False),
    )
    table = make(catalog, spec=spec, schema=schema)
    rows = [{"id": at, "at": datetime(1969, 12, 30 + at % 2, 5), "name": f"ab{at}"} for at in range(6)] + [{"id": None}]
    writer.append(table, rows)
    expected = rows_of(table.schema(), rows)
    assert live_rows(table) == expected == as_pyiceberg_reads(table)
    found = table.scan(row_filter="id = 3 and at < '1970-01-01T00:00:00' and name = 'ab3'").to_arrow().to_pylist()
    assert rows_of(table.schema(), found) == rows_of(table.schema(), [rows[3]])
    assert (1, date(1969, 12, 31), "ab") in {(1, *file.partition[1:]) for file in live_files(table)}


def test_identity_column_missing_from_the_file_comes_from_the_partition(catalog):
    table = make(catalog, spec=BY_PART)
    writer.append(table, [row(1, "a"), row(2, "b")], layout=Layout(omitted_columns=frozenset({"part", "value"})))
    assert live_rows(table) == Counter({(1, "a", None): 1, (2, "b", None): 1})
    writer.row_delta(table, equality_deletes=[(["part"], [{"part": "a"}])])
    assert live_rows(table) == Counter({(2, "b", None): 1})


def test_file_without_field_ids_is_read_by_the_name_mapping_and_refused_without_one(catalog):
    table = make(catalog, schema=EVERY_TYPE)
    mapping = table.schema().name_mapping.model_dump_json()
    writer.append(table, [{**EDGES, "struct": None}], layout=Layout(with_field_ids=False))
    with pytest.raises(ValueError, match="no field ids and the table has no name mapping"):
        live_rows(table)
    with table.transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": mapping})
    with table.update_schema() as update:
        update.rename_column("date", "day")
    record = {**EDGES, "day": EDGES["date"], "struct": None}
    del record["date"]
    assert live_rows(table) == rows_of(table.schema(), [record])


def test_bounds_are_left_out_where_a_row_group_does_not_tell_them(catalog):
    table = make(catalog)
    rows = [row(1, value="a"), row(2, value="z" * 5000), row(3, value="c"), row(4, value="d")]
    writer.append(table, rows, layout=Layout(row_group_rows=2))
    writer.append(table, [row(1, value="b"), row(2, value=None)], layout=Layout(row_group_rows=1))
    entries = [
        e.data_file for m in table.current_snapshot().manifests(table.io) for e in m.fetch_manifest_entry(table.io)
    ]
    assert [sorted(file.upper_bounds) for file in entries] == [[1, 2, 3], [1, 2]]
    assert as_pyiceberg_reads(table) == live_rows(table)


def test_values_of_another_type_and_unknown_columns_are_refused():
    with pytest.raises(TypeError, match="'1' is not a value of the type long"):
        canonical(LongType(), "1")
    with pytest.raises(ValueError, match="unknown columns \\['nope'\\]"):
        rows_of(SCHEMA, [{"nope": 1}])


def test_data_files_have_field_ids_at_every_level_and_the_logical_types_of_the_format(catalog):
    table = make(catalog, schema=EVERY_TYPE)
    writer.append(table, [EDGES])
    file = pq.ParquetFile(local_path(live_files(table)[0].path))
    found = set()

    def collect(field: pa.Field) -> None:
        found.add(int(field.metadata[b"PARQUET:field_id"]))
        kind = field.type
        inner = [kind.key_field, kind.item_field] if pa.types.is_map(kind) else []
        inner += [kind.value_field] if pa.types.is_list(kind) else []
        inner += [kind.field(at) for at in range(kind.num_fields)] if pa.types.is_struct(kind) else []
        for one in inner:
            collect(one)

    for field in file.schema_arrow:
        collect(field)
    assert found == set(table.schema()._lazy_id_to_field)
    kinds = {file.schema.column(at).path: str(file.schema.column(at).logical_type) for at in range(len(file.schema))}
    assert kinds["uuid"] == kinds["struct.uuids.list.element"] == "UUID"
    assert kinds["decimal"] == "Decimal(precision=38, scale=4)"
