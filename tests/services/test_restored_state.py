"""An older copy of the state database is put back, after what it was about had gone on: deleted, committed, undone.

No live file goes, nothing is committed twice, no process stays, and what the copy knows nothing of is an orphan again.
"""

from __future__ import annotations

import shutil
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.table import Table

from amoro_core.errors import AmoroError
from amoro_core.iceberg.catalog.catalogs import close_catalogs
from amoro_core.model.maintenance import Options
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType
from amoro_core.store import pending_deletions, processes
from tests.engine import oracle, writer
from tests.engine.aging import aged, wait_for_one_day
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.oracle import reached
from tests.engine.parquet_rows import local_path
from tests.model.lake import process_of
from tests.services.rigs import reaching
from tests.services.world import World
from tests.tiers import sample

PROPERTIES = {
    "maintenance.expire-snapshots.trash-keep": "0",
    "maintenance.clean-orphan-files.trash-keep": "0",
    "tag.auto-create.trigger.max-delay.minutes": "0",
    "data-expire.field": "value",
    "data-expire.retention-time": "5d",
    "data-expire.base-on-rule": "CURRENT_TIME",
    "data-expire.level": "file",
    "maintenance.rewrite-manifests.min-count": "2",
}
COMMIT = (
    "commit.before_intent",
    "commit.after_stage",
    "commit.after_intent",
    "commit.after_send",
    "commit.after_done",
)
SWEEP = ("sweep.before_guard", "sweep.before_delete", "sweep.after_delete", "sweep.after_batch", "clear.after_done")
CASES = {
    "optimize": COMMIT,
    "expire-data": COMMIT,
    "clean-dangling-delete-files": COMMIT,
    "rewrite-manifests": COMMIT,
    "compute-statistics": COMMIT[2:],
    "auto-create-tags": COMMIT[2:],
    "expire-snapshots": (*COMMIT[2:], "clear.after_condemning", "clear.after_done"),
    "empty-trash": SWEEP,
}
MONTH_S = 30 * 86400


class Place:
    """A table with something to do for every action, and what of it must hold."""

    def __init__(self, world: World) -> None:
        self.world = world
        wait_for_one_day()
        self.table: Table = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART, properties=PROPERTIES)
        for number in range(3):
            writer.append(self.table, [row(number, "a", f"2020-01-0{number + 1}")])
            writer.append(self.table, [row(number + 10, "b", "9000-01-01")], 2)
        writer.delete_where(self.table, lambda item: item["id"] == 0)
        doomed = next(one.path for one in oracle.live_files(self.table) if one.content == 0)
        writer.remove_files(self.table, [doomed])  # its delete dangles
        root = Path(local_path(self.table.location()))
        (root / "data" / "orphan.parquet").write_bytes(b"nobody names it")
        world.now = datetime.now(UTC) + timedelta(days=5)
        aged(self.table, 30)
        self.copy = world.home / "copy.db"

    def begin(self, name: str) -> str:
        if name == "optimize":
            process_id = self.world.begin(OptimizingType.FULL)
            self.world.run_all(process_id)
            return process_id
        table_id = self.world.table().table_id
        options = Options(confirmed=name in ("clean-orphan-files", "expire-data"))
        begun = self.world.maintaining.begin(table_id, name, trigger="request", options=options)
        return begun.process_id

    def run(self, name: str) -> str:
        process_id = self.begin(name)
        if process_id:
            assert self.world.committing.commit(process_id) in (ProcessStatus.SUCCESS, ProcessStatus.PARTIAL)
        return process_id

    def put_back(self) -> None:
        """The copy in place of the state, and a coordinator that starts on it."""
        self.world.store.close()
        for path in self.world.home.glob("amoro.db*"):
            path.unlink()
        shutil.copy(self.copy, self.world.home / "amoro.db")
        close_catalogs()
        self.world.restart()

    def settle(self) -> None:
        """All that is open is brought to its end."""
        for _ in range(5):
            for process in self.world.store.read(processes.list_active):
                with suppress(AmoroError):
                    if process.status is ProcessStatus.RUNNING and process.is_optimizing:
                        self.world.run_all(process.process_id)
                    self.world.committing.commit(process.process_id)
            self.world.later(3600)

    def confirm_all(self, name: str) -> None:
        """Go on with what is held, batch after batch."""
        table_id, options = self.world.table().table_id, Options(confirmed=True)
        while begun := self.world.maintaining.begin(table_id, name, trigger="request", options=options).process_id:
            self.world.committing.commit(begun)

    def require(self, rows: Counter[object]) -> None:
        assert [one.process_id for one in self.world.store.read(processes.list_active)] == []
        metadata = self.table.refresh().metadata
        by = Counter(found for one in metadata.snapshots if (found := process_of(one)))
        assert set(by.values()) <= {1}, "committed twice"
        assert oracle.live_rows(self.table) == rows
        missing = {path for path in reached(metadata) if not Path(local_path(path)).exists()}
        assert missing == set()

    def require_nothing_forgotten(self) -> None:
        """Whatever nobody needs is found again, and goes."""
        self.world.later(MONTH_S)
        for name in ("clean-orphan-files", "empty-trash"):
            self.run(name)
        metadata = self.table.refresh().metadata
        logged = {self.table.metadata_location, *(one.metadata_file for one in metadata.metadata_log)}
        named = {local_path(path) for path in (reached(metadata) | logged)}
        root = Path(local_path(self.table.location()))
        left = {str(path) for path in root.rglob("*") if path.is_file()} - named
        removed = {local_path(path) for path in self._removed_entries()}
        assert left - removed == set()
        assert self.world.store.read(lambda db: pending_deletions.paths(db, self.world.table().table_id)) == frozenset()

    def _removed_entries(self) -> set[str]:
        """What entries name that say it was removed: orphan cleaning keeps it."""
        metadata = self.table.metadata
        manifests = {one.manifest_path for each in metadata.snapshots for one in each.manifests(self.table.io)}
        return {entry["data_file"]["file_path"] for path in manifests for entry in oracle.read_avro(path)[1]}


