"""What a table says of a change that was sent: of snapshots, of snapshots that are gone, of references."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from amoro_core.iceberg.evidence import trace_of
from amoro_core.model.commits import RefAt, SnapshotAdded, SnapshotsGone, StatisticsGone, StatisticsNamed, Trace
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.engine.parquet_rows import local_path


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    made = writer.make_catalog(tmp_path)
    yield made
    made.close()


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    made = writer.make_table(catalog, "db.t", SCHEMA)
    for number in range(3):
        writer.append(made, [row(number)])
    return made.refresh()


def ids(table: Table) -> list[int]:
    return [one.snapshot_id for one in table.metadata.snapshots]


def test_a_snapshot_that_is_known_has_landed(table: Table) -> None:
    _, second, last = table.metadata.snapshots
    assert trace_of(table, SnapshotAdded(last.snapshot_id, second.snapshot_id, 3)) is Trace.LANDED
    assert trace_of(table, SnapshotAdded(7, second.snapshot_id, 3)) is Trace.REFUTED
    assert trace_of(table, SnapshotAdded(7, last.snapshot_id, 4)) is Trace.OPEN


def test_snapshots_are_gone_together_or_may_still_go(table: Table) -> None:
    first, second, _ = ids(table)
    gone = SnapshotsGone((first, second))
    assert trace_of(table, gone) is Trace.OPEN
    table.maintenance.expire_snapshots().by_id(first).commit()
    assert trace_of(table.refresh(), gone) is Trace.OPEN
    table.maintenance.expire_snapshots().by_id(second).commit()
    assert trace_of(table.refresh(), gone) is Trace.LANDED


def test_a_reference_that_is_there_has_landed_and_one_that_is_not_may_still_come(table: Table) -> None:
    first, second, _ = ids(table)
    wanted = RefAt("tag-20260101", first)
    assert trace_of(table, wanted) is Trace.OPEN
    table.manage_snapshots().create_tag(first, "tag-20260101").commit()
    assert trace_of(table.refresh(), wanted) is Trace.LANDED
    assert trace_of(table, RefAt("tag-20260101", second)) is Trace.REFUTED, "it can't be made any more"


def test_a_reference_that_was_there_and_was_removed_has_landed(table: Table) -> None:
    """Or what somebody took away would be made again."""
    first, *_ = ids(table)
    table.manage_snapshots().create_tag(first, "t").commit()
    table.refresh().manage_snapshots().remove_tag("t").commit()
    assert trace_of(table.refresh(), RefAt("t", first)) is Trace.LANDED


def test_a_reference_to_a_snapshot_that_is_gone_can_never_come(table: Table) -> None:
    first, *_ = ids(table)
    table.maintenance.expire_snapshots().by_id(first).commit()
    assert trace_of(table.refresh(), RefAt("t", first)) is Trace.REFUTED


def test_an_earlier_state_that_is_gone_says_nothing(table: Table) -> None:
    first, *_ = ids(table)
    table.manage_snapshots().create_tag(first, "t").commit()
    state = Path(local_path(table.refresh().metadata_location))
    table.manage_snapshots().remove_tag("t").commit()
    state.unlink()
    assert trace_of(table.refresh(), RefAt("t", first)) is Trace.OPEN


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


def test_statistics_have_landed_while_or_after_they_were_named(table: Table) -> None:
    first, second, _ = ids(table)
    wanted = StatisticsNamed(first, ("file:/a.stats",))
    assert trace_of(table, wanted) is Trace.OPEN
    named(table, first, "file:/a.stats")
    assert trace_of(table, wanted) is Trace.LANDED
    assert trace_of(table, StatisticsNamed(first, ("file:/a.stats", "file:/b.parquet"))) is Trace.OPEN
    named(table, first, "file:/others.stats")
    assert trace_of(table, wanted) is Trace.LANDED, "somebody has replaced them since"
    never = StatisticsNamed(second, ("file:/c.stats",))
    assert trace_of(table, never) is Trace.OPEN
    table.maintenance.expire_snapshots().by_id(second).commit()
    assert trace_of(table.refresh(), never) is Trace.REFUTED


def test_statistics_are_gone_once_none_is_named(table: Table) -> None:
    first, *_ = ids(table)
    gone = StatisticsGone(first, ("file:/a.stats",))
    named(table, first, "file:/a.stats")
    assert trace_of(table, gone) is Trace.OPEN
    with table.update_statistics() as change:
        change.remove_statistics(first)
    assert trace_of(table.refresh(), gone) is Trace.LANDED
