"""Values over time: `series_point` for the system and for groups, `table_series` for tables."""

from collections.abc import Iterable
from dataclasses import astuple, fields
from datetime import datetime

from amoro_core.model.metrics import SYSTEM_STEPS, TABLE_STEPS, Point, Sample, Series, Step, TableFigures
from amoro_core.store.connection import Connection, Parameters, Row, RowMapping, from_ms, insert_into, to_ms

_KNOW = "INSERT INTO series (name, label) VALUES (:name, :label) ON CONFLICT (name, label) DO NOTHING"
_ADD = (
    "INSERT INTO series_point (series_id, step_s, at_ms, n, sum, min, max) "
    "SELECT series_id, :step_s, :at_ms, 1, :value, :value, :value FROM series WHERE name = :name AND label = :label "
    "ON CONFLICT (series_id, step_s, at_ms) DO UPDATE SET n = series_point.n + 1, "
    "sum = series_point.sum + excluded.sum, min = min(series_point.min, excluded.min), "
    "max = max(series_point.max, excluded.max)"
)
_FIGURES = tuple(field.name for field in fields(TableFigures))
_OF_LISTED = "FROM table_series WHERE table_series.table_id = listed.table_id"
_ADD_FIGURES = (
    f"{insert_into('table_series', ('table_id', 'step_s', 'at_ms', *_FIGURES))} "
    "ON CONFLICT (table_id, step_s, at_ms) DO UPDATE SET "
    f"{', '.join(f'{name} = excluded.{name}' for name in _FIGURES)}"
)


def add(db: Connection, samples: Iterable[Sample], now: datetime) -> None:
    """Add values to the present step of every length; so each coarse step is exact at any moment, without a roll-up."""
    wanted = tuple(samples)
    db.execute_many(_KNOW, ({"name": sample.name, "label": sample.label} for sample in wanted))
    db.execute_many(
        _ADD,
        (
            {
                "name": sample.name,
                "label": sample.label,
                "value": sample.value,
                "step_s": step.seconds,
                "at_ms": _begin(now, step),
            }
            for sample in wanted
            for step in SYSTEM_STEPS
        ),
    )


def add_figures(db: Connection, table_id: int, figures: TableFigures, now: datetime) -> None:
    """Keep a table's numbers as those of the present steps; what of its own is too old goes."""
    for step in TABLE_STEPS:
        key = {"table_id": table_id, "step_s": step.seconds}
        values = dict(zip(_FIGURES, astuple(figures), strict=True))
        db.execute(_ADD_FIGURES, {**key, "at_ms": _begin(now, step), **values})
        db.execute(
            "DELETE FROM table_series WHERE table_id = :table_id AND step_s = :step_s AND at_ms < :before_ms",
            {**key, "before_ms": to_ms(now - step.keep)},
        )


_POINTS = RowMapping(Point)


def list_series(
    db: Connection, names: Iterable[str], label: str | None, step: Step, since: datetime, until: datetime
) -> list[Series]:
    """The series of these names, of one label where it is given, with their points from `since` to before `until`.

    A step counts from its beginning.
    """
    result, period = [], {"since_ms": to_ms(since), "until_ms": to_ms(until)}
    for name in names:
        rows = db.select(
            "SELECT series_id, label FROM series WHERE name = :name AND (:label IS NULL OR label = :label) "
            "ORDER BY label",
            {"name": name, "label": label},
        )
        for row in rows:
            points = _POINTS.select(
                db,
                "SELECT * FROM series_point WHERE series_id = :series_id AND step_s = :step_s "
                "AND at_ms >= :since_ms AND at_ms < :until_ms ORDER BY at_ms",
                {"series_id": row["series_id"], "step_s": step.seconds, **period},
            )
            result.append(Series(name, row["label"], tuple(points)))
    return result


