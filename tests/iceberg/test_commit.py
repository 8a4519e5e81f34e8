from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest.response import _handle_non_200_response
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.manifest import ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, UpgradeFormatVersionUpdate
from requests import ConnectionError as RequestsConnectionError
from requests import HTTPError, Response
from sqlalchemy.exc import OperationalError

from amoro_core.errors import CatalogUnavailable, CommitConflict, CommitRefused, CommitUnknown, DataFileMissing
from amoro_core.iceberg.commit import committing, rewrite_files, status_check
from amoro_core.iceberg.commit.committing import trace_of
from amoro_core.iceberg.commit.validation_history import read_head
from amoro_core.iceberg.manifest.reading import read_list, read_manifest
from amoro_core.iceberg.manifest.writing import Listing, write_list
from amoro_core.iceberg.metadata import snapshot_facts
from amoro_core.model.commits import (
    CommitContent,
    Head,
    PlanRecord,
    RefAt,
    SnapshotsRemoved,
    StagedCommit,
    StatisticsNamed,
    StatisticsRemoved,
    Trace,
)
from amoro_core.model.task_payload import MAP_ENDING
from amoro_core.validation import validate
from amoro_core.validation.view import build_view
from tests.engine import writer, writer3
from tests.engine.builders import SCHEMA as PARTS
from tests.engine.builders import row
from tests.engine.oracle import assert_same_rows, live_files, live_rows
from tests.engine.parquet_rows import local_path
from tests.engine.writer import (
    append,
    create_branch,
    create_tag,
    delete_where,
    expire_snapshots,
    make_catalog,
    make_table,
    remove_files,
    rollback,
    upsert,
)
from tests.faults.storage import Kind, Operation, StorageFault, Trouble, failing, storage_faults
from tests.iceberg.rewriting import PROCESS, access, current, loaded, manifests, optimized, rewritten, scanned, staged
from tests.iceberg.scenarios import SCHEMA, change_metadata, changed, rows


def metadata_files(table: Table) -> set[str]:
    return {path.name for path in Path(local_path(table.metadata.location), "metadata").iterdir()}


def content_of(table: Table, record: PlanRecord) -> tuple[Table, Head, CommitContent]:
    fresh = loaded(table)
    head = read_head(fresh, record.snapshot_id, scanned)
    content = validate(build_view(record, head)).content
    assert content is not None
    return fresh, head, content


class Failing(SqlCatalog):
    """The catalog, where each commit ends with an error."""

    def __init__(self, real: SqlCatalog, error: BaseException, *, is_blind: bool = False) -> None:
        self._real, self._error, self._is_blind = real, error, is_blind
        self.name = real.name

    def commit_table(self, *args: Any) -> Any:
        raise self._error

    def load_table(self, identifier: Any) -> Table:
        if self._is_blind:
            raise OSError("gone")
        return self._real.load_table(identifier)


# Staging


def test_a_replace_snapshot_says_what_was_done(table: Table) -> None:
    upsert(table, rows(1, 5), ["x"])
    delete_where(table, lambda row: row["x"] == 4)
    plan = rewritten(table)
    before, rows_before = current(table), live_rows(table)

    optimized(table, plan)

    after = current(table)
    assert after.summary.operation.value == "replace"
    assert (after.parent_snapshot_id, after.sequence_number, after.schema_id) == (before.snapshot_id, 5, 0)
    assert after.timestamp_ms > before.timestamp_ms
    sizes = {key: value for key, value in after.summary.additional_properties.items() if "size" not in key}
    assert sizes == {
        "amoro.process-id": PROCESS,
        "snapshot.producer": "OPTIMIZE",
        "added-data-files": "1",
        "added-records": "4",
        "changed-partition-count": "1",
        "deleted-data-files": "3",
        "deleted-records": "6",
        "removed-delete-files": "2",
        "removed-equality-delete-files": "1",
        "removed-equality-deletes": "2",
        "removed-position-delete-files": "1",
        "removed-position-deletes": "1",
        "total-data-files": "1",
        "total-delete-files": "0",
        "total-records": "4",
        "total-position-deletes": "0",
        "total-equality-deletes": "0",
    }
    (file,) = live_files(table)
    assert (file.data_sequence, file.file_sequence, file.record_count) == (4, 5, 4)
    assert after.summary["total-files-size"] == str(file.file_size_bytes)
    assert_same_rows(rows_before, live_rows(table))


