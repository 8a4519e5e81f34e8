"""Taking back a rewrite, an expiry, a cleaning, tags, statistics: as they were, and what others did since stays."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from amoro_core.errors import CannotUndo, ProcessNotFound
from amoro_core.model.processes import ProcessStatus, Receipt
from amoro_core.model.tables import OptimizingType
from amoro_core.store import pending_deletions
from amoro_core.store.pending_deletions import BatchStatus
from tests.engine import oracle, writer, writer3
from tests.engine.aging import aged, wait_for_one_day
from tests.engine.builders import BY_PART, SCHEMA, SPECS, row
from tests.engine.oracle import lineage_of
from tests.engine.parquet_rows import local_path
from tests.engine.values import rows_of
from tests.services import test_expiring_data as expiring
from tests.services.rigs import not_removed
from tests.services.test_expiring_data import expire, fill, ids, make, record
from tests.services.test_format_3 import eight_files
from tests.services.world import World
from tests.tiers import sample

MINOR, MAJOR, FULL = OptimizingType.MINOR, OptimizingType.MAJOR, OptimizingType.FULL
SEGMENTS = {"self-optimizing.target-size": "4000", "self-optimizing.major.trigger.duplicate-ratio": "1.0"}


@pytest.fixture(params=["unpartitioned", "partitioned"])
def table(world: World, request: pytest.FixtureRequest) -> Table:
    return upserted(world, request.param)


def upserted(world: World, spec: str = "partitioned", properties: dict[str, str] | None = None) -> Table:
    """Two partitions of small files with equality and position deletes."""
    made = writer.make_table(world.catalog, "db.t", SCHEMA, SPECS[spec], properties=properties)
    for number in range(4):
        writer.append(made, [row(number, "a"), row(number + 100, "b")])
    writer.upsert(made, [row(1, "a", "new"), row(101, "b", "new")], ["id"])
    writer.delete_where(made, lambda item: item["id"] == 2)
    return made.refresh()


Files = Counter[tuple[str, int, int]]


def files_of(table: Table) -> Files:
    """Path, content and sequence number of each live file."""
    table.refresh()
    return Counter((one.path, one.content, one.data_sequence) for one in oracle.live_files(table))


def undo(world: World, process_id: str) -> Receipt:
    begun = world.maintaining.undo(process_id)
    assert begun.process_id, begun.reason
    process_id = begun.process_id
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS, world.process(process_id).failure
    # An undo is nothing that the clock begins.
    assert world.process(process_id).action not in {action for _, action, _ in world.maintaining.list_due()}
    return world.receipt(process_id)


@pytest.mark.parametrize(
    ("spec", "properties", "kind"),
    [
        ("unpartitioned", None, MINOR),
        ("unpartitioned", None, FULL),
        ("partitioned", None, MINOR),
        ("partitioned", SEGMENTS, MINOR),
    ],
    ids=["minor", "full", "partitioned", "equality deletes that were converted"],
)
def test_files_and_deletes_come_back_with_their_sequence_numbers(
    world: World, spec: str, properties: dict[str, str] | None, kind: OptimizingType
) -> None:
    table = upserted(world, spec, properties)
    before, rows = files_of(table), oracle.live_rows(table)
    process_id = world.optimized(kind)
    after, done = files_of(table), world.receipt(process_id)
    assert {content for _, content, _ in after} == ({0, 1} if properties else {0})
    plan = world.maintaining.preview_undo(process_id).plan
    assert plan.reason == f"undoes process {process_id} ({kind.value})"
    assert plan.document == {
        "process_id": process_id,
        "type": kind.value,
        "operation": "replace",
        "data_files_removed": done.data_files_after,
        "delete_files_removed": done.delete_files_after,
        "data_files_restored": done.data_files_before,
        "delete_files_restored": done.delete_files_before,
        "bytes_restored": done.bytes_before,
    }
    assert files_of(table) == after != before
    receipt = undo(world, process_id)
    assert (files_of(table), oracle.live_rows(table)) == (before, rows)
    snapshot = table.current_snapshot()
    assert (snapshot.summary.operation.value, snapshot.summary["amoro.undoes"]) == ("replace", process_id)
    assert (receipt.snapshot_id, receipt.unequal) == (snapshot.snapshot_id, ())
    assert receipt.rows_after == (0 if properties else rows.total()), "a conversion writes no rows"


SINCE: dict[str, Callable[[Table], object]] = {
    "rows were appended": lambda table: writer.append(table, [row(50, "a"), row(51, "c")]),
    "other rows were upserted": lambda table: writer.upsert(table, [row(50, "a")], ["id"]),
    "rows of the outputs were upserted": lambda table: writer.upsert(table, [row(3, "a", "newest")], ["id"]),
    "rows of new files were deleted": lambda table: (
        writer.append(table, [row(60, "a"), row(61, "a")]),
        writer.delete_where(table, lambda item: item["id"] == 60, per_file=True),
    ),
}


@pytest.mark.parametrize(("since", "kind"), sample([*product(SINCE, [MINOR, FULL])], every=5))
def test_what_others_committed_since_stays(world: World, table: Table, since: str, kind: OptimizingType) -> None:
    process_id = world.optimized(kind)
    outputs = files_of(table)
    SINCE[since](table)
    rows, theirs = oracle.live_rows(table.refresh()), files_of(table) - outputs
    undo(world, process_id)
    assert oracle.live_rows(table.refresh()) == rows
    assert theirs <= files_of(table)


def delete_an_input(table: Table) -> None:
    """A data file that the head's parent has."""
    before = table.refresh().metadata.snapshots[-2].snapshot_id
    file = next(one for one in oracle.live_files(table, before) if one.content == 0)
    Path(local_path(file.path)).unlink()


