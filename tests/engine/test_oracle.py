"""The tests' own writer and slow reader: against a plain list of rows, and exact for every type."""

from __future__ import annotations

import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, IntegerType, NestedField

from tests.engine import writer
from tests.engine.builders import make, row
from tests.engine.oracle import assert_same_rows, live_rows
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
