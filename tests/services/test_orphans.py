"""Orphan files through the services: condemned, held, guarded, deleted; and what asking wrongly comes to."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from amoro_core.errors import CatalogUnavailable, InvalidArgument, TableRefused, TaskNotFound, UnreadableFile
from amoro_core.files.storage.io import FileAccess
from amoro_core.files.storage.stores import LocalStorage
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.maintenance.orphans import TableLocations
from amoro_core.model.maintenance import Options, StoredFile
from amoro_core.model.paths import normalise
from amoro_core.model.processes import OptimizingProcess, ProcessStatus
from amoro_core.model.tables import OptimizingType
from amoro_core.model.task_payload import LIST, WorkResult
from amoro_core.protocol import maintenance_pb2 as pb
from amoro_core.store import pending_deletions, plans
from amoro_core.store.pending_deletions import BatchStatus
from tests.engine import oracle, writer
from tests.engine.aging import aged
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.oracle import reached
from tests.iceberg.orphan_tables import write_manifest_of
from tests.large import Worker, count_as_large
from tests.services.rigs import Limits, not_removed, raising
from tests.services.world import World

NAME = "clean-orphan-files"

PAGES, DELETE_MANY = FileAccess.pages, FileAccess.delete_many
AT_ONCE = {"maintenance.clean-orphan-files.trash-keep": "0", "maintenance.expire-snapshots.trash-keep": "0"}


class Place:
    """A table of a dozen old files, among them orphans."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.table = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART, properties=AT_ONCE)
        for number in range(3):
            writer.append(self.table, [row(number, "a"), row(number, "b")])
        self.root = Path(normalise(self.table.location()))
        self.orphan = self.put("data/part=a/orphan.parquet")
        self.age()

    def put(self, below: str, content: bytes = b"xyz") -> str:
        path = self.root / below
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        self.age()
        return str(path)

    def age(self, old: timedelta = timedelta(days=5, microseconds=1234)) -> None:
        """Make every file so old, to a microsecond."""
        at = (self.world.now - old).timestamp()
        for path in self.root.rglob("*"):
            if path.is_file():
                os.utime(path, (at, at))

    @property
    def live(self) -> list[str]:
        return [one.path for one in oracle.live_files(self.table)]

    def preview(self, **options: object) -> Any:
        identifier = self.world.table().identifier
        return self.world.maintaining.preview(identifier, NAME, replace(Options(), **options))

    def found(self, **options: object) -> list[str]:
        plan = self.preview(**options).plan
        return [] if plan is None else sorted(one.path for one in plan.condemned)

    def run(self, name: str = NAME, **options: object) -> OptimizingProcess:
        begun = self.world.maintaining.begin(
            self.world.table().table_id, name, trigger="request", options=replace(Options(), **options)
        )
        assert begun.process_id, begun.reason
        if not begun.held:
            self.world.committing.commit(begun.process_id)
        return self.world.process(begun.process_id)


@pytest.fixture
def place(world: World) -> Place:
    return Place(world)


def test_orphans_are_shown_condemned_and_deleted_and_nothing_else(place: Place) -> None:
    place.put("data/part=a/_x.parquet")
    before = {path for path in place.root.rglob("*") if path.is_file()}
    document = json.loads(json.dumps(place.preview().plan.document))
    assert document["orphan_files"] == [
        {
            "orphan_file_location": place.orphan,
            "bytes": 3,
            "kind": "data",
            "modified_at": (place.world.now - timedelta(days=5, microseconds=1234)).isoformat(),
            "reason": "no snapshot of the table names it",
        }
    ]
    assert (document["orphan_files_count"], document["bytes"], document["kept"]) == (1, 3, {"hidden": 1})
    assert document["listed_files"] == len(before)
    done = place.run()
    assert done.status is ProcessStatus.SUCCESS
    assert done.receipt.words == "marked 1 orphan file (3 B) for deletion"
    assert [(one.name, one.value) for one in done.receipt.more] == [("condemned_files", 1), ("condemned_bytes", 3)]
    assert os.path.exists(place.orphan)
    assert place.found() == []  # condemned already
    assert place.run("empty-trash").status is ProcessStatus.SUCCESS
    assert before - {path for path in place.root.rglob("*") if path.is_file()} == {Path(place.orphan)}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"older_than": timedelta(hours=23, minutes=59)}, "less than a day"),
        ({"locations": ("/etc",)}, "--location /etc is outside"),
        ({"retain_last": 1}, "takes no --retain-last"),
    ],
)
def test_what_can_not_be_asked_for_is_refused_and_nothing_is_done(
    place: Place, options: Mapping[str, object], words: str
) -> None:
    with pytest.raises(InvalidArgument, match=words):
        place.run(**options)
    assert os.path.exists(place.orphan)
    assert place.world.pinned(place.world.table().table_id).paths == frozenset()


