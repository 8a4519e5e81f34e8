"""Condemned files: kept for their time, guarded, deleted, looked at and taken back; leases keep what somebody needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from amoro_core.actions.action_api import Plan
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
from amoro_core.model.maintenance import Condemned, Ended, FileKind, Options, Removal, Surroundings
from amoro_core.model.paging import Window
from amoro_core.model.processes import (
    CommitAttempt,
    CommitOutcome,
    OptimizingProcess,
    ProcessStatus,
    Receipt,
    TaskStatus,
)
from amoro_core.model.task_payload import DELETE as DELETING
from amoro_core.model.task_payload import WorkResult
from amoro_core.protocol import maintenance_pb2 as pb
from amoro_core.services.task_lifecycle import Admission, ScheduledTask
from amoro_core.store import pending_deletions, processes
from amoro_core.store.pending_deletions import BatchFacts, BatchStatus
from tests.condemning import NAME, Condemn
from tests.engine import oracle, writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.commits import Change, commit
from tests.iceberg.orphan_tables import file_of
from tests.large import Worker, count_as_large
from tests.services.rigs import Killed, Limits, dying_at, not_removed, raising
from tests.services.world import World

DELETE = FileAccess.delete_many
EMPTY = "empty-trash"
DAY_S = 86400.0


class Place:
    """A table with files that nothing names, which the action of the tests condemns, to be deleted at once."""

    def __init__(self, new_world: Callable[..., World]) -> None:
        self.told: list[tuple[str, FileKind]] = []
        self.action = Condemn(lambda: self.told, keep=timedelta())
        self.world = new_world(self.action)
        self.table = writer.make_table(self.world.catalog, "db.t", SCHEMA, BY_PART)
        writer.append(self.table, [row(1, "a"), row(2, "a")])
        self.data = Path(self.table.location().removeprefix("file://")) / "data"

    def stray(self, number: int, kind: FileKind = FileKind.DATA) -> None:
        for one in range(number):
            path = self.data / f"stray-{kind}-{one}.parquet"
            path.write_bytes(b"x" * 10)
            self.told.append((path.as_uri(), kind))

    def condemn(self, number: int, kind: FileKind = FileKind.DATA) -> str:
        """So many more strays are condemned; the process."""
        self.stray(number, kind)
        return self.run().process_id

    def left(self) -> list[str]:
        return sorted(path.name for path in self.data.rglob("stray-*"))

    def begin(self, name: str = EMPTY) -> str:
        """The process, or "" where there is nothing to do."""
        return self.world.maintaining.begin(self.table_id, name, trigger="request").process_id

    def run(self, name: str = NAME) -> OptimizingProcess:
        process_id = self.begin(name)
        self.world.committing.commit(process_id)
        return self.world.process(process_id)

    @property
    def table_id(self) -> int:
        return self.world.table().table_id

    def batches(self, *statuses: BatchStatus) -> list[BatchFacts]:
        chosen = statuses or tuple(BatchStatus)
        return self.world.store.read(lambda db: pending_deletions.list_facts(db, self.table_id, statuses=chosen))

    def statuses(self) -> list[tuple[BatchStatus, int]]:
        return [(one.status, one.files) for one in self.batches()]

    @property
    def root(self) -> Path:
        return self.data.parent / ".trash"

    def trashed(self, root: Path | None = None) -> list[str]:
        """The files in the trash: day, process, and the path that they had."""
        top = root or self.root
        return sorted(str(path.relative_to(top)) for path in top.rglob("*") if path.is_file())

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
    place.action.keep = timedelta(days=1)
    place.stray(3)
    process_id = place.begin(NAME)
    assert place.statuses() == [(BatchStatus.WRITTEN, 3)]
    place.world.restart()  # what dies before the end of condemning condemns nothing twice
    assert place.world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert [(one.status, one.files, one.purge_at - place.world.now) for one in place.batches()] == [
        (BatchStatus.WAITING, 3, timedelta(days=1))
    ]
    begun = place.world.maintaining.begin(place.table_id, EMPTY, trigger="request")
    assert (begun.process_id, begun.reason) == ("", "no file in the trash is due to be deleted")
    assert len(place.left()) == 3
    place.world.later(DAY_S)
    swept = place.run(EMPTY)
    assert (swept.status, place.left(), place.batches()) == (ProcessStatus.SUCCESS, [], [])
    told = dict.fromkeys(("bytes_deleted", "files_absent", "files_changed", "files_failed"), 0)
    assert figures(swept) == {**told, "data_files_deleted": 3}


def test_kinds_go_in_their_order_and_a_batch_has_one_kind(place: Place) -> None:
    for kind in reversed(FileKind):
        place.stray(2, kind)
    place.run()
    asked: list[str] = []

    def delete(self: FileAccess, paths: Iterable[str]) -> Mapping[str, Removal]:
        some = list(paths)
        asked.extend(some)
        return DELETE(self, some)

    place.world.iceberg.files(delete_many=delete)
    place.run(EMPTY)
    words = [Path(path).name.removeprefix("stray-").rpartition("-")[0] for path in asked]
    assert words == [kind.value for kind in FileKind for _ in range(2)]


@pytest.mark.parametrize("trash", ["false", "true"])
def test_the_guard_keeps_a_live_file_alarms_and_holds_the_process(place: Place, trash: str) -> None:
    """The planner was wrong: without the guard live files would be deleted, or moved."""
    place.world.set_properties({"table-trash.enabled": trash})
    live = [file.path for file in oracle.live_files(place.table)]
    place.told += [(path, FileKind.DATA) for path in live]
    place.condemn(2)
    held = place.run(EMPTY)
    assert (held.status, held.failure_code) == (ProcessStatus.HELD, "AMORO-6002")
    assert f"the table needs {min(live)}" in held.failure
    assert (len(place.left()), place.trashed()) == (2, [])  # nothing of the batch went
    assert all(Path(path.removeprefix("file://")).exists() for path in live)
    assert place.world.guard_hits == len(live)
    place.world.confirm(EMPTY)
    assert (place.left(), len(place.trashed())) == ([], 2 if trash == "true" else 0)
    assert all(Path(path.removeprefix("file://")).exists() for path in live)


def test_the_rate_is_halved_when_the_storage_asks_for_less_and_grows_again() -> None:
    waits = list[float]()
    pace = Pace(1000, lambda: 5.0, waits.append)
    slow = {f"f{one}": Removal(Ended.FAILED, "503 SlowDown") for one in range(100)}
    fine = {f"f{one}": Removal(Ended.DELETED) for one in range(100)}
    for removals in (fine, slow, fine, fine):
        pace.keep(removals, pace.begin())
    assert waits == pytest.approx([0.1, 0.1, 0.2, 100 / 550])


def test_what_another_table_of_the_name_has_condemned_is_left_alone(place: Place) -> None:
    """The guard of this table can't answer for the other, which may go on under another name."""
    place.condemn(2)
    place.world.store.write(lambda db: db.execute("UPDATE condemned_batch SET table_uuid = 'another'"))
    place.run(EMPTY)
    assert (len(place.left()), place.batches()) == (2, [])


