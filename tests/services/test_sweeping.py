"""Condemned files: kept for their time, guarded, deleted, looked at and taken back; leases keep what somebody needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.errors import (
    CatalogUnavailable,
    IllegalState,
    InvalidArgument,
    LeaseNotFound,
    ProcessNotFound,
    TableBusy,
)
from amoro_core.files.storage.stores import Pace
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.iceberg.maintenance.reachability_guard import Guard
from amoro_core.model.commits import SnapshotsRemoved
from amoro_core.model.maintenance import Condemned, Ended, FileKind, Removal, Surroundings, Waiting
from amoro_core.model.paging import Window
from amoro_core.model.processes import CommitAttempt, CommitOutcome, OptimizingProcess, ProcessStatus, Receipt
from amoro_core.services.trash import require_confirmed
from amoro_core.store import pending_deletions, processes
from amoro_core.store.pending_deletions import BatchFacts, BatchStatus
from amoro_core.transactions.store_plan import EVALUATION
from tests.condemning import NAME, Condemn
from tests.engine import oracle, writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.services.rigs import dying_at
from tests.services.world import World

DAY_S = 86400.0
DELETE = IcebergTable.delete_many


class Killed(BaseException):
    """As `kill -9`."""


class Place:
    """A table with files that nothing names, which the action of the tests condemns."""

    def __init__(self, home: Path, catalog: SqlCatalog) -> None:
        self.told: list[tuple[str, FileKind]] = []
        self.action = Condemn(lambda: self.told)
        self.world = World(home, catalog, (self.action,))
        self.table = writer.make_table(catalog, "db.t", SCHEMA, BY_PART)
        writer.append(self.table, [row(1, "a"), row(2, "a")])
        self.data = Path(self.table.location().removeprefix("file://")) / "data"

    def stray(self, number: int, kind: FileKind = FileKind.DATA) -> None:
        for one in range(number):
            path = self.data / f"stray-{kind}-{one}.parquet"
            path.write_bytes(b"x" * 10)
            self.told.append((path.as_uri(), kind))

    def left(self) -> list[str]:
        return sorted(path.name for path in self.data.rglob("stray-*"))

    def run(self, name: str = NAME) -> OptimizingProcess:
        process_id = self.world.maintaining.begin(self.table_id, name, trigger="request").process_id
        self.world.committing.commit(process_id)
        return self.of(process_id)

    def of(self, process_id: str) -> OptimizingProcess:
        return self.world.optimizing.find_process(process_id).process

    @property
    def table_id(self) -> int:
        return self.world.table().table_id

    def batches(self, *statuses: BatchStatus) -> list[BatchFacts]:
        chosen = statuses or tuple(BatchStatus)
        return self.world.store.read(lambda db: pending_deletions.list_facts(db, self.table_id, statuses=chosen))


@pytest.fixture
def place(tmp_path: Path, catalog: SqlCatalog) -> Iterator[Place]:
    home = tmp_path / "home"
    home.mkdir()
    made = Place(home, catalog)
    yield made
    made.world.close()


def figures(process: OptimizingProcess) -> dict[str, int]:
    assert process.receipt is not None
    return {figure.name: figure.value for figure in process.receipt.figures}


def test_what_is_condemned_stays_for_its_time_and_goes_then(place: Place) -> None:
    place.stray(3)
    done = place.run()
    assert (done.status, len(place.left())) == (ProcessStatus.SUCCESS, 3)
    assert [(one.status, one.files, one.purge_at - place.world.now) for one in place.batches()] == [
        (BatchStatus.WAITING, 3, timedelta(days=1))
    ]
    begun = place.world.maintaining.begin(place.table_id, "empty-trash", trigger="request")
    assert (begun.process_id, begun.reason) == ("", "nothing that was condemned is due")
    place.world.later(DAY_S)
    swept = place.run("empty-trash")
    assert (swept.status, place.left(), place.batches()) == (ProcessStatus.SUCCESS, [], [])
    told = dict.fromkeys(("bytes_deleted", "files_absent", "files_changed", "files_failed"), 0)
    assert figures(swept) == {**told, "data_files_deleted": 3}


def test_the_clock_empties_the_trash_of_a_table_when_something_is_due(place: Place) -> None:
    place.world.tables.refresh(place.table_id)
    assert all(name != "empty-trash" for _, name, _ in place.world.maintaining.list_due())
    place.stray(1)
    place.run()
    place.world.later(DAY_S)
    place.world.tables.refresh(place.table_id)
    assert (place.table_id, "empty-trash", "cat") in place.world.maintaining.list_due()
    place.world.committing.commit(
        place.world.maintaining.begin(place.table_id, "empty-trash", trigger=EVALUATION).process_id
    )
    assert place.left() == []
    place.world.tables.refresh(place.table_id)
    assert all(name != "empty-trash" for _, name, _ in place.world.maintaining.list_due())


def test_what_is_to_go_at_once_is_due_at_once(place: Place) -> None:
    place.action.keep = timedelta()
    place.stray(2)
    place.run()
    assert (place.table_id, "empty-trash", "cat") in place.world.maintaining.list_due()
    place.run("empty-trash")
    assert place.left() == []


def test_kinds_go_in_their_order_and_a_batch_has_one_kind(place: Place) -> None:
    for kind in reversed(FileKind):
        place.stray(2, kind)
    place.action.keep = timedelta()
    place.run()
    asked: list[str] = []

    def delete(self: IcebergTable, paths: Iterable[str]) -> Mapping[str, Removal]:
        some = list(paths)
        asked.extend(some)
        return DELETE(self, some)

    place.world.iceberg.table(delete_many=delete)
    place.run("empty-trash")
    words = [Path(path).name.removeprefix("stray-").rpartition("-")[0] for path in asked]
    assert words == [kind.value for kind in FileKind for _ in range(2)]


def test_the_guard_keeps_a_live_file_alarms_and_holds_the_process(place: Place) -> None:
    """The planner was wrong: without the guard live files would be deleted."""
    place.action.keep = timedelta()
    live = [file.path for file in oracle.live_files(place.table)]
    place.stray(2)
    place.told += [(path, FileKind.DATA) for path in live]
    place.run()
    held = place.run("empty-trash")
    assert (held.status, held.failure_code) == (ProcessStatus.HELD, "AMORO-6002")
    assert f"the table needs {min(live)}" in held.failure
    assert len(place.left()) == 2  # nothing of the batch went
    assert all(Path(path.removeprefix("file://")).exists() for path in live)
    assert place.world.sweeping.guard_hits == len(live)
    place.world.confirm("empty-trash")
    assert place.left() == []
    assert all(Path(path.removeprefix("file://")).exists() for path in live)


def test_a_file_that_changed_since_is_kept(place: Place) -> None:
    place.action.keep = timedelta()
    place.stray(2)
    place.action.sizes = {place.told[0][0]: 10, place.told[1][0]: 10}
    place.run()
    Path(place.told[1][0].removeprefix("file://")).write_bytes(b"another")
    swept = place.run("empty-trash")
    assert (len(place.left()), figures(swept)["files_changed"], place.batches()) == (1, 1, [])
    assert figures(swept)["files_absent"] == 0


def test_files_that_changed_and_files_that_are_gone_are_counted_apart(place: Place) -> None:
    place.action.keep = timedelta()
    place.stray(6)
    place.action.sizes = {path: 10 for path, _ in place.told}
    place.run()
    for path, _ in place.told[:3]:
        Path(path.removeprefix("file://")).unlink()
    for path, _ in place.told[3:5]:
        Path(path.removeprefix("file://")).write_bytes(b"another")
    found = figures(place.run("empty-trash"))
    assert (found["files_absent"], found["files_changed"], found["data_files_deleted"]) == (3, 2, 1)


def test_what_can_not_be_deleted_is_tried_five_times_and_given_up(place: Place) -> None:
    place.action.keep = timedelta()
    place.stray(2)
    place.run()

    def fail(self: IcebergTable, paths: Iterable[str]) -> Mapping[str, Removal]:
        return {path: Removal(Ended.FAILED, "503") for path in paths}

    place.world.iceberg.table(delete_many=fail)
    for tries in range(1, 6):
        swept = place.run("empty-trash")
        assert figures(swept)["files_failed"] == 2
        assert [(one.tries, one.status) for one in place.batches()] == [
            (tries, BatchStatus.DELETING if tries < 5 else BatchStatus.DELETED)
        ]
    assert place.world.store.read(lambda db: pending_deletions.due(db, place.table_id, place.world.now)) == Waiting()


def test_the_rate_is_halved_when_the_storage_asks_for_less_and_grows_again() -> None:
    waits = list[float]()
    pace = Pace(1000, lambda: 5.0, waits.append)
    slow = {f"f{one}": Removal(Ended.FAILED, "503 SlowDown") for one in range(100)}
    fine = {f"f{one}": Removal(Ended.DELETED) for one in range(100)}
    for removals in (fine, slow, fine, fine):
        pace.keep(removals, pace.begin())
    assert waits == pytest.approx([0.1, 0.1, 0.2, 100 / 550])


def test_what_is_restored_while_its_batch_is_being_guarded_stays(place: Place) -> None:
    place.action.keep = timedelta()
    place.stray(2)
    condemning = place.run().process_id
    reachable = Guard.reachable

    def restore_meanwhile(self: Guard, paths: Iterable[str]) -> Mapping[str, str]:
        assert place.world.trash.restore(condemning).files == 2
        return reachable(self, paths)

    place.world.iceberg.guard(reachable=restore_meanwhile)
    assert place.run("empty-trash").status is ProcessStatus.SUCCESS
    assert len(place.left()) == 2
    assert [one.status for one in place.batches()] == [BatchStatus.RESTORED]


def test_what_another_table_of_the_name_has_condemned_is_left_alone(place: Place) -> None:
    """The guard of this table can't answer for the other, which may go on under another name."""
    place.action.keep = timedelta()
    place.stray(2)
    place.run()
    place.world.store.write(lambda db: db.execute("UPDATE condemned_batch SET table_uuid = 'another'"))
    place.run("empty-trash")
    assert (len(place.left()), place.batches()) == (2, [])