def test_an_age_and_places_may_be_asked_for(place: Place) -> None:
    assert place.found(older_than=timedelta(days=6)) == []
    assert place.found(older_than=timedelta(days=1)) == [place.orphan]
    other = place.put("data/part=b/orphan.parquet")
    outside = place.put("elsewhere/orphan.parquet")
    assert place.found() == [place.orphan, other]
    assert place.found(locations=(f"file://{place.root}/data/part=b",)) == [other]
    assert place.found(locations=(f"{place.root}/elsewhere/", f"{place.root}/data/part=b")) == [other, outside]


# Inventories


def stored(place: Place) -> list[StoredFile]:
    at = place.world.now - timedelta(days=5)
    return [StoredFile(str(path), path.stat().st_size, at) for path in place.root.rglob("*") if path.is_file()]


def inventory(place: Place, name: str, files: Sequence[StoredFile], **names: str) -> str:
    columns = {
        "path": [f"file://{one.path}" for one in files],
        "size": [one.size_bytes for one in files],
        "mtime": [one.modified_at for one in files],
    }
    table = pa.table({names.get(key, key): values for key, values in columns.items() if names.get(key, key)})
    path = f"{place.world.home.parent}/warehouse/{name}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    (pq.write_table if name.endswith(".parquet") else pyarrow.csv.write_csv)(table, path)
    return path


def test_an_inventory_may_use_sparks_names_and_milliseconds(place: Place) -> None:
    files = stored(place)
    path = inventory(place, "list.parquet", files, path="file_path", mtime="last_modified")
    assert place.found(file_list=path) == [place.orphan]
    table = pq.read_table(path)
    times = pa.array([round(one.modified_at.timestamp() * 1000) for one in files if one.modified_at])
    pq.write_table(table.set_column(2, "last_modified", times), path)
    assert place.found(file_list=path) == [place.orphan]


def test_what_is_no_inventory_is_refused(place: Place) -> None:
    timeless = inventory(place, "list.parquet", stored(place), mtime="")
    with pytest.raises(InvalidArgument, match="has no column mtime"):
        place.run(file_list=timeless)
    blank = inventory(place, "list.csv", [replace(one, modified_at=None) for one in stored(place)])
    with pytest.raises(CatalogUnavailable, match="have no modification time"):
        place.run(file_list=blank)
    for path in (timeless, blank):
        Path(path).write_bytes(b'"path\x00' * 5)
        with pytest.raises(InvalidArgument, match="inventory"):
            place.run(file_list=path)
    with pytest.raises(TableRefused, match="outside"):
        place.run(file_list="/etc/passwd")


# Other tables


@pytest.mark.parametrize("moved", [False, True])
def test_a_table_that_nobody_knows_is_found_by_its_metadata(place: Place, world: World, moved: bool) -> None:
    """The beginning of a metadata file may hold anything, also so much that its UUID comes late."""
    other = writer.make_table(world.catalog, "db.other", SCHEMA)
    document = json.loads(Path(normalise(other.metadata_location)).read_bytes())
    uuid = document.pop("table-uuid")
    before = {"x": "y" * 9000} if moved else {}
    place.put("metadata/00009-x.metadata.json", json.dumps({**before, **document, "table-uuid": uuid}).encode())
    with pytest.raises(TableRefused, match=f"another table, with the UUID {other.metadata.table_uuid}") as refused:
        place.run()
    assert refused.value.reason == "shared-location"


