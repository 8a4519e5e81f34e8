"""`update-strategy=carry-over`, the default: rows that others delete meanwhile are hidden in their group's outputs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.actions.clustering import ClusterPlanState
from amoro_core.errors import CheckFailed, StorageFull
from amoro_core.files.deletes.row_matcher import look_up
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.model.clustering import Layout, LayoutKey, Strategy
from amoro_core.model.commits import CommitContent, Head, StagedCommit
from amoro_core.model.processes import CommitOutcome, ProcessStatus
from amoro_core.model.row_positions import PositionSet
from amoro_core.model.tables import OptimizingType
from amoro_core.model.task_payload import MAP_ENDING, PositionMap
from amoro_core.store import plans, processes
from tests.engine import oracle, writer, writer3
from tests.engine.builders import BY_PART, SCHEMA, row
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
    work_on,
)
from tests.services.rigs import Killed, reaching
from tests.services.test_undoing import files_of, undo
from tests.services.world import World
from tests.tiers import sample


@pytest.fixture(params=sample([3, 2], every=2), ids=lambda version: f"v{version}")
def lake(request: pytest.FixtureRequest, catalog: SqlCatalog) -> Lake:
    """Six files of ten rows."""
    made = Lake.created(catalog, request.param)
    for number in range(6):
        made.append([row(10 * number + at) for at in range(10)])
    return made


@pytest.fixture
def lake_world(new_world: Callable[..., World], lake: Lake, monkeypatch: pytest.MonkeyPatch) -> World:
    backwards = Layout(Strategy.LINEAR, (LayoutKey(1, descending=True),))
    plan_groups_with(monkeypatch, Grouping(3, backwards, only_unclustered=True))
    return new_world()


def figures(lake_world: World, process_id: str) -> list[int]:
    """Rows carried over, by commit."""
    done = lake_world.store.read(lambda db: processes.list_commits(db, process_id))
    landed = [one.receipt for one in done if one.outcome is CommitOutcome.DONE and one.groups]
    return [sum(figure.value for figure in one.figures if figure.name == "rows_carried_over") for one in landed]


def delete_files(lake_world: World) -> set[str]:
    root = Path(lake_world.catalog.load_table("db.t").location().removeprefix("file://")) / "data"
    return {path.name for path in root.rglob("*-carried.*")}


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[dict[int, list[int]]]:
    """The rows that are looked up, by the number of the input, look-up by look-up."""
    asked: list[dict[int, list[int]]] = []

    def watched(access: Any, work: Any, outputs: Any, keys: Any, wanted: Mapping[int, PositionSet], taken: Any) -> Any:
        asked.append({at: positions.ascending().tolist() for at, positions in wanted.items()})
        return look_up(access, work, outputs, keys, wanted, taken)

    monkeypatch.setattr("amoro_core.formats.tables.look_up", watched)
    return asked


def test_rows_that_others_delete_meanwhile_are_hidden_in_the_outputs(lake_world: World, lake: Lake) -> None:
    process_id = cluster_with(lake_world, Grouping())
    optimizer = clusterer(lake_world)
    lake.delete_positions(ids_are(3, 17))
    work_on(lake_world, process_id, optimizer, 1, ordered)
    assert summary_of(lake_world)["amoro.rebased-deletes"] == "2"
    lake.delete_positions(ids_are(35))
    work_on(lake_world, process_id, optimizer, work=ordered)
    assert lake_world.status(process_id) is ProcessStatus.SUCCESS
    assert figures(lake_world, process_id) == [2, 1]
    plan = lake_world.store.read(lambda db: plans.get_plan(db, process_id))
    assert "at most 100000 of a group" in str(plan.document["notes"])
    assert require_hidden(lake.table, process_id) == 3
    lake.require()
    # The next writer's delete of a row in an output finds what is hidden there already.
    lake.delete_positions(ids_are(4, 36))
    lake.require()


def test_a_row_that_was_deleted_before_the_plan_is_not_looked_for_however_that_is_told_now(
    lake_world: World, lake: Lake, looked_up: list[dict[int, list[int]]]
) -> None:
    lake.delete_positions(ids_are(1, 2))
    lake.upsert([row(5, value="newer")])
    process_id = cluster_with(lake_world, Grouping())
    lake.delete_positions(ids_are(3))
    lake.compact_position_deletes()
    work_on(lake_world, process_id, clusterer(lake_world), work=ordered)
    assert [rows for one in looked_up for rows in one.values()] == [[3]]
    assert lake_world.status(process_id) is ProcessStatus.SUCCESS
    assert require_hidden(lake.table, process_id) == 1
    lake.require()


def test_more_rows_than_are_looked_up_drop_the_group_with_that_reason(lake_world: World, lake: Lake) -> None:
    lake_world.set_properties({"self-optimizing.cluster.carry-over.max-rows": "2"})
    process_id = cluster_with(lake_world, Grouping())
    lake.delete_positions(ids_are(3, 4, 5, 35, 36))
    work_on(lake_world, process_id, clusterer(lake_world), work=ordered)
    process = lake_world.process(process_id)
    assert process.status is ProcessStatus.PARTIAL
    assert "they are 3, and at most 2 are looked up" in str(lake_world.optimizing.find_process(process_id))
    assert require_hidden(lake.table, process_id) == 2
    lake.require()


@pytest.mark.parametrize(
    ("place", "orphans"),
    [("commit.after_carried", 1), ("commit.after_stage", 1), ("commit.after_intent", 0), ("commit.after_send", 0)],
)
def test_rows_are_hidden_once_wherever_the_coordinator_is_killed(
    lake_world: World, lake: Lake, place: str, orphans: int
) -> None:
    """What nobody knew of yet is an orphan, as the manifests are that were staged with it."""
    process_id = cluster_with(lake_world, Grouping())
    lake.delete_positions(ids_are(3))
    left: list[set[str]] = []

    def die(name: str) -> None:
        if name == place and (found := delete_files(lake_world)):
            left.append(found)
            raise Killed

    with suppress(Killed), reaching(die):
        work_on(lake_world, process_id, clusterer(lake_world), 1, ordered)
    assert len(left) == 1
    lake_world.restart()
    commit_due(lake_world, process_id)
    assert figures(lake_world, process_id) == [1]
    assert require_hidden(lake.table, process_id) == 1
    lake.require()
    assert len(delete_files(lake_world)) == 1 + orphans


def test_undoing_brings_the_deletes_of_others_back_with_the_files_that_they_are_of(
    lake_world: World, lake: Lake
) -> None:
    process_id = cluster_with(lake_world, Grouping())
    lake.delete_positions(ids_are(3, 17, 35))
    before = files_of(lake.table.refresh())
    work_on(lake_world, process_id, clusterer(lake_world), work=ordered)
    assert figures(lake_world, process_id) == [2, 1]
    assert files_of(lake.table.refresh()) != before
    undo(lake_world, process_id)
    assert files_of(lake.table.refresh()) == before
    lake.require()


def test_of_equal_rows_that_are_deleted_one_after_the_other_each_is_another(lake_world: World, lake: Lake) -> None:
    """What was found for the first, before an attempt that lost, is not found again for the second."""
    lake.append([row(99), row(99), row(99)])
    lake.append([row(200)])
    path = next(one.path for one in lake.placed() if one.record["id"] == 99)

    def delete(position: int) -> None:
        if lake.version == 3:
            writer3.delete_positions(lake.table, {path: [position]})
        else:
            writer.row_delta(lake.table, position_deletes=[(path, [position])], per_file=True)

    process_id = cluster_with(lake_world, Grouping())
    waiting, send = [2], IcebergTable.send

    def late(table: IcebergTable, payload: bytes) -> None:
        if b"add-sort-order" not in payload and waiting:
            delete(waiting.pop())
        send(table, payload)

    optimizer = clusterer(lake_world)
    delete(0)
    work_on(lake_world, process_id, optimizer, 2, ordered)
    lake_world.iceberg.table(send=late)
    work_on(lake_world, process_id, optimizer, work=ordered)
    assert not waiting
    assert lake_world.status(process_id) is ProcessStatus.SUCCESS
    left = [one.record["id"] for one in oracle.live_rows_with_positions(lake.table.refresh())]
    assert (len(left), left.count(99)) == (62, 1)
    assert require_hidden(lake.table, process_id) == 2


def test_a_process_that_an_earlier_version_has_planned_gives_way(lake_world: World) -> None:
    process = lake_world.process(cluster_with(lake_world, Grouping()))
    said = json.loads(process.detail)
    assert (ClusterPlanState.of(process).carries, said.pop("carries")) == (100_000, 100_000)
    assert ClusterPlanState.of(replace(process, detail=json.dumps(said))).carries is None


# What is written so that rows can be followed: of each task, and gone when its attempt lost or its process ended


SEND, STAGE = IcebergTable.send, IcebergTable.stage


def files(world: World) -> set[str]:
    """All data and delete files, maps and manifests that lie below the table's location."""
    root = Path(world.catalog.load_table("db.t").location().removeprefix("file://"))
    return {str(path) for path in root.rglob("*") if path.suffix in (".parquet", ".puffin", ".avro")}


