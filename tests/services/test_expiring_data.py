"""Data expiry on real tables: Amoro's own cases by their names, one snapshot, and what others do meanwhile."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from itertools import product
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
from pyiceberg.types import (
    DateType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from amoro_core.errors import TableRefused
from amoro_core.model.maintenance import Options
from amoro_core.model.processes import Figure, ProcessStatus
from amoro_core.model.tables import OptimizingType
from amoro_core.store import tables
from tests.engine import oracle, writer
from tests.engine.files import PLAIN, Layout
from tests.services.world import World
from tests.tiers import count, sample

NAME = "expire-data"

BASE = {
    "data-expire.enabled": "true",
    "data-expire.field": "op_time",
    "data-expire.retention-time": "1d",
    "data-expire.base-on-rule": "CURRENT_TIME",
}
WITHOUT_METRICS = Layout(options=(("write_statistics", False),))
#: The time from which Amoro's cases count back a day.
NOW = datetime(2022, 1, 3, 18, tzinfo=UTC)
#: Amoro's records: id and time.
RECORDS = ((1, "2022-01-01T12:00"), (2, "2022-01-03T12:00"), (3, "2022-01-02T12:00"), (4, "2022-01-02T19:00"))
KINDS: dict[str, PrimitiveType] = {
    "timestamp": TimestampType(),
    "timestamptz": TimestamptzType(),
    "string": StringType(),
}


def make(world: World, kind: str = "timestamp", partitioned: bool = True, version: int = 2, **properties: str) -> Table:
    schema = Schema(
        NestedField(1, "id", IntegerType(), required=False),
        NestedField(2, "ts", LongType(), required=False),
        NestedField(3, "op_time", {**KINDS, "date": DateType()}[kind], required=False),
    )
    by = IdentityTransform() if kind in ("string", "date") else DayTransform()
    spec = PartitionSpec(PartitionField(3, 1000, by, "op_day")) if partitioned else UNPARTITIONED_PARTITION_SPEC
    world.now = NOW
    return writer.make_table(world.catalog, "db.t", schema, spec, version, {**BASE, **properties})


def record(table: Table, id_: int, time: str) -> dict[str, Any]:
    moment = datetime.fromisoformat(time).replace(tzinfo=UTC)
    own = table.schema().find_field("op_time").field_type
    if isinstance(own, StringType):
        value: Any = f"{moment:%Y-%m-%d}"
    elif isinstance(own, DateType):
        value = moment.date()
    else:
        value = moment if isinstance(own, TimestamptzType) else moment.replace(tzinfo=None)
    return {"id": id_, "ts": round(moment.timestamp() * 1000), "op_time": value}


def fill(table: Table, records: Iterable[tuple[int, str]] = RECORDS, each: bool = False) -> None:
    rows = [record(table, *one) for one in records]
    for some in [[one] for one in rows] if each else [rows]:
        writer.append(table, some)


def ids(table: Table) -> list[int]:
    return sorted(one.record["id"] for one in oracle.live_rows_with_positions(table))


def expire(world: World) -> str:
    """Plan and commit, whatever a breaker says; "" where nothing expires."""
    confirmed = Options(confirmed=True)
    begun = world.maintaining.begin(world.table().table_id, NAME, trigger="request", options=confirmed)
    if begun.process_id:
        assert world.committing.commit(begun.process_id) is ProcessStatus.SUCCESS
    return begun.process_id


@pytest.mark.parametrize(
    ("level", "kind", "partitioned", "field"),
    sample([*product(("partition", "FILE"), KINDS, (True, False), ("op_time", "ts"))], every=5),
)
def test_amoros_levels(world: World, level: str, kind: str, partitioned: bool, field: str) -> None:
    """Amoro's testPartitionLevel, testFileLevel and those of fields that are no partition's: the limit has passed."""
    table = make(world, kind, partitioned, **{"data-expire.field": field, "data-expire.level": level})
    records = [one if one[0] != 3 else (3, "2022-01-02T18:00") for one in RECORDS]
    fill(table, records, each=level == "FILE")
    expire(world)
    by_day = kind == "string" and field == "op_time"  # a date is the beginning of its day
    if level == "FILE":
        left = [2] if by_day else [2, 4]
    elif partitioned:
        left = [2] if by_day else [2, 3, 4]
    else:
        left = [1, 2, 3, 4]  # one partition, of which some rows are young
    assert ids(table) == left


@pytest.mark.parametrize(
    ("kind", "partitioned", "left"),
    [("timestamp", True, [2, 3, 4]), ("date", True, [2]), ("string", True, [2]), ("timestamp", False, [1, 2, 3, 4])],
)
def test_expire_by_partition_when_metrics_mode_is_none(
    world: World, kind: str, partitioned: bool, left: list[int]
) -> None:
    """Amoro's test of that name: the partition tells, and where there is none nothing expires."""
    table = make(world, kind, partitioned)
    for one in RECORDS:
        writer.append(table, [record(table, *one)], layout=WITHOUT_METRICS)
    expire(world)
    assert ids(table) == left