def test_a_renamed_table_and_the_one_at_its_old_place_never_lose_each_others_files(place: Place, world: World) -> None:
    """A catalog keeps the place of a table that it renames, and gives it to the next one of the old name."""
    world.table()
    world.catalog.rename_table("db.t", "db.old")
    old = world.catalog.load_table("db.old")
    new = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART, properties=AT_ONCE)
    assert new.location() == old.location()
    for number in range(3):
        writer.append(new, [row(100 + number, "a"), row(100 + number, "b")])
    place.age()
    for names in (("cat.db.t",), ("cat.db.t", "cat.db.old")):  # whether only one of them is known, or both
        known = [world.tables.refresh(world.table(name).table_id) for name in names]
        for runtime in filter(None, known):
            with pytest.raises(TableRefused) as refused:
                world.maintaining.begin(runtime.table_id, NAME, trigger="request")
            assert refused.value.reason == "shared-location"
            assert (" share a place: " in refused.value.message) is (len(names) == 2)  # else by its metadata
    assert world.table().uuid == str(new.metadata.table_uuid)
    world.now = datetime.now(UTC) + timedelta(seconds=1)
    # What names its files by itself, or knows which were its own, does its work on both.
    for table, name in ((new, "cat.db.t"), (old, "cat.db.old")):
        rows = oracle.live_rows(table.refresh())
        assert world.optimize(OptimizingType.FULL, name) is ProcessStatus.SUCCESS
        aged(table, 30)
        for action in ("expire-snapshots", "empty-trash"):
            assert world.run(action, name) is ProcessStatus.SUCCESS
        oracle.assert_same_rows(rows, oracle.live_rows(table))
        for other in (old, new):
            assert all(Path(normalise(path)).exists() for path in reached(other.refresh().metadata))


# Writers


def test_files_that_flink_has_not_committed_are_kept(place: Place) -> None:
    """As in apache/amoro#930: without its manifest a job never starts again."""
    data = place.put("data/part=a/uncommitted.parquet")
    name = f"{'0f' * 16}-sink-1-00002-0-7-00001.avro"
    write_manifest_of(place.table, str(place.root / "metadata" / name), data)
    place.age()
    assert place.found() == [place.orphan]
    place.age(timedelta(days=7))
    assert place.found() == sorted([place.orphan, data, str(place.root / "metadata" / name)])


def test_a_manifest_of_flink_that_is_broken_or_vanishes_meanwhile_stops_the_search(place: Place) -> None:
    path = place.put(f"metadata/{'0f' * 16}-sink-1-00002-0-7-00001.avro")
    with pytest.raises(UnreadableFile):
        place.run()

    def pages(self: FileAccess, where: str) -> Iterator[Sequence[StoredFile]]:
        found = list(PAGES(self, where))
        Path(path).unlink(missing_ok=True)
        return iter(found)

    place.world.iceberg.files(pages=pages)
    with pytest.raises(CatalogUnavailable, match="meanwhile"):
        place.run()


# Storage that lies or fails


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (lambda files: [], "lacks"),
        (lambda files: [one for one in files if not one.path.endswith(".metadata.json")], "lacks"),
        (lambda files: [replace(one, modified_at=None) for one in files], "have no modification time"),
        (lambda files: [replace(one, modified_at=datetime.max.replace(tzinfo=UTC)) for one in files], "later than now"),
    ],
    ids=["empty", "cut", "no times", "a time to come"],
)
def test_a_listing_that_can_not_be_believed_condemns_nothing(place: Place, lie: object, words: str) -> None:
    assert callable(lie)

    def pages(self: FileAccess, where: str) -> Iterator[Sequence[StoredFile]]:
        for page in PAGES(self, where):
            yield lie(page)

    place.world.iceberg.files(pages=pages)
    with pytest.raises(CatalogUnavailable, match=words):
        place.run()
    assert os.path.exists(place.orphan)


def test_what_could_not_be_deleted_in_five_tries_is_an_orphan_again(place: Place) -> None:
    place.run()
    with place.world.iceberg.files(delete_many=not_removed):
        for _ in range(5):
            assert place.found() == []
            place.run("empty-trash")
    assert place.found() == [place.orphan]
    place.run()
    place.run("empty-trash")
    assert not os.path.exists(place.orphan)


# As Iceberg tests `TestRemoveOrphanFilesAction`


def test_all_valid_files_are_kept(place: Place) -> None:
    """Also those of a snapshot that no branch or tag leads to."""
    writer.copy_on_write(place.table, lambda one: one["id"] == 1, lambda one: {**one, "value": "new"})
    writer.create_branch(place.table, "audit")
    staged = writer.append(place.table, [row(7, "a")], branch="audit")
    with place.table.manage_snapshots() as change:
        change.remove_branch("audit")
    assert place.table.refresh().snapshot_by_id(staged.snapshot_id) is not None
    strays = [place.put(f"data/{below}stray.parquet") for below in ("", "part=a/", "part=a/c3=A/", "invalid/invalid/")]
    assert place.found() == sorted([place.orphan, *strays])


