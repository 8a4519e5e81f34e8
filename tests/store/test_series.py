"""Values over time: every step exact at any moment, gaps, and bounds."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from amoro_core.model.series import SYSTEM_STEPS, TABLE_STEPS, Point, Sample, Series, Step, TableFigures, fitting
from amoro_core.store import series, tables
from amoro_core.store.database import Store
from tests.store.builders import NOW, runtime

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
END = BEGIN + timedelta(days=500)
MINUTE, TEN, TWO_HOURS = SYSTEM_STEPS


def read(store: Store, step: Step, name: str = "tables", label: str | None = None) -> list[Series]:
    return store.read(lambda db: series.list_series(db, [name], label, step, BEGIN - timedelta(days=9), END))


def expected(samples: list[tuple[datetime, int]], step: Step) -> tuple[Point, ...]:
    """The points of these samples, by a plain model."""
    parts: dict[int, list[int]] = defaultdict(list)
    for at, value in samples:
        parts[int(at.timestamp()) // step.seconds * step.seconds].append(value)
    return tuple(
        Point(datetime.fromtimestamp(at, UTC), len(values), sum(values), min(values), max(values))
        for at, values in sorted(parts.items())
    )


@pytest.mark.parametrize("seed", range(5))
def test_every_step_is_exact_whatever_the_order_and_the_distance_of_samples(store: Store, seed: int) -> None:
    drawn = Random(seed)
    samples = [
        (
            BEGIN + timedelta(seconds=drawn.choice((drawn.randrange(600), drawn.randrange(100_000)))),
            drawn.randrange(-9, 99),
        )
        for _ in range(300)
    ]
    for at, value in samples:
        store.write(lambda db, at=at, value=value: series.add(db, [Sample("tables", value)], at))
    for step in SYSTEM_STEPS:
        assert read(store, step) == [Series("tables", "", expected(samples, step))]


def test_time_without_samples_has_no_point(store: Store) -> None:
    for minute in (0, 1, 30):
        store.write(lambda db, m=minute: series.add(db, [Sample("tables", 5)], BEGIN + timedelta(minutes=m)))
    ((_, points),) = [(one.name, one.points) for one in read(store, MINUTE)]
    assert [(one.at - BEGIN) // timedelta(minutes=1) for one in points] == [0, 1, 30]
    ((_, points),) = [(one.name, one.points) for one in read(store, TEN)]
    assert [((one.at - BEGIN) // timedelta(minutes=1), one.n) for one in points] == [(0, 2), (30, 1)]


def test_a_step_belongs_to_the_range_that_holds_its_beginning(store: Store) -> None:
    for minute in range(4):
        store.write(lambda db, m=minute: series.add(db, [Sample("tables", m)], BEGIN + timedelta(minutes=m)))
    since, until = BEGIN + timedelta(minutes=1), BEGIN + timedelta(minutes=3)
    (found,) = store.read(lambda db: series.list_series(db, ["tables"], None, MINUTE, since, until))
    assert [one.sum for one in found.points] == [1, 2]


def test_labels_of_a_name_are_series_of_their_own(store: Store) -> None:
    both = [Sample("threads", 3, "b"), Sample("threads", 5, "a"), Sample("tables", 7)]
    store.write(lambda db: series.add(db, both, BEGIN))
    assert [(one.label, one.points[0].sum) for one in read(store, MINUTE, "threads")] == [("a", 5), ("b", 3)]
    assert [one.label for one in read(store, MINUTE, "threads", "b")] == ["b"]
    assert read(store, MINUTE, "threads", "c") == []


def trimmed(store: Store, now: datetime, limit: int = 1000) -> list[int]:
    """How many rows each write has removed, until none is left."""
    removed = []
    for series_id in store.read(series.list_ids):
        while count := store.write(lambda db, one=series_id: series.trim(db, one, now, limit)):
            removed.append(count)
    return removed


def points(store: Store) -> dict[int, int]:
    rows = store.read(lambda db: db.select("SELECT step_s, count(*) AS points FROM series_point GROUP BY step_s"))
    return {row["step_s"]: row["points"] for row in rows}


def test_each_step_is_kept_for_its_time_and_not_a_moment_longer(store: Store) -> None:
    store.write(lambda db: series.add(db, [Sample("tables", 1)], BEGIN))
    for step in SYSTEM_STEPS:
        assert trimmed(store, BEGIN + step.keep) == []
        before = points(store)
        assert sum(trimmed(store, BEGIN + step.keep + timedelta(milliseconds=1))) == 1
        after = points(store)
        assert before.keys() - after.keys() == {step.seconds}
    assert store.read(series.list_ids) == []


def test_one_write_removes_no_more_rows_than_it_may(store: Store) -> None:
    for number in range(40):
        at = BEGIN + timedelta(minutes=number)
        store.write(lambda db, at=at: series.add(db, [Sample("tables", 1)], at))
    # 40 of a minute and 4 of ten minutes are old; that of two hours is not.
    removed = trimmed(store, BEGIN + timedelta(days=60), limit=16)
    assert (max(removed), sum(removed)) == (16, 44)
    assert points(store) == {TWO_HOURS.seconds: 1}


def test_however_long_it_runs_there_are_no_more_points_than_fit_into_the_times(store: Store) -> None:
    for day in range(450):
        now = BEGIN + timedelta(days=day)
        store.write(
            lambda db, at=now: [series.add(db, [Sample("tables", 1)], at + timedelta(hours=2 * h)) for h in range(12)]
        )
        if day % 9 == 0:
            trimmed(store, now + timedelta(hours=22))
    trimmed(store, BEGIN + timedelta(days=449, hours=22))
    assert points(store) == {60: 25, 600: 30 * 12 + 1, 7200: 400 * 12 + 1}


@pytest.mark.parametrize(
    ("age", "length", "step"),
    [
        (timedelta(hours=1), timedelta(hours=1), MINUTE),
        (timedelta(hours=25), timedelta(hours=25), MINUTE),
        (timedelta(hours=26), timedelta(hours=26), TEN),
        (timedelta(hours=49), timedelta(hours=1), TEN),
        (timedelta(days=10), timedelta(days=10), TEN),
        (timedelta(days=11), timedelta(days=11), TWO_HOURS),
        (timedelta(days=31), timedelta(hours=1), TWO_HOURS),
        (timedelta(days=999), timedelta(days=999), TWO_HOURS),
    ],
)
def test_the_finest_step_that_is_kept_and_not_too_long_fits(age: timedelta, length: timedelta, step: Step) -> None:
    assert fitting(SYSTEM_STEPS, NOW - age, NOW - age + length, NOW) is step


def test_a_tables_last_numbers_of_a_step_are_kept_and_old_ones_go(store: Store) -> None:
    table_id = store.write(lambda db: tables.add(db, runtime())).table_id
    hour, day = TABLE_STEPS

    def put(at: datetime, number: int) -> None:
        figures = TableFigures(number, 2, 3, 4, 5, 6)
        store.write(lambda db: series.add_figures(db, table_id, figures, at))

    def kept(step: Step) -> list[tuple[datetime, int]]:
        found = store.read(lambda db: series.list_figures(db, table_id, step, BEGIN - timedelta(days=9), END))
        return [(at, figures.health) for at, figures in found]

    put(BEGIN, 1)
    put(BEGIN + timedelta(minutes=59), 2)
    put(BEGIN + timedelta(minutes=60), 3)
    assert kept(hour) == [(BEGIN, 2), (BEGIN + timedelta(hours=1), 3)]
    assert kept(day) == [(BEGIN, 3)]
    put(BEGIN + timedelta(days=7), 4)
    assert [number for _, number in kept(hour)] == [2, 3, 4]
    put(BEGIN + timedelta(days=7, minutes=1), 5)
    assert [number for _, number in kept(hour)] == [3, 5]
    put(BEGIN + timedelta(days=91), 6)
    assert [number for _, number in kept(day)] == [5, 6]
    store.write(lambda db: tables.remove(db, table_id))
    assert kept(day) == []


def test_a_table_that_always_changes_has_no_more_than_its_times_hold(store: Store) -> None:
    table_id = store.write(lambda db: tables.add(db, runtime())).table_id
    for hour in range(100 * 24):
        at, figures = BEGIN + timedelta(hours=hour), TableFigures(hour, 0, 0, 0, 0, 0)
        store.write(lambda db, at=at, figures=figures: series.add_figures(db, table_id, figures, at))
    rows = store.read(lambda db: db.select("SELECT count(*) AS rows FROM table_series"))
    assert rows[0]["rows"] <= 7 * 24 + 1 + 90 + 1
