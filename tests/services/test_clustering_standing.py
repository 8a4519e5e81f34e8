"""Clustering cut short, taken back, and what it costs its table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import product
from pathlib import Path

import pytest
from pyiceberg.table import Table

from amoro_core.actions.clustering import Cluster
from amoro_core.errors import CannotUndo
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.model.clustering import CLUSTER, ClusterOptions
from amoro_core.model.processes import CommitOutcome, ProcessStatus, TaskId, TaskStatus
from amoro_core.model.task_payload import PositionMap, WorkResult
from amoro_core.planning.clustering.model import ClusterFacts, ClusteringConfig, ClusterRequest, ClusterVerdict
from amoro_core.protocol.codec import decode_cluster_input, decode_cluster_output, encode_cluster_output
from amoro_core.services.task_lifecycle import ScheduledTask
from amoro_core.store import processes, tasks
from amoro_core.transactions.store_plan import EVALUATION
from tests.engine import oracle, writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.parquet_rows import local_path
from tests.services.clustered import (
    Grouping,
    cluster_with,
    clusterer,
    commit_due,
    plan_groups_with,
    unsorted,
    with_property,
    work_on,
)
from tests.services.rigs import dying_at
from tests.services.test_undoing import files_of, undo
from tests.services.world import World, make_small_files
from tests.tiers import sample


@pytest.fixture(autouse=True)
def grouping(monkeypatch: pytest.MonkeyPatch) -> Grouping:
    made = Grouping()
    plan_groups_with(monkeypatch, made)
    return made


@pytest.fixture
def world(new_world: Callable[..., World]) -> World:
    made = new_world()
    _table(made, "db.t", 8)
    return made


def _table(world: World, name: str, files: int) -> None:
    table = writer.make_table(world.catalog, name, SCHEMA)
    writer.append(table, [row(number) for number in range(files)], files)


def counted(world: World, process_id: str) -> tuple[int, int]:
    """The groups that were committed, and those that were dropped."""
    figures = {one.name: one.value for one in world.receipt(process_id).more if one.unit == "groups"}
    return figures["groups_committed"], figures["groups_dropped"]


# Receipts


def inputs_of(world: World, process_id: str, number: int) -> tuple[str, ...]:
    """The data files of one group."""
    payload = world.store.read(lambda db: tasks.read_input(db, TaskId(process_id, number)))
    return Cluster().data_files(payload)


@pytest.mark.parametrize("partial_progress", ["true", "false"])
def test_a_receipt_counts_groups_that_were_committed_and_dropped(world: World, partial_progress: str) -> None:
    """A group gives way after its work was done, and one before it was begun."""
    gives_way = {"self-optimizing.cluster.update-strategy": "give-way"}
    with_property(world, {**gives_way, "self-optimizing.cluster.partial-progress": partial_progress})
    process_id = cluster_with(world, Grouping())
    optimizer, table = clusterer(world), world.catalog.load_table("db.t")
    first, third = (inputs_of(world, process_id, number) for number in (1, 3))
    touched = next(one.record["id"] for one in oracle.live_rows_with_positions(table) if one.path == first[0])
    writer.delete_where(table, lambda item: item["id"] == touched)
    writer.remove_files(table, third[:1])
    world.starting.check_files(world.table().table_id)
    work_on(world, process_id, optimizer)
    assert world.status(process_id) is ProcessStatus.PARTIAL
    assert counted(world, process_id) == (2, 2)


# Quota


def test_cores_are_charged_and_not_the_thread_that_waits_for_them(world: World) -> None:
    """Eight cores for a minute cost eight thread minutes: the other table has its turn so often before."""
    _table(world, "db.u", 40)
    for name in ("cat.db.t", "cat.db.u"):
        assert world.maintaining.begin(world.table(name).table_id, CLUSTER, trigger="request").process_id
    optimizer, heavy, turns = clusterer(world), world.table("cat.db.t").table_id, []
    while turns.count(heavy) < 2 and len(turns) < 20:
        (handed,) = world.poll(optimizer)
        process_id = handed.attempt.task_id.process_id
        turns.append(world.process(process_id).table_id)
        assert world.optimizing.ack(optimizer, [handed.attempt]) != [None]
        world.later(60)
        cores = 8 if turns[-1] == heavy else 1
        world.optimizers.touch(optimizer, 1, {handed.attempt: (1, 1)}, {handed.attempt: cores * 60_000})
        assert world.optimizing.complete(optimizer, handed.attempt, unsorted(handed))
        world.optimizers.touch(optimizer, 1, {})  # it runs no more, and is told of no more
        commit_due(world, process_id)
    first = turns.index(heavy)
    assert first in (0, 1)
    assert len(turns) - first - 2 in (7, 8)


# The window


def test_a_plan_that_was_made_as_the_window_closed_starts_when_it_opens_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The world begins at noon, UTC; planning takes until the window's end."""
    with_property(
        world,
        {
            "self-optimizing.enabled": "true",
            "self-optimizing.cluster.enabled": "true",
            "maintenance.window": "11:00-12:30",
        },
    )
    world.table()
    plain = Grouping()

    def slow(facts: ClusterFacts, config: ClusteringConfig, request: ClusterRequest) -> ClusterVerdict:
        world.later(timedelta(minutes=30).total_seconds())
        return plain(facts, config, request)

    plan_groups_with(monkeypatch, slow)
    begun = world.maintaining.begin(world.table().table_id, CLUSTER, trigger=EVALUATION)
    assert world.status(begun.process_id) is ProcessStatus.REQUESTED
    assert world.starting.start_due() == []
    assert world.poll(clusterer(world)) == []
    world.later(timedelta(hours=22, minutes=30).total_seconds() - 1)
    assert (world.starting.start_due(), world.starting.close_expired()) == ([], [])
    world.restart()
    world.later(1)
    assert world.starting.start_due() == [begun.process_id]
    assert world.status(begun.process_id) is ProcessStatus.RUNNING
    assert len(world.poll(clusterer(world))) == 1


