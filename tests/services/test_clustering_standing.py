"""What clustering costs its table, when a plan starts by itself, and what a receipt says of dropped groups."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.actions.clustering import Cluster
from amoro_core.model.clustering import CLUSTER
from amoro_core.model.processes import OptimizingProcess, ProcessStatus, TaskId
from amoro_core.planning.clustering.facts import ClusterFacts, ClusterRequest, ClusterVerdict
from amoro_core.planning.clustering.properties import ClusteringConfig
from amoro_core.store import tasks
from amoro_core.transactions.planned import EVALUATION
from tests.engine import oracle, writer
from tests.engine.builders import SCHEMA, row
from tests.services.clustered import (
    Grouping,
    cluster_with,
    clusterer,
    commit_due,
    plan_groups_with,
    unsorted,
    with_property,
    work_on,
)
from tests.services.world import World


@pytest.fixture(autouse=True)
def grouping(monkeypatch: pytest.MonkeyPatch) -> Grouping:
    made = Grouping()
    plan_groups_with(monkeypatch, made)
    return made


@pytest.fixture
def world(tmp_path: Path, catalog: SqlCatalog) -> Iterator[World]:
    home = tmp_path / "home"
    home.mkdir()
    made = World(home, catalog)
    _table(made, "db.t", 8)
    yield made
    made.close()


def _table(world: World, name: str, files: int) -> None:
    table = writer.make_table(world.catalog, name, SCHEMA)
    writer.append(table, [row(number) for number in range(files)], files)


def process_of(world: World, process_id: str) -> OptimizingProcess:
    return world.optimizing.find_process(process_id).process


def figure(world: World, process_id: str, name: str) -> int:
    receipt = process_of(world, process_id).receipt
    assert receipt is not None
    (found,) = (one for one in receipt.more if one.name == name)
    assert found.unit == "groups"
    return found.value


# Receipts


def counted(world: World, process_id: str) -> tuple[int, int]:
    return figure(world, process_id, "groups_committed"), figure(world, process_id, "groups_dropped")


def inputs_of(world: World, process_id: str, number: int) -> tuple[str, ...]:
    """The data files of one group."""
    payload = world.store.read(lambda db: tasks.read_input(db, TaskId(process_id, number)))
    return Cluster().data_files(payload)


@pytest.mark.parametrize("partial_progress", ["true", "false"])
def test_a_receipt_counts_groups_that_were_committed_and_dropped(world: World, partial_progress: str) -> None:
    """A group gives way after its work was done, and one before it was begun."""
    gives_way = {"self-optimizing.cluster.update-strategy": "give-way"}
    with_property(world, {**gives_way, "self-optimizing.cluster.partial-progress": partial_progress})
    process_id = cluster_with(world, Grouping())
    optimizer, table = clusterer(world), world.catalog.load_table("db.t")
    first, third = (inputs_of(world, process_id, number) for number in (1, 3))
    touched = next(one.record["id"] for one in oracle.live_rows_with_positions(table) if one.path == first[0])
    writer.delete_where(table, lambda item: item["id"] == touched)
    writer.remove_files(table, third[:1])
    world.starting.look_after(world.table().table_id)
    work_on(world, process_id, optimizer)
    assert process_of(world, process_id).status is ProcessStatus.PARTIAL
    assert counted(world, process_id) == (2, 2)


def test_a_receipt_counts_no_dropped_group_where_all_are_committed(world: World) -> None:
    process_id = cluster_with(world, Grouping())
    work_on(world, process_id, clusterer(world))
    assert process_of(world, process_id).status is ProcessStatus.SUCCESS
    assert counted(world, process_id) == (4, 0)


def test_groups_that_a_cancelled_process_has_not_committed_are_dropped(world: World) -> None:
    process_id = cluster_with(world, Grouping())
    work_on(world, process_id, clusterer(world), 1)
    world.optimizing.cancel(process_id, "by hand")
    assert process_of(world, process_id).status is ProcessStatus.PARTIAL
    assert counted(world, process_id) == (1, 3)


# Quota


def test_cores_are_charged_and_not_the_thread_that_waits_for_them(world: World) -> None:
    """Eight cores for a minute cost eight thread minutes: the other table has its turn so often before."""
    _table(world, "db.u", 40)
    for name in ("cat.db.t", "cat.db.u"):
        assert world.maintaining.begin(world.table(name).table_id, CLUSTER, trigger="request").process_id
    optimizer, heavy, turns = clusterer(world), world.table("cat.db.t").table_id, []
    while turns.count(heavy) < 2 and len(turns) < 20:
        (handed,) = world.poll(optimizer)
        process_id = handed.attempt.task_id.process_id
        turns.append(process_of(world, process_id).table_id)
        assert world.optimizing.ack(optimizer, [handed.attempt]) != [None]
        world.later(60)
        cores = 8 if turns[-1] == heavy else 1
        world.optimizers.touch(optimizer, 1, {handed.attempt: (1, 1)}, {handed.attempt: cores * 60_000})
        assert world.optimizing.complete(optimizer, handed.attempt, unsorted(handed))
        world.optimizers.touch(optimizer, 1, {})  # it runs no more, and is told of no more
        commit_due(world, process_id)
    first = turns.index(heavy)
    assert first in (0, 1)
    assert len(turns) - first - 2 in (7, 8)


# The window


def test_a_plan_that_was_made_as_the_window_closed_starts_when_it_opens_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The world begins at noon, UTC; planning takes until the window's end."""
    with_property(
        world,
        {
            "self-optimizing.enabled": "true",
            "self-optimizing.cluster.enabled": "true",
            "maintenance.window": "11:00-12:30",
        },
    )
    world.table()
    plain = Grouping()

    def slow(facts: ClusterFacts, config: ClusteringConfig, request: ClusterRequest) -> ClusterVerdict:
        world.later(timedelta(minutes=30).total_seconds())
        return plain(facts, config, request)

    plan_groups_with(monkeypatch, slow)
    begun = world.maintaining.begin(world.table().table_id, CLUSTER, trigger=EVALUATION)
    assert process_of(world, begun.process_id).status is ProcessStatus.REQUESTED
    assert world.starting.start_due() == []
    assert world.poll(clusterer(world)) == []
    world.later(timedelta(hours=22, minutes=30).total_seconds() - 1)
    assert (world.starting.start_due(), world.starting.close_expired()) == ([], [])
    world.restart()
    world.later(1)
    assert world.starting.start_due() == [begun.process_id]
    assert process_of(world, begun.process_id).status is ProcessStatus.RUNNING
    assert len(world.poll(clusterer(world))) == 1


def test_a_plan_within_the_window_starts_at_once_and_one_by_command_at_any_time(world: World) -> None:
    switched = {"self-optimizing.enabled": "true", "self-optimizing.cluster.enabled": "true"}
    with_property(world, {**switched, "maintenance.window": "12:00-12:30"})
    world.table()
    world.tables.refresh(world.table().table_id)
    begun = world.maintaining.begin(world.table().table_id, CLUSTER, trigger=EVALUATION)
    assert process_of(world, begun.process_id).status is ProcessStatus.RUNNING
    world.optimizing.cancel(begun.process_id, "by hand")
    world.later(timedelta(hours=1).total_seconds())
    late = world.maintaining.begin(world.table().table_id, CLUSTER, trigger=EVALUATION)
    assert late.process_id == "", "the window has closed"
    assert late.due_at is not None
    assert late.due_at > world.now
    assert (late.due_at.hour, late.due_at.minute) == (12, 0)
    assert process_of(world, cluster_with(world, Grouping())).status is ProcessStatus.RUNNING