def test_manifests_without_live_entries_are_not_carried(table: Table) -> None:
    optimized(table, rewritten(table))
    assert len(manifests(table)) == 3
    append(table, rows(5))

    optimized(table, rewritten(table))

    dead = [one for one in manifests(table) if not (one.has_added_files() or one.has_existing_files())]
    assert {one.added_snapshot_id for one in dead} == {current(table).snapshot_id}
    assert len(manifests(table)) == 3


def test_the_refs_retention_and_the_tables_statistics_stay(table: Table) -> None:
    head = current(table).snapshot_id
    kept = SetSnapshotRefUpdate(
        ref_name="main",
        type=SnapshotRefType.BRANCH,
        snapshot_id=head,
        max_snapshot_age_ms=1000,
        min_snapshots_to_keep=7,
    )
    table.catalog.commit_table(table, (), (kept,))

    optimized(table, rewritten(table))

    ref = loaded(table).metadata.refs["main"]
    assert ref.snapshot_id == current(table).snapshot_id != head
    assert (ref.max_snapshot_age_ms, ref.min_snapshots_to_keep, ref.max_ref_age_ms) == (1000, 7, None)


def test_the_timestamp_is_after_all_that_the_table_has_seen(table: Table) -> None:
    ahead = time.time_ns() // 1_000_000 + 600_000
    last = current(table)
    future = last.model_copy(
        update={
            "snapshot_id": 4711,
            "parent_snapshot_id": last.snapshot_id,
            "sequence_number": 3,
            "timestamp_ms": ahead,
        }
    )
    moved = SetSnapshotRefUpdate(ref_name="main", type=SnapshotRefType.BRANCH, snapshot_id=4711)
    table.catalog.commit_table(table, (), (AddSnapshotUpdate(snapshot=future), moved))

    optimized(table, rewritten(table))

    metadata = loaded(table).metadata
    assert (
        current(table).timestamp_ms == metadata.last_updated_ms == metadata.snapshot_log[-1].timestamp_ms == ahead + 1
    )


def test_lists_of_format_1_that_count_nothing_are_counted_after_the_upgrade(catalog: SqlCatalog) -> None:
    table = make_table(catalog, "db.old", SCHEMA, format_version=1)
    append(table, rows(1, 2))
    append(table, rows(3))
    parent = current(table)
    path = f"{table.metadata.location}/metadata/silent.avro"
    names = ("manifest_path", "manifest_length", "partition_spec_id", "added_snapshot_id", "content")
    silent = [
        ManifestFile.from_args(**{name: getattr(one, name) for name in names}, sequence_number=0, min_sequence_number=0)
        for one in manifests(table)
    ]
    write_list(table.io, path, Listing(1, 4711, parent.snapshot_id, 0), silent)
    snapshot = parent.model_copy(
        update={"snapshot_id": 4711, "parent_snapshot_id": parent.snapshot_id, "manifest_list": path}
    )
    moved = SetSnapshotRefUpdate(ref_name="main", type=SnapshotRefType.BRANCH, snapshot_id=4711)
    table.catalog.commit_table(table, (), (AddSnapshotUpdate(snapshot=snapshot), moved))
    table.catalog.commit_table(table, (), (UpgradeFormatVersionUpdate(format_version=2),))
    (longer,) = (file.path for file in live_files(table) if file.record_count == 2)
    before = live_rows(table)

    optimized(table, rewritten(table, only=[longer]))

    assert_same_rows(before, live_rows(table))
    counts = [(one.added_files_count, one.added_rows_count, one.deleted_files_count) for one in manifests(table)]
    assert counts == [(1, 2, 0), (1, 1, 0), (0, 0, 1)]


def test_staging_on_a_head_that_moved_conflicts_and_writes_nothing(table: Table) -> None:
    _, head, content = content_of(table, rewritten(table))
    append(table, rows(5))
    before = metadata_files(table)

    with pytest.raises(CommitConflict, match=f"the table changed after snapshot {head.snapshot_id} was validated"):
        rewrite_files.stage(loaded(table), head, content, {})

    assert metadata_files(table) == before


