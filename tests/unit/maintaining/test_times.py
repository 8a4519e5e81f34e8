"""Windows, intervals and options of maintenance, automatic tags, and date patterns."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from amoro_core.actions.registry import Actions
from amoro_core.errors import InvalidArgument, TableRefused
from amoro_core.maintenance.data_expiry import DatePattern
from amoro_core.maintenance.schedule import MaintenanceConfig, next_run, opening
from amoro_core.maintenance.snapshots import TagConfig, TagPeriod, TagVerdict, evaluate_tag
from amoro_core.model.maintenance import ORDER, TAKEN_BY, Options, refuse_options, turn
from amoro_core.model.processes import OPTIMIZING_ACTION
from amoro_core.model.properties import parse_into
from amoro_core.model.tables import SnapshotFacts

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def config(**properties: str) -> MaintenanceConfig:
    return parse_into(MaintenanceConfig, {f"maintenance.{key}": value for key, value in properties.items()})


@pytest.mark.parametrize(
    ("window", "at", "expected"),
    [
        ("22:00-06:00", "23:30", "01 23:30"),
        ("22:00-06:00", "05:59", "01 05:59"),
        ("22:00-06:00", "06:00", "01 22:00"),
        ("01:00-02:30", "02:29", "01 02:29"),
        ("01:00-02:30", "12:00", "02 01:00"),
    ],
)
def test_a_window_opens_on_the_same_day_or_once_it_has_closed_on_the_next(window: str, at: str, expected: str) -> None:
    hour, minute = map(int, at.split(":"))
    moment = NOON.replace(hour=hour, minute=minute)
    assert f"{opening(config(window=window), moment):%d %H:%M}" == expected


def test_a_window_is_of_its_zone_in_summer_and_winter() -> None:
    berlin = config(window="22:00-06:00", zone="Europe/Berlin")
    assert opening(berlin, NOON) == NOON.replace(hour=21)
    assert opening(berlin, NOON.replace(month=7)) == NOON.replace(month=7, hour=20)


@pytest.mark.parametrize("window", ["22-06", "25:00-06:00", "22:00-22:00", "22:60-06:00", "night"])
def test_a_malformed_window_is_refused_with_its_value(window: str) -> None:
    with pytest.raises(TableRefused, match=f"maintenance.window has the malformed value '{window}'"):
        config(window=window)


def test_runs_of_many_tables_spread_over_a_fifth_of_the_interval_around_it() -> None:
    every = timedelta(hours=10)
    runs = [next_run(NOON, every, f"table {one}", "expire-snapshots", NOON) - NOON for one in range(1000)]
    assert timedelta(hours=9) <= min(runs) < timedelta(hours=9, minutes=2)
    assert timedelta(hours=10, minutes=58) < max(runs) <= timedelta(hours=11)
    assert runs[0] == next_run(NOON, every, "table 0", "expire-snapshots", NOON) - NOON
    assert runs[0] != next_run(NOON, every, "table 0", "clean-orphan-files", NOON) - NOON


# Options, each for some actions


GIVEN = {
    "--older-than": Options(older_than=timedelta(days=3)),
    "--retain-last": Options(retain_last=2),
    "--snapshot": Options(snapshot_ids=(1,)),
    "--location": Options(locations=("file:///x",)),
    "--file-list": Options(file_list="x.csv"),
}


def test_an_option_is_refused_by_all_actions_that_it_is_not_for() -> None:
    assert TAKEN_BY.keys() == GIVEN.keys()
    for name, given in GIVEN.items():
        for action in ORDER:
            if action in TAKEN_BY[name]:
                refuse_options(action, given)
                continue
            with pytest.raises(InvalidArgument, match=f"^{action} takes no {name}$") as refused:
                refuse_options(action, given)
            assert refused.value.hint == f"Leave {name} out."
    refuse_options("tally", GIVEN["--snapshot"])  # what an action of another package takes it says itself


def test_the_order_has_each_of_our_actions_and_others_come_last() -> None:
    ours = {one.name for one in Actions().every if not hasattr(one, "undoes")} - {OPTIMIZING_ACTION}
    assert set(ORDER) == ours
    assert sorted(["tally", *reversed(ORDER)], key=turn) == [*ORDER, "tally"]


# Tags


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def snapshot(snapshot_id: int, moment: str) -> SnapshotFacts:
    return SnapshotFacts(snapshot_id, None, snapshot_id, at(moment), "append", {}, ())


@pytest.mark.parametrize(
    ("period", "now", "offset", "start"),
    [
        (TagPeriod.HOURLY, "2022-08-08T23:40:00", 15, "2022-08-08T23:00:00"),
        (TagPeriod.DAILY, "2022-08-09T00:10:00", 30, "2022-08-08T00:00:00"),
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
        (TagPeriod.MONTHLY, "2024-03-31T23:59:59", "tag-202402", "2024-04-01T00:00:00"),
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


# Dates in texts


@pytest.mark.parametrize(
    ("pattern", "text", "moment"),
    [
        ("yyyy-MM-dd", "2022-01-02", datetime(2022, 1, 2)),
        ("yyyy-MM-dd HH:mm:ss", "2022-01-02 03:04:05", datetime(2022, 1, 2, 3, 4, 5)),
        ("dd.MM.yy", "02.01.22", datetime(2022, 1, 2)),
        ("yyyy-MM", "2024-02", datetime(2024, 2, 29)),  # the last day of the month, never an earlier one
        ("yyyy", "2022", datetime(2022, 12, 31)),
        ("'day '''yyyyMMdd", "day '20220102", datetime(2022, 1, 2)),
        ("'{x}'yyyyMMdd''", "{x}20220102'", datetime(2022, 1, 2)),
    ],
)
def test_a_text_in_the_patterns_form_is_read_as_it_is_written(pattern: str, text: str, moment: datetime) -> None:
    known = DatePattern(pattern)
    assert known.read(text) == moment
    assert known.format(moment) == text


@pytest.mark.parametrize(
    "text",
    ["", "2022-1-2", "2022-01-02 ", " 2022-01-02", "2022-01-02\n", "22-01-02", "2022-13-01", "2022-02-30", "0000-01-01",
     "+2022-01-02", "٢٠٢٢-01-02", "2022-01-02T00:00"],
)  # fmt: skip
def test_any_other_text_is_none(text: str) -> None:
    assert DatePattern("yyyy-MM-dd").read(text) is None


@pytest.mark.parametrize("pattern", ["MM-dd", "'never'", "yyyy-MM-dd yyyy"])
def test_a_pattern_that_names_no_year_or_one_twice_reads_nothing(pattern: str) -> None:
    assert DatePattern(pattern).read(DatePattern(pattern).format(datetime(2022, 1, 2))) is None


@pytest.mark.parametrize(
    ("pattern", "is_kept"),
    [
        ("yyyy-MM-dd", True),
        ("'d'yyyy", True),
        ("dd-MM-yyyy", False),
        ("yy-MM-dd", False),  # of two centuries
        ("yyyy-dd", False),
        ("'never'", False),
    ],
)
def test_texts_are_ordered_as_moments_where_the_greatest_part_comes_first(pattern: str, is_kept: bool) -> None:
    assert DatePattern(pattern).keeps_order is is_kept