def test_nothing_goes_where_the_guard_can_not_tell(place: Place) -> None:
    place.action.keep = timedelta()
    place.stray(2)
    place.run()

    def fail(self: Guard, paths: Iterable[str]) -> Mapping[str, str]:
        raise CatalogUnavailable("no answer")

    with place.world.iceberg.guard(reachable=fail):
        process_id = place.world.maintaining.begin(place.table_id, "empty-trash", trigger="request").process_id
        with pytest.raises(CatalogUnavailable):
            place.world.committing.commit(process_id)
    assert (place.of(process_id).status, len(place.left())) == (ProcessStatus.CLEARING, 2)
    place.world.later(61)
    assert place.world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert place.left() == []


@pytest.mark.parametrize(
    "point", ["sweep.before_guard", "sweep.before_delete", "sweep.after_delete", "sweep.after_batch"]
)
def test_killed_anywhere_the_sweep_is_guarded_anew_and_ends(place: Place, point: str) -> None:
    place.action.keep = timedelta()
    place.stray(2)
    place.stray(2, FileKind.MANIFEST)
    place.run()
    asked: list[int] = []
    reachable = Guard.reachable

    def look(self: Guard, paths: Iterable[str]) -> Mapping[str, str]:
        some = list(paths)
        asked.append(len(some))
        return reachable(self, some)

    place.world.iceberg.guard(reachable=look)
    process_id = place.world.maintaining.begin(place.table_id, "empty-trash", trigger="request").process_id
    with dying_at(point):
        place.world.committing.commit(process_id)
    before = len(asked)
    place.world.restart()
    assert place.world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert (place.left(), place.batches()) == ([], [])
    assert len(asked) > before  # each batch that was left passed the guard once more


