"""Windows and intervals of maintenance."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

import pytest

from amoro_core.errors import TableRefused
from amoro_core.maintaining.timing import MaintenanceConfig, Window, next_run, opening
from amoro_core.model.properties import parse_into

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def config(**properties: str) -> MaintenanceConfig:
    return parse_into(MaintenanceConfig, {f"maintenance.{key}": value for key, value in properties.items()})


@pytest.mark.parametrize(
    ("window", "at", "expected"),
    [
        ("22:00-06:00", "12:00", "22:00"),
        ("22:00-06:00", "23:30", "23:30"),
        ("22:00-06:00", "05:59", "05:59"),
        ("22:00-06:00", "06:00", "22:00"),
        ("01:00-02:30", "02:29", "02:29"),
        ("01:00-02:30", "00:59", "01:00"),
    ],
)
def test_a_window_opens_on_the_same_day(window: str, at: str, expected: str) -> None:
    hour, minute = map(int, at.split(":"))
    moment = NOON.replace(hour=hour, minute=minute)
    assert f"{opening(config(window=window), moment):%d %H:%M}" == f"01 {expected}"


def test_one_that_has_closed_opens_on_the_next_day() -> None:
    assert opening(config(window="01:00-02:30"), NOON) == NOON.replace(day=2, hour=1)


def test_a_window_is_of_its_zone_in_summer_and_winter() -> None:
    berlin = config(window="22:00-06:00", zone="Europe/Berlin")
    assert opening(berlin, NOON) == NOON.replace(hour=21)
    assert opening(berlin, NOON.replace(month=7)) == NOON.replace(month=7, hour=20)


def test_without_a_window_every_moment_will_do() -> None:
    assert (config().window, opening(config(), NOON)) == (None, NOON)


@pytest.mark.parametrize("window", ["22-06", "25:00-06:00", "22:00-22:00", "22:60-06:00", "night"])
def test_a_malformed_window_is_refused_with_its_value(window: str) -> None:
    with pytest.raises(TableRefused, match=f"maintenance.window has the malformed value '{window}'"):
        config(window=window)


def test_a_window_s_parts() -> None:
    assert config(window=" 9:05 - 17:00 ").window == Window(time(9, 5), time(17, 0))


def test_runs_of_many_tables_spread_over_a_fifth_of_the_interval_around_it() -> None:
    every = timedelta(hours=10)
    runs = [next_run(NOON, every, f"table {one}", "expire-snapshots", NOON) - NOON for one in range(1000)]
    assert timedelta(hours=9) <= min(runs) < timedelta(hours=9, minutes=2)
    assert timedelta(hours=10, minutes=58) < max(runs) <= timedelta(hours=11)
    assert runs[0] == next_run(NOON, every, "table 0", "expire-snapshots", NOON) - NOON
    assert runs[0] != next_run(NOON, every, "table 0", "clean-orphan-files", NOON) - NOON


def test_what_has_never_run_runs_at_once() -> None:
    assert next_run(None, timedelta(days=1), "table", "action", NOON) == NOON
