"""Changing and removing catalogs: what is tried first, what is refused, what is forgotten."""

from dataclasses import replace

import pytest

from amoro_core.errors import CatalogNotFound, CatalogUnavailable, InvalidArgument, TableBusy
from amoro_core.model.processes import CatalogConfig, ProcessStatus
from amoro_core.model.secrets import masked
from amoro_core.services.catalogs import CatalogChange, CatalogService
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.services.world import World


def small_files(world: World) -> None:
    table = writer.make_table(world.catalog, "db.t", SCHEMA)
    for number in range(3):
        writer.append(table, [row(number)])


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
    catalogs = CatalogService(world.store, world.tables_of, lambda: [theirs], masked)
    for call in (lambda: catalogs.update("theirs", CatalogChange({"a": "b"})), lambda: catalogs.remove("theirs")):
        with pytest.raises(InvalidArgument, match="'theirs' stands in pyiceberg's own configuration"):
            call()
    assert [config.name for config in catalogs.list_catalogs()] == ["cat", "theirs"]


def test_a_removed_catalog_takes_what_is_known_of_its_tables_along(world: World) -> None:
    small_files(world)
    world.tables.explore("cat")
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
