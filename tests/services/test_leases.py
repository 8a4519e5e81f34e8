"""Leases: on snapshots, as tags, of our own readings, and in pages with the trash."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRef

from amoro_core.bootstrap.composition import _digest
from amoro_core.errors import (
    CommitConflict,
    CommitRefused,
    CommitUnknown,
    InvalidArgument,
    LeaseNotFound,
    SnapshotNotFound,
    TableBusy,
    TableNotFound,
)
from amoro_core.files.storage.io import FileAccess
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.model.commits import PROCESS_ID
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType, parse_table
from amoro_core.model.task_payload import RewriteInput
from amoro_core.model.verification import RowsDigest, Verification
from amoro_core.services.verification import VerifyingService
from amoro_core.store.database import ReadingStore
from tests.engine import oracle, writer
from tests.engine.aging import wait_for_one_day
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.commits import Change, commit
from tests.engine.files import write_data_files
from tests.engine.parquet_rows import local_path
from tests.services.rigs import raising
from tests.services.test_expiring import aged, expire, ids
from tests.services.test_maintaining import ON
from tests.services.test_maintaining import begin as begin_tag
from tests.services.world import World, make_small_files

DAY = timedelta(days=1)
SEND = IcebergTable.send


@pytest.fixture
def table(world: World) -> Table:
    """Three snapshots, thirty days old; tags are made a second later."""
    wait_for_one_day()
    made = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART, properties=ON)
    for number in range(3):
        writer.append(made, [row(number, "a")])
    world.now = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
    return aged(made, 30)


def take(world: World, snapshot_id: int, held_for: timedelta = DAY) -> Any:
    return world.leasing.take(world.table(), snapshot_id, "bob", held_for=held_for, as_tag=True)


def tags(table: Table) -> dict[str, SnapshotRef]:
    return {name: ref for name, ref in table.refresh().metadata.refs.items() if name != "main"}


def ends(table: Table, name: str) -> datetime:
    """When whoever goes by the specification lets the tag go: its age counts from its snapshot's time."""
    ref = tags(table)[name]
    snapshot = table.snapshot_by_id(ref.snapshot_id)
    assert ref.max_ref_age_ms is not None
    return datetime.fromtimestamp((snapshot.timestamp_ms + ref.max_ref_age_ms) / 1000, UTC)


def test_the_tag_is_on_the_snapshot_and_ends_with_the_lease(world: World, table: Table) -> None:
    first, *_ = ids(table)
    held = take(world, first, timedelta(days=3))
    assert held.lease.tag == f"lease-{held.lease.lease_id}"
    assert {name: ref.snapshot_id for name, ref in tags(table).items()} == {held.lease.tag: first}
    assert ends(table, held.lease.tag) == held.lease.expires_at == world.now + timedelta(days=3)
    assert [one.lease.tag for one in world.leasing.page().items] == [held.lease.tag]


def test_another_maintainer_keeps_to_it_until_the_lease_ends(world: World, table: Table, tmp_path: Path) -> None:
    first, _, head = ids(table)
    take(world, first)
    (tmp_path / "other").mkdir()
    other = World(tmp_path / "other", world.catalog)

    def expire() -> None:
        begun = other.maintaining.begin(other.table().table_id, "expire-snapshots", trigger="request")
        assert begun.process_id, begun.reason
        other.committing.commit(begun.process_id)

    other.now = world.now + DAY - timedelta(seconds=1)
    expire()
    assert ids(table) == [first, head]
    oracle.live_rows(table, first)
    other.now = world.now + DAY + timedelta(seconds=1)
    expire()
    assert (ids(table), tags(table)) == ([head], {})
    other.close()


def test_renewing_moves_the_tag_s_end_and_releasing_takes_it_away(world: World, table: Table) -> None:
    first, *_ = ids(table)
    held = take(world, first)
    world.later(3600)
    renewed = world.leasing.renew(held.lease.lease_id, timedelta(days=2))
    assert ends(table, held.lease.tag) == renewed.lease.expires_at == world.now + timedelta(days=2)
    world.leasing.release(held.lease.lease_id)
    assert (tags(table), list(world.leasing.page().items)) == ({}, [])


