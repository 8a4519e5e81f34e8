"""Actions beside optimizing, by the one that is there: when automatic tags are due, made, lost and made again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.table import Table

from amoro_core.actions.registry import Actions
from amoro_core.errors import CommitRefused, InvalidArgument, TableBusy
from amoro_core.model.processes import METADATA, CommitOutcome, ProcessStatus
from amoro_core.model.tables import ActionRecord, OptimizingStatus, OptimizingType
from amoro_core.store import actions, processes
from amoro_core.transactions.process_context import read_context
from amoro_core.transactions.store_plan import EVALUATION
from tests.engine import oracle, writer
from tests.engine.aging import aged, wait_for_one_day
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.oracle import reached
from tests.engine.parquet_rows import local_path
from tests.services.rigs import raising
from tests.services.world import World

TAGS = "auto-create-tags"
ON = {"tag.auto-create.enabled": "true", "tag.auto-create.trigger.max-delay.minutes": "0"}


@pytest.fixture
def table(world: World) -> Table:
    """Three snapshots of today, and the clock soon after."""
    wait_for_one_day()
    made = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART, properties=ON)
    for number in range(3):
        writer.append(made, [row(number, "a")])
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


def made_once(world: World, table: Table) -> None:
    assert tags(world) == {name_of(world): first(table)}
    every = world.store.read(lambda db: processes.list_processes(db, world.table().table_id))
    done = [one for one in every if one.status is ProcessStatus.SUCCESS]
    assert [(one.type, one.lane, one.snapshot_id) for one in done] == [(TAGS, METADATA, first(table))]
    assert [one for one in every if one.is_active] == []


def test_a_missing_tag_is_due_at_the_next_look_and_made_by_the_coordinator_alone(world: World, table: Table) -> None:
    world.tables.refresh(world.table().table_id)
    assert world.maintaining.list_due() == [(world.table().table_id, TAGS, "cat")]
    process_id = begin(world, EVALUATION)
    assert (world.status(process_id), world.heard.commits) == (ProcessStatus.COMMITTING, [process_id])
    assert world.maintaining.list_due() == []
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    made_once(world, table)
    assert len(table.refresh().metadata.snapshots) == 3  # a commit without a snapshot
    assert world.table().status is OptimizingStatus.IDLE  # which is about optimizing
    kept = record(world)
    assert (kept.last_at, kept.failures) == (world.now, 0)
    again = world.maintaining.begin(world.table().table_id, TAGS, trigger=EVALUATION)
    assert (again.process_id, again.reason) == ("", f"tag {name_of(world)} exists")
    assert record(world).next_at == (world.now + timedelta(days=1)).replace(hour=0, minute=0, second=0)
    assert world.maintaining.list_due() == []


def test_a_tag_has_the_age_that_properties_say(world: World, table: Table) -> None:
    with table.transaction() as change:
        change.set_properties({"tag.auto-create.max-age-ms": "86400000", "tag.auto-create.tag-format": "'day-'yyyy"})
    world.committing.commit(begin(world))
    ref = table.refresh().metadata.refs[f"day-{world.now - timedelta(days=1):%Y}"]
    assert (ref.max_ref_age_ms, ref.snapshot_ref_type.value) == (86400000, "tag")


def test_nothing_is_due_on_a_table_that_is_switched_off_or_refused(world: World, table: Table) -> None:
    world.tables.set_enabled(world.table().identifier, False)
    assert world.maintaining.list_due() == []
    world.tables.set_enabled(world.table().identifier, True)
    assert world.maintaining.list_due()
    with table.transaction() as change:
        change.set_properties({"tag.auto-create.trigger.period": "weekly"})
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


def test_beside_an_unknown_commit_nothing_begins(world: World, table: Table) -> None:
    rewrite = world.begin_and_run(OptimizingType.FULL)
    world.tables.refresh(world.table().table_id)
    world.iceberg.lose_answers(arrives=False)
    assert world.committing.commit(rewrite) is ProcessStatus.COMMIT_UNKNOWN
    with pytest.raises(TableBusy, match="it is not known whether its commit was applied"):
        begin(world)
    waiting = world.maintaining.begin(world.table().table_id, TAGS, trigger=EVALUATION)
    assert (waiting.process_id, waiting.reason.endswith("it is not known whether its commit was applied")) == ("", True)
    assert world.maintaining.list_due() == []  # not again at once
    world.iceberg.restore()
    assert world.committing.commit(rewrite) is ProcessStatus.SUCCESS
    world.later(60)
    assert world.maintaining.list_due()


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


def test_a_table_that_was_made_anew_ends_its_processes_in_every_lane(world: World, table: Table) -> None:
    process_id = begin(world)
    world.catalog.drop_table("db.t")
    writer.append(writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART, properties=ON), [row(1, "a")])
    assert world.committing.commit(process_id) is ProcessStatus.FAILED
    assert "is another table" in world.process(process_id).failure
    assert tags(world) == {}


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
    TAGS, "expire-snapshots", "expire-data", "compute-statistics", "rewrite-manifests", "clean-dangling-delete-files",
)  # fmt: skip
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
    with due.transaction() as change:
        change.set_properties({"write.wap.enabled": "true"})
    writer.create_branch(due, "audit")
    writer.append(due, [row(99, "y")], branch="audit")
    begun = world.maintaining.begin(world.table().table_id, action, trigger="request")
    assert (begun.process_id, "audit" in begun.reason) == ("", True)