def test_a_death_before_the_end_of_condemning_condemns_nothing_twice(place: Place) -> None:
    place.stray(3)
    process_id = place.world.maintaining.begin(place.table_id, NAME, trigger="request").process_id
    assert [one.status for one in place.batches()] == [BatchStatus.WRITTEN]
    place.world.restart()
    assert place.world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert [(one.status, one.files) for one in place.batches()] == [(BatchStatus.WAITING, 3)]


def test_a_process_that_is_closed_condemns_nothing(place: Place) -> None:
    place.stray(3)
    process_id = place.world.maintaining.begin(place.table_id, NAME, trigger="request").process_id
    place.world.optimizing.cancel(process_id, "by hand")
    assert (place.of(process_id).status, place.batches()) == (ProcessStatus.CLOSED, [])


def test_history_keeps_a_process_as_long_as_its_files_wait(place: Place) -> None:
    place.action.keep = timedelta(days=100)
    place.stray(1)
    done = place.run()
    place.world.later(40 * DAY_S)
    assert place.world.history.trim() == 0
    assert place.of(done.process_id).status is ProcessStatus.SUCCESS
    place.world.later(61 * DAY_S)
    place.run("empty-trash")
    assert place.world.history.trim() == 1


def test_what_was_listed_of_a_file_is_kept_with_it_to_the_millisecond(place: Place) -> None:
    """By which another file of its name is told from it later."""
    at = place.world.now - timedelta(days=5, microseconds=1000)
    files = [Condemned("/x/a", FileKind.DATA, 3, at, "why"), Condemned("/x/b", FileKind.DATA, None, None, "why")]
    (batch,) = pending_deletions.batches_of(files, "p", place.table_id, place.world.table().uuid, place.world.now)
    place.world.store.write(lambda db: pending_deletions.add_many(db, [batch]))
    (stored,) = place.batches(BatchStatus.WRITTEN)
    kept = place.world.store.read(lambda db: pending_deletions.get(db, stored.batch_id))
    assert kept is not None
    assert kept.files == tuple(files)