def with_removed(**change: Any) -> Callable[[CommitContent], CommitContent]:
    return lambda one: replace(one, removed_data=(replace(one.removed_data[0], **change), one.removed_data[1]))


def with_added(**change: Any) -> Callable[[CommitContent], CommitContent]:
    return lambda one: replace(one, added_data=(replace(one.added_data[0], **change),))


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (with_removed(sequence_number=9), CommitConflict, "on the head"),
        (with_removed(spec_id=1), CommitConflict, "on the head"),
        (with_removed(partition=(b"x",)), CommitConflict, "on the head"),
        (with_removed(path="x"), CommitConflict, "on the head"),
        (lambda one: replace(one, added_data=one.removed_data[:1]), CommitConflict, "is in the table already"),
        (with_added(sequence_number=-1), ValueError, "has sequence number -1, the commit 3"),
        (with_added(sequence_number=3), ValueError, "has sequence number 3, the commit 3"),
        (lambda one: replace(one, removed_data=one.removed_data * 2), ValueError, "removed twice"),
    ],
)
def test_content_that_is_not_as_validated_is_not_staged_and_leaves_no_file(
    table: Table, change: Callable[[CommitContent], CommitContent], error: type[Exception], words: str
) -> None:
    fresh, head, content = content_of(table, rewritten(table))
    before = metadata_files(table)

    with pytest.raises(error, match=words):
        rewrite_files.stage(fresh, head, change(content), {})

    assert metadata_files(table) == before


# Sending


def test_a_commit_on_another_branch_takes_the_number_and_conflicts(table: Table) -> None:
    create_branch(table, "audit")
    fresh, attempt = staged(table, rewritten(table))
    append(table, rows(5), branch="audit")

    with pytest.raises(CommitConflict, match="older than last sequence number"):
        committing.send(fresh.catalog, fresh, attempt.payload)

    assert traced(table, attempt) == Trace.REFUTED


def test_a_table_that_is_gone_conflicts(table: Table, catalog: SqlCatalog) -> None:
    fresh, attempt = staged(table, rewritten(table))
    catalog.drop_table("db.t")

    with pytest.raises(CommitConflict):
        committing.send(catalog, fresh, attempt.payload)


def answer(status: int, body: str = '{"error": {"message": "m", "type": "t", "code": 1}}') -> Exception:
    """What pyiceberg's REST client makes of an answer to a commit."""
    response = Response()
    response.status_code, response._content = status, body.encode()
    handlers: dict[int, type[Exception]] = {409: CommitFailedException} | dict.fromkeys(
        (500, 502, 504), CommitStateUnknownException
    )
    try:
        _handle_non_200_response(HTTPError("x", response=response), handlers)
    except Exception as error:
        return error


REFUSED = [answer(status) for status in (400, 401, 403, 404, 422, 429)]
UNCLEAR = [
    *(answer(status) for status in (418, 419, 500, 501, 502, 503, 504, 507)),
    answer(500, "no json"),
    RequestsConnectionError("reset"),
    OperationalError("commit", {}, Exception("database is locked")),
    OSError("broken pipe"),
    MemoryError(),
    TimeoutError(),
    UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"),
]


def test_only_what_refuses_a_commit_tells_that_it_is_not_applied(table: Table, catalog: SqlCatalog) -> None:
    fresh, attempt = staged(table, rewritten(table))

    for error in REFUSED:
        with pytest.raises(CommitRefused, match="the catalog refused the commit"):
            committing.send(Failing(catalog, error), fresh, attempt.payload)
    for error in UNCLEAR:
        with pytest.raises(CommitUnknown, match="does not tell whether the commit landed"):
            committing.send(Failing(catalog, error), fresh, attempt.payload)
        assert traced(table, attempt) == Trace.OPEN