def test_a_plan_within_the_window_starts_at_once_and_one_by_command_at_any_time(world: World) -> None:
    switched = {"self-optimizing.enabled": "true", "self-optimizing.cluster.enabled": "true"}
    with_property(world, {**switched, "maintenance.window": "12:00-12:30"})
    world.table()
    world.tables.refresh(world.table().table_id)
    begun = world.maintaining.begin(world.table().table_id, CLUSTER, trigger=EVALUATION)
    assert world.status(begun.process_id) is ProcessStatus.RUNNING
    world.optimizing.cancel(begun.process_id, "by hand")
    world.later(timedelta(hours=1).total_seconds())
    late = world.maintaining.begin(world.table().table_id, CLUSTER, trigger=EVALUATION)
    assert late.process_id == "", "the window has closed"
    assert late.due_at > world.now
    assert (late.due_at.hour, late.due_at.minute) == (12, 0)
    assert world.process(cluster_with(world, Grouping())).status is ProcessStatus.RUNNING


# Clustering cut short at every place between two effects: what was begun ends, and each group is committed once


PLACES = (
    ("plan.before_store", 1),
    ("plan.after_store", 1),
    ("start.before_store", 1),
    ("start.after_store", 1),
    *product(
        (
            *("poll.after_store", "complete.before_store", "complete.after_store"),
            *("commit.before_intent", "commit.after_stage", "commit.after_intent"),
            *("commit.after_send", "commit.after_done"),
        ),
        (1, 2),
    ),
)
SCHEDULED = ClusterOptions(schedule_only=True)


def to_the_end(world: World) -> str:
    """Plan, start, work and commit, from wherever it stands; the id of the process."""
    found = world.store.read(processes.list_active)
    process_id = found[0].process_id if found else cluster_with(world, Grouping(), SCHEDULED)
    if not process_id:
        return world.store.read(lambda db: processes.list_processes(db, limit=1))[0].process_id
    if world.status(process_id) is ProcessStatus.REQUESTED:
        world.starting.start(process_id)
    optimizer = clusterer(world)
    for _ in range(3):
        commit_due(world, process_id)
        work_on(world, process_id, optimizer)
    return process_id


