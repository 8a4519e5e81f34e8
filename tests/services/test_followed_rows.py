"""What is written so that rows can be followed: of each task, and gone when its attempt lost or its process ended."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from amoro_core.errors import CheckFailed, StorageFull
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.model.commits import CommitContent, Head, StagedCommit
from amoro_core.model.processes import CommitOutcome, ProcessStatus
from amoro_core.model.tables import OptimizingType
from amoro_core.model.task_payload import MAP_ENDING, PositionMap
from amoro_core.store import pending_deletions, processes
from tests.engine import oracle, writer, writer3
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.model.invariants import require_hidden
from tests.services.rigs import dying_at
from tests.services.world import World

SEND, STAGE = IcebergTable.send, IcebergTable.stage


class Killed(BaseException):
    """The end of a process in the midst of its work."""


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


def outcomes(world: World, process: str) -> list[CommitOutcome]:
    return [attempt.outcome for attempt in world.store.read(lambda db: processes.list_commits(db, process))]


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
    assert outcomes(world, process) == [CommitOutcome.CONFLICT] * 2 + [CommitOutcome.DONE]
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
    rows = oracle.live_rows(world.catalog.load_table("db.t"))
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    oracle.assert_same_rows(rows, oracle.live_rows(world.catalog.load_table("db.t")))


def test_maps_are_removed_when_the_process_has_ended(world: World, process: str) -> None:
    assert maps(world)
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    assert maps(world) == []
    assert not world.optimizing.find_process(process).process.left_over


def test_maps_of_a_process_that_was_killed_after_its_commit_are_removed_after_the_restart(
    world: World, process: str
) -> None:
    with dying_at("commit.after_done"):
        world.committing.commit(process)
    left = maps(world)
    assert left
    assert world.status(process) is ProcessStatus.SUCCESS
    world.restart()
    assert world.heard.left_over == [process]
    removed = world.clearing.clean_up(process)
    assert sorted(path.removeprefix("file://") for path in removed) == left
    assert maps(world) == []
    world.restart()
    assert world.heard.left_over == []


def cancelled(world: World, process: str) -> None:
    world.optimizing.cancel(process, "enough")


def failed(world: World, process: str) -> None:
    with world.catalog.load_table("db.t").transaction() as change:
        change.set_properties({"encryption.key-id": "k"})
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
    assert not world.optimizing.find_process(process).process.left_over


def test_a_state_from_before_the_commit_needs_no_map_again(world: World, process: str, tmp_path: Path) -> None:
    """The commit and its end are found in the table; the copied state still names the maps, which are gone."""
    writer.delete_where(world.catalog.load_table("db.t"), lambda item: item["id"] == 3)
    world.store.backup(tmp_path / "copy.db")
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    assert maps(world) == []
    writer.delete_where(world.catalog.load_table("db.t"), lambda item: item["id"] == 103)
    head, rows = world.table_head(), oracle.live_rows(world.catalog.load_table("db.t"))

    world.store.close()
    for path in world.home.glob("amoro.db*"):
        path.unlink()
    shutil.copy(tmp_path / "copy.db", world.home / "amoro.db")
    world.restart()
    world.committing.commit(process)

    assert not world.optimizing.find_process(process).process.is_active
    assert world.table_head() == head
    oracle.assert_same_rows(rows, oracle.live_rows(world.catalog.load_table("db.t")))
    world.clearing.clean_up(process)
    assert named(world) <= files(world)


def test_the_map_of_a_late_result_is_condemned_with_its_outputs(world: World) -> None:
    table = writer.make_table(world.catalog, "db.t", SCHEMA)
    writer.append(table, [row(1), row(2)])
    writer.append(table, [row(3)])
    writer.delete_where(table, lambda item: item["id"] == 2)
    world.begin(OptimizingType.FULL)
    slow, quick = world.optimizer(), world.optimizer()
    (handed,) = world.poll(slow)
    world.optimizing.ack(slow, [handed.attempt])
    late = world.execute(handed)
    world.optimizing.dismiss(slow, "not heard of", lost=True)
    world.run_one(quick)
    assert not world.complete(slow, handed.attempt, late)
    assert late.position_map is not None
    waiting = world.store.read(lambda db: pending_deletions.paths(db, world.table().table_id))
    assert waiting == {late.position_map.path, *(one.path for one in late.data_files)}


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
    (handed,) = world.poll(optimizer)
    world.optimizing.ack(optimizer, [handed.attempt])
    output = world.execute(handed)
    assert output.position_map is not None
    world.complete(optimizer, handed.attempt, replace(output, position_map=faulty(output.position_map)))
    others(table, lambda item: item["id"] == 15)
    rows, head = oracle.live_rows(table.refresh()), world.table_head()

    assert world.committing.commit(process) is ProcessStatus.FAILED

    failed = world.optimizing.find_process(process).process
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
    made = world.begin(OptimizingType.FULL)
    world.run_all(made)
    assert len(maps(world)) == 2

    delete(table, lambda item: item["id"] in (3, 100))
    assert world.committing.commit(made) is ProcessStatus.SUCCESS

    assert {found[0] for found in oracle.live_rows(table.refresh())} == {1, 2, 101, 102}
    assert require_hidden(table, made) == 2
