"""Committing: at most once, reconciled after every kind of end, cancelled before it, and what each leaves behind."""

import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyiceberg.expressions import EqualTo
from pyiceberg.manifest import DataFileContent
from pyiceberg.table.snapshots import Operation

from amoro_core.admin.processes import find_process
from amoro_core.documents.formatting import detail_lines
from amoro_core.errors import CommitConflict, CommitRefused, CommitUnknown, IllegalState, TableNotFound
from amoro_core.formats.iceberg import IcebergFormat, IcebergTable
from amoro_core.model.commits import FileFacts
from amoro_core.model.plans import PartitionKey
from amoro_core.model.processes import CommitOutcome, Figure, ProcessStatus, Receipt, TaskStatus
from amoro_core.model.tables import LastOptimized, OptimizingStatus, OptimizingType
from amoro_core.store import tables
from amoro_core.transactions.process_context import retry_commit
from tests.engine import oracle, writer, writer3
from tests.engine.aging import aged
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.commits import Change, commit
from tests.engine.manifests import entries_of, manifests_in
from tests.services.rigs import dying_at, raising
from tests.services.world import START, World, make_two_partitions

CONFLICT, DONE = CommitOutcome.CONFLICT, CommitOutcome.DONE
REFUTED, UNKNOWN = CommitOutcome.REFUTED, CommitOutcome.UNKNOWN
UNHEARD = raising(CommitUnknown("503"))


def stray_files(world: World) -> set[Path]:
    """Data files in the table's directory that no snapshot has."""
    table = world.catalog.load_table("db.t")
    named = {file.path for one in table.metadata.snapshots for file in oracle.live_files(table, one.snapshot_id)}
    root = Path(table.location().removeprefix("file://"))
    return {path for path in (root / "data").rglob("*.parquet") if f"file://{path}" not in named}


def died(point: str) -> Callable[[World, str], None]:
    def end(world: World, process: str) -> None:
        with dying_at(point):
            world.committing.commit(process)
        assert world.outcomes(process) == [CommitOutcome.SENT]

    return end


def unheard(*, arrives: bool) -> Callable[[World, str], None]:
    def end(world: World, process: str) -> None:
        world.commit_unknown(process, arrives=arrives)
        assert world.table().status is OptimizingStatus.COMMITTING

    return end


@pytest.mark.parametrize("others", [False, True], ids=["alone", "overtaken"])
@pytest.mark.parametrize(
    ("first", "landed"),
    [
        (died("commit.after_intent"), False),
        (died("commit.after_send"), True),
        (unheard(arrives=False), False),
        (unheard(arrives=True), True),
    ],
    ids=["written down", "sent", "lost", "not answered"],
)
def test_a_commit_of_which_nothing_is_known_is_found_sent_again_or_made_anew_once(
    world: World, process: str, first: Callable[[World, str], None], landed: bool, others: bool
) -> None:
    first(world, process)
    assert world.clearing.clean_up(process) == ()
    if others:
        writer.append(world.catalog.load_table("db.t"), [row(70, "a")])
    before = world.rows()
    world.restart()
    with world.iceberg.lose_answers(arrives=True):  # nor does anybody hear of the next sending
        world.committing.commit(process)
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    is_refuted = others and not landed
    assert world.outcomes(process) == ([REFUTED, DONE] if is_refuted else [DONE])
    assert world.snapshots_of(process) == 1
    assert not is_refuted or not any(present(world.commits(process)[0].metadata_files))
    oracle.assert_same_rows(before, world.rows())


@pytest.mark.parametrize("hit", [False, True], ids=["another file", "an input"])
def test_a_position_delete_without_bounds_is_read_for_what_it_names(world: World, process: str, hit: bool) -> None:
    table = world.catalog.load_table("db.t")
    writer.append(table, [row(62, "a"), row(63, "a")])
    wanted = {62, 3} if hit else {62}
    writer.delete_where(table, lambda item: item["id"] in wanted, with_bounds=False)
    before = world.rows()
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    oracle.assert_same_rows(before, world.rows())
    assert stray_files(world) == set()
    figures = {one.name: one.value for one in world.process(process).receipt.figures}
    assert figures.get("rows_carried_over", 0) == hit
    summary = table.refresh().current_snapshot().summary
    said = summary.additional_properties
    rebased = {key: said.get(key) for key in ("amoro.rebased-groups", "amoro.rebased-deletes")}
    assert set(rebased.values()) == ({"1"} if hit else {None})