def test_a_conflict_is_believed_once_the_table_is_not_as_the_commit_requires_it(
    table: Table, catalog: SqlCatalog
) -> None:
    fresh, attempt = staged(table, rewritten(table))
    conflict = CommitFailedException("409")

    with pytest.raises(CommitUnknown, match="can't be loaded"):
        committing.send(Failing(catalog, conflict, is_blind=True), fresh, attempt.payload)
    with pytest.raises(CommitUnknown, match="the table is as the commit requires it"):
        committing.send(Failing(catalog, conflict), fresh, attempt.payload)

    append(table, rows(5))
    with pytest.raises(CommitConflict, match="the table changed before the commit"):
        committing.send(Failing(catalog, conflict), fresh, attempt.payload)


# Tracing


def traced(table: Table, attempt: StagedCommit, found: Table | None = None) -> Trace:
    files = [
        entry.data_file.file_path
        for manifest in read_list(table.io, attempt.manifest_list)
        if manifest.added_snapshot_id == attempt.snapshot_id
        for entry in read_manifest(table.io, manifest).entries
        if entry.status == ManifestEntryStatus.ADDED
    ]
    return status_check.check_commit_status(
        found or loaded(table), attempt.snapshot_id, attempt.sequence_number, files, attempt.parent_snapshot_id
    )


def test_an_attempt_stays_open_after_a_rollback(table: Table) -> None:
    """The same parent may become the head again, so that only the sequence number refutes."""
    first = table.refresh().metadata.snapshots[0].snapshot_id
    _, attempt = staged(table, rewritten(table))
    rollback(table, first)

    assert traced(table, attempt) == Trace.OPEN


def test_an_attempt_that_only_a_branch_reaches_has_landed(table: Table) -> None:
    base = current(table).snapshot_id
    fresh, attempt = staged(table, rewritten(table))
    committing.send(fresh.catalog, fresh, attempt.payload)
    create_branch(table, "kept")
    append(table, rows(5), branch="kept")
    rollback(table, base)
    expire_snapshots(table, [attempt.snapshot_id])

    assert traced(table, attempt) == Trace.LANDED


def test_in_format_1_an_attempt_is_refuted_when_main_left_its_parent(catalog: SqlCatalog) -> None:
    table = make_table(catalog, "db.old", SCHEMA, format_version=1)
    append(table, rows(1))
    append(table, rows(2))
    _, attempt = staged(table, rewritten(table))
    assert traced(table, attempt) == Trace.OPEN

    append(table, rows(3))

    assert traced(table, attempt) == Trace.REFUTED
    assert status_check.check_commit_status(loaded(table), attempt.snapshot_id, 0, []) == Trace.OPEN


# Deleting


def test_files_of_a_refuted_attempt_are_deleted_and_live_ones_kept(table: Table) -> None:
    plan = rewritten(table)
    _, attempt = staged(table, plan)
    outputs = [file.path for group in plan.groups for file in group.output.data_files]
    live = [file.path for file in live_files(table)]
    append(table, rows(5))
    snapshot = current(table)
    asked = [*outputs, *attempt.metadata_files, *live, snapshot.manifest_list, loaded(table).metadata_location]

    deleted = committing.delete_unreferenced(loaded(table), access(table), [*asked, *asked])

    assert deleted == (*outputs, *attempt.metadata_files)
    assert [path for path in asked if not Path(local_path(path)).exists()] == list(deleted)
    assert live_rows(table).total() == 5


def test_files_that_only_an_old_snapshot_names_and_files_elsewhere_are_kept(table: Table, tmp_path: Path) -> None:
    old = live_files(table)[0].path
    optimized(table, rewritten(table))
    assert old not in {file.path for file in live_files(table)}
    other = tmp_path / "warehouse" / "db" / "t2.parquet"
    other.write_bytes(b"x")
    inside = stray_of(table)
    climbing = f"{table.metadata.location}/data/../../t2.parquet"

    asked = [old, old.replace("file:///", "file:/"), other.as_uri(), climbing, str(other), table.metadata.location]

    assert committing.delete_unreferenced(loaded(table), access(table), [*asked, inside]) == (inside,)
    assert other.exists()


def stray_of(table: Table) -> str:
    """A file of nobody beside the table's."""
    path = Path(local_path(table.metadata.location), "data", "stray.parquet")
    path.write_bytes(b"x")
    return path.as_uri()