def list_figures(
    db: Connection, table_id: int, step: Step, since: datetime, until: datetime
) -> list[tuple[datetime, TableFigures]]:
    """A table's numbers by the beginning of their step, from `since` to before `until`."""
    rows = db.select(
        "SELECT * FROM table_series WHERE table_id = :table_id AND step_s = :step_s AND at_ms >= :since_ms "
        "AND at_ms < :until_ms ORDER BY at_ms",
        {"table_id": table_id, "step_s": step.seconds, "since_ms": to_ms(since), "until_ms": to_ms(until)},
    )
    return [(from_ms(row["at_ms"]), TableFigures(**{name: row[name] for name in _FIGURES})) for row in rows]


_WORSE = f"""
WITH changed AS MATERIALIZED (
    SELECT table_id, (SELECT max(at_ms) {_OF_LISTED} AND step_s = 3600 AND at_ms < :until_ms) AS last_ms
    FROM table_listing AS listed
    WHERE last_ms >= :since_ms AND (:table_ids IS NULL OR table_id IN (SELECT value FROM json_each(:table_ids)))
), bound AS MATERIALIZED (
    SELECT table_id, last_ms,
        (SELECT max(at_ms) {_OF_LISTED} AND step_s = 3600 AND at_ms < :since_ms) AS hour_ms,
        (SELECT max(at_ms) {_OF_LISTED} AND step_s = 86400 AND at_ms + 86400000 <= :since_ms) AS day_ms,
        (SELECT min(at_ms) {_OF_LISTED} AND step_s = 3600 AND at_ms >= :since_ms) AS first_ms
    FROM changed AS listed
)
SELECT bound.table_id, was.small_files AS small_files_before, now.small_files, was.at_ms AS from_ms,
    was.delete_files AS delete_files_before, now.delete_files, count(*) OVER () AS tables
FROM bound
JOIN table_series AS now ON now.table_id = bound.table_id AND now.step_s = 3600 AND now.at_ms = last_ms
JOIN table_series AS was ON was.table_id = bound.table_id
    AND was.step_s = iif(hour_ms IS NULL AND day_ms IS NOT NULL, 86400, 3600)
    AND was.at_ms = coalesce(hour_ms, day_ms, first_ms)
WHERE now.small_files + now.delete_files > was.small_files + was.delete_files
ORDER BY now.small_files + now.delete_files - was.small_files - was.delete_files DESC, bound.table_id LIMIT :most
"""


def list_worse(db: Connection, period: Parameters) -> list[Row] | None:
    """The tables with more small files and delete files at the end of a `report_period`, worst first; None: not known.

    Each row has the number of all `tables`.

    Figures are those of whole hours; before the oldest hour that is kept, of days; of a new table, its first ones.
    """
    if not db.value("SELECT EXISTS (SELECT 1 FROM table_series)"):
        return None
    return db.select(_WORSE, {**period, "since_ms": _begin(from_ms(period["since_ms"]), TABLE_STEPS[0])})


def list_ids(db: Connection) -> list[int]:
    """The numbers of all series."""
    return [row["series_id"] for row in db.select("SELECT series_id FROM series ORDER BY series_id")]


def trim(db: Connection, series_id: int, now: datetime, limit: int) -> int:
    """Delete at most `limit` expired points of a series, and the series with its last; returns their number."""
    removed = 0
    for step in SYSTEM_STEPS:
        removed += db.execute(
            "DELETE FROM series_point WHERE series_id = :series_id AND step_s = :step_s AND at_ms IN "
            "(SELECT at_ms FROM series_point WHERE series_id = :series_id AND step_s = :step_s "
            "AND at_ms < :before_ms ORDER BY at_ms LIMIT :limit)",
            {
                "series_id": series_id,
                "step_s": step.seconds,
                "before_ms": to_ms(now - step.keep),
                "limit": limit - removed,
            },
        )
    if not removed:
        db.execute(
            "DELETE FROM series WHERE series_id = :series_id "
            "AND NOT EXISTS (SELECT 1 FROM series_point WHERE series_id = :series_id)",
            {"series_id": series_id},
        )
    return removed


def _begin(now: datetime, step: Step) -> int:
    length_ms = step.seconds * 1000
    return to_ms(now) // length_ms * length_ms