@pytest.mark.parametrize("rebases", ["true", "false"])
def test_validation_begins_at_the_plan_however_often_the_table_was_loaded_since(world: World, rebases: str) -> None:
    """Of other engines one validated from the snapshot that a retry, or a restart, had loaded last: what others had
    deleted before that came back."""
    table = writer.make_table(
        world.catalog, "db.t", SCHEMA, BY_PART, properties={"self-optimizing.rebase.enabled": rebases}
    )
    for number in range(4):
        writer.append(table, [row(number, part) for part in "ab"] + [row(number + 10, part) for part in "ab"])
    process_id = world.begin_and_run(OptimizingType.FULL)

    def deleted(id_: int) -> None:
        """One delete by position in one partition, and one by equality in the other."""
        writer.delete_where(table, lambda item: (item["id"], item["part"]) == (id_, "a"))
        writer.upsert(table, [row(id_ + 10, "b", "new")], ["id"])

    deleted(1)
    world.refresh()
    world.restart()
    world.iceberg.before_sending(lambda: deleted(2))
    status = world.committing.commit(process_id)
    records = [dict(one.record) for one in oracle.live_rows_with_positions(table.refresh())]
    done = {(record["id"], record["part"], record["value"]) for record in records}
    kept = {(number, part) for number in (0, 1, 2, 3, 10, 11, 12, 13) for part in "ab"} - {(1, "a"), (2, "a")}
    assert done == {(*one, "new" if one in ((11, "b"), (12, "b")) else "v") for one in kept}
    assert len(records) == len(kept)
    assert status is (ProcessStatus.SUCCESS if rebases == "true" else ProcessStatus.PARTIAL)
    assert world.outcomes(process_id) == [CommitOutcome.CONFLICT, CommitOutcome.DONE]


@pytest.mark.parametrize("version", [2, 3])
def test_a_receipt_names_the_deletes_of_others_that_were_carried_over(world: World, version: int) -> None:
    properties = {"self-optimizing.rebase.max-hidden-ratio": "1"}
    table = writer.make_table(world.catalog, "db.t", SCHEMA, format_version=version, properties=properties)
    for number in range(3):
        writer.append(table, [row(10 * number + at) for at in range(10)])
    delete = writer3.delete_rows if version == 3 else writer.delete_where
    delete(table, lambda item: item["id"] == 0)
    process_id = world.begin_and_run(OptimizingType.FULL)
    first = delete(table, lambda item: item["id"] in (1, 2, 11))
    second = delete(table, lambda item: item["id"] == 12)
    data = [one.path for one in oracle.live_files(table) if not one.content]
    writer.remove_files(table, data[-1:])
    assert second is not None
    before = world.rows()
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    oracle.assert_same_rows(before, world.rows())
    ours = world.table_head()
    carried = world.receipt(process_id).carried
    counts = [2, 2] if version == 3 else [3, 1]  # a new vector replaces that of the first
    assert [int(one.partition(" in ")[0]) for one in carried] == [10, *counts]
    assert carried[0] == f"10 in {data[-1]}, which is gone"
    for told, snapshot in zip(carried[1:], (first, second), strict=True):
        written = {one.path for one in oracle.live_files(table, snapshot.snapshot_id) if one.content}
        path, _, author = told.partition(" in ")[2].partition(" of ")
        assert (path in written, author) == (True, f"snapshot {snapshot.snapshot_id} of an unknown application")
    shown = [line for line in detail_lines(find_process(world.services, process_id).receipt) if "carried" in line[0]]
    assert shown == [("rows carried over", one) for one in carried]
    assert ours != first.snapshot_id