@pytest.fixture
def place(world: World) -> Place:
    return Place(world)


@pytest.mark.parametrize(
    ("name", "at"), sample([(name, at) for name, points in CASES.items() for at in points], every=4)
)
def test_what_went_on_after_the_copy_is_neither_done_again_nor_lost(place: Place, name: str, at: str) -> None:
    if name == "auto-create-tags":
        writer.append(place.table, [row(40, "a", "9000-01-01")])
        place.world.now = datetime.now(UTC) + timedelta(seconds=1)
    if name == "empty-trash":
        place.run("clean-orphan-files")
        place.run("expire-snapshots")
    copied: list[str] = []

    def copy(point: str) -> None:
        if point == at and not copied:
            copied.append(point)
            place.world.store.backup(place.copy)

    with reaching(copy):
        process_id = place.run(name)
    assert process_id
    assert place.copy.exists(), f"{name} does not pass {at}"
    place.run("empty-trash")
    writer.append(place.table, [row(50, "a", "9000-01-01")])
    rows = oracle.live_rows(place.table)
    place.put_back()
    place.settle()
    place.require(rows)
    place.require_nothing_forgotten()
    place.require(rows)


@pytest.mark.parametrize("due_at_once", [True, False])
def test_files_that_an_undo_brought_back_are_kept_by_the_guard(place: Place, due_at_once: bool) -> None:
    """The copy has them waiting, or due, to be deleted."""
    if not due_at_once:
        with place.table.transaction() as change:
            change.set_properties({"maintenance.expire-snapshots.trash-keep": "1d"})
    every = {one.snapshot_id: oracle.live_rows(place.table, one.snapshot_id) for one in place.table.metadata.snapshots}
    process_id = place.run("expire-snapshots")
    place.world.store.backup(place.copy)
    undone = place.world.maintaining.undo(process_id)
    assert place.world.committing.commit(undone.process_id) is ProcessStatus.SUCCESS
    rows = oracle.live_rows(place.table)
    place.put_back()
    place.settle()
    place.world.later(MONTH_S)
    held = place.begin("empty-trash")
    assert place.world.committing.commit(held) is ProcessStatus.HELD
    assert place.world.sweeping.guard_hits > 0
    place.confirm_all("empty-trash")
    place.require(rows)
    refs = place.table.refresh().metadata.refs
    back = {name: oracle.live_rows(place.table, ref.snapshot_id) for name, ref in refs.items() if name != "main"}
    assert back
    assert all(found == every[int(name.removeprefix("restored-"))] for name, found in back.items())


def test_what_was_restored_from_the_trash_and_committed_is_kept(place: Place) -> None:
    """An orphan of the copy is a live file by now."""
    with place.table.transaction() as change:
        change.set_properties({"maintenance.clean-orphan-files.trash-keep": "1d"})
    live = next(one.path for one in oracle.live_files(place.table) if one.content == 0)
    writer.remove_files(place.table, [live])
    aged(place.table, 30)
    place.run("expire-snapshots")
    place.world.store.backup(place.copy)
    place.table.refresh().add_files([live])
    rows = oracle.live_rows(place.table)
    place.put_back()
    place.world.later(MONTH_S)
    assert place.world.committing.commit(place.begin("empty-trash")) is ProcessStatus.HELD
    place.confirm_all("empty-trash")
    place.require(rows)
    assert Path(local_path(live)).exists()
