"""Leases: on snapshots, as tags, of our own readings, and in pages with the trash."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRef

from amoro_core.bootstrap.composition import _digest
from amoro_core.errors import CommitConflict, CommitRefused, CommitUnknown, InvalidArgument, LeaseNotFound, TableBusy
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


@pytest.fixture
def table(world: World) -> Table:
    """Three snapshots, thirty days old; tags are made a second later."""
    wait_for_one_day()
    made = make_small_files(world.catalog, spec=BY_PART, properties=ON)
    world.now = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
    return aged(made, 30)


def take(world: World, snapshot_id: int, held_for: timedelta = DAY) -> Any:
    return world.leasing.take(world.table(), snapshot_id, "bob", held_for=held_for, as_tag=True)


def tags(table: Table) -> dict[str, SnapshotRef]:
    return {name: ref for name, ref in table.refresh().metadata.refs.items() if name != "main"}


def leased_tags(world: World) -> list[str]:
    return [one.lease.tag for one in world.leasing.page().items]


def ends(table: Table, name: str) -> datetime:
    """When whoever goes by the specification lets the tag go: its age counts from its snapshot's time."""
    ref = tags(table)[name]
    snapshot = table.snapshot_by_id(ref.snapshot_id)
    assert ref.max_ref_age_ms is not None
    return datetime.fromtimestamp((snapshot.timestamp_ms + ref.max_ref_age_ms) / 1000, UTC)


def test_the_tag_is_on_the_snapshot_ends_with_the_lease_moves_with_it_and_goes(world: World, table: Table) -> None:
    first, *_ = ids(table)
    held = take(world, first, timedelta(days=3))
    assert held.lease.tag == f"lease-{held.lease.lease_id}"
    assert {name: ref.snapshot_id for name, ref in tags(table).items()} == {held.lease.tag: first}
    assert ends(table, held.lease.tag) == held.lease.expires_at == world.now + timedelta(days=3)
    assert leased_tags(world) == [held.lease.tag]
    world.later(3600)
    renewed = world.leasing.renew(held.lease.lease_id, timedelta(days=2))
    assert ends(table, held.lease.tag) == renewed.lease.expires_at == world.now + timedelta(days=2)
    # What somebody removed is made again, and is no obstacle to releasing.
    table.refresh().manage_snapshots().remove_tag(held.lease.tag).commit()
    world.leasing.renew(held.lease.lease_id)
    assert set(tags(table)) == {held.lease.tag}
    world.leasing.release(held.lease.lease_id)
    assert (tags(table), leased_tags(world)) == ({}, [])
    again = take(world, first)
    table.refresh().manage_snapshots().remove_tag(again.lease.tag).commit()
    world.leasing.release(again.lease.lease_id)
    assert leased_tags(world) == []


def test_another_maintainer_keeps_to_it_until_the_lease_ends(world: World, table: Table, tmp_path: Path) -> None:
    first, _, head = ids(table)
    take(world, first)
    (tmp_path / "other").mkdir()
    other = World(tmp_path / "other", world.catalog)

    other.now = world.now + DAY - timedelta(seconds=1)
    other.run("expire-snapshots")
    assert ids(table) == [first, head]
    oracle.live_rows(table, first)
    other.now = world.now + DAY + timedelta(seconds=1)
    other.run("expire-snapshots")
    assert (ids(table), tags(table)) == ([head], {})
    other.close()


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
        IcebergTable.send(self, payload)

    world.iceberg.table(send=send)
    renewed = world.leasing.renew(held.lease.lease_id, timedelta(days=5))
    assert ends(table, held.lease.tag) == renewed.lease.expires_at


def test_a_tag_that_loses_to_others_is_made_in_the_end_and_not_renewed_once_expired(world: World, table: Table) -> None:
    world.iceberg.before_sending(*[raising(CommitConflict("somebody was faster"))] * 2)
    held = take(world, ids(table)[0])
    assert set(tags(table)) == {held.lease.tag}
    world.later(DAY.total_seconds())
    with pytest.raises(LeaseNotFound):
        world.leasing.renew(held.lease.lease_id)


def test_of_a_tag_that_may_have_landed_the_table_tells(world: World, table: Table) -> None:
    with world.iceberg.lose_answers(arrives=False):
        with pytest.raises(CommitUnknown, match=r"tag lease-.* may be there, until"):
            take(world, ids(table)[0])
        assert leased_tags(world) == []
    with world.iceberg.lose_answers(arrives=True):
        held = take(world, ids(table)[0])
    assert set(tags(table)) == {held.lease.tag}