def test_nothing_goes_where_the_guard_can_not_tell(place: Place) -> None:
    place.condemn(2)
    process_id = place.begin()
    with (
        place.world.iceberg.guard(reachable=raising(CatalogUnavailable("no answer"))),
        pytest.raises(CatalogUnavailable),
    ):
        place.world.committing.commit(process_id)
    assert (place.world.process(process_id).status, len(place.left())) == (ProcessStatus.CLEARING, 2)
    place.world.later(61)
    assert place.world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert place.left() == []


def test_files_that_changed_are_kept_and_those_that_are_gone_are_counted_apart(place: Place) -> None:
    place.stray(6)
    place.action.sizes = {path: 10 for path, _ in place.told}
    place.run()
    for path, _ in place.told[:3]:
        Path(path.removeprefix("file://")).unlink()
    for path, _ in place.told[3:5]:
        Path(path.removeprefix("file://")).write_bytes(b"another")
    found = figures(place.run(EMPTY))
    assert (found["files_absent"], found["files_changed"], found["data_files_deleted"]) == (3, 2, 1)
    assert (len(place.left()), place.batches()) == (2, [])


def test_what_is_restored_while_its_batch_is_being_guarded_stays(place: Place) -> None:
    condemning, reachable = place.condemn(2), Guard.reachable

    def restore_meanwhile(self: Guard, paths: Iterable[str]) -> Mapping[str, str]:
        assert place.world.trash.restore(condemning).files == 2
        return reachable(self, paths)

    place.world.iceberg.guard(reachable=restore_meanwhile)
    assert place.run(EMPTY).status is ProcessStatus.SUCCESS
    assert (len(place.left()), place.statuses()) == (2, [(BatchStatus.RESTORED, 2)])


