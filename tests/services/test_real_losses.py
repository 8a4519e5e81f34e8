"""What others have lost tables by: each is nothing here, and is lost once the guard against it is switched off.

The numbers are those of the issues of Apache Iceberg, Amoro and others where it happened. Where the guard of the sweep
would speak as well, it is switched off beside the planner's: it is there for what nobody has thought of."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import fastavro
import pytest
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotsUpdate

from amoro_core import failpoints
from amoro_core.actions import file_removal
from amoro_core.actions import orphans as orphan_action
from amoro_core.errors import AmoroError
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.iceberg.catalog.catalogs import close_catalogs
from amoro_core.iceberg.maintenance import reachable
from amoro_core.maintenance import data_expiry, orphans, snapshots
from amoro_core.maintenance.orphans import ReferencedFiles
from amoro_core.model.maintenance import Condemned, Options
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType
from amoro_core.services import committing, maintenance
from amoro_core.store import pending_deletions, processes
from tests.engine import oracle, writer
from tests.engine.aging import aged, wait_for_one_day
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.oracle import reached
from tests.engine.parquet_rows import local_path
from tests.iceberg.orphan_tables import write_manifest_of
from tests.model.lake import process_of
from tests.services.rigs import reaching
from tests.services.test_expiring import puffin
from tests.services.world import World
from tests.tiers import sample

PROPERTIES = {
    "maintenance.expire-snapshots.trash-keep": "0",
    "maintenance.clean-orphan-files.trash-keep": "0",
    "clean-orphan-file.min-existing-time-minutes": "0",
    "maintenance.rewrite-manifests.min-count": "2",
}


class Scene:
    """A table of old files, the services, and the guards to be switched off."""

    def __init__(self, world: World, patch: pytest.MonkeyPatch, guarded: bool) -> None:
        self.world, self._patch, self.guarded = world, patch, guarded
        world.now = datetime.now(UTC) + timedelta(seconds=1)
        self.table = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART, properties=PROPERTIES)
        for number in range(3):
            writer.append(self.table, [row(number, "a"), row(number, "b")])
        self.root = Path(local_path(self.table.location()))

    def off(self, where: Any, name: str, value: Any) -> None:
        """Switch a guard off, where this is asked for; with it that of the sweep."""
        if not self.guarded:
            self._patch.setattr(where, name, value)
            self.world.iceberg.guard(reachable=lambda guard, paths: {})

    def put(self, below: str, content: bytes = b"xyz") -> Path:
        path = self.root / below
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def age(self) -> None:
        """Every file is five days old."""
        for path in self.root.rglob("*"):
            if path.is_file():
                os.utime(path, (time.time() - 5 * 86400,) * 2)

    def run(self, *names: str) -> None:
        """Each to its end, however it ends."""
        for name in names:
            with suppress(AmoroError):
                table_id = self.world.table().table_id
                options = Options(confirmed=True)
                begun = self.world.maintaining.begin(table_id, name, trigger="request", options=options)
                if begun.process_id:
                    self.world.committing.commit(begun.process_id)

    def clean(self) -> None:
        self.run("clean-orphan-files", "empty-trash")

    def expire(self) -> None:
        self.run("expire-snapshots", "empty-trash")

    def gone(self, paths: Iterable[str | Path]) -> set[str]:
        return {str(path) for path in paths if not Path(local_path(str(path))).exists()}


# Expiry


def branch_at_count_0(scene: Scene) -> set[str]:
    writer.create_branch(scene.table, "audit", scene.table.metadata.snapshots[1].snapshot_id)
    scene.world.set_properties({"history.expire.min-snapshots-to-keep": "0", "snapshot.keep.min-count": "0"})
    aged(scene.table, 30)
    keep = snapshots._keep

    def not_of_refs(stay: Any, ids: Any, ground: Any, reason: str) -> None:
        if ground not in (snapshots.KeepReason.BRANCH, snapshots.KeepReason.COUNT):
            keep(stay, ids, ground, reason)

    scene.off(snapshots, "_keep", not_of_refs)
    plan = scene.world.maintaining.preview(scene.world.table().identifier, "expire-snapshots").plan
    kept: Any = plan.document["kept_snapshots"]
    ids = {one["snapshot_id"] for one in kept}
    return {name for name, ref in scene.table.metadata.refs.items() if ref.snapshot_id not in ids}


def tag_made_meanwhile(scene: Scene) -> set[str]:
    first = scene.table.metadata.snapshots[0].snapshot_id
    aged(scene.table, 30)
    made: list[str] = []

    def send(table: IcebergTable, payload: bytes) -> None:
        if not made:
            made.append("kept")
            writer.create_tag(scene.table, "kept", first)
        if scene.guarded:
            IcebergTable.send(table, payload)
        elif first in {one.snapshot_id for one in scene.table.refresh().metadata.snapshots}:  # as pyiceberg sends it
            removal = RemoveSnapshotsUpdate(snapshot_ids=[first])
            catalog, now = scene.world.catalog, scene.table.refresh()
            catalog.commit_table(now, (AssertTableUUID(uuid=now.metadata.table_uuid),), (removal,))

    scene.world.iceberg.table(send=send)
    scene.expire()
    return set(made) - scene.table.refresh().metadata.refs.keys()


def another_table_of_the_name(scene: Scene) -> set[str]:
    """With the same snapshots: it was copied."""
    aged(scene.table, 30)
    begun = scene.world.begin_action("expire-snapshots")
    copied = {**json.loads(Path(local_path(scene.table.metadata_location)).read_bytes()), "table-uuid": str(uuid4())}
    path = scene.put("metadata/00099-copy.metadata.json", json.dumps(copied).encode())
    scene.world.catalog.drop_table("db.t")
    scene.table = scene.world.catalog.register_table("db.t", path.as_uri())
    before = {str(one.snapshot_id) for one in scene.table.metadata.snapshots}
    scene.off(committing, "open_planned", lambda tables, case: tables.open(case.runtime.identifier))
    with suppress(AmoroError):
        scene.world.committing.commit(begun)
    return before - {str(one.snapshot_id) for one in scene.table.refresh().metadata.snapshots}


def chain_of_a_writer(scene: Scene) -> set[str]:
    said = {"flink.job-id": "j", "flink.operator-id": "o", "flink.max-committed-checkpoint-id": "4"}
    writer.append(scene.table, [row(8)], summary=said)
    for number in (9, 10):
        writer.append(scene.table, [row(number)])
    aged(scene.table, 6)
    chain = {str(one.snapshot_id) for one in scene.table.metadata.snapshots[-3:]}
    scene.off(snapshots, "_states", lambda chain, config, now: {})
    scene.expire()
    return chain - {str(one.snapshot_id) for one in scene.table.refresh().metadata.snapshots}


def base_of_a_process(scene: Scene) -> set[str]:
    base = scene.world.table_head()
    scene.world.begin(OptimizingType.FULL)
    writer.append(scene.table, [row(50)])
    aged(scene.table, 30)
    scene.off(snapshots, "_keep_needed", lambda *_: None)
    scene.expire()
    return {str(base)} - {str(one.snapshot_id) for one in scene.table.refresh().metadata.snapshots}


def live_in_an_older_snapshot(scene: Scene) -> set[str]:
    writer.create_tag(scene.table, "old", scene.table.metadata.snapshots[0].snapshot_id)
    scene.run("rewrite-manifests")
    writer.remove_files(scene.table, [one.path for one in oracle.live_files(scene.table)])
    writer.append(scene.table, [row(6)])
    return _without_what_stays(scene)


def added_again(scene: Scene) -> set[str]:
    path = oracle.live_files(scene.table)[0].path
    writer.remove_files(scene.table, [path])
    scene.table.refresh().add_files([path])
    return _without_what_stays(scene)


def carried_over(scene: Scene) -> set[str]:
    """Manifests rewritten into one, and the snapshot between expired by hand."""
    scene.run("rewrite-manifests")
    middle = scene.world.table_head()
    writer.append(scene.table, [row(5)])
    writer.expire_snapshots(scene.table, [middle])
    return _without_what_stays(scene)


def _without_what_stays(scene: Scene) -> set[str]:
    aged(scene.table, 30)
    scene.off(reachable, "_live", lambda *_: reachable.NO_KEYS)
    scene.expire()
    return scene.gone((*reached(scene.table.refresh().metadata), scene.table.metadata_location))


# Orphans


def uncommitted_of_flink(scene: Scene) -> set[str]:
    data = scene.put("data/part=a/uncommitted.parquet")
    manifest = scene.root / "metadata" / f"{'0f' * 16}-sink-1-00002-0-7-00001.avro"
    write_manifest_of(scene.table, str(manifest), str(data))
    scene.age()
    for place in (orphans, orphan_action):
        scene.off(place, "is_in_flight", lambda file, now: False)
    scene.clean()
    return scene.gone((data, manifest))


def two_tables_in_one_place(scene: Scene) -> set[str]:
    inner = scene.world.catalog.create_table("db.inner", SCHEMA, location=f"{scene.table.location()}/data/inner")
    writer.append(inner, [row(1)])
    scene.world.tables.refresh(scene.world.table("cat.db.inner").table_id)
    scene.age()
    needed = reached(inner.metadata)
    scene.off(orphan_action, "refuse_shared", lambda *_: None)
    scene.off(orphans.Search, "opened", lambda search, uuids, own: None)
    scene.clean()
    return scene.gone(needed)


def one_file_under_two_names(scene: Scene) -> set[str]:
    """The listing spells paths in another way than the metadata, the current metadata file's too."""
    scene.age()
    known = {*reached(scene.table.refresh().metadata), scene.table.metadata_location}

    def by_text(table: IcebergTable) -> ReferencedFiles:
        return ReferencedFiles(lambda paths: [{("file", "")} if path in known else set() for path in paths])

    scene.off(IcebergTable, "named", by_text)
    scene.clean()
    return scene.gone(known)


