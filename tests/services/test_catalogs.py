"""Changing and removing catalogs: what is tried first, what is refused, what is forgotten."""

import re
from dataclasses import replace

import pytest

from amoro_core.errors import (
    CatalogMisconfigured,
    CatalogNotFound,
    CatalogUnavailable,
    InvalidArgument,
    TableBusy,
    TableNotFound,
)
from amoro_core.model.processes import CatalogConfig, CatalogRules, ProcessStatus
from amoro_core.model.secrets import masked
from amoro_core.services.catalogs import CatalogChange, CatalogService
from amoro_core.store import catalogs
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.services.world import World


def small_files(world: World) -> None:
    table = writer.make_table(world.catalog, "db.t", SCHEMA)
    for number in range(3):
        writer.append(table, [row(number)])


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
    change = CatalogChange({"table.self-optimizing.enabled": "true"}, allowed_locations=("s3://b/", "s3://a/"))
    after = world.catalogs.update("cat", change)
    expected = {**dict(before.properties), "table.self-optimizing.enabled": "true"}
    assert (dict(after.properties), after.allowed_locations) == (expected, ("s3://b/", "s3://a/"))
    assert world.catalogs.get("cat") == after
    back = CatalogChange(
        removed_properties=frozenset({"table.self-optimizing.enabled"}), removed_locations=frozenset({"s3://b/"})
    )
    assert world.catalogs.update("cat", back) == replace(
        before, properties=tuple(sorted(before.properties)), allowed_locations=("s3://a/",)
    )


def test_an_update_whose_connection_does_not_work_is_not_kept(world: World) -> None:
    before = world.catalogs.get("cat")
    with pytest.raises(CatalogUnavailable):
        world.catalogs.update("cat", CatalogChange({"type": "rest", "uri": "http://127.0.0.1:9"}))
    assert world.catalogs.get("cat") == before


@pytest.mark.parametrize("prefix", ["", "/", "data/lake", "s3:///x", "/a/../b", "ftp://host/x"])
def test_a_prefix_that_is_no_location_is_not_allowed(world: World, prefix: str) -> None:
    before = world.catalogs.get("cat")
    with pytest.raises(InvalidArgument, match=f"^{re.escape(repr(prefix))} is not a location that can be allowed: "):
        world.catalogs.update("cat", CatalogChange(allowed_locations=("/data", prefix)))
    with pytest.raises(InvalidArgument, match=f"^{re.escape(repr(prefix))} is not a location that can be allowed: "):
        world.catalogs.add(replace(before, name="other", allowed_locations=(prefix,)))
    assert world.catalogs.list_catalogs() == [before]


def test_a_malformed_strictness_is_not_kept(world: World) -> None:
    with pytest.raises(CatalogMisconfigured, match="strict-locations has the malformed value 'maybe'"):
        world.catalogs.update("cat", CatalogChange({"strict-locations": "maybe"}))


def test_settings_allow_locations_for_every_kind_of_catalog(world: World) -> None:
    def rules(name: str) -> CatalogRules:
        return CatalogRules(name, (f"s3://{name}",), strict_locations=True)

    theirs = CatalogConfig("theirs", (("type", "rest"),), origin="pyiceberg")
    catalogs = CatalogService(world.store, world.formats, lambda: [theirs], masked, rules)
    own = world.catalogs.get("cat")
    assert catalogs.get("theirs") == replace(theirs, allowed_locations=("s3://theirs",), strict_locations=True)
    assert catalogs.get("cat") == replace(own, allowed_locations=("s3://cat",), strict_locations=True)
    assert catalogs.list_catalogs() == [catalogs.get("cat"), catalogs.get("theirs")]
    updated = catalogs.update("cat", CatalogChange(allowed_locations=("s3://more",)))
    assert updated.allowed_locations == ("s3://more", "s3://cat")
    assert world.catalogs.get("cat").allowed_locations == ("s3://more",)