@pytest.mark.parametrize("point", ["sweep.before_delete", "sweep.after_batch"])
def test_killed_anywhere_the_sweep_is_guarded_anew_and_ends(place: Place, point: str) -> None:
    place.stray(2, FileKind.MANIFEST)
    place.condemn(2)
    asked: list[str] = []
    reachable = Guard.reachable

    def look(self: Guard, paths: Iterable[str]) -> Mapping[str, str]:
        some = list(paths)
        asked.extend(some)
        return reachable(self, some)

    place.world.iceberg.guard(reachable=look)
    process_id = place.begin()
    with dying_at(point):
        place.world.committing.commit(process_id)
    before = len(asked)
    place.world.restart()
    assert place.world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert (place.left(), place.batches()) == ([], [])
    assert len(asked) > before  # each batch that was left passed the guard once more


def test_history_keeps_a_process_as_long_as_its_files_wait(place: Place) -> None:
    place.action.keep = timedelta(days=100)
    process_id = place.condemn(1)
    place.world.later(40 * DAY_S)
    assert place.world.history.trim() == 0
    assert place.world.status(process_id) is ProcessStatus.SUCCESS
    place.world.later(61 * DAY_S)
    place.run(EMPTY)
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


def test_what_waits_is_listed_by_process_with_each_file_and_its_reason(place: Place) -> None:
    place.action.keep = timedelta(days=1)
    world, trash = place.world, place.world.trash
    assert list(trash.page().items) == []
    place.stray(1, FileKind.MANIFEST)
    place.action.sizes = {path: 10 for path, _ in place.told}
    process_id = place.condemn(2)
    (shown,) = trash.page(place.table_id).items
    assert (shown.process.process_id, str(shown.table), shown.files) == (process_id, "cat.db.t", 3)
    assert (shown.bytes, shown.deleting_files, shown.purge_at) == (10, 0, world.now + timedelta(days=1))
    _, files = trash.show(process_id[:30])
    assert {(file.path, file.kind, file.reason) for file, _, _ in files.items} == {
        (path, kind, "told so") for path, kind in place.told
    }
    assert len(trash.show(process_id, Window(2))[1].items) == 2
    assert place.around.condemned == {path for path, _ in place.told}
    place.told.clear()
    world.later(60)
    later = place.condemn(1, FileKind.STATISTICS)
    page = trash.page(None, Window(1))
    rest = trash.page(None, Window(1, page.next))
    assert [one.process.process_id for one in (*page.items, *rest.items)] == [process_id, later]
    assert (page.total, rest.next) == (2, "")
    # What is restored is not condemned any more; what is hurried is due at once.
    assert trash.restore(process_id).files == 3
    assert len(place.around.condemned) == 1
    with pytest.raises(ProcessNotFound, match="has no files in the trash"):
        trash.restore(process_id)
    assert trash.make_due_now(place.table_id) == (1, 0)
    assert place.run(EMPTY).status is ProcessStatus.SUCCESS
    assert len(place.left()) == 3