def deletes_are_files_too(scene: Scene) -> set[str]:
    writer.upsert(scene.table, [row(1, "a", "new")], ["id"])
    scene.age()
    every = reachable._manifests_of

    def of_data(*given: Any) -> Any:
        return {path: one for path, one in every(*given).items() if one.content == ManifestContent.DATA}

    scene.off(reachable, "_manifests_of", of_data)
    needed = reached(scene.table.refresh().metadata)
    scene.clean()
    return scene.gone(needed)


def statistics_are_files_too(scene: Scene) -> set[str]:
    made = puffin(scene.table, scene.world.table_head())
    with scene.table.update_statistics() as update:
        update.set_statistics(made)
    scene.age()
    every = reachable._named_by
    scene.off(reachable, "_named_by", lambda *given: (one for one in every(*given) if not one.endswith(".stats")))
    scene.clean()
    return scene.gone([made.statistics_path])


def young_files(scene: Scene) -> set[str]:
    """Of a commit under way, though the table says that no age is needed."""
    scene.age()
    path = scene.put("data/part=a/under-way.parquet")
    os.utime(path, (time.time() - 3600,) * 2)
    scene.off(orphans, "LEAST_AGE", timedelta(0))
    scene.clean()
    return scene.gone([path])


def outputs_of_a_process(scene: Scene) -> set[str]:
    process_id = scene.world.begin_and_run(OptimizingType.FULL)
    scene.age()
    outputs = list(scene.root.rglob(f"{process_id}*.parquet"))
    assert outputs
    known, nobody = maintenance.surroundings, frozenset[str]()
    scene.off(maintenance, "surroundings", lambda *given: replace(known(*given), active=nobody, paths=nobody, ended={}))
    scene.clean()
    return scene.gone(outputs)