@pytest.mark.parametrize("by_columns", [True, False])
def test_entries_of_removed_files_are_never_taken_for_live_ones(world: World, by_columns: bool) -> None:
    """Manifests of nothing but DELETED entries, and files that were added again after these, in one list."""
    world.iceberg.plain = IcebergFormat() if by_columns else IcebergFormat(columns=None)
    table = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART)
    for number in range(4):
        writer.append(table, [row(10 * number + at, part) for at in range(2) for part in "ab"])
    writer.upsert(table, [row(1, value="new")], ["id"])
    writer.delete_where(table, lambda item: item["id"] == 10)
    head = table.refresh().current_snapshot()
    assert head is not None
    entries = [entry for manifest in manifests_in(table, head) for entry in entries_of(table, manifest)]
    files = {entry.data_file.file_path: entry.data_file for entry in entries}
    # Each beside another file in its manifest.
    data = sorted(path for path, one in files.items() if one.content == DataFileContent.DATA and "part=a" in path)
    again, moved = files[data[0]], files[data[1]]
    commit(table, lambda head: Change(removed_paths=frozenset({again.file_path, data[2]})))  # gone
    commit(table, lambda head: Change((moved,), frozenset({moved.file_path})))  # gone and added in one snapshot
    commit(table, lambda head: Change((again,)))  # added again
    live = oracle.live_files(table)
    assert Counter(one.path for one in live).most_common(1)[0][1] == 1
    before = oracle.live_rows(table)
    runtime = world.refresh()
    assert runtime.summary.data_files == sum(one.content == 0 for one in live)
    process_id = world.begin_and_run(OptimizingType.FULL, force=True)
    assert sum(task.input_files for task in world.tasks(process_id)) == runtime.summary.data_files
    # It goes while the process runs: a DELETED entry, and none that is live.
    writer.append(table, [row(90)])
    before = oracle.live_rows(table)
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    oracle.assert_same_rows(before, oracle.live_rows(table))
    aged(table, 30)
    world.now = datetime.now(UTC) + timedelta(seconds=1)
    for action in ("expire-snapshots", "rewrite-manifests"):
        begun = world.maintaining.begin(world.table().table_id, action, trigger="request")
        assert not begun.process_id or world.committing.commit(begun.process_id) is ProcessStatus.SUCCESS
    oracle.assert_same_rows(before, oracle.live_rows(table))


def test_no_footer_is_read_again_when_another_writer_was_faster(world: World, process: str) -> None:
    read: list[str] = []
    facts = IcebergTable.file_facts

    def counted(self: IcebergTable, path: str) -> FileFacts:
        read.append(path)
        return facts(self, path)

    world.iceberg.table(file_facts=counted)
    world.iceberg.before_sending(*[lambda: writer.append(world.catalog.load_table("db.t"), [row(60)])] * 3)
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    assert world.outcomes(process) == [CONFLICT] * 3 + [DONE]
    assert len(read) == len(set(read)) == 2
    *lost, last = world.commits(process)
    assert [one.number for one in (*lost, last)] == [1, 2, 3, 4]
    assert not any(present(tuple(path for one in lost for path in one.metadata_files)))
    assert all(present(last.files))


def test_a_refused_commit_fails_with_the_reason_and_lets_the_table_alone_until_one_succeeds(
    world: World, process: str
) -> None:
    before = world.rows()
    world.iceberg.before_sending(raising(CommitRefused("403 forbidden")))
    assert world.committing.commit(process) is ProcessStatus.FAILED
    ended = world.process(process)
    assert (ended.failure_code, ended.failure) == (CommitRefused.code, "403 forbidden")
    assert world.outcomes(process) == [CommitOutcome.REFUSED]
    oracle.assert_same_rows(before, world.rows())
    assert stray_files(world) == set()
    runtime, (attempt,) = world.table(), world.commits(process)
    assert (runtime.failures, runtime.retry_at) == (1, START + timedelta(minutes=1))
    assert not any(present((*attempt.files, *attempt.metadata_files)))
    assert world.optimize(OptimizingType.MINOR) is ProcessStatus.SUCCESS
    assert (world.table().failures, world.table().retry_at) == (0, None)


def test_a_commit_stays_unknown_until_somebody_answers_and_is_sent_again_byte_for_byte(
    world: World, process: str
) -> None:
    sent = world.iceberg.before_sending(*[UNHEARD] * 3)
    for _ in range(3):
        assert world.committing.commit(process) is ProcessStatus.COMMIT_UNKNOWN
        assert world.outcomes(process) == [UNKNOWN]
        assert world.clearing.clean_up(process) == ()
        world.restart()
        assert world.heard.commits == [process]
    (attempt,) = world.commits(process)
    assert all(present((*attempt.files, *attempt.metadata_files)))
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    assert (len(sent), len(set(sent))) == (4, 1)