# Leases


def take(place: Place, snapshot_id: int, **more: object) -> str:
    return place.world.leasing.take(place.world.table(), snapshot_id, "bob", **more).lease.lease_id


def test_a_lease_keeps_its_snapshot_until_it_ends(place: Place) -> None:
    writer.append(place.table, [row(3, "a")])
    first, second = (one.snapshot_id for one in place.table.refresh().metadata.snapshots)
    lease_id = take(place, first)
    take(place, second, since=True, held_for=timedelta(days=2))
    leasing, around = place.world.leasing, place.around
    assert around.pinned[first] == f"lease {lease_id[-8:]} of bob"
    assert set(around.since) == {second}
    page = leasing.page(place.table_id, Window(1))
    rest = leasing.page(place.table_id, Window(1, page.next))
    assert [one.lease.snapshot_id for one in (*page.items, *rest.items)] == [first, second]
    assert (page.total, rest.next) == (2, "")
    with pytest.raises(InvalidArgument, match="other filters"):
        leasing.page(None, Window(1, page.next))
    place.world.later(DAY_S)
    assert (set(place.around.pinned), set(place.around.since)) == ({second}, {second})
    place.world.later(DAY_S)
    assert (place.around.pinned, list(leasing.page().items)) == ({}, [])
    with pytest.raises(LeaseNotFound, match="it was released or has expired"):
        leasing.renew(lease_id)


def test_only_snapshots_that_are_there_are_leased_to_somebody_with_a_name_for_a_week_at_most(place: Place) -> None:
    with pytest.raises(InvalidArgument, match="has no snapshot 5"):
        take(place, 5)
    for seconds in (0, 604801):
        with pytest.raises(InvalidArgument, match=f"a lease of {seconds} s is not possible"):
            take(place, place.world.table_head(), held_for=timedelta(seconds=seconds))
    for holder in ("", "  ", "x" * 256):
        with pytest.raises(InvalidArgument, match="invalid holder"):
            place.world.leasing.take(place.world.table(), place.world.table_head(), holder)


def test_a_snapshot_that_may_be_expiring_is_leased_to_nobody(place: Place) -> None:
    place.stray(1)
    head, process_id = place.world.table_head(), place.begin(NAME)
    process = place.world.process(process_id)
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
    place.world.store.write(lambda db: processes.add_commit(db, sent))
    with pytest.raises(TableBusy, match=f"may be removing snapshot {head}"):
        take(place, head)


# Files that a table asks to be moved to a trash: by day, never over a file, back again, and deleted from there


@pytest.fixture
def moving(place: Place) -> Place:
    """Its table asks for the trash."""
    place.world.set_properties({"table-trash.enabled": "true"})
    return place


def test_due_files_are_moved_by_day_and_deleted_from_there_when_their_days_are_over(moving: Place) -> None:
    condemning = moving.condemn(2)
    moved = moving.run(EMPTY)
    assert (moved.status, moving.left()) == (ProcessStatus.SUCCESS, [])
    assert moving.trashed() == [f"20260301/{condemning}{moving.data}/stray-data-{one}.parquet" for one in range(2)]
    assert moved.receipt.words == "moved 2 files to the trash folder"
    assert figures(moved)["files_moved"] == 2
    (batch,) = moving.batches()
    assert (batch.status, batch.files, batch.purge_at - moving.world.now) == (BatchStatus.MOVED, 2, timedelta(days=7))
    # A file that has the name since goes beside the other.
    moving.told.clear()
    moving.condemn(1)
    moving.run(EMPTY)
    assert [Path(one).name for one in moving.trashed()].count("stray-data-0.parquet") == 2
    moving.world.later(7 * DAY_S - 1)
    assert moving.begin() == ""
    moving.world.later(1)
    with moving.world.iceberg.files(delete_many=not_removed):
        for _ in range(6):  # never given up
            moving.run(EMPTY)
    assert {status for status, _ in moving.statuses()} == {BatchStatus.DELETING}
    assert figures(moving.run(EMPTY))["data_files_deleted"] == 3
    assert (moving.batches(), list(moving.root.iterdir())) == ([], []), "the folders of the day go, too"


