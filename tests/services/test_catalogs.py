"""Catalogs: changed, removed, looked over, known by their files, and what is known of them without asking."""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from amoro_core.errors import (
    AccessDenied,
    AmoroError,
    CatalogMisconfigured,
    CatalogNotFound,
    CatalogUnavailable,
    Conflict,
    InvalidArgument,
    TableBusy,
    TableNotFound,
)
from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.model.processes import CatalogConfig, CatalogRules, ProcessStatus
from amoro_core.model.tables import OptimizingStatus, TableRuntime
from amoro_core.scheduling.policy import REFRESH_INTERVAL, RESTING_LEAST, RESTING_MOST, rests_until
from amoro_core.services.catalogs import CatalogChange, CatalogService
from amoro_core.services.discovery import ASK_AGAIN_S, COMPARE_INTERVAL_S, Compared, compare_interval_s
from amoro_core.store import catalogs, tables
from tests.dashboard import states
from tests.engine import writer
from tests.engine.builders import SCHEMA, make, row
from tests.services.rigs import Limits, raising
from tests.services.world import START, World, make_small_files
from tests.store.builders import open_store, services


def test_a_name_without_catalog_is_told_as_that_where_none_or_several_are_known(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert str(world.catalogs.resolve("db.t")) == "cat.db.t"
    for known, kind, said, way_out in (
        ((), CatalogNotFound, "no catalog is known, so that db.t names no table", "Add one with `amoro catalog add"),
        (("a", "b"), InvalidArgument, "db.t lacks its catalog, and there are several", "a.db.t, or another .* a, b."),
    ):
        monkeypatch.setattr(
            world.catalogs, "list_catalogs", lambda found=known: [CatalogConfig(one, ()) for one in found]
        )
        with pytest.raises(kind, match=said) as told:
            world.catalogs.resolve("db.t")
        assert re.search(way_out, told.value.hint)
        with pytest.raises(InvalidArgument, match=r"'db\.\.t' is not the name of a table"):
            world.catalogs.resolve("db..t")


def test_an_update_changes_what_it_names_and_nothing_else(world: World) -> None:
    before = world.catalogs.get("cat")
    key = "table.self-optimizing.enabled"
    after = world.catalogs.update("cat", CatalogChange({key: "true"}, allowed_locations=("s3://b/", "s3://a/")))
    assert dict(after.properties) == {**dict(before.properties), key: "true"}
    assert after.allowed_locations == ("s3://b/", "s3://a/")
    assert world.catalogs.get("cat") == after
    back = CatalogChange(removed_properties=frozenset({key}), removed_locations=frozenset({"s3://b/"}))
    kept = replace(before, properties=tuple(sorted(before.properties)), allowed_locations=("s3://a/",))
    assert world.catalogs.update("cat", back) == kept


def test_a_change_made_while_ours_is_tested_wins_and_is_shown_to_the_condition(world: World) -> None:
    asked: list[bool] = []

    def condition(now: CatalogConfig) -> None:
        asked.append("theirs" in dict(now.properties))
        if len(asked) == 1:
            world.catalogs.update("cat", CatalogChange({"theirs": "1"}))

    with pytest.raises(Conflict, match="changed meanwhile"):
        world.catalogs.update("cat", CatalogChange({"ours": "1"}), condition)
    assert asked == [False, True]
    kept = dict(world.catalogs.get("cat").properties)
    assert ("ours" in kept, kept["theirs"]) == (False, "1")


def test_an_update_that_does_not_work_or_is_wrong_is_not_kept(world: World) -> None:
    before = world.catalogs.get("cat")
    for prefix in ("", "/", "data/lake", "s3:///x", "/a/../b", "ftp://host/x"):
        words = f"^{re.escape(repr(prefix))} is not a location that can be allowed: "
        with pytest.raises(InvalidArgument, match=words):
            world.catalogs.update("cat", CatalogChange(allowed_locations=("/data", prefix)))
        with pytest.raises(InvalidArgument, match=words):
            world.catalogs.add(replace(before, name="other", allowed_locations=(prefix,)))
    wrong = frozenset({"wrong"})
    for change, error, words in (
        (CatalogChange({"type": "rest", "uri": "http://127.0.0.1:9"}), CatalogUnavailable, None),
        (CatalogChange({"strict-locations": "wrong"}), CatalogMisconfigured, "has the malformed value 'wrong'"),
        (CatalogChange({"table-filter": "(a"}), InvalidArgument, "table-filter is not a regular expression"),
        (CatalogChange(removed_properties=wrong), InvalidArgument, "'cat' has no property 'wrong' to remove"),
        (CatalogChange(removed_locations=wrong), InvalidArgument, "has no allowed location 'wrong' to remove"),
        (CatalogChange(removed_site_files=wrong), InvalidArgument, "has no file 'wrong' to remove"),
        (CatalogChange(site_files={"hive-site.xml": "<!DOCTYPE x><configuration/>"}), InvalidArgument, None),
        (CatalogChange(site_files={"site.yaml": "py-catalog-impl: os.path\n"}), CatalogUnavailable, None),
        (CatalogChange(site_files={"site.yaml": "table-filter: (a\n"}), InvalidArgument, None),
    ):
        with pytest.raises(error, match=words):
            world.catalogs.update("cat", change)
    assert world.catalogs.list_catalogs() == [before]


def test_settings_allow_locations_of_every_catalog_and_those_of_pyiceberg_are_not_changed(world: World) -> None:
    def rules(name: str) -> CatalogRules:
        return CatalogRules(name, (f"s3://{name}",), strict_locations=True)

    theirs = CatalogConfig("theirs", (("type", "rest"),), origin="pyiceberg")
    catalogs = CatalogService(world.store, world.formats, lambda: [theirs], lambda: NOON, rules)
    own = world.catalogs.get("cat")
    assert catalogs.get("theirs") == replace(theirs, allowed_locations=("s3://theirs",), strict_locations=True)
    assert catalogs.get("cat") == replace(own, allowed_locations=("s3://cat",), strict_locations=True)
    updated = catalogs.update("cat", CatalogChange(allowed_locations=("s3://more",)))
    assert updated.allowed_locations == ("s3://more", "s3://cat")
    assert world.catalogs.get("cat").allowed_locations == ("s3://more",)
    for call in (lambda: catalogs.update("theirs", CatalogChange({"a": "b"})), lambda: catalogs.remove("theirs")):
        with pytest.raises(InvalidArgument, match="'theirs' is defined in pyiceberg's own configuration"):
            call()
    assert catalogs.list_catalogs() == [catalogs.get("cat"), catalogs.get("theirs")]


def test_a_catalog_stays_while_a_process_is_active_and_takes_what_is_known_of_its_tables_along(world: World) -> None:
    make_small_files(world.catalog)
    process = world.begin_and_run()
    with pytest.raises(TableBusy, match=f"process {process} on table cat.db.t is committing; the catalog stays"):
        world.catalogs.remove("cat")
    assert [config.name for config in world.catalogs.list_catalogs()] == ["cat"]
    assert [str(runtime.identifier) for runtime in world.tables.list_tables()] == ["cat.db.t"]
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    assert world.catalogs.remove("cat") == 1
    assert (world.tables.list_tables(), world.optimizing.list_processes()) == ([], [])
    assert world.catalogs.list_catalogs() == []
    assert len(world.catalog.load_table("db.t").inspect.files()) == 1


def select(world: World, *names: str) -> tuple[list[str], list[str]]:
    """The tables that are meant, and the catalogs that could not be listed."""
    tables, unlisted = world.catalogs.select(names)
    return [str(table) for table in tables], list(unlisted)


def test_names_and_patterns_mean_tables_in_their_order_each_once_and_nothing_is_added(world: World) -> None:
    for name in ("db.b", "db.a", "other.c"):
        writer.make_table(world.catalog, name, SCHEMA)
    every = ["cat.db.a", "cat.db.b", "cat.other.c"]
    wanted = ("other.c", "db.*", "cat.db.a", "cat.no.such")
    assert select(world, *wanted) == (["cat.other.c", "cat.db.a", "cat.db.b", "cat.no.such"], [])
    assert select(world) == (every, [])
    for names in (["db.x*"], ["db.a", "lab.*"]):
        with pytest.raises(TableNotFound, match=f"no table matches '{names[-1][0]}"):
            world.catalogs.select(names)
    # A catalog that cannot be listed is told beside the tables of others.
    down = CatalogConfig("down", (("type", "rest"), ("uri", "http://127.0.0.1:9")))
    world.store.write(lambda db: catalogs.add(db, down))
    assert select(world) == (every, ["down"])
    assert select(world, "*.db.*") == (every[:2], ["down"])
    assert select(world, "cat.*") == (every, [])
    assert select(world, "down.*") == ([], ["down"])
    assert world.tables.list_tables() == []


# What is known of catalogs without asking them: their last answer, and how many of their tables are known


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_the_last_answer_of_a_catalog_counts_and_tables_up_to_a_bound(tmp_path: Path, limits: Limits) -> None:
    now, store = [NOON], open_store(tmp_path / "amoro.db")
    store.write(lambda db: states.fill(db, 3))
    service = services(store, lambda: now[0]).catalogs

    def look(after: AmoroError | None) -> tuple[object, ...]:
        service.note_answer("lake", after)
        now[0] += timedelta(minutes=1)
        (made,) = service.looks(["lake"])
        return made.heard_at, made.failure

    (unheard,) = service.looks(["lake"])
    assert (unheard.heard_at, unheard.failure) == (None, "")
    assert look(CatalogUnavailable("https://me:secret@host refused it")) == (NOON, "https://me:***@host refused it")
    assert look(AccessDenied("not for you")) == (NOON + timedelta(minutes=1), "")
    assert look(None) == (NOON + timedelta(minutes=2), "")
    for most, counted in ((3, (3, True)), (2, (2, False))):
        limits(counted_tables=most)
        looks = service.looks(["other", "lake"])
        shown = [(one.catalog, one.tables, one.tables_is_exact) for one in looks]
        assert shown == [("other", 0, True), ("lake", *counted)]
    store.close()


# Configuration files of catalogs: kept, used beneath the catalog's own properties, shown without secrets


SECRET = "s3.secret-access-key: hidden\ns3.region: eu\n"


def test_a_catalog_is_opened_by_what_its_file_says_after_a_restart_too_and_its_secrets_are_references(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(world.catalog)
    world.catalogs.remove("cat")
    monkeypatch.setenv("LAKE_URI", world.catalog.properties["uri"])
    said = {**world.catalog.properties, "type": "sql", "uri": "env:LAKE_URI"}
    content = "".join(f"{key}: {value}\n" for key, value in said.items())
    world.catalogs.add(CatalogConfig("cat", ()), {"site.yaml": content})
    world.restart()
    assert [str(name) for name in world.discovery.explore("cat").added] == ["cat.db.t"]
    kept = world.catalogs.get("cat")
    assert [(one.name, one.content) for one in kept.site_files] == [("site.yaml", content)]
    assert dict(kept.properties)["uri"] == "env:LAKE_URI"


def test_own_properties_win_over_files_and_a_removed_file_says_nothing_any_more(world: World) -> None:
    world.catalogs.update("cat", CatalogChange(site_files={"s3.yaml": SECRET, "z.yaml": "s3.region: us\ntype: rest\n"}))
    known = dict(world.catalogs.get("cat").properties)
    assert (known["s3.region"], known["type"]) == ("us", "sql")
    world.catalogs.update("cat", CatalogChange(removed_site_files=frozenset({"z.yaml"})))
    assert dict(world.catalogs.get("cat").properties)["s3.region"] == "eu"
    world.catalogs.update("cat", CatalogChange(removed_site_files=frozenset({"s3.yaml"})))
    assert "s3.region" not in dict(world.catalogs.get("cat").properties)


# Catalogs are looked over: what changed is refreshed at once, what did not is not loaded; clocks count as before


Names = Collection[tuple[str, ...]]


@pytest.fixture
def two(world: World) -> tuple[str, str]:
    """Two tables that were refreshed after their catalog was looked over for the first time."""
    for name in ("db.a", "db.b"):
        writer.append(writer.make_table(world.catalog, name, SCHEMA), [row(1)])
        world.table(f"cat.{name}")
    world.now = START - REFRESH_INTERVAL
    world.discovery.compare("cat")
    world.now = START
    for name in ("cat.db.a", "cat.db.b"):
        world.tables.refresh(world.table(name).table_id)
    return "cat.db.a", "cat.db.b"


def due(world: World) -> list[int]:
    return [table_id for table_id, _ in world.tables.list_due()]


def keep(world: World, runtime: TableRuntime) -> None:
    world.store.write(lambda db: tables.save(db, runtime))


def test_a_table_is_not_due_for_hours_unless_it_changed(world: World, two: tuple[str, str]) -> None:
    assert world.discovery.compare("cat") == Compared(0, 2)
    for name in two:
        assert START + RESTING_LEAST <= world.table(name).refresh_at <= START + RESTING_MOST
    writer.append(world.catalog.load_table("db.b"), [row(2)])
    world.later(RESTING_LEAST.total_seconds() - 1)
    changed = world.table("cat.db.b").table_id
    assert world.discovery.compare("cat") == Compared(1, 0)
    assert due(world) == [changed]
    # As if its refresh had failed: it is told of once, and tried again in its own time.
    keep(world, replace(world.table("cat.db.b"), refresh_at=world.now + REFRESH_INTERVAL))
    assert world.discovery.compare("cat") == Compared(0, 0)
    assert due(world) == []
    # A refresh that began before the commit knows an older state than the catalog.
    keep(world, replace(world.table("cat.db.b"), metadata_location="file:///an/older/one.json"))
    assert world.discovery.compare("cat") == Compared(1, 0)
    world.tables.refresh(changed)
    assert world.table("cat.db.b").snapshot_id == world.table_head("cat.db.b")
    assert world.discovery.compare("cat") == Compared(0, 1)


def test_a_table_rests_until_something_comes_due_and_a_refused_one_not_at_all(
    world: World, two: tuple[str, str]
) -> None:
    first, second = (world.table(name) for name in two)
    keep(world, replace(first, enabled=True, next_due_at=START + timedelta(hours=1)))
    keep(world, replace(second, enabled=True, retry_at=START + timedelta(minutes=20)))
    world.discovery.compare("cat")
    assert [world.table(name).refresh_at for name in two] == [START + timedelta(minutes=part) for part in (60, 20)]
    keep(world, replace(first, status=OptimizingStatus.REFUSED, refusal="duplicate"))
    keep(world, second)
    assert world.discovery.compare("cat") == Compared(0, 1)
    assert world.table(two[0]).refresh_at == START + REFRESH_INTERVAL


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


def test_after_a_restart_or_with_another_configuration_tables_are_refreshed_soon(
    world: World, two: tuple[str, str]
) -> None:
    world.discovery.compare("cat")
    world.restart()
    world.discovery.compare("cat")
    world.later(301)
    assert len(due(world)) == 2
    for name in two:
        world.refresh(name)
    world.discovery.compare("cat")
    assert due(world) == []
    world.catalogs.update("cat", CatalogChange({"table.self-optimizing.enabled": "true"}))
    world.discovery.compare("cat")
    world.later(301)
    assert len(due(world)) == 2
    assert world.discovery.compare("cat") == Compared(0, 0)  # they were refreshed before the change
    assert len(due(world)) == 2
    assert all(world.refresh(name).enabled for name in two)
    assert world.discovery.compare("cat") == Compared(0, 2)


def test_while_a_catalog_can_not_be_looked_over_tables_are_refreshed_in_their_usual_time(
    world: World, two: tuple[str, str]
) -> None:
    world.discovery.compare("cat")

    world.iceberg.catalog(locations=raising(CatalogUnavailable("a test's catalog is down")))
    for seconds, rest in ((0, True), (299, True), (1, False)):
        world.later(seconds)
        with pytest.raises(CatalogUnavailable):
            world.discovery.compare("cat")
        resting = [world.table(name).refresh_at > world.now + RESTING_LEAST / 2 for name in two]
        assert resting == [rest] * 2
    world.later(301)
    assert len(due(world)) == 2


def test_a_catalog_is_looked_over_each_half_minute_and_rarely_if_that_is_in_vain(world: World) -> None:
    def slow(format: IcebergFormat, catalog: CatalogConfig, names: Names) -> Mapping[tuple[str, ...], str]:
        world.seconds += 50
        return {}

    for locations, is_told, interval_s in (
        (lambda format, catalog, names: format.locations(catalog, names), True, COMPARE_INTERVAL_S),
        (slow, True, 50),
        (lambda format, catalog, names: None, False, ASK_AGAIN_S),
    ):
        assert world.discovery.is_due("cat")
        world.iceberg.catalog(locations=locations)
        assert (world.discovery.compare("cat") is not None) == is_told
        world.seconds += interval_s - 1
        assert not world.discovery.is_due("cat")
        world.seconds += 1
    assert world.discovery.is_due("cat")


@pytest.mark.parametrize(
    ("took_s", "cpu_s", "interval_s"),
    [(1, 1, 30), (15, 3, 30), (16, 3, 32), (5, 4, 40), (200, 1, 300), (200, 100, 300)],
)
def test_looking_takes_at_most_half_of_the_time_and_a_tenth_of_a_core(
    took_s: float, cpu_s: float, interval_s: float
) -> None:
    assert compare_interval_s(took_s, cpu_s) == interval_s


def test_what_was_decided_meanwhile_is_not_postponed(world: World, two: tuple[str, str]) -> None:
    listed = world.store.read(lambda db: tables.list_due_locations(db, "cat", START + timedelta(hours=1), START))
    assert [table.table_id for table in listed] == [world.table(name).table_id for name in two]
    keep(world, replace(world.table(two[0]), refresh_at=None))
    keep(world, replace(world.table(two[1]), metadata_location="file:///elsewhere"))
    world.store.write(lambda db: tables.postpone(db, [(table, START + timedelta(days=1)) for table in listed]))
    assert world.table(two[0]).refresh_at is None
    assert world.table(two[1]).refresh_at == START + REFRESH_INTERVAL