def test_removing_what_a_catalog_lacks_is_named(world: World) -> None:
    with pytest.raises(InvalidArgument, match="catalog 'cat' has no property 'nope' to remove"):
        world.catalogs.update("cat", CatalogChange(removed_properties=frozenset({"nope"})))
    with pytest.raises(InvalidArgument, match="catalog 'cat' has no allowed location 's3://x' to remove"):
        world.catalogs.update("cat", CatalogChange(removed_locations=frozenset({"s3://x"})))


def test_an_unknown_catalog_can_neither_be_changed_nor_removed(world: World) -> None:
    with pytest.raises(CatalogNotFound):
        world.catalogs.update("nope", CatalogChange({"a": "b"}))
    with pytest.raises(CatalogNotFound):
        world.catalogs.remove("nope")


def test_a_catalog_of_pyiceberg_can_neither_be_changed_nor_removed(world: World) -> None:
    theirs = CatalogConfig("theirs", (("type", "rest"),), origin="pyiceberg")
    catalogs = CatalogService(world.store, world.formats, lambda: [theirs], masked)
    for call in (lambda: catalogs.update("theirs", CatalogChange({"a": "b"})), lambda: catalogs.remove("theirs")):
        with pytest.raises(InvalidArgument, match="'theirs' is defined in pyiceberg's own configuration"):
            call()
    assert [config.name for config in catalogs.list_catalogs()] == ["cat", "theirs"]


def test_a_removed_catalog_takes_what_is_known_of_its_tables_along(world: World) -> None:
    small_files(world)
    world.discovery.explore("cat")
    assert world.optimize() is ProcessStatus.SUCCESS
    assert world.catalogs.remove("cat") == 1
    assert world.tables.list_tables() == []
    assert world.optimizing.list_processes() == []
    assert world.catalogs.list_catalogs() == []
    assert len(world.catalog.load_table("db.t").inspect.files()) == 1


def test_a_catalog_stays_while_a_process_is_active_on_one_of_its_tables(world: World) -> None:
    small_files(world)
    process = world.begin()
    with pytest.raises(TableBusy, match=f"process {process} on table cat.db.t is running; the catalog stays"):
        world.catalogs.remove("cat")
    assert [config.name for config in world.catalogs.list_catalogs()] == ["cat"]
    assert [str(runtime.identifier) for runtime in world.tables.list_tables()] == ["cat.db.t"]


def select(world: World, *names: str) -> tuple[list[str], list[str]]:
    """The tables that are meant, and the catalogs that could not be listed."""
    found = world.catalogs.select(names)
    return [str(table) for table in found.tables], [name for name, _ in found.unlisted]


def test_names_and_patterns_mean_tables_in_their_order_each_once_and_nothing_is_added(world: World) -> None:
    for name in ("db.b", "db.a", "other.c"):
        writer.make_table(world.catalog, name, SCHEMA)
    assert select(world, "other.c", "db.*", "cat.db.a", "cat.no.such") == (
        ["cat.other.c", "cat.db.a", "cat.db.b", "cat.no.such"],
        [],
    )
    assert select(world) == (["cat.db.a", "cat.db.b", "cat.other.c"], [])
    assert world.tables.list_tables() == []


def test_a_pattern_that_matches_nothing_is_an_error_that_names_it(world: World) -> None:
    writer.make_table(world.catalog, "db.a", SCHEMA)
    for names in (["db.x*"], ["db.a", "lab.*"]):
        with pytest.raises(TableNotFound, match=f"no table matches '{names[-1][0]}"):
            world.catalogs.select(names)


def test_a_catalog_that_cannot_be_listed_is_told_beside_the_tables_of_others(world: World) -> None:
    writer.make_table(world.catalog, "db.a", SCHEMA)
    down = CatalogConfig("down", (("type", "rest"), ("uri", "http://127.0.0.1:9")))
    world.store.write(lambda db: catalogs.add(db, down))
    assert select(world) == (["cat.db.a"], ["down"])
    assert select(world, "*.db.*") == (["cat.db.a"], ["down"])
    assert select(world, "cat.*") == (["cat.db.a"], [])
    assert select(world, "down.*") == ([], ["down"])
