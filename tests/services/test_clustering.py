"""Clustering in the engine: plans that wait, files in one plan only, commits group by group, groups that give way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from amoro_core.actions.clustering import Cluster
from amoro_core.actions.rewriting import Rewriting
from amoro_core.admin.context import Call, milliseconds
from amoro_core.admin.tables import get_table, list_tables
from amoro_core.errors import (
    CannotUndo,
    CommitConflict,
    CommitRefused,
    CommitUnknown,
    DataFileMissing,
    IllegalState,
    TableBlocked,
    TableBusy,
    WorkFailed,
)
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.model.clustering import CLUSTER, ClusterOptions
from amoro_core.model.principals import Principal, Role
from amoro_core.model.processes import CommitOutcome, ProcessStatus, TaskId, TaskStatus
from amoro_core.model.tables import BlockedOperation, Blocker, OptimizingType, parse_table
from amoro_core.model.task_payload import PositionMap, WorkResult
from amoro_core.planning.clustering.model import ClusterFacts, ClusteringConfig, ClusterRequest, ClusterVerdict
from amoro_core.protocol import admin_pb2 as admin_pb
from amoro_core.protocol.codec import decode_cluster_input, decode_cluster_output, encode_cluster_output
from amoro_core.services.task_lifecycle import Failure, ScheduledTask
from amoro_core.store import actions, processes, table_stats, tasks
from amoro_core.transactions.process_context import read_context
from amoro_core.transactions.store_plan import EVALUATION
from tests.engine import oracle, writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.parquet_rows import local_path
from tests.services.clustered import (
    BY_ID,
    Grouping,
    cluster_with,
    clusterer,
    commit_due,
    plan_groups_with,
    summary_of,
    unsorted,
    work_on,
)
from tests.services.rigs import dying_at
from tests.services.test_undoing import files_of, undo
from tests.services.world import World, make_small_files, make_two_partitions
from tests.tiers import sample

SCHEDULED = ClusterOptions(schedule_only=True)
CALL = Call(Principal("admin", Role.ADMIN))


@pytest.fixture
def grouping(monkeypatch: pytest.MonkeyPatch) -> Grouping:
    made = Grouping()
    plan_groups_with(monkeypatch, made)
    return made


@pytest.fixture
def world(new_world: Callable[..., World], grouping: Grouping) -> World:
    made = new_world()
    make_two_partitions(made.catalog, count=6)
    return made


def live_paths(world: World) -> set[str]:
    return {file.path for file in oracle.live_files(world.catalog.load_table("db.t"))}


def test_groups_are_committed_as_they_end_and_the_receipt_tells_of_all(world: World) -> None:
    before = world.rows()
    process_id = cluster_with(world, Grouping())
    assert (world.status(process_id), world.table().last_optimized_at) == (ProcessStatus.RUNNING, None)
    optimizer = clusterer(world)
    assert work_on(world, process_id, optimizer, 2) == 2
    assert world.status(process_id) is ProcessStatus.RUNNING
    assert world.snapshots_of(process_id) == 2
    oracle.assert_same_rows(before, world.rows())
    assert work_on(world, process_id, optimizer) == 4
    process = world.process(process_id)
    assert (process.status, process.failure) == (ProcessStatus.SUCCESS, "")
    assert world.table().last_optimized_at == world.now
    oracle.assert_same_rows(before, world.rows())
    receipt = process.receipt
    assert (receipt.data_files_before, receipt.data_files_after) == (12, 6)
    assert (receipt.rows_before, receipt.rows_after) == (12, 12)
    figures = {one.name: one.value for one in receipt.more}
    assert (figures["groups_committed"], figures["commits"], figures["cpu_ms"]) == (6, 6, 6 * 12)
    # The first change was the sort order, which is nobody's default.
    assert [one.groups for one in world.commits(process_id)] == [(), (1,), (2,), (3,), (4,), (5,), (6,)]
    metadata = world.catalog.load_table("db.t").metadata
    assert [one.order_id for one in metadata.sort_orders if one.fields] == [1]
    assert metadata.default_sort_order_id == 0
    assert sort_orders(world) == {1}


def sort_orders(world: World) -> set[int | None]:
    """What the live data files say of their order."""
    table: Any = world.tables_of.open(parse_table("cat.db.t"))
    return {file.data.sort_order_id for file in table.scan().files}


def test_one_commit_for_the_plan_where_partial_progress_is_off(world: World) -> None:
    world.set_properties({"self-optimizing.cluster.partial-progress": "false"})
    process_id = cluster_with(world, Grouping())
    optimizer = clusterer(world)
    assert work_on(world, process_id, optimizer, 5) == 5
    assert world.snapshots_of(process_id) == 0
    work_on(world, process_id, optimizer)
    assert world.status(process_id) is ProcessStatus.SUCCESS
    assert (world.snapshots_of(process_id), len(live_paths(world))) == (1, 6)
    said = summary_of(world)
    assert said["amoro.process-id"] == process_id
    assert said["amoro.optimizing-type"] == CLUSTER
    assert len(str(said["amoro.cluster-groups"]).split(",")) == 6
    assert (said["amoro.cluster-depths-before"], said["amoro.cluster-depths-after"]) == ({"1": 2.0}, {"1": 1.0})
    uuid = world.process(process_id).table_uuid
    known = world.store.read(lambda db: table_stats.list_cluster_groups(db, world.table().table_id, uuid))
    assert {one.layout for one in known.values()} == {BY_ID}
    assert len(known) == 6


@pytest.mark.parametrize(("code", "times"), [(DataFileMissing.code, 1), (WorkFailed.code, 3)])
def test_a_table_whose_clustering_keeps_failing_is_failing_until_it_is_enabled_or_clustered(
    world: World, code: str, times: int
) -> None:
    def shown() -> tuple[admin_pb.Table, bool]:
        """The table, and whether the failing ones are listed with it."""
        found = list_tables(world.services, admin_pb.ListTablesRequest(state="failing"), CALL).tables
        request = admin_pb.GetTableRequest(table="cat.db.t", known_only=True)
        return get_table(world.services, request, CALL), [one.table for one in found] == ["cat.db.t"]

    all_at_once = {"self-optimizing.cluster.partial-progress": "false"}
    world.refresh_with({**all_at_once, "self-optimizing.execute.num-retries": "0"})
    optimizer = clusterer(world)
    for _ in range(2):
        table, is_listed = shown()
        assert (table.failures, is_listed) == (0, False)
        failed_ms = milliseconds(world.now)
        for _ in range(times):
            assert not shown()[1]
            cluster_with(world, Grouping())
            assert world.complete(optimizer, world.take(optimizer).attempt, Failure(code, "a.parquet is not there"))
            world.later(60)
        table, is_listed = shown()
        assert (table.state, table.failure_code, table.failures, is_listed) == ("failing", code, times, True)
        assert table.status_reason.startswith("cluster fails: ")
        assert f"[{code}] task 1 failed 1 time; last: a.parquet is not there" in table.failure
        assert (table.failing_since_ms, table.retry_at_ms > 0) == (failed_ms, times == 1)
        world.refresh()
        assert shown()[1]
        world.tables.set_enabled(world.table().identifier, True)
    cluster_with(world, Grouping())
    assert world.complete(optimizer, world.take(optimizer).attempt, Failure(code, "a.parquet is not there"))
    work_on(world, cluster_with(world, Grouping()), optimizer)
    table, is_listed = shown()
    assert (table.failures, is_listed) == (0, False)


def test_no_more_commits_than_the_property_allows(world: World) -> None:
    world.set_properties({"self-optimizing.cluster.partial-progress.max-commits": "2"})
    process_id = cluster_with(world, Grouping())
    work_on(world, process_id, clusterer(world))
    assert [one.groups for one in world.commits(process_id)] == [(), (1, 2, 3), (4, 5, 6)]
    assert world.status(process_id) is ProcessStatus.SUCCESS


def test_a_group_whose_rows_others_deleted_gives_way_and_the_others_are_committed(world: World) -> None:
    world.set_properties({"self-optimizing.cluster.update-strategy": "give-way"})
    process_id = cluster_with(world, Grouping())
    optimizer = clusterer(world)
    table = world.catalog.load_table("db.t")
    writer.delete_where(table, lambda item: item["id"] == 0)
    before = world.rows()
    work_on(world, process_id, optimizer)
    process = world.process(process_id)
    assert process.status is ProcessStatus.PARTIAL
    assert "1 of 6 groups not committed" in process.failure
    assert process.receipt.data_files_after == 5
    oracle.assert_same_rows(before, world.rows())
    world.clearing.clean_up(process_id)
    root = Path(world.catalog.load_table("db.t").location().removeprefix("file://")) / "data"
    outputs = list(root.rglob(f"{process_id}-*.parquet"))
    assert len(outputs) == 5


def test_a_process_all_of_whose_groups_are_gone_fails_as_a_conflict(world: World) -> None:
    world.set_properties({"self-optimizing.cluster.update-strategy": "reject"})
    process_id = cluster_with(world, Grouping())
    writer.remove_files(world.catalog.load_table("db.t"), live_paths(world))
    world.starting.check_files(world.table().table_id)
    process = world.process(process_id)
    assert (process.status, process.failure_code) == (ProcessStatus.FAILED, CommitConflict.code)
    assert blockers_of(world) == [], "its announcement has ended with it"


def test_cancelled_after_some_commits_it_ends_partly_with_what_it_has_committed(world: World) -> None:
    world.set_properties({"self-optimizing.cluster.update-strategy": "reject"})
    before = world.rows()
    process_id = cluster_with(world, Grouping())
    work_on(world, process_id, clusterer(world), 2)
    assert len(blockers_of(world)) == 1
    process = world.optimizing.cancel(process_id, "by hand").process
    assert blockers_of(world) == []
    assert process.status is ProcessStatus.PARTIAL
    assert process.failure.startswith("by hand")
    assert process.receipt.data_files_after == 2
    assert {one.name: one.value for one in process.receipt.more}["groups_dropped"] == 4
    oracle.assert_same_rows(before, world.rows())
    assert {task.status for task in world.tasks(process_id)} == {TaskStatus.SUCCESS, TaskStatus.CANCELED}


def test_a_catalog_that_takes_no_sort_orders_gets_files_without(world: World) -> None:
    process_id = cluster_with(world, Grouping())
    send = IcebergTable.send

    def refuse(self: IcebergTable, payload: bytes) -> None:
        if b"add-sort-order" in payload:
            raise CommitRefused("400: unknown update")
        send(self, payload)

    world.iceberg.table(send=refuse)
    work_on(world, process_id, clusterer(world))
    assert world.status(process_id) is ProcessStatus.SUCCESS
    assert sort_orders(world) == {0}


# Plans that wait


def inputs_of(world: World, process_id: str) -> tuple[str, ...]:
    return Cluster().inputs(world.store.read(lambda db: read_context(db, process_id)))


def test_a_plan_whose_file_was_taken_while_it_was_made_is_not_stored(world: World, grouping: Grouping) -> None:
    made: list[str] = []
    plain = grouping.__call__

    def meanwhile(*given: object) -> object:
        answer = plain(*given)
        if not made:
            made.append("")
            made[0] = cluster_with(world, grouping, SCHEDULED)
        return answer

    with pytest.MonkeyPatch.context() as patch:
        plan_groups_with(patch, meanwhile)
        with pytest.raises(TableBusy, match="another plan now has 12 files of this one"):
            cluster_with(world, grouping, SCHEDULED)
    assert [one.process_id for one in world.store.read(processes.list_active)] == made


def test_minor_plans_around_files_of_a_plan_and_says_so(world: World, grouping: Grouping) -> None:
    grouping.most = 2
    process_id = cluster_with(world, grouping, SCHEDULED)
    begun = world.planning.begin(world.table().table_id, trigger="request", requested=OptimizingType.FULL)
    assert begun.process_id is not None
    assert f"4 files are left to process {process_id} (cluster, requested)" in begun.evaluation.reason
    taken = set(inputs_of(world, process_id))
    case = world.store.read(lambda db: read_context(db, begun.process_id or ""))
    assert taken.isdisjoint(Rewriting().inputs(case))
    assert cluster_with(world, Grouping()) == "", "nor does clustering take what it has"
    before = world.rows()
    optimizer = clusterer(world)
    world.run_all(begun.process_id, world.optimizer())
    assert world.committing.commit(begun.process_id) is ProcessStatus.SUCCESS
    world.starting.start(process_id)
    work_on(world, process_id, optimizer)
    assert world.status(process_id) is ProcessStatus.SUCCESS
    oracle.assert_same_rows(before, world.rows())


def test_a_plan_that_nobody_starts_is_closed_after_its_time_and_its_files_are_free(world: World) -> None:
    world.set_properties({"self-optimizing.cluster.plan-ttl": "2h"})
    process_id = cluster_with(world, Grouping(), SCHEDULED)
    world.later(timedelta(hours=2).total_seconds() - 1)
    assert world.starting.close_expired() == []
    world.later(1)
    assert world.starting.close_expired() == [process_id]
    process = world.process(process_id)
    assert process.status is ProcessStatus.CLOSED
    assert process.failure.startswith("nobody started it within self-optimizing.cluster.plan-ttl")
    with pytest.raises(IllegalState, match="is closed: nobody started it") as raised:
        world.starting.start(process_id)
    assert raised.value.hint == "Plan anew: amoro optimize TABLE --type cluster"
    assert cluster_with(world, Grouping(), SCHEDULED) != ""


def test_a_plan_one_of_whose_files_is_gone_is_closed_and_not_started(world: World) -> None:
    process_id = cluster_with(world, Grouping(), SCHEDULED)
    writer.remove_files(world.catalog.load_table("db.t"), [sorted(live_paths(world))[0]])
    with pytest.raises(CommitConflict, match=r"was closed: .* is no longer live"):
        world.starting.start(process_id)
    assert world.status(process_id) is ProcessStatus.CLOSED


def test_two_processes_do_not_run_beside_each_other_and_the_second_is_started_later(
    world: World, grouping: Grouping
) -> None:
    grouping.most = 2
    second = cluster_with(world, grouping, SCHEDULED)
    first = cluster_with(world, grouping)
    with pytest.raises(TableBusy, match=f"process {first} "):
        world.starting.start(second)
    assert world.status(second) is ProcessStatus.REQUESTED
    work_on(world, first, clusterer(world))
    assert world.starting.start(second).status is ProcessStatus.RUNNING
    with pytest.raises(IllegalState, match="has begun already: it is running"):
        world.starting.start(second)


def test_expiry_keeps_the_base_of_a_plan_that_waits(world: World) -> None:
    process_id = cluster_with(world, Grouping(), SCHEDULED)
    base = world.process(process_id).snapshot_id
    needed = world.pinned(world.table().table_id)
    assert base in needed.reasons
    assert set(inputs_of(world, process_id)) <= needed.paths
    # Everything else of the table is replaced and expired: what the plan reads stays.
    writer.append(world.catalog.load_table("db.t"), [row(500, "a")])
    world.set_properties({"history.expire.max-snapshot-age-ms": "1", "history.expire.min-snapshots-to-keep": "1"})
    world.now = datetime.now(UTC) + timedelta(days=2)
    world.run("expire-snapshots")
    assert base in {one.snapshot_id for one in world.catalog.load_table("db.t").metadata.snapshots}
    assert all(Path(path.removeprefix("file://")).exists() for path in inputs_of(world, process_id))


# By the clock


def test_the_clock_clusters_only_where_it_is_switched_on_and_only_plans_in_the_mode_scheduled(
    world: World, grouping: Grouping
) -> None:
    def due() -> bool:
        world.refresh()
        return any(name == CLUSTER for _, name, _ in world.maintaining.list_due())

    grouping.most = 1
    assert not due()
    world.set_properties({"self-optimizing.cluster.enabled": "true"})
    assert not due()
    world.set_properties({"self-optimizing.enabled": "true"})
    assert due()
    begun = world.maintaining.begin(world.table().table_id, CLUSTER, trigger=EVALUATION)
    assert world.status(begun.process_id) is ProcessStatus.RUNNING
    world.optimizing.cancel(begun.process_id, "by hand")
    world.later(timedelta(days=1).total_seconds())
    world.set_properties({"self-optimizing.cluster.mode": "scheduled"})
    assert due()
    begun = world.maintaining.begin(world.table().table_id, CLUSTER, trigger=EVALUATION)
    assert world.status(begun.process_id) is ProcessStatus.REQUESTED
    assert world.starting.start_due() == []
    again = world.maintaining.begin(world.table().table_id, CLUSTER, trigger=EVALUATION)
    assert (again.process_id, f"amoro process start {begun.process_id}" in again.reason) == ("", True)


def test_writers_that_ask_are_refused_until_the_process_ends_where_the_table_says_so(world: World) -> None:
    world.set_properties({"self-optimizing.cluster.update-strategy": "reject"})
    writing, table_id = frozenset({BlockedOperation.BATCH_WRITE}), world.table().table_id
    process_id = cluster_with(world, Grouping(), SCHEDULED)
    held = world.blockers.block(table_id, writing, reason="a load").blocker
    with pytest.raises(TableBlocked, match="a load"):
        world.starting.start(process_id)
    world.blockers.release(held.blocker_id)
    held = world.blockers.block(table_id, frozenset({BlockedOperation.OPTIMIZE})).blocker
    for begin in (lambda: world.starting.start(process_id), lambda: cluster_with(world, Grouping(), SCHEDULED)):
        with pytest.raises(TableBlocked):
            begin()
    world.blockers.release(held.blocker_id)
    world.starting.start(process_id)
    with pytest.raises(TableBlocked, match=f"process {process_id} orders rows"):
        world.blockers.block(table_id, writing)
    # Who does not ask is not stopped: the group gives way.
    writer.delete_where(world.catalog.load_table("db.t"), lambda item: item["id"] == 0)
    before = world.rows()
    work_on(world, process_id, clusterer(world))
    process = world.process(process_id)
    assert process.status is ProcessStatus.PARTIAL
    assert "the outputs hold the rows in another order" in process.failure
    oracle.assert_same_rows(before, world.rows())
    world.blockers.block(table_id, writing)


def test_the_announcement_lasts_as_long_as_the_process(world: World) -> None:
    world.set_properties({"self-optimizing.cluster.update-strategy": "reject"})
    writing, table_id = frozenset({BlockedOperation.BATCH_WRITE}), world.table().table_id
    process_id = cluster_with(world, Grouping())
    assert world.starting.renew_blockers() == []
    until = blockers_of(world)[0].expires_at
    world.now += timedelta(hours=13)
    assert world.starting.renew_blockers() == []
    (held,) = blockers_of(world)
    assert held.expires_at == until + timedelta(hours=13)
    # A coordinator that was away for longer takes it anew, or finds that somebody else writes.
    world.now += timedelta(days=2)
    assert blockers_of(world) == []
    assert world.starting.renew_blockers() == []
    assert len(blockers_of(world)) == 1
    world.now += timedelta(days=2)
    world.blockers.block(table_id, writing, reason="a load")
    assert world.starting.renew_blockers() == [process_id]
    world.optimizing.cancel(process_id, "by hand")
    assert world.starting.renew_blockers() == []
    assert [one.reason for one in blockers_of(world)] == ["a load"]


def blockers_of(world: World) -> list[Blocker]:
    return world.store.read(lambda db: actions.list_blockers(db, world.now, world.table().table_id))


# Who takes a group


def test_a_result_that_does_not_tell_its_group_is_never_committed(world: World) -> None:
    process_id = cluster_with(world, Grouping())
    optimizer = clusterer(world)
    before = world.rows()
    handed = world.take(optimizer)
    world.optimizing.complete(optimizer, handed.attempt, unsorted(handed, rename=False))
    commit_due(world, process_id)
    process = world.process(process_id)
    assert process.status is ProcessStatus.FAILED
    assert "does not end in -g" in process.failure
    oracle.assert_same_rows(before, world.rows())


# Clustering cut short, taken back, and what it costs its table


@pytest.fixture
def flat_world(new_world: Callable[..., World], grouping: Grouping) -> World:
    """A table without partitions of eight files of a row each."""
    made = new_world()
    make_small_files(made.catalog, 8)
    return made


# Receipts


@pytest.mark.parametrize("partial_progress", ["true", "false"])
def test_a_receipt_counts_groups_that_were_committed_and_dropped(flat_world: World, partial_progress: str) -> None:
    """A group gives way after its work was done, and one before it was begun."""
    gives_way = {"self-optimizing.cluster.update-strategy": "give-way"}
    flat_world.set_properties({**gives_way, "self-optimizing.cluster.partial-progress": partial_progress})
    process_id = cluster_with(flat_world, Grouping())
    optimizer, table = clusterer(flat_world), table_of(flat_world)
    read = flat_world.store.read
    payloads = [read(lambda db, at=at: tasks.read_input(db, TaskId(process_id, at))) for at in (1, 3)]
    first, third = (Cluster().data_files(payload) for payload in payloads)
    touched = next(one.record["id"] for one in oracle.live_rows_with_positions(table) if one.path == first[0])
    writer.delete_where(table, lambda item: item["id"] == touched)
    writer.remove_files(table, third[:1])
    before = oracle.live_rows(table)
    flat_world.starting.check_files(flat_world.table().table_id)
    (cancelled,) = (task for task in flat_world.tasks(process_id) if task.status is TaskStatus.CANCELED)
    assert cancelled.failure.startswith(f"{third[0]} is no longer live: snapshot {flat_world.table_head()} (")
    assert work_on(flat_world, process_id, optimizer) == 3
    process = flat_world.process(process_id)
    assert (process.status, process.failure_code) == (ProcessStatus.PARTIAL, CommitConflict.code)
    figures = {one.name: one.value for one in process.receipt.more if one.unit == "groups"}
    assert (figures["groups_committed"], figures["groups_dropped"]) == (2, 2)
    oracle.assert_same_rows(before, oracle.live_rows(table))


# Quota


def test_cores_are_charged_and_not_the_thread_that_waits_for_them(flat_world: World) -> None:
    """Eight cores for a minute cost eight thread minutes: the other table has its turn so often before."""
    writer.append(writer.make_table(flat_world.catalog, "db.u", SCHEMA), [row(number) for number in range(40)], 40)
    for name in ("cat.db.t", "cat.db.u"):
        assert flat_world.maintaining.begin(flat_world.table(name).table_id, CLUSTER, trigger="request").process_id
    optimizer, heavy, turns = clusterer(flat_world), flat_world.table("cat.db.t").table_id, []
    while turns.count(heavy) < 2 and len(turns) < 20:
        (handed,) = flat_world.poll(optimizer)
        process_id = handed.attempt.task_id.process_id
        turns.append(flat_world.process(process_id).table_id)
        assert flat_world.optimizing.ack(optimizer, [handed.attempt]) != [None]
        flat_world.later(60)
        cores = 8 if turns[-1] == heavy else 1
        flat_world.optimizers.touch(optimizer, 1, {handed.attempt: (1, 1)}, {handed.attempt: cores * 60_000})
        assert flat_world.optimizing.complete(optimizer, handed.attempt, unsorted(handed))
        flat_world.optimizers.touch(optimizer, 1, {})  # it runs no more, and is told of no more
        commit_due(flat_world, process_id)
    first = turns.index(heavy)
    assert first in (0, 1)
    assert len(turns) - first - 2 in (7, 8)


# The window


def test_a_plan_that_was_made_as_the_window_closed_starts_when_it_opens_again(
    flat_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flat_world begins at noon, UTC; planning takes until the window's end."""
    flat_world.set_properties(
        {
            "self-optimizing.enabled": "true",
            "self-optimizing.cluster.enabled": "true",
            "maintenance.window": "11:00-12:30",
        }
    )
    flat_world.table()
    plain = Grouping()

    def slow(facts: ClusterFacts, config: ClusteringConfig, request: ClusterRequest) -> ClusterVerdict:
        flat_world.later(timedelta(minutes=30).total_seconds())
        return plain(facts, config, request)

    plan_groups_with(monkeypatch, slow)
    begun = flat_world.maintaining.begin(flat_world.table().table_id, CLUSTER, trigger=EVALUATION)
    assert flat_world.status(begun.process_id) is ProcessStatus.REQUESTED
    assert flat_world.starting.start_due() == []
    assert flat_world.poll(clusterer(flat_world)) == []
    flat_world.later(timedelta(hours=22, minutes=30).total_seconds() - 1)
    assert (flat_world.starting.start_due(), flat_world.starting.close_expired()) == ([], [])
    flat_world.restart()
    flat_world.later(1)
    assert flat_world.starting.start_due() == [begun.process_id]
    assert flat_world.status(begun.process_id) is ProcessStatus.RUNNING
    assert len(flat_world.poll(clusterer(flat_world))) == 1
    flat_world.optimizing.cancel(begun.process_id, "by hand")
    flat_world.later(timedelta(hours=2).total_seconds())
    late = flat_world.maintaining.begin(flat_world.table().table_id, CLUSTER, trigger=EVALUATION)
    assert (late.process_id, late.due_at.hour, late.due_at.minute) == ("", 11, 0), "the window has closed"
    by_command = cluster_with(flat_world, Grouping())
    assert flat_world.status(by_command) is ProcessStatus.RUNNING


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