def test_metadata_among_data_is_intact_but_for_versions_that_nothing_reaches(place: Place) -> None:
    """Data lies right in the table's location, so its metadata lies among it."""
    properties = {"write.data.path": place.table.location(), "write.metadata.previous-versions-max": "1"}
    place.world.set_properties(properties)

    writer.append(place.table, [row(1, "a")])
    writer.append(place.table, [row(2, "a")])
    stray = place.put("part=a/c3=A/stray.parquet")
    *old, _, _ = sorted(str(path) for path in place.root.rglob("*.metadata.json"))
    assert place.found() == sorted([place.orphan, stray, *old])


# Folders that lie empty beside a table's files: removed once they are old, and none that anything was put in


def folder(place: Place, below: str, old: timedelta = timedelta(days=5)) -> Path:
    made = place.root / below
    made.mkdir(parents=True, exist_ok=True)
    at = (place.world.now - old).timestamp()
    for one in (made, *made.relative_to(place.root).parents):
        path = place.root / one
        os.utime(path, (at, at))
    return made


def test_old_empty_folders_go_and_what_is_young_or_hidden_or_has_anything_in_it_stays(place: Place) -> None:
    nested = folder(place, "data/year=2024/month=1/day=3")
    young = folder(place, "data/part=new", timedelta(hours=47))
    hidden = [folder(place, f"data/{name}") for name in ("_temporary/0", ".trash/20260101")]
    holds_link = folder(place, "data/part=link")
    (holds_link / "elsewhere").symlink_to(place.root)
    os.utime(holds_link, (0, 0))
    outside = folder(place, "metadata/empty")
    elsewhere = folder(place, "empty")
    linked = place.world.home / "linked" / "empty"
    linked.mkdir(parents=True)
    os.utime(linked, (0, 0))
    (place.root / "data" / "link").symlink_to(linked.parent)
    assert place.run().status is ProcessStatus.SUCCESS
    assert not nested.parent.parent.exists()
    assert all(one.is_dir() for one in (young, *hidden, holds_link, outside, elsewhere, linked))
    assert all(os.path.exists(path.removeprefix("file://")) for path in place.live)


def test_a_preview_and_a_held_process_remove_none(place: Place) -> None:
    empty = folder(place, "data/part=gone")
    place.preview()
    assert empty.is_dir()
    for number in range(100):
        place.put(f"data/many/{number}.parquet")
    os.utime(empty, (0, 0))
    held = place.run()
    assert (held.status, "more than 20 %" in held.failure) == (ProcessStatus.HELD, True)
    assert empty.is_dir()
    assert place.world.confirm(NAME) is ProcessStatus.SUCCESS
    assert not empty.exists()
    place.world.iceberg.files(remove_empty_folders=raising(CatalogUnavailable("no answer")))
    place.put("data/part=a/again.parquet")
    assert place.run().status is ProcessStatus.SUCCESS, "a storage that does not answer is no failure"


def test_a_folder_that_is_filled_while_it_is_looked_at_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    empty = tmp_path / "place" / "empty"
    empty.mkdir(parents=True)
    os.utime(empty, (0, 0))
    rmdir = os.rmdir

    def fill(path: str) -> None:
        (empty / "data.parquet").write_bytes(b"x")
        rmdir(path)

    monkeypatch.setattr("amoro_core.files.storage.stores.os.rmdir", fill)
    assert LocalStorage().remove_empty(str(tmp_path / "place"), place.world.now) == 0
    assert (empty / "data.parquet").exists()


# Orphan files of large tables: listed by optimizers, each a range of paths, and evaluated again in the coordinator


#: What a held process has written down is not condemned yet.
CONDEMNED = tuple(one for one in BatchStatus if one is not BatchStatus.WRITTEN)


@pytest.fixture
def large(world: World, monkeypatch: pytest.MonkeyPatch) -> Place:
    count_as_large(monkeypatch)
    return Place(world)


@pytest.fixture
def worker(large: Place) -> Worker:
    return Worker(large.world)