# What waits to be deleted can be looked at and taken back; what somebody needs is kept for a while


class TrashPlace:
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
def trashed(tmp_path: Path, catalog: SqlCatalog) -> Iterator[TrashPlace]:
    home = tmp_path / "home"
    home.mkdir()
    made = TrashPlace(home, catalog)
    yield made
    made.world.close()


# Trash


def test_what_waits_is_listed_by_process_with_each_file_and_its_reason(trashed: TrashPlace) -> None:
    assert list(trashed.world.trash.page().items) == []
    process_id = trashed.condemn()
    (trash,) = trashed.world.trash.page(trashed.table_id).items
    assert (trash.process.process_id, str(trash.table), trash.files, trash.bytes, trash.deleting_files) == (
        process_id,
        "cat.db.t",
        3,
        3,
        0,
    )
    assert trash.purge_at == trashed.world.now + timedelta(days=1)
    shown = trashed.world.trash.show(process_id[:30])
    assert {(file.path, file.kind, file.reason) for file, _, _ in shown.files.items} == {
        (path.as_uri(), kind, "told so")
        for path, kind in zip(trashed.strays, (FileKind.DATA, FileKind.DATA, FileKind.MANIFEST), strict=True)
    }
    assert len(trashed.world.trash.show(process_id, Window(2)).files.items) == 2


def test_what_is_restored_stays_and_is_not_condemned_any_more(trashed: TrashPlace) -> None:
    process_id = trashed.condemn()
    assert trashed.around.condemned == {path.as_uri() for path in trashed.strays}
    assert trashed.world.trash.restore(process_id).files == 3
    assert trashed.around.condemned == frozenset()
    trashed.world.later(2 * DAY_S)
    begun = trashed.world.maintaining.begin(trashed.table_id, "empty-trash", trigger="request")
    assert begun.process_id == ""
    assert all(path.exists() for path in trashed.strays)
    with pytest.raises(ProcessNotFound, match="has no condemned files that wait"):
        trashed.world.trash.restore(process_id)


def test_what_is_being_deleted_can_not_be_restored(trashed: TrashPlace) -> None:
    process_id = trashed.condemn()
    for facts in trashed.world.trash._store.read(lambda db: pending_deletions.list_facts(db)):
        batch = trashed.world.store.read(lambda db, facts=facts: pending_deletions.get(db, facts.batch_id))
        assert batch is not None
        begun = pending_deletions.without(batch, ())
        object.__setattr__(begun, "status", BatchStatus.DELETING)
        trashed.world.store.write(lambda db, begun=begun: pending_deletions.save(db, begun))
    with pytest.raises(IllegalState, match="are being deleted"):
        trashed.world.trash.restore(process_id)
    assert trashed.world.trash.page().items[0].deleting_files == 3


