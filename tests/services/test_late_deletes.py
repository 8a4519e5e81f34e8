"""What comes late: deletes by others of files that a commit had replaced, and results of earlier attempts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog.rest import DEFAULT_ENDPOINTS
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from amoro_core.actions import clustering
from amoro_core.actions.action_api import PlanningContext
from amoro_core.actions.registry import Actions
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.model import metrics
from amoro_core.model.commits import PROCESS_ID, ROLLBACK_MARKS, SnapshotAdded, rolled_back
from amoro_core.model.files import TableScan
from amoro_core.model.history_events import Event, EventFilter, EventKind
from amoro_core.model.optimizing_config import parse_config
from amoro_core.model.paths import normalise
from amoro_core.model.processes import CommitOutcome, ProcessStatus
from amoro_core.model.tables import OptimizingType, SnapshotFacts
from amoro_core.model.task_payload import RewriteOutput, WorkResult
from amoro_core.planning.clustering.planner import commits_since
from amoro_core.services.task_lifecycle import ScheduledTask
from amoro_core.store import events, groups, pending_deletions, processes, tables
from amoro_core.transactions.task_reports import condemn_late
from tests.engine import oracle, writer, writer3
from tests.engine.aging import aged
from tests.engine.builders import BY_PART, SCHEMA, ids, make, row
from tests.engine.commits import Change, commit
from tests.engine.files import write_position_deletes
from tests.engine.oracle import reached
from tests.engine.parquet_rows import local_path
from tests.faults.rest import RestServer
from tests.services.rigs import Limits
from tests.services.test_undoing import undo
from tests.services.world import START, World, make_small_files
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
    process_id = world.optimized(force=True)
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
    undo(world, rewrite(world))
    return oracle.live_files(table.refresh())


def set_back(world: World, table: Table) -> list[oracle.LiveFile]:
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


@pytest.mark.parametrize("scene", [removed_by_others, undone, set_back, removed_later, carried_on])
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
    taken = tuple(replace(late.data_files[0], path=path) for path in live)
    foreign = replace(late, data_files=taken, position_map=None)
    assert not world.complete(optimizer, handed.attempt, foreign)
    assert waiting(world) == frozenset()
    assert not world.complete(optimizer, handed.attempt, late)
    assert waiting(world) == files_of(late)


def test_files_of_a_result_that_was_or_may_still_be_taken_are_not_condemned(
    world: World, handed: ScheduledTask
) -> None:
    output, owner = world.execute(handed), given_to(world, handed)
    # A result that came under another registration comes again under its own.
    assert not world.complete(world.optimizer(), handed.attempt, output)
    assert waiting(world) == frozenset()
    assert world.complete(owner, handed.attempt, output)
    # Sent again with other words about the same files, when its process has ended.
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
    world.set_properties({"self-optimizing.rewrite.use-parquet-row-group-merge.min-avg-row-group-size-bytes": "0"})
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


# Snapshots that left main's history: nothing goes by them any more, and commits of ours among them are told


AT_ONCE = {"maintenance.expire-snapshots.trash-keep": "0"}


def told(world: World) -> list[Event]:
    """What was told of rolled back commits after a look at the table, the oldest first."""
    wanted = EventFilter(kinds=(EventKind.ROLLED_BACK,), table_id=world.refresh().table_id)
    return world.store.read(lambda db: events.list_newest(db, wanted, None, 100))[::-1]


def filled(world: World, version: int = 2) -> Table:
    """A table of four files in two partitions, with a delete."""
    table = make(world.catalog, version, BY_PART)
    world.set_properties(AT_ONCE)
    for number in range(2):
        writer.append(table, [row(number, "a"), row(10 + number, "a"), row(20 + number, "b")])
    writer.upsert(table, [row(1, "a", "new")], ["id"])
    return table


@pytest.mark.parametrize("version", [2, 3])
def test_nothing_goes_by_snapshots_that_a_rollback_abandoned(world: World, version: int) -> None:
    """Of other engines one planned, one validated, one expired and one read on from the newest snapshot there was."""
    world.now = datetime.now(UTC) + timedelta(seconds=1)
    table = filled(world, version)
    start, before = world.table_head(), oracle.live_rows(table)
    process_id = world.optimized(force=True)
    ours = world.table_head()
    writer.append(table, [row(90, "a")])
    writer.remove_files(table, [file.path for file in oracle.live_files(table) if file.partition == ("b",)])
    stale = world.begin_and_run(OptimizingType.FULL, force=True)
    abandoned = world.table_head()
    kept = world.refresh()
    assert told(world) == []
    writer.rollback(table, start)
    oracle.assert_same_rows(before, oracle.live_rows(table))

    # Validation: what was planned on an abandoned snapshot conflicts.
    assert world.committing.commit(stale) is ProcessStatus.FAILED
    assert "does not descend" in world.process(stale).failure
    oracle.assert_same_rows(before, oracle.live_rows(table))
    # The next look: told with the process, once, also after a restart; the last data is that of the history.
    runtime = world.refresh()
    [event] = told(world)
    assert (event.about.process_id, event.data) == (process_id, {"snapshot": str(ours), "head": str(start)})
    assert runtime.status_reason.startswith(f"snapshot {ours} of process {process_id} was rolled back")
    world.restart()
    writer.append(table, [row(50, "b")])
    assert told(world) == [event]
    commit = world.store.read(lambda db: tables.find_data_commit(db, runtime.table_id, runtime.uuid))
    assert (commit.snapshot_id, kept.snapshot_id) == (world.table_head(), abandoned)
    # Planning: the files of the present head, and no others.
    rows, live = oracle.live_rows(table), {file.path for file in oracle.live_files(table) if not file.content}
    again = world.begin_and_run(OptimizingType.FULL, force=True)
    assert sum(task.input_files for task in world.tasks(again)) == len(live)
    assert world.committing.commit(again) is ProcessStatus.SUCCESS
    oracle.assert_same_rows(rows, oracle.live_rows(table))
    assert told(world) == [event]
    # Expiry: abandoned snapshots go with what only they needed, and of the history's nothing.
    aged(table, 30)
    assert world.run("expire-snapshots") is ProcessStatus.SUCCESS
    assert world.run("empty-trash") is ProcessStatus.SUCCESS
    table.refresh()
    assert not {ours, abandoned} & {one.snapshot_id for one in table.metadata.snapshots}
    assert all(Path(local_path(path)).exists() for path in reached(table.metadata))
    oracle.assert_same_rows(rows, oracle.live_rows(table))
    assert told(world) == [event]


def test_neither_commits_nor_statistics_of_other_snapshots_than_the_historys_count(world: World) -> None:
    """What clustering goes by: how many commits there were, and how many values a column has."""
    properties = {"maintenance.compute-statistics.columns": "id"}
    table = writer.make_table(world.catalog, "db.t", SCHEMA, properties=properties)
    writer.append(table, [row(1), row(2)])
    assert world.run("compute-statistics") in (ProcessStatus.SUCCESS, ProcessStatus.CLEARING)
    start = world.table_head()
    for number in range(3):
        writer.append(table, [row(10 + number)])
    assert world.run("compute-statistics") in (ProcessStatus.SUCCESS, ProcessStatus.CLEARING)
    writer.rollback(table, start)
    writer.append(table, [row(20)])
    capacity = world.store.read(lambda db: groups.capacity(db, "default"))
    situation = PlanningContext(parse_config({}), {}, {}, capacity, world.now)
    opened = world.tables_of.open(world.table().identifier)
    assert isinstance(opened, IcebergTable)
    found = clustering._facts(opened, situation)
    assert [one.snapshot_id for one in found.snapshots] == [world.table_head(), start]
    assert commits_since(None, found.snapshots) == 2
    assert opened.distinct_values() == {1: 2}


OURS, NEXT = SnapshotAdded(2, 1, 6), SnapshotAdded(3, 2, 7)


def facts(*chain: tuple[int, int]) -> list[SnapshotFacts]:
    """Snapshots by id, each the child of the one before, with their sequence numbers."""
    parents = [None, *(snapshot_id for snapshot_id, _ in chain)]
    return [
        SnapshotFacts(snapshot_id, parent, number, START, "append", {}, ())
        for (snapshot_id, number), parent in zip(chain, parents, strict=False)
    ]


@pytest.mark.parametrize(
    ("snapshots", "head", "added", "gone"),
    [
        (facts((1, 5), (2, 6), (3, 7)), 3, [NEXT, OURS], []),
        (facts((1, 5)), 1, [NEXT, OURS], []),  # a replica that lags, or nothing but a rollback
        (facts((0, 4)), 0, [OURS], []),
        (facts((1, 5), (9, 6)), 9, [OURS], [OURS]),
        (facts((1, 5), (9, 6)), 9, [NEXT, OURS], [NEXT, OURS]),  # Polaris sets sequence numbers back
        ([*facts((1, 5), (2, 6)), *facts((1, 5))], 1, [OURS], [OURS]),
        (facts((1, 5), (2, 6), (9, 7))[2:], 9, [OURS], []),  # expired: its child names it
        (facts((1, 5), (2, 6), (8, 7), (9, 8))[3:], 9, [OURS], []),
        (facts((9, 6))[:1], 9, [OURS], []),  # a writer that drops the parent of what was expired
        (facts((1, 0), (9, 0)), 9, [SnapshotAdded(2, 1, 0)], [SnapshotAdded(2, 1, 0)]),
        (facts((1, 0)), 1, [SnapshotAdded(2, 1, 0)], []),
        (facts((1, 5)), None, [OURS], []),
    ],
)
def test_what_was_rolled_back_follows_from_the_history(
    snapshots: list[SnapshotFacts], head: int | None, added: list[SnapshotAdded], gone: list[SnapshotAdded]
) -> None:
    assert rolled_back(added, snapshots, head) == gone


# Polaris: a server that rolls a commit back for a writer


@pytest.fixture
def polaris(tmp_path: Path, catalog: SqlCatalog) -> Iterator[World]:
    """A world whose catalog is a REST server with Polaris's endpoints."""
    with RestServer(catalog) as server:
        server.endpoints = [*map(str, DEFAULT_ENDPOINTS), "GET /polaris/v1/{prefix}/applicable-policies"]
        home = tmp_path / "polaris"
        home.mkdir()
        made = World(home, catalog, config=server.config())
        yield made
        made.close()


