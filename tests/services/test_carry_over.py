"""`update-strategy=carry-over`, the default: rows that others delete meanwhile are hidden in their group's outputs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.actions.clustering import ClusterPlanState
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.model.clustering import Layout, LayoutKey, Strategy
from amoro_core.model.commits import Group
from amoro_core.model.processes import CommitOutcome, OptimizingProcess, ProcessStatus
from amoro_core.model.row_positions import PositionSet
from amoro_core.store import plans, processes
from tests.engine import oracle, writer, writer3
from tests.engine.builders import row
from tests.model.invariants import require_hidden
from tests.model.lake import Lake, ids_are
from tests.services.clustered import (
    Grouping,
    cluster_with,
    clusterer,
    commit_due,
    ordered,
    plan_groups_with,
    summary_of,
    with_property,
    work_on,
)
from tests.services.kept_work import Writer, cluster_for, made_table, require_rows
from tests.services.rigs import Killed, raising, reaching
from tests.services.test_undoing import files_of, undo
from tests.services.world import World
from tests.tiers import sample

BACKWARDS = Layout(Strategy.LINEAR, (LayoutKey(1, descending=True),))


@pytest.fixture(params=sample([3, 2], every=2), ids=lambda version: f"v{version}")
def lake(request: pytest.FixtureRequest, catalog: SqlCatalog) -> Lake:
    """Six files of ten rows."""
    made = Lake.created(catalog, request.param)
    for number in range(6):
        made.append([row(10 * number + at) for at in range(10)])
    return made


@pytest.fixture
def world(tmp_path: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    plan_groups_with(monkeypatch, Grouping(3, BACKWARDS, only_unclustered=True))
    home = tmp_path / "home"
    home.mkdir()
    made = World(home, lake.catalog)
    yield made
    made.close()


def process_of(world: World, process_id: str) -> OptimizingProcess:
    return world.optimizing.find_process(process_id).process


def figures(world: World, process_id: str) -> list[int]:
    """Rows carried over, by commit."""
    done = world.store.read(lambda db: processes.list_commits(db, process_id))
    landed = [one.receipt for one in done if one.outcome is CommitOutcome.DONE and one.groups]
    return [sum(figure.value for figure in one.figures if figure.name == "rows_carried_over") for one in landed]


def delete_files(world: World) -> set[str]:
    root = Path(world.catalog.load_table("db.t").location().removeprefix("file://")) / "data"
    return {path.name for path in root.rglob("*-carried.*")}


def looked_up(world: World) -> list[dict[int, list[int]]]:
    """The rows that are looked up from now on, by the number of the input, look-up by look-up."""
    asked, look_up = [], IcebergTable.look_up

    def watched(table: IcebergTable, group: Group, wanted: Mapping[int, PositionSet], taken: Any) -> Any:
        asked.append({at: positions.ascending().tolist() for at, positions in wanted.items()})
        return look_up(table, group, wanted, taken)

    world.iceberg.table(look_up=watched)
    return asked


def test_rows_that_others_delete_meanwhile_are_hidden_in_the_outputs(world: World, lake: Lake) -> None:
    process_id = cluster_with(world, Grouping())
    optimizer = clusterer(world)
    lake.delete_positions(ids_are(3, 17))
    work_on(world, process_id, optimizer, 1, ordered)
    assert summary_of(world)["amoro.rebased-deletes"] == "2"
    lake.delete_positions(ids_are(35))
    work_on(world, process_id, optimizer, work=ordered)
    assert world.status(process_id) is ProcessStatus.SUCCESS
    assert figures(world, process_id) == [2, 1]
    plan = world.store.read(lambda db: plans.get_plan(db, process_id))
    assert "at most 100000 of a group" in str(plan.document["notes"])
    assert require_hidden(lake.table, process_id) == 3
    lake.require()
    # The next writer's delete of a row in an output finds what is hidden there already.
    lake.delete_positions(ids_are(4, 36))
    lake.require()


def test_a_row_that_was_deleted_before_the_plan_is_not_looked_for_however_that_is_told_now(
    world: World, lake: Lake
) -> None:
    lake.delete_positions(ids_are(1, 2))
    lake.upsert([row(5, value="newer")])
    process_id = cluster_with(world, Grouping())
    asked = looked_up(world)
    lake.delete_positions(ids_are(3))
    lake.compact_position_deletes()
    work_on(world, process_id, clusterer(world), work=ordered)
    assert [rows for one in asked for rows in one.values()] == [[3]]
    assert world.status(process_id) is ProcessStatus.SUCCESS
    assert require_hidden(lake.table, process_id) == 1
    lake.require()


def test_what_was_found_is_not_looked_up_again_by_the_next_attempt(world: World, lake: Lake) -> None:
    process_id = cluster_with(world, Grouping())
    asked, send = looked_up(world), IcebergTable.send
    waiting = [ids_are(25), ids_are(8)]

    def late(table: IcebergTable, payload: bytes) -> None:
        if b"add-sort-order" not in payload and waiting:
            lake.delete_positions(waiting.pop())
        send(table, payload)

    world.iceberg.table(send=late)
    lake.delete_positions(ids_are(3, 4))
    work_on(world, process_id, clusterer(world), 1, ordered)
    found = [sorted(at for rows in one.values() for at in rows) for one in asked if one]
    assert found == [[3, 4], [8], [5]]
    assert figures(world, process_id) == [4]
    assert len(delete_files(world)) == 1  # those of lost attempts are gone
    assert require_hidden(lake.table, process_id) == 4
    lake.require()


def test_more_rows_than_are_looked_up_drop_the_group_with_that_reason(world: World, lake: Lake) -> None:
    with_property(world, {"self-optimizing.cluster.carry-over.max-rows": "2"})
    process_id = cluster_with(world, Grouping())
    lake.delete_positions(ids_are(3, 4, 5, 35, 36))
    work_on(world, process_id, clusterer(world), work=ordered)
    process = process_of(world, process_id)
    assert process.status is ProcessStatus.PARTIAL
    assert "they are 3, and at most 2 are looked up" in str(world.optimizing.find_process(process_id))
    assert require_hidden(lake.table, process_id) == 2
    lake.require()


@pytest.mark.parametrize(
    ("place", "orphans"),
    [("commit.after_carried", 1), ("commit.after_stage", 1), ("commit.after_intent", 0), ("commit.after_send", 0)],
)
def test_rows_are_hidden_once_wherever_the_coordinator_is_killed(
    world: World, lake: Lake, place: str, orphans: int
) -> None:
    """What nobody knew of yet is an orphan, as the manifests are that were staged with it."""
    process_id = cluster_with(world, Grouping())
    lake.delete_positions(ids_are(3))
    left: list[set[str]] = []

    def die(name: str) -> None:
        if name == place and (found := delete_files(world)):
            left.append(found)
            raise Killed

    with suppress(Killed), reaching(die):
        work_on(world, process_id, clusterer(world), 1, ordered)
    assert len(left) == 1
    world.restart()
    commit_due(world, process_id)
    assert figures(world, process_id) == [1]
    assert require_hidden(lake.table, process_id) == 1
    lake.require()
    assert len(delete_files(world)) == 1 + orphans


def test_deletes_are_gone_again_where_the_commit_could_not_be_staged(world: World, lake: Lake) -> None:
    process_id = cluster_with(world, Grouping())
    lake.delete_positions(ids_are(3))
    work_on(world, process_id, optimizer := clusterer(world), 0, ordered)
    with world.iceberg.table(stage=raising(OSError("no"))), suppress(OSError):
        work_on(world, process_id, optimizer, 1, ordered)
    assert delete_files(world) == set()
    commit_due(world, process_id)
    assert Counter(oracle.live_rows(lake.table.refresh())).total() == 59
    lake.require()


@pytest.mark.parametrize("version", sample([3, 2], every=2))
def test_beside_a_writer_that_deletes_random_rows_after_each_task_all_work_is_kept(
    tmp_path: Path, version: int
) -> None:
    """Planned, clustered and committed as by the service; what was written before is clustered again each time."""
    world = made_table(tmp_path, files=4, version=version, width=20)
    other, tasks = Writer(world.catalog.load_table("db.t"), version, files=4), 0

    def after_task() -> None:
        nonlocal tasks
        tasks += 1
        for _ in range(3):
            other.delete()

    try:
        kept = cluster_for(world, lambda: tasks >= 4, after_task)
        require_rows(world, other)
    finally:
        world.close()
    assert (other.failed, kept.share, set(kept.outcomes)) == (0, 1.0, {ProcessStatus.SUCCESS})
    assert kept.carried == kept.hidden > 0


def test_undoing_brings_the_deletes_of_others_back_with_the_files_that_they_are_of(world: World, lake: Lake) -> None:
    process_id = cluster_with(world, Grouping())
    lake.delete_positions(ids_are(3, 17, 35))
    before = files_of(lake.table.refresh())
    work_on(world, process_id, clusterer(world), work=ordered)
    assert figures(world, process_id) == [2, 1]
    assert files_of(lake.table.refresh()) != before
    undo(world, process_id)
    assert files_of(lake.table.refresh()) == before
    lake.require()


def test_of_equal_rows_that_are_deleted_one_after_the_other_each_is_another(world: World, lake: Lake) -> None:
    """What was found for the first, before an attempt that lost, is not found again for the second."""
    lake.append([row(99), row(99), row(99)])
    lake.append([row(200)])
    path = next(one.path for one in lake.placed() if one.record["id"] == 99)

    def delete(position: int) -> None:
        if lake.version == 3:
            writer3.delete_positions(lake.table, {path: [position]})
        else:
            writer.row_delta(lake.table, position_deletes=[(path, [position])], per_file=True)

    process_id = cluster_with(world, Grouping())
    waiting, send = [2], IcebergTable.send

    def late(table: IcebergTable, payload: bytes) -> None:
        if b"add-sort-order" not in payload and waiting:
            delete(waiting.pop())
        send(table, payload)

    optimizer = clusterer(world)
    delete(0)
    work_on(world, process_id, optimizer, 2, ordered)
    world.iceberg.table(send=late)
    work_on(world, process_id, optimizer, work=ordered)
    assert not waiting
    assert world.status(process_id) is ProcessStatus.SUCCESS
    left = [one.record["id"] for one in oracle.live_rows_with_positions(lake.table.refresh())]
    assert (len(left), left.count(99)) == (62, 1)
    assert require_hidden(lake.table, process_id) == 2


def test_a_process_that_an_earlier_version_has_planned_gives_way(world: World) -> None:
    process = process_of(world, cluster_with(world, Grouping()))
    said = json.loads(process.detail)
    assert (ClusterPlanState.of(process).carries, said.pop("carries")) == (100_000, 100_000)
    assert ClusterPlanState.of(replace(process, detail=json.dumps(said))).carries is None