@pytest.mark.parametrize("error", [CommitRefused("no right"), CommitConflict("somebody was faster")])
def test_a_tag_that_can_t_be_made_leaves_no_lease(world: World, table: Table, error: Exception) -> None:
    with pytest.raises(InvalidArgument, match="a tag keeps one snapshot"):
        world.leasing.take(world.table(), ids(table)[0], "bob", since=True, as_tag=True)
    world.iceberg.table(send=raising(error))
    with pytest.raises(type(error)):
        take(world, ids(table)[0])
    assert (tags(table), leased_tags(world)) == ({}, [])


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
    assert leased_tags(world) == [held.lease.tag]


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_lease_of_a_table_that_is_gone_is_released_and_tags_of_another_left_alone(
    world: World, table: Table, is_made_anew: bool
) -> None:
    held = take(world, ids(table)[0])
    world.catalog.drop_table("db.t")
    if is_made_anew:
        table = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART)
        writer.append(table, [row(1, "a")])
        table.manage_snapshots().create_tag(ids(table)[0], held.lease.tag).commit()
    assert world.leasing.release(held.lease.lease_id).lease == held.lease
    assert leased_tags(world) == []
    assert not is_made_anew or set(tags(table)) == {held.lease.tag}


# What we read ourselves we lease: an expiry that runs meanwhile keeps the snapshots that are compared


@pytest.fixture
def leased(world: World) -> Table:
    """Two appends, a rewrite, another append; all of them old but the head."""
    made = make_small_files(world.catalog, 2)
    world.optimize(OptimizingType.FULL)
    world.now = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
    writer.append(made, [row(50)])
    return aged(made, 30)


def leases(world: World) -> list[Any]:
    return [one.lease for one in world.leasing.page().items]


def verify_while(world: World, happens: Callable[[], object]) -> Verification:
    """A verification during which something happens each time before rows are read."""

    def read(work: RewriteInput, access: FileAccess, lineage: bool, is_cancelled: Callable[[], bool]) -> RowsDigest:
        happens()
        return _digest(work, access, lineage, is_cancelled)

    return VerifyingService(world.tables_of, read, world.leasing).verify(TABLE, None, None, lambda: False)


def test_an_expiry_that_runs_meanwhile_keeps_both_snapshots(world: World, leased: Table) -> None:
    _, before, after, head = ids(leased)
    seen: list[Any] = []

    def happen() -> None:
        if not seen:
            seen.extend(leases(world))
            expire(world)

    found = verify_while(world, happen)
    (held,) = seen
    assert (held.snapshot_id, held.is_since, held.holder) == (before, True, "amoro verify")
    assert held.expires_at == world.now + timedelta(hours=1)
    assert ids(leased) == [before, after, head]
    assert found.is_sound
    assert [(one.span.before, one.span.after) for one in found.comparisons] == [(before, after)]
    assert leases(world) == []
    expire(world)
    assert ids(leased) == [head]


def test_a_long_reading_renews_its_lease(world: World, leased: Table) -> None:
    ends: list[timedelta] = []

    def happen() -> None:
        ends.append(leases(world)[0].expires_at - world.now)
        world.later(timedelta(hours=1).total_seconds() / 2)

    verify_while(world, happen)
    assert ends == [timedelta(hours=1)] * len(ends)
    assert len(ends) >= 2


def test_a_reading_that_fails_leaves_no_lease_and_without_its_lease_it_stops(world: World, leased: Table) -> None:
    with pytest.raises(KeyError):
        verify_while(world, raising(KeyError("a fault of ours")))
    assert leases(world) == []

    def release() -> None:
        for held in leases(world):
            world.leasing.release(held.lease_id)
        world.later(timedelta(hours=1).total_seconds())

    with pytest.raises(LeaseNotFound):
        verify_while(world, release)


def test_it_waits_for_an_expiry_but_not_for_ever_nor_for_somebody_who_has_gone(world: World, leased: Table) -> None:
    process = world.maintaining.begin(world.table().table_id, "expire-snapshots", trigger="request").process_id
    waits: list[float] = []
    world.leasing.wait = waits.append
    with pytest.raises(TableBusy, match="is removing snapshots"):
        verify(world)
    assert sum(waits) == 60
    waits.clear()
    with pytest.raises(TableBusy), world.leasing.reading(TABLE, ids(leased)[-1:], "bob", lambda: True):
        pass
    assert waits == []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            world.optimizing.cancel(process, "by hand")

    world.leasing.wait = wait
    assert verify(world).is_sound
    assert waits == [0.5] * 3


