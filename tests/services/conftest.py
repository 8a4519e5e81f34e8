from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.actions.action_api import Action
from amoro_core.model.tables import OptimizingType
from tests.engine import writer
from tests.engine.builders import row
from tests.engine.writer import make_catalog
from tests.services.rigs import limits as limits
from tests.services.world import World, make_two_partitions


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    made = make_catalog(tmp_path)
    yield made
    made.close()


@pytest.fixture
def new_world(tmp_path: Path, catalog: SqlCatalog) -> Iterator[Callable[..., World]]:
    """Makes a world over the catalog, with more actions."""
    with ExitStack() as end:

        def make(*actions: Action, kind: type[World] = World) -> World:
            home = tmp_path / "home"
            home.mkdir()
            made = kind(home, catalog, actions)
            end.callback(made.close)
            return made

        yield make


@pytest.fixture
def world(new_world: Callable[..., World]) -> World:
    return new_world()


@pytest.fixture
def process(world: World) -> str:
    """A process whose tasks are done: two partitions of small files with equality and position deletes."""
    table = make_two_partitions(world.catalog)
    writer.upsert(table, [row(1, "a", "new"), row(101, "b", "new")], ["id"])
    writer.delete_where(table, lambda item: item["id"] == 2)
    made = world.begin(OptimizingType.MINOR)
    world.run_all(made)
    return made