@pytest.fixture
def pair_world(new_world: Callable[..., World], grouping: Grouping) -> World:
    """A table of four files of a row each in one partition, of which two are in a group."""
    made = new_world()
    properties = {"self-optimizing.cluster.update-strategy": "give-way"}
    make_small_files(made.catalog, 4, spec=BY_PART, properties=properties)
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
        IcebergTable.send(self, payload)

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


@pytest.fixture
def parts_world(new_world: Callable[..., World], grouping: Grouping) -> World:
    made = new_world()
    table = writer.make_table(made.catalog, "db.t", SCHEMA, BY_PART)
    for number in range(4):
        writer.append(table, [row(number, "a"), row(number + 100, "b"), row(number + 10, "a"), row(number + 110, "b")])
    writer.upsert(table, [row(1, "a", "new"), row(101, "b", "new")], ["id"])
    writer.delete_where(table, lambda item: item["id"] == 2)
    return made


def table_of(world: World) -> Table:
    return world.catalog.load_table("db.t")


def clustered(world: World, between: Callable[[Table], object] = lambda table: None) -> str:
    """A process whose first two groups are committed, then something else happens, then the other groups."""
    process_id = cluster_with(world, Grouping())
    optimizer = clusterer(world)
    assert work_on(world, process_id, optimizer, 2) == 2
    between(table_of(world))
    assert work_on(world, process_id, optimizer) > 0
    process = world.process(process_id)
    assert process.status is ProcessStatus.SUCCESS, process.failure
    return process_id


