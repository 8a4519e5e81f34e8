"""Taking back tags, statistics, expiry and orphan cleaning: as they were made, while their files are there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from amoro_core.errors import CannotUndo
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.model.maintenance import Options
from amoro_core.model.processes import ProcessStatus, Receipt
from amoro_core.model.stored import Ended, Removal
from amoro_core.store import condemned
from amoro_core.store.condemned import BatchStatus
from tests.engine import oracle, writer
from tests.engine.aging import aged, wait_for_one_day
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.parquet_rows import local_path
from tests.engine.values import rows_of
from tests.services.world import World

SEND = IcebergTable.send
DAYS_S = timedelta(days=3).total_seconds()


@pytest.fixture(params=[1, 2])
def table(world: World, request: pytest.FixtureRequest) -> Table:
    """Four snapshots of a month ago, of which the last replaced a file."""
    wait_for_one_day()
    made = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART, request.param)
    for number in range(3):
        writer.append(made, [row(number), row(number + 10, "b")])
    writer.copy_on_write(made, lambda item: item["id"] == 0)
    world.now = datetime.now(UTC) + timedelta(seconds=1)
    return aged(made, 30)


def run(world: World, name: str, **options: Any) -> str:
    begun = world.maintaining.begin(world.table().table_id, name, trigger="request", options=Options(**options))
    assert begun.process_id, begun.reason
    assert world.committing.commit(begun.process_id) is ProcessStatus.SUCCESS
    return begun.process_id


def undo(world: World, process_id: str) -> Receipt:
    begun = world.maintaining.undo(process_id)
    status = world.committing.commit(begun.process_id)
    process = world.optimizing.find_process(begun.process_id).process
    assert status is ProcessStatus.SUCCESS, process.failure
    assert process.receipt is not None
    # An undo is nothing that the clock begins.
    assert process.action not in {action for _, action, _ in world.maintaining.list_due()}
    return process.receipt


def statuses(world: World, process_id: str) -> set[BatchStatus]:
    every = tuple(BatchStatus)
    known = world.store.read(lambda db: condemned.list_facts(db, process_id=process_id, statuses=every))
    return {one.status for one in known}


def refs(table: Table) -> dict[str, int]:
    return {name: ref.snapshot_id for name, ref in table.refresh().metadata.refs.items() if name != "main"}


# Tags


def tagged(world: World, table: Table) -> str:
    with table.transaction() as change:
        change.set_properties({"tag.auto-create.trigger.max-delay.minutes": "0"})
    writer.append(table, [row(50)])
    return run(world, "auto-create-tags")


def test_a_tag_goes_as_it_was_made(world: World, table: Table) -> None:
    process_id = tagged(world, table)
    ((name, snapshot_id),) = refs(table).items()
    plan = world.maintaining.preview_undo(process_id).plan
    assert plan is not None
    assert (plan.document["removed_tag"], plan.document["snapshot_id"]) == (name, snapshot_id)
    assert refs(table)
    assert undo(world, process_id).words == f"removed tag {name}"
    assert refs(table) == {}
    with pytest.raises(CannotUndo, match=f"tag {name} is not there any more; process .* took it back$"):
        world.maintaining.undo(process_id)


def test_a_tag_that_was_moved_stays(world: World, table: Table) -> None:
    process_id = tagged(world, table)
    ((name, _),) = refs(table).items()
    begun = world.maintaining.undo(process_id)
    other = table.metadata.snapshots[0].snapshot_id
    table.manage_snapshots().remove_tag(name).create_tag(other, name).commit()
    with pytest.raises(CannotUndo, match=f"tag {name} points at snapshot {other} by now"):
        world.maintaining.preview_undo(process_id)
    assert world.committing.commit(begun.process_id) is ProcessStatus.FAILED
    assert refs(table) == {name: other}


# Statistics


def test_statistics_go_as_they_were_made_and_their_files_later(world: World, table: Table) -> None:
    process_id = run(world, "compute-statistics")
    metadata = table.refresh().metadata
    paths = {one.statistics_path for one in (*metadata.statistics, *metadata.partition_statistics)}
    assert len(paths) == 2
    begun = world.maintaining.undo(process_id)
    world.committing.commit(begun.process_id)
    metadata = table.refresh().metadata
    assert [*metadata.statistics, *metadata.partition_statistics] == []
    kept = world.store.read(lambda db: condemned.paths(db, world.table().table_id))
    assert kept == paths
    with pytest.raises(CannotUndo, match="were replaced or removed"):
        world.maintaining.undo(process_id)


@pytest.mark.parametrize("arrives", [True, False])
def test_an_unknown_removal_of_statistics_is_traced(world: World, table: Table, arrives: bool) -> None:
    begun = world.maintaining.undo(run(world, "compute-statistics"))
    world.iceberg.lose_answers(arrives=arrives)
    assert world.committing.commit(begun.process_id) is ProcessStatus.COMMIT_UNKNOWN
    world.iceberg.restore()
    assert world.committing.commit(begun.process_id) is ProcessStatus.SUCCESS
    assert table.refresh().metadata.statistics == []


# Expiry


def expired(world: World, table: Table) -> tuple[str, dict[int, Any]]:
    """An expiry of all but the head, and the rows of each snapshot that went."""
    rows = {one.snapshot_id: oracle.live_rows(table, one.snapshot_id) for one in table.refresh().metadata.snapshots}
    process_id = run(world, "expire-snapshots")
    left = {one.snapshot_id for one in table.refresh().metadata.snapshots}
    gone = {snapshot_id: found for snapshot_id, found in rows.items() if snapshot_id not in left}
    assert (len(left), len(gone)) == (1, 3)
    return process_id, gone


def test_expired_snapshots_come_back_under_tags_and_nothing_of_them_is_deleted(world: World, table: Table) -> None:
    process_id, gone = expired(world, table)
    head = table.metadata.current_snapshot_id
    assert statuses(world, process_id) == {BatchStatus.WAITING}
    writer.append(table, [row(77)])
    receipt = undo(world, process_id)
    assert [(figure.name, figure.value) for figure in receipt.figures] == [("snapshots_restored", 3)]
    assert statuses(world, process_id) == {BatchStatus.RESTORED}
    found = refs(table)
    assert found.keys() == {f"restored-{snapshot_id}" for snapshot_id in gone}
    assert not set(found.values()) & gone.keys()
    for snapshot_id, rows in gone.items():
        assert oracle.live_rows(table, found[f"restored-{snapshot_id}"]) == rows
        read = table.refresh().scan(snapshot_id=found[f"restored-{snapshot_id}"]).to_arrow().to_pylist()
        assert rows_of(table.schema(), read) == rows
    assert table.metadata.current_snapshot_id != head
    world.later(DAYS_S)
    emptied = world.maintaining.begin(world.table().table_id, "empty-trash", trigger="request")
    assert emptied.process_id == "", "nothing is condemned any more"
    with pytest.raises(CannotUndo, match="has a branch or tag restored-"):
        world.maintaining.undo(process_id)


def test_an_expiry_can_t_be_undone_once_its_files_are_deleted(world: World, table: Table) -> None:
    process_id, _ = expired(world, table)
    world.later(DAYS_S)
    run(world, "empty-trash")
    with pytest.raises(CannotUndo, match="files of its snapshots are being deleted"):
        world.maintaining.undo(process_id)
    assert refs(table) == {}


def test_nor_while_they_are_in_the_trash_but_when_they_were_restored(world: World, table: Table) -> None:
    with table.transaction() as change:
        change.set_properties({"table-trash.enabled": "true"})
    process_id, gone = expired(world, table)
    world.later(DAYS_S)
    run(world, "empty-trash")
    with pytest.raises(CannotUndo, match="moved to a trash, from which `amoro trash restore` brings them back"):
        world.maintaining.undo(process_id)
    world.trash.restore(process_id)
    undo(world, process_id)
    found = refs(table)
    assert {one: oracle.live_rows(table, found[f"restored-{one}"]) for one in gone} == gone


def test_nor_when_somebody_else_has_deleted_one(world: World, table: Table) -> None:
    process_id, _ = expired(world, table)
    begun = world.maintaining.undo(process_id)
    paths = sorted(world.store.read(lambda db: condemned.paths(db, world.table().table_id)))
    data = next(path for path in paths if path.endswith(".parquet"))
    Path(local_path(data)).unlink()
    with pytest.raises(CannotUndo, match="was deleted"):
        world.maintaining.preview_undo(process_id)
    assert world.committing.commit(begun.process_id) is ProcessStatus.FAILED
    assert refs(table) == {}
    assert statuses(world, process_id) == {BatchStatus.WAITING}, "what did not come back is condemned still"


def two_expiries(world: World, table: Table) -> tuple[str, str, int]:
    """The first snapshot expired alone, then the others, with which went the file that the last one replaced."""
    first = table.metadata.snapshots[0].snapshot_id
    processes = run(world, "expire-snapshots", retain_last=3), run(world, "expire-snapshots")
    own = [world.store.read(lambda db, of=one: condemned.paths_of_others(db, 1, of)) for one in processes]
    assert not any(path.endswith(".parquet") for path in own[1])
    assert any(path.endswith(".parquet") for path in own[0])
    return *processes, first


def test_what_another_expiry_has_condemned_since_comes_back_too(world: World, table: Table) -> None:
    rows = oracle.live_rows(table, table.metadata.snapshots[0].snapshot_id)
    process_id, later, first = two_expiries(world, table)
    undo(world, process_id)
    assert statuses(world, later) == {BatchStatus.WAITING, BatchStatus.RESTORED}
    world.later(DAYS_S)
    run(world, "empty-trash")
    assert world.sweeping.guard_hits == 0
    assert oracle.live_rows(table, refs(table)[f"restored-{first}"]) == rows


def test_a_later_expiry_can_be_undone_as_well(world: World, table: Table) -> None:
    rows = {one.snapshot_id: oracle.live_rows(table, one.snapshot_id) for one in table.metadata.snapshots}
    process_id, later, _ = two_expiries(world, table)
    undo(world, process_id)
    undo(world, later)
    assert {name: oracle.live_rows(table, at) for name, at in refs(table).items()} == {
        f"restored-{snapshot_id}": rows[snapshot_id] for snapshot_id in list(rows)[:-1]
    }


def test_an_expiry_can_t_be_undone_once_another_s_files_are_being_deleted(world: World, table: Table) -> None:
    process_id, later, _ = two_expiries(world, table)
    world.store.write(lambda db: condemned.make_due(db, 1, world.now, later))

    def fail(self: IcebergTable, paths: Iterable[str]) -> Mapping[str, Removal]:
        return {path: Removal(Ended.FAILED, "503") for path in paths}

    world.iceberg.table(delete_many=fail)
    run(world, "empty-trash")
    assert (statuses(world, process_id), statuses(world, later)) == ({BatchStatus.WAITING}, {BatchStatus.DELETING})
    with pytest.raises(CannotUndo, match="files of its snapshots are being deleted"):
        world.maintaining.undo(process_id)
    assert refs(table) == {}


@pytest.mark.parametrize("arrives", [True, False])
def test_an_unknown_return_is_traced_and_lands_once(world: World, table: Table, arrives: bool) -> None:
    process_id, gone = expired(world, table)
    begun = world.maintaining.undo(process_id)
    world.iceberg.lose_answers(arrives=arrives)
    assert world.committing.commit(begun.process_id) is ProcessStatus.COMMIT_UNKNOWN
    world.iceberg.restore()
    world.restart()
    assert world.committing.commit(begun.process_id) is ProcessStatus.SUCCESS
    assert len(refs(table)) == len(gone)
    assert statuses(world, process_id) == {BatchStatus.RESTORED}


# Orphans


def orphaned(world: World, table: Table) -> tuple[str, Path]:
    orphan = Path(local_path(table.location())) / "data" / "orphan.parquet"
    orphan.write_bytes(b"nobody names it")
    old = (datetime.now(UTC) - timedelta(days=30)).timestamp()
    os.utime(orphan, (old, old))
    return run(world, "clean-orphan-files"), orphan


def test_orphans_stay_when_their_cleaning_is_undone(world: World, table: Table) -> None:
    process_id, orphan = orphaned(world, table)
    assert statuses(world, process_id) == {BatchStatus.WAITING}
    receipt = undo(world, process_id)
    assert receipt.words == "1 files are condemned no more"
    assert statuses(world, process_id) == {BatchStatus.RESTORED}
    world.later(timedelta(days=30).total_seconds())
    assert world.maintaining.begin(world.table().table_id, "empty-trash", trigger="request").process_id == ""
    assert orphan.exists()


def test_orphans_that_were_deleted_stay_deleted(world: World, table: Table) -> None:
    process_id, orphan = orphaned(world, table)
    world.later(timedelta(days=30).total_seconds())
    run(world, "empty-trash")
    assert not orphan.exists()
    with pytest.raises(CannotUndo, match="none of its files is condemned any more"):
        world.maintaining.undo(process_id)


@pytest.mark.parametrize("name", ["clean-dangling-delete-files", "rewrite-manifests"])
def test_what_changes_no_row_has_no_undo(world: World, name: str) -> None:
    made = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART)
    for number in range(3):
        writer.append(made, [row(number), row(number + 10, "b")])
    writer.delete_where(made, lambda item: item["id"] == 0)
    data = [one.path for one in oracle.live_files(made) if one.content == 0 and "part=a" in one.path]
    writer.remove_files(made, data)
    process_id = run(world, name)
    with pytest.raises(CannotUndo, match=f"{process_id} can't be undone: {name} has no undo"):
        world.maintaining.undo(process_id)