def test_base_on_rule(world: World) -> None:
    """Amoro's testBaseOnRule: it is counted back from the last commit, which is of today."""
    table = make(world, **{"data-expire.base-on-rule": "LAST_COMMIT_TIME"})
    fill(table)
    head = table.refresh().current_snapshot()
    world.now = datetime.fromtimestamp(head.timestamp_ms / 1000, UTC) + timedelta(days=30)
    seen = world.maintaining.preview(world.table().identifier, NAME)
    until = datetime.fromtimestamp(head.timestamp_ms / 1000, UTC) - timedelta(days=1)
    assert seen.plan.document["older_than"] == until.isoformat()
    world.now = datetime(2022, 1, 20, tzinfo=UTC)  # the writer's clock is ahead of ours: rows go no sooner for that
    seen = world.maintaining.preview(world.table().identifier, NAME)
    assert seen.plan.document["older_than"] == datetime(2022, 1, 19, tzinfo=UTC).isoformat()


def test_base_on_rule_is_not_moved_by_our_own_commits_and_survives_the_snapshots_expiry(world: World) -> None:
    """What emptied a table: Amoro #2555."""
    table = make(world, **{"data-expire.base-on-rule": "LAST_COMMIT_TIME", "data-expire.retention-time": "36500d"})
    fill(table, each=True)
    fill(table, each=True)
    head = table.refresh().current_snapshot()
    world.now = datetime.now(UTC)
    world.tables.refresh(world.table().table_id)
    assert world.optimize(OptimizingType.FULL) is ProcessStatus.SUCCESS
    world.tables.refresh(world.table().table_id)
    writer.expire_snapshots(table)
    assert len(table.refresh().metadata.snapshots) == 1
    world.tables.refresh(world.table().table_id)
    world.restart()
    known = world.table()
    kept = world.store.read(lambda db: tables.find_data_commit(db, known.table_id, known.uuid))
    assert (kept.snapshot_id, kept.committed_at_ms) == (head.snapshot_id, head.timestamp_ms)
    world.set_properties({"data-expire.retention-time": "1d"})
    seen = world.maintaining.preview(world.table().identifier, NAME)
    base = datetime.fromtimestamp(head.timestamp_ms / 1000, UTC)
    assert seen.plan.document["older_than"] == (base - timedelta(days=1)).isoformat()


def test_nothing_expires_where_it_is_not_known_when_data_came(world: World) -> None:
    table = make(world, **{"data-expire.base-on-rule": "LAST_COMMIT_TIME"})
    fill(table, each=True)
    writer.remove_files(table, [oracle.live_files(table)[0].path])  # brings no data
    writer.expire_snapshots(table)
    begun = world.maintaining.begin(world.table().table_id, NAME, trigger="evaluation")
    assert (begun.process_id, begun.reason) == ("", "it is not known when the last data were added to the table")


def test_data_and_the_deletes_that_only_they_need_go_in_one_snapshot(world: World) -> None:
    """Row 1 is old; rows 2, 5, 6 and 7 are young. Deletes of both kinds in both partitions."""
    table = make(world)
    old, young = "2022-01-01T12:00", "2022-01-03T12:00"
    fill(table, [(1, old), (11, old), (2, young), (12, young), (5, young), (6, young), (7, young)])
    writer.row_delta(table, equality_deletes=[(["id"], [record(table, 11, old), record(table, 12, young)])])
    writer.delete_where(table, lambda item: item["id"] in (1, 2))
    before = len(table.refresh().metadata.snapshots)
    head = table.current_snapshot()
    process_id = expire(world)
    assert ids(table) == [5, 6, 7]
    assert sorted(one.content for one in oracle.live_files(table)) == [0, 1, 2]
    made = table.refresh().current_snapshot()
    assert len(table.metadata.snapshots) == before + 1
    said = made.summary.additional_properties
    assert (made.summary.operation.value, made.parent_snapshot_id) == ("delete", head.snapshot_id)
    assert (said["snapshot.producer"], said["amoro.process-id"]) == ("DATA_EXPIRATION", process_id)
    assert (said["deleted-data-files"], said["removed-delete-files"], said["deleted-records"]) == ("1", "2", "2")
    assert (said["total-data-files"], said["total-delete-files"], said["total-records"]) == ("1", "2", "5")
    receipt = world.receipt(process_id)
    assert receipt.words == "removed 1 data file with 2 expired rows"
    assert receipt.figures[:3] == (
        Figure("removed_data_files", 1, "files"),
        Figure("removed_delete_files", 2, "files"),
        Figure("removed_rows", 2, "rows"),
    )


def test_an_equality_delete_that_a_young_file_needs_too_stays(world: World) -> None:
    """Amoro goes by the sequence number of the expired file that it has seen last."""
    table = make(world, partitioned=False, **{"data-expire.level": "file"})
    fill(table, [(1, "2022-01-01T12:00")])
    fill(table, [(2, "2022-01-03T12:00"), (3, "2022-01-03T12:00")])
    deletes = [record(table, 2, "2022-01-03T12:00")]
    writer.row_delta(table, equality_deletes=[(["id"], deletes)])
    fill(table, [(4, "2022-01-01T13:00")])  # newer than the delete, and old
    fill(table, [(5, "2022-01-03T13:00"), (6, "2022-01-03T13:00")])
    expire(world)
    assert ids(table) == [3, 5, 6]
    assert sorted(one.content for one in oracle.live_files(table)) == [0, 0, 2]


