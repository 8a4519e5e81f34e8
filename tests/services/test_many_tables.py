"""Two hundred tables in one catalog: found, evaluated, listed, and a change in one planned within its interval."""

from datetime import timedelta
from pathlib import Path

import pytest

from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import FAULTLESS, OptimizingStatus, TableRuntime, parse_table
from tests.engine.lakes import MIB, append_unwritten, make_lake, name_of
from tests.engine.writer import make_catalog
from tests.services.world import World

TABLES = 200
CHANGED = name_of(77)


def look(world: World) -> list[TableRuntime]:
    """Look at every table that is due, as the refreshing loop does."""
    looked = [world.tables.refresh(table_id) for table_id, _ in world.tables.list_due()]
    return [runtime for runtime in looked if runtime is not None]


@pytest.fixture
def lake(world: World, tmp_path: Path) -> CatalogConfig:
    catalog = make_lake(tmp_path / "lake", TABLES)
    world.catalogs.remove("cat")
    properties = {**catalog.properties, "type": "sql", "table.self-optimizing.enabled": "true"}
    return world.catalogs.add(CatalogConfig("cat", tuple(properties.items())))


def test_many_tables_are_found_evaluated_and_listed_once_and_only_what_changed_is_planned(
    world: World, lake: CatalogConfig, tmp_path: Path
) -> None:
    assert len(world.discovery.explore("cat").added) == TABLES
    assert world.discovery.explore("cat").added == ()
    assert len(look(world)) == TABLES
    assert look(world) == []
    listed = world.tables.list_tables("cat")
    assert [runtime.identifier.name for runtime in listed] == [name_of(number) for number in range(TABLES)]
    assert {(runtime.status, runtime.health, runtime.summary.data_files) for runtime in listed} == {
        (OptimizingStatus.IDLE, FAULTLESS, 1)
    }
    assert len({runtime.uuid for runtime in listed}) == TABLES
    catalog = make_catalog(tmp_path / "lake")
    append_unwritten(catalog.load_table(f"db.{CHANGED}"), 12, MIB)
    before = world.tables.find(parse_table(f"cat.db.{CHANGED}"))
    assert before.refreshed_at is not None
    assert before.refresh_at == before.refreshed_at + timedelta(seconds=60)
    world.now = before.refresh_at
    look(world)
    assert [runtime.identifier.name for runtime in world.tables.list_pending()] == [CHANGED]
    catalog.close()