def rewritten_by_a_zombie(scene: Scene) -> set[str]:
    """It comes back to life and writes under the name that was condemned."""
    path = scene.put("data/part=a/zombie.parquet")
    scene.age()
    scene.run("clean-orphan-files")
    path.write_bytes(b"written anew")
    scene.off(Condemned, "is_still", lambda one, stored: True)
    scene.run("empty-trash")
    return scene.gone([path])


def live_set_empty(scene: Scene) -> set[str]:
    aged(scene.table, 30)
    head = scene.table.refresh().current_snapshot()
    needed = {one.path for one in oracle.live_files(scene.table)}
    schema, _ = oracle.read_avro(head.manifest_list)
    with Path(local_path(head.manifest_list)).open("wb") as file:
        fastavro.writer(file, schema, [])
    scene.age()
    scene.off(reachable, "_require_files", lambda *_: None)
    scene.expire()
    scene.clean()
    return scene.gone(needed)


# Restarts, data, deletes


def forgotten_by_a_restart(scene: Scene) -> set[str]:
    """The other way round: what was condemned is not forgotten."""
    aged(scene.table, 30)
    before = reached(scene.table.metadata)
    scene.off(pending_deletions, "add_many", lambda db, batches: None)
    begun = scene.world.begin_action("expire-snapshots")
    failpoints.arm("clear.after_done=fail")
    with suppress(failpoints.InjectedFault):
        scene.world.committing.commit(begun)
    failpoints.arm("")
    scene.world.restart()
    scene.run("empty-trash")
    left = before - reached(scene.table.refresh().metadata)
    return left - scene.gone(left)


