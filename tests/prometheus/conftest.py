from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.writer import make_catalog
from tests.prometheus.scraping import Prometheus
from tests.services.world import World


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Prometheus]:
    """A coordinator on an empty catalog, and who scrapes it."""
    catalog = make_catalog(tmp_path)
    (tmp_path / "home").mkdir()
    world = World(tmp_path / "home", catalog)
    yield Prometheus(world)
    world.close()
    catalog.close()
