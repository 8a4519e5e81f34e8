"""Work of maintenance on an optimizer: it or its coordinator is killed at each place between two effects.

AMORO_KILLS=3 kills each as often.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kills.nursery import Nursery
from tests.kills.site import required
from tests.kills.upkeep import UpkeepSite
from tests.model.lake import row

KILLS = int(os.environ.get("AMORO_KILLS", "1"))
#: Where who dies, and in which of the two actions.
POINTS = {
    "gather.before_store": ("coordinator", "clean-orphan-files"),
    "gather.after_store": ("coordinator", "clean-orphan-files"),
    "ack.after_guard": ("coordinator", "empty-trash"),
    "task.before_delete": ("optimizer", "empty-trash"),
    "task.after_delete": ("optimizer", "empty-trash"),
}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery(large_tables=True) as made:
        yield made


@pytest.fixture
def site(nursery: Nursery, quick_path: Path) -> Iterator[UpkeepSite]:
    with required(UpkeepSite(quick_path, nursery)) as made:
        made.start_coordinator()
        made.wait(lambda: made.is_listening, "the coordinator listens")
        made.start_optimizer()
        yield made


@pytest.mark.parametrize("point", POINTS)
def test_what_lists_and_deletes_for_a_large_table_may_die_at_any_place(site: UpkeepSite, point: str) -> None:
    who, action = POINTS[point]
    for number in range(KILLS):
        site.lake.append([row(number + 40, "a")])
        site.look()
        strays = site.plant(2)
        if action == "empty-trash":
            site.maintain_whole("clean-orphan-files")
            site.wait(lambda: site.hurry() is not None, "what is condemned is due")
        start = site.start_coordinator if who == "coordinator" else site.start_optimizer
        start(f"{point}=kill")
        child = site.coordinator if who == "coordinator" else site.optimizer
        assert child is not None
        site.wait(lambda: site.is_listening, "the coordinator listens")
        site.wait(
            lambda action=action, child=child: site.maintain(action) is not None or not child.is_alive,
            f"{action} is planned",
        )
        site.wait(lambda child=child: not child.is_alive, f"the {who} dies")
        site.look()
        start()
        site.wait(lambda: not site.is_busy, f"{action} ends")
        site.empty_trash()
        assert not any(path.exists() for path in strays)
        site.look()
