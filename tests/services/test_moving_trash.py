"""Files that a table asks to be moved to a trash: by day, never over a file, back again, and deleted from there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.errors import IllegalState, InvalidArgument, TableRefused
from amoro_core.files.storage.io import FileAccess
from amoro_core.model.maintenance import Ended, FileKind, Options, Removal
from amoro_core.model.processes import ProcessStatus
from amoro_core.store import pending_deletions
from amoro_core.store.pending_deletions import BatchStatus
from tests.services.rigs import Killed, dying_at
from tests.services.test_sweeping import DAY_S, Place, figures

EMPTY = "empty-trash"


class Trashed(Place):
    """A place whose table asks for the trash, and whose strays are due at once."""

    def __init__(self, home: Path, catalog: SqlCatalog) -> None:
        super().__init__(home, catalog)
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
def place(tmp_path: Path, catalog: SqlCatalog) -> Iterator[Trashed]:
    home = tmp_path / "home"
    home.mkdir()
    made = Trashed(home, catalog)
    yield made
    made.world.close()


def test_due_files_are_moved_by_day_and_deleted_from_there_when_their_days_are_over(place: Trashed) -> None:
    place.stray(2)
    condemning = place.run().process_id
    moved = place.run(EMPTY)
    assert (moved.status, place.left()) == (ProcessStatus.SUCCESS, [])
    assert place.trashed() == [f"20260301/{condemning}{place.data}/stray-data-{one}.parquet" for one in range(2)]
    assert moved.receipt is not None
    assert moved.receipt.words == "deleted 0 files, moved 2 to the trash"
    assert figures(moved)["files_moved"] == 2
    (batch,) = place.batches()
    assert (batch.status, batch.files, batch.purge_at - place.world.now) == (BatchStatus.MOVED, 2, timedelta(days=7))
    place.world.later(7 * DAY_S - 1)
    assert place.world.maintaining.begin(place.table_id, EMPTY, trigger="request").process_id == ""
    place.world.later(1)
    assert figures(place.run(EMPTY))["data_files_deleted"] == 2
    assert (place.batches(), list(place.root.iterdir())) == ([], []), "the folders of the day go, too"


def test_what_was_moved_is_listed_where_it_lies_and_comes_back(place: Trashed) -> None:
    place.stray(2)
    before = {path.name: path.stat().st_mtime_ns for path in place.data.rglob("stray-*")}
    condemning = place.run().process_id
    place.run(EMPTY)
    (listed,) = place.world.trash.page(place.table_id).items
    assert (listed.files, listed.deleting_files) == (2, 0)
    shown = place.world.trash.show(condemning).files.items
    assert [Path(where).exists() for _, status, where in shown if status is BatchStatus.MOVED] == [True, True]
    assert place.world.trash.restore(condemning).files == 2
    assert {path.name: path.stat().st_mtime_ns for path in place.data.rglob("stray-*")} == before
    assert (place.trashed(), place.statuses()) == ([], [(BatchStatus.RESTORED, 2)])


def test_a_restore_never_replaces_a_file(place: Trashed) -> None:
    place.stray(2)
    condemning = place.run().process_id
    place.run(EMPTY)
    new = place.data / "stray-data-0.parquet"
    new.write_bytes(b"somebody else's")
    with pytest.raises(IllegalState, match=r"1 of 2 files stay in the trash: .*stray-data-0\.parquet: .* exists"):
        place.world.trash.restore(condemning)
    assert new.read_bytes() == b"somebody else's"
    assert sorted(place.statuses()) == [(BatchStatus.MOVED, 1), (BatchStatus.RESTORED, 1)]
    new.unlink()
    assert place.world.trash.restore(condemning).files == 1
    assert (new.read_bytes(), place.trashed()) == (b"x" * 10, [])


def test_a_file_of_an_earlier_name_stays_in_the_trash_when_the_name_is_used_again(place: Trashed) -> None:
    for content in (b"1" * 10, b"2" * 10):
        place.stray(1)
        (place.data / "stray-data-0.parquet").write_bytes(content)
        place.run()
        place.run(EMPTY)
        place.told.clear()
    assert sorted(path.read_bytes() for path in place.root.rglob("*.parquet")) == [b"1" * 10, b"2" * 10]


@pytest.mark.parametrize("point", ["sweep.before_guard", "sweep.before_move", "sweep.after_move", "sweep.after_batch"])
def test_a_killed_move_is_resumed(place: Trashed, point: str) -> None:
    place.stray(3)
    place.run()
    process_id = place.world.maintaining.begin(place.table_id, EMPTY, trigger="request").process_id

    with dying_at(point):
        place.world.committing.commit(process_id)
    place.world.restart()
    place.world.later(DAY_S)  # the folder is the one that was written down
    assert place.world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert (place.left(), len(place.trashed()), place.statuses()) == ([], 3, [(BatchStatus.MOVED, 3)])


def test_a_move_that_died_between_two_files_or_two_names_is_resumed(place: Trashed) -> None:
    place.stray(3)
    place.run()
    process_id = place.world.maintaining.begin(place.table_id, EMPTY, trigger="request").process_id
    move_many = FileAccess.move_many

    def some(self: FileAccess, moves: Mapping[str, str]) -> Mapping[str, Removal]:
        (first, target), (second, name), _ = ((one.removeprefix("file://"), to) for one, to in moves.items())
        move_many(self, {first: target})
        Path(name).hardlink_to(second)
        raise Killed

    with place.world.iceberg.trash(move_many=some), pytest.raises(Killed):
        place.world.committing.commit(process_id)
    assert (len(place.left()), len(place.trashed())) == (2, 2)
    assert place.statuses() == [(BatchStatus.MOVING, 3)]
    with pytest.raises(IllegalState, match="being deleted or moved"):
        place.world.trash.restore(place.batches()[0].process_id)
    place.ask({"table-trash.enabled": "false"})  # what was begun is ended in the same way
    place.world.restart()
    assert place.world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert (place.left(), len(place.trashed()), place.statuses()) == ([], 3, [(BatchStatus.MOVED, 3)])


@pytest.mark.parametrize("point", ["trash.before_return", "trash.after_return"])
def test_a_killed_restore_is_resumed_by_the_next(place: Trashed, point: str) -> None:
    place.stray(2)
    condemning = place.run().process_id
    place.run(EMPTY)

    with dying_at(point):
        place.world.trash.restore(condemning)
    place.world.restart()
    place.world.later(30 * DAY_S)
    begun = place.world.maintaining.begin(place.table_id, EMPTY, trigger="request")
    assert begun.process_id == "", "what is on its way back is not deleted"
    assert place.world.trash.restore(condemning).files == 2
    assert (len(place.left()), place.trashed(), place.statuses()) == (2, [], [(BatchStatus.RESTORED, 2)])


def test_the_guard_speaks_before_a_move(place: Trashed) -> None:
    place.stray(1)
    (live,) = place.table.refresh().inspect.files()["file_path"].to_pylist()
    place.told.append((live, FileKind.DATA))
    place.run()
    held = place.run(EMPTY)
    assert held.status is ProcessStatus.HELD
    assert (len(place.left()), place.trashed()) == (1, [])
    assert Path(live.removeprefix("file://")).exists()


def test_a_file_that_is_needed_after_its_move_is_put_back_and_the_process_is_held(place: Trashed) -> None:
    place.stray(2)
    place.run()
    place.run(EMPTY)
    needed = place.told[0][0]
    place.world.iceberg.guard(reachable=lambda self, paths: {one: "a tag" for one in paths if one == needed})
    place.world.later(7 * DAY_S)
    held = place.run(EMPTY)
    assert held.status is ProcessStatus.HELD
    assert (place.left(), len(place.trashed())) == (["stray-data-0.parquet"], 1)
    assert (place.statuses(), place.world.sweeping.guard_hits) == ([(BatchStatus.MOVED, 1)], 1)


def test_only_files_of_the_pattern_are_moved_and_others_are_deleted(place: Trashed) -> None:
    place.ask({"table-trash.file-pattern": r".*stray-data-[01]\.parquet|.*manifest.*"})
    place.stray(3)
    place.stray(1, FileKind.MANIFEST)
    place.stray(1, FileKind.STATISTICS)
    place.run()
    swept = figures(place.run(EMPTY))
    assert (swept["files_moved"], swept["data_files_deleted"], swept["statistics_files_deleted"]) == (3, 1, 1)
    assert [Path(one).name for one in place.trashed()] == [
        "stray-data-0.parquet",
        "stray-data-1.parquet",
        "stray-manifest-0.parquet",
    ]
    assert place.left() == []


def test_a_failed_move_is_tried_again_and_given_up_in_place(place: Trashed) -> None:
    place.stray(2)
    place.run()
    move_many = FileAccess.move_many

    def half(self: FileAccess, moves: Mapping[str, str]) -> Mapping[str, Removal]:
        good = {one: to for one, to in moves.items() if one.endswith("0.parquet")}
        return {**dict.fromkeys(moves, Removal(Ended.FAILED, "no")), **move_many(self, good)}

    place.world.iceberg.trash(move_many=half)
    for tries in range(1, 6):
        swept = figures(place.run(EMPTY))
        assert (swept["files_failed"], swept.get("files_moved", 0)) == (1, int(tries == 1))
        left = BatchStatus.WAITING if tries < 5 else BatchStatus.DELETED
        assert sorted(place.statuses()) == sorted([(BatchStatus.MOVED, 1), (left, 1)])
    assert place.left() == ["stray-data-1.parquet"]


def test_files_in_the_trash_are_never_given_up(place: Trashed) -> None:
    place.stray(1)
    place.run()
    place.run(EMPTY)
    place.world.later(7 * DAY_S)

    def fail(self: FileAccess, paths: Iterable[str]) -> Mapping[str, Removal]:
        return dict.fromkeys(paths, Removal(Ended.FAILED, "no"))

    with place.world.iceberg.trash(delete_many=fail):
        for _ in range(6):
            place.run(EMPTY)
    assert place.statuses() == [(BatchStatus.DELETING, 1)]
    place.run(EMPTY)
    assert (place.trashed(), place.batches()) == ([], [])


def test_a_root_of_its_own_is_used_below_the_allowed_places_alone(place: Trashed, tmp_path: Path) -> None:
    place.stray(1)
    place.run()
    place.ask({"table-trash.custom-root-location": (tmp_path / "elsewhere").as_uri()})
    with pytest.raises(TableRefused, match="outside the locations allowed") as refused:
        place.run(EMPTY)
    assert (refused.value.reason, len(place.left())) == ("location", 1)
    root = place.data.parent.parent / "bin"
    place.ask({"table-trash.custom-root-location": root.as_uri()})
    place.run(EMPTY)
    assert len(place.trashed(root / "cat" / "db" / "t" / ".trash")) == 1
    place.ask({"table-trash.custom-root-location": ""})  # what lies there is found as before
    condemning = place.batches()[0].process_id
    assert place.world.trash.restore(condemning).files == 1
    assert len(place.left()) == 1


@pytest.mark.parametrize(
    ("root", "words"),
    [
        ("s3://bucket/bin", "a move in s3:// is a copy"),
        ("hdfs://nn/bin", "lies in another storage than the table"),
        ("bin", "expected a location"),
    ],
)
def test_a_trash_to_which_nothing_can_be_renamed_is_refused_by_name(place: Trashed, root: str, words: str) -> None:
    place.stray(1)
    place.run()
    place.ask({"table-trash.custom-root-location": root})
    with pytest.raises(TableRefused, match=words) as refused:
        place.run(EMPTY)
    assert (refused.value.reason, len(place.left())) == ("configuration", 1)


@pytest.mark.parametrize(
    ("key", "value"),
    [("file-pattern", "(a"), ("file-pattern", r"(?=a)b"), ("keep.days", "-1"), ("keep.days", "x"), ("enabled", "yes")],
)
def test_malformed_properties_of_the_trash_are_refused(place: Trashed, key: str, value: str) -> None:
    place.stray(1)
    place.run()
    place.ask({f"table-trash.{key}": value})
    with pytest.raises(TableRefused, match=rf"property table-trash\.{key} has the malformed value"):
        place.run(EMPTY)


def test_the_search_for_orphans_leaves_the_trash_alone(place: Trashed) -> None:
    place.stray(2)
    place.run()
    place.run(EMPTY)
    place.told.clear()
    place.world.later(400 * DAY_S)
    root = place.root.as_uri()
    with pytest.raises(InvalidArgument, match="is a trash"):
        place.world.maintaining.preview(
            place.world.table().identifier, "clean-orphan-files", options=Options(locations=(root,))
        )
    place.world.maintaining.begin(
        place.table_id,
        "clean-orphan-files",
        trigger="request",
        options=Options(locations=(place.data.parent.as_uri(),)),
    )
    assert len(place.trashed()) == 2
    assert not [
        one for one in place.world.store.read(lambda db: pending_deletions.paths(db, place.table_id)) if ".trash" in one
    ]