def test_what_is_older_than_the_files_is_not_read_for_them_and_the_rest_is(table: Table) -> None:
    """A large history is not read for files of a lost attempt; a snapshot of the very number might name them."""
    append(table, rows(5))
    first, *_, last = loaded(table).metadata.snapshots
    assert (first.sequence_number, last.sequence_number) == (1, 3)
    stray, (live,) = stray_of(table), [one.path for one in live_files(table) if one.data_sequence == 3]
    (newest, *older) = last.manifests(table.io)
    assert (newest.sequence_number, len(older)) == (3, 2)
    for path in (first.manifest_list, *(one.manifest_path for one in older)):
        Path(local_path(path)).unlink()

    assert committing.delete_unreferenced(loaded(table), access(table), [live], 3) == ()
    for number, missing in ((1, "the manifest list"), (2, "the manifest ")):
        with pytest.raises(DataFileMissing, match=missing):
            committing.delete_unreferenced(loaded(table), access(table), [stray], number)
    assert committing.delete_unreferenced(loaded(table), access(table), [stray], 3) == (stray,)


def test_for_maps_of_positions_no_manifest_is_read(table: Table) -> None:
    """They are in no commit, as the check before it sees to."""
    data = Path(local_path(table.metadata.location), "data")
    paths, stray = [data / f"p-1-1-u{number}{MAP_ENDING}" for number in (1, 2)], stray_of(table)
    for path in paths:
        path.write_bytes(b"x")
    Path(local_path(loaded(table).metadata.snapshots[0].manifest_list)).unlink()

    first, second = (path.as_uri() for path in paths)
    with pytest.raises(DataFileMissing):
        committing.delete_unreferenced(loaded(table), access(table), [first, stray])
    assert all(Path(local_path(path)).exists() for path in (first, stray))
    assert committing.delete_unreferenced(loaded(table), access(table), [first, second]) == (first, second)


def test_a_second_vector_of_a_data_file_is_not_staged(catalog: SqlCatalog) -> None:
    table = make_table(catalog, "db.vectors", SCHEMA, format_version=3)
    append(table, rows(1, 2, 3))
    writer3.delete_rows(table, lambda row: row["x"] == 1)
    fresh = loaded(table)
    head = read_head(fresh, current(table).snapshot_id, scanned)
    (vector,) = head.scan.files[0].deletes
    other = replace(vector, path=vector.path.replace(".puffin", "-2.puffin"), referenced_data_file=vector.named_file)
    content = CommitContent((1,), (), (), (), (other,))
    with pytest.raises(CommitConflict, match="two deletion vectors"):
        rewrite_files.stage(fresh, head, content, {})
    rewrite_files.stage(fresh, head, replace(content, removed_deletes=(vector,)), {})  # in its place it is


# What a table still says of a change that was sent, whatever others did since


def landed_and_replaced(table: Table) -> StagedCommit:
    """An attempt that landed, and whose only output another engine has removed with its next commit."""
    fresh, attempt = staged(table, rewritten(table))
    before = {file.path for file in live_files(table)}
    committing.send(fresh.catalog, fresh, attempt.payload)
    outputs = {file.path for file in live_files(table)} - before
    assert len(outputs) == 1
    remove_files(table, outputs)
    return attempt


def test_an_expired_attempt_is_known_as_the_parent_of_the_next_and_by_removed_files(table: Table) -> None:
    """Java's expiry leaves the parent's id as it is; pyiceberg's takes it away, so here it is put back."""
    attempt = landed_and_replaced(table)
    expire_snapshots(table)
    found = loaded(table)
    found.metadata = found.metadata.model_copy(update={"metadata_log": []})  # of earlier states nothing tells
    (last,) = found.metadata.snapshots
    assert last.snapshot_id != attempt.snapshot_id
    assert traced(table, attempt, found) == Trace.LANDED

    before = status_check.check_commit_status(found, attempt.snapshot_id, attempt.sequence_number, [])
    child = last.model_copy(update={"parent_snapshot_id": attempt.snapshot_id})
    found.metadata = found.metadata.model_copy(update={"snapshots": [child]})
    assert before == Trace.REFUTED
    assert status_check.check_commit_status(found, attempt.snapshot_id, attempt.sequence_number, []) == Trace.LANDED


def forget_states(table: Table) -> None:
    """The metadata files before the newest are gone."""
    for entry in loaded(table).metadata.metadata_log:
        Path(entry.metadata_file.removeprefix("file://")).unlink()


