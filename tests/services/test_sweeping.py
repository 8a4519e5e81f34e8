"""Condemned files: kept for their time, guarded, deleted, looked at and taken back; leases keep what somebody needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from amoro_core.errors import (
    CatalogUnavailable,
    IllegalState,
    InvalidArgument,
    LeaseNotFound,
    ProcessNotFound,
    TableBusy,
    TableRefused,
)
from amoro_core.files.storage.io import FileAccess
from amoro_core.files.storage.stores import Pace
from amoro_core.iceberg.maintenance.reachability_guard import Guard
from amoro_core.model.commits import SnapshotsRemoved
from amoro_core.model.maintenance import Condemned, Ended, FileKind, Options, Removal, Surroundings, Waiting
from amoro_core.model.paging import Window
from amoro_core.model.processes import CommitAttempt, CommitOutcome, OptimizingProcess, ProcessStatus, Receipt
from amoro_core.store import pending_deletions, processes
from amoro_core.store.pending_deletions import BatchFacts, BatchStatus
from amoro_core.transactions.store_plan import EVALUATION
from tests.condemning import NAME, Condemn
from tests.engine import oracle, writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.services.rigs import Killed, dying_at, not_removed, raising
from tests.services.world import World

DAY_S = 86400.0
DELETE = FileAccess.delete_many


class Place:
    """A table with files that nothing names, which the action of the tests condemns."""

    def __init__(self, new_world: Callable[..., World]) -> None:
        self.told: list[tuple[str, FileKind]] = []
        self.action = Condemn(lambda: self.told)
        self.world = new_world(self.action)
        self.table = writer.make_table(self.world.catalog, "db.t", SCHEMA, BY_PART)
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
        return self.world.process(process_id)

    def of(self, process_id: str) -> OptimizingProcess:
        return self.world.process(process_id)

    @property
    def table_id(self) -> int:
        return self.world.table().table_id

    def batches(self, *statuses: BatchStatus) -> list[BatchFacts]:
        chosen = statuses or tuple(BatchStatus)
        return self.world.store.read(lambda db: pending_deletions.list_facts(db, self.table_id, statuses=chosen))

    @property
    def around(self) -> Surroundings:
        """What the next plan would be told."""
        self.world.maintaining.preview(self.world.table().identifier, NAME)
        return self.action.seen[-1]


@pytest.fixture
def place(new_world: Callable[..., World]) -> Place:
    return Place(new_world)


def figures(process: OptimizingProcess) -> dict[str, int]:
    return {figure.name: figure.value for figure in process.receipt.figures}


def test_what_is_condemned_stays_for_its_time_and_goes_then(place: Place) -> None:
    place.stray(3)
    done = place.run()
    assert (done.status, len(place.left())) == (ProcessStatus.SUCCESS, 3)
    assert [(one.status, one.files, one.purge_at - place.world.now) for one in place.batches()] == [
        (BatchStatus.WAITING, 3, timedelta(days=1))
    ]
    begun = place.world.maintaining.begin(place.table_id, "empty-trash", trigger="request")
    assert (begun.process_id, begun.reason) == ("", "no file in the trash is due to be deleted")
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


def test_kinds_go_in_their_order_and_a_batch_has_one_kind(place: Place) -> None:
    for kind in reversed(FileKind):
        place.stray(2, kind)
    place.action.keep = timedelta()
    place.run()
    asked: list[str] = []

    def delete(self: FileAccess, paths: Iterable[str]) -> Mapping[str, Removal]:
        some = list(paths)
        asked.extend(some)
        return DELETE(self, some)

    place.world.iceberg.files(delete_many=delete)
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
    assert place.world.guard_hits == len(live)
    place.world.confirm("empty-trash")
    assert place.left() == []
    assert all(Path(path.removeprefix("file://")).exists() for path in live)


def test_files_that_changed_are_kept_and_those_that_are_gone_are_counted_apart(place: Place) -> None:
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
    assert (len(place.left()), place.batches()) == (2, [])


def test_what_can_not_be_deleted_is_tried_five_times_and_given_up(place: Place) -> None:
    place.action.keep = timedelta()
    place.stray(2)
    place.run()

    place.world.iceberg.files(delete_many=not_removed)
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

    with place.world.iceberg.guard(reachable=raising(CatalogUnavailable("no answer"))):
        process_id = place.world.maintaining.begin(place.table_id, "empty-trash", trigger="request").process_id
        with pytest.raises(CatalogUnavailable):
            place.world.committing.commit(process_id)
    assert (place.world.process(process_id).status, len(place.left())) == (ProcessStatus.CLEARING, 2)
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
    assert (place.world.process(process_id).status, place.batches()) == (ProcessStatus.CLOSED, [])


def test_history_keeps_a_process_as_long_as_its_files_wait(place: Place) -> None:
    place.action.keep = timedelta(days=100)
    place.stray(1)
    done = place.run()
    place.world.later(40 * DAY_S)
    assert place.world.history.trim() == 0
    assert place.world.process(done.process_id).status is ProcessStatus.SUCCESS
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
    assert kept.files == tuple(files)


# What waits to be deleted can be looked at and taken back; what somebody needs is kept for a while


@pytest.fixture
def trashed(place: Place) -> Place:
    """With three strays of ten bytes, which the action of the tests condemns."""
    place.stray(2)
    place.stray(1, FileKind.MANIFEST)
    place.action.sizes = {path: 10 for path, _ in place.told}
    return place


def test_what_waits_is_listed_by_process_with_each_file_and_its_reason(trashed: Place) -> None:
    assert list(trashed.world.trash.page().items) == []
    process_id = trashed.run().process_id
    (trash,) = trashed.world.trash.page(trashed.table_id).items
    told = trash.process.process_id, str(trash.table), trash.files, trash.bytes, trash.deleting_files
    assert told == (process_id, "cat.db.t", 3, 30, 0)
    assert trash.purge_at == trashed.world.now + timedelta(days=1)
    _, shown = trashed.world.trash.show(process_id[:30])
    assert {(file.path, file.kind, file.reason) for file, _, _ in shown.items} == {
        (path, kind, "told so") for path, kind in trashed.told
    }
    assert len(trashed.world.trash.show(process_id, Window(2))[1].items) == 2
    trashed.told.clear()
    trashed.world.later(60)
    (trashed.data / "stray-late.parquet").write_bytes(b"x")
    trashed.told.append(((trashed.data / "stray-late.parquet").as_uri(), FileKind.DATA))
    later = trashed.run().process_id
    page = trashed.world.trash.page(None, Window(1))
    rest = trashed.world.trash.page(None, Window(1, page.next))
    assert [one.process.process_id for one in (*page.items, *rest.items)] == [process_id, later]
    assert (page.total, rest.next) == (2, "")


def test_what_is_restored_stays_and_is_not_condemned_any_more(trashed: Place) -> None:
    process_id = trashed.run().process_id
    assert trashed.around.condemned == {path for path, _ in trashed.told}
    assert trashed.world.trash.restore(process_id).files == 3
    assert trashed.around.condemned == frozenset()
    trashed.world.later(2 * DAY_S)
    begun = trashed.world.maintaining.begin(trashed.table_id, "empty-trash", trigger="request")
    assert begun.process_id == ""
    assert len(trashed.left()) == 3
    with pytest.raises(ProcessNotFound, match="has no files in the trash"):
        trashed.world.trash.restore(process_id)


def test_what_is_being_deleted_can_not_be_restored(trashed: Place) -> None:
    process_id = trashed.run().process_id
    for facts in trashed.world.store.read(lambda db: pending_deletions.list_facts(db)):
        batch = trashed.world.store.read(lambda db, facts=facts: pending_deletions.get(db, facts.batch_id))
        assert batch is not None
        begun = pending_deletions.without(batch, ())
        object.__setattr__(begun, "status", BatchStatus.DELETING)
        trashed.world.store.write(lambda db, begun=begun: pending_deletions.save(db, begun))
    with pytest.raises(IllegalState, match="are being deleted"):
        trashed.world.trash.restore(process_id)
    assert trashed.world.trash.page().items[0].deleting_files == 3


def test_what_is_hurried_is_due_at_once(trashed: Place) -> None:
    trashed.run()
    assert trashed.world.trash.make_due_now(trashed.table_id) == (3, 30)
    assert trashed.world.run("empty-trash") is ProcessStatus.SUCCESS
    assert trashed.left() == []


# Leases


def take(place: Place, snapshot_id: int, **more: object) -> str:
    return place.world.leasing.take(place.world.table(), snapshot_id, "bob", **more).lease.lease_id


def test_a_lease_keeps_its_snapshot_until_it_ends(trashed: Place) -> None:
    writer.append(trashed.table, [row(3, "a")])
    first, second = (one.snapshot_id for one in trashed.table.refresh().metadata.snapshots)
    lease_id = take(trashed, first)
    take(trashed, second, since=True, held_for=timedelta(days=2))
    around = trashed.around
    assert around.pinned[first] == f"lease {lease_id[-8:]} of bob"
    assert set(around.since) == {second}
    page = trashed.world.leasing.page(trashed.table_id, Window(1))
    rest = trashed.world.leasing.page(trashed.table_id, Window(1, page.next))
    assert [one.lease.snapshot_id for one in (*page.items, *rest.items)] == [first, second]
    assert (page.total, rest.next) == (2, "")
    with pytest.raises(InvalidArgument, match="other filters"):
        trashed.world.leasing.page(None, Window(1, page.next))
    trashed.world.later(DAY_S)
    assert (set(trashed.around.pinned), set(trashed.around.since)) == ({second}, {second})
    trashed.world.later(DAY_S)
    assert (trashed.around.pinned, list(trashed.world.leasing.page().items)) == ({}, [])


def test_a_lease_is_renewed_from_now_on_and_released(trashed: Place) -> None:
    lease_id = take(trashed, trashed.world.table_head())
    trashed.world.later(DAY_S / 2)
    renewed = trashed.world.leasing.renew(lease_id[-8:], timedelta(days=7))
    assert renewed.lease.expires_at == trashed.world.now + timedelta(days=7)
    assert trashed.world.leasing.release(lease_id).lease.lease_id == lease_id
    for call in (trashed.world.leasing.renew, trashed.world.leasing.release):
        with pytest.raises(LeaseNotFound, match="it was released or has expired"):
            call(lease_id)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"held_for": timedelta(days=7, seconds=1)}, "a lease of 604801 s is not possible"),
        ({"held_for": timedelta()}, "a lease of 0 s is not possible"),
    ],
)
def test_a_lease_lasts_at_most_a_week(trashed: Place, more: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        take(trashed, trashed.world.table_head(), **more)


def test_only_snapshots_that_are_there_are_leased_to_somebody_with_a_name(trashed: Place) -> None:
    with pytest.raises(InvalidArgument, match="has no snapshot 5"):
        take(trashed, 5)
    for holder in ("", "  ", "x" * 256):
        with pytest.raises(InvalidArgument, match="invalid holder"):
            trashed.world.leasing.take(trashed.world.table(), trashed.world.table_head(), holder)


def test_a_snapshot_that_may_be_expiring_is_leased_to_nobody(trashed: Place) -> None:
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


# Files that a table asks to be moved to a trash: by day, never over a file, back again, and deleted from there


EMPTY = "empty-trash"


class Trashed(Place):
    """A place whose table asks for the trash, and whose strays are due at once."""

    def __init__(self, new_world: Callable[..., World]) -> None:
        super().__init__(new_world)
        self.ask({"table-trash.enabled": "true"})
        self.action.keep = timedelta()

    def ask(self, properties: Mapping[str, str]) -> None:
        with self.table.refresh().transaction() as change:
            change.set_properties(dict(properties))

    @property
    def root(self) -> Path:
        return self.data.parent / ".trash"

    def trashed(self, root: Path | None = None) -> list[str]:
        """The files in the trash: day, process, and the path that they had."""
        top = root or self.root
        return sorted(str(path.relative_to(top)) for path in top.rglob("*") if path.is_file())

    def statuses(self) -> list[tuple[BatchStatus, int]]:
        return [(one.status, one.files) for one in self.batches()]


@pytest.fixture
def moving(new_world: Callable[..., World]) -> Trashed:
    return Trashed(new_world)


def test_due_files_are_moved_by_day_and_deleted_from_there_when_their_days_are_over(moving: Trashed) -> None:
    moving.stray(2)
    condemning = moving.run().process_id
    moved = moving.run(EMPTY)
    assert (moved.status, moving.left()) == (ProcessStatus.SUCCESS, [])
    assert moving.trashed() == [f"20260301/{condemning}{moving.data}/stray-data-{one}.parquet" for one in range(2)]
    assert moved.receipt.words == "moved 2 files to the trash folder"
    assert figures(moved)["files_moved"] == 2
    (batch,) = moving.batches()
    assert (batch.status, batch.files, batch.purge_at - moving.world.now) == (BatchStatus.MOVED, 2, timedelta(days=7))
    moving.world.later(7 * DAY_S - 1)
    assert moving.world.maintaining.begin(moving.table_id, EMPTY, trigger="request").process_id == ""
    moving.world.later(1)
    assert figures(moving.run(EMPTY))["data_files_deleted"] == 2
    assert (moving.batches(), list(moving.root.iterdir())) == ([], []), "the folders of the day go, too"


def test_what_was_moved_is_listed_where_it_lies_and_comes_back(moving: Trashed) -> None:
    moving.stray(2)
    before = {path.name: path.stat().st_mtime_ns for path in moving.data.rglob("stray-*")}
    condemning = moving.run().process_id
    moving.run(EMPTY)
    (listed,) = moving.world.trash.page(moving.table_id).items
    assert (listed.files, listed.deleting_files) == (2, 0)
    shown = moving.world.trash.show(condemning)[1].items
    assert [Path(where).exists() for _, status, where in shown if status is BatchStatus.MOVED] == [True, True]
    assert moving.world.trash.restore(condemning).files == 2
    assert {path.name: path.stat().st_mtime_ns for path in moving.data.rglob("stray-*")} == before
    assert (moving.trashed(), moving.statuses()) == ([], [(BatchStatus.RESTORED, 2)])


def test_a_restore_never_replaces_a_file(moving: Trashed) -> None:
    moving.stray(2)
    condemning = moving.run().process_id
    moving.run(EMPTY)
    new = moving.data / "stray-data-0.parquet"
    new.write_bytes(b"somebody else's")
    with pytest.raises(IllegalState, match=r"1 of 2 files stay in the trash: .*stray-data-0\.parquet: .* exists"):
        moving.world.trash.restore(condemning)
    assert new.read_bytes() == b"somebody else's"
    assert sorted(moving.statuses()) == [(BatchStatus.MOVED, 1), (BatchStatus.RESTORED, 1)]
    new.unlink()
    assert moving.world.trash.restore(condemning).files == 1
    assert (new.read_bytes(), moving.trashed()) == (b"x" * 10, [])


def test_a_file_of_an_earlier_name_stays_in_the_trash_when_the_name_is_used_again(moving: Trashed) -> None:
    for content in (b"1" * 10, b"2" * 10):
        moving.stray(1)
        (moving.data / "stray-data-0.parquet").write_bytes(content)
        moving.run()
        moving.run(EMPTY)
        moving.told.clear()
    assert sorted(path.read_bytes() for path in moving.root.rglob("*.parquet")) == [b"1" * 10, b"2" * 10]


@pytest.mark.parametrize("point", ["sweep.before_guard", "sweep.before_move", "sweep.after_move", "sweep.after_batch"])
def test_a_killed_move_is_resumed(moving: Trashed, point: str) -> None:
    moving.stray(3)
    moving.run()
    process_id = moving.world.maintaining.begin(moving.table_id, EMPTY, trigger="request").process_id

    with dying_at(point):
        moving.world.committing.commit(process_id)
    moving.world.restart()
    moving.world.later(DAY_S)  # the folder is the one that was written down
    assert moving.world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert (moving.left(), len(moving.trashed()), moving.statuses()) == ([], 3, [(BatchStatus.MOVED, 3)])


def test_a_move_that_died_between_two_files_or_two_names_is_resumed(moving: Trashed) -> None:
    moving.stray(3)
    moving.run()
    process_id = moving.world.maintaining.begin(moving.table_id, EMPTY, trigger="request").process_id
    move_many = FileAccess.move_many

    def some(self: FileAccess, moves: Mapping[str, str]) -> Mapping[str, Removal]:
        (first, target), (second, name), _ = ((one.removeprefix("file://"), to) for one, to in moves.items())
        move_many(self, {first: target})
        Path(name).hardlink_to(second)
        raise Killed

    with moving.world.iceberg.files(move_many=some), pytest.raises(Killed):
        moving.world.committing.commit(process_id)
    assert (len(moving.left()), len(moving.trashed())) == (2, 2)
    assert moving.statuses() == [(BatchStatus.MOVING, 3)]
    with pytest.raises(IllegalState, match="being deleted or moved"):
        moving.world.trash.restore(moving.batches()[0].process_id)
    moving.ask({"table-trash.enabled": "false"})  # what was begun is ended in the same way
    moving.world.restart()
    assert moving.world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert (moving.left(), len(moving.trashed()), moving.statuses()) == ([], 3, [(BatchStatus.MOVED, 3)])


@pytest.mark.parametrize("point", ["trash.before_return", "trash.after_return"])
def test_a_killed_restore_is_resumed_by_the_next(moving: Trashed, point: str) -> None:
    moving.stray(2)
    condemning = moving.run().process_id
    moving.run(EMPTY)

    with dying_at(point):
        moving.world.trash.restore(condemning)
    moving.world.restart()
    moving.world.later(30 * DAY_S)
    begun = moving.world.maintaining.begin(moving.table_id, EMPTY, trigger="request")
    assert begun.process_id == "", "what is on its way back is not deleted"
    assert moving.world.trash.restore(condemning).files == 2
    assert (len(moving.left()), moving.trashed(), moving.statuses()) == (2, [], [(BatchStatus.RESTORED, 2)])


def test_the_guard_speaks_before_a_move(moving: Trashed) -> None:
    moving.stray(1)
    (live,) = moving.table.refresh().inspect.files()["file_path"].to_pylist()
    moving.told.append((live, FileKind.DATA))
    moving.run()
    held = moving.run(EMPTY)
    assert held.status is ProcessStatus.HELD
    assert (len(moving.left()), moving.trashed()) == (1, [])
    assert Path(live.removeprefix("file://")).exists()


def test_a_file_that_is_needed_after_its_move_is_put_back_and_the_process_is_held(moving: Trashed) -> None:
    moving.stray(2)
    moving.run()
    moving.run(EMPTY)
    needed = moving.told[0][0]
    moving.world.iceberg.guard(reachable=lambda self, paths: {one: "a tag" for one in paths if one == needed})
    moving.world.later(7 * DAY_S)
    held = moving.run(EMPTY)
    assert held.status is ProcessStatus.HELD
    assert (moving.left(), len(moving.trashed())) == (["stray-data-0.parquet"], 1)
    assert (moving.statuses(), moving.world.guard_hits) == ([(BatchStatus.MOVED, 1)], 1)


def test_only_files_of_the_pattern_are_moved_and_others_are_deleted(moving: Trashed) -> None:
    moving.ask({"table-trash.file-pattern": r".*stray-data-[01]\.parquet|.*manifest.*"})
    moving.stray(3)
    moving.stray(1, FileKind.MANIFEST)
    moving.stray(1, FileKind.STATISTICS)
    moving.run()
    swept = figures(moving.run(EMPTY))
    assert (swept["files_moved"], swept["data_files_deleted"], swept["statistics_files_deleted"]) == (3, 1, 1)
    assert [Path(one).name for one in moving.trashed()] == [
        "stray-data-0.parquet",
        "stray-data-1.parquet",
        "stray-manifest-0.parquet",
    ]
    assert moving.left() == []


def test_a_failed_move_is_tried_again_and_given_up_in_place(moving: Trashed) -> None:
    moving.stray(2)
    moving.run()
    move_many = FileAccess.move_many

    def half(self: FileAccess, moves: Mapping[str, str]) -> Mapping[str, Removal]:
        good = {one: to for one, to in moves.items() if one.endswith("0.parquet")}
        return {**dict.fromkeys(moves, Removal(Ended.FAILED, "no")), **move_many(self, good)}

    moving.world.iceberg.files(move_many=half)
    for tries in range(1, 6):
        swept = figures(moving.run(EMPTY))
        assert (swept["files_failed"], swept.get("files_moved", 0)) == (1, int(tries == 1))
        left = BatchStatus.WAITING if tries < 5 else BatchStatus.DELETED
        assert sorted(moving.statuses()) == sorted([(BatchStatus.MOVED, 1), (left, 1)])
    assert moving.left() == ["stray-data-1.parquet"]


def test_files_in_the_trash_are_never_given_up(moving: Trashed) -> None:
    moving.stray(1)
    moving.run()
    moving.run(EMPTY)
    moving.world.later(7 * DAY_S)

    with moving.world.iceberg.files(delete_many=not_removed):
        for _ in range(6):
            moving.run(EMPTY)
    assert moving.statuses() == [(BatchStatus.DELETING, 1)]
    moving.run(EMPTY)
    assert (moving.trashed(), moving.batches()) == ([], [])


def test_a_root_of_its_own_is_used_below_the_allowed_places_alone(moving: Trashed, tmp_path: Path) -> None:
    moving.stray(1)
    moving.run()
    moving.ask({"table-trash.custom-root-location": (tmp_path / "elsewhere").as_uri()})
    with pytest.raises(TableRefused, match="outside the locations allowed") as refused:
        moving.run(EMPTY)
    assert (refused.value.reason, len(moving.left())) == ("location", 1)
    root = moving.data.parent.parent / "bin"
    moving.ask({"table-trash.custom-root-location": root.as_uri()})
    moving.run(EMPTY)
    assert len(moving.trashed(root / "cat" / "db" / "t" / ".trash")) == 1
    moving.ask({"table-trash.custom-root-location": ""})  # what lies there is found as before
    condemning = moving.batches()[0].process_id
    assert moving.world.trash.restore(condemning).files == 1
    assert len(moving.left()) == 1


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("custom-root-location", "s3://bucket/bin", "a move in s3:// is a copy"),
        ("custom-root-location", "hdfs://nn/bin", "lies in another storage than the table"),
        ("custom-root-location", "bin", "expected a location"),
        ("file-pattern", "(a", r"property table-trash\.file-pattern has the malformed value"),
        ("file-pattern", r"(?=a)b", r"property table-trash\.file-pattern has the malformed value"),
        ("keep.days", "-1", r"property table-trash\.keep\.days has the malformed value"),
        ("enabled", "yes", r"property table-trash\.enabled has the malformed value"),
    ],
)
def test_a_trash_that_is_malformed_or_to_which_nothing_can_be_renamed_is_refused_by_name(
    moving: Trashed, key: str, value: str, words: str
) -> None:
    moving.stray(1)
    moving.run()
    moving.ask({f"table-trash.{key}": value})
    with pytest.raises(TableRefused, match=words) as refused:
        moving.run(EMPTY)
    assert (refused.value.reason, len(moving.left())) == ("configuration", 1)


def test_the_search_for_orphans_leaves_the_trash_alone(moving: Trashed) -> None:
    moving.stray(2)
    moving.run()
    moving.run(EMPTY)
    moving.told.clear()
    moving.world.later(400 * DAY_S)
    root = moving.root.as_uri()
    with pytest.raises(InvalidArgument, match="is a trash"):
        moving.world.maintaining.preview(
            moving.world.table().identifier, "clean-orphan-files", options=Options(locations=(root,))
        )
    moving.world.maintaining.begin(
        moving.table_id,
        "clean-orphan-files",
        trigger="request",
        options=Options(locations=(moving.data.parent.as_uri(),)),
    )
    assert len(moving.trashed()) == 2
    assert not [
        one
        for one in moving.world.store.read(lambda db: pending_deletions.paths(db, moving.table_id))
        if ".trash" in one
    ]
