"""Leases and trash in pages: none twice and none lost, whatever is taken, released, condemned or restored between."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from amoro_core.errors import InvalidArgument
from amoro_core.model.paging import Page, Window
from amoro_core.model.processes import ProcessStatus
from amoro_core.services.leasing import HeldLease
from amoro_core.services.trash import Trash
from amoro_core.store import condemned, processes, snapshot_leases, tables
from amoro_core.store.connection import Connection
from amoro_core.store.snapshot_leases import SnapshotLease
from tests.services.world import START, World
from tests.store import builders


def all_of(page: Callable[[Window], Page[object]], between: Callable[[], None] = lambda: None) -> list[object]:
    """Every item, two at a time."""
    found: list[object] = []
    after = ""
    while True:
        answer = page(Window(2, after))
        found += answer.items
        if not answer.next:
            return found
        between()
        after = answer.next


def lease(table_id: int, number: int, minutes: int) -> SnapshotLease:
    return SnapshotLease(
        lease_id=f"lease-{number:03}",
        table_id=table_id,
        table_uuid="u",
        snapshot_id=number,
        is_since=False,
        holder="bob",
        created_at=START,
        expires_at=START + timedelta(minutes=minutes),
    )


def known(world: World, name: str) -> int:
    return world.store.write(lambda db: tables.add(db, builders.runtime(name))).table_id


def test_leases_come_in_pages_by_their_end_while_others_come_and_go(world: World) -> None:
    table_id, other = known(world, "a"), known(world, "b")
    kept = [lease(table_id, number, 10 + number // 2) for number in range(9)]
    for one in (*kept, lease(other, 50, 1), lease(table_id, 60, 99)):
        world.store.write(lambda db, one=one: snapshot_leases.add(db, one))
    made = iter(range(100, 200))

    def between() -> None:
        number = next(made)
        world.store.write(lambda db: snapshot_leases.add(db, lease(table_id, number, 5)))
        world.store.write(lambda db: snapshot_leases.remove(db, "lease-060"))

    found = all_of(lambda window: world.leasing.page(table_id, window), between)
    ids = [one.lease.lease_id for one in found if isinstance(one, HeldLease)]
    assert [one for one in ids if one < "lease-050"] == [one.lease_id for one in kept]
    assert len(ids) == len(set(ids))
    assert world.leasing.page(other).total == 1
    cursor = world.leasing.page(table_id, Window(1)).next
    with pytest.raises(InvalidArgument, match="other filters"):
        world.leasing.page(None, Window(1, cursor))
    with pytest.raises(InvalidArgument, match="is no cursor"):
        world.leasing.page(None, Window(1, "lease-001"))


def condemn(db: Connection, table_id: int, number: int, minutes: int) -> None:
    """A process that has condemned two batches, of which one goes later."""
    owner = builders.process(tables.get(db, table_id), f"0199{number:04}-0001", created_at=START)
    processes.add(db, replace(owner, status=ProcessStatus.SUCCESS, finished_at=START))
    for later in (0, 60):
        db.execute(
            "INSERT INTO condemned_batch (process_id, table_id, table_uuid, kind, status, purge_at_ms, files, bytes, "
            "tries, content) VALUES (:process_id, :table_id, 'u', 'data', 'waiting', :purge, 3, 300, 0, x'')",
            {
                "process_id": owner.process_id,
                "table_id": table_id,
                "purge": 1_800_000_000_000 + (minutes + later) * 60_000,
            },
        )


def test_trash_comes_in_pages_by_process_the_next_to_go_first(world: World) -> None:
    ids = {name: known(world, name) for name in ("a", "b", "c")}
    for number, minutes in enumerate((5, 3, 3, 1, 4)):
        world.store.write(lambda db, number=number, minutes=minutes: condemn(db, ids["a"], number, minutes))
    world.store.write(lambda db: condemn(db, ids["b"], 50, 2))
    found = all_of(lambda window: world.trash.page(ids["a"], window))
    shown = [(one.process.process_id[4:8], one.files, one.bytes) for one in found if isinstance(one, Trash)]
    assert shown == [(number, 6, 600) for number in ("0003", "0001", "0002", "0004", "0000")]
    every = world.trash.page(None, Window(1))
    assert ([one.process.process_id[4:8] for one in every.items], every.total) == (["0003"], 6)
    assert [one.process.process_id[4:8] for one in world.trash.page(None, Window(1, every.next)).items] == ["0050"]
    assert world.trash.page(ids["c"]) == Page((), 0)
    assert world.store.read(lambda db: condemned.count_processes(db, ids["a"])) == 5
    with pytest.raises(InvalidArgument, match="other filters"):
        world.trash.page(ids["a"], Window(1, every.next))