def test_what_was_moved_is_listed_where_it_lies_and_comes_back_over_no_other_file(moving: Place) -> None:
    moving.stray(2)
    before = {path.name: path.stat().st_mtime_ns for path in moving.data.rglob("stray-*")}
    condemning = moving.run().process_id
    moving.run(EMPTY)
    (listed,) = moving.world.trash.page(moving.table_id).items
    assert (listed.files, listed.deleting_files) == (2, 0)
    shown = moving.world.trash.show(condemning)[1].items
    assert [Path(where).exists() for _, status, where in shown if status is BatchStatus.MOVED] == [True, True]
    new = moving.data / "stray-data-0.parquet"
    new.write_bytes(b"somebody else's")
    with pytest.raises(IllegalState, match=r"1 of 2 files stay in the trash: .*stray-data-0\.parquet: .* exists"):
        moving.world.trash.restore(condemning)
    assert new.read_bytes() == b"somebody else's"
    assert sorted(moving.statuses()) == [(BatchStatus.MOVED, 1), (BatchStatus.RESTORED, 1)]
    new.unlink()
    assert moving.world.trash.restore(condemning).files == 1
    assert {path.name: path.stat().st_mtime_ns for path in moving.data.rglob("stray-*")} == before
    assert (moving.trashed(), {one for one, _ in moving.statuses()}) == ([], {BatchStatus.RESTORED})


def test_a_move_that_died_between_two_files_or_two_names_is_resumed(moving: Place) -> None:
    moving.condemn(3)
    process_id = moving.begin()
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
    moving.world.set_properties({"table-trash.enabled": "false"})  # what was begun is ended in the same way
    moving.world.restart()
    moving.world.later(DAY_S)  # the folder is the one that was written down
    assert moving.world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert (moving.left(), len(moving.trashed()), moving.statuses()) == ([], 3, [(BatchStatus.MOVED, 3)])


def test_a_file_that_is_needed_after_its_move_is_put_back_and_the_process_is_held(moving: Place) -> None:
    moving.condemn(2)
    moving.run(EMPTY)
    needed = moving.told[0][0]
    moving.world.iceberg.guard(reachable=lambda self, paths: {one: "a tag" for one in paths if one == needed})
    moving.world.later(7 * DAY_S)
    held = moving.run(EMPTY)
    assert held.status is ProcessStatus.HELD
    assert (moving.left(), len(moving.trashed())) == (["stray-data-0.parquet"], 1)
    assert (moving.statuses(), moving.world.guard_hits) == ([(BatchStatus.MOVED, 1)], 1)


def test_only_files_of_the_pattern_are_moved_and_others_are_deleted(moving: Place) -> None:
    moving.world.set_properties({"table-trash.file-pattern": r".*stray-data-[01]\.parquet|.*manifest.*"})
    moving.stray(3)
    moving.stray(1, FileKind.MANIFEST)
    moving.condemn(1, FileKind.STATISTICS)
    swept = figures(moving.run(EMPTY))
    assert (swept["files_moved"], swept["data_files_deleted"], swept["statistics_files_deleted"]) == (3, 1, 1)
    names = ["stray-data-0.parquet", "stray-data-1.parquet", "stray-manifest-0.parquet"]
    assert ([Path(one).name for one in moving.trashed()], moving.left()) == (names, [])


def test_a_failed_move_is_tried_again_and_given_up_in_place(moving: Place) -> None:
    moving.condemn(2)
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


