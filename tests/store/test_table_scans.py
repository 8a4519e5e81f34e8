"""How tables were read, day by day."""

from __future__ import annotations

from datetime import UTC, date, datetime

from amoro_core.model.clustering import Strategy
from amoro_core.model.scans import ColumnChoice, ColumnFilter, Operator, ScanUse
from amoro_core.store import table_scans, tables
from amoro_core.store.connection import Connection
from amoro_core.store.database import Store
from tests.store.builders import runtime

DAY = date(2026, 3, 1)
FILTERS = (ColumnFilter("a", Operator.EQUAL), ColumnFilter("b.c", Operator.RANGE))


def added(store: Store, name: str = "t") -> int:
    return store.write(lambda db: tables.add(db, runtime(name))).table_id


def test_scans_of_a_day_with_the_same_filters_are_added_up(store: Store) -> None:
    table, other = added(store), added(store, "u")
    one = ScanUse(DAY, FILTERS, 3, 10, 20, 1000)
    whole = ScanUse(date(2026, 2, 28), (), 1)
    store.write(lambda db: table_scans.add(db, table, [one, whole, one]))
    store.write(lambda db: table_scans.add(db, table, [one]))
    store.write(lambda db: table_scans.add(db, other, [one]))
    assert store.read(lambda db: table_scans.list_of(db, table)) == (whole, ScanUse(DAY, FILTERS, 9, 30, 60, 3000))
    assert store.read(lambda db: table_scans.list_of(db, other)) == (one,)


def test_what_was_told_before_sources_were_kept_stays_and_is_added_to(store: Store) -> None:
    table = added(store)
    one = ScanUse(DAY, FILTERS, 3, 10, 20, 1000)

    def go_back(db: Connection) -> None:
        db.execute("DROP TABLE table_scan")
        for statement in table_scans.SCANS[:2]:
            db.execute(statement)
        db.execute(
            "INSERT INTO table_scan VALUES (:table_id, :day, :filters, 3, 10, 20, 1000)",
            {"table_id": table, "day": DAY.isoformat(), "filters": '[["a", "eq"], ["b.c", "range"]]'},
        )
        table_scans.keep_sources_of_scans(db)

    store.write(go_back)
    assert store.read(lambda db: table_scans.list_of(db, table)) == (one,)
    store.write(lambda db: table_scans.add(db, table, [one]))
    assert store.read(lambda db: table_scans.list_of(db, table)) == (ScanUse(DAY, FILTERS, 6, 20, 40, 2000),)


def test_scans_before_a_day_are_forgotten(store: Store) -> None:
    table = added(store)
    store.write(lambda db: table_scans.add(db, table, [ScanUse(DAY, (), 1), ScanUse(date(2026, 2, 28), (), 1)]))
    store.write(lambda db: table_scans.forget_before(db, DAY))
    assert [one.day for one in store.read(lambda db: table_scans.list_of(db, table))] == [DAY]


def test_the_choice_of_a_table_is_the_last_one(store: Store) -> None:
    table = added(store)
    assert store.read(lambda db: table_scans.find_choice(db, table)) is None
    at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    for columns in (("a",), ("a", "b.c")):
        choice = ColumnChoice(columns, Strategy.HILBERT, at, 250, 0.5, {"a": 0.25, "b.c": 0.25})
        store.write(lambda db, one=choice: table_scans.save_choice(db, table, one))
    assert store.read(lambda db: table_scans.find_choice(db, table)) == choice
    store.write(lambda db: table_scans.save_choice(db, table, None))
    assert store.read(lambda db: table_scans.find_choice(db, table)) is None