def test_one_snapshot_is_leased_by_itself_and_nothing_where_nobody_expires_it_or_the_state_is_only_read(
    world: World, leased: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reading(snapshots: list[int], name: str = "cat.db.t") -> Any:
        return world.leasing.reading(parse_table(name), snapshots, "bob", lambda: False)

    head = ids(leased)[-1]
    with reading([head]):
        assert [(one.snapshot_id, one.is_since) for one in leases(world)] == [(head, False)]
    with pytest.raises(InvalidArgument, match="no snapshot 5"), reading([5]):
        pass
    other = writer.make_table(world.catalog, "db.other", SCHEMA)
    writer.append(other, [row(1)])
    with reading(ids(other), "cat.db.other") as keep:
        world.later(DAY.total_seconds())
        keep()
        assert leases(world) == []
    store = ReadingStore.open(Path(world.home) / "amoro.db")
    monkeypatch.setattr(world.leasing, "store", store)
    with reading(ids(leased)):
        assert leases(world) == []
    store.close()


# Verifying real tables: what a rewrite did is proven, and what it did not do right is found


TABLE = parse_table("cat.db.t")


def verify(world: World, before: int | None = None) -> Verification:
    return world.verifying.verify(TABLE, before, None, lambda: False)


def replace_files(table: Table, rows: list[dict[str, object]]) -> None:
    """A rewrite of all data by somebody careless: these rows take the place of those that were there."""
    files = oracle.live_files(table)
    added = tuple(write_data_files(table, rows))
    commit(table, lambda head: Change(added, frozenset(file.path for file in files), summary={PROCESS_ID: "careless"}))


def test_an_optimizing_with_writers_before_and_after_it_is_proven(world: World) -> None:
    table = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART)
    for first in (0, 100):
        writer.append(table, [row(first + number, part) for number in range(10) for part in "ab"])
    writer.upsert(table, [row(3, "a", "new")], ["id"])
    writer.delete_where(table, lambda record: record["id"] == 105)
    process = world.begin_and_run(OptimizingType.FULL)
    writer.append(table, [row(500, "a"), row(501, "b")])
    writer.upsert(table, [row(101, "b", "newer")], ["id"])
    parent = table.refresh().metadata.current_snapshot_id
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    ours = table.refresh().metadata.current_snapshot_id
    writer.delete_where(table, lambda record: record["id"] == 500)
    head = table.refresh().metadata.current_snapshot_id

    found = verify(world)

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
    world: World, rows: list[dict[str, object]], counts: tuple[int, int]
) -> None:
    table = writer.make_table(world.catalog, "db.t", SCHEMA)
    writer.append(table, [row(number) for number in range(10)], files=2)
    replace_files(table, rows)
    found = verify(world)
    (partition,) = found.comparisons[0].partitions
    assert (partition.before.rows, partition.after.rows) == counts
    assert (partition.is_equal, found.is_sound, found.problems) == (False, False, ())


def test_a_row_that_moved_to_another_partition_is_found(world: World) -> None:
    table = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART)
    writer.append(table, [row(1, "a"), row(2, "b")])
    replace_files(table, [row(1, "b"), row(2, "b")])
    assert [one.is_equal for one in verify(world).comparisons[0].partitions] == [False, False]


def test_a_rewritten_file_that_is_changed_cut_or_gone_is_a_problem_with_its_name(world: World) -> None:
    plain = {"write.parquet.compression-codec": "uncompressed"}
    table = writer.make_table(world.catalog, "db.t", SCHEMA, properties=plain)
    for number in range(3):
        writer.append(table, [row(number, value=f"value-{number}")])
    assert world.optimize(OptimizingType.FULL) is ProcessStatus.SUCCESS
    (path,) = (Path(local_path(file.path)) for file in oracle.live_files(table))
    content = path.read_bytes()
    assert content.count(b"value-1") >= 1
    size = len(content)
    assert verify(world).is_sound
    for harmed, words in (
        (content.replace(b"value-1", b"value-7"), "CRC checksum verification failed"),
        (content[:-10], f"has {size - 10} bytes, but the manifest says {size}"),
        (None, "does not exist"),
    ):
        if harmed is None:
            path.unlink()
        else:
            path.write_bytes(harmed)
        found = verify(world)
        assert not found.is_sound
        assert any(path.name in problem and words in problem for problem in found.problems), words
    # One that no rewrite touched is looked for, too.
    path.write_bytes(content)
    writer.append(table, [row(9)])
    (path,) = (Path(local_path(file.path)) for file in oracle.live_files(table) if file.data_sequence == 5)
    assert verify(world).is_sound
    path.unlink()
    found = verify(world)
    assert (found.comparisons[0].is_equal, found.is_sound) == (True, False)
