"""Optimizing tables with the types and defaults of format 3, from the plan to the commit: the rows stay as they are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, Transform
from pyiceberg.types import (
    DateType,
    IcebergType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    UnknownType,
)

from amoro_core.errors import TableRefused
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingStatus, OptimizingType, parse_table
from tests.engine import oracle, writer
from tests.engine.parquet_rows import local_path
from tests.services.world import World

A_DAY = 86_400_000_000_000
KINDS = [OptimizingType.MINOR, OptimizingType.MAJOR, OptimizingType.FULL]
EARLIER: Mapping[type[IcebergType], IcebergType] = {
    TimestampNanoType: TimestampType(),
    TimestamptzNanoType: TimestamptzType(),
    UnknownType: LongType(),
}
ID = NestedField(1, "id", LongType(), required=False)


def make(catalog: SqlCatalog, *columns: NestedField, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC) -> Table:
    """A table of format 3. pyiceberg makes those of format 2 only, whose columns then get their types."""
    first = (NestedField(one.field_id, one.name, EARLIER.get(type(one.field_type), one.field_type)) for one in columns)
    properties = {"self-optimizing.enabled": "true"}
    table = writer.make_table(catalog, "db.t", Schema(ID, *first), spec, format_version=3, properties=properties)
    with table.update_schema(allow_incompatible_changes=True) as change:
        for one in columns:
            if type(one.field_type) in EARLIER:
                change.update_column(one.name, one.field_type)
    return table


def fill(table: Table, *values: Mapping[str, Any], first: int = 0) -> None:
    """A file for each value: rows that have it and ids of their own."""
    for at, value in enumerate(values, start=first):
        writer.append(table, [{"id": 10 * at + number, **value} for number in range(3)])


def optimize(world: World, table: Table, kind: OptimizingType = OptimizingType.FULL) -> None:
    """The rows that the slow reader sees stay, and no deletes."""
    before = oracle.live_rows(table)
    assert before
    assert world.optimize(kind) is ProcessStatus.SUCCESS
    oracle.assert_same_rows(before, oracle.live_rows(table))
    found = world.verifying.verify(parse_table("cat.db.t"), None, None, lambda: False)
    assert found.is_sound, found.problems
    assert {file.content for file in oracle.live_files(table)} == {oracle.DATA}


def columns_of(table: Table) -> set[tuple[str, ...]]:
    """The columns of the live files, without those of lineage."""
    return {
        tuple(name for name in pq.read_schema(local_path(file.path)).names if not name.startswith("_"))
        for file in oracle.live_files(table)
    }


@pytest.mark.parametrize("kind", KINDS)
def test_rows_keep_the_defaults_of_columns_that_their_files_lack(
    world: World, catalog: SqlCatalog, kind: OptimizingType
) -> None:
    inner = StructType(NestedField(3, "a", LongType(), required=False))
    table = make(catalog, NestedField(2, "s", inner, required=False))
    fill(table, *({"s": {"a": at}} for at in range(5)), {"s": None})
    with table.update_schema() as change:
        change.add_column("c", StringType(), default_value="x")
        change.add_column(("s", "d"), LongType(), default_value=7)
    fill(table, *({"c": "x", "s": {"a": 1, "d": 7}}, {"c": None, "s": {"a": 2, "d": None}}), first=6)
    writer.row_delta(
        table,
        equality_deletes=[
            (["id", "c"], [{"id": 0, "c": "x"}, {"id": 11, "c": None}, {"id": 60, "c": "x"}]),
            (["s.d"], [{"s": {"d": None}}]),
        ],
    )
    rows = oracle.live_rows(table)
    # 11 has the default, not null; those with a null struct have a null `s.d`, and so do those that say so.
    assert sorted(row[0] for row in rows) == [*range(1, 3), *range(10, 13), *range(20, 23), *range(30, 33),
                                              *range(40, 43), 61, 62]  # fmt: skip
    assert {row[2] for row in rows} == {"x"}

    optimize(world, table, kind)

    assert columns_of(table) == {("id", "s", "c")}


@pytest.mark.parametrize(
    ("kind", "transform"),
    [
        (TimestampNanoType(), IdentityTransform()),
        (TimestamptzNanoType(), DayTransform()),
        (TimestamptzNanoType(), BucketTransform(3)),
    ],
)
def test_nanoseconds_are_rewritten_in_every_partition(
    world: World, catalog: SqlCatalog, kind: IcebergType, transform: Transform[Any, Any]
) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, transform, "p"))
    table = make(catalog, NestedField(2, "at", kind, required=False), spec=spec)
    moments = (-1, A_DAY + 1, None)
    fill(table, *({"at": at} for at in moments * 4))
    fill(table, {"at": A_DAY + 2}, first=20)
    writer.row_delta(
        table, equality_deletes=[(["at", "id"], [{"at": -1, "id": 1}, {"at": None, "id": 22}, {"at": 0, "id": 0}])]
    )
    assert oracle.live_rows(table).total() == 37

    optimize(world, table)


def test_columns_of_the_type_unknown_are_left_out_of_new_files(world: World, catalog: SqlCatalog) -> None:
    table = make(catalog, NestedField(2, "u", UnknownType(), required=False))
    fill(table, *({} for _ in range(4)))
    writer.row_delta(table, equality_deletes=[(["id"], [{"id": 1}])])

    optimize(world, table)

    assert columns_of(table) == {("id",)}


def test_deletes_by_a_column_that_was_unknown_go_on_deleting_where_it_is_null(
    world: World, catalog: SqlCatalog
) -> None:
    table = make(catalog, NestedField(2, "u", UnknownType(), required=False))
    fill(table, *({} for _ in range(4)))
    writer.row_delta(table, equality_deletes=[(["u", "id"], [{"u": None, "id": 1}, {"u": None, "id": 11}])])
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.update_column("u", LongType())
    fill(table, {"u": 5}, {}, first=20)
    writer.row_delta(table, equality_deletes=[(["u", "id"], [{"u": 5, "id": 200}, {"u": None, "id": 0}])])
    context = world.tables_of.open(parse_table("cat.db.t")).context(0)
    assert context.once_unknown == (2,)

    optimize(world, table)

    assert columns_of(table) == {("id", "u")}


@pytest.mark.parametrize("kind", [TimestampType(), TimestampNanoType()])
def test_dates_that_became_timestamps_are_rewritten_as_such(
    world: World, catalog: SqlCatalog, kind: IcebergType
) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, DayTransform(), "p"))
    table = make(catalog, NestedField(2, "at", DateType(), required=False), spec=spec)
    days = [date(1969, 12, 31), date(2026, 1, 2), None]
    fill(table, *({"at": day} for day in days * 3))
    writer.row_delta(table, equality_deletes=[(["at", "id"], [{"at": days[0], "id": 1}, {"at": None, "id": 22}])])
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.update_column("at", kind)
    is_nano = isinstance(kind, TimestampNanoType)
    fill(table, {"at": 20_455 * A_DAY + 1 if is_nano else datetime(2026, 1, 2, 0, 0, 0, 1)}, first=20)
    midnight = 20_455 * A_DAY if is_nano else datetime(2026, 1, 2)
    writer.row_delta(
        table, equality_deletes=[(["at", "id"], [{"at": midnight, "id": 10}, {"at": midnight, "id": 200}])]
    )
    assert oracle.live_rows(table).total() == 27

    optimize(world, table)


def test_a_table_with_a_variant_is_refused_by_its_column_until_it_is_gone(world: World, catalog: SqlCatalog) -> None:
    table = make(catalog)
    fill(table, {}, {}, {})
    world.table()
    path = Path(local_path(table.refresh().metadata_location))
    good = path.read_text()
    metadata = json.loads(good)
    schema = next(one for one in metadata["schemas"] if one["schema-id"] == metadata["current-schema-id"])
    schema["fields"].append({"id": 9, "name": "v", "required": False, "type": "variant"})
    path.write_text(json.dumps(metadata))

    with pytest.raises(TableRefused) as refused:
        world.begin(OptimizingType.FULL)
    seen = world.tables.refresh(world.table().table_id)

    told = "column v has the type variant, which is not handled"
    assert (refused.value.reason, refused.value.message) == ("type", told)
    assert seen is not None
    assert (seen.status, seen.refusal, seen.status_reason) == (OptimizingStatus.REFUSED, "type", refused.value.told)
    path.write_text(good)
    optimize(world, table)
