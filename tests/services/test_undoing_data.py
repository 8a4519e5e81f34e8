"""Taking back an expiry of data: its rows come back, but for those that somebody has deleted since."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pyiceberg.table import Table

from amoro_core.errors import CannotUndo
from amoro_core.model.processes import ProcessStatus
from tests.engine import oracle, writer
from tests.engine.aging import aged
from tests.services.test_expiring_data import expire, fill, ids, make, record
from tests.services.world import World

KEEP_S = timedelta(days=7).total_seconds()


@pytest.fixture
def table(world: World) -> Table:
    """Of the rows 1 to 4 the first has expired, and a row beside it had been deleted by key before."""
    made = make(world)
    fill(made, ((1, "2022-01-01T12:00"), (5, "2022-01-01T13:00"), (6, "2022-01-01T14:00")), each=True)
    fill(made, ((2, "2022-01-03T12:00"), (3, "2022-01-02T12:00"), (4, "2022-01-02T19:00")))
    writer.row_delta(made, equality_deletes=[writer.EqualityDelete(["id"], [record(made, 5, "2022-01-01T13:00")])])
    assert ids(made) == [1, 2, 3, 4, 6]
    return made


def undo(world: World, process_id: str) -> None:
    begun = world.maintaining.undo(process_id)
    status = world.committing.commit(begun.process_id)
    assert status is ProcessStatus.SUCCESS, world.optimizing.find_process(begun.process_id).process.failure


def test_rows_come_back_without_those_that_were_deleted_before_or_since(world: World, table: Table) -> None:
    files = {one.path for one in oracle.live_files(table)}
    process_id = expire(world)
    assert ids(table.refresh()) == [2, 3, 4]
    fill(table, ((9, "2022-01-03T12:00"),))
    writer.row_delta(table, equality_deletes=[writer.EqualityDelete(["id"], [record(table, 6, "2022-01-01T14:00")])])
    plan = world.maintaining.preview_undo(process_id).plan
    assert plan is not None
    assert (plan.document["operation"], plan.document["data_files_restored"]) == ("overwrite", 3)
    undo(world, process_id)
    assert ids(table.refresh()) == [1, 2, 3, 4, 9]
    assert files <= {one.path for one in oracle.live_files(table)}
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation.value == "overwrite"


def test_after_its_time_it_is_refused(world: World, table: Table) -> None:
    process_id = expire(world)
    world.later(KEEP_S)
    assert world.maintaining.preview_undo(process_id).plan is not None
    world.later(1)
    with pytest.raises(CannotUndo, match=r"it can't be undone after 7 days \(maintenance.undo.keep\)"):
        world.maintaining.undo(process_id)
    with table.transaction() as change:
        change.set_properties({"maintenance.undo.keep": "8d"})
    undo(world, process_id)
    assert ids(table.refresh()) == [1, 2, 3, 4, 6]


def test_what_it_was_based_on_outlives_an_expiry_of_snapshots_until_then(world: World, table: Table) -> None:
    with table.transaction() as change:
        change.set_properties({"snapshot.keep.duration": "1d", "maintenance.expire-snapshots.trash-keep": "0"})
    process_id = expire(world)
    receipt = world.optimizing.find_process(process_id).process.receipt
    assert receipt is not None
    fill(table, ((9, "2022-01-03T12:00"),))
    aged(table, 3000)  # the clock of these tests stands in 2022

    def expire_snapshots(seconds: float) -> dict[str, object]:
        world.later(seconds)
        begun = world.maintaining.begin(world.table().table_id, "expire-snapshots", trigger="request")
        assert begun.plan is not None
        world.committing.commit(begun.process_id)
        return dict(begun.plan.document)

    kept = expire_snapshots(KEEP_S)["kept_snapshots"]
    assert receipt.base_snapshot_id in {one.snapshot_id for one in table.refresh().metadata.snapshots}
    assert f"undo of {process_id}" in str(kept)
    expire_snapshots(1)
    assert receipt.base_snapshot_id not in {one.snapshot_id for one in table.refresh().metadata.snapshots}
