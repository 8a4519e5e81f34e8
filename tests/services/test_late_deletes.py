"""What comes late: deletes by others of files that a commit had replaced, and results of earlier attempts."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from amoro_core.actions.registry import Actions
from amoro_core.model import metrics
from amoro_core.model.commits import PROCESS_ID
from amoro_core.model.files import TableScan
from amoro_core.model.history_events import Event, EventFilter, EventKind
from amoro_core.model.paths import normalise
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType
from amoro_core.model.task_payload import RewriteOutput, WorkResult
from amoro_core.services.task_lifecycle import ScheduledTask
from amoro_core.store import events, pending_deletions
from amoro_core.transactions.task_reports import condemn_late
from tests.engine import oracle, writer, writer3
from tests.engine.builders import ids, make, row
from tests.engine.commits import Change, commit
from tests.engine.files import write_position_deletes
from tests.services.rigs import Limits
from tests.services.world import World, make_small_files
from tests.tiers import sample
from tests.work import as_result

SPARK = {"engine-name": "spark", "engine-version": "4.1", "app-id": "local-17"}


def made(world: World, version: int) -> tuple[Table, list[oracle.LiveFile]]:
    """A table of three files with ten rows each, and these files."""
    table = make(world.catalog, version)
    for number in range(3):
        writer.append(table, [row(10 * number + at) for at in range(10)])
    return table, oracle.live_files(table)


def rewrite(world: World) -> str:
    """Rewrite all files into one; the process."""
    process_id = world.begin_and_run(OptimizingType.FULL, force=True)
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    refresh(world)
    return process_id


def refresh(world: World) -> list[Event]:
    """Look at the table as it is now; what was told so far, the oldest first."""
    table_id = world.table().table_id
    world.tables.refresh(table_id)
    wanted = EventFilter(kinds=(EventKind.LATE_DELETES,), table_id=table_id)
    return world.store.read(lambda db: events.list_newest(db, wanted, None, 100))[::-1]


def shown(world: World) -> str:
    """What the table itself says."""
    return world.services.overview.late_deletes(world.table().table_id)


def counted(world: World) -> float:
    return sum(one.value for one in world.meters.samples() if one.name == metrics.LATE_DELETES.name)


def delete_first_rows(
    table: Table, files: Sequence[oracle.LiveFile], kind: str, summary: dict[str, str] = SPARK
) -> Snapshot:
    """Delete the first row of each of the files without a look whether they are live."""

    def build(head: Table) -> Change:
        added: list[DataFile]
        if kind == "vectors":
            added = writer3.vectors(head, {file: [0] for file in files})
        elif kind == "a file for each":
            added = [write_position_deletes(head, file.spec_id, file.partition, [(file.path, 0)]) for file in files]
        else:
            pairs = sorted((file.path, 0) for file in files)
            added = [write_position_deletes(head, files[0].spec_id, (), pairs, kind == "one file")]
        return Change(tuple(added), summary=summary)

    made = commit(table, build)
    assert made is not None
    return made


KINDS = [(2, "a file for each"), (2, "one file"), (2, "one file without bounds"), (3, "vectors")]


@pytest.mark.parametrize(("version", "kind"), sample(KINDS, every=3))
def test_deletes_of_replaced_files_are_told_once_with_who_wrote_them(world: World, version: int, kind: str) -> None:
    table, before = made(world, version)
    process_id = rewrite(world)
    replaced_by = world.table_head()
    assert refresh(world) == []
    assert shown(world) == ""
    late = delete_first_rows(table, [*before[:2], *oracle.live_files(table.refresh())], kind)
    assert len(ids(table)) == 29, "only the output's first row is gone"
    [event] = refresh(world)
    assert (event.about.table, event.about.process_id) == ("cat.db.t", process_id)
    assert event.data == {
        "snapshot": str(late.snapshot_id),
        "application": "spark 4.1 (app-id local-17)",
        "files": 2,
        "replaced_by": str(replaced_by),
    }
    assert f"snapshot {late.snapshot_id} of spark 4.1 (app-id local-17) deletes rows of " in event.text
    assert counted(world) == 1
    assert shown(world) == event.text
    writer.append(table, [row(100)])
    assert refresh(world) == [event]
    again = delete_first_rows(table, before[2:], kind, {})
    assert [one.data["snapshot"] for one in refresh(world)] == [str(late.snapshot_id), str(again.snapshot_id)]
    assert refresh(world)[-1].data["application"] == "an unknown application"
    world.restart()
    writer.append(table, [row(101)])
    assert len(refresh(world)) == 2
    assert shown(world) == refresh(world)[-1].text


@pytest.mark.parametrize(("version", "kind"), KINDS)
def test_deletes_that_a_commit_has_carried_over_or_that_name_live_files_are_not_told(
    world: World, version: int, kind: str
) -> None:
    table, before = made(world, version)
    process_id = world.begin_and_run(OptimizingType.FULL, force=True)
    delete_first_rows(table, before[:2], kind)
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert refresh(world) == []
    delete_first_rows(table, [one for one in oracle.live_files(table.refresh()) if one.content == oracle.DATA], kind)
    assert refresh(world) == []
    assert counted(world) == 0


def removed_by_others(world: World, table: Table) -> list[oracle.LiveFile]:
    """They are their own matter."""
    writer.append(table, [row(50), row(51)])
    theirs = [one for one in oracle.live_files(table.refresh()) if one.record_count == 2]
    writer.copy_on_write(table, lambda item: item["id"] == 50)
    return theirs


def undone(world: World, table: Table) -> list[oracle.LiveFile]:
    begun = world.maintaining.undo(rewrite(world)).process_id
    assert world.committing.commit(begun) is ProcessStatus.SUCCESS
    return oracle.live_files(table.refresh())


def rolled_back(world: World, table: Table) -> list[oracle.LiveFile]:
    start = world.table_head()
    rewrite(world)
    writer.rollback(table, start)
    return oracle.live_files(table.refresh())


def removed_later(world: World, table: Table) -> list[oracle.LiveFile]:
    """The commit before had added the file."""
    rewrite(world)
    return oracle.live_files(table.refresh())


def carried_on(world: World, table: Table) -> list[oracle.LiveFile]:
    """The commit before had only carried its entry on."""
    file, gone, _ = oracle.live_files(table)
    assert commit(table, lambda head: Change(removed_paths=frozenset({gone.path}), summary={PROCESS_ID: "p"}))
    return [file]


@pytest.mark.parametrize("scene", [removed_by_others, undone, rolled_back, removed_later, carried_on])
def test_deletes_of_files_that_no_rewrite_of_ours_has_replaced_are_not_late(
    world: World, scene: Callable[[World, Table], list[oracle.LiveFile]]
) -> None:
    """Also where the files go after their deletes have come."""
    table, _ = made(world, 2)
    files = scene(world, table)
    delete_first_rows(table, files, "a file for each")
    assert refresh(world) == []
    live = {one.path for one in oracle.live_files(table.refresh())}
    if gone := live & {one.path for one in files}:
        assert commit(table, lambda head: Change(removed_paths=frozenset(gone)))
    assert refresh(world) == []


def test_of_replaced_files_a_compaction_of_deletes_and_those_of_long_ago_are_not_looked_at(
    world: World, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, before = made(world, 2)
    rewrite(world)
    with monkeypatch.context() as patch:
        patch.setattr("tests.engine.commits._summary", lambda *_: Summary(Operation.REPLACE))
        delete_first_rows(table, before, "a file for each")
        assert refresh(world) == []
    limits(looks_back=timedelta())
    delete_first_rows(table, before, "a file for each")
    assert refresh(world) == []


def test_a_delete_file_that_is_too_large_or_unreadable_is_not_looked_into(world: World, limits: Limits) -> None:
    """It may name live files as well as replaced ones; a large one costs too much to be read for a report."""
    table, before = made(world, 2)
    rewrite(world)
    with limits(delete_file_looked_into=10):
        delete_first_rows(table, before, "one file")
        assert refresh(world) == []
    delete_first_rows(table, before, "one file")
    [path] = {
        one.path
        for one in oracle.live_files(table.refresh())
        if one.content != oracle.DATA and one.data_sequence == table.metadata.last_sequence_number
    }
    Path(path.removeprefix("file://")).write_bytes(b"PAR1")
    assert refresh(world) == []
    delete_first_rows(table, before, "a file for each")
    assert len(refresh(world)) == 1


def test_deletes_of_before_the_file_was_replaced_are_not_late(world: World) -> None:
    """The delete names one file that the second commit replaced, and one that is still live."""
    table, before = made(world, 2)
    ours = {PROCESS_ID: "p"}
    first, second, third = before
    assert commit(table, lambda head: Change(removed_paths=frozenset({first.path}), summary=ours))
    delete_first_rows(table, [second, third], "one file without bounds")
    assert commit(table, lambda head: Change(removed_paths=frozenset({second.path}), summary=ours))
    assert refresh(world) == []
    delete_first_rows(table, [second, third], "one file without bounds")
    assert len(refresh(world)) == 1


def test_sequence_numbers_that_went_back_are_looked_at_again(world: World) -> None:
    """Polaris sets them back with a snapshot that it rolls back for a writer."""
    make_small_files(world.catalog)
    looked: list[int] = []
    world.iceberg.table(late_deletes=lambda self, scan, since: looked.append(since) or ())
    for number in (7, 8, 6, 9):
        scan = TableScan(100 + number, number, ())
        opened = world.tables_of.open(world.table().identifier)
        world.tables.late_deletes.search(world.table(), opened, scan)
    assert looked == [0, 7, 0, 6]


# The files of a result that came too late are condemned at once, and nobody else's


@pytest.fixture
def handed(world: World) -> ScheduledTask:
    """A task of a process, acknowledged by an optimizer, which leaves out a row."""
    table = make_small_files(world.catalog, 2)
    writer.append(table, [row(7), row(8)])
    writer.delete_where(table, lambda item: item["id"] == 7)
    world.begin(OptimizingType.FULL, force=True)
    (given,) = world.poll(world.optimizer())
    world.optimizing.ack(given_to(world, given), [given.attempt])
    return given


def given_to(world: World, given: ScheduledTask) -> str:
    task = world.tasks(given.attempt.task_id.process_id)[0]
    return task.thread.optimizer_id


def waiting(world: World) -> frozenset[str]:
    return world.store.read(lambda db: pending_deletions.paths(db, world.table().table_id))


def files_of(output: RewriteOutput) -> set[str]:
    """The outputs and their map."""
    return {output.position_map.path, *(one.path for one in output.data_files)}


def test_files_of_an_earlier_attempt_are_condemned_once_and_deleted(world: World, handed: ScheduledTask) -> None:
    slow, quick = given_to(world, handed), world.optimizer()
    late = world.execute(handed)
    world.optimizing.dismiss(slow, "not heard of", lost=True)
    world.run_one(quick)
    for _ in range(2):  # it is sent again where the answer was lost
        assert not world.complete(slow, handed.attempt, late)
        assert waiting(world) == files_of(late)
    assert world.committing.commit(handed.attempt.task_id.process_id) is ProcessStatus.SUCCESS
    live = {one.path for one in oracle.live_files(world.catalog.load_table("db.t"))}
    assert all(os.path.exists(normalise(path)) for path in files_of(late))
    world.later(timedelta(days=1).total_seconds())
    assert world.run("empty-trash") is ProcessStatus.SUCCESS
    assert not any(os.path.exists(normalise(path)) for path in files_of(late))
    assert all(os.path.exists(normalise(one)) for one in live)


def test_of_a_process_that_has_ended_files_of_the_attempts_name_are_condemned_and_nothing_else(
    world: World, handed: ScheduledTask
) -> None:
    live = [one.path for one in oracle.live_files(world.catalog.load_table("db.t"))]
    late, optimizer = world.execute(handed), given_to(world, handed)
    world.optimizing.cancel(handed.attempt.task_id.process_id, "enough")
    assert not world.optimizing.complete(optimizer, handed.attempt, WorkResult("rewrite", b"\xff\xff"))
    foreign = replace(late, data_files=tuple(replace(late.data_files[0], path=path) for path in live))
    assert not world.complete(optimizer, handed.attempt, foreign)
    assert waiting(world) == frozenset()
    assert not world.complete(optimizer, handed.attempt, late)
    assert waiting(world) == files_of(late)


def test_files_of_an_attempt_that_may_still_be_taken_are_not_condemned(world: World, handed: ScheduledTask) -> None:
    """A result that came under another registration comes again under its own, and is committed."""
    output, owner = world.execute(handed), given_to(world, handed)
    assert not world.complete(world.optimizer(), handed.attempt, output)
    assert waiting(world) == frozenset()
    assert world.complete(owner, handed.attempt, output)


def test_files_of_a_result_that_was_taken_are_not_condemned(world: World, handed: ScheduledTask) -> None:
    """Sent again with other words about the same files, when its process has ended."""
    output, owner = world.execute(handed), given_to(world, handed)
    assert world.complete(owner, handed.attempt, output)
    assert world.committing.commit(handed.attempt.task_id.process_id) is ProcessStatus.SUCCESS
    again = world.execute(handed)
    both = replace(output, data_files=(*output.data_files, *again.data_files))
    result, of = as_result(both), Actions().of
    assert world.store.write(lambda db: condemn_late(db, handed.attempt, result, of, world.now)) == 1
    assert waiting(world) >= {one.path for one in again.data_files}
    assert waiting(world).isdisjoint(one.path for one in output.data_files)


def test_rows_deleted_meanwhile_are_gone_from_outputs_that_have_the_files_in_another_order(world: World) -> None:
    """Files that store their columns alike are copied together: here under two names of one column, by turns."""
    table = make(world.catalog, 2)
    with table.transaction() as transaction:
        key = "self-optimizing.rewrite.use-parquet-row-group-merge.min-avg-row-group-size-bytes"
        transaction.set_properties({key: "0"})
    names = ["value", "words"]
    for number in range(6):
        writer.append(table, [{"id": 10 * number + at, "part": "a", names[0]: "v"} for at in range(10)])
        names.reverse()
        with table.refresh().update_schema() as change:
            change.rename_column(names[1], names[0])
    before = sorted(oracle.live_files(table.refresh()), key=lambda file: file.data_sequence)
    process_id = world.begin_and_run(OptimizingType.FULL, force=True)
    assert (world.files_copied, len(before)) == (6, 6)
    delete_first_rows(table, before[1:4], "one file")
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    data = [one for one in oracle.live_files(table.refresh()) if one.content == oracle.DATA]
    assert [one.record_count for one in data] == [30, 30]
    assert ids(table) == [number for number in range(60) if number not in (10, 20, 30)]
