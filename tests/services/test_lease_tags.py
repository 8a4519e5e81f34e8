"""Leases as tags: others that expire snapshots of the table keep to them, for as long as the lease holds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRef

from amoro_core.errors import CommitConflict, CommitRefused, CommitUnknown, InvalidArgument, LeaseNotFound, TableBusy
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.services.leasing import HeldLease
from tests.engine import oracle, writer
from tests.engine.aging import wait_for_one_day
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.services.test_expiring import aged, ids
from tests.services.test_maintaining import ON
from tests.services.test_maintaining import begin as begin_tag
from tests.services.world import World

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


def take(world: World, snapshot_id: int, held_for: timedelta = DAY) -> HeldLease:
    return world.leasing.take(world.table(), snapshot_id, "bob", held_for=held_for, as_tag=True)


def tags(table: Table) -> dict[str, SnapshotRef]:
    return {name: ref for name, ref in table.refresh().metadata.refs.items() if name != "main"}


def ends(table: Table, name: str) -> datetime:
    """When whoever goes by the specification lets the tag go: its age counts from its snapshot's time."""
    ref = tags(table)[name]
    snapshot = table.snapshot_by_id(ref.snapshot_id)
    assert snapshot is not None
    assert ref.max_ref_age_ms is not None
    return datetime.fromtimestamp((snapshot.timestamp_ms + ref.max_ref_age_ms) / 1000, UTC)


def test_the_tag_is_on_the_snapshot_and_ends_with_the_lease(world: World, table: Table) -> None:
    first, *_ = ids(table)
    held = take(world, first, timedelta(days=3))
    assert held.lease.tag == f"lease-{held.lease.lease_id}"
    assert {name: ref.snapshot_id for name, ref in tags(table).items()} == {held.lease.tag: first}
    assert ends(table, held.lease.tag) == held.lease.expires_at == world.now + timedelta(days=3)
    assert [one.lease.tag for one in world.leasing.page().items] == [held.lease.tag]


def test_a_lease_without_it_makes_none(world: World, table: Table) -> None:
    assert world.leasing.take(world.table(), ids(table)[0], "bob").lease.tag == ""
    assert tags(table) == {}


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
    lost = iter([True, True, False])

    def send(self: IcebergTable, payload: bytes) -> None:
        if next(lost):
            raise CommitConflict("somebody was faster")
        SEND(self, payload)

    world.iceberg.table(send=send)
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
    def send(self: IcebergTable, payload: bytes) -> None:
        raise error

    world.iceberg.table(send=send)
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