@pytest.mark.parametrize(("place", "turn"), sample(PLACES, every=5))
def test_whatever_place_it_dies_at_each_group_is_committed_once(
    new_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch, place: str, turn: int
) -> None:
    plan_groups_with(monkeypatch, Grouping(only_unclustered=True))
    world = new_world()
    table = make_small_files(world.catalog, 6)
    before = oracle.live_rows(table)
    with dying_at(place, turn):
        to_the_end(world)
    world.restart()
    for optimizer, _ in world.optimizers.list_optimizers():
        world.optimizing.dismiss(optimizer.optimizer_id, "it was killed", lost=True)
    process_id = to_the_end(world)
    assert world.status(process_id) is ProcessStatus.SUCCESS
    done = [number for one in world.commits(process_id) if one.outcome is CommitOutcome.DONE for number in one.groups]
    assert sorted(done) == [1, 2, 3]
    assert world.snapshots_of(process_id) == 3
    assert len([one for one in table.refresh().metadata.sort_orders if one.fields]) == 1
    oracle.assert_same_rows(before, oracle.live_rows(table))
    if place == "complete.before_store":
        return  # nobody has heard of that result: its file is an orphan
    root = Path(table.location().removeprefix("file://")) / "data"
    live = {Path(local_path(file.path)).name for file in oracle.live_files(table)}
    assert {path.name for path in root.rglob(f"{process_id}-*.parquet")} == live


# Deletes by position that come while files are clustered, whose rows stand in another order in the outputs


SEND = IcebergTable.send
GIVE_WAY = {"self-optimizing.cluster.update-strategy": "give-way"}


@pytest.fixture
def pair_world(new_world: Callable[..., World]) -> World:
    """A table of four files of a row each in one partition, of which two are in a group."""
    made = new_world()
    table = writer.make_table(made.catalog, "db.t", SCHEMA, BY_PART, properties=GIVE_WAY)
    for number in range(4):
        writer.append(table, [row(number, "a")])
    return made


def taken(world: World, optimizer: str) -> list[ScheduledTask]:
    """Both tasks, acknowledged."""
    handed = world.poll(optimizer, 1, 2)
    assert None not in world.optimizing.ack(optimizer, [one.attempt for one in handed])
    return handed


def ids_of(world: World, handed: ScheduledTask) -> list[int]:
    """The ids of the rows of a task's files."""
    paths = {file.data.path for file in decode_cluster_input(handed.work.payload).rewrite.rewritten}
    live = oracle.live_rows_with_positions(world.catalog.load_table("db.t"))
    return sorted(one.record["id"] for one in live if one.path in paths)


def test_what_a_delete_says_of_one_group_tells_nothing_of_the_next(pair_world: World) -> None:
    """The delete is read for the commit of the first group, whose files it does not name; it names one of the second,
    which is ready by the end of that commit."""
    process_id, optimizer = cluster_with(pair_world, Grouping()), clusterer(pair_world)
    first, second = taken(pair_world, optimizer)
    wanted = ids_of(pair_world, second)[0]
    writer.delete_where(pair_world.catalog.load_table("db.t"), lambda item: item["id"] == wanted, with_bounds=False)
    before = pair_world.rows()
    assert pair_world.optimizing.complete(optimizer, first.attempt, unsorted(first))

    def send(self: IcebergTable, payload: bytes) -> None:
        if pair_world.tasks(process_id)[1].status is not TaskStatus.SUCCESS:
            assert pair_world.optimizing.complete(optimizer, second.attempt, unsorted(second))
        SEND(self, payload)

    pair_world.iceberg.table(send=send)
    assert pair_world.committing.commit(process_id) is ProcessStatus.PARTIAL
    oracle.assert_same_rows(before, pair_world.rows())


