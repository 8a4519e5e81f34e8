"""Random stories of writes, maintenance and undo: after each step the table has the rows that it should have."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.engine.writer import make_catalog
from tests.model import whole_stories
from tests.model.stories import Story
from tests.services.world import World

CHUNKS, STORIES, STEPS = 2, 26, 8
#: `make prove` goes on with other seeds.
WHOLE_STORIES, WHOLE_STEPS = range(20), 15


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_row_is_lost_or_comes_back(tmp_path: Path, chunk: int) -> None:
    catalog = make_catalog(tmp_path)
    (tmp_path / "home").mkdir()
    world = World(tmp_path / "home", catalog)
    undone = refused = 0
    try:
        for number in range(STORIES):
            story = Story(world, f"t{number}", chunk * STORIES + number)
            story.run(STEPS)
            undone, refused = undone + story.undone, refused + story.refused
    finally:
        world.close()
        catalog.close()
    assert min(undone, refused) >= 2, f"{undone} undone, {refused} refused"


def test_neither_where_snapshots_and_data_expire_and_orphans_go(quick_path: Path) -> None:
    totals: Counter[str] = Counter()
    whole_stories.run(WHOLE_STORIES, WHOLE_STEPS, quick_path, totals)
    for name in ("expire-snapshots", "expire-data", "clean-orphan-files", "auto-create-tags"):
        assert totals[f"{name} × done"] >= 1, totals
    for name in ("expire-snapshots", "expire-data", "optimizing"):
        assert totals[f"{name} × taken back"] >= 1, totals
