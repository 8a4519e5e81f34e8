"""Taking back a rewrite: the rows stay as they are, files of before come back, and what others did since stays.

Where that can't be right it is refused, by name, and nothing changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.table import Table

from amoro_core.errors import CannotUndo, ProcessNotFound
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.model.processes import ProcessStatus, Receipt
from amoro_core.model.tables import OptimizingType
from tests.engine import oracle, writer
from tests.engine.builders import SCHEMA, SPECS, row
from tests.engine.parquet_rows import local_path
from tests.services.world import World

MINOR, MAJOR, FULL = OptimizingType.MINOR, OptimizingType.MAJOR, OptimizingType.FULL
SEND = IcebergTable.send
SEGMENTS = {"self-optimizing.target-size": "4000", "self-optimizing.major.trigger.duplicate-ratio": "1.0"}


@pytest.fixture(params=["unpartitioned", "partitioned"])
def table(world: World, request: pytest.FixtureRequest) -> Table:
    return upserted(world, request.param)


def upserted(world: World, spec: str = "partitioned", properties: dict[str, str] | None = None) -> Table:
    """Two partitions of small files with equality and position deletes."""
    made = writer.make_table(world.catalog, "db.t", SCHEMA, SPECS[spec], properties=properties)
    for number in range(4):
        writer.append(made, [row(number, "a"), row(number + 100, "b")])
    writer.upsert(made, [row(1, "a", "new"), row(101, "b", "new")], ["id"])
    writer.delete_where(made, lambda item: item["id"] == 2)
    return made.refresh()


Files = Counter[tuple[str, int, int]]


def files_of(table: Table) -> Files:
    """Path, content and sequence number of each live file."""
    table.refresh()
    return Counter((one.path, one.content, one.data_sequence) for one in oracle.live_files(table))


def optimize(world: World, kind: OptimizingType = FULL) -> str:
    process_id = world.begin(kind)
    world.run_all(process_id)
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    return process_id


def undo(world: World, process_id: str) -> Receipt:
    begun = world.maintaining.undo(process_id)
    assert begun.process_id, begun.reason
    assert world.committing.commit(begun.process_id) is ProcessStatus.SUCCESS, failure(world, begun.process_id)
    receipt = world.optimizing.find_process(begun.process_id).process.receipt
    assert receipt is not None
    return receipt


def failure(world: World, process_id: str) -> str:
    return world.optimizing.find_process(process_id).process.failure


@pytest.mark.parametrize("kind", [MINOR, FULL])
def test_files_and_deletes_come_back_with_their_sequence_numbers(
    world: World, table: Table, kind: OptimizingType
) -> None:
    before, rows = files_of(table), oracle.live_rows(table)
    process_id = optimize(world, kind)
    assert files_of(table) != before
    receipt = undo(world, process_id)
    assert (files_of(table), oracle.live_rows(table)) == (before, rows)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert (snapshot.summary.operation.value, snapshot.summary["amoro.undoes"]) == ("replace", process_id)
    assert receipt.snapshot_id == snapshot.snapshot_id
    assert (receipt.unequal, receipt.rows_after) == ((), sum(rows.values()))
    assert receipt.data_files_after > receipt.data_files_before


def test_deletes_that_were_converted_come_back_and_ours_go(world: World) -> None:
    table = upserted(world, properties=SEGMENTS)
    before, rows = files_of(table), oracle.live_rows(table)
    process_id = optimize(world, MINOR)
    assert {one.content for one in oracle.live_files(table)} == {0, 1}, "equality deletes were converted"
    undo(world, process_id)
    assert (files_of(table), oracle.live_rows(table)) == (before, rows)


def test_a_dry_run_tells_what_would_come_back_and_changes_nothing(world: World, table: Table) -> None:
    process_id = optimize(world)
    after = files_of(table)
    receipt = world.optimizing.find_process(process_id).process.receipt
    assert receipt is not None
    plan = world.maintaining.preview_undo(process_id).plan
    assert plan is not None
    assert plan.reason == f"takes back process {process_id} (full)"
    assert plan.document == {
        "process_id": process_id,
        "type": "full",
        "operation": "replace",
        "data_files_removed": receipt.data_files_after,
        "delete_files_removed": receipt.delete_files_after,
        "data_files_restored": receipt.data_files_before,
        "delete_files_restored": receipt.delete_files_before,
        "bytes_restored": receipt.bytes_before,
    }
    assert files_of(table) == after


SINCE: dict[str, Callable[[Table], object]] = {
    "rows were appended": lambda table: writer.append(table, [row(50, "a"), row(51, "c")]),
    "other rows were upserted": lambda table: writer.upsert(table, [row(50, "a")], ["id"]),
    "rows of the outputs were upserted": lambda table: writer.upsert(table, [row(3, "a", "newest")], ["id"]),
    "rows of new files were deleted": lambda table: (
        writer.append(table, [row(60, "a"), row(61, "a")]),
        writer.delete_where(table, lambda item: item["id"] == 60, per_file=True),
    ),
}


@pytest.mark.parametrize("since", SINCE)
@pytest.mark.parametrize("kind", [MINOR, FULL])
def test_what_others_committed_since_stays(world: World, table: Table, since: str, kind: OptimizingType) -> None:
    process_id = optimize(world, kind)
    outputs = files_of(table)
    SINCE[since](table)
    rows, theirs = oracle.live_rows(table.refresh()), files_of(table) - outputs
    undo(world, process_id)
    assert oracle.live_rows(table.refresh()) == rows
    assert theirs <= files_of(table)


REFUSED: dict[str, tuple[Callable[[Table], object], str]] = {
    "a row of an output was deleted by position": (
        lambda table: writer.delete_where(table, lambda item: item["id"] == 3),
        "the position delete .* came since and may apply to",
    ),
    "an output was rewritten by somebody": (
        lambda table: writer.copy_on_write(table, lambda item: item["id"] == 3),
        "is no longer live",
    ),
    "main went back": (
        lambda table: writer.rollback(table, table.refresh().metadata.snapshots[-2].snapshot_id),
        "does not descend from its snapshot",
    ),
    "what it was based on has expired": (
        lambda table: writer.expire_snapshots(
            table, [one.snapshot_id for one in table.refresh().metadata.snapshots[:-1]]
        ),
        "has expired, so that nothing tells any more what it replaced",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_not_be_right_is_refused_by_name(world: World, table: Table, case: str) -> None:
    process_id = optimize(world)
    change, words = REFUSED[case]
    change(table)
    files, rows = files_of(table), oracle.live_rows(table)
    for attempt in (world.maintaining.preview_undo, world.maintaining.undo):
        with pytest.raises(CannotUndo, match=f"(?s){process_id} can't be undone: .*{words}"):
            attempt(process_id)
    assert (files_of(table), oracle.live_rows(table)) == (files, rows)


def test_what_is_undone_can_t_be_undone_again_nor_can_an_undo(world: World, table: Table) -> None:
    process_id = optimize(world)
    begun = world.maintaining.undo(process_id)
    world.committing.commit(begun.process_id)
    with pytest.raises(CannotUndo, match=f"is no longer live.*; process {begun.process_id} took it back$"):
        world.maintaining.undo(process_id)
    with pytest.raises(CannotUndo, match="undo-optimizing has no undo"):
        world.maintaining.undo(begun.process_id)


def test_a_process_that_has_committed_nothing_is_refused(world: World, table: Table) -> None:
    process_id = world.begin(FULL)
    with pytest.raises(CannotUndo, match="has not ended"):
        world.maintaining.undo(process_id)
    world.optimizing.cancel(process_id, "by hand")
    with pytest.raises(CannotUndo, match="has committed nothing"):
        world.maintaining.undo(process_id)
    with pytest.raises(ProcessNotFound):
        world.maintaining.undo("01890000-0000-7000-8000-000000000000")


def test_a_file_that_was_deleted_is_named(world: World, table: Table) -> None:
    inputs = [one.path for one in oracle.live_files(table) if one.content == 0]
    process_id = optimize(world)
    Path(local_path(inputs[0])).unlink()
    with pytest.raises(CannotUndo, match=r"does not exist|was deleted"):
        world.maintaining.undo(process_id)


def test_it_is_validated_again_on_the_head_that_it_is_committed_on(world: World, table: Table) -> None:
    process_id = optimize(world)
    begun = world.maintaining.undo(process_id)
    writer.delete_where(table, lambda item: item["id"] == 3)
    files = files_of(table)
    assert world.committing.commit(begun.process_id) is ProcessStatus.FAILED
    assert "came since and may apply to" in failure(world, begun.process_id)
    assert files_of(table) == files


def test_another_writer_that_is_faster_is_no_obstacle(world: World, table: Table) -> None:
    before = files_of(table)
    process_id = optimize(world)
    begun, tries = world.maintaining.undo(process_id), []

    def send(self: IcebergTable, payload: bytes) -> None:
        tries.append(payload)
        if len(tries) == 1:
            writer.append(table, [row(70, "a")])
        SEND(self, payload)

    world.iceberg.table(send=send)
    assert world.committing.commit(begun.process_id) is ProcessStatus.SUCCESS
    assert len(tries) == 2
    assert before <= files_of(table)


@pytest.mark.parametrize("arrives", [True, False])
def test_an_unknown_undo_is_traced_and_lands_once(world: World, table: Table, arrives: bool) -> None:
    before, rows = files_of(table), oracle.live_rows(table)
    process_id = optimize(world)
    begun = world.maintaining.undo(process_id)
    world.iceberg.lose_answers(arrives=arrives)
    assert world.committing.commit(begun.process_id) is ProcessStatus.COMMIT_UNKNOWN
    world.iceberg.restore()
    world.restart()
    assert world.committing.commit(begun.process_id) is ProcessStatus.SUCCESS
    assert (files_of(table), oracle.live_rows(table)) == (before, rows)
    summaries = [one.summary.additional_properties for one in table.metadata.snapshots if one.summary]
    assert [one["amoro.undoes"] for one in summaries if "amoro.undoes" in one] == [process_id]