@pytest.mark.parametrize("harm", ["truncated", "missing", "shortened"])
def test_a_result_that_was_harmed_is_never_committed(world: World, process: str, harm: str) -> None:
    output = world.output_of(world.tasks(process)[0])
    first = Path(output.data_files[0].path.removeprefix("file://"))
    match harm:
        case "truncated":
            first.write_bytes(first.read_bytes()[:-20])
        case "missing":
            first.unlink()
        case "shortened":
            parquet.write_table(parquet.read_table(first).slice(1), first)
    before, head = world.rows(), world.catalog.load_table("db.t").metadata.current_snapshot_id
    assert world.committing.commit(process) is ProcessStatus.FAILED
    assert world.catalog.load_table("db.t").metadata.current_snapshot_id == head
    oracle.assert_same_rows(before, world.rows())


# What is left behind by each end of a commit: the process, the table's runtime, attempts and files


def present(paths: tuple[str, ...]) -> list[bool]:
    return [Path(path.removeprefix("file://")).exists() for path in paths]


def test_a_commit_is_written_down_with_its_receipt_its_times_and_its_name(world: World, process: str) -> None:
    base, changes = world.table_head(), world.heard.changes
    before, before_rows = oracle.live_files(world.catalog.load_table("db.t")), world.rows()
    world.later(2.5)

    assert world.committing.commit(process) is ProcessStatus.SUCCESS

    oracle.assert_same_rows(before_rows, world.rows())
    table = world.catalog.load_table("db.t")
    head, after = table.current_snapshot(), oracle.live_files(table)
    named = {key: head.summary[key] for key in ("snapshot.producer", "amoro.process-id", "amoro.optimizing-type")}
    assert named == {"snapshot.producer": "OPTIMIZE", "amoro.process-id": process, "amoro.optimizing-type": "minor"}
    assert world.process(process).receipt == Receipt(
        data_files_before=10,
        data_files_after=2,
        delete_files_before=3,
        delete_files_after=0,
        equality_delete_files_after=0,
        bytes_before=sum(file.file_size_bytes for file in before),
        bytes_after=sum(file.file_size_bytes for file in after),
        rows_before=7,
        rows_after=7,
        snapshot_id=head.snapshot_id,
        base_snapshot_id=base,
        duration_ms=2500,
        more=(
            Figure("files_copied", 10, "files"),
            Figure("files_encoded", 0, "files"),
            Figure("coarse_bytes", sum(file.file_size_bytes for file in after), "bytes"),
        ),
    )
    runtime = world.table()
    assert (runtime.status, runtime.status_reason, runtime.snapshot_id, runtime.last_optimized_at) == (
        OptimizingStatus.IDLE,
        f"minor committed snapshot {head.snapshot_id}",
        head.snapshot_id,
        START + timedelta(seconds=2.5),
    )
    assert world.store.read(lambda db: tables.partitions_last_optimized(db, runtime.table_id)) == {
        PartitionKey(0, (part,)): LastOptimized(minor=START, major=None, full=None) for part in (b"a", b"b")
    }
    (attempt,) = world.commits(process)
    assert (attempt.number, attempt.created_at, attempt.groups) == (1, START + timedelta(seconds=2.5), (1, 2))
    assert sorted(attempt.files) == sorted(file.path for file in after)
    assert world.heard.changes == changes + 1
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    assert (world.clearing.clean_up(process), world.snapshots_of(process)) == ((), 1)
    with pytest.raises(IllegalState, match=f"process {process} has ended already: success"):
        world.optimizing.cancel(process, "no")
    assert world.heard.left_over == []


def test_tries_are_repeated_at_once_and_then_after_growing_waits() -> None:
    clock, waits = [0.0], []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        clock[0] += seconds

    with pytest.raises(CommitConflict, match=r"faster \d+ times in 1\d s"):
        retry_commit(timedelta(seconds=10), lambda: False, now=lambda: clock[0], wait=wait)
    assert waits[0] == 0
    assert 0.01 <= waits[1] <= 0.02
    assert all(1 <= one <= 2 for one in waits[-3:])


def test_a_whole_conflict_says_why_and_that_it_is_planned_anew(world: World, process: str) -> None:
    table = world.catalog.load_table("db.t")
    writer.copy_on_write(table, lambda item: item["id"] in (3, 103))

    before = world.rows()

    assert world.committing.commit(process) is ProcessStatus.FAILED

    failure = world.process(process).failure
    assert world.process(process).failure_code == CommitConflict.code
    oracle.assert_same_rows(before, world.rows())
    assert stray_files(world) == set()
    assert (world.table().failures, world.table().retry_at) == (0, None)
    assert failure.count("is no longer live, and of file:///") == 2
    assert failure.endswith(" (The next round plans it anew.)")
    assert world.table().status_reason.startswith("minor failed: ")


