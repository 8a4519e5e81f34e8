"""Which tag a table gets, and when. Times and names of Amoro's own tests of its automatic tags are among them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from amoro_core.maintaining.dates import DatePattern
from amoro_core.maintaining.tags import TagConfig, TagPeriod, TagVerdict, evaluate_tag
from amoro_core.model.tables import SnapshotFacts


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def snapshot(snapshot_id: int, moment: str) -> SnapshotFacts:
    return SnapshotFacts(snapshot_id, None, snapshot_id, at(moment), "append", {}, ())


@pytest.mark.parametrize(
    ("period", "now", "offset", "start"),
    [
        (TagPeriod.HOURLY, "2022-08-08T11:40:00", 30, "2022-08-08T11:00:00"),
        (TagPeriod.HOURLY, "2022-08-08T23:40:00", 15, "2022-08-08T23:00:00"),
        (TagPeriod.HOURLY, "2022-08-09T00:10:00", 30, "2022-08-08T23:00:00"),
        (TagPeriod.DAILY, "2022-08-08T03:40:00", 30, "2022-08-08T00:00:00"),
        (TagPeriod.DAILY, "2022-08-09T00:10:00", 30, "2022-08-08T00:00:00"),
        (TagPeriod.MONTHLY, "2022-08-31T23:40:00", 15, "2022-08-01T00:00:00"),
        (TagPeriod.MONTHLY, "2022-08-01T00:10:00", 30, "2022-07-01T00:00:00"),
        (TagPeriod.MONTHLY, "2024-03-01T00:10:00", 30, "2024-02-01T00:00:00"),
    ],
)
def test_a_period_has_begun_once_its_offset_has_passed(period: TagPeriod, now: str, offset: int, start: str) -> None:
    config = TagConfig(True, period, timedelta(minutes=offset))
    trigger = at(start) + timedelta(minutes=offset)
    before, just = (
        evaluate_tag(config, at(now), [snapshot(1, (trigger + step).replace(tzinfo=None).isoformat())], ())
        for step in (timedelta(milliseconds=-1), timedelta(0))
    )
    assert (before.snapshot_id, just.snapshot_id) == (None, 1)


@pytest.mark.parametrize(
    ("period", "now", "name", "due_at"),
    [
        (TagPeriod.HOURLY, "2026-01-01T00:30:00", "tag-2025123123", "2026-01-01T01:00:00"),
        (TagPeriod.DAILY, "2026-03-01T00:00:00", "tag-20260228", "2026-03-02T00:00:00"),
        (TagPeriod.MONTHLY, "2026-02-01T00:00:00", "tag-202601", "2026-03-01T00:00:00"),
        (TagPeriod.MONTHLY, "2026-03-01T00:00:00", "tag-202602", "2026-04-01T00:00:00"),
        (TagPeriod.MONTHLY, "2024-03-31T23:59:59", "tag-202402", "2024-04-01T00:00:00"),
        (TagPeriod.MONTHLY, "2027-01-01T00:00:00", "tag-202612", "2027-02-01T00:00:00"),
        (TagPeriod.MONTHLY, "2026-12-31T12:00:00", "tag-202611", "2027-01-01T00:00:00"),
    ],
)
def test_a_tag_is_named_after_the_period_that_ended(period: TagPeriod, now: str, name: str, due_at: str) -> None:
    config = TagConfig(True, period, max_delay=timedelta(0))
    verdict = evaluate_tag(config, at(now), [snapshot(7, now)], ["main"])
    assert verdict == TagVerdict(f"tag {name} is missing", at(due_at), name, 7)


def test_the_first_snapshot_after_the_trigger_is_tagged_whatever_their_order() -> None:
    history = [snapshot(4, "2026-05-02T00:30"), snapshot(2, "2026-05-01T23:59"), snapshot(3, "2026-05-02T00:05")]
    verdict = evaluate_tag(TagConfig(True), at("2026-05-02T08:00"), history, ["main"])
    assert verdict == TagVerdict("tag tag-20260501 is missing", at("2026-05-03"), "tag-20260501", 3)


def test_a_tag_that_is_there_is_left_alone() -> None:
    verdict = evaluate_tag(TagConfig(True), at("2026-05-02T08:00"), [snapshot(3, "2026-05-02")], ["tag-20260501"])
    assert verdict == TagVerdict("tag tag-20260501 exists", at("2026-05-03"), "tag-20260501")


def test_without_a_snapshot_since_the_trigger_there_is_nothing_to_tag() -> None:
    verdict = evaluate_tag(TagConfig(True), at("2026-05-02T08:00"), [snapshot(3, "2026-05-01T23:59")], ())
    assert verdict == TagVerdict(
        "no snapshot was committed since 2026-05-02 00:00 for tag tag-20260501", at("2026-05-03"), "tag-20260501"
    )


def test_a_snapshot_may_come_as_late_as_the_delay_and_no_later() -> None:
    config = TagConfig(True, max_delay=timedelta(minutes=60))
    just, late = (
        evaluate_tag(config, at("2026-05-02T08:00"), [snapshot(3, moment)], ())
        for moment in ("2026-05-02T01:00:00", "2026-05-02T01:00:00.001")
    )
    assert just.snapshot_id == 3
    assert late == TagVerdict(
        "the first snapshot for tag tag-20260501 came 60 min after its time, more than 60 min",
        at("2026-05-03"),
        "tag-20260501",
    )


def test_periods_begin_in_the_zone_of_maintenance_also_where_its_clock_is_set() -> None:
    """On 2026-03-29 Berlin's clock goes from 02:00 to 03:00."""
    config = TagConfig(True, zone=ZoneInfo("Europe/Berlin"), max_delay=timedelta(0))
    history = [snapshot(1, "2026-03-28T22:59"), snapshot(2, "2026-03-28T23:00"), snapshot(3, "2026-03-29T22:00")]
    first = evaluate_tag(config, at("2026-03-29T21:59"), history, ())
    second = evaluate_tag(config, at("2026-03-29T22:00"), history, ())
    assert (first.name, first.snapshot_id, first.due_at) == ("tag-20260328", 2, at("2026-03-29T22:00"))
    assert (second.name, second.snapshot_id, second.due_at) == ("tag-20260329", 3, at("2026-03-30T22:00"))


def test_a_pattern_writes_dates_as_java_does() -> None:
    moment = datetime(2026, 7, 4, 5, 6, 7)
    assert DatePattern("'custom-tag-'yyyyMMdd'-auto'").format(moment) == "custom-tag-20260704-auto"
    assert DatePattern("yy/MM/dd HH:mm:ss").format(moment) == "26/07/04 05:06:07"
    assert DatePattern("'it''s {0}'''yyyy").format(moment) == "it's {0}'2026"
    assert DatePattern("{yyyy}''").format(moment) == "{2026}'"


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("tag-yyyy", "t is none of yyyy, yy, MM, dd, HH, mm, ss; letters that are text stand in quotes: 't'"),
        ("yyyyMMMdd", "MMM is none of"),
        ("YYYY", "YYYY is none of"),
        ("'tag-yyyy", "the quote at character 1 is not closed"),
    ],
)
def test_a_pattern_that_java_would_read_otherwise_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        DatePattern(pattern)
