"""Maintenance whose coordinator dies: at every place between two effects of condemning and deleting, and by chance."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kills import upkeep
from tests.kills.nursery import Nursery
from tests.kills.site import required
from tests.kills.upkeep import UPKEEP, UpkeepSite
from tests.model.lake import row


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as made:
        yield made


@pytest.fixture
def site(nursery: Nursery, quick_path: Path) -> Iterator[UpkeepSite]:
    with required(UpkeepSite(quick_path, nursery)) as made:
        yield made


@pytest.mark.parametrize("name", UPKEEP)
def test_what_died_while_it_condemned_or_deleted_goes_on_and_loses_nothing(site: UpkeepSite, name: str) -> None:
    site.keep("0", trash=name.endswith("_move"))
    for number in range(3):
        site.lake.overwrite(lambda item: item["id"] == 1, {"value": f"v{number}"})
        site.look()
    site.start_coordinator(f"{name}=kill")
    site.wait(lambda: site.is_listening, "the coordinator listens")
    child = site.coordinator
    assert child is not None
    site.wait(lambda: site.maintain("expire-snapshots") is not None or not child.is_alive, "the expiry is planned")
    site.wait(lambda: not child.is_alive or not site.is_busy, "the expiry ends")
    if child.is_alive:
        site.maintain("empty-trash")
    site.wait(lambda: not child.is_alive, "the coordinator dies")
    site.lake.append([row(30, "a")])
    site.look()


@pytest.mark.parametrize("name", ["trash.before_return", "trash.after_return"])
def test_what_died_while_it_brought_files_back_from_the_trash_goes_on_and_loses_none(
    site: UpkeepSite, name: str
) -> None:
    site.keep("1h", trash=True)
    with site.lake.table.refresh().transaction() as change:
        change.set_properties({"table-trash.keep.days": "1"})
    strays = site.plant(2)
    site.start_coordinator()
    site.wait(lambda: site.is_listening, "the coordinator listens")
    site.maintain_whole("clean-orphan-files")
    (condemning,) = site.condemning()
    site.empty_trash()
    assert not any(path.exists() for path in strays)
    for _ in range(3):
        site.start_coordinator(f"{name}=kill")
        child = site.coordinator
        assert child is not None
        site.wait(lambda: site.is_listening, "the coordinator listens")
        assert site.ask(lambda client: client.restore_trash(condemning)) is None
        site.wait(lambda child=child: not child.is_alive, "the coordinator dies")
        site.look()
    site.start_coordinator()
    site.wait(lambda: site.ask(lambda client: client.restore_trash(condemning)) is not None, "all are brought back")
    assert [path.read_bytes() for path in strays] == [b"nobody names it"] * 2


def test_rounds_of_random_kills_lose_nothing(tmp_path: Path) -> None:
    """`make prove` goes on with other seeds."""
    seed = random.randrange(2**32)
    print(f"replay with python -m tests.prove --replay upkeep:{seed}")
    totals: Counter[str] = Counter()
    upkeep.run(seed, 4, tmp_path, totals)
    print(dict(totals))
    assert totals["kills"] >= 4
