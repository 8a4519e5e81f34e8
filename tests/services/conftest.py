from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.model.tables import OptimizingType
from tests.engine import writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.writer import make_catalog
from tests.services.rigs import limits as limits
from tests.services.world import World


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    made = make_catalog(tmp_path)
    yield made
    made.close()


@pytest.fixture
def world(tmp_path: Path, catalog: SqlCatalog) -> Iterator[World]:
    home = tmp_path / "home"
    home.mkdir()
    made = World(home, catalog)
    yield made
    made.close()


@pytest.fixture
def process(world: World) -> str:
    """A process whose tasks are done: two partitions of small files with equality and position deletes."""
    table = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART)
    for number in range(4):
        writer.append(table, [row(number, "a"), row(number + 100, "b")])
    writer.upsert(table, [row(1, "a", "new"), row(101, "b", "new")], ["id"])
    writer.delete_where(table, lambda item: item["id"] == 2)
    made = world.begin(OptimizingType.MINOR)
    world.run_all(made)
    return made
