"""An attempt whose answer was lost, whose outputs others rewrote, and whose snapshot was expired: what still tells."""

from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from amoro_core.errors import CatalogUnavailable
from amoro_core.iceberg import commit, tracing
from amoro_core.model.commits import StagedCommit, Trace
from tests.engine.oracle import live_files
from tests.engine.writer import append, create_tag, expire_snapshots, make_catalog, make_table, remove_files, rollback
from tests.faults.storage import Kind, Operation, StorageFault, Trouble, failing, storage_faults
from tests.iceberg.rewriting import loaded, rewritten, staged
from tests.iceberg.test_commit import SCHEMA, rows, traced


@pytest.fixture
def table(tmp_path: Path) -> Table:
    catalog: SqlCatalog = make_catalog(tmp_path)
    made = make_table(catalog, "db.t", SCHEMA)
    append(made, rows(1, 2))
    append(made, rows(3, 4))
    return made


def landed_and_replaced(table: Table) -> StagedCommit:
    """An attempt that landed, and whose only output another engine has removed with its next commit."""
    fresh, attempt = staged(table, rewritten(table))
    before = {file.path for file in live_files(table)}
    commit.send(fresh.catalog, fresh, attempt.payload)
    outputs = {file.path for file in live_files(table)} - before
    assert len(outputs) == 1
    remove_files(table, outputs)
    return attempt


def without_log(table: Table) -> Table:
    """The table as it is now, of whose earlier states nothing tells."""
    found = loaded(table)
    found.metadata = found.metadata.model_copy(update={"metadata_log": []})
    return found


def test_an_expired_attempt_is_known_as_the_parent_of_the_next(table: Table) -> None:
    """Java's expiry leaves the parent's id as it is; pyiceberg's takes it away, so here it is put back."""
    attempt = landed_and_replaced(table)
    expire_snapshots(table)
    found = without_log(table)
    (last,) = found.metadata.snapshots
    before = commit.trace(found, attempt.snapshot_id, attempt.sequence_number, [])
    child = last.model_copy(update={"parent_snapshot_id": attempt.snapshot_id})
    found.metadata = found.metadata.model_copy(update={"snapshots": [child]})

    assert before == Trace.REFUTED
    assert commit.trace(found, attempt.snapshot_id, attempt.sequence_number, []) == Trace.LANDED


def test_an_expired_attempt_is_known_by_removed_files(table: Table) -> None:
    attempt = landed_and_replaced(table)
    expire_snapshots(table)
    found = without_log(table)
    assert attempt.snapshot_id not in {one.snapshot_id for one in found.metadata.snapshots}

    assert traced(table, attempt, found) == Trace.LANDED


def forget(table: Table) -> None:
    """Two more commits, after which no snapshot of the metadata has seen the attempt."""
    append(table, rows(5))
    append(table, rows(6))
    expire_snapshots(table)


def test_an_expired_attempt_is_known_by_an_earlier_metadata_file(table: Table) -> None:
    attempt = landed_and_replaced(table)
    forget(table)
    metadata = loaded(table).metadata
    assert attempt.snapshot_id not in tracing._known(metadata)

    assert traced(table, attempt) == Trace.LANDED


def test_metadata_files_that_are_gone_tell_nothing(table: Table) -> None:
    """What cannot be known: the attempt is called refuted, though it landed once."""
    attempt = landed_and_replaced(table)
    forget(table)
    for entry in loaded(table).metadata.metadata_log:
        Path(entry.metadata_file.removeprefix("file://")).unlink()

    assert traced(table, attempt) == Trace.REFUTED


def test_an_attempt_at_which_the_numbers_stopped_is_known_by_the_metadata_file_before(table: Table) -> None:
    """It landed; main was moved back and the snapshot expired, which takes no sequence number."""
    base = table.metadata.current_snapshot_id
    assert base is not None
    fresh, attempt = staged(table, rewritten(table))
    commit.send(fresh.catalog, fresh, attempt.payload)
    rollback(table, base)
    expire_snapshots(table, [attempt.snapshot_id])
    metadata = loaded(table).metadata
    assert metadata.last_sequence_number == attempt.sequence_number
    assert attempt.snapshot_id not in {one.snapshot_id for one in metadata.snapshots}
    create_tag(table, "later")

    assert traced(table, attempt) == Trace.LANDED


def left_behind(tmp_path: Path) -> tuple[Table, StagedCommit]:
    """An attempt in format 1 that was never applied: main was rolled back from its parent, which then was expired."""
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
    assert parent not in tracing._known(loaded(table).metadata)
    return table, attempt


def test_in_format_1_an_attempt_is_refuted_by_an_earlier_state_that_knows_the_expired_parent(tmp_path: Path) -> None:
    table, attempt = left_behind(tmp_path)
    assert traced(table, attempt) == Trace.REFUTED


def test_in_format_1_an_attempt_stays_open_where_nothing_knows_the_parent(tmp_path: Path) -> None:
    """A state like this could as well be from before the parent."""
    table, attempt = left_behind(tmp_path)
    for entry in loaded(table).metadata.metadata_log:
        Path(entry.metadata_file.removeprefix("file://")).unlink()
    assert traced(table, attempt) == Trace.OPEN


def test_a_metadata_file_that_can_not_be_read_now_leaves_the_attempt_as_it_is(table: Table) -> None:
    attempt = landed_and_replaced(table)
    forget(table)

    with (
        storage_faults(),
        failing(StorageFault(Operation.READ, Kind.METADATA, Trouble.BUSY, skip=1)),  # the first is the newest
        pytest.raises(CatalogUnavailable, match="HTTP status 503"),
    ):
        traced(table, attempt)


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
