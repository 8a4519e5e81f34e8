"""Committing: at most once, reconciled after every kind of end, cleaned only when nothing is uncertain."""

from collections import Counter
from pathlib import Path

import pytest
from pyarrow import parquet

from amoro_core.errors import CommitConflict, CommitRefused, CommitUnknown, TableRefused
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.model.commits import FileFacts
from amoro_core.model.processes import CommitOutcome, ProcessStatus
from amoro_core.model.tables import OptimizingStatus
from amoro_core.store import commits
from tests.engine import oracle, writer
from tests.engine.builders import row
from tests.services.world import World

SEND = IcebergTable.send


def rows(world: World) -> Counter[object]:
    return oracle.live_rows(world.catalog.load_table("db.t"))


def snapshots_of(world: World, process: str) -> int:
    snapshots = world.catalog.load_table("db.t").metadata.snapshots
    return sum(
        snapshot.summary is not None and snapshot.summary.get("amoro.process-id") == process for snapshot in snapshots
    )


def outcomes(world: World, process: str) -> list[CommitOutcome]:
    return [attempt.outcome for attempt in world.store.read(lambda db: commits.list_for_process(db, process))]


def data_files(world: World) -> set[str]:
    root = Path(world.catalog.load_table("db.t").location().removeprefix("file://"))
    return {str(path) for path in (root / "data").rglob("*.parquet")}


def referenced(world: World) -> set[str]:
    table = world.catalog.load_table("db.t")
    return {
        file.path.removeprefix("file://")
        for snapshot in table.metadata.snapshots
        for file in oracle.live_files(table, snapshot.snapshot_id)
    }


def test_a_commit_changes_files_and_no_rows(world: World, process: str) -> None:
    before = rows(world)
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    oracle.assert_same_rows(before, rows(world))
    receipt = world.optimizing.find_process(process).process.receipt
    assert receipt is not None
    assert (receipt.data_files_before, receipt.data_files_after) == (10, 2)
    assert (receipt.delete_files_before, receipt.delete_files_after) == (3, 0)
    assert (receipt.rows_before, receipt.rows_after, receipt.equality_delete_files_after) == (7, 7, 0)
    runtime = world.table()
    assert (runtime.status, runtime.failures) == (OptimizingStatus.IDLE, 0)


def test_committing_again_does_nothing(world: World, process: str) -> None:
    world.committing.commit(process)
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    assert world.clearing.clean_up(process) == ()
    assert snapshots_of(world, process) == 1


def test_a_table_that_is_refused_by_now_leaves_an_uncertain_commit_uncertain(world: World, process: str) -> None:
    def applied_and_killed(self: IcebergTable, payload: bytes) -> None:
        SEND(self, payload)
        raise KeyboardInterrupt

    before = rows(world)
    with world.iceberg.table(send=applied_and_killed), pytest.raises(KeyboardInterrupt):
        world.committing.commit(process)
    world.restart()

    def refused(*_: object) -> object:
        raise TableRefused("format version 4 is not handled", reason="format-version")

    with world.iceberg.catalog(load=refused), pytest.raises(TableRefused):
        world.committing.commit(process)
    assert world.optimizing.find_process(process).process.status is ProcessStatus.COMMITTING
    assert outcomes(world, process) == [CommitOutcome.SENT]
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    oracle.assert_same_rows(before, rows(world))
    assert snapshots_of(world, process) == 1


def test_a_concurrent_append_is_no_conflict(world: World, process: str) -> None:
    writer.append(world.catalog.load_table("db.t"), [row(60)])
    before = rows(world)
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    oracle.assert_same_rows(before, rows(world))


def test_a_concurrent_upsert_keeps_deleting_what_was_rewritten(world: World, process: str) -> None:
    table = world.catalog.load_table("db.t")
    writer.upsert(table, [row(0, "a", "newest")], ["id"])
    writer.append(table, [row(61)])
    before = rows(world)
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    oracle.assert_same_rows(before, rows(world))


def test_a_concurrent_position_delete_is_carried_over_to_the_output(world: World, process: str) -> None:
    writer.delete_where(world.catalog.load_table("db.t"), lambda item: item["id"] == 3)
    before = rows(world)
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    oracle.assert_same_rows(before, rows(world))
    assert data_files(world) == referenced(world)


@pytest.mark.parametrize("hit", [False, True], ids=["another file", "an input"])
def test_a_position_delete_without_bounds_is_read_for_what_it_names(world: World, process: str, hit: bool) -> None:
    table = world.catalog.load_table("db.t")
    writer.append(table, [row(62, "a"), row(63, "a")])
    wanted = {62, 3} if hit else {62}
    writer.delete_where(table, lambda item: item["id"] in wanted, with_bounds=False)
    before = rows(world)
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    oracle.assert_same_rows(before, rows(world))
    assert data_files(world) == referenced(world)
    figures = {one.name: one.value for one in world.optimizing.find_process(process).process.receipt.figures}
    assert figures.get("rows_carried_over", 0) == hit
    summary = table.refresh().current_snapshot().summary
    said = summary.additional_properties
    rebased = {key: said.get(key) for key in ("amoro.rebased-groups", "amoro.rebased-deletes")}
    assert set(rebased.values()) == ({"1"} if hit else {None})