def test_what_is_hurried_is_due_at_once(trashed: TrashPlace) -> None:
    trashed.condemn()
    assert trashed.world.trash.make_due_now(trashed.table_id) == (3, 3)
    assert trashed.world.run("empty-trash") is ProcessStatus.SUCCESS
    assert not any(path.exists() for path in trashed.strays)


def test_a_confirmation_names_the_table(trashed: TrashPlace) -> None:
    identifier = trashed.world.table().identifier
    require_confirmed(identifier, "cat.db.t")
    for wrong in ("", "db.t", "cat.db.T"):
        with pytest.raises(InvalidArgument, match=f"--confirm names '{wrong}', and the table is cat.db.t"):
            require_confirmed(identifier, wrong)


# Leases


def take(place: TrashPlace, snapshot_id: int, **more: object) -> str:
    return place.world.leasing.take(place.world.table(), snapshot_id, "bob", **more).lease.lease_id


def test_a_lease_keeps_its_snapshot_until_it_ends(trashed: TrashPlace) -> None:
    first, second = (one.snapshot_id for one in trashed.table.refresh().metadata.snapshots)
    lease_id = take(trashed, first)
    take(trashed, second, since=True, held_for=timedelta(days=2))
    around = trashed.around
    assert around.pinned[first] == f"lease {lease_id[:8]} of bob"
    assert set(around.since) == {second}
    assert [one.lease.snapshot_id for one in trashed.world.leasing.page(trashed.table_id).items] == [first, second]
    trashed.world.later(DAY_S)
    assert (set(trashed.around.pinned), set(trashed.around.since)) == ({second}, {second})
    trashed.world.later(DAY_S)
    assert (trashed.around.pinned, list(trashed.world.leasing.page().items)) == ({}, [])


def test_a_lease_is_renewed_from_now_on_and_released(trashed: TrashPlace) -> None:
    lease_id = take(trashed, trashed.world.table_head())
    trashed.world.later(DAY_S / 2)
    renewed = trashed.world.leasing.renew(lease_id[:20], timedelta(days=7))
    assert renewed.lease.expires_at == trashed.world.now + timedelta(days=7)
    assert trashed.world.leasing.release(lease_id).lease.lease_id == lease_id
    for call in (trashed.world.leasing.renew, trashed.world.leasing.release):
        with pytest.raises(LeaseNotFound, match="it was released or has expired"):
            call(lease_id)


def test_one_that_has_expired_can_not_be_renewed(trashed: TrashPlace) -> None:
    """Its snapshot may be gone: who comes late has to take another."""
    lease_id = take(trashed, trashed.world.table_head())
    trashed.world.later(DAY_S)
    with pytest.raises(LeaseNotFound):
        trashed.world.leasing.renew(lease_id)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"held_for": timedelta(days=7, seconds=1)}, "a lease of 604801 s is not possible"),
        ({"held_for": timedelta()}, "a lease of 0 s is not possible"),
    ],
)
def test_a_lease_lasts_at_most_a_week(trashed: TrashPlace, more: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        take(trashed, trashed.world.table_head(), **more)


def test_only_snapshots_that_are_there_are_leased_to_somebody_with_a_name(trashed: TrashPlace) -> None:
    with pytest.raises(InvalidArgument, match="has no snapshot 5"):
        take(trashed, 5)
    for holder in ("", "  ", "x" * 256):
        with pytest.raises(InvalidArgument, match="invalid holder"):
            trashed.world.leasing.take(trashed.world.table(), trashed.world.table_head(), holder)


def test_a_snapshot_that_may_be_expiring_is_leased_to_nobody(trashed: TrashPlace) -> None:
    head = trashed.world.table_head()
    process_id = trashed.world.maintaining.begin(trashed.table_id, NAME, trigger="request").process_id
    process = trashed.world.store.read(lambda db: processes.get(db, process_id))
    sent = CommitAttempt(
        process_id,
        1,
        SnapshotsRemoved((head,)),
        b"",
        (),
        (),
        (),
        CommitOutcome.SENT,
        process.created_at,
        Receipt.brief(""),
    )
    trashed.world.store.write(lambda db: processes.add_commit(db, sent))
    with pytest.raises(TableBusy, match=f"may be removing snapshot {head}"):
        take(trashed, head)