def named(world: World) -> set[str]:
    """Those that the table names."""
    table = world.catalog.load_table("db.t")
    snapshots = table.metadata.snapshots
    manifests = {one.manifest_path for snapshot in snapshots for one in snapshot.manifests(table.io)}
    live = {file.path for snapshot in snapshots for file in oracle.live_files(table, snapshot.snapshot_id)}
    every = {*live, *manifests, *(snapshot.manifest_list for snapshot in snapshots)}
    return {path.removeprefix("file://") for path in every}


def maps(world: World) -> list[str]:
    return sorted(path for path in files(world) if path.endswith(MAP_ENDING))


def test_deletes_that_an_attempt_carried_over_are_removed_when_it_lost(world: World, process: str) -> None:
    """Each attempt writes its own, for the head of its moment; a lost one leaves neither these nor its manifests."""
    writer.delete_where(world.catalog.load_table("db.t"), lambda item: item["id"] == 3)
    carried: list[set[str]] = []

    def late(self: IcebergTable, payload: bytes) -> None:
        carried.append({path for path in files(world) - named(world) if path.endswith(".parquet")})
        if len(carried) < 3:
            writer.append(world.catalog.load_table("db.t"), [row(60 + len(carried))])
        SEND(self, payload)

    world.iceberg.table(send=late)
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    assert world.outcomes(process) == [CommitOutcome.CONFLICT] * 2 + [CommitOutcome.DONE]
    outputs = set.intersection(*carried)
    own = [some - outputs for some in carried]
    assert [len(some) for some in own] == [1, 1, 1]
    assert all(Path(path).name.startswith(f"{process}-") for path in set.union(*own))
    assert own[0] | own[1] <= set.union(*carried) - files(world)
    assert files(world) == named(world)


