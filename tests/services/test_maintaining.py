"""Actions beside optimizing, by the one that is there: when automatic tags are due, made, lost and made again."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

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
from tests.engine.aging import wait_for_one_day
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.services.rigs import dying_at, raising
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


@pytest.mark.parametrize("arrives", [True, False])
def test_an_unknown_tag_is_traced_and_made_once(world: World, table: Table, arrives: bool) -> None:
    process_id = begin(world)
    world.commit_unknown(process_id, arrives=arrives)
    world.restart()
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    made_once(world, table)


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


@pytest.mark.parametrize(
    "point",
    [
        "plan.after_mark",
        "plan.before_store",
        "plan.after_store",
        "commit.after_intent",
        "commit.after_send",
        "commit.after_done",
    ],
)
def test_killed_anywhere_the_tag_is_made_once(world: World, table: Table, point: str) -> None:
    world.tables.refresh(world.table().table_id)
    with dying_at(point):
        world.committing.commit(begin(world, EVALUATION))
    world.restart()
    for process_id in world.heard.commits:
        world.committing.commit(process_id)
    for table_id, action, _ in world.maintaining.list_due():
        if (begun := world.maintaining.begin(table_id, action, trigger=EVALUATION)).process_id:
            world.committing.commit(begun.process_id)
    made_once(world, table)