REFUSED: dict[str, tuple[Callable[[Table], object], str]] = {
    "a row of an output was deleted by position": (
        lambda table: writer.delete_where(table, lambda item: item["id"] == 3),
        "the position delete .* came since and may apply to",
    ),
    "an output was rewritten by somebody": (
        lambda table: writer.copy_on_write(table, lambda item: item["id"] == 3),
        "is no longer live",
    ),
    "main went back": (
        lambda table: writer.rollback(table, table.refresh().metadata.snapshots[-2].snapshot_id),
        "does not descend from its snapshot",
    ),
    "what it was based on has expired": (
        lambda table: writer.expire_snapshots(
            table, [one.snapshot_id for one in table.refresh().metadata.snapshots[:-1]]
        ),
        "has expired, so what it replaced is no longer known",
    ),
    "an input was deleted": (delete_an_input, "does not exist|was deleted"),
}


@pytest.mark.parametrize("case", sample(list(REFUSED), every=4))
def test_what_would_not_be_right_is_refused_by_name(world: World, table: Table, case: str) -> None:
    process_id = world.optimized()
    change, words = REFUSED[case]
    change(table)
    files, rows = files_of(table), oracle.live_rows(table)
    for attempt in (world.maintaining.preview_undo, world.maintaining.undo):
        with pytest.raises(CannotUndo, match=f"(?s){process_id} can't be undone: .*{words}"):
            attempt(process_id)
    assert (files_of(table), oracle.live_rows(table)) == (files, rows)


def test_what_is_undone_can_t_be_undone_again_nor_can_an_undo(world: World, table: Table) -> None:
    process_id = world.optimized()
    begun = world.maintaining.undo(process_id)
    world.committing.commit(begun.process_id)
    with pytest.raises(CannotUndo, match=f"is no longer live.*; process {begun.process_id} undid it$"):
        world.maintaining.undo(process_id)
    with pytest.raises(CannotUndo, match="undo-optimizing has no undo"):
        world.maintaining.undo(begun.process_id)


def test_a_process_that_has_committed_nothing_is_refused(world: World, table: Table) -> None:
    process_id = world.begin(FULL)
    with pytest.raises(CannotUndo, match="has not ended"):
        world.maintaining.undo(process_id)
    world.optimizing.cancel(process_id, "by hand")
    with pytest.raises(CannotUndo, match="has committed nothing"):
        world.maintaining.undo(process_id)
    with pytest.raises(ProcessNotFound):
        world.maintaining.undo("01890000-0000-7000-8000-000000000000")


def test_it_is_validated_again_on_the_head_that_it_is_committed_on(world: World, table: Table) -> None:
    process_id = world.optimized()
    begun = world.maintaining.undo(process_id)
    writer.delete_where(table, lambda item: item["id"] == 3)
    files = files_of(table)
    assert world.committing.commit(begun.process_id) is ProcessStatus.FAILED
    assert "came since and may apply to" in world.process(begun.process_id).failure
    assert files_of(table) == files


