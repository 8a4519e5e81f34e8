"""A table that is dropped and made anew under its name while a process runs: identity first, numbers afterwards."""

from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.table import Table

from amoro_core.errors import CommitConflict
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.model.processes import OptimizingProcess, ProcessStatus, TaskStatus
from amoro_core.model.tables import OptimizingStatus, OptimizingType
from amoro_core.services.optimizing import Failure
from amoro_core.store import commits, partitions
from tests.engine import oracle, writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.services.world import World


def made_anew(world: World, appends: int = 1) -> Table:
    """The table dropped and made again at its place, with fewer commits than the process was planned on."""
    world.catalog.drop_table("db.t")
    table = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART)
    for number in range(appends):
        writer.append(table, [row(number, "a", "anew")])
    return table


def ended(world: World, process: str) -> OptimizingProcess:
    return world.optimizing.find_process(process).process


def planned_on(world: World, process: str, table: Table) -> str:
    return f"cat.db.t is another table: UUID {table.metadata.table_uuid}, planned on {ended(world, process).table_uuid}"


def files_below(table: Table) -> set[str]:
    root = Path(table.location().removeprefix("file://"))
    return {str(path) for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("appends", [0, 1])
def test_a_table_made_anew_with_fewer_commits_ends_the_process_and_is_free_at_once(
    world: World, process: str, appends: int
) -> None:
    table = made_anew(world, appends)
    before, there = oracle.live_rows(table), files_below(table)

    assert world.committing.commit(process) is ProcessStatus.FAILED

    end = ended(world, process)
    assert (end.failure_code, end.failure) == (
        CommitConflict.code,
        planned_on(world, process, table)
        + " (It was dropped and created again, or renamed; what has the name now is optimized on its own.)",
    )
    runtime = world.table()
    assert (runtime.status, runtime.failures, runtime.retry_at) == (OptimizingStatus.IDLE, 0, None)
    oracle.assert_same_rows(before, oracle.live_rows(world.catalog.load_table("db.t")))
    # A reference check on another table proves nothing, so nothing is removed.
    assert files_below(table) == there
    if appends:
        for number in range(3):
            writer.append(table, [row(10 + number, "a")])
        assert world.optimize(OptimizingType.MINOR) is ProcessStatus.SUCCESS


def test_a_table_made_anew_between_loading_and_validating_ends_the_process(world: World, process: str) -> None:
    head = IcebergTable.head

    def late(self: IcebergTable, planned_snapshot_id: int, planned_sequence_number: int = 0) -> object:
        made_anew(world)
        return head(self, planned_snapshot_id, planned_sequence_number)

    world.iceberg.table(head=late)

    assert world.committing.commit(process) is ProcessStatus.FAILED
    assert ended(world, process).failure_code == CommitConflict.code


def test_a_table_made_anew_before_the_first_sending_is_a_conflict_and_nothing_of_it_is_removed(
    world: World, process: str
) -> None:
    send, there = IcebergTable.send, set[str]()

    def late(self: IcebergTable, payload: bytes) -> None:
        there.update(files_below(made_anew(world)))
        send(self, payload)

    world.iceberg.table(send=late)

    assert world.committing.commit(process) is ProcessStatus.FAILED
    assert ended(world, process).failure_code == CommitConflict.code
    assert files_below(world.catalog.load_table("db.t")) == there


@pytest.mark.parametrize("appends", [0, 1, 8], ids=["empty", "fewer commits", "more commits"])
def test_an_unknown_commit_on_a_table_made_anew_ends_and_none_of_its_files_is_removed(
    world: World, process: str, appends: int
) -> None:
    with world.iceberg.lose_answers(arrives=False):
        assert world.committing.commit(process) is ProcessStatus.COMMIT_UNKNOWN
    (attempt,) = world.store.read(lambda db: commits.list_for_process(db, process))
    table = made_anew(world, appends)
    there = files_below(table)

    assert world.committing.commit(process) is ProcessStatus.FAILED

    end = ended(world, process)
    assert end.failure_code == CommitConflict.code
    assert end.failure.startswith(planned_on(world, process, table))
    assert end.failure.endswith("; whether a commit to it was applied is not known, and none of its files is removed")
    assert world.clearing.clean_up(process) == ()
    assert files_below(table) == there
    assert {path.removeprefix("file://") for path in (*attempt.files, *attempt.metadata_files)} <= there
    assert world.table().status is OptimizingStatus.IDLE


def test_a_running_process_is_ended_once_its_table_is_seen_to_be_another(world: World) -> None:
    table = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART)
    for number in range(4):
        writer.append(table, [row(number, "a"), row(number + 100, "b")])
    process = world.begin(OptimizingType.MINOR)
    anew = made_anew(world)
    world.tables.refresh(world.table().table_id)

    view = world.optimizing.cancel_unwanted(world.table().table_id)

    assert view is not None
    assert (view.process.status, view.process.failure_code, view.process.failure) == (
        ProcessStatus.CLOSED,
        CommitConflict.code,
        planned_on(world, process, anew) + "; 0 of 2 tasks were done",
    )
    assert {task.status for task in view.tasks} == {TaskStatus.CANCELED}
    assert world.table().status is OptimizingStatus.IDLE


def test_what_was_known_of_the_dropped_table_is_forgotten_and_what_people_said_of_the_name_stays(
    world: World, process: str
) -> None:
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    writer.append(world.catalog.load_table("db.t"), [row(50, "a")])
    writer.append(world.catalog.load_table("db.t"), [row(51, "a")])
    failing = world.begin(OptimizingType.MINOR)
    while world.status(failing) is ProcessStatus.RUNNING:
        world.run_one(world.optimizer(), Failure("AMORO-1001", "broken"))
    world.tables.set_enabled(world.table().identifier, True)
    assert world.table().failures == 1
    table = made_anew(world)
    world.later(timedelta(minutes=5).total_seconds())

    runtime = world.tables.refresh(world.table().table_id)

    assert runtime is not None
    assert (runtime.uuid, runtime.enabled_override) == (str(table.metadata.table_uuid), True)
    assert (runtime.failures, runtime.retry_at, runtime.last_optimized_at) == (0, None, None)
    assert (runtime.summary.data_files, runtime.evaluated_at) == (1, world.now)
    assert world.store.read(lambda db: partitions.last_optimized(db, runtime.table_id)) == {}


def test_a_table_that_was_looked_at_again_keeps_what_is_known_of_it(world: World, process: str) -> None:
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    optimized_at = world.table().last_optimized_at

    runtime = world.tables.refresh(world.table().table_id)

    assert runtime is not None
    assert runtime.last_optimized_at == optimized_at is not None
    assert len(world.store.read(lambda db: partitions.last_optimized(db, runtime.table_id))) == 2