def test_no_footer_is_read_again_when_another_writer_was_faster(world: World, process: str) -> None:
    read: list[str] = []
    facts, calls = IcebergTable.file_facts, 0

    def counted(self: IcebergTable, path: str) -> FileFacts:
        read.append(path)
        return facts(self, path)

    def late(self: IcebergTable, payload: bytes) -> None:
        nonlocal calls
        calls += 1
        if calls < 4:
            writer.append(world.catalog.load_table("db.t"), [row(60 + calls)])
        SEND(self, payload)

    world.iceberg.table(file_facts=counted)
    world.iceberg.table(send=late)
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    assert outcomes(world, process) == [CommitOutcome.CONFLICT] * 3 + [CommitOutcome.DONE]
    assert len(read) == len(set(read)) == 2


def test_what_conflicts_wholly_fails_and_leaves_no_file_behind(world: World, process: str) -> None:
    table = world.catalog.load_table("db.t")
    head = table.metadata.current_snapshot_id
    assert head is not None
    parent = next(item.parent_snapshot_id for item in table.metadata.snapshots if item.snapshot_id == head)
    assert parent is not None
    writer.rollback(table, parent)
    before = rows(world)
    assert world.committing.commit(process) is ProcessStatus.FAILED
    view = world.optimizing.find_process(process)
    assert view.process.failure_code == CommitConflict.code
    oracle.assert_same_rows(before, rows(world))
    assert data_files(world) == referenced(world)
    assert (world.table().failures, world.table().retry_at) == (0, None)


def test_a_refused_commit_fails_with_the_reason(world: World, process: str) -> None:
    def refuse(self: IcebergTable, payload: bytes) -> None:
        raise CommitRefused("403 forbidden")

    world.iceberg.table(send=refuse)
    before = rows(world)
    assert world.committing.commit(process) is ProcessStatus.FAILED
    view = world.optimizing.find_process(process)
    assert (view.process.failure_code, view.process.failure) == (CommitRefused.code, "403 forbidden")
    assert outcomes(world, process) == [CommitOutcome.REFUSED]
    oracle.assert_same_rows(before, rows(world))
    assert data_files(world) == referenced(world)


def test_an_answer_that_was_lost_after_the_commit_landed_is_reconciled(world: World, process: str) -> None:
    world.iceberg.lose_answers(arrives=True)
    before = rows(world)
    assert world.committing.commit(process) is ProcessStatus.COMMIT_UNKNOWN
    assert world.table().status is OptimizingStatus.COMMITTING
    assert world.clearing.clean_up(process) == ()
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    assert (snapshots_of(world, process), outcomes(world, process)) == (1, [CommitOutcome.DONE])
    oracle.assert_same_rows(before, rows(world))


def test_an_unknown_commit_that_did_not_land_is_sent_again_byte_for_byte(world: World, process: str) -> None:
    sent: list[bytes] = []

    def lose(self: IcebergTable, payload: bytes) -> None:
        sent.append(payload)
        if len(sent) == 1:
            raise CommitUnknown("503")
        SEND(self, payload)

    world.iceberg.table(send=lose)
    before = rows(world)
    assert world.committing.commit(process) is ProcessStatus.COMMIT_UNKNOWN
    world.restart()
    assert world.heard.commits == [process]
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    assert len(sent) == 2
    assert sent[0] == sent[1]
    assert (snapshots_of(world, process), outcomes(world, process)) == (1, [CommitOutcome.DONE])
    oracle.assert_same_rows(before, rows(world))


def test_an_unknown_commit_is_refuted_once_others_have_passed_it(world: World, process: str) -> None:
    calls = 0

    def lose(self: IcebergTable, payload: bytes) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise CommitUnknown("503")
        SEND(self, payload)

    world.iceberg.table(send=lose)
    assert world.committing.commit(process) is ProcessStatus.COMMIT_UNKNOWN
    writer.append(world.catalog.load_table("db.t"), [row(70)])
    before = rows(world)
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    assert outcomes(world, process) == [CommitOutcome.REFUTED, CommitOutcome.DONE]
    assert snapshots_of(world, process) == 1
    oracle.assert_same_rows(before, rows(world))


def test_a_coordinator_that_died_after_sending_finds_its_commit(world: World, process: str) -> None:
    before = rows(world)
    save = world.store.write
    died = RuntimeError("killed")

    def die_when_finishing(run: object) -> object:
        if getattr(run, "__name__", "") == "finish":
            raise died
        return save(run)

    world.store.write = die_when_finishing
    with pytest.raises(RuntimeError, match="killed"):
        world.committing.commit(process)
    world.store.write = save
    assert outcomes(world, process) == [CommitOutcome.SENT]
    world.restart()
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    assert (snapshots_of(world, process), outcomes(world, process)) == (1, [CommitOutcome.DONE])
    oracle.assert_same_rows(before, rows(world))


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
    before, head = rows(world), world.catalog.load_table("db.t").metadata.current_snapshot_id
    assert world.committing.commit(process) is ProcessStatus.FAILED
    assert world.catalog.load_table("db.t").metadata.current_snapshot_id == head
    oracle.assert_same_rows(before, rows(world))