BETWEEN: dict[str, Callable[[Table], object]] = {
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


@pytest.mark.parametrize(
    ("which", "landed"), sample([(0, True), (0, False), (1, False), (1, True), (2, True), (2, False)], every=2)
)
def test_an_unknown_commit_of_some_groups_is_traced_and_made_once(world: World, landed: bool, which: int) -> None:
    before = world.rows()
    process_id = cluster_with(world, Grouping())
    send, sent = IcebergTable.send, [0]

    def lose(self: IcebergTable, payload: bytes) -> None:
        sent[0] += 1
        if sent[0] - 1 == which:
            if landed:
                send(self, payload)
            raise CommitUnknown("connection reset")
        send(self, payload)

    world.iceberg.table(send=lose)
    optimizer = clusterer(world)
    work_on(world, process_id, optimizer, 2)
    assert (
        world.status(process_id)
        is (ProcessStatus.COMMIT_UNKNOWN if which < 2 and sent[0] == which + 1 else ProcessStatus.RUNNING)
        or which == 2
    )
    world.restart()
    optimizer = clusterer(world)
    commit_due(world, process_id)
    work_on(world, process_id, optimizer)
    commit_due(world, process_id)
    work_on(world, process_id, optimizer)
    assert world.status(process_id) is ProcessStatus.SUCCESS
    assert world.snapshots_of(process_id) == 6
    done = [one.groups for one in world.commits(process_id) if one.outcome is CommitOutcome.DONE]
    assert done == [(), (1,), (2,), (3,), (4,), (5,), (6,)]
    oracle.assert_same_rows(before, world.rows())
