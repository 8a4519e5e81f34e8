"""Catalogs are looked over: what changed is refreshed at once, what did not is not loaded; clocks count as before."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import event
from sqlalchemy.engine import Engine

from amoro_core.errors import CatalogUnavailable
from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.iceberg.sqlite import SqliteCatalog
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import OptimizingStatus, TableRuntime
from amoro_core.scheduling.refreshing import REFRESH_INTERVAL, RESTING_LEAST, RESTING_MOST, rests_until
from amoro_core.services.catalogs import CatalogChange
from amoro_core.services.comparing_catalogs import ASK_AGAIN_S, COMPARE_INTERVAL_S, Compared, compare_interval_s
from amoro_core.store import metadata_locations, tables
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.services.world import START, World

Names = Collection[tuple[str, ...]]


@pytest.fixture
def two(world: World) -> tuple[str, str]:
    """Two tables that were refreshed after their catalog was looked over for the first time."""
    for name in ("db.a", "db.b"):
        writer.append(writer.make_table(world.catalog, name, SCHEMA), [row(1)])
        world.table(f"cat.{name}")
    world.now = START - REFRESH_INTERVAL
    world.comparing.compare("cat")
    world.now = START
    for name in ("cat.db.a", "cat.db.b"):
        world.tables.refresh(world.table(name).table_id)
    return "cat.db.a", "cat.db.b"


def due(world: World) -> list[int]:
    return [table_id for table_id, _ in world.tables.list_due()]


def keep(world: World, runtime: TableRuntime) -> None:
    world.store.write(lambda db: tables.save(db, runtime))


def test_a_table_that_did_not_change_is_not_due_for_hours(world: World, two: tuple[str, str]) -> None:
    assert world.comparing.compare("cat") == Compared(0, 2)
    for name in two:
        resting_at = world.table(name).refresh_at
        assert resting_at is not None
        assert START + RESTING_LEAST <= resting_at <= START + RESTING_MOST
    world.later(RESTING_LEAST.total_seconds() - 1)
    assert world.comparing.compare("cat") == Compared(0, 0)
    assert due(world) == []


def test_a_table_that_changed_is_due_at_once_and_told_of_once(world: World, two: tuple[str, str]) -> None:
    world.comparing.compare("cat")
    writer.append(world.catalog.load_table("db.b"), [row(2)])
    world.later(30)
    changed = world.table("cat.db.b").table_id
    assert world.comparing.compare("cat") == Compared(1, 0)
    assert due(world) == [changed]
    # As if its refresh had failed: it is tried again in its own time.
    keep(world, replace(world.table("cat.db.b"), refresh_at=world.now + REFRESH_INTERVAL))
    assert world.comparing.compare("cat") == Compared(0, 0)
    assert due(world) == []
    # A refresh that began before the commit knows an older state than the catalog.
    keep(world, replace(world.table("cat.db.b"), metadata_location="file:///an/older/one.json"))
    assert world.comparing.compare("cat") == Compared(1, 0)
    world.tables.refresh(changed)
    assert world.table("cat.db.b").snapshot_id == world.table_head("cat.db.b")
    assert world.comparing.compare("cat") == Compared(0, 1)


def test_a_table_rests_no_longer_than_until_something_comes_due(world: World, two: tuple[str, str]) -> None:
    first, second = (world.table(name) for name in two)
    keep(world, replace(first, enabled=True, next_due_at=START + timedelta(hours=1)))
    keep(world, replace(second, enabled=True, retry_at=START + timedelta(minutes=20)))
    world.comparing.compare("cat")
    assert world.table(two[0]).refresh_at == START + timedelta(hours=1)
    assert world.table(two[1]).refresh_at == START + timedelta(minutes=20)


@pytest.mark.parametrize(
    ("moment", "until"),
    [
        (timedelta(hours=-2), RESTING_LEAST - timedelta(hours=1)),  # before the refresh, which has seen it
        (timedelta(minutes=-1), None),
        (timedelta(0), None),
        (timedelta(milliseconds=1), timedelta(milliseconds=1)),
        (RESTING_LEAST, RESTING_LEAST - timedelta(hours=1)),
    ],
)
def test_what_came_due_since_a_refresh_ends_the_rest(moment: timedelta, until: timedelta | None) -> None:
    refreshed_at = START - timedelta(hours=1)
    assert rests_until(0, refreshed_at, (None, START + moment), START) == (None if until is None else START + until)


def test_a_refused_table_is_refreshed_in_its_usual_time(world: World, two: tuple[str, str]) -> None:
    keep(world, replace(world.table(two[0]), status=OptimizingStatus.REFUSED, refusal="duplicate"))
    assert world.comparing.compare("cat") == Compared(0, 1)
    assert world.table(two[0]).refresh_at == START + REFRESH_INTERVAL


def test_a_catalog_that_is_configured_anew_has_its_tables_refreshed_soon(world: World, two: tuple[str, str]) -> None:
    world.comparing.compare("cat")
    world.catalogs.update("cat", CatalogChange({"table.self-optimizing.enabled": "true"}))
    world.comparing.compare("cat")
    world.later(301)
    assert len(due(world)) == 2
    assert world.comparing.compare("cat") == Compared(0, 0)  # they were refreshed before the change
    assert len(due(world)) == 2
    for name in two:
        refreshed = world.tables.refresh(world.table(name).table_id)
        assert refreshed is not None
        assert refreshed.enabled
    assert world.comparing.compare("cat") == Compared(0, 2)


def test_after_a_restart_tables_are_refreshed_soon(world: World, two: tuple[str, str]) -> None:
    world.comparing.compare("cat")
    world.restart()
    world.comparing.compare("cat")
    world.later(301)
    assert len(due(world)) == 2


def test_while_a_catalog_can_not_be_looked_over_tables_are_refreshed_in_their_usual_time(
    world: World, two: tuple[str, str]
) -> None:
    world.comparing.compare("cat")

    def fail(format: IcebergFormat, catalog: CatalogConfig, names: Names) -> Mapping[tuple[str, ...], str]:
        raise CatalogUnavailable("a test's catalog is down")

    world.iceberg.catalog(locations=fail)
    for seconds in (0, 299):
        world.later(seconds)
        with pytest.raises(CatalogUnavailable):
            world.comparing.compare("cat")
        assert [world.table(name).refresh_at for name in two] > [world.now + RESTING_LEAST / 2] * 2
    world.later(1)
    with pytest.raises(CatalogUnavailable):
        world.comparing.compare("cat")
    world.later(301)
    assert len(due(world)) == 2


def test_a_catalog_is_looked_over_each_half_minute_and_rarely_if_that_is_in_vain(world: World) -> None:
    assert world.comparing.is_due("cat")
    world.comparing.compare("cat")
    world.seconds += COMPARE_INTERVAL_S - 1
    assert not world.comparing.is_due("cat")
    world.seconds += 1
    assert world.comparing.is_due("cat")

    def slow(format: IcebergFormat, catalog: CatalogConfig, names: Names) -> Mapping[tuple[str, ...], str]:
        world.seconds += 50
        return {}

    world.iceberg.catalog(locations=slow)
    world.comparing.compare("cat")
    world.seconds += 49
    assert not world.comparing.is_due("cat")
    world.seconds += 1
    assert world.comparing.is_due("cat")
    world.iceberg.catalog(locations=lambda format, catalog, names: None)
    assert world.comparing.compare("cat") is None
    world.seconds += ASK_AGAIN_S - 1
    assert not world.comparing.is_due("cat")
    world.seconds += 1
    assert world.comparing.is_due("cat")


@pytest.mark.parametrize(
    ("took_s", "cpu_s", "interval_s"),
    [(1, 1, 30), (15, 3, 30), (16, 3, 32), (5, 4, 40), (200, 1, 300), (200, 100, 300)],
)
def test_looking_takes_at_most_half_of_the_time_and_a_tenth_of_a_core(
    took_s: float, cpu_s: float, interval_s: float
) -> None:
    assert compare_interval_s(took_s, cpu_s) == interval_s


def test_what_was_decided_meanwhile_is_not_postponed(world: World, two: tuple[str, str]) -> None:
    listed = world.store.read(lambda db: metadata_locations.list_due(db, "cat", START + timedelta(hours=1), START))
    assert [table.table_id for table in listed] == [world.table(name).table_id for name in two]
    keep(world, replace(world.table(two[0]), refresh_at=None))
    keep(world, replace(world.table(two[1]), metadata_location="file:///elsewhere"))
    world.store.write(
        lambda db: metadata_locations.postpone(db, [(table, START + timedelta(days=1)) for table in listed])
    )
    assert world.table(two[0]).refresh_at is None
    assert world.table(two[1]).refresh_at == START + REFRESH_INTERVAL


@pytest.mark.parametrize("option", ["", "&cached_statements=100"], ids=["driver", "sqlalchemy"])
def test_a_sql_catalog_tells_all_locations_in_one_query(
    world: World, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    made = {name: writer.make_table(catalog, name, SCHEMA) for name in ("db.a", "db.b", "deep.er.c")}
    found = dict(world.catalogs.get("cat").properties)
    config = CatalogConfig("cat", tuple(sorted({**found, "uri": f"{found['uri']}{option}"}.items())))
    asked: list[str] = []
    select = SqliteCatalog._select

    def note(connection: object, cursor: object, statement: str, *rest: object) -> None:
        asked.append(statement)

    def selecting(self: SqliteCatalog, statement: str, *values: str) -> Any:
        asked.append(statement)
        return select(self, statement, *values)

    monkeypatch.setattr(SqliteCatalog, "_select", selecting)
    event.listen(Engine, "before_cursor_execute", note)
    try:
        said = IcebergFormat().locations(config, ())
        assert said == {tuple(name.split(".")): table.metadata_location for name, table in made.items()}
        asked.clear()
        IcebergFormat().locations(config, ())
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert len(asked) == 1
