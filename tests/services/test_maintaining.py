"""Actions beside optimizing: automatic tags, manifests written anew, dangling deletes, and what all of them owe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table import Table

from amoro_core.actions.registry import Actions
from amoro_core.errors import CannotUndo, CommitRefused, InvalidArgument
from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.iceberg.maintenance import rewrite_manifests
from amoro_core.iceberg.manifest.writing import existing_entry
from amoro_core.model.processes import METADATA, CommitOutcome, Figure, ProcessStatus
from amoro_core.model.tables import ActionRecord, OptimizingStatus, OptimizingType
from amoro_core.store import actions, processes
from amoro_core.transactions.process_context import read_context
from amoro_core.transactions.store_plan import EVALUATION
from tests.engine import oracle, writer
from tests.engine.aging import aged, wait_for_one_day
from tests.engine.builders import BY_PART, SCHEMA, ids, row
from tests.engine.oracle import reached
from tests.engine.parquet_rows import local_path
from tests.engine.writer3 import upgrade
from tests.services.rigs import raising
from tests.services.world import World, make_small_files

TAGS = "auto-create-tags"
ON = {"tag.auto-create.enabled": "true", "tag.auto-create.trigger.max-delay.minutes": "0"}


@pytest.fixture
def table(world: World) -> Table:
    """Three snapshots of today, and the clock soon after."""
    wait_for_one_day()
    made = make_small_files(world.catalog, spec=BY_PART, properties=ON)
    world.now = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=5)
    return made


def tags(world: World) -> dict[str, int]:
    refs = world.catalog.load_table("db.t").metadata.refs
    return {name: ref.snapshot_id for name, ref in refs.items() if name != "main"}


def first(table: Table) -> int:
    return min(table.refresh().metadata.snapshots, key=lambda one: one.sequence_number or 0).snapshot_id


def name_of(world: World) -> str:
    return f"tag-{world.now - timedelta(days=1):%Y%m%d}"


def record(world: World) -> ActionRecord:
    return world.store.read(lambda db: actions.get(db, world.table().table_id, TAGS))


def begin(world: World, trigger: str = "request") -> str:
    begun = world.maintaining.begin(world.table().table_id, TAGS, trigger=trigger)
    assert begun.process_id, begun.reason
    return begun.process_id


def test_a_missing_tag_is_due_at_the_next_look_and_made_by_the_coordinator_alone(world: World, table: Table) -> None:
    world.tables.refresh(world.table().table_id)
    assert world.maintaining.list_due() == [(world.table().table_id, TAGS, "cat")]
    process_id = begin(world, EVALUATION)
    assert (world.status(process_id), world.heard.commits) == (ProcessStatus.COMMITTING, [process_id])
    assert world.maintaining.list_due() == []
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert tags(world) == {name_of(world): first(table)}
    every = world.store.read(lambda db: processes.list_processes(db, world.table().table_id))
    done = [one for one in every if one.status is ProcessStatus.SUCCESS]
    assert [(one.type, one.lane, one.snapshot_id) for one in done] == [(TAGS, METADATA, first(table))]
    assert [one for one in every if one.is_active] == []
    assert len(table.refresh().metadata.snapshots) == 3  # a commit without a snapshot
    assert world.table().status is OptimizingStatus.IDLE  # which is about optimizing
    kept = record(world)
    assert (kept.last_at, kept.failures) == (world.now, 0)
    again = world.maintaining.begin(world.table().table_id, TAGS, trigger=EVALUATION)
    assert (again.process_id, again.reason) == ("", f"tag {name_of(world)} exists")
    assert record(world).next_at == (world.now + timedelta(days=1)).replace(hour=0, minute=0, second=0)
    assert world.maintaining.list_due() == []


def test_a_tag_has_the_age_that_properties_say(world: World, table: Table) -> None:
    world.set_properties({"tag.auto-create.max-age-ms": "86400000", "tag.auto-create.tag-format": "'day-'yyyy"})
    world.committing.commit(begin(world))
    ref = table.refresh().metadata.refs[f"day-{world.now - timedelta(days=1):%Y}"]
    assert (ref.max_ref_age_ms, ref.snapshot_ref_type.value) == (86400000, "tag")


def test_nothing_is_due_on_a_table_that_is_switched_off_or_refused(world: World, table: Table) -> None:
    world.tables.set_enabled(world.table().identifier, False)
    assert world.maintaining.list_due() == []
    world.tables.set_enabled(world.table().identifier, True)
    assert world.maintaining.list_due()
    world.set_properties({"tag.auto-create.trigger.period": "weekly"})
    world.tables.refresh(world.table().table_id)
    runtime = world.table()
    assert (runtime.status, runtime.refusal) == (OptimizingStatus.REFUSED, "configuration")
    assert "tag.auto-create.trigger.period has the malformed value 'weekly'" in runtime.status_reason
    assert world.maintaining.list_due() == []


def test_an_action_that_is_not_there_is_refused_by_name(world: World, table: Table) -> None:
    for name in ("polish", "optimizing", "minor"):
        with pytest.raises(InvalidArgument, match=f"there is no action '{name}'") as caught:
            world.maintaining.begin(world.table().table_id, name, trigger="request")
        assert "One of: auto-create-tags" in caught.value.hint


def test_an_unknown_tag_whose_name_somebody_gave_to_another_snapshot_is_refuted(world: World, table: Table) -> None:
    process_id = begin(world)
    world.commit_unknown(process_id, arrives=False)
    head = table.refresh().metadata.current_snapshot_id
    assert head is not None
    table.manage_snapshots().create_tag(head, name_of(world)).commit()
    assert world.committing.commit(process_id) is ProcessStatus.FAILED
    assert world.outcomes(process_id) == [CommitOutcome.REFUTED]
    assert tags(world) == {name_of(world): head}


def test_a_name_that_was_given_meanwhile_is_a_conflict_and_no_failure(world: World, table: Table) -> None:
    process_id = begin(world)
    head = table.refresh().metadata.current_snapshot_id
    assert head is not None
    table.manage_snapshots().create_tag(head, name_of(world)).commit()
    assert world.committing.commit(process_id) is ProcessStatus.FAILED
    assert world.process(process_id).failure == f"the table has a branch or tag {name_of(world)} already"
    assert record(world).failures == 0


def test_a_failure_backs_off_for_its_action_alone(world: World, table: Table) -> None:
    world.tables.refresh(world.table().table_id)
    process_id = begin(world, EVALUATION)
    world.iceberg.table(send=raising(CommitRefused("no right")))
    assert world.committing.commit(process_id) is ProcessStatus.FAILED
    kept = record(world)
    assert (kept.failures, kept.retry_at) == (1, world.now + timedelta(minutes=1))
    assert kept.reason == "auto-create-tags failed: no right"
    assert (world.table().failures, world.table().retry_at) == (0, None)
    assert world.maintaining.list_due() == []
    world.later(61)
    world.iceberg.restore()
    assert world.maintaining.list_due()
    world.committing.commit(begin(world, EVALUATION))
    made_once_after_failure = record(world)
    assert (made_once_after_failure.failures, made_once_after_failure.retry_at) == (0, None)


def pinned(world: World) -> tuple[set[int], set[str]]:
    found = world.pinned(world.table().table_id)
    return set(found.reasons), set(found.paths)


def pins(snapshot_ids: Iterable[int] = (), paths: Iterable[str] = ()) -> tuple[set[int], set[str]]:
    return set(snapshot_ids), set(paths)


def test_what_active_processes_need_can_be_asked_for(world: World, table: Table) -> None:
    table_id = world.table().table_id
    assert pinned(world) == pins()
    head, inputs = table.refresh().metadata.current_snapshot_id, {one.path for one in oracle.live_files(table)}
    rewrite = world.begin(OptimizingType.FULL)
    assert pinned(world) == pins({head}, inputs)
    world.run_all(rewrite)
    case = world.store.read(lambda db: read_context(db, rewrite))
    outputs = set(Actions().optimizing.outputs(case, frozenset(result.number for result in case.results)))
    tag = begin(world)
    assert pinned(world) == pins({head, first(table)}, inputs | outputs)
    world.committing.commit(tag)
    world.iceberg.lose_answers(arrives=False)
    assert world.committing.commit(rewrite) is ProcessStatus.COMMIT_UNKNOWN
    (attempt,) = world.store.read(lambda db: processes.list_commits(db, rewrite))
    needed = world.pinned(table_id)
    assert set(needed.reasons) == {head, attempt.snapshot_id}
    assert needed.paths == inputs | outputs | set(attempt.metadata_files)
    world.iceberg.restore()
    assert world.committing.commit(rewrite) is ProcessStatus.SUCCESS
    assert pinned(world) == pins()


# What each action owes to a commit of which nobody hears, and to a table under review


LONG_AGO = "2020-01-01"


@pytest.fixture
def due(world: World) -> Table:
    """A table of which every action finds something to do."""
    wait_for_one_day()
    properties = {
        **ON,
        "data-expire.enabled": "true",
        "data-expire.field": "part",
        "data-expire.retention-time": "1d",
        "data-expire.base-on-rule": "CURRENT_TIME",
    }
    made = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART, properties=properties)
    writer.append(made, [row(1, "x"), row(2, LONG_AGO), row(3, "y"), row(4, "y")])
    gone = [one.path for one in oracle.live_files(made) if one.partition[0] == "x"]
    writer.upsert(made, [row(1, "x", "new")], ["id"])
    writer.remove_files(made, gone)  # its delete dangles
    aged(made, 30)
    writer.append(made, [row(5, "y")])
    world.now = datetime.now(UTC) + timedelta(seconds=1)
    return made


def undo_of(world: World, process_id: str) -> str:
    return world.maintaining.undo(process_id).process_id


COMMITTING = (
    TAGS,
    "expire-snapshots",
    "expire-data",
    "compute-statistics",
    "rewrite-manifests",
    "clean-dangling-delete-files",
)
COMMITS: dict[str, Callable[[World], str]] = {
    **{name: lambda world, name=name: world.begin_action(name, confirmed=True) for name in COMMITTING},
    "undo of a rewrite": lambda world: undo_of(world, world.optimized()),
    "undo of an expiry of snapshots": lambda world: undo_of(world, world.done("expire-snapshots")),
    "undo of an expiry of data": lambda world: undo_of(world, world.done("expire-data", confirmed=True)),
    "undo of statistics": lambda world: undo_of(world, world.done("compute-statistics")),
}


@pytest.mark.parametrize("arrives", [True, False])
@pytest.mark.parametrize("what", COMMITS)
def test_an_unknown_commit_lands_once_and_no_file_is_lost_or_left(
    world: World, due: Table, what: str, arrives: bool
) -> None:
    process_id = COMMITS[what](world)
    states, rows = len(due.refresh().metadata.metadata_log), oracle.live_rows(due)
    world.commit_unknown(process_id, arrives=arrives)
    world.restart()
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert len(due.refresh().metadata.metadata_log) == states + 1
    left = oracle.live_rows(due)
    assert {one[1] for one in rows - left} == ({LONG_AGO} if what == "expire-data" else set())
    world.later(timedelta(days=30).total_seconds())
    if (sweep := world.maintaining.begin(world.table().table_id, "empty-trash", trigger="request")).process_id:
        assert world.committing.commit(sweep.process_id) is ProcessStatus.SUCCESS
    assert (world.guard_hits, oracle.live_rows(due)) == (0, left)
    named = {local_path(path) for path in reached(due.refresh().metadata)}
    there = {str(path) for path in Path(local_path(due.location())).rglob("*") if path.is_file()}
    assert {path for path in named ^ there if not path.endswith(".json")} == set()


@pytest.mark.parametrize("action", ["expire-data", "rewrite-manifests", "clean-dangling-delete-files"])
def test_a_table_under_review_by_a_branch_is_left_alone(world: World, due: Table, action: str) -> None:
    world.set_properties({"write.wap.enabled": "true"})
    writer.create_branch(due, "audit")
    writer.append(due, [row(99, "y")], branch="audit")
    begun = world.maintaining.begin(world.table().table_id, action, trigger="request")
    assert (begun.process_id, "audit" in begun.reason) == ("", True)


@pytest.mark.parametrize("name", ["clean-dangling-delete-files", "rewrite-manifests"])
def test_what_changes_no_row_has_no_undo(world: World, due: Table, name: str) -> None:
    process_id = world.done(name)
    with pytest.raises(CannotUndo, match=f"{process_id} can't be undone: {name} has no undo"):
        world.maintaining.undo(process_id)


# Manifests written anew, and delete files that dangle: every entry and row stays as it was, whatever others do


DANGLING = "clean-dangling-delete-files"
MANIFESTS, CLUSTERED = "rewrite-manifests", "maintenance.rewrite-manifests.enabled"

PARTS = "abcdef"
LOWER_BOUNDS = [field.name for field in DATA_FILE_TYPE[3].fields].index("lower_bounds")
DATA, DELETES = ManifestContent.DATA, ManifestContent.DELETES


def filled(world: World, appends: int = 10, version: int = 2, **properties: str) -> Table:
    """Each append and each upsert has a manifest with all partitions."""
    made = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART, version, properties=properties)
    for number in range(appends):
        writer.append(made, [row(number * 10 + at, part) for at, part in enumerate(PARTS)])
    return made


def with_deletes(world: World) -> Table:
    made = filled(world)
    for number in range(3):
        writer.upsert(made, [row(number * 10 + at, part, "new") for at, part in enumerate(PARTS)], ["id"])
    writer.delete_where(made, lambda item: item["id"] % 10 == 5)
    return made


def manifests(table: Table, content: ManifestContent = DATA) -> list[ManifestFile]:
    snapshot = table.refresh().current_snapshot()
    return [one for one in snapshot.manifests(table.io) if one.content == content]


def entries(table: Table) -> Counter[tuple[Any, ...]]:
    """All that live entries say but whether they are new, each as often as it stands in the table."""
    found = Counter[tuple[Any, ...]]()
    for one in (*manifests(table, DATA), *manifests(table, DELETES)):
        for entry in one.fetch_manifest_entry(table.io, discard_deleted=True):
            file, numbers = entry.data_file, (entry.snapshot_id, entry.sequence_number, entry.file_sequence_number)
            content, *fields = (file[at] for at in range(len(file)))  # the content is a plain 0 in format 1
            said = (str(dict(one) if isinstance(one, Mapping) else one) for one in fields)
            found[*numbers, file.spec_id, DataFileContent(content), *said] += 1
    return found


def of_partition(table: Table, part: str, content: ManifestContent = DATA) -> int:
    """How many manifests a reader of the partition opens, told by the bounds."""
    found = 0
    for one in manifests(table, content):
        assert one.partitions
        lower, upper = one.partitions[0].lower_bound, one.partitions[0].upper_bound
        found += lower is not None and upper is not None and lower <= part.encode() <= upper
    return found


def by_the_clock(world: World) -> Any:
    world.later(timedelta(days=2).total_seconds())
    return world.maintaining.begin(world.table().table_id, MANIFESTS, trigger="evaluation")


def test_every_entry_stays_as_it_was_in_fewer_manifests(world: World) -> None:
    table = with_deletes(world)
    before, rows, head = entries(table), oracle.live_rows(table), table.current_snapshot()
    assert (len(manifests(table)), len(manifests(table, DELETES))) == (13, 4)
    process_id = world.done(MANIFESTS)
    assert entries(table) == before
    assert oracle.live_rows(table) == rows
    (data,), (deletes,) = manifests(table), manifests(table, DELETES)
    assert [one.min_sequence_number for one in (data, deletes)] == [1, 11]
    assert {data.added_files_count, deletes.added_files_count, data.deleted_files_count} == {0}
    read = data.fetch_manifest_entry(table.io)
    assert {entry.status for entry in read} == {ManifestEntryStatus.EXISTING}
    parts = [entry.data_file.partition[0] for entry in read]
    assert parts == sorted(parts)
    made = table.current_snapshot()
    assert (made.summary.operation.value, made.parent_snapshot_id) == ("replace", head.snapshot_id)
    said = made.summary.additional_properties
    assert {key: said[key] for key in said if key.startswith(("manifests-", "entries-", "changed-"))} == {
        "manifests-created": "2",
        "manifests-kept": "0",
        "manifests-replaced": "17",
        "entries-processed": str(sum(before.values())),
        "changed-partition-count": "0",
    }
    assert said["total-data-files"] == head.summary.additional_properties["total-data-files"]
    assert said["amoro.process-id"] == process_id
    receipt = world.receipt(process_id)
    assert receipt.words == "rewrote 17 manifests as 2"
    assert receipt.figures[0] == Figure("replaced_manifests", 17, "files")


@pytest.mark.parametrize("version", [1, 2, 3])
def test_manifests_of_format_1_keep_their_entries_also_after_an_upgrade(world: World, version: int) -> None:
    table = filled(world, version=1)
    if version > 1:
        with table.transaction() as change:
            change.upgrade_table_version(2)
    if version == 3:
        upgrade(table)
    before, rows = entries(table), oracle.live_rows(table)
    world.done(MANIFESTS)
    assert len(manifests(table)) < 10
    assert (entries(table), oracle.live_rows(table)) == (before, rows)


def test_by_the_clock_overlapping_manifests_are_clustered_and_stay_so(world: World) -> None:
    table = filled(world, 12, **{"commit.manifest.target-size-bytes": "8000", CLUSTERED: "true"})
    assert of_partition(table, "c") == 12
    seen = by_the_clock(world)
    assert seen.reason.startswith("a partition lies in 12.0 of 12 data manifests of spec 0, in ")
    assert world.committing.commit(seen.process_id) is ProcessStatus.SUCCESS
    assert len(manifests(table)) > 2
    assert of_partition(table, "c") <= 2
    again = by_the_clock(world)
    assert (again.process_id, again.reason) == ("", "no manifest is worth rewriting")


def test_so_many_small_manifests_are_due_by_the_tables_property(world: World) -> None:
    properties = {"maintenance.rewrite-manifests.min-count": "5", CLUSTERED: "true"}
    table = make_small_files(world.catalog, 4, properties=properties)
    assert by_the_clock(world).reason == "no manifest is worth rewriting"
    writer.append(table, [row(4)])
    assert by_the_clock(world).reason == "5 of 5 data manifests of spec 0 are small"


def test_manifests_of_specs_are_never_mixed(world: World) -> None:
    table = filled(world, 3)
    with table.update_spec() as update:
        update.remove_field("part")
        update.add_identity("value")
    for number in range(3):
        writer.append(table, [row(100 + number, "a", "v"), row(200 + number, "b", "w")])
    before = entries(table)
    world.done(MANIFESTS)
    assert sorted(one.partition_spec_id for one in manifests(table)) == [0, 1]
    assert entries(table) == before


def test_a_file_that_stands_in_the_table_twice_stays_twice(world: World) -> None:
    table = filled(world, 2)
    files = [one.path for one in oracle.live_files(table)][:1]
    table.refresh().add_files(files, check_duplicate_files=False)
    before = entries(table)
    assert sum(count for said, count in before.items() if said[5] == files[0]) == 2
    world.done(MANIFESTS)
    assert len(manifests(table)) == 1
    assert entries(table) == before


@pytest.mark.parametrize(("content", "left"), [(DATA, (13, 1)), (DELETES, (1, 4))], ids=["data", "deletes"])
def test_what_came_of_a_manifest_that_another_replaced_is_left_out(
    world: World, monkeypatch: pytest.MonkeyPatch, content: ManifestContent, left: tuple[int, int]
) -> None:
    table = with_deletes(world)
    process_id = world.begin_action(MANIFESTS)
    gone = next(one.path for one in oracle.live_files(table) if (one.content == oracle.DATA) == (content == DATA))
    written, seen = rewrite_manifests._require_same, []

    def meanwhile(*arguments: Any) -> None:
        written(*arguments)
        seen.append(arguments)
        if len(seen) == 2:
            writer.remove_files(table, [gone])  # its manifest is written anew without it

    monkeypatch.setattr(rewrite_manifests, "_require_same", meanwhile)
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert gone not in {one.path for one in oracle.live_files(table)}
    assert (len(manifests(table)), len(manifests(table, DELETES))) == left
    receipt = world.receipt(process_id)
    assert "was replaced meanwhile" in receipt.words


def test_two_that_rewrite_the_same_manifests_leave_the_work_of_the_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, process_id = filled(world), world.begin_action(MANIFESTS)
    before = entries(table)
    written, others = rewrite_manifests._require_same, list[str]()

    def meanwhile(*arguments: Any) -> None:
        written(*arguments)
        if not others:
            others.append("")
            opened = IcebergFormat().load(world.catalogs.get("cat"), world.table().identifier)
            opened.send(opened.stage_manifests(None, {"amoro.process-id": "other"}).commit.payload)

    monkeypatch.setattr(rewrite_manifests, "_require_same", meanwhile)
    assert world.committing.commit(process_id) is ProcessStatus.FAILED
    assert "was replaced meanwhile" in world.process(process_id).failure
    assert (entries(table), len(manifests(table))) == (before, 1)


def as_new(entry: ManifestEntry) -> ManifestEntry:
    return entry


def of_number_9(entry: ManifestEntry) -> ManifestEntry:
    done = existing_entry(entry)
    done.sequence_number = 9
    return done


def without_bounds(entry: ManifestEntry) -> ManifestEntry:
    done = deepcopy(existing_entry(entry))
    done.data_file[LOWER_BOUNDS] = None
    return done


@pytest.mark.parametrize("spoil", [as_new, of_number_9, without_bounds])
def test_entries_that_do_not_read_back_as_they_were_end_it(
    world: World, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[ManifestEntry], ManifestEntry]
) -> None:
    table, process_id = filled(world), world.begin_action(MANIFESTS)
    before = entries(table)
    monkeypatch.setattr(rewrite_manifests, "existing_entry", spoil)
    assert world.committing.commit(process_id) is ProcessStatus.FAILED
    assert "do not have the 60 entries of the old ones" in world.process(process_id).failure
    assert entries(table) == before
    assert len(manifests(table)) == 10


def test_a_lost_race_leaves_no_file_behind(world: World) -> None:
    table, process_id = filled(world), world.begin_action(MANIFESTS)
    sent = world.iceberg.before_sending(lambda: writer.append(table, [row(7, "a")]))
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert len(sent) == 2
    # No manifest and no list lies there that no snapshot names.
    every = table.refresh().metadata.snapshots
    named = {one.manifest_path for snapshot in every for one in snapshot.manifests(table.io)}
    named |= {one.manifest_list for one in every}
    assert {path.as_uri() for path in (world.home.parent / "warehouse").rglob("*.avro")} == named


# Dangling delete files: which of them leave the table, that no row moves, and what comes of others' commits


@pytest.fixture
def dangling(world: World) -> Table:
    """Two partitions, in each an equality and a position delete; in partition a nothing is left to which they apply.

    The equality delete of b is needed by one file of two, the later of which it is too old for.
    """
    made = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART)
    writer.append(made, [row(1, "a"), row(2, "a"), row(11, "b"), row(12, "b")])
    old = {one.path for one in oracle.live_files(made) if one.partition[0] == "a"}
    writer.upsert(made, [row(1, "a", "new"), row(11, "b", "new")], ["id"])
    writer.delete_where(made, lambda item: item["id"] in (2, 12))
    writer.remove_files(made, old)
    return made


def deletes(table: Table) -> list[tuple[int, str]]:
    """Content and partition of each live delete file."""
    return sorted((one.content, one.partition[0]) for one in oracle.live_files(table) if one.content)


def test_only_what_applies_to_no_file_goes_and_no_row_changes(world: World, dangling: Table) -> None:
    before, rows = ids(dangling), oracle.live_rows(dangling)
    assert deletes(dangling) == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
    process_id = world.done(DANGLING)
    assert deletes(dangling) == [(1, "b"), (2, "b")]
    assert (ids(dangling), oracle.live_rows(dangling)) == (before, rows) == ([1, 11], rows)
    head = dangling.refresh().current_snapshot()
    assert head.summary.operation.value == "replace"
    said = head.summary.additional_properties
    assert said["snapshot.producer"] == "CLEAN_DANGLING_DELETE"
    assert said["amoro.process-id"] == process_id
    assert (said["removed-delete-files"], said["total-delete-files"], said["total-data-files"]) == ("2", "2", "3")
    receipt = world.receipt(process_id)
    assert (receipt.words, receipt.snapshot_id) == ("removed 2 dangling delete files", head.snapshot_id)
    assert receipt.figures[:2] == (
        Figure("removed_position_delete_files", 1, "files"),
        Figure("removed_equality_delete_files", 1, "files"),
    )
    begun = world.maintaining.begin(world.table().table_id, DANGLING, trigger="request")
    assert (begun.process_id, begun.reason) == ("", "no dangling delete files")


def test_a_conflict_is_told_anew_on_the_new_head(world: World, dangling: Table) -> None:
    process_id = world.begin_action(DANGLING)
    sent = world.iceberg.before_sending(lambda: writer.append(dangling, [row(3, "a"), row(13, "b")]))
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert len(sent) == 2
    assert (ids(dangling), deletes(dangling)) == ([1, 3, 11, 13], [(1, "b"), (2, "b")])