def rows_counted_from_our_own_commit(scene: Scene) -> set[str]:
    said = {"data-expire.field": "value", "data-expire.retention-time": "10d", "data-expire.level": "file"}
    scene.world.set_properties(said)
    writer.append(scene.table, [row(9, "c", f"{datetime.now(UTC) - timedelta(days=30):%Y-%m-%d}")])
    aged(scene.table, 30)
    assert scene.world.optimize(OptimizingType.FULL)
    scene.off(data_expiry, "_brought_data", lambda snapshot: True)
    scene.run("expire-data")
    return {"9"} - {str(one.record["id"]) for one in oracle.live_rows_with_positions(scene.table)}


def deletes_of_another_scan(scene: Scene) -> set[str]:
    """What dangled when it was planned applies again: the table was set back to where its file is."""
    old = {one.path for one in oracle.live_files(scene.table) if one.partition[0] == "a"}
    writer.upsert(scene.table, [row(1, "a", "new")], ["id"])
    deleted = scene.world.table_head()
    writer.remove_files(scene.table, old)
    begun = scene.world.begin_action(file_removal.DANGLING)
    planned = scene.table.refresh().metadata.current_snapshot_id
    writer.rollback(scene.table, deleted)
    rows = oracle.live_rows(scene.table)

    def of_the_plan(scan: Any) -> Any:
        (table,) = seen
        return _DANGLING(table.scan_of(planned))

    seen: list[IcebergTable] = []
    head = IcebergTable.head

    def headed(table: IcebergTable, *given: Any) -> Any:
        seen[:] = [table]
        return head(table, *given)

    scene.off(IcebergTable, "head", headed)
    scene.off(file_removal, "dangling_deletes", of_the_plan)
    with suppress(AmoroError):
        scene.world.committing.commit(begun)
    return {str(one) for one in oracle.live_rows(scene.table) - rows}


_DANGLING = file_removal.dangling_deletes


#: By where it happened; each scene tells what would be lost.
LOSSES: dict[str, Callable[[Scene], set[str]]] = {
    "iceberg #13568, amoro #4231": carried_over,
    "iceberg #8255, #10982": added_again,
    "iceberg #2131": live_in_an_older_snapshot,
    "iceberg-go #1829": branch_at_count_0,
    "iceberg-python #2409": another_table_of_the_name,
    "pyiceberg 0.12: a tag": tag_made_meanwhile,
    "amoro #930, iceberg #5846": chain_of_a_writer,
    "amoro #930: Flink's files": uncommitted_of_flink,
    "iceberg #17213, #4265, doris #66348": two_tables_in_one_place,
    "amoro #877, iceberg #1471, OpenHouse": one_file_under_two_names,
    "amoro #1386": deletes_are_files_too,
    "amoro #1959, trino #19965": statistics_are_files_too,
    "amoro #2925": young_files,
    "iceberg #4194": outputs_of_a_process,
    "PostHog #78455": rewritten_by_a_zombie,
    "paimon #7710, #6479": live_set_empty,
    "amoro #1190, #1736": base_of_a_process,
    "amoro #3608": forgotten_by_a_restart,
    "amoro #2555": rows_counted_from_our_own_commit,
    "amoro #3348": deletes_of_another_scan,
}