def test_a_tag_that_somebody_removed_is_made_again_and_is_no_obstacle_to_releasing(world: World, table: Table) -> None:
    first, *_ = ids(table)
    held = take(world, first)
    table.refresh().manage_snapshots().remove_tag(held.lease.tag).commit()
    world.leasing.renew(held.lease.lease_id)
    assert set(tags(table)) == {held.lease.tag}
    table.refresh().manage_snapshots().remove_tag(held.lease.tag).commit()
    world.leasing.release(held.lease.lease_id)
    assert list(world.leasing.page().items) == []


def test_a_name_that_somebody_moved_to_another_snapshot_is_left_to_him(world: World, table: Table) -> None:
    first, second, _ = ids(table)
    held = take(world, first)
    table.refresh().manage_snapshots().remove_tag(held.lease.tag).create_tag(second, held.lease.tag).commit()
    with pytest.raises(CommitConflict, match="has a branch or tag lease-"):
        world.leasing.renew(held.lease.lease_id)
    assert tags(table)[held.lease.tag].snapshot_id == second


def test_a_renewal_beside_another_commit_is_made_on_what_the_table_is_then(world: World, table: Table) -> None:
    """That the tag is on its snapshot tells nothing of its age."""
    held = take(world, ids(table)[0])
    lost = iter([True, False])

    def send(self: IcebergTable, payload: bytes) -> None:
        if next(lost):
            return  # taken for landed, since the tag is where the commit would have it
        SEND(self, payload)

    world.iceberg.table(send=send)
    renewed = world.leasing.renew(held.lease.lease_id, timedelta(days=5))
    assert ends(table, held.lease.tag) == renewed.lease.expires_at


def test_a_tag_that_loses_to_other_commits_is_made_in_the_end(world: World, table: Table) -> None:
    world.iceberg.before_sending(*[raising(CommitConflict("somebody was faster"))] * 2)
    held = take(world, ids(table)[0])
    assert set(tags(table)) == {held.lease.tag}


@pytest.mark.parametrize("arrives", [True, False])
def test_of_a_tag_that_may_have_landed_the_table_tells(world: World, table: Table, arrives: bool) -> None:
    world.iceberg.lose_answers(arrives=arrives)
    if arrives:
        held = take(world, ids(table)[0])
        assert set(tags(table)) == {held.lease.tag}
        return
    with pytest.raises(CommitUnknown, match=r"tag lease-.* may be there, until"):
        take(world, ids(table)[0])
    assert list(world.leasing.page().items) == []


@pytest.mark.parametrize("error", [CommitRefused("no right"), CommitConflict("somebody was faster")])
def test_a_tag_that_can_t_be_made_leaves_no_lease(world: World, table: Table, error: Exception) -> None:
    world.iceberg.table(send=raising(error))
    with pytest.raises(type(error)):
        take(world, ids(table)[0])
    assert (tags(table), list(world.leasing.page().items)) == ({}, [])


def test_beside_an_unknown_commit_the_table_gets_no_tag(world: World, table: Table) -> None:
    held = take(world, ids(table)[0])
    writer.append(table, [row(9, "a")])
    process_id = begin_tag(world)
    world.iceberg.lose_answers(arrives=False)
    world.committing.commit(process_id)
    world.iceberg.restore()
    calls: list[Callable[[], object]] = [
        lambda: take(world, ids(table)[0]),
        lambda: world.leasing.renew(held.lease.lease_id),
        lambda: world.leasing.release(held.lease.lease_id),
    ]
    for call in calls:
        with pytest.raises(TableBusy, match=f"the commit of process {process_id} was applied"):
            call()
    assert set(tags(table)) == {held.lease.tag}
    assert [one.lease.lease_id for one in world.leasing.page().items] == [held.lease.lease_id]


def test_a_tag_keeps_one_snapshot_and_not_all_newer_ones(world: World, table: Table) -> None:
    with pytest.raises(InvalidArgument, match="a tag keeps one snapshot"):
        world.leasing.take(world.table(), ids(table)[0], "bob", since=True, as_tag=True)


def test_one_that_has_expired_is_not_renewed_by_its_tag(world: World, table: Table) -> None:
    held = take(world, ids(table)[0])
    world.later(DAY.total_seconds())
    with pytest.raises(LeaseNotFound):
        world.leasing.renew(held.lease.lease_id)


def test_a_lease_of_a_table_that_is_gone_is_released(world: World, catalog: SqlCatalog, table: Table) -> None:
    held = take(world, ids(table)[0])
    catalog.drop_table("db.t")
    assert world.leasing.release(held.lease.lease_id).lease == held.lease
    assert list(world.leasing.page().items) == []