def test_deletes_that_were_written_for_a_commit_that_could_not_be_staged_are_removed(
    world: World, process: str
) -> None:
    writer.delete_where(world.catalog.load_table("db.t"), lambda item: item["id"] == 3)
    before = files(world)
    written: list[set[str]] = []

    def full(self: IcebergTable, head: Head, content: CommitContent, summary: dict[str, str]) -> StagedCommit:
        written.append(files(world) - before)
        raise StorageFull("no space left")

    with world.iceberg.table(stage=full), pytest.raises(StorageFull):
        world.committing.commit(process)
    assert [len(some) for some in written] == [1]
    assert files(world) == before
    rows = world.rows()
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    oracle.assert_same_rows(rows, world.rows())


def cancelled(world: World, process: str) -> None:
    world.optimizing.cancel(process, "enough")


def failed(world: World, process: str) -> None:
    world.set_properties({"encryption.key-id": "k"})
    assert world.committing.commit(process) is ProcessStatus.FAILED


def given_way(world: World, process: str) -> None:
    """Another has rewritten every file."""
    writer.copy_on_write(world.catalog.load_table("db.t"), lambda item: True, lambda item: item)
    assert world.committing.commit(process) is ProcessStatus.FAILED


@pytest.mark.parametrize("end", [cancelled, failed, given_way])
def test_maps_are_removed_however_the_process_ends(
    world: World, process: str, end: Callable[[World, str], None]
) -> None:
    before = maps(world)
    assert len(before) == 2
    end(world, process)
    world.clearing.clean_up(process)
    assert maps(world) == []
    assert {path for path in files(world) - named(world) if path.endswith((".parquet", ".puffin"))} == set()
    assert not world.process(process).left_over


