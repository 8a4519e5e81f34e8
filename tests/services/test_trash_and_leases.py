"""What waits to be deleted can be looked at and taken back; what somebody needs is kept for a while."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.errors import IllegalState, InvalidArgument, LeaseNotFound, ProcessNotFound, TableBusy
from amoro_core.model.commits import SnapshotsGone
from amoro_core.model.maintenance import FileKind, Surroundings
from amoro_core.model.paging import Window
from amoro_core.model.processes import CommitAttempt, CommitOutcome, ProcessStatus, Receipt
from amoro_core.services.trash import require_confirmed
from amoro_core.store import commits, condemned, processes
from amoro_core.store.condemned import BatchStatus
from tests.condemning import NAME, Condemn
from tests.engine import writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.services.world import World

DAY_S = 86400.0


class Place:
    """A table with two snapshots and strays that the action of the tests condemns."""

    def __init__(self, home: Path, catalog: SqlCatalog) -> None:
        self.table = writer.make_table(catalog, "db.t", SCHEMA, BY_PART)
        writer.append(self.table, [row(1, "a")])
        writer.append(self.table, [row(2, "a")])
        data = Path(self.table.location().removeprefix("file://")) / "data"
        self.strays = [data / f"stray-{one}" for one in range(3)]
        for path in self.strays:
            path.write_bytes(b"x")
        kinds = (FileKind.DATA, FileKind.DATA, FileKind.MANIFEST)
        self.action = Condemn(lambda: [(path.as_uri(), kind) for path, kind in zip(self.strays, kinds, strict=True)])
        self.action.sizes = {path.as_uri(): 1 for path in self.strays}
        self.world = World(home, catalog, (self.action,))

    @property
    def table_id(self) -> int:
        return self.world.table().table_id

    def condemn(self) -> str:
        process_id = self.world.maintaining.begin(self.table_id, NAME, trigger="request").process_id
        assert self.world.committing.commit(process_id) is ProcessStatus.SUCCESS
        return process_id

    @property
    def around(self) -> Surroundings:
        """What the next plan would be told."""
        self.world.maintaining.preview(self.world.table().identifier, NAME)
        return self.action.seen[-1]


@pytest.fixture
def place(tmp_path: Path, catalog: SqlCatalog) -> Iterator[Place]:
    home = tmp_path / "home"
    home.mkdir()
    made = Place(home, catalog)
    yield made
    made.world.close()


# Trash


def test_what_waits_is_listed_by_process_with_each_file_and_its_reason(place: Place) -> None:
    assert list(place.world.trash.page().items) == []
    process_id = place.condemn()
    (trash,) = place.world.trash.page(place.table_id).items
    assert (trash.process.process_id, str(trash.table), trash.files, trash.bytes, trash.deleting_files) == (
        process_id,
        "cat.db.t",
        3,
        3,
        0,
    )
    assert trash.purge_at == place.world.now + timedelta(days=1)
    shown = place.world.trash.show(process_id[:30])
    assert {(file.path, file.kind, file.reason) for file, _, _ in shown.files.items} == {
        (path.as_uri(), kind, "told so")
        for path, kind in zip(place.strays, (FileKind.DATA, FileKind.DATA, FileKind.MANIFEST), strict=True)
    }
    assert len(place.world.trash.show(process_id, Window(2)).files.items) == 2


def test_what_is_restored_stays_and_is_not_condemned_any_more(place: Place) -> None:
    process_id = place.condemn()
    assert place.around.condemned == {path.as_uri() for path in place.strays}
    assert place.world.trash.restore(process_id).files == 3
    assert place.around.condemned == frozenset()
    place.world.later(2 * DAY_S)
    begun = place.world.maintaining.begin(place.table_id, "empty-trash", trigger="request")
    assert begun.process_id == ""
    assert all(path.exists() for path in place.strays)
    with pytest.raises(ProcessNotFound, match="has no condemned files that wait"):
        place.world.trash.restore(process_id)


def test_what_is_being_deleted_can_not_be_restored(place: Place) -> None:
    process_id = place.condemn()
    for facts in place.world.trash._store.read(lambda db: condemned.list_facts(db)):
        batch = place.world.store.read(lambda db, facts=facts: condemned.get(db, facts.batch_id))
        assert batch is not None
        begun = condemned.without(batch, ())
        object.__setattr__(begun, "status", BatchStatus.DELETING)
        place.world.store.write(lambda db, begun=begun: condemned.save(db, begun))
    with pytest.raises(IllegalState, match="are being deleted"):
        place.world.trash.restore(process_id)
    assert place.world.trash.page().items[0].deleting_files == 3


def test_what_is_hurried_is_due_at_once(place: Place) -> None:
    place.condemn()
    assert place.world.trash.hurry(place.table_id) == (3, 3)
    assert place.world.run("empty-trash") is ProcessStatus.SUCCESS
    assert not any(path.exists() for path in place.strays)


def test_a_confirmation_names_the_table(place: Place) -> None:
    identifier = place.world.table().identifier
    require_confirmed(identifier, "cat.db.t")
    for wrong in ("", "db.t", "cat.db.T"):
        with pytest.raises(InvalidArgument, match=f"--confirm names '{wrong}', and the table is cat.db.t"):
            require_confirmed(identifier, wrong)


# Leases


def take(place: Place, snapshot_id: int, **more: object) -> str:
    return place.world.leasing.take(place.world.table(), snapshot_id, "bob", **more).lease.lease_id


def test_a_lease_keeps_its_snapshot_until_it_ends(place: Place) -> None:
    first, second = (one.snapshot_id for one in place.table.refresh().metadata.snapshots)
    lease_id = take(place, first)
    take(place, second, since=True, held_for=timedelta(days=2))
    around = place.around
    assert around.pinned[first] == f"lease {lease_id[:8]} of bob"
    assert set(around.since) == {second}
    assert [one.lease.snapshot_id for one in place.world.leasing.page(place.table_id).items] == [first, second]
    place.world.later(DAY_S)
    assert (set(place.around.pinned), set(place.around.since)) == ({second}, {second})
    place.world.later(DAY_S)
    assert (place.around.pinned, list(place.world.leasing.page().items)) == ({}, [])


def test_a_lease_is_renewed_from_now_on_and_released(place: Place) -> None:
    lease_id = take(place, place.world.table_head())
    place.world.later(DAY_S / 2)
    renewed = place.world.leasing.renew(lease_id[:20], timedelta(days=7))
    assert renewed.lease.expires_at == place.world.now + timedelta(days=7)
    assert place.world.leasing.release(lease_id).lease.lease_id == lease_id
    for call in (place.world.leasing.renew, place.world.leasing.release):
        with pytest.raises(LeaseNotFound, match="it was released or has expired"):
            call(lease_id)


def test_one_that_has_expired_can_not_be_renewed(place: Place) -> None:
    """Its snapshot may be gone: who comes late has to take another."""
    lease_id = take(place, place.world.table_head())
    place.world.later(DAY_S)
    with pytest.raises(LeaseNotFound):
        place.world.leasing.renew(lease_id)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"held_for": timedelta(days=7, seconds=1)}, "a lease of 604801 s is not possible"),
        ({"held_for": timedelta()}, "a lease of 0 s is not possible"),
    ],
)
def test_a_lease_lasts_at_most_a_week(place: Place, more: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        take(place, place.world.table_head(), **more)


def test_only_snapshots_that_are_there_are_leased_to_somebody_with_a_name(place: Place) -> None:
    with pytest.raises(InvalidArgument, match="has no snapshot 5"):
        take(place, 5)
    for holder in ("", "  ", "x" * 256):
        with pytest.raises(InvalidArgument, match="is no holder"):
            place.world.leasing.take(place.world.table(), place.world.table_head(), holder)


def test_a_snapshot_that_may_be_expiring_is_leased_to_nobody(place: Place) -> None:
    head = place.world.table_head()
    process_id = place.world.maintaining.begin(place.table_id, NAME, trigger="request").process_id
    process = place.world.store.read(lambda db: processes.get(db, process_id))
    sent = CommitAttempt(
        process_id, 1, SnapshotsGone((head,)), b"", (), (), (), CommitOutcome.SENT, process.created_at, Receipt.told("")
    )
    place.world.store.write(lambda db: commits.add(db, sent))
    with pytest.raises(TableBusy, match=f"may be removing snapshot {head}"):
        take(place, head)