def look(world: World) -> None:
    world.refresh()
    world.starting.check_files(world.table().table_id)


def canceled(world: World, process_id: str) -> dict[str, str]:
    """The partitions of the cancelled tasks with the reasons."""
    return {task.partition: task.failure for task in world.tasks(process_id) if task.status is TaskStatus.CANCELED}


def test_tasks_whose_files_an_overwrite_removed_are_cancelled_and_the_others_are_committed(world: World) -> None:
    table = make_two_partitions(world.catalog, count=12)
    process_id, optimizer = world.begin(OptimizingType.MINOR, force=True), world.optimizer()
    handed = world.take(optimizer)
    (part,) = (one.partition for one in world.tasks(process_id) if one.task_id == handed.attempt.task_id)
    writer.append(table, [row(50, "a")])
    look(world)
    assert canceled(world, process_id) == {}
    value = part.removeprefix("part=")
    replacing = pa.Table.from_pylist([row(7, value)], schema=SCHEMA.as_arrow())
    world.catalog.load_table("db.t").overwrite(replacing, EqualTo("part", value))
    writer.copy_on_write(table, lambda item: item["id"] == 107)  # a later commit, which is not named
    before = world.rows()

    look(world)

    snapshots = world.catalog.load_table("db.t").snapshots()
    removing, _ = (one for one in snapshots if one.summary and one.summary.operation is Operation.DELETE)
    why = f"is no longer live: snapshot {removing.snapshot_id} (delete) of an unknown application removed it"
    ((where, reason),) = canceled(world, process_id).items()
    assert (where, reason.partition(" ")[2]) == (part, why)
    assert world.optimizing.abandoned(optimizer, [handed.attempt]) == [handed.attempt]
    world.run_all(process_id, optimizer)
    assert world.committing.commit(process_id) is ProcessStatus.PARTIAL
    oracle.assert_same_rows(before, world.rows())
    assert world.snapshots_of(process_id) == 1
    runtime = world.table()
    optimized = world.store.read(lambda db: tables.partitions_last_optimized(db, runtime.table_id))
    (other,) = {"a", "b"} - {value}
    assert (runtime.failures, list(optimized)) == (0, [PartitionKey(0, (other.encode(),))])


@pytest.mark.parametrize("ending", ["running", "done"])
def test_a_process_all_of_whose_files_are_gone_ends_at_once_as_cancelled(world: World, ending: str) -> None:
    """Where a task is done already, it ends at its commit."""
    table = make_two_partitions(world.catalog, count=12)
    process_id, optimizer = world.begin(OptimizingType.MINOR, force=True), world.optimizer()
    if ending == "done":
        world.run_one(optimizer)
    world.catalog.load_table("db.t").delete(EqualTo("part", "a"))
    look(world)
    assert world.status(process_id) in (ProcessStatus.RUNNING, ProcessStatus.COMMITTING)
    world.catalog.load_table("db.t").delete(EqualTo("part", "b"))
    look(world)
    if ending == "done":
        assert world.committing.commit(process_id) is ProcessStatus.FAILED
    else:
        assert world.status(process_id) is ProcessStatus.CLOSED
        assert world.heard.left_over == [process_id]
    process = world.process(process_id)
    assert process.failure_code == CommitConflict.code
    assert "is no longer live" in process.failure
    assert (world.table().status, world.table().failures) == (OptimizingStatus.IDLE, 0)
    assert oracle.live_rows(table).total() == 0


@pytest.mark.parametrize("rebases", [True, False])
def test_a_task_goes_on_where_rows_of_files_that_are_gone_can_be_hidden(world: World, rebases: bool) -> None:
    table = make_two_partitions(world.catalog, {"self-optimizing.rebase.enabled": str(rebases).lower()}, 12)
    process_id = world.begin(OptimizingType.MINOR, force=True)
    writer.copy_on_write(table, lambda item: item["id"] in (3, 4))
    before = world.rows()
    look(world)
    assert list(canceled(world, process_id)) == ([] if rebases else ["part=a"])
    world.run_all(process_id)
    assert world.committing.commit(process_id) is (ProcessStatus.SUCCESS if rebases else ProcessStatus.PARTIAL)
    oracle.assert_same_rows(before, world.rows())