def test_a_state_from_before_the_commit_needs_no_map_again(world: World, process: str, tmp_path: Path) -> None:
    """The commit and its end are found in the table; the copied state still names the maps, which are gone."""
    writer.delete_where(world.catalog.load_table("db.t"), lambda item: item["id"] == 3)
    world.store.backup(tmp_path / "copy.db")
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    assert maps(world) == []
    writer.delete_where(world.catalog.load_table("db.t"), lambda item: item["id"] == 103)
    head, rows = world.table_head(), world.rows()

    world.store.close()
    for path in world.home.glob("amoro.db*"):
        path.unlink()
    shutil.copy(tmp_path / "copy.db", world.home / "amoro.db")
    world.restart()
    world.committing.commit(process)

    assert not world.process(process).is_active
    assert world.table_head() == head
    oracle.assert_same_rows(rows, world.rows())
    world.clearing.clean_up(process)
    assert named(world) <= files(world)


def of_an_input_that_is_not_there(found: PositionMap) -> PositionMap:
    return replace(found, left_out=(replace(found.left_out[0], input=7),))


def of_nothing(found: PositionMap) -> PositionMap:
    return PositionMap("", 0, ())


@pytest.mark.parametrize("faulty", [of_an_input_that_is_not_there, of_nothing])
@pytest.mark.parametrize("others", [writer.delete_where, writer.copy_on_write])
def test_a_map_that_does_not_add_up_ends_the_process_whatever_happened_meanwhile(
    world: World, faulty: Callable[[PositionMap], PositionMap], others: Callable[..., object]
) -> None:
    table = writer.make_table(world.catalog, "db.t", SCHEMA)
    for first in (0, 10):
        writer.append(table, [row(first + at) for at in range(10)])
    writer.delete_where(table, lambda item: item["id"] == 2)
    process, optimizer = world.begin(OptimizingType.FULL), world.optimizer()
    handed = world.take(optimizer)
    output = world.execute(handed)
    assert output.position_map is not None
    world.complete(optimizer, handed.attempt, replace(output, position_map=faulty(output.position_map)))
    others(table, lambda item: item["id"] == 15)
    rows, head = oracle.live_rows(table.refresh()), world.table_head()

    assert world.committing.commit(process) is ProcessStatus.FAILED

    failed = world.process(process)
    assert failed.failure_code == CheckFailed.code
    assert "fails the check left-out-rows" in failed.failure
    assert world.table_head() == head
    oracle.assert_same_rows(rows, oracle.live_rows(table.refresh()))


@pytest.mark.parametrize("version", [2, 3])
def test_what_one_task_left_out_never_counts_for_another(world: World, version: int) -> None:
    """Both tasks left as many rows out: by the map of the other, a row that was deleted meanwhile would be alive."""
    table = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART, format_version=version)
    delete = writer.delete_where if version == 2 else writer3.delete_rows
    for number in (0, 2):
        writer.append(table, [row(at + partition, name) for partition, name in ((0, "a"), (100, "b")) for at in
                              (number, number + 1)])  # fmt: skip
    delete(table, lambda item: item["id"] in (0, 103))
    made = world.begin_and_run(OptimizingType.FULL)
    assert len(maps(world)) == 2

    delete(table, lambda item: item["id"] in (3, 100))
    assert world.committing.commit(made) is ProcessStatus.SUCCESS

    assert {found[0] for found in oracle.live_rows(table.refresh())} == {1, 2, 101, 102}
    assert require_hidden(table, made) == 2
