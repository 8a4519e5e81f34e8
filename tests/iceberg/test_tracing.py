"""What a table still says of a change that was sent, whatever others did since."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from amoro_core.errors import CatalogUnavailable
from amoro_core.iceberg.commit import committing, status_check
from amoro_core.iceberg.commit.committing import trace_of
from amoro_core.iceberg.metadata import snapshot_facts
from amoro_core.model.commits import RefAt, SnapshotsRemoved, StagedCommit, StatisticsNamed, StatisticsRemoved, Trace
from tests.engine import writer
from tests.engine.builders import SCHEMA as PARTS
from tests.engine.builders import row
from tests.engine.oracle import live_files
from tests.engine.parquet_rows import local_path
from tests.engine.writer import append, create_tag, expire_snapshots, make_catalog, make_table, remove_files, rollback
from tests.faults.storage import Kind, Operation, StorageFault, Trouble, failing, storage_faults
from tests.iceberg.rewriting import current, loaded, optimized, rewritten, staged
from tests.iceberg.scenarios import SCHEMA, change_metadata, changed, rows
from tests.iceberg.test_commit import traced


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