def test_a_root_of_its_own_is_used_below_the_allowed_places_alone(moving: Place, tmp_path: Path) -> None:
    condemning = moving.condemn(1)
    moving.world.set_properties({"table-trash.custom-root-location": (tmp_path / "elsewhere").as_uri()})
    with pytest.raises(TableRefused, match="outside the locations allowed") as refused:
        moving.run(EMPTY)
    assert (refused.value.reason, len(moving.left())) == ("location", 1)
    root = moving.data.parent.parent / "bin"
    moving.world.set_properties({"table-trash.custom-root-location": root.as_uri()})
    moving.run(EMPTY)
    assert len(moving.trashed(root / "cat" / "db" / "t" / ".trash")) == 1
    moving.world.set_properties({"table-trash.custom-root-location": ""})  # what lies there is found as before
    assert moving.world.trash.restore(condemning).files == 1
    assert len(moving.left()) == 1


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("custom-root-location", "s3://bucket/bin", "a move in s3:// is a copy"),
        ("custom-root-location", "hdfs://nn/bin", "lies in another storage than the table"),
        ("custom-root-location", "bin", "expected a location"),
        ("file-pattern", "(a", r"property table-trash\.file-pattern has the malformed value"),
        ("keep.days", "-1", r"property table-trash\.keep\.days has the malformed value"),
    ],
)
def test_a_trash_that_is_malformed_or_to_which_nothing_can_be_renamed_is_refused_by_name(
    moving: Place, key: str, value: str, words: str
) -> None:
    moving.condemn(1)
    moving.world.set_properties({f"table-trash.{key}": value})
    with pytest.raises(TableRefused, match=words) as refused:
        moving.run(EMPTY)
    assert (refused.value.reason, len(moving.left())) == ("configuration", 1)


def test_the_search_for_orphans_leaves_the_trash_alone(moving: Place) -> None:
    moving.condemn(2)
    moving.run(EMPTY)
    moving.told.clear()
    moving.world.later(400 * DAY_S)

    def found(place: Path) -> Plan | None:
        options = Options(locations=(place.as_uri(),))
        return moving.world.maintaining.preview(
            moving.world.table().identifier, "clean-orphan-files", options=options
        ).plan

    with pytest.raises(InvalidArgument, match="is a trash"):
        found(moving.root)
    plan = found(moving.data.parent)
    assert plan is None or not [one for one in plan.condemned if ".trash" in one.path]


# Files of large tables: deleted by optimizers, guarded at each ack, settled by what they say


