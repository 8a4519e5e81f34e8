"""How a table is read, told by others and kept."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.errors import InvalidArgument
from amoro_core.model.clustering import CLUSTER
from amoro_core.model.learning import Told
from amoro_core.model.scans import ColumnChoice, ColumnFilter, Operator, ScanUse
from amoro_core.model.tables import parse_table
from amoro_core.planning.clustering.facts import ClusterVerdict
from amoro_core.services.learning import MOST_SCANS, MOST_TOLD, LearningService
from amoro_core.store import table_scans
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.services.clustered import with_property
from tests.services.world import World

ID = ColumnFilter("id", Operator.EQUAL)
OTHER = ColumnFilter("other", Operator.EQUAL)


@pytest.fixture
def world(tmp_path: Path, catalog: SqlCatalog) -> Iterator[World]:
    home = tmp_path / "home"
    home.mkdir()
    made = World(home, catalog)
    table = writer.make_table(made.catalog, "db.t", SCHEMA)
    writer.append(table, [row(1)])
    yield made
    made.close()


def learning(world: World) -> LearningService:
    return LearningService(world.store, world.tables_of, lambda: world.now)


def kept(world: World) -> tuple[ScanUse, ...]:
    return world.store.read(lambda db: table_scans.list_of(db, world.table().table_id))


def today(world: World) -> date:
    return world.now.date()


def test_scans_are_kept_by_day_and_filters_and_counted(world: World) -> None:
    now, old = today(world), today(world) - timedelta(days=7)
    told = [Told(None, (ID,), 5, "q, line 1"), Told(now, (ID, OTHER), 2), Told(old, (), 3)]
    learned = learning(world).learn(world.table(), told)
    assert learned.kept == (ScanUse(now, (ID,), 5), ScanUse(now, (ID,), 2), ScanUse(old, (), 3))
    assert (learned.recent_scans, learned.old_scans) == (7, 0)
    assert kept(world) == (ScanUse(old, (), 3), ScanUse(now, (ID,), 7))
    again = learning(world).learn(world.table(), [Told(now - timedelta(days=31), (ID,), 4), Told(None, (ID,), 1)])
    assert (again.old_scans, again.recent_scans, kept(world)[1].scans) == (4, 8, 8)


def test_a_source_that_tells_again_takes_the_place_of_what_it_told(world: World) -> None:
    day, table = today(world), world.table()
    log = [Told(day, (ID,), 5, source="app-1"), Told(day - timedelta(days=1), (), 2, source="app-1")]
    learning(world).learn(table, [*log, Told(day, (ID,), 1, source="app-2"), Told(day, (ID,), 1)])
    before = kept(world)
    assert before == (ScanUse(day - timedelta(days=1), (), 2), ScanUse(day, (ID,), 7))
    assert learning(world).learn(table, log).recent_scans == 9
    assert kept(world) == before
    learning(world).learn(table, [Told(day, (ID,), 8, source="app-1"), Told(day, (ID,), 1)])  # it has grown
    assert kept(world) == (ScanUse(day, (ID,), 11),)
    learning(world).learn(table, [Told(day - timedelta(days=31), (ID,), 8, source="app-1")])
    assert kept(world) == (ScanUse(day, (ID,), 3),)


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        (Told(None, (OTHER,), 1, "q, line 7"), "q, line 7 names column other, which the table does not have"),
        (Told(date(2999, 1, 1), (ID,), 1), "scans of 2999-01-01 have not been yet"),
        (Told(None, (ID,), 1, source="x" * 257), "a source of 257 characters has more than 256"),
        (Told(None, (ID,), 0), "0 scans at once"),
        (Told(None, (ID,), MOST_SCANS + 1), "scans at once"),
    ],
)
def test_of_a_report_with_a_mistake_nothing_is_kept(world: World, told: Told, problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        learning(world).learn(world.table(), [Told(None, (ID,), 1), told])
    assert kept(world) == ()


def test_a_report_has_a_bound(world: World) -> None:
    with pytest.raises(InvalidArgument, match=r"50,001 sets of filters"):
        learning(world).learn(world.table(), [Told(None, (ID,), 1)] * (MOST_TOLD + 1))
    assert kept(world) == ()


def choice_of(world: World) -> ColumnChoice | None:
    return world.store.read(lambda db: table_scans.find_choice(db, world.table().table_id))


def test_auto_waits_for_scans_and_its_choice_is_kept_when_it_is_made(world: World) -> None:
    with_property(world, {"self-optimizing.cluster.columns": "auto"})
    identifier, table_id = world.table().identifier, world.table().table_id
    learning(world).learn(world.table(), [Told(None, (ID,), 60)])
    waiting = world.maintaining.begin(table_id, CLUSTER, trigger="request")
    assert waiting.reason == "nothing to do yet: auto chooses columns by 100 scans in 7 d, 60 are known"
    learning(world).learn(world.table(), [Told(None, (ID,), 40)])
    looked = world.maintaining.preview(identifier, CLUSTER)
    assert isinstance(looked.verdict, ClusterVerdict)
    assert looked.verdict.choice is not None
    assert choice_of(world) is None  # a look changes nothing
    world.maintaining.begin(table_id, CLUSTER, trigger="request")
    made = choice_of(world)
    assert made is not None
    assert (made.columns, made.scans, made.chosen_at) == (("id",), 100, world.now)


def test_a_choice_stays_for_a_week_whatever_is_learned(world: World) -> None:
    with_property(world, {"self-optimizing.cluster.columns": "auto"})
    learning(world).learn(world.table(), [Told(None, (ID,), 100)])
    world.maintaining.begin(world.table().table_id, CLUSTER, trigger="request")
    made, start = choice_of(world), world.now
    learning(world).learn(world.table(), [Told(None, (ColumnFilter("value", Operator.EQUAL),), 9000)])
    world.now = start + timedelta(days=6)
    world.maintaining.begin(world.table().table_id, CLUSTER, trigger="request")
    assert choice_of(world) == made
    world.now = start + timedelta(days=7)
    learning(world).learn(world.table(), [Told(None, (ColumnFilter("value", Operator.EQUAL),), 9000)])
    world.maintaining.begin(world.table().table_id, CLUSTER, trigger="request")
    other = choice_of(world)
    assert other is not None
    assert other.columns == ("value",)


def test_columns_are_suggested_with_reasons_also_without_reports(world: World) -> None:
    table = world.catalog.load_table("db.t")
    for number in range(3):
        writer.append(table, [row(number), row(number + 10)])
    found = learning(world).suggest(parse_table("cat.db.t"))
    assert {one.column: one.reason for one in found.columns}["id"] == "it lies deep"
    assert (found.auto.choice, found.files) == (None, 4)
    with_property(world, {"self-optimizing.filter": "value > 'a' and id >= 0"})
    again = learning(world).suggest(parse_table("cat.db.t"))
    named = {one.column for one in again.columns if "self-optimizing.filter names it" in one.reason}
    assert named == {"id", "value"}
    learning(world).learn(world.table(), [Told(None, (ID,), 100)])
    choice = learning(world).suggest(parse_table("cat.db.t")).auto.choice
    assert choice is not None
    assert choice.columns == ("id",)
    assert choice_of(world) is None