def test_an_expired_attempt_is_known_by_an_earlier_metadata_file_while_that_is_there(table: Table) -> None:
    """What cannot be known without: the attempt is called refuted, though it landed once."""
    attempt = landed_and_replaced(table)
    append(table, rows(5))  # after two more commits no snapshot of the metadata has seen the attempt
    append(table, rows(6))
    expire_snapshots(table)
    assert attempt.snapshot_id not in status_check._mentioned(loaded(table).metadata)
    assert traced(table, attempt) == Trace.LANDED

    with (
        storage_faults(),
        failing(StorageFault(Operation.READ, Kind.METADATA, Trouble.BUSY, skip=1)),  # the first is the newest
        pytest.raises(CatalogUnavailable, match="HTTP status 503"),
    ):
        traced(table, attempt)

    forget_states(table)
    assert traced(table, attempt) == Trace.REFUTED


def test_in_format_1_an_attempt_is_refuted_by_an_earlier_state_that_knows_the_expired_parent(tmp_path: Path) -> None:
    """It was never applied: main was rolled back from its parent. Without that state it could be from before it."""
    table = make_table(make_catalog(tmp_path), "db.first", SCHEMA, format_version=1)
    append(table, rows(1, 2))
    first = table.metadata.current_snapshot_id
    assert first is not None
    append(table, rows(3, 4))
    parent = table.metadata.current_snapshot_id
    _, attempt = staged(table, rewritten(table))
    rollback(table, first)
    append(table, rows(5))
    expire_snapshots(table)
    assert parent not in status_check._mentioned(loaded(table).metadata)
    assert traced(table, attempt) == Trace.REFUTED

    forget_states(table)
    assert traced(table, attempt) == Trace.OPEN


def test_an_attempt_at_which_the_numbers_stopped_is_known_by_the_metadata_file_before(table: Table) -> None:
    """It landed; main was moved back and the snapshot expired, which takes no sequence number."""
    base = table.metadata.current_snapshot_id
    assert base is not None
    fresh, attempt = staged(table, rewritten(table))
    committing.send(fresh.catalog, fresh, attempt.payload)
    rollback(table, base)
    expire_snapshots(table, [attempt.snapshot_id])
    metadata = loaded(table).metadata
    assert metadata.last_sequence_number == attempt.sequence_number
    assert attempt.snapshot_id not in {one.snapshot_id for one in metadata.snapshots}
    create_tag(table, "later")

    assert traced(table, attempt) == Trace.LANDED


def test_a_refuted_attempt_is_looked_for_only_in_metadata_files_of_its_time(table: Table) -> None:
    _, attempt = staged(table, rewritten(table))
    append(table, rows(5))
    with storage_faults():
        second = StorageFault(Operation.READ, Kind.METADATA, Trouble.FAILS, skip=1)
        with failing(second), pytest.raises(CatalogUnavailable):
            traced(table, attempt)
        assert second.struck == [loaded(table).metadata.metadata_log[-1].metadata_file]
        third = StorageFault(Operation.READ, Kind.METADATA, Trouble.FAILS, skip=2)
        with failing(third):
            assert traced(table, attempt) == Trace.REFUTED
        assert third.struck == []


# What a table says of a change that was sent: of snapshots, of snapshots that are gone, of references


@pytest.fixture
def parts_table(catalog: SqlCatalog) -> Table:
    made = writer.make_table(catalog, "db.t", PARTS)
    for number in range(3):
        writer.append(made, [row(number)])
    return made.refresh()


def ids(table: Table) -> list[int]:
    return [one.snapshot_id for one in table.metadata.snapshots]


def test_snapshots_are_gone_together_or_may_still_go(parts_table: Table) -> None:
    first, second, _ = ids(parts_table)
    gone = SnapshotsRemoved((first, second))
    assert trace_of(parts_table, gone) is Trace.OPEN
    parts_table.maintenance.expire_snapshots().by_id(first).commit()
    assert trace_of(parts_table.refresh(), gone) is Trace.OPEN
    parts_table.maintenance.expire_snapshots().by_id(second).commit()
    assert trace_of(parts_table.refresh(), gone) is Trace.LANDED