def test_a_result_that_claims_to_tell_where_rows_went_is_not_believed(pair_world: World) -> None:
    """A map of positions says which rows are missing, not in which order the others stand."""
    process_id, optimizer = cluster_with(pair_world, Grouping()), clusterer(pair_world)
    handed = taken(pair_world, optimizer)
    assert not any(decode_cluster_input(one.work.payload).rewrite.tells_left_out for one in handed)
    wanted = ids_of(pair_world, handed[0])[0]
    writer.delete_where(pair_world.catalog.load_table("db.t"), lambda item: item["id"] == wanted)
    before = pair_world.rows()
    for one in handed:
        made = decode_cluster_output(unsorted(one).payload)
        claim = replace(made, rewrite=replace(made.rewrite, position_map=PositionMap("", 0, ())))
        assert pair_world.optimizing.complete(optimizer, one.attempt, WorkResult(CLUSTER, encode_cluster_output(claim)))
    assert pair_world.committing.commit(process_id) is ProcessStatus.PARTIAL
    process = pair_world.process(process_id)
    assert "the outputs hold the rows in another order" in process.failure
    oracle.assert_same_rows(before, pair_world.rows())


# Taking back clustering, which commits several times: every group as one more snapshot, or nothing at all


Step = Callable[[Table], object]


@pytest.fixture
def parts_world(new_world: Callable[..., World]) -> World:
    made = new_world()
    table = writer.make_table(made.catalog, "db.t", SCHEMA, BY_PART)
    for number in range(4):
        writer.append(table, [row(number, "a"), row(number + 100, "b"), row(number + 10, "a"), row(number + 110, "b")])
    writer.upsert(table, [row(1, "a", "new"), row(101, "b", "new")], ["id"])
    writer.delete_where(table, lambda item: item["id"] == 2)
    return made


def table_of(world: World) -> Table:
    return world.catalog.load_table("db.t")


def clustered(world: World, between: Step = lambda table: None) -> str:
    """A process whose first two groups are committed, then something else happens, then the other groups."""
    process_id = cluster_with(world, Grouping())
    optimizer = clusterer(world)
    assert work_on(world, process_id, optimizer, 2) == 2
    between(table_of(world))
    assert work_on(world, process_id, optimizer) > 0
    process = world.process(process_id)
    assert process.status is ProcessStatus.SUCCESS, process.failure
    return process_id


BETWEEN: dict[str, Step] = {
    "nothing": lambda table: None,
    "rows were appended": lambda table: writer.append(table, [row(50, "a"), row(51, "c")]),
    "other rows were upserted": lambda table: writer.upsert(table, [row(60, "a"), row(160, "b")], ["id"]),
    "rows of groups were upserted": lambda table: writer.upsert(
        table, [*(row(number, "a", "newest") for number in (0, 3, 13)), row(112, "b", "newest")], ["id"]
    ),
}


@pytest.mark.parametrize(("between", "since"), sample([*product(BETWEEN, BETWEEN)], every=9))
def test_what_others_committed_between_the_groups_and_since_stays(parts_world: World, between: str, since: str) -> None:
    process_id = clustered(parts_world, BETWEEN[between])
    BETWEEN[since](table_of(parts_world))
    rows = oracle.live_rows(table_of(parts_world))
    undo(parts_world, process_id)
    assert oracle.live_rows(table_of(parts_world)) == rows


def test_a_row_of_one_group_deleted_by_position_keeps_all_as_they_are(parts_world: World) -> None:
    process_id = clustered(parts_world)
    writer.delete_where(table_of(parts_world), lambda item: item["id"] == 113)
    files = files_of(table_of(parts_world))
    with pytest.raises(CannotUndo, match=r"the position delete .* came since and may apply to"):
        parts_world.maintaining.undo(process_id)
    assert files_of(table_of(parts_world)) == files


def test_a_snapshot_of_a_later_group_that_has_expired_refuses_the_whole(parts_world: World) -> None:
    process_id = clustered(parts_world)
    table = table_of(parts_world)
    writer.append(table, [row(90, "c")])
    ours = [
        one.snapshot_id
        for one in table.metadata.snapshots
        if one.summary is not None and one.summary.get("amoro.process-id") == process_id
    ]
    table.maintenance.expire_snapshots().by_id(ours[-1]).commit()
    with pytest.raises(CannotUndo, match=f"its snapshot {ours[-1]} has expired"):
        parts_world.maintaining.undo(process_id)