@pytest.mark.parametrize("loss", LOSSES)
def test_nothing_is_lost(world: World, monkeypatch: pytest.MonkeyPatch, loss: str) -> None:
    assert LOSSES[loss](Scene(world, monkeypatch, guarded=True)) == set()


@pytest.mark.parametrize("loss", LOSSES)
def test_without_its_guard_it_would_be(world: World, monkeypatch: pytest.MonkeyPatch, loss: str) -> None:
    assert LOSSES[loss](Scene(world, monkeypatch, guarded=False))


# An older copy of the state database is put back, after what it was about had gone on: deleted, committed, undone


RESTORED_PROPERTIES = {
    "maintenance.expire-snapshots.trash-keep": "0",
    "maintenance.clean-orphan-files.trash-keep": "0",
    "tag.auto-create.trigger.max-delay.minutes": "0",
    "data-expire.field": "value",
    "data-expire.retention-time": "5d",
    "data-expire.base-on-rule": "CURRENT_TIME",
    "data-expire.level": "file",
    "maintenance.rewrite-manifests.min-count": "2",
}
COMMIT = ("commit.before_intent", "commit.after_stage", "commit.after_intent", "commit.after_send", "commit.after_done")
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
        self.table: Table = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART, properties=RESTORED_PROPERTIES)
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

    def begin(self, name: str, confirmed: bool = False) -> str:
        if name == "optimize":
            return self.world.begin_and_run(OptimizingType.FULL)
        options = Options(confirmed=confirmed or name in ("clean-orphan-files", "expire-data"))
        return self.world.maintaining.begin(
            self.world.table().table_id, name, trigger="request", options=options
        ).process_id

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

    def confirm_all(self) -> None:
        """Go on with what is held of the trash, batch after batch."""
        while begun := self.begin("empty-trash", confirmed=True):
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
        manifests = {one.manifest_path for each in metadata.snapshots for one in each.manifests(self.table.io)}
        # What entries name that say it was removed orphan cleaning keeps, too.
        entries = {entry["data_file"]["file_path"] for path in manifests for entry in oracle.read_avro(path)[1]}
        named = {local_path(path) for path in (reached(metadata) | logged | entries)}
        root = Path(local_path(self.table.location()))
        assert {str(path) for path in root.rglob("*") if path.is_file()} - named == set()
        assert self.world.store.read(lambda db: pending_deletions.paths(db, self.world.table().table_id)) == frozenset()


@pytest.fixture
def place(world: World) -> Place:
    return Place(world)


@pytest.mark.parametrize(
    ("name", "at"), sample([(name, at) for name, points in CASES.items() for at in points], every=7)
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
        place.world.set_properties({"maintenance.expire-snapshots.trash-keep": "1d"})
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
    assert place.world.guard_hits > 0
    place.confirm_all()
    place.require(rows)
    refs = place.table.refresh().metadata.refs
    back = {name: oracle.live_rows(place.table, ref.snapshot_id) for name, ref in refs.items() if name != "main"}
    assert back
    assert all(found == every[int(name.removeprefix("restored-"))] for name, found in back.items())


def test_what_was_restored_from_the_trash_and_committed_is_kept(place: Place) -> None:
    """An orphan of the copy is a live file by now."""
    place.world.set_properties({"maintenance.clean-orphan-files.trash-keep": "1d"})
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
    place.confirm_all()
    place.require(rows)
    assert Path(local_path(live)).exists()
