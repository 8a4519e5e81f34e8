"""Which data files have expired: Amoro's rules by what metadata tell, and what they do not tell stays."""

from __future__ import annotations

import struct
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from amoro_core.errors import TableRefused
from amoro_core.maintenance.data_expiry import DataExpiryConfig, Level, Limit, expired, last_data_commit, still_expired
from amoro_core.model.files import ColumnMetrics, DataFile, FileFormat, Partition, ScannedFile, TableScan
from amoro_core.model.maintenance import DataCommit, TimeColumn, TimeKind, TimePart
from amoro_core.model.plans import PartitionKey
from amoro_core.model.properties import parse_into
from amoro_core.model.tables import SnapshotFacts

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
UNTIL = datetime(2022, 1, 2, 18, tzinfo=UTC)


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def long(value: int) -> bytes:
    return struct.pack("<q", value)


def int32(value: int) -> bytes:
    return struct.pack("<i", value)


def days(text: str) -> int:
    return (at(text) - EPOCH).days


def column(kind: TimeKind = TimeKind.TIMESTAMP, *parts: TimePart) -> TimeColumn:
    return TimeColumn("ts", 4, kind, {0: parts} if parts else {})


def file(
    name: str = "f",
    upper: bytes | None = None,
    lower: bytes | None = None,
    partition: Partition = (),
    nulls: int | None = 0,
    number: int = 1,
) -> DataFile:
    metrics = ColumnMetrics(
        null_value_counts={} if nulls is None else {4: nulls},
        lower_bounds={} if upper is None else {4: lower or upper},
        upper_bounds={} if upper is None else {4: upper},
    )
    return DataFile(f"file:///w/{name}", FileFormat.PARQUET, 0, partition, 10, 100, number, metrics)


def scan(*files: DataFile) -> TableScan:
    return TableScan(7, 9, tuple(ScannedFile(one) for one in files))


def limit(of: TimeColumn, until: datetime = UNTIL, zone: str = "UTC", **properties: str) -> Limit:
    keys = {
        "level": "data-expire.level",
        "pattern": "data-expire.datetime-string-pattern",
        "number": "data-expire.datetime-number-format",
        "nulls": "maintenance.expire-data.nulls",
    }
    config = parse_into(DataExpiryConfig, {keys[key]: value for key, value in properties.items()})
    return Limit(of, config, ZoneInfo(zone), micros(until))


def goes(one: DataFile, how: Limit) -> bool:
    return expired(scan(one), how).every == (one,)


def timestamp(text: str) -> bytes:
    return long(micros(at(text)))