@pytest.fixture
def large(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    count_as_large(monkeypatch)
    return place


@pytest.fixture
def worker(large: Place) -> Worker:
    return Worker(large.world)


def begun(large: Place, strays: int) -> str:
    """The process that deletes so many new strays."""
    large.condemn(strays)
    process_id = large.begin()
    assert process_id
    return process_id


def handed(worker: Worker, *, acked: bool = True) -> ScheduledTask:
    (task,) = worker.poll()
    if acked:
        assert worker.ack(task)
    return task


def end(large: Place, process_id: str) -> OptimizingProcess:
    large.world.committing.commit(process_id)
    return large.world.process(process_id)


def live(large: Place) -> list[str]:
    return [file.path for file in oracle.live_files(large.table)]


def test_optimizers_delete_kind_by_kind_and_the_receipt_tells_as_of_the_coordinator(
    large: Place, worker: Worker
) -> None:
    for kind in reversed(FileKind):
        large.stray(2, kind)
    large.action.sizes = {uri: 10 for uri, _ in large.told}
    large.run()
    (large.data / "stray-data-0.parquet").unlink()
    changed = large.data / "stray-data-1.parquet"
    changed.write_bytes(b"another file")
    process_id = large.begin()
    deleted = []
    while polled := worker.poll(1, 2):
        assert len(polled) == 1, "a kind waits for those before it"
        (task,) = polled
        assert worker.ack(task)
        assert worker.ack(task), "an ack that is repeated counts once"
        assert {one.tries for one in large.batches(BatchStatus.DELETING)} == {1}
        work = pb.DeleteWork.FromString(task.work.payload)
        deleted += [Path(one.path).name for batch in work.batches for one in batch.files]
        assert worker.complete(task, worker.execute(task))
    words = [name.removeprefix("stray-").rpartition("-")[0] for name in deleted]
    assert words == [kind.value for kind in FileKind for _ in range(2)]
    told = figures(end(large, process_id))
    assert (told["files_absent"], told["files_changed"], told["files_failed"]) == (1, 1, 0)
    assert told["bytes_deleted"] == 10 * (len(deleted) - 2)
    assert (large.left(), large.batches()) == ([changed.name], [])


def test_a_task_takes_so_many_files_a_process_so_many_tasks_and_the_coordinator_the_rest(
    large: Place, worker: Worker, limits: Limits
) -> None:
    limits(files_of_a_batch=2, deleted_by_a_task=4, deleting_tasks=2)
    process_id = begun(large, 11)
    assert [task.input_files for task in large.world.tasks(process_id)] == [4, 4]
    worker.work()
    assert figures(end(large, process_id))["data_files_deleted"] == 11
    assert (large.left(), large.batches()) == ([], [])


def test_the_guard_at_the_ack_keeps_a_live_file_alarms_and_holds_the_process(large: Place, worker: Worker) -> None:
    large.told += [(path, FileKind.DATA) for path in live(large)]
    process_id = begun(large, 2)
    assert not worker.ack(handed(worker, acked=False))
    held = large.world.process(process_id)
    assert (held.status, held.failure_code) == (ProcessStatus.HELD, "AMORO-6002")
    assert f"the table needs {min(live(large))}" in held.failure
    assert large.world.guard_hits == len(live(large))
    assert [one.status for one in large.world.tasks(process_id)] == [TaskStatus.CANCELED]
    assert (worker.poll(), len(large.left())) == ([], 2)
    assert [one.files for one in large.batches(BatchStatus.WAITING)] == [2]
    confirmed = worker.run(EMPTY, options=Options(confirmed=True))
    assert (confirmed.process_id, confirmed.status, large.left()) == (process_id, ProcessStatus.SUCCESS, [])
    assert all(Path(path.removeprefix("file://")).exists() for path in live(large))


def test_an_attempt_that_cannot_be_guarded_has_failed_and_the_process_fails_in_the_end(
    large: Place, worker: Worker
) -> None:
    large.world.iceberg.guard(reachable=raising(CatalogUnavailable("it does not answer")))
    process_id = begun(large, 2)
    tries = 0
    while polled := worker.poll():
        tries += 1
        assert not worker.ack(polled[0])
    failed = large.world.process(process_id)
    assert (failed.status, tries > 1, len(large.left())) == (ProcessStatus.FAILED, True, 2)
    assert "it does not answer" in failed.failure
    assert [one.status for one in large.batches()] == [BatchStatus.WAITING]


def test_what_was_restored_before_the_ack_stays(large: Place, worker: Worker, limits: Limits) -> None:
    limits(files_of_a_batch=2)
    restored = large.condemn(2)
    large.told = []
    large.stray(4)
    large.told = large.told[2:]
    large.run()
    process_id = large.begin()
    task = handed(worker, acked=False)
    assert large.world.trash.restore(restored).files == 2
    assert not worker.ack(task), "it was to delete what is restored"
    again = handed(worker)
    assert (again.attempt.task_id, again.attempt.number) == (task.attempt.task_id, 2)
    assert worker.complete(again, worker.execute(again))
    assert end(large, process_id).status is ProcessStatus.SUCCESS
    assert large.left() == ["stray-data-0.parquet", "stray-data-1.parquet"]


def test_what_is_restored_while_it_is_being_guarded_stays(large: Place, worker: Worker) -> None:
    condemning, reachable = large.condemn(2), Guard.reachable
    large.begin()

    def restore_meanwhile(self: Guard, paths: Iterable[str]) -> Mapping[str, str]:
        if large.batches(BatchStatus.WAITING):
            assert large.world.trash.restore(condemning).files == 2
        return reachable(self, paths)

    large.world.iceberg.guard(reachable=restore_meanwhile)
    assert not worker.ack(handed(worker, acked=False))
    worker.work()
    assert len(large.left()) == 2


def test_what_a_dead_optimizer_left_is_guarded_again_and_its_late_result_changes_nothing(
    large: Place, worker: Worker
) -> None:
    """Meanwhile a file was committed: without the second guard it would be deleted."""
    process_id = begun(large, 2)
    task = handed(worker)
    Path(large.told[1][0].removeprefix("file://")).unlink()  # it has begun to delete
    with pytest.raises(IllegalState, match="being deleted"):
        large.world.trash.restore(large.batches()[0].process_id)
    large.world.optimizing.dismiss(worker.optimizer, "lost", lost=True)
    before = large.batches()
    gone = pb.DeleteOutput(files=[{"path": path, "outcome": "DELETE_OUTCOME_DELETED"} for path, _ in large.told])
    assert not worker.complete(task, WorkResult(DELETING, gone.SerializeToString()))
    assert large.batches() == before
    commit(large.table, lambda head: Change((file_of(head, large.told[0][0]),)))
    other = Worker(large.world)
    (again,) = other.poll()
    assert again.attempt.number == 2
    assert not other.ack(again)
    assert large.world.status(process_id) is ProcessStatus.HELD
    assert large.left() == ["stray-data-0.parquet"]
    confirmed = other.run(EMPTY, options=Options(confirmed=True))
    assert (figures(confirmed)["files_absent"], large.batches()) == (1, [])
    assert large.left() == ["stray-data-0.parquet"]


def test_files_that_an_optimizer_says_nothing_of_are_tried_again_and_others_are_ignored(
    large: Place, worker: Worker
) -> None:
    process_id = begun(large, 2)
    task = handed(worker)
    said = pb.DeleteOutput()
    said.files.add(path=large.told[0][0], outcome=pb.DELETE_OUTCOME_DELETED)
    said.files.add(path=live(large)[0], outcome=pb.DELETE_OUTCOME_DELETED)
    assert worker.complete(task, WorkResult(DELETING, said.SerializeToString()))
    told = figures(end(large, process_id))
    assert (told["data_files_deleted"], told["files_failed"]) == (1, 1)
    assert [(one.status, one.files) for one in large.batches()] == [(BatchStatus.DELETING, 1)]


def test_cancelling_ends_it_between_batches_and_the_next_goes_on(large: Place, worker: Worker, limits: Limits) -> None:
    limits(files_of_a_batch=2, deleted_by_a_task=2)
    process_id = begun(large, 4)
    first = handed(worker)
    assert worker.complete(first, worker.execute(first))
    large.world.optimizing.cancel(process_id, "tests")
    assert (worker.poll(), len(large.left())) == ([], 2)
    assert worker.run(EMPTY).status is ProcessStatus.SUCCESS
    assert (large.left(), large.batches()) == ([], [])


@pytest.mark.parametrize("error", [CatalogUnavailable("no answer"), ValueError("no manifest")])
def test_a_guard_that_can_not_read_the_table_fails_the_attempt_and_reads_it_again(
    large: Place, worker: Worker, error: Exception
) -> None:
    process_id = begun(large, 2)
    asked: list[Callable[[], None]] = []
    large.world.services.ack_guarding.background = asked.append
    task = handed(worker, acked=False)

    assert large.world.optimizing.ack(worker.optimizer, [task.attempt], may_wait=True) == [Admission.LATER]
    with large.world.iceberg.guard(reachable=raising(error)):
        asked.pop()()
    assert not worker.ack(task)
    (failed,) = large.world.tasks(process_id)
    assert (failed.status, failed.failed_runs, len(large.left())) == (TaskStatus.PLANNED, 1, 2)
    assert not worker.ack(handed(worker, acked=False))
    asked.pop()()
    worker.work()
    assert large.left() == []