def condemned_now(large: Place) -> list[str]:
    return sorted(large.world.condemned(statuses=CONDEMNED))


def kept_document(large: Place, process: OptimizingProcess) -> dict[str, object]:
    return dict(large.world.store.read(lambda db: plans.get_plan(db, process.process_id)).document)


def test_a_table_up_to_the_size_has_no_tasks(large: Place, limits: Limits) -> None:
    limits(large_table=6)  # two files in each of three commits
    assert large.world.tasks(large.run().process_id) == ()
    large.put("data/part=a/again.parquet")
    limits(large_table=5)
    assert large.world.tasks(large.run().process_id) != ()


def test_an_inventory_that_can_not_be_read_any_more_ends_the_process(large: Place, worker: Worker) -> None:
    listing = inventory(large, "list.csv", stored(large))
    table_id = large.world.table().table_id
    begun = large.world.maintaining.begin(table_id, NAME, trigger="request", options=Options(file_list=listing))
    Path(listing).write_text("path,size,mtime\n/x,3,no time\n")
    worker.work()
    large.world.committing.commit(begun.process_id)
    assert large.world.status(begun.process_id) is ProcessStatus.FAILED
    assert condemned_now(large) == []


def test_a_breaker_holds_what_the_tasks_found_until_somebody_confirms_just_that(large: Place, worker: Worker) -> None:
    for number in range(100):
        large.put(f"data/many/{number}.parquet")
    held = worker.run(NAME)
    assert (held.status, "more than 20 %" in held.failure) == (ProcessStatus.HELD, True)
    assert kept_document(large, held)["orphan_files_count"] == 101
    large.put("data/many/more.parquet")
    again = worker.run(NAME, options=Options(confirmed=True))
    assert again.status is ProcessStatus.HELD
    assert "more than was confirmed: files 102 (seen: 101)" in again.failure
    assert condemned_now(large) == []
    last = max(task.attempt for task in large.world.tasks(held.process_id))
    confirmed = worker.run(NAME, options=Options(confirmed=True))
    assert (confirmed.process_id, confirmed.status) == (held.process_id, ProcessStatus.SUCCESS)
    assert all(task.attempt > last for task in large.world.tasks(held.process_id)), "what was late stays stale"
    assert len(condemned_now(large)) == 102


def test_what_a_task_does_not_name_is_counted_said_and_found_by_the_next(
    large: Place, worker: Worker, limits: Limits
) -> None:
    limits(listed_by_a_task=10**9, candidates_of_a_task=2)
    for number in range(4):
        large.put(f"data/part=a/{number}.parquet", b"12345")
    first = worker.run(NAME)
    assert first.receipt.words == "marked 2 orphan files (10 B) for deletion; 3 more left for the next run"
    assert kept_document(large, first)["kept"] == {"beyond what one process takes": 3}
    assert len(condemned_now(large)) == 2
    worker.run(NAME)
    worker.run(NAME)
    assert len(condemned_now(large)) == 5
    for number in range(100):
        large.put(f"data/many/{number}.parquet")
    assert "100 of" in worker.run(NAME).failure  # for the breaker all of them count


@pytest.fixture
def begun(large: Place, worker: Worker) -> str:
    process_id = large.world.maintaining.begin(large.world.table().table_id, NAME, trigger="request").process_id
    worker.begun = process_id
    return process_id


def end(worker: Worker, spoil: Callable[[pb.ListOutput], object] = bool) -> OptimizingProcess:
    """All tasks done, of which each says something else."""
    while handed := worker.poll():
        assert worker.ack(handed[0])
        said = pb.ListOutput.FromString(worker.execute(handed[0]).payload)
        spoil(said)
        assert worker.complete(handed[0], WorkResult(LIST, said.SerializeToString()))
    worker.world.committing.commit(worker.begun)
    return worker.world.process(worker.begun)


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (lambda said: said.candidates.add(path="/etc/passwd"), "files that lie elsewhere than it was to list"),
        (lambda said: said.MergeFrom(pb.ListOutput(without_time=1000)), "have no modification time"),
        (lambda said: said.ClearField("seen"), "the listing lacks"),
    ],
    ids=["a file elsewhere", "no times", "not what is there"],
)
def test_an_optimizer_whose_listing_can_not_be_is_not_believed(
    large: Place, worker: Worker, begun: str, lie: Callable[[pb.ListOutput], object], words: str
) -> None:
    failed = end(worker, lie)
    assert (failed.status, words in failed.failure) == (ProcessStatus.FAILED, True)
    assert condemned_now(large) == []