@pytest.mark.parametrize(
    ("how", "old", "young"),
    [
        (limit(column()), long(micros(UNTIL)), long(micros(UNTIL) + 1)),
        (limit(column(TimeKind.LONG), number="TIMESTAMP_MS"),
         long(micros(UNTIL) // 1000), long(micros(UNTIL) // 1000 + 1)),
        (limit(column(TimeKind.LONG), number="timestamp_s"),
         long(micros(UNTIL) // 1_000_000), long(micros(UNTIL) // 1_000_000 + 1)),
        # A date is the beginning of its day.
        (limit(column(TimeKind.DATE)), int32(days("2022-01-02")), int32(days("2022-01-03"))),
    ],
)  # fmt: skip
def test_a_file_expires_when_its_latest_row_is_as_old_as_the_limit_and_not_a_moment_before(
    how: Limit, old: bytes, young: bytes
) -> None:
    assert goes(file(upper=old), how)
    assert not goes(file(upper=young), how)


def test_a_bound_of_an_int_that_was_promoted_since_is_read() -> None:
    assert goes(file(upper=int32(5)), limit(column(TimeKind.LONG)))


def test_texts_are_read_in_the_tables_zone() -> None:
    text = b"2022-01-02 18"
    assert goes(file(upper=text), limit(column(TimeKind.STRING), pattern="yyyy-MM-dd HH"))
    assert goes(file(upper=text), limit(column(TimeKind.STRING), zone="Asia/Tokyo", pattern="yyyy-MM-dd HH"))
    assert not goes(file(upper=text), limit(column(TimeKind.STRING), zone="America/Lima", pattern="yyyy-MM-dd HH"))


def test_of_an_hour_that_comes_twice_the_later_one_counts() -> None:
    how = limit(column(TimeKind.STRING), at("2022-10-30T00:30"), "Europe/Berlin", pattern="yyyy-MM-dd HH:mm")
    assert not goes(file(upper=b"2022-10-30 02:30"), how)
    assert goes(file(upper=b"2022-10-30 02:30"), replace(how, until=micros(at("2022-10-30T01:30"))))


@pytest.mark.parametrize("text", [b"", b"yesterday", b"2022-01-0", b"2022-01-02x", b"\xff\xfe", b"2022-02-30"])
def test_a_text_that_is_no_date_keeps_its_file(text: bytes) -> None:
    how = limit(column(TimeKind.STRING), at("2030-01-01"))
    assert not goes(file(upper=text), how)
    assert not goes(file(upper=b"2022-01-02", lower=text or b"\x00"), how)
    assert goes(file(upper=b"2022-01-02", lower=b"2022-01-01"), how)


def test_the_greatest_text_says_nothing_where_texts_are_not_ordered_as_dates_are() -> None:
    how = limit(column(TimeKind.STRING), pattern="dd-MM-yyyy")
    assert not goes(file(upper=b"31-12-2021", lower=b"01-01-2021"), how)  # 30-06-2025 lies between
    assert goes(file(upper=b"31-12-2021", lower=b"31-12-2021"), how)


LAST = micros(UNTIL)
PARTITIONS: list[tuple[TimeKind, TimePart, bytes, bytes]] = [
    (TimeKind.TIMESTAMP, TimePart(0, "identity"), long(LAST), long(LAST + 1)),
    (TimeKind.TIMESTAMP, TimePart(0, "hour"), int32(days("2022-01-02") * 24 + 17), int32(days("2022-01-02") * 24 + 18)),
    (TimeKind.TIMESTAMP, TimePart(0, "day"), int32(days("2022-01-01")), int32(days("2022-01-02"))),
    (TimeKind.TIMESTAMP, TimePart(0, "month"), int32(51 * 12 + 11), int32(52 * 12)),
    (TimeKind.TIMESTAMP, TimePart(0, "year"), int32(51), int32(52)),
    (TimeKind.DATE, TimePart(0, "identity"), int32(days("2022-01-02")), int32(days("2022-01-03"))),
    (TimeKind.DATE, TimePart(0, "day"), int32(days("2022-01-02")), int32(days("2022-01-03"))),
    (TimeKind.DATE, TimePart(0, "month"), int32(51 * 12 + 11), int32(52 * 12)),
    (TimeKind.LONG, TimePart(0, "identity"), long(LAST // 1000), long(LAST // 1000 + 1)),
    (TimeKind.LONG, TimePart(0, "truncate", 10), long(LAST // 1000 - 9), long(LAST // 1000 - 8)),
    (TimeKind.STRING, TimePart(0, "identity"), b"2022-01-02", b"2022-01-03"),
]


@pytest.mark.parametrize(("kind", "part", "old", "young"), PARTITIONS)
def test_a_partition_expires_with_the_last_moment_that_it_may_hold(
    kind: TimeKind, part: TimePart, old: bytes, young: bytes
) -> None:
    how = limit(column(kind, part))
    assert goes(file(partition=(old,), nulls=None), how)
    assert not goes(file(partition=(young,), nulls=None), how)


@pytest.mark.parametrize("part", [TimePart(0, ""), TimePart(0, "truncate", 4)])
def test_a_partition_that_does_not_keep_the_order_tells_nothing(part: TimePart) -> None:
    assert not goes(file(partition=(int32(1),)), limit(column(TimeKind.TIMESTAMP, part)))
    assert not goes(file(partition=(b"2021",)), limit(column(TimeKind.STRING, part)))


def test_a_null_partition_tells_nothing() -> None:
    assert not goes(file(partition=(None,)), limit(column(TimeKind.TIMESTAMP, TimePart(0, "day")), nulls="expire"))


def test_the_columns_own_bound_goes_before_the_partition() -> None:
    day = column(TimeKind.TIMESTAMP, TimePart(0, "day"))
    assert goes(file(upper=timestamp("2022-01-02T12:00"), partition=(int32(days("2022-01-02")),)), limit(day))


@pytest.mark.parametrize("nulls", [1, None])
def test_rows_without_a_time_keep_their_file_unless_the_property_says_so(nulls: int | None) -> None:
    old = file(upper=timestamp("2021-01-01"), nulls=nulls)
    assert not goes(old, limit(column()))
    assert expired(scan(old), limit(column())).kept == {"it has rows without a time, or does not say": 1}
    assert goes(old, limit(column(), nulls="expire"))


def test_a_value_in_the_partition_says_that_no_row_lacks_one() -> None:
    bucket = column(TimeKind.TIMESTAMP, TimePart(0, ""))
    assert goes(file(upper=timestamp("2021-01-01"), partition=(int32(3),), nulls=None), limit(bucket))
    assert not goes(file(upper=timestamp("2021-01-01"), partition=(None,), nulls=None), limit(bucket))


def test_of_level_partition_all_files_expire_or_none_and_of_level_file_each_by_itself() -> None:
    old, young = (
        file("o", timestamp("2021-01-01"), partition=(b"a",)),
        file("y", timestamp("2023-01-01"), partition=(b"a",)),
    )
    other = file("b", timestamp("2021-01-01"), partition=(b"b",))
    found = expired(scan(old, young, other), limit(column()))
    assert found.files == {PartitionKey(0, (b"b",)): (other,)}
    assert (found.rows, found.total_rows, found.is_most) == (10, 30, False)
    assert found.kept == {"it is not old enough": 1, "other files of its partition stay": 1}
    found = expired(scan(old, young, other), limit(column(), level="FILE"))
    assert set(found.every) == {old, other}
    assert (found.rows, found.is_most) == (20, True)


def test_a_file_that_stands_in_the_table_twice_stays() -> None:
    twice = file(upper=timestamp("2021-01-01"))
    assert expired(scan(twice, replace(twice, sequence_number=2)), limit(column(), level="file")).every == ()


OLD = file("o", timestamp("2021-01-01"), partition=(b"a",))
PLANNED = expired(scan(OLD, replace(OLD, path="file:///w/p")), limit(column()))


@pytest.mark.parametrize(
    ("level", "beside", "is_left_out"),
    [
        (Level.PARTITION, file("new", timestamp("2020-01-01"), partition=(b"a",)), True),
        (Level.PARTITION, file("new", timestamp("2020-01-01"), partition=(b"b",)), False),
        (Level.FILE, file("new", timestamp("2020-01-01"), partition=(b"a",)), False),
    ],
)
def test_a_partition_with_a_file_that_was_not_planned_is_left_out(
    level: Level, beside: DataFile, is_left_out: bool
) -> None:
    assert still_expired(PLANNED, scan(OLD, beside), level) == (() if is_left_out else (OLD,))


def test_files_that_are_gone_or_others_by_now_are_left_out() -> None:
    assert still_expired(PLANNED, scan(), Level.PARTITION) == ()
    assert still_expired(PLANNED, scan(OLD), Level.PARTITION) == (OLD,)
    for change in ({"sequence_number": 5}, {"record_count": 11}, {"size_bytes": 1}):
        assert still_expired(PLANNED, scan(replace(OLD, **change)), Level.FILE) == ()


@pytest.mark.parametrize(
    ("text", "retention"),
    [
        ("1d", timedelta(days=1)),
        ("3 days", timedelta(days=3)),
        ("12h", timedelta(hours=12)),
        ("1500", timedelta(seconds=1.5)),
        ("999999999999999999d", timedelta(days=36525)),
    ],
)
def test_retention_has_amoros_units(text: str, retention: timedelta) -> None:
    assert parse_into(DataExpiryConfig, {"data-expire.retention-time": text}).retention == retention


@pytest.mark.parametrize("text", ["0d", "0", "-1d", "1.5d", "d", "1w", "1 d 2 h", "1_0d"])
def test_a_retention_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(TableRefused, match=r"data-expire\.retention-time has the malformed value"):
        parse_into(DataExpiryConfig, {"data-expire.retention-time": text})


# The commit that time is counted back from


def snapshot(snapshot_id: int, parent: int | None, operation: str = "append", **summary: Any) -> SnapshotFacts:
    said = {key.replace("_", "-"): str(value) for key, value in summary.items()}
    return SnapshotFacts(
        snapshot_id, parent, snapshot_id, EPOCH + timedelta(milliseconds=snapshot_id), operation, said, ()
    )


def test_the_newest_commit_that_brought_data_counts_and_none_of_ours() -> None:
    history = [
        snapshot(1, None, added_records=5),
        snapshot(2, 1, "overwrite", added_data_files=1, added_records=0),
        snapshot(3, 2, "delete", deleted_records=5),
        snapshot(4, 3, "replace", added_records=9),
        snapshot(5, 4, "append", added_records=0),
    ]
    ours = replace(snapshot(6, 5, added_records=3), summary={"added-records": "3", "amoro.process-id": "p"})
    amoros = replace(snapshot(7, 6), summary={"added-records": "3", "snapshot.producer": "OPTIMIZE"})
    assert last_data_commit([*history, ours, amoros], 7, None) == DataCommit(2, 2)
    assert last_data_commit(history, 1, None) == DataCommit(1, 1)


def test_what_was_kept_counts_only_where_the_history_was_cut_behind_it() -> None:
    kept = DataCommit(3, 3)
    cut = [snapshot(5, 4, "replace")]
    assert last_data_commit(cut, 5, kept) == kept
    assert last_data_commit(cut, 5, None) is None
    # Its snapshot is there, and not on main: somebody has set main back.
    assert last_data_commit([*cut, snapshot(3, 2, added_records=1)], 5, kept) is None
    # pyiceberg takes the parent from what stays.
    assert last_data_commit([snapshot(5, None, "replace")], 5, kept) == kept