# Taking back tags, statistics, expiry and orphan cleaning: as they were made, while their files are there


DAYS_S = timedelta(days=3).total_seconds()


@pytest.fixture(params=[1, 2])
def old_table(world: World, request: pytest.FixtureRequest) -> Table:
    """Four snapshots of a month ago, of which the last replaced a file."""
    wait_for_one_day()
    made = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART, request.param)
    for number in range(3):
        writer.append(made, [row(number), row(number + 10, "b")])
    writer.copy_on_write(made, lambda item: item["id"] == 0)
    world.now = datetime.now(UTC) + timedelta(seconds=1)
    return aged(made, 30)


def statuses(world: World, process_id: str) -> set[BatchStatus]:
    every = tuple(BatchStatus)
    known = world.store.read(lambda db: pending_deletions.list_facts(db, process_id=process_id, statuses=every))
    return {one.status for one in known}


def refs(table: Table) -> dict[str, int]:
    return {name: ref.snapshot_id for name, ref in table.refresh().metadata.refs.items() if name != "main"}


# Tags


def tagged(world: World, table: Table) -> str:
    world.set_properties({"tag.auto-create.trigger.max-delay.minutes": "0"})
    writer.append(table, [row(50)])
    return world.done("auto-create-tags")


def test_a_tag_goes_as_it_was_made(world: World, old_table: Table) -> None:
    process_id = tagged(world, old_table)
    ((name, snapshot_id),) = refs(old_table).items()
    plan = world.maintaining.preview_undo(process_id).plan
    assert (plan.document["removed_tag"], plan.document["snapshot_id"]) == (name, snapshot_id)
    assert refs(old_table)
    assert undo(world, process_id).words == f"removed tag {name}"
    assert refs(old_table) == {}
    with pytest.raises(CannotUndo, match=f"tag {name} no longer exists; process .* undid it$"):
        world.maintaining.undo(process_id)


def test_a_tag_that_was_moved_stays(world: World, old_table: Table) -> None:
    process_id = tagged(world, old_table)
    ((name, _),) = refs(old_table).items()
    begun = world.maintaining.undo(process_id)
    other = old_table.metadata.snapshots[0].snapshot_id
    old_table.manage_snapshots().remove_tag(name).create_tag(other, name).commit()
    with pytest.raises(CannotUndo, match=f"tag {name} now points at snapshot {other}"):
        world.maintaining.preview_undo(process_id)
    assert world.committing.commit(begun.process_id) is ProcessStatus.FAILED
    assert refs(old_table) == {name: other}


# Statistics


def test_statistics_go_as_they_were_made_and_their_files_later(world: World, old_table: Table) -> None:
    process_id = world.done("compute-statistics")
    metadata = old_table.refresh().metadata
    paths = {one.statistics_path for one in (*metadata.statistics, *metadata.partition_statistics)}
    assert len(paths) == 2
    undo(world, process_id)
    metadata = old_table.refresh().metadata
    assert [*metadata.statistics, *metadata.partition_statistics] == []
    kept = world.store.read(lambda db: pending_deletions.paths(db, world.table().table_id))
    assert kept == paths
    with pytest.raises(CannotUndo, match="were replaced or removed"):
        world.maintaining.undo(process_id)


# Expiry


def expired(world: World, table: Table) -> tuple[str, dict[int, Any]]:
    """An expiry of all but the head, and the rows of each snapshot that went."""
    rows = {one.snapshot_id: oracle.live_rows(table, one.snapshot_id) for one in table.refresh().metadata.snapshots}
    process_id = world.done("expire-snapshots")
    left = {one.snapshot_id for one in table.refresh().metadata.snapshots}
    gone = {snapshot_id: found for snapshot_id, found in rows.items() if snapshot_id not in left}
    assert (len(left), len(gone)) == (1, 3)
    return process_id, gone