def test_nothing_is_cancelled_for_an_older_answer_of_the_catalog_or_a_rollback(world: World) -> None:
    table = make_two_partitions(world.catalog, count=12)
    world.refresh()
    older = IcebergFormat().load(world.catalogs.get("cat"), world.table().identifier)
    writer.copy_on_write(table, lambda item: item["id"] == 3)
    process_id = world.begin(OptimizingType.MINOR, force=True)
    with world.iceberg.catalog(load=lambda *arguments: older):
        look(world)
    assert canceled(world, process_id) == {}
    assert older.facts.snapshot_id is not None
    writer.rollback(table, older.facts.snapshot_id)
    look(world)
    assert canceled(world, process_id) == {}
    assert world.status(process_id) is ProcessStatus.RUNNING


def test_an_unknown_commit_on_a_table_that_is_gone_fails_with_the_reason_and_nothing_of_it_is_removed(
    world: World, process: str
) -> None:
    world.iceberg.before_sending(UNHEARD)
    world.committing.commit(process)
    (attempt,) = world.commits(process)
    location = world.catalog.load_table("db.t").metadata_location
    world.catalog.drop_table("db.t")

    assert world.committing.commit(process) is ProcessStatus.FAILED

    ended = world.process(process)
    assert (ended.failure_code, world.outcomes(process)) == (TableNotFound.code, [UNKNOWN])
    assert ended.failure.endswith("; whether a commit to it was applied is not known, and none of its files is removed")
    # The same table may be there under another name, or come back with the commit in it.
    world.catalog.register_table("db.t", location)
    assert world.clearing.clean_up(process) == ()
    assert all(present((*attempt.files, *attempt.metadata_files)))


def test_what_a_commit_added_is_never_cleaned_even_where_the_table_was_made_anew_at_its_place(
    world: World, process: str
) -> None:
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    (attempt,) = world.commits(process)
    location = world.catalog.load_table("db.t").location()
    world.catalog.drop_table("db.t")
    world.catalog.create_table("db.t", SCHEMA, location=location)

    # Nothing of the table that now has the name refers to them; the dropped one can still be registered again.
    assert world.clearing.clean_up(process) == ()
    assert all(present(attempt.files))


# Taking a process back before its commit


def test_a_running_process_is_closed_its_tasks_are_cancelled_and_its_outputs_removed(world: World) -> None:
    make_two_partitions(world.catalog)
    process, before = world.begin(OptimizingType.MINOR), world.rows()
    optimizer = world.optimizer()
    done = world.run_one(optimizer)
    running = world.take(optimizer)
    assert (world.committing.commit(process), world.commits(process)) == (ProcessStatus.RUNNING, ())
    view = world.optimizing.cancel(process[:13], "somebody cancelled it")
    how_far = "somebody cancelled it; 1 of 2 tasks done"
    assert (view.process.status, view.process.failure) == (ProcessStatus.CLOSED, how_far)
    assert sorted(task.status for task in view.tasks) == [TaskStatus.CANCELED, TaskStatus.SUCCESS]
    assert world.heard.left_over == [process]
    assert world.optimizing.abandoned(optimizer, [running.attempt]) == [running.attempt]
    assert not world.complete(optimizer, running.attempt, world.execute(running))
    output = world.output(done.attempt)
    assert world.clearing.clean_up(process) == tuple(file.path for file in output.data_files)
    runtime = world.table()
    assert runtime.status is OptimizingStatus.IDLE
    assert runtime.status_reason == f"minor was ended: {how_far}"
    assert runtime.failures == 0
    oracle.assert_same_rows(before, world.rows())


def test_a_concurrent_upsert_keeps_deleting_what_was_rewritten(world: World, process: str) -> None:
    table = world.catalog.load_table("db.t")
    writer.upsert(table, [row(0, "a", "newest")], ["id"])
    writer.append(table, [row(61)])
    before = world.rows()
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    oracle.assert_same_rows(before, world.rows())


def test_conflicts_in_a_row_end_the_commit_once_its_time_is_over(world: World, process: str) -> None:
    world.refresh_with({"self-optimizing.commit.timeout": "100"})
    world.iceberg.table(send=raising(CommitConflict("409")))

    assert world.committing.commit(process) is ProcessStatus.FAILED

    tried = world.outcomes(process)
    assert tried == [CONFLICT] * len(tried)
    failed = world.process(process)
    assert failed.failure_code == CommitConflict.code
    assert re.match(rf"other writers were faster {len(tried)} times? in ", failed.failure)
