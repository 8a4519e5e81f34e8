"""The tests' own writer and slow reader: against a plain list of rows, and exact for every type."""

from __future__ import annotations

import math
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
)

from tests.engine import writer
from tests.engine.builders import BY_PART, as_pyiceberg_reads, by_content, ids, make, row
from tests.engine.commits import Change, commit
from tests.engine.files import write_data_files, write_position_deletes
from tests.engine.oracle import DATA, EQUALITY_DELETES, POSITION_DELETES, assert_same_rows, live_files, live_rows
from tests.engine.values import rows_of


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


def test_row_of_the_same_commit_survives_its_equality_delete(catalog):
    table = make(catalog)
    writer.append(table, [row(1, value="old"), row(2)])
    snapshot = writer.row_delta(table, [row(1, value="new")], [writer.EqualityDelete(["id"], [{"id": 1}])])
    assert live_rows(table) == rows_of(table.schema(), [row(1, value="new"), row(2)])
    assert [(file.content, file.data_sequence) for file in live_files(table)] == [
        (DATA, 1),
        (DATA, 2),
        (EQUALITY_DELETES, 2),
    ]
    assert snapshot.sequence_number == 2


def test_equality_delete_applies_within_its_partition_only(catalog):
    table = make(catalog, spec=BY_PART)
    writer.append(table, [row(1, "a"), row(1, "b"), row(1, None)])
    writer.row_delta(table, equality_deletes=[(["id"], [{"id": 1}], ("a",), None)])
    assert live_rows(table) == rows_of(table.schema(), [row(1, "b"), row(1, None)])
    writer.row_delta(table, equality_deletes=[(["id"], [{"id": 1}], (None,), None)])
    assert live_rows(table) == rows_of(table.schema(), [row(1, "b")])


def test_equality_delete_of_an_unpartitioned_spec_is_global(catalog):
    table = make(catalog)
    writer.append(table, [row(1, "a"), row(2, "a")])
    with table.update_spec() as update:
        update.add_identity("part")
    table.refresh()
    writer.append(table, [row(1, "a"), row(1, "b"), row(3, "b")])
    global_spec = writer.unpartitioned_spec_id(table)
    assert (global_spec, table.spec().spec_id) == (0, 1)
    writer.row_delta(table, [row(1, "c")], [(["id"], [{"id": 1}], None, global_spec)])
    assert live_rows(table) == rows_of(table.schema(), [row(1, "c"), row(2, "a"), row(3, "b")])


def test_partitioned_equality_delete_does_not_reach_files_of_another_spec(catalog):
    table = make(catalog)
    writer.append(table, [row(1, "a")])
    with table.update_spec() as update:
        update.add_identity("part")
    writer.append(table, [row(1, "a", "newer")])
    writer.row_delta(table, equality_deletes=[(["id"], [{"id": 1}], ("a",), None)])
    assert live_rows(table) == rows_of(table.schema(), [row(1, "a")])
    with table.update_spec() as update:
        update.add_field("id", BucketTransform(4), "bucket")
    writer.append(table, [row(5, "a")])
    writer.delete_where(table, lambda r: True)
    assert sorted(file.spec_id for file in live_files(table) if file.content == POSITION_DELETES) == [0, 2]
    assert live_rows(table) == Counter()


def test_equality_delete_under_a_spec_of_void_fields_is_global(catalog):
    table = make(catalog, 1, BY_PART)
    writer.append(table, [row(1, "a"), row(2, "a"), row(1, "b")])
    with table.update_spec() as update:
        update.remove_field("part")
    with table.transaction() as transaction:
        transaction.upgrade_table_version(2)
    assert [str(field.transform) for field in table.spec().fields] == ["void"]
    writer.row_delta(table, equality_deletes=[(["id"], [{"id": 1}], (None,), None)])
    assert live_rows(table) == rows_of(table.schema(), [row(2, "a")])


def test_equality_delete_does_not_reach_an_equal_partition_of_another_spec(catalog):
    table = make(catalog, spec=BY_PART)
    writer.append(table, [row(1, "same", "x")])
    with table.update_spec() as update:
        update.remove_field("part")
        update.add_identity("value")
    writer.append(table, [row(1, "y", "same")])
    writer.row_delta(table, equality_deletes=[(["id"], [{"id": 1}], ("same",), None)])
    partitions = [(file.content, file.spec_id, file.partition) for file in live_files(table)]
    assert partitions == [(DATA, 0, ("same",)), (DATA, 1, ("same",)), (EQUALITY_DELETES, 1, ("same",))]
    assert live_rows(table) == rows_of(table.schema(), [row(1, "same", "x")])


def test_last_row_of_a_key_wins_within_one_upsert_by_position_deletes_of_the_same_sequence(catalog):
    table = make(catalog)
    writer.append(table, [row(1, value="0")])
    writer.upsert(table, [row(1, value="1"), row(2), row(1, value="2"), row(1, value="3")], ["id"])
    assert live_rows(table) == rows_of(table.schema(), [row(1, value="3"), row(2)])
    assert by_content(table) == {DATA: 3, POSITION_DELETES: 1, EQUALITY_DELETES: 1}
    assert [file.data_sequence for file in live_files(table)] == [1, 2, 2, 2, 2]


def test_position_deletes_older_than_their_data_file_do_nothing(catalog):
    table = make(catalog)
    [file] = write_data_files(table, [row(1), row(2)])
    deletes = [write_position_deletes(table, 0, (), [(file.file_path, position)]) for position in (0, 1)]
    commit(table, lambda head: Change((deletes[0],)))
    commit(table, lambda head: Change((file,)))
    assert ids(table) == [1, 2]
    assert as_pyiceberg_reads(table) == live_rows(table)
    commit(table, lambda head: Change((deletes[1],)))
    assert ids(table) == [1]
    assert as_pyiceberg_reads(table) == live_rows(table)