def marks(table: Table) -> dict[str, str]:
    head = table.refresh().current_snapshot()
    summary = head.summary.additional_properties
    return {key: value for key, value in summary.items() if key.startswith("polaris.")}


ALLOWED = {"self-optimizing.polaris-rollback": "true"}


def test_in_polaris_commits_may_be_rolled_back_where_the_table_says_so(polaris: World) -> None:
    table = filled(polaris)
    polaris.optimized(force=True)
    assert marks(table) == {}
    polaris.set_properties(ALLOWED)
    writer.append(table, [row(30)])
    start, process_id = polaris.table_head(), polaris.optimized(force=True)
    assert marks(table) == ROLLBACK_MARKS
    assert ROLLBACK_MARKS["polaris.internal.rollback.compaction.on-conflict"] == "true"
    # What is refuted here may land later, since the snapshots between may be rolled back: its files stay.
    [attempt] = polaris.store.read(lambda db: processes.list_commits(db, process_id))
    refuted = replace(attempt, outcome=CommitOutcome.REFUTED)
    assert (attempt.may_come_back, refuted.may_come_back) == (False, True)
    assert not replace(refuted, payload=b"{}").may_come_back
    # As Polaris does for a writer that had begun before.
    ours = polaris.table_head()
    writer.rollback(table, start)
    writer.expire_snapshots(table, [ours])
    writer.append(table, [row(31)])
    assert [one.about.process_id for one in told(polaris)] == [process_id]
    assert ids(table)[-2:] == [30, 31]


def test_elsewhere_the_property_has_no_effect_and_other_commits_carry_no_mark(world: World, polaris: World) -> None:
    table = make_small_files(world.catalog, spec=BY_PART, properties=ALLOWED)
    world.optimized(force=True)
    assert marks(table) == {}
    writer.append(table, [row(9)])
    writer.upsert(table, [row(1, "a", "new")], ["id"])
    writer.remove_files(table, [file.path for file in oracle.live_files(table) if not file.content])
    assert polaris.run("clean-dangling-delete-files") is ProcessStatus.SUCCESS
    assert marks(table) == {}