def test_expired_snapshots_come_back_under_tags_and_nothing_of_them_is_deleted(world: World, old_table: Table) -> None:
    process_id, gone = expired(world, old_table)
    head = old_table.metadata.current_snapshot_id
    assert statuses(world, process_id) == {BatchStatus.WAITING}
    writer.append(old_table, [row(77)])
    receipt = undo(world, process_id)
    assert [(figure.name, figure.value) for figure in receipt.figures] == [("snapshots_restored", 3)]
    assert statuses(world, process_id) == {BatchStatus.RESTORED}
    found = refs(old_table)
    assert found.keys() == {f"restored-{snapshot_id}" for snapshot_id in gone}
    assert not set(found.values()) & gone.keys()
    for snapshot_id, rows in gone.items():
        assert oracle.live_rows(old_table, found[f"restored-{snapshot_id}"]) == rows
        read = old_table.refresh().scan(snapshot_id=found[f"restored-{snapshot_id}"]).to_arrow().to_pylist()
        assert rows_of(old_table.schema(), read) == rows
    assert old_table.metadata.current_snapshot_id != head
    world.later(DAYS_S)
    emptied = world.maintaining.begin(world.table().table_id, "empty-trash", trigger="request")
    assert emptied.process_id == "", "nothing is condemned any more"
    with pytest.raises(CannotUndo, match="has a branch or tag restored-"):
        world.maintaining.undo(process_id)


def test_the_tags_of_an_undone_expiry_are_removed_by_one_command_but_for_those_of_others(
    world: World, old_table: Table
) -> None:
    process_id, gone = expired(world, old_table)
    begun = world.maintaining.undo(process_id).process_id
    assert world.committing.commit(begun) is ProcessStatus.SUCCESS
    restored, other = sorted(refs(old_table)), sorted(gone)[0]
    head = old_table.refresh().metadata.current_snapshot_id
    assert head is not None
    old_table.manage_snapshots().create_tag(head, "mine").commit()
    old_table.manage_snapshots().remove_tag(f"restored-{other}").create_tag(head, f"restored-{other}").commit()
    plan = world.maintaining.preview_undo(begun).plan
    assert sorted(plan.document["removed_tags"]) == [name for name in restored if name != f"restored-{other}"]
    assert undo(world, begun).words == "removed 2 tags"
    assert refs(old_table) == {"mine": head, f"restored-{other}": head}
    with pytest.raises(CannotUndo, match=r"none of its tags is left; process .* undid it$"):
        world.maintaining.undo(begun)


def test_nor_while_they_are_in_the_trash_but_when_they_were_restored(world: World, old_table: Table) -> None:
    world.set_properties({"table-trash.enabled": "true"})
    process_id, gone = expired(world, old_table)
    world.later(DAYS_S)
    world.done("empty-trash")
    with pytest.raises(CannotUndo, match="moved to a trash, from which `amoro trash restore` brings them back"):
        world.maintaining.undo(process_id)
    world.trash.restore(process_id)
    undo(world, process_id)
    found = refs(old_table)
    assert {one: oracle.live_rows(old_table, found[f"restored-{one}"]) for one in gone} == gone


def test_nor_when_somebody_else_has_deleted_one(world: World, old_table: Table) -> None:
    process_id, _ = expired(world, old_table)
    begun = world.maintaining.undo(process_id)
    paths = sorted(world.store.read(lambda db: pending_deletions.paths(db, world.table().table_id)))
    data = next(path for path in paths if path.endswith(".parquet"))
    Path(local_path(data)).unlink()
    with pytest.raises(CannotUndo, match="was deleted"):
        world.maintaining.preview_undo(process_id)
    assert world.committing.commit(begun.process_id) is ProcessStatus.FAILED
    assert refs(old_table) == {}
    assert statuses(world, process_id) == {BatchStatus.WAITING}, "what did not come back is condemned still"


def two_expiries(world: World, table: Table) -> tuple[str, str, int]:
    """The first snapshot expired alone, then the others, with which went the file that the last one replaced."""
    first = table.metadata.snapshots[0].snapshot_id
    processes = world.done("expire-snapshots", retain_last=3), world.done("expire-snapshots")
    own = [world.store.read(lambda db, of=one: pending_deletions.paths_of_others(db, 1, of)) for one in processes]
    assert not any(path.endswith(".parquet") for path in own[1])
    assert any(path.endswith(".parquet") for path in own[0])
    return *processes, first


