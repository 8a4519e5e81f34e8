"""What is left behind by each end of a commit: the process, the table's runtime, attempts and files."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.snapshots import Snapshot

from amoro_core.errors import CommitConflict, CommitRefused, CommitUnknown, TableNotFound
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.model.plans import PartitionKey
from amoro_core.model.processes import CommitAttempt, CommitOutcome, Figure, ProcessStatus, Receipt
from amoro_core.model.tables import LastOptimized, OptimizingStatus, OptimizingType
from amoro_core.store import commits, partitions
from amoro_core.transactions.trying import try_until
from tests.engine import oracle, writer
from tests.engine.builders import SCHEMA, row
from tests.services.world import START, World

SEND = IcebergTable.send
CONFLICT, DONE, REFUTED, UNKNOWN = (
    CommitOutcome.CONFLICT,
    CommitOutcome.DONE,
    CommitOutcome.REFUTED,
    CommitOutcome.UNKNOWN,
)


def attempts(world: World, process: str) -> tuple[CommitAttempt, ...]:
    return tuple(world.store.read(lambda db: commits.list_for_process(db, process)))


def outcomes(world: World, process: str) -> list[CommitOutcome]:
    return [attempt.outcome for attempt in attempts(world, process)]


def head_of(world: World) -> Snapshot:
    snapshot = world.catalog.load_table("db.t").current_snapshot()
    assert snapshot is not None
    return snapshot


def present(paths: tuple[str, ...]) -> list[bool]:
    return [Path(path.removeprefix("file://")).exists() for path in paths]


def sending(world: World, *ways: Callable[[IcebergTable, bytes], None]) -> None:
    """Let each sending go its own way; those after the last go through."""
    left = list(ways)

    def send(table: IcebergTable, payload: bytes) -> None:
        (left.pop(0) if left else SEND)(table, payload)

    world.iceberg.table(send=send)


def unheard(table: IcebergTable, payload: bytes) -> None:
    raise CommitUnknown("503")


def applied_unheard(table: IcebergTable, payload: bytes) -> None:
    SEND(table, payload)
    raise CommitUnknown("connection reset")


def refused(table: IcebergTable, payload: bytes) -> None:
    raise CommitRefused("403 forbidden")


def test_a_commit_is_written_down_with_its_receipt_its_times_and_its_name(world: World, process: str) -> None:
    base, changes = head_of(world), world.heard.changes
    before = oracle.live_files(world.catalog.load_table("db.t"))
    world.later(2.5)

    assert world.committing.commit(process) is ProcessStatus.SUCCESS

    head, after = head_of(world), oracle.live_files(world.catalog.load_table("db.t"))
    assert head.summary is not None
    named = {key: head.summary[key] for key in ("snapshot.producer", "amoro.process-id", "amoro.optimizing-type")}
    assert named == {
        "snapshot.producer": "OPTIMIZE",
        "amoro.process-id": process,
        "amoro.optimizing-type": "minor",
    }
    assert world.optimizing.find_process(process).process.receipt == Receipt(
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
        base_snapshot_id=base.snapshot_id,
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
    assert world.store.read(lambda db: partitions.last_optimized(db, runtime.table_id)) == {
        PartitionKey(0, (part,)): LastOptimized(minor=START, major=None, full=None) for part in (b"a", b"b")
    }
    (attempt,) = attempts(world, process)
    assert (attempt.number, attempt.created_at, attempt.groups) == (1, START + timedelta(seconds=2.5), (1, 2))
    assert sorted(attempt.files) == sorted(file.path for file in after)
    assert world.heard.changes == changes + 1


def test_only_the_partitions_that_were_committed_count_as_optimized(world: World, process: str) -> None:
    writer.copy_on_write(world.catalog.load_table("db.t"), lambda item: item["id"] == 3)

    assert world.committing.commit(process) is ProcessStatus.PARTIAL

    table_id = world.table().table_id
    assert list(world.store.read(lambda db: partitions.last_optimized(db, table_id))) == [PartitionKey(0, (b"b",))]


def test_a_process_whose_tasks_run_is_not_committed(world: World, catalog: SqlCatalog) -> None:
    table = writer.make_table(catalog, "db.t", SCHEMA)
    for number in range(3):
        writer.append(table, [row(number)])
    running = world.begin(OptimizingType.MINOR)

    assert world.committing.commit(running) is ProcessStatus.RUNNING
    assert attempts(world, running) == ()


def test_manifests_of_a_conflict_go_and_the_next_attempt_counts_on(world: World, process: str) -> None:
    def late(table: IcebergTable, payload: bytes) -> None:
        writer.append(world.catalog.load_table("db.t"), [row(60)])
        SEND(table, payload)

    sending(world, late)

    assert world.committing.commit(process) is ProcessStatus.SUCCESS

    first, second = attempts(world, process)
    assert [(one.number, one.outcome) for one in (first, second)] == [(1, CONFLICT), (2, DONE)]
    assert not any(present(first.metadata_files))
    assert all(present(second.files))


def test_conflicts_in_a_row_end_the_commit_once_its_time_is_over(world: World, process: str) -> None:
    def faster(table: IcebergTable, payload: bytes) -> None:
        raise CommitConflict("409")

    with world.catalog.load_table("db.t").transaction() as change:
        change.set_properties({"self-optimizing.commit.timeout": "100"})
    world.tables.refresh(world.table().table_id)
    sending(world, *[faster] * 1000)

    assert world.committing.commit(process) is ProcessStatus.FAILED

    tried = outcomes(world, process)
    assert tried == [CONFLICT] * len(tried)
    failed = world.optimizing.find_process(process).process
    assert failed.failure_code == CommitConflict.code
    assert failed.failure.startswith(f"other writers were faster {len(tried)} times in ")


def test_tries_are_repeated_at_once_and_then_after_growing_waits() -> None:
    clock, waits = [0.0], []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        clock[0] += seconds

    with pytest.raises(CommitConflict, match=r"faster \d+ times in 1\d s"):
        try_until(timedelta(seconds=10), lambda: False, now=lambda: clock[0], wait=wait)
    assert waits[0] == 0
    assert 0.01 <= waits[1] <= 0.02
    assert all(1 <= one <= 2 for one in waits[-3:])


def test_a_whole_conflict_says_why_and_that_it_is_planned_anew(world: World, process: str) -> None:
    table = world.catalog.load_table("db.t")
    writer.copy_on_write(table, lambda item: item["id"] in (3, 103))

    assert world.committing.commit(process) is ProcessStatus.FAILED

    failure = world.optimizing.find_process(process).process.failure
    assert failure.count("is no longer live, and of file:///") == 2
    assert failure.endswith(" (The next round plans it anew.)")
    assert world.table().status_reason.startswith("minor failed: ")


def test_a_refused_commit_lets_the_table_alone_for_a_while(world: World, process: str) -> None:
    sending(world, refused)

    assert world.committing.commit(process) is ProcessStatus.FAILED

    runtime, (attempt,) = world.table(), attempts(world, process)
    assert (runtime.failures, runtime.retry_at) == (1, START + timedelta(minutes=1))
    assert not any(present((*attempt.files, *attempt.metadata_files)))


def test_a_commit_ends_the_waiting_after_failures(world: World, process: str) -> None:
    sending(world, refused)
    world.committing.commit(process)
    again = world.begin(OptimizingType.MINOR)
    world.run_all(again)

    assert world.committing.commit(again) is ProcessStatus.SUCCESS

    assert (world.table().failures, world.table().retry_at) == (0, None)


def test_a_commit_that_lands_unheard_when_it_is_sent_again_is_found(world: World, process: str) -> None:
    sending(world, unheard, applied_unheard)

    assert world.committing.commit(process) is ProcessStatus.COMMIT_UNKNOWN
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    assert outcomes(world, process) == [DONE]


def test_a_commit_stays_unknown_and_keeps_its_files_as_long_as_nobody_answers(world: World, process: str) -> None:
    sending(world, unheard, unheard, unheard)

    for _ in range(3):
        assert world.committing.commit(process) is ProcessStatus.COMMIT_UNKNOWN
        assert outcomes(world, process) == [UNKNOWN]
        assert world.clearing.clean_up(process) == ()
    (attempt,) = attempts(world, process)
    assert all(present((*attempt.files, *attempt.metadata_files)))
    assert world.committing.commit(process) is ProcessStatus.SUCCESS


def test_manifests_of_a_refuted_attempt_go(world: World, process: str) -> None:
    sending(world, unheard)
    world.committing.commit(process)
    writer.append(world.catalog.load_table("db.t"), [row(70)])

    assert world.committing.commit(process) is ProcessStatus.SUCCESS

    first, _ = attempts(world, process)
    assert first.outcome is REFUTED
    assert not any(present(first.metadata_files))


def test_in_format_1_manifests_of_a_refuted_attempt_stay_since_it_may_come_back(
    world: World, catalog: SqlCatalog
) -> None:
    table = writer.make_table(catalog, "db.t", SCHEMA, format_version=1)
    for number in range(3):
        writer.append(table, [row(number)])
    process = world.begin(OptimizingType.MINOR)
    world.run_all(process)
    sending(world, unheard)
    assert world.committing.commit(process) is ProcessStatus.COMMIT_UNKNOWN
    writer.append(table, [row(70)])

    assert world.committing.commit(process) is ProcessStatus.SUCCESS

    first, second = attempts(world, process)
    assert (first.outcome, second.outcome) == (REFUTED, DONE)
    assert all(present(first.metadata_files))


def test_a_table_that_is_gone_fails_the_process(world: World, process: str) -> None:
    world.catalog.drop_table("db.t")

    assert world.committing.commit(process) is ProcessStatus.FAILED
    assert world.optimizing.find_process(process).process.failure_code == TableNotFound.code


def test_an_unknown_commit_on_a_table_that_is_gone_fails_with_the_reason_and_nothing_of_it_is_removed(
    world: World, process: str
) -> None:
    sending(world, unheard)
    world.committing.commit(process)
    (attempt,) = attempts(world, process)
    location = world.catalog.load_table("db.t").metadata_location
    world.catalog.drop_table("db.t")

    assert world.committing.commit(process) is ProcessStatus.FAILED

    ended = world.optimizing.find_process(process).process
    assert (ended.failure_code, outcomes(world, process)) == (TableNotFound.code, [UNKNOWN])
    assert ended.failure.endswith("; whether a commit to it was applied is not known, and none of its files is removed")
    # The same table may be there under another name, or come back with the commit in it.
    world.catalog.register_table("db.t", location)
    assert world.clearing.clean_up(process) == ()
    assert all(present((*attempt.files, *attempt.metadata_files)))


def test_what_a_commit_added_is_never_cleaned_even_where_the_table_was_made_anew_at_its_place(
    world: World, process: str
) -> None:
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    (attempt,) = attempts(world, process)
    location = world.catalog.load_table("db.t").location()
    world.catalog.drop_table("db.t")
    world.catalog.create_table("db.t", SCHEMA, location=location)

    # Nothing of the table that now has the name refers to them; the dropped one can still be registered again.
    assert world.clearing.clean_up(process) == ()
    assert all(present(attempt.files))