def test_half_of_the_rows_may_go_and_more_are_held_for_a_person(world: World) -> None:
    table = make(world)
    fill(table, [(1, "2022-01-01T12:00"), (3, "2022-01-03T12:00")])
    seen = world.maintaining.preview(world.table().identifier, NAME)
    assert seen.plan.held == ""
    fill(table, [(2, "2022-01-01T13:00")])
    seen = world.maintaining.preview(world.table().identifier, NAME)
    assert seen.plan.held == "2 of 3 rows would go, more than half"
    assert seen.plan.measures == {"rows": 2, "data_files": 2}
    begun = world.maintaining.begin(world.table().table_id, NAME, trigger="request")
    assert world.status(begun.process_id) is ProcessStatus.HELD
    assert expire(world) == begun.process_id
    assert ids(table) == [3]


def test_a_partition_that_got_a_file_or_lost_it_meanwhile_is_left_out_and_the_others_go(world: World) -> None:
    table = make(world)
    times = ("2021-12-29T12:00", "2021-12-30T12:00", "2021-12-31T12:00", *["2022-01-03T12:00"] * 4)
    fill(table, list(enumerate(times)))
    process_id = world.begin_action(NAME)
    fill(table, [(9, "2021-12-31T13:00")])
    oldest = next(one for one in oracle.live_rows_with_positions(table) if one.record["id"] == 0)
    writer.remove_files(table, [oldest.path])
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert ids(table) == [2, 3, 4, 5, 6, 9]
    receipt = world.receipt(process_id)
    assert receipt.words.endswith("; left 2 planned files out, as the table had changed")
    again = world.begin_action(NAME)
    fill(table, [(10, "2021-12-31T14:00")])
    assert world.committing.commit(again) is ProcessStatus.FAILED
    assert "no expired file is in the table" in world.process(again).failure


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"data-expire.field": ""}, "data expiry needs the property data-expire.field"),
        ({"data-expire.field": "nope"}, "the table has no column 'nope' at its top level"),
        ({"data-expire.field": "id"}, "column 'id' is of type int, which tells no time"),
        ({"data-expire.retention-time": ""}, "data expiry needs the property data-expire.retention-time"),
        ({"data-expire.retention-time": "soon"}, "data-expire.retention-time has the malformed value 'soon'"),
        ({"data-expire.datetime-string-pattern": "yyyy-MMM"}, "has the malformed value 'yyyy-MMM'"),
    ],
)
def test_what_is_missing_or_malformed_is_refused_by_name_and_nothing_is_done(
    world: World, said: dict[str, str], why: str
) -> None:
    table = make(world, **said)
    fill(table)
    with pytest.raises(TableRefused, match=why) as caught:
        world.maintaining.begin(world.table().table_id, NAME, trigger="request")
    assert (caught.value.reason, bool(caught.value.hint)) == ("configuration", True)
    assert ids(table) == [1, 2, 3, 4]


# Random tables and random limits: no row that is young or has no time is ever lost, and none comes back


MOMENT = datetime(2022, 3, 15, 18, 30, tzinfo=UTC)
COLUMNS: dict[str, Any] = {
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


def fill_at_random(table: Table, kind: str, pattern: str, chance: random.Random, first: int) -> int:
    """A few commits: appends, deletes by key and by position; returns the next id."""
    for _ in range(chance.randint(2, 4)):
        rows: list[dict[str, Any]] = []
        center = MOMENT - timedelta(days=chance.choice((0, 1, 2, 20, 45, 400)))
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


@pytest.mark.parametrize("seed", range(FIRST, FIRST + count(min(2, COUNT), COUNT)))
def test_no_young_row_is_lost_and_none_comes_back(world: World, seed: int) -> None:
    chance = random.Random(seed)
    kind = list(COLUMNS)[seed % len(COLUMNS)]
    java, python = chance.choice(PATTERNS)
    id_, time = NestedField(1, "id", IntegerType(), required=False), NestedField(2, "t", COLUMNS[kind], required=False)
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
    first = fill_at_random(table, kind, python, chance, 0)
    if chance.random() < 0.5 and first_spec is spec:
        with table.update_spec() as update:
            update.remove_field("p")
        first = fill_at_random(table, kind, python, chance, first)
    retention = {"1d": timedelta(days=1), "36h": timedelta(hours=36), "40d": timedelta(days=40)}
    until = MOMENT - retention[properties["data-expire.retention-time"]]
    world.now = MOMENT
    before = rows_of(table)
    begun = world.maintaining.begin(world.table().table_id, NAME, trigger="request", options=Options(confirmed=True))
    if begun.process_id:
        fill_at_random(table, kind, python, chance, first)
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
