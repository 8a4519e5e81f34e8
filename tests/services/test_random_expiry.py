"""Random tables and random limits: no row that is young or has no time is ever lost, and none comes back.

Columns of every type that tells a time, partitions of several specs, files without metrics, both kinds of deletes.
AMORO_EXPIRY_SEEDS=first:count runs other tables.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import DateType, IntegerType, LongType, NestedField, StringType, TimestampType, TimestamptzType

from amoro_core.actions.expiring_data import NAME
from amoro_core.model.maintenance import Options
from amoro_core.model.processes import ProcessStatus
from tests.engine import oracle, writer
from tests.engine.files import PLAIN, Layout
from tests.services.world import World

NOW = datetime(2022, 3, 15, 18, 30, tzinfo=UTC)
WITHOUT_METRICS = Layout(options=(("write_statistics", False),))
KINDS: dict[str, Any] = {
    "timestamp": TimestampType(), "timestamptz": TimestamptzType(), "date": DateType(), "long": LongType(),
    "string": StringType(),
}  # fmt: skip
TRANSFORMS: Mapping[str, tuple[Transform[Any, Any], ...]] = {
    "timestamp": (DayTransform(), MonthTransform(), IdentityTransform(), BucketTransform(3)),
    "timestamptz": (YearTransform(), DayTransform(), BucketTransform(3)),
    "date": (MonthTransform(), DayTransform(), IdentityTransform()),
    "long": (TruncateTransform(86_400_000), IdentityTransform(), BucketTransform(3)),
    "string": (IdentityTransform(), TruncateTransform(7), BucketTransform(3)),
}


#: In Java's letters and in Python's.
PATTERNS = (("yyyy-MM-dd", "%Y-%m-%d"), ("dd.MM.yyyy", "%d.%m.%Y"), ("yyyy-MM-dd HH", "%Y-%m-%d %H"))
FIRST, COUNT = (int(part) for part in os.environ.get("AMORO_EXPIRY_SEEDS", "0:6").split(":"))


def value_of(kind: str, moment: datetime, pattern: str) -> Any:
    match kind:
        case "timestamp":
            return moment.replace(tzinfo=None)
        case "date":
            return moment.date()
        case "long":
            return round(moment.timestamp() * 1000)
        case "string":
            return moment.strftime(pattern)
    return moment


def moment_of(value: Any, pattern: str) -> datetime | None:
    """What a value of the column means, by other code than ours."""
    match value:
        case None:
            return None
        case datetime():
            return value if value.tzinfo else value.replace(tzinfo=UTC)
        case date():
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
        case int():
            return datetime.fromtimestamp(value / 1000, UTC)
    try:
        return datetime.strptime(value, pattern).replace(tzinfo=UTC)
    except ValueError:
        return None


def rows_of(table: Table) -> dict[int, Any]:
    return {one.record["id"]: one.record["t"] for one in oracle.live_rows_with_positions(table)}


def fill(table: Table, kind: str, pattern: str, chance: random.Random, first: int) -> int:
    """A few commits: appends, deletes by key and by position; returns the next id."""
    for _ in range(chance.randint(2, 4)):
        rows: list[dict[str, Any]] = []
        center = NOW - timedelta(days=chance.choice((0, 1, 2, 20, 45, 400)))
        for _ in range(chance.randint(1, 4)):
            moment = center - timedelta(seconds=chance.randrange(86_400 * chance.choice((1, 1, 40))))
            value = value_of(kind, moment, pattern)
            if chance.random() < 0.08:
                value = None
            elif kind == "string" and chance.random() < 0.08:
                value = chance.choice(("", "soon", "2022-99-99", "9999"))
            rows.append({"id": first, "t": value})
            first += 1
        writer.append(table, rows, layout=chance.choice((PLAIN, PLAIN, WITHOUT_METRICS)))
        live = [{"id": id_, "t": value} for id_, value in rows_of(table).items()]
        if live and chance.random() < 0.5:
            writer.row_delta(table, equality_deletes=[(["id"], [chance.choice(live)])])
        if len(live) > 3 and chance.random() < 0.4:
            gone = chance.choice(live)["id"]
            writer.delete_where(table, lambda row, gone=gone: row["id"] == gone)
    return first


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_no_young_row_is_lost_and_none_comes_back(world: World, seed: int) -> None:
    chance = random.Random(seed)
    kind = list(KINDS)[seed % len(KINDS)]
    java, python = chance.choice(PATTERNS)
    id_, time = NestedField(1, "id", IntegerType(), required=False), NestedField(2, "t", KINDS[kind], required=False)
    schema = Schema(id_, time)
    spec = PartitionSpec(PartitionField(2, 1000, chance.choice(TRANSFORMS[kind]), "p"))
    expires_nulls = chance.random() < 0.3
    properties = {
        "data-expire.field": "t",
        "data-expire.retention-time": chance.choice(("1d", "36h", "40d")),
        "data-expire.base-on-rule": "CURRENT_TIME",
        "data-expire.level": chance.choice(("file", "partition")),
        "data-expire.datetime-string-pattern": java,
        "maintenance.expire-data.nulls": "expire" if expires_nulls else "keep",
    }
    first_spec = chance.choice((spec, spec, UNPARTITIONED_PARTITION_SPEC))
    table = writer.make_table(world.catalog, "db.t", schema, first_spec, properties=properties)
    first = fill(table, kind, python, chance, 0)
    if chance.random() < 0.5 and first_spec is spec:
        with table.update_spec() as update:
            update.remove_field("p")
        first = fill(table, kind, python, chance, first)
    retention = {"1d": timedelta(days=1), "36h": timedelta(hours=36), "40d": timedelta(days=40)}
    until = NOW - retention[properties["data-expire.retention-time"]]
    world.now = NOW
    before = rows_of(table)
    begun = world.maintaining.begin(world.table().table_id, NAME, trigger="request", options=Options(confirmed=True))
    if begun.process_id:
        fill(table, kind, python, chance, first)
        between = rows_of(table)
        status = world.committing.commit(begun.process_id)
        assert status in (ProcessStatus.SUCCESS, ProcessStatus.FAILED)
        after = rows_of(table)
        assert after.items() <= between.items()
        lost = {id_: value for id_, value in between.items() if id_ not in after}
        assert lost.keys() <= before.keys()
        for value in lost.values():
            moment = moment_of(value, python)
            if moment is None:
                assert expires_nulls
                assert value is None
            else:
                assert moment <= until
        print(f"seed {seed}: {kind}, {status}, {len(lost)} of {len(between)} rows lost")