def test_what_a_reference_that_is_there_was_there_or_is_not_says(parts_table: Table) -> None:
    """What somebody took away is not made again."""
    first, second, _ = ids(parts_table)
    wanted = RefAt("t", first)
    assert trace_of(parts_table, wanted) is Trace.OPEN
    parts_table.manage_snapshots().create_tag(first, "t").commit()
    state = Path(local_path(parts_table.refresh().metadata_location))
    assert trace_of(parts_table, wanted) is Trace.LANDED
    assert trace_of(parts_table, RefAt("t", second)) is Trace.REFUTED, "it can't be made any more"
    parts_table.manage_snapshots().remove_tag("t").commit()
    assert trace_of(parts_table.refresh(), wanted) is Trace.LANDED
    state.unlink()
    assert trace_of(parts_table, wanted) is Trace.OPEN, "an earlier state that is gone says nothing"
    parts_table.maintenance.expire_snapshots().by_id(first).commit()
    assert trace_of(parts_table.refresh(), wanted) is Trace.REFUTED, "its snapshot is gone"


def named(table: Table, snapshot_id: int, path: str) -> None:
    file = StatisticsFile(
        snapshot_id=snapshot_id,
        statistics_path=path,
        file_size_in_bytes=1,
        file_footer_size_in_bytes=1,
        blob_metadata=[],
    )
    with table.update_statistics() as change:
        change.set_statistics(file)
    table.refresh()


def test_statistics_have_landed_while_or_after_they_were_named(parts_table: Table) -> None:
    first, second, _ = ids(parts_table)
    wanted = StatisticsNamed(first, ("file:/a.stats",))
    assert trace_of(parts_table, wanted) is Trace.OPEN
    named(parts_table, first, "file:/a.stats")
    assert trace_of(parts_table, wanted) is Trace.LANDED
    assert trace_of(parts_table, StatisticsNamed(first, ("file:/a.stats", "file:/b.parquet"))) is Trace.OPEN
    named(parts_table, first, "file:/others.stats")
    assert trace_of(parts_table, wanted) is Trace.LANDED, "somebody has replaced them since"
    never = StatisticsNamed(second, ("file:/c.stats",))
    assert trace_of(parts_table, never) is Trace.OPEN
    parts_table.maintenance.expire_snapshots().by_id(second).commit()
    assert trace_of(parts_table.refresh(), never) is Trace.REFUTED


def test_statistics_are_gone_once_none_is_named(parts_table: Table) -> None:
    first, *_ = ids(parts_table)
    gone = StatisticsRemoved(first, ("file:/a.stats",))
    named(parts_table, first, "file:/a.stats")
    assert trace_of(parts_table, gone) is Trace.OPEN
    with parts_table.update_statistics() as change:
        change.remove_statistics(first)
    assert trace_of(parts_table.refresh(), gone) is Trace.LANDED


# Summaries of snapshots, which hold whatever their writers put there


def test_values_that_are_no_texts_are_shown_as_texts_and_nothing_is_no_value(catalog: SqlCatalog) -> None:
    table = make_table(catalog, "db.t", PARTS)
    append(table, [row(1)])
    summary = {"operation": "append", "a": 7, "b": None, "c": [1], "d": "x"}
    (facts,) = snapshot_facts(changed(table.refresh(), lambda one: one["snapshots"][0].update({"summary": summary})))
    assert facts.summary == {"a": "7", "c": "[1]", "d": "x"}


@pytest.mark.parametrize("total", ["²", "many", "-1", "9" * 19, "9" * 5_000])
def test_a_total_that_is_no_count_is_not_carried_on(catalog: SqlCatalog, total: str) -> None:
    table = make_table(catalog, "db.t", PARTS)
    append(table, [row(1)])
    append(table, [row(2)])

    def claim(metadata: dict[str, Any]) -> None:
        for snapshot in metadata["snapshots"]:
            snapshot["summary"] |= {"total-records": total, "total-data-files": "2"}

    change_metadata(table, claim)
    table.refresh()
    optimized(table, rewritten(table))
    head = current(table)
    assert (head.summary["total-data-files"], "total-records" in head.summary.additional_properties) == ("1", False)