def test_what_another_expiry_has_condemned_since_comes_back_too(world: World, old_table: Table) -> None:
    rows = oracle.live_rows(old_table, old_table.metadata.snapshots[0].snapshot_id)
    process_id, later, first = two_expiries(world, old_table)
    undo(world, process_id)
    assert statuses(world, later) == {BatchStatus.WAITING, BatchStatus.RESTORED}
    world.later(DAYS_S)
    world.done("empty-trash")
    assert world.guard_hits == 0
    assert oracle.live_rows(old_table, refs(old_table)[f"restored-{first}"]) == rows


def test_a_later_expiry_can_be_undone_as_well(world: World, old_table: Table) -> None:
    rows = {one.snapshot_id: oracle.live_rows(old_table, one.snapshot_id) for one in old_table.metadata.snapshots}
    process_id, later, _ = two_expiries(world, old_table)
    undo(world, process_id)
    undo(world, later)
    assert {name: oracle.live_rows(old_table, at) for name, at in refs(old_table).items()} == {
        f"restored-{snapshot_id}": rows[snapshot_id] for snapshot_id in list(rows)[:-1]
    }


def test_an_expiry_can_t_be_undone_once_its_files_or_another_s_are_deleted(world: World, old_table: Table) -> None:
    process_id, later, _ = two_expiries(world, old_table)
    world.store.write(lambda db: pending_deletions.make_due(db, 1, world.now, later))
    with world.iceberg.files(delete_many=not_removed):
        world.done("empty-trash")
    assert (statuses(world, process_id), statuses(world, later)) == ({BatchStatus.WAITING}, {BatchStatus.DELETING})
    with pytest.raises(CannotUndo, match="files of its snapshots are being deleted"):
        world.maintaining.undo(process_id)
    world.later(DAYS_S)
    world.done("empty-trash")
    with pytest.raises(CannotUndo, match="files of its snapshots are being deleted"):
        world.maintaining.undo(process_id)
    assert refs(old_table) == {}


# Orphans


def test_orphans_stay_when_their_cleaning_is_undone(world: World, old_table: Table) -> None:
    orphan = Path(local_path(old_table.location())) / "data" / "orphan.parquet"
    orphan.write_bytes(b"nobody names it")
    old = (datetime.now(UTC) - timedelta(days=30)).timestamp()
    os.utime(orphan, (old, old))
    process_id = world.done("clean-orphan-files")
    assert undo(world, process_id).words == "restored 1 file from the trash"
    assert statuses(world, process_id) == {BatchStatus.RESTORED}
    world.later(timedelta(days=30).total_seconds())
    assert world.maintaining.begin(world.table().table_id, "empty-trash", trigger="request").process_id == ""
    again = world.done("clean-orphan-files")
    world.later(timedelta(days=30).total_seconds())
    world.done("empty-trash")
    assert not orphan.exists()
    with pytest.raises(CannotUndo, match="none of its files is marked for deletion any more"):
        world.maintaining.undo(again)


# Taking back an expiry of data: its rows come back, but for those that somebody has deleted since


KEEP_S = timedelta(days=7).total_seconds()


@pytest.fixture
def dated(world: World) -> Table:
    """Of the rows 1 to 4 the first has expired, and a row beside it had been deleted by key before."""
    made = make(world)
    fill(made, ((1, "2022-01-01T12:00"), (5, "2022-01-01T13:00"), (6, "2022-01-01T14:00")), each=True)
    fill(made, ((2, "2022-01-03T12:00"), (3, "2022-01-02T12:00"), (4, "2022-01-02T19:00")))
    writer.row_delta(made, equality_deletes=[writer.EqualityDelete(["id"], [record(made, 5, "2022-01-01T13:00")])])
    assert ids(made) == [1, 2, 3, 4, 6]
    return made


def test_rows_come_back_without_those_that_were_deleted_before_or_since(world: World, dated: Table) -> None:
    files = {one.path for one in oracle.live_files(dated)}
    process_id = expire(world)
    assert ids(dated.refresh()) == [2, 3, 4]
    fill(dated, ((9, "2022-01-03T12:00"),))
    writer.row_delta(dated, equality_deletes=[writer.EqualityDelete(["id"], [record(dated, 6, "2022-01-01T14:00")])])
    plan = world.maintaining.preview_undo(process_id).plan
    assert (plan.document["operation"], plan.document["data_files_restored"]) == ("overwrite", 3)
    undo(world, process_id)
    assert ids(dated.refresh()) == [1, 2, 3, 4, 9]
    assert files <= {one.path for one in oracle.live_files(dated)}
    snapshot = dated.current_snapshot()
    assert snapshot.summary.operation.value == "overwrite"


