"""Clustering cut short at every place between two effects: what was begun ends, and each group is committed once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.model.clustering import ClusterOptions
from amoro_core.model.processes import CommitOutcome, ProcessStatus
from amoro_core.store import commits, processes
from tests.engine import oracle, writer
from tests.engine.builders import SCHEMA, row
from tests.services.clustered import Grouping, cluster_with, clusterer, commit_due, plan_groups_with, work_on
from tests.services.rigs import Killed, reaching
from tests.services.world import World

PLACES = (
    "plan.before_store",
    "plan.after_store",
    "start.before_store",
    "start.after_store",
    "poll.after_store",
    "complete.before_store",
    "complete.after_store",
    "commit.before_intent",
    "commit.after_stage",
    "commit.after_intent",
    "commit.after_send",
    "commit.after_done",
)
SCHEDULED = ClusterOptions(schedule_only=True)


@contextmanager
def dying_at(place: str, turn: int) -> Iterator[list[str]]:
    """Die when that place is reached for that time, if ever."""
    reached: list[str] = []

    def reach(name: str) -> None:
        reached.append(name)
        if name == place and reached.count(name) == turn:
            raise Killed

    with suppress(Killed), reaching(reach):
        yield reached


@pytest.fixture
def world(tmp_path: Path, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    plan_groups_with(monkeypatch, Grouping(only_unclustered=True))
    home = tmp_path / "home"
    home.mkdir()
    made = World(home, catalog)
    table = writer.make_table(made.catalog, "db.t", SCHEMA)
    for number in range(6):
        writer.append(table, [row(number), row(number + 100)])
    yield made
    made.close()


def to_the_end(world: World) -> str:
    """Plan, start, work and commit, from wherever it stands; the id of the process."""
    found = world.store.read(processes.list_active)
    process_id = found[0].process_id if found else cluster_with(world, Grouping(), SCHEDULED)
    if not process_id:
        return world.store.read(lambda db: processes.list_processes(db, limit=1))[0].process_id
    if world.status(process_id) is ProcessStatus.REQUESTED:
        world.starting.start(process_id)
    optimizer = clusterer(world)
    for _ in range(3):
        commit_due(world, process_id)
        work_on(world, process_id, optimizer)
    return process_id


@pytest.mark.parametrize("turn", [1, 2])
@pytest.mark.parametrize("place", PLACES)
def test_whatever_place_it_dies_at_each_group_is_committed_once(world: World, place: str, turn: int) -> None:
    table = world.catalog.load_table("db.t")
    before = oracle.live_rows(table)
    with dying_at(place, turn) as reached:
        to_the_end(world)
    if reached.count(place) < turn:
        assert turn == 2  # what happens once only
        return
    world.restart()
    for optimizer, _ in world.optimizers.list_optimizers():
        world.optimizing.dismiss(optimizer.optimizer_id, "it was killed", lost=True)
        world.optimizers.forget(optimizer.optimizer_id)
    process_id = to_the_end(world)
    assert world.status(process_id) is ProcessStatus.SUCCESS
    attempts = world.store.read(lambda db: commits.list_for_process(db, process_id))
    done = [number for one in attempts if one.outcome is CommitOutcome.DONE for number in one.groups]
    assert sorted(done) == [1, 2, 3]
    metadata = world.catalog.load_table("db.t").metadata
    made = [one for one in metadata.snapshots if one.summary and one.summary.get("amoro.process-id") == process_id]
    assert len(made) == 3
    assert len([one for one in metadata.sort_orders if one.fields]) == 1
    oracle.assert_same_rows(before, oracle.live_rows(world.catalog.load_table("db.t")))
    if place == "complete.before_store":
        return  # nobody has heard of that result: its file is an orphan
    root = Path(table.location().removeprefix("file://")) / "data"
    live = {
        Path(file.path.removeprefix("file://")).name for file in oracle.live_files(world.catalog.load_table("db.t"))
    }
    assert {path.name for path in root.rglob(f"{process_id}-*.parquet")} == live