def test_the_tags_of_a_table_that_has_the_name_by_now_are_left_alone(
    world: World, catalog: SqlCatalog, table: Table
) -> None:
    held = take(world, ids(table)[0])
    catalog.drop_table("db.t")
    other = writer.make_table(catalog, "db.t", SCHEMA, BY_PART)
    writer.append(other, [row(1, "a")])
    other.manage_snapshots().create_tag(ids(other)[0], held.lease.tag).commit()
    world.leasing.release(held.lease.lease_id)
    assert set(tags(other)) == {held.lease.tag}


# What we read ourselves we lease: an expiry that runs meanwhile keeps the snapshots that are compared


class Meanwhile:
    """A verification in which something happens once while rows are read."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.happens: Callable[[], None] = lambda: None

    def read(
        self, work: RewriteInput, access: FileAccess, lineage: bool, is_cancelled: Callable[[], bool]
    ) -> RowsDigest:
        happens, self.happens = self.happens, lambda: None
        happens()
        return _digest(work, access, lineage, is_cancelled)

    def verify(self) -> Verification:
        service = VerifyingService(self.world.tables_of, self.read, self.world.leasing)
        return service.verify(TABLE, None, None, lambda: False)

    def leases(self) -> list[Any]:
        return list(self.world.leasing.page().items)


@pytest.fixture
def meanwhile(world: World) -> Meanwhile:
    return Meanwhile(world)


@pytest.fixture
def leased(world: World) -> Table:
    """Two appends, a rewrite, another append; all of them old but the head."""
    made = make_small_files(world.catalog, 2)
    world.optimize(OptimizingType.FULL)
    world.now = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
    writer.append(made, [row(50)])
    return aged(made, 30)


def test_an_expiry_that_runs_meanwhile_keeps_both_snapshots(world: World, leased: Table, meanwhile: Meanwhile) -> None:
    _, before, after, head = ids(leased)
    seen: list[Any] = []

    def happen() -> None:
        seen.extend(meanwhile.leases())
        expire(world)

    meanwhile.happens = happen
    found = meanwhile.verify()
    (held,) = seen
    assert (held.lease.snapshot_id, held.lease.is_since, held.lease.holder) == (before, True, "amoro verify")
    assert held.lease.expires_at == world.now + timedelta(hours=1)
    assert ids(leased) == [before, after, head]
    assert found.is_sound
    assert [(one.span.before, one.span.after) for one in found.comparisons] == [(before, after)]
    assert meanwhile.leases() == []
    expire(world)
    assert ids(leased) == [head]


def test_a_long_reading_renews_its_lease(world: World, leased: Table, meanwhile: Meanwhile) -> None:
    ends: list[timedelta] = []

    def read(work: RewriteInput, access: FileAccess, lineage: bool, is_cancelled: Callable[[], bool]) -> RowsDigest:
        world.later(timedelta(hours=1).total_seconds() / 2)
        assert not is_cancelled()
        ends.append(meanwhile.leases()[0].lease.expires_at - world.now)
        return _digest(work, access, lineage, is_cancelled)

    VerifyingService(world.tables_of, read, world.leasing).verify(TABLE, None, None, lambda: False)
    assert ends == [timedelta(hours=1)] * len(ends)
    assert len(ends) >= 2


def test_a_reading_that_fails_leaves_no_lease(world: World, leased: Table, meanwhile: Meanwhile) -> None:
    meanwhile.happens = raising(KeyError("a fault of ours"))
    with pytest.raises(KeyError):
        meanwhile.verify()
    assert meanwhile.leases() == []


def test_a_reading_whose_lease_was_released_stops_instead_of_reading_what_may_go(
    world: World, leased: Table, meanwhile: Meanwhile
) -> None:
    def happen() -> None:
        world.leasing.release(meanwhile.leases()[0].lease.lease_id)
        world.later(timedelta(hours=1).total_seconds())

    meanwhile.happens = happen
    with pytest.raises(LeaseNotFound):
        meanwhile.verify()


def test_it_waits_for_an_expiry_that_is_under_way(world: World, leased: Table, meanwhile: Meanwhile) -> None:
    process = world.maintaining.begin(world.table().table_id, "expire-snapshots", trigger="request").process_id
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            world.optimizing.cancel(process, "by hand")

    world.leasing.wait = wait
    assert meanwhile.verify().is_sound
    assert waits == [0.5] * 3


def test_it_does_not_wait_for_ever_nor_for_somebody_who_has_gone(
    world: World, leased: Table, meanwhile: Meanwhile
) -> None:
    world.maintaining.begin(world.table().table_id, "expire-snapshots", trigger="request")
    waits: list[float] = []
    world.leasing.wait = waits.append
    with pytest.raises(TableBusy, match="is removing snapshots"):
        meanwhile.verify()
    assert sum(waits) == 60
    waits.clear()
    with pytest.raises(TableBusy), world.leasing.reading(TABLE, ids(leased)[-1:], "bob", lambda: True):
        pass
    assert waits == []


def test_one_snapshot_is_leased_by_itself_and_nothing_where_nobody_expires_it_or_the_state_is_only_read(
    world: World, leased: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = ids(leased)[-1]
    with world.leasing.reading(TABLE, [head], "bob", lambda: False):
        (held,) = world.leasing.page().items
        assert (held.lease.snapshot_id, held.lease.is_since) == (head, False)
    with pytest.raises(InvalidArgument, match="no snapshot 5"), world.leasing.reading(TABLE, [5], "bob", lambda: False):
        pass
    other = writer.make_table(world.catalog, "db.other", SCHEMA)
    writer.append(other, [row(1)])
    with world.leasing.reading(parse_table("cat.db.other"), ids(other), "bob", lambda: False) as keep:
        world.later(timedelta(days=1).total_seconds())
        keep()
        assert list(world.leasing.page().items) == []
    store = ReadingStore.open(Path(world.home) / "amoro.db")
    monkeypatch.setattr(world.leasing, "store", store)
    with world.leasing.reading(TABLE, ids(leased), "bob", lambda: False):
        assert list(world.leasing.page().items) == []
    store.close()


# Verifying real tables: what a rewrite did is proven, and what it did not do right is found


TABLE = parse_table("cat.db.t")


@pytest.fixture
def verifying(world: World) -> VerifyingService:
    return world.verifying


def verify(service: VerifyingService, before: int | None = None, after: int | None = None) -> Verification:
    return service.verify(TABLE, before, after, lambda: False)


def table_with_deletes(catalog: SqlCatalog, properties: dict[str, str] | None = None) -> Table:
    table = writer.make_table(catalog, "db.t", SCHEMA, BY_PART, properties=properties)
    for first in (0, 100):
        writer.append(table, [row(first + number, part) for number in range(10) for part in "ab"])
    writer.upsert(table, [row(3, "a", "new")], ["id"])
    writer.delete_where(table, lambda record: record["id"] == 105)
    return table


def replace_files(table: Table, rows: list[dict[str, object]]) -> None:
    """A rewrite of all data by somebody careless: these rows take the place of those that were there."""
    files = oracle.live_files(table)
    added = tuple(write_data_files(table, rows))
    commit(table, lambda head: Change(added, frozenset(file.path for file in files), summary={PROCESS_ID: "careless"}))


def test_an_optimizing_with_writers_before_and_after_it_is_proven(
    world: World, catalog: SqlCatalog, verifying: VerifyingService
) -> None:
    table = table_with_deletes(catalog)
    process = world.begin_and_run(OptimizingType.FULL)
    writer.append(table, [row(500, "a"), row(501, "b")])
    writer.upsert(table, [row(101, "b", "newer")], ["id"])
    parent = table.refresh().metadata.current_snapshot_id
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    ours = table.refresh().metadata.current_snapshot_id
    writer.delete_where(table, lambda record: record["id"] == 500)
    head = table.refresh().metadata.current_snapshot_id

    found = verify(verifying)

    assert found.is_sound
    assert found.selection.snapshot_id == head
    (comparison,) = found.comparisons
    assert (comparison.span.before, comparison.span.after) == (parent, ours)
    assert comparison.span.process_ids == (process,)
    assert comparison.files_in_both == 3  # what came between plan and commit
    rows = [(one.partition, one.before.rows, one.after.rows) for one in comparison.partitions]
    live = oracle.live_rows(table, ours).total()
    assert rows == [("part=a", 19, 19), ("part=b", 18, 18)]
    assert live == sum(count for _, count, _ in rows) + 3
    assert found.files == len(oracle.live_files(table))


@pytest.mark.parametrize(
    ("rows", "counts"),
    [
        ([row(number) for number in range(9)], (10, 9)),
        ([row(number) for number in range(11)], (10, 11)),
        ([*(row(number) for number in range(9)), row(9, value="other")], (10, 10)),
        ([*(row(number) for number in range(9)), row(8)], (10, 10)),
    ],
    ids=["lost", "added", "changed", "one twice and one lost"],
)
def test_a_rewrite_that_does_not_keep_every_row_is_found(
    catalog: SqlCatalog, verifying: VerifyingService, rows: list[dict[str, object]], counts: tuple[int, int]
) -> None:
    table = writer.make_table(catalog, "db.t", SCHEMA)
    writer.append(table, [row(number) for number in range(10)], files=2)
    replace_files(table, rows)
    found = verify(verifying)
    (partition,) = found.comparisons[0].partitions
    assert (partition.before.rows, partition.after.rows) == counts
    assert (partition.is_equal, found.is_sound, found.problems) == (False, False, ())


def test_a_row_that_moved_to_another_partition_is_found(catalog: SqlCatalog, verifying: VerifyingService) -> None:
    table = writer.make_table(catalog, "db.t", SCHEMA, BY_PART)
    writer.append(table, [row(1, "a"), row(2, "b")])
    replace_files(table, [row(1, "b"), row(2, "b")])
    assert [one.is_equal for one in verify(verifying).comparisons[0].partitions] == [False, False]


def optimized(world: World, catalog: SqlCatalog) -> tuple[Table, Path]:
    """A table that was optimized to one file, which is not compressed."""
    plain = {"write.parquet.compression-codec": "uncompressed"}
    table = writer.make_table(catalog, "db.t", SCHEMA, properties=plain)
    for number in range(3):
        writer.append(table, [row(number, value=f"value-{number}")])
    assert world.optimize(OptimizingType.FULL) is ProcessStatus.SUCCESS
    (file,) = oracle.live_files(table)
    return table, Path(local_path(file.path))


def test_a_changed_byte_of_a_rewritten_file_is_found(
    world: World, catalog: SqlCatalog, verifying: VerifyingService
) -> None:
    _, path = optimized(world, catalog)
    assert verify(verifying).is_sound
    content = path.read_bytes()
    assert content.count(b"value-1") >= 1
    path.write_bytes(content.replace(b"value-1", b"value-7"))
    found = verify(verifying)
    assert not found.is_sound
    (problem,) = found.problems
    assert path.name in problem
    assert "CRC checksum verification failed" in problem


def test_a_rewritten_file_that_is_gone_or_cut_is_a_problem_with_its_name(
    world: World, catalog: SqlCatalog, verifying: VerifyingService
) -> None:
    _, path = optimized(world, catalog)
    content = path.read_bytes()
    path.write_bytes(content[:-10])
    cut = verify(verifying)
    assert not cut.is_sound
    assert any(f"has {len(content) - 10} bytes, but the manifest says {len(content)}" in text for text in cut.problems)
    path.unlink()
    gone = verify(verifying)
    assert not gone.is_sound
    assert [text for text in gone.problems if str(path) in text and "does not exist" in text] == list(gone.problems)


def test_a_file_that_no_rewrite_touched_is_looked_for_too(
    world: World, catalog: SqlCatalog, verifying: VerifyingService
) -> None:
    table, _ = optimized(world, catalog)
    writer.append(table, [row(9)])
    (path,) = (Path(local_path(file.path)) for file in oracle.live_files(table) if file.data_sequence == 5)
    assert verify(verifying).is_sound
    path.unlink()
    found = verify(verifying)
    assert (found.comparisons[0].is_equal, found.is_sound) == (True, False)


def test_a_table_that_was_never_optimized_has_nothing_to_compare(
    catalog: SqlCatalog, verifying: VerifyingService
) -> None:
    table = writer.make_table(catalog, "db.t", SCHEMA)
    empty = verify(verifying)
    assert (empty.is_sound, empty.selection.note) == (True, "the table has no snapshot")
    writer.append(table, [row(1)])
    found = verify(verifying)
    assert (found.is_sound, found.comparisons, found.files) == (True, (), 1)
    with pytest.raises(SnapshotNotFound):
        verify(verifying, before=1)
    with pytest.raises(TableNotFound):
        verifying.verify(parse_table("cat.db.nope"), None, None, lambda: False)