def test_after_its_time_it_is_refused(world: World, dated: Table) -> None:
    process_id = expire(world)
    world.later(KEEP_S)
    assert world.maintaining.preview_undo(process_id).plan is not None
    world.later(1)
    with pytest.raises(CannotUndo, match=r"it could be undone for 7 d \(maintenance.undo.keep\)"):
        world.maintaining.undo(process_id)
    world.set_properties({"maintenance.undo.keep": "8d"})
    undo(world, process_id)
    assert ids(dated.refresh()) == [1, 2, 3, 4, 6]


def test_what_it_was_based_on_outlives_an_expiry_of_snapshots_until_then(world: World, dated: Table) -> None:
    world.set_properties({"snapshot.keep.duration": "1d", "maintenance.expire-snapshots.trash-keep": "0"})
    process_id = expire(world)
    receipt = world.receipt(process_id)
    fill(dated, ((9, "2022-01-03T12:00"),))
    aged(dated, 3000)  # the clock of these tests stands in 2022

    def expire_snapshots(seconds: float) -> dict[str, object]:
        world.later(seconds)
        begun = world.maintaining.begin(world.table().table_id, "expire-snapshots", trigger="request")
        world.committing.commit(begun.process_id)
        return dict(begun.plan.document)

    kept = expire_snapshots(KEEP_S)["kept_snapshots"]
    assert receipt.base_snapshot_id in {one.snapshot_id for one in dated.refresh().metadata.snapshots}
    assert f"undo of {process_id}" in str(kept)
    expire_snapshots(1)
    assert receipt.base_snapshot_id not in {one.snapshot_id for one in dated.refresh().metadata.snapshots}


# What is undone in format 3 brings files back with the ids of their rows, by entries that say them


@pytest.mark.parametrize("later", [False, True])
def test_undoing_a_rewrite_keeps_the_ids_of_rows(world: World, later: bool) -> None:
    table = eight_files(world)
    before, ids = lineage_of(table), {one.path: one.first_row_id for one in oracle.live_files(table)}
    process_id = world.optimized()
    if later:
        writer.append(table, [row(1000)])
    since = lineage_of(table)

    undo(world, process_id)

    assert lineage_of(table) == since
    after = {one.path: one.first_row_id for one in oracle.live_files(table)}
    assert {path: after[path] for path in ids} == ids
    if not later:
        assert lineage_of(table) == before
    # Ids that come next are above all that were given.
    writer.append(table, [row(2000)])
    files = [one for one in oracle.live_files(table) if one.path not in after]
    assert [one.first_row_id for one in files] >= [max(given or 0 for given in after.values()) + 1]


@pytest.mark.parametrize("later", [False, True])
def test_undoing_an_expiry_of_data_keeps_the_ids_of_rows_and_their_vectors(world: World, later: bool) -> None:
    """One of the files that come back has a vector; what others delete by key since is deleted in them, too."""
    table = expiring.make(world, version=3)
    hours = [(number, f"2022-01-01T{12 + number}:00") for number in range(4)]
    expiring.fill(table, hours)
    expiring.fill(table, [(4, "2022-01-01T17:00"), (10, "2022-01-03T12:00")])
    writer3.delete_rows(table, lambda item: item["id"] in (1, 2))
    before, files = lineage_of(table), {one.path: one.first_row_id for one in oracle.live_files(table)}
    assert sorted(before) == [0, 3, 4, 10]
    process_id = expiring.expire(world)
    assert expiring.ids(table.refresh()) == [10]
    if later:
        expiring.fill(table, [(11, "2022-01-03T12:00")])
        key = expiring.record(table, 3, "2022-01-01T15:00")
        writer.row_delta(table, equality_deletes=[writer.EqualityDelete(["id"], [key])])
    since = lineage_of(table)

    undo(world, process_id)

    back = {number: lineage for number, lineage in before.items() if not (later and number == 3)}
    assert lineage_of(table.refresh()) == {**since, **back}
    assert files.items() <= {one.path: one.first_row_id for one in oracle.live_files(table)}.items()