def test_what_is_condemned_meanwhile_or_young_is_not_condemned(large: Place, worker: Worker, begun: str) -> None:
    """As by a late result, while the tasks run; an optimizer names young files all the same."""
    shown, table = large.preview().plan, large.world.table()
    batches = pending_deletions.batches_of(shown.condemned, begun, table.table_id, table.uuid, large.world.now)
    waiting = [replace(one, status=BatchStatus.WAITING) for one in batches]
    large.world.store.write(lambda db: pending_deletions.add_many(db, waiting))
    now_us = round(large.world.now.timestamp() * 1e6)

    def add_young(said: pb.ListOutput) -> None:
        for one in list(said.candidates):
            said.candidates.add(path=f"{one.path}.young", size_bytes=1, modified_us=now_us)

    done = end(worker, add_young)
    assert (done.status, condemned_now(large)) == (ProcessStatus.SUCCESS, [large.orphan])
    assert dict(kept_document(large, done)["kept"])["young"] == 1


def test_a_file_of_another_table_ends_the_process_by_name(large: Place, worker: Worker) -> None:
    large.put("metadata/other.metadata.json", b'{"table-uuid": "11111111-2222-3333-4444-555555555555"}')
    failed = worker.run(NAME)
    assert failed.status is ProcessStatus.FAILED
    assert "two tables share a place" in failed.failure


@pytest.mark.parametrize("ending", ["success", "cancelled"])
def test_blobs_are_kept_for_as_long_as_the_process(large: Place, worker: Worker, begun: str, ending: str) -> None:
    def count() -> int:
        return int(large.world.store.read(lambda db: db.select_one("SELECT count(*) AS n FROM work_blob"))["n"])

    large.world.restart()
    assert count() > 0
    if ending == "cancelled":
        large.world.optimizing.cancel(begun, "tests")
    else:
        Worker(large.world).work()
        large.world.committing.commit(begun)
    assert (large.world.process(begun).is_active, count()) == (False, 0)


def test_a_blob_is_for_who_acknowledged_the_attempt(large: Place, worker: Worker, begun: str) -> None:
    (handed,) = worker.poll()
    name = pb.ListWork.FromString(handed.work.payload).blob
    other = Worker(large.world)
    read = large.world.optimizing.read_blob
    for who in (worker.optimizer, other.optimizer):
        with pytest.raises(TaskNotFound, match="has no blob"):
            read(who, handed.attempt, name.sha256, 0)
    assert worker.ack(handed)
    assert len(read(worker.optimizer, handed.attempt, name.sha256, 0) or b"") == name.size_bytes
    assert read(worker.optimizer, handed.attempt, name.sha256, 1) is None
    with pytest.raises(TaskNotFound, match="has no blob"):
        read(other.optimizer, handed.attempt, name.sha256, 0)


def test_what_was_found_is_gathered_later_where_the_table_does_not_answer(
    large: Place, worker: Worker, begun: str
) -> None:
    worker.work()
    large.world.iceberg.table(ground=raising(CatalogUnavailable("it does not answer")))
    with pytest.raises(CatalogUnavailable):
        large.world.committing.commit(begun)
    waiting = large.world.process(begun)
    assert (waiting.status, waiting.delay is not None) == (ProcessStatus.RUNNING, True)
    assert begun not in [one for one, _ in large.world.optimizing.list_committing()]
    large.world.iceberg.restore()
    large.world.later(3600)
    assert begun in [one for one, _ in large.world.optimizing.list_committing()]
    assert large.world.committing.commit(begun) is ProcessStatus.SUCCESS
    assert condemned_now(large) == [large.orphan]


def test_a_process_that_is_cancelled_while_it_is_gathered_condemns_nothing(
    large: Place, worker: Worker, begun: str
) -> None:
    worker.work()
    ground = IcebergTable.ground

    def cancel(self: IcebergTable) -> TableLocations:
        large.world.optimizing.cancel(begun, "tests")
        return ground(self)

    large.world.iceberg.table(ground=cancel)
    large.world.committing.commit(begun)
    assert large.world.status(begun) is ProcessStatus.CLOSED
    assert condemned_now(large) == []
