"""What we read ourselves we lease: an expiry that runs meanwhile keeps the snapshots that are compared."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.table import Table

from amoro_core.errors import InvalidArgument, LeaseNotFound, TableBusy
from amoro_core.files.io import FileAccess
from amoro_core.model.rewrite import RewriteInput
from amoro_core.model.tables import OptimizingType, parse_table
from amoro_core.model.verification import RowsDigest, Verification
from amoro_core.services.leasing import READING, HeldLease
from amoro_core.services.verifying import VerifyingService
from amoro_core.store.reading import ReadingStore
from amoro_core.wiring import _digest
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.services.test_expiring import aged, expire, ids
from tests.services.test_verifying import TABLE
from tests.services.world import World


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
        service = VerifyingService(self.world.tables_of, self.read, self.world.leasing.reading)
        return service.verify(TABLE, None, None, lambda: False)

    def leases(self) -> list[HeldLease]:
        return list(self.world.leasing.page().items)


@pytest.fixture
def meanwhile(world: World) -> Meanwhile:
    return Meanwhile(world)


@pytest.fixture
def table(world: World) -> Table:
    """Two appends, a rewrite, another append; all of them old but the head."""
    made = writer.make_table(world.catalog, "db.t", SCHEMA)
    for number in range(2):
        writer.append(made, [row(number)])
    world.optimize(OptimizingType.FULL)
    world.now = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
    writer.append(made, [row(50)])
    return aged(made, 30)


def test_an_expiry_that_runs_meanwhile_keeps_both_snapshots(world: World, table: Table, meanwhile: Meanwhile) -> None:
    _, before, after, head = ids(table)
    seen: list[HeldLease] = []

    def happen() -> None:
        seen.extend(meanwhile.leases())
        expire(world)

    meanwhile.happens = happen
    found = meanwhile.verify()
    (held,) = seen
    assert (held.lease.snapshot_id, held.lease.is_since, held.lease.holder) == (before, True, "amoro verify")
    assert held.lease.expires_at == world.now + READING
    assert ids(table) == [before, after, head]
    assert found.is_sound
    assert [(one.span.before, one.span.after) for one in found.comparisons] == [(before, after)]
    assert meanwhile.leases() == []
    expire(world)
    assert ids(table) == [head]


def test_a_long_reading_renews_its_lease(world: World, table: Table, meanwhile: Meanwhile) -> None:
    ends: list[timedelta] = []

    def read(work: RewriteInput, access: FileAccess, lineage: bool, is_cancelled: Callable[[], bool]) -> RowsDigest:
        world.later(READING.total_seconds() / 2)
        assert not is_cancelled()
        ends.append(meanwhile.leases()[0].lease.expires_at - world.now)
        return _digest(work, access, lineage, is_cancelled)

    VerifyingService(world.tables_of, read, world.leasing.reading).verify(TABLE, None, None, lambda: False)
    assert ends == [READING] * len(ends)
    assert len(ends) >= 2


def test_a_reading_that_fails_leaves_no_lease(world: World, table: Table, meanwhile: Meanwhile) -> None:
    def fail() -> None:
        raise KeyError("a fault of ours")

    meanwhile.happens = fail
    with pytest.raises(KeyError):
        meanwhile.verify()
    assert meanwhile.leases() == []


def test_a_reading_whose_lease_was_released_stops_instead_of_reading_what_may_go(
    world: World, table: Table, meanwhile: Meanwhile
) -> None:
    def happen() -> None:
        world.leasing.release(meanwhile.leases()[0].lease.lease_id)
        world.later(READING.total_seconds())

    meanwhile.happens = happen
    with pytest.raises(LeaseNotFound):
        meanwhile.verify()


def test_it_waits_for_an_expiry_that_is_under_way(world: World, table: Table, meanwhile: Meanwhile) -> None:
    process = world.maintaining.begin(world.table().table_id, "expire-snapshots", trigger="request").process_id
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            world.optimizing.cancel(process, "by hand")

    world.leasing._wait = wait
    assert meanwhile.verify().is_sound
    assert waits == [0.5] * 3


def test_it_does_not_wait_for_ever_nor_for_somebody_who_has_gone(
    world: World, table: Table, meanwhile: Meanwhile
) -> None:
    world.maintaining.begin(world.table().table_id, "expire-snapshots", trigger="request")
    waits: list[float] = []
    world.leasing._wait = waits.append
    with pytest.raises(TableBusy, match="is removing snapshots"):
        meanwhile.verify()
    assert sum(waits) == 60
    waits.clear()
    with pytest.raises(TableBusy), world.leasing.reading(TABLE, ids(table)[-1:], "bob", lambda: True):
        pass
    assert waits == []


def test_one_snapshot_is_leased_by_itself_and_what_is_gone_is_not(world: World, table: Table) -> None:
    head = ids(table)[-1]
    with world.leasing.reading(TABLE, [head], "bob", lambda: False):
        (held,) = world.leasing.page().items
        assert (held.lease.snapshot_id, held.lease.is_since) == (head, False)
    with pytest.raises(InvalidArgument, match="no snapshot 5"), world.leasing.reading(TABLE, [5], "bob", lambda: False):
        pass


def test_of_a_table_that_nobody_knows_nothing_is_leased(world: World, table: Table, meanwhile: Meanwhile) -> None:
    """Nobody here expires its snapshots; that it was looked at is not kept."""
    other = writer.make_table(world.catalog, "db.other", SCHEMA)
    writer.append(other, [row(1)])
    identifier = parse_table("cat.db.other")
    with world.leasing.reading(identifier, ids(other), "bob", lambda: False) as keep:
        world.later(timedelta(days=1).total_seconds())
        keep()
        assert list(world.leasing.page().items) == []


def test_where_the_state_is_only_read_nothing_is_leased(
    world: World, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ReadingStore.open(Path(world.home) / "amoro.db")
    monkeypatch.setattr(world.leasing, "_store", store)
    with world.leasing.reading(TABLE, ids(table), "bob", lambda: False):
        assert list(world.leasing.page().items) == []
    store.close()
