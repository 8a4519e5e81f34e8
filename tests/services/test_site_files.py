"""Configuration files of catalogs: kept, used beneath the catalog's own properties, shown without secrets."""

import pytest

from amoro_core.errors import AmoroError, CatalogUnavailable, InvalidArgument
from amoro_core.model.processes import CatalogConfig
from amoro_core.services.catalogs import CatalogChange
from tests.engine.builders import make
from tests.services.world import World

SECRET = "s3.secret-access-key: hidden\ns3.region: eu\n"


def yaml_of(world: World) -> str:
    """What the catalog of the world needs to be opened."""
    return "".join(f"{key}: {value}\n" for key, value in {**world.catalog.properties, "type": "sql"}.items())


def test_a_catalog_is_opened_by_what_its_file_says_after_a_restart_too(world: World) -> None:
    make(world.catalog)
    world.catalogs.remove("cat")
    world.catalogs.add(CatalogConfig("cat", ()), {"site.yaml": yaml_of(world)})
    world.restart()
    assert [str(name) for name in world.discovery.explore("cat").added] == ["cat.db.t"]
    (kept,) = world.catalogs.get("cat").site_files
    assert (kept.name, kept.content) == ("site.yaml", yaml_of(world))


def test_own_properties_win_over_files_and_a_removed_file_says_nothing_any_more(world: World) -> None:
    world.catalogs.update("cat", CatalogChange(site_files={"s3.yaml": SECRET, "z.yaml": "s3.region: us\ntype: rest\n"}))
    known = dict(world.catalogs.get("cat").properties)
    assert (known["s3.region"], known["type"]) == ("us", "sql")
    world.catalogs.update("cat", CatalogChange(removed_site_files=frozenset({"z.yaml"})))
    assert dict(world.catalogs.get("cat").properties)["s3.region"] == "eu"
    with pytest.raises(InvalidArgument, match=r"has no file 'z\.yaml' to remove"):
        world.catalogs.update("cat", CatalogChange(removed_site_files=frozenset({"z.yaml"})))
    world.catalogs.update("cat", CatalogChange(removed_site_files=frozenset({"s3.yaml"})))
    assert "s3.region" not in dict(world.catalogs.get("cat").properties)


def test_secrets_of_files_are_masked(world: World) -> None:
    config = world.catalogs.update("cat", CatalogChange(site_files={"s3.yaml": SECRET}))
    assert world.catalogs.shown(config.properties)["s3.secret-access-key"] == "***"
    assert world.catalogs.shown(config.site_files[0].properties) == {
        "s3.secret-access-key": "***",
        "s3.region": "eu",
    }


@pytest.mark.parametrize(
    ("files", "error"),
    [
        ({"hive-site.xml": "<!DOCTYPE x><configuration/>"}, InvalidArgument),
        ({"site.yaml": "py-catalog-impl: os.path\n"}, CatalogUnavailable),
        ({"site.yaml": "table-filter: (a\n"}, InvalidArgument),
    ],
)
def test_a_file_that_is_refused_changes_nothing(world: World, files: dict[str, str], error: type[AmoroError]) -> None:
    before = world.catalogs.get("cat")
    with pytest.raises(error):
        world.catalogs.update("cat", CatalogChange(site_files=files))
    assert world.catalogs.get("cat") == before


def test_secrets_of_files_are_references_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.catalogs.remove("cat")
    monkeypatch.setenv("LAKE_URI", world.catalog.properties["uri"])
    content = yaml_of(world).replace(world.catalog.properties["uri"], "env:LAKE_URI")
    assert (
        dict(world.catalogs.add(CatalogConfig("cat", ()), {"site.yaml": content}).properties)["uri"] == "env:LAKE_URI"
    )
    make(world.catalog)
    assert len(world.discovery.explore("cat").added) == 1
