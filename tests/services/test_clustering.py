"""Clustering in the engine: plans that wait, files in one plan only, commits group by group, groups that give way."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from amoro_core.actions.clustering import Cluster
from amoro_core.actions.rewriting import Rewriting
from amoro_core.admin.context import Call, milliseconds
from amoro_core.admin.tables import get_table, list_tables
from amoro_core.errors import (
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
from amoro_core.model.processes import CommitOutcome, ProcessStatus, TaskStatus
from amoro_core.model.tables import BlockedOperation, Blocker, OptimizingType, parse_table
from amoro_core.protocol import admin_pb2 as admin_pb
from amoro_core.services.task_lifecycle import Failure
from amoro_core.store import actions, processes, table_stats
from amoro_core.transactions.process_context import read_context
from amoro_core.transactions.store_plan import EVALUATION
from tests.engine import oracle, writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.services.clustered import (
    BY_ID,
    Grouping,
    cluster_with,
    clusterer,
    commit_due,
    plan_groups_with,
    summary_of,
    unsorted,
    with_property,
    work_on,
)
from tests.services.world import World
from tests.tiers import sample

NOTHING_ELSE = {"self-optimizing.cluster.partial-progress": "false"}
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
    table = writer.make_table(made.catalog, "db.t", SCHEMA, BY_PART)
    for number in range(6):
        writer.append(table, [row(number, "a"), row(number + 100, "b")])
    return made


def attempts(world: World, process_id: str) -> list[tuple[CommitOutcome, tuple[int, ...]]]:
    return [(one.outcome, one.groups) for one in world.commits(process_id)]


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
    assert [groups for _, groups in attempts(world, process_id)] == [(), (1,), (2,), (3,), (4,), (5,), (6,)]
    metadata = world.catalog.load_table("db.t").metadata
    assert [one.order_id for one in metadata.sort_orders if one.fields] == [1]
    assert metadata.default_sort_order_id == 0
    assert sort_orders(world) == {1}


def sort_orders(world: World) -> set[int | None]:
    """What the live data files say of their order."""
    table: Any = world.tables_of.open(parse_table("cat.db.t"))
    return {file.data.sort_order_id for file in table.scan().files}


def test_one_commit_for_the_plan_where_partial_progress_is_off(world: World) -> None:
    with_property(world, NOTHING_ELSE)
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
    def shown() -> admin_pb.Table:
        return get_table(world.services, admin_pb.GetTableRequest(table="cat.db.t", known_only=True), CALL)

    def listed() -> list[str]:
        answer = list_tables(world.services, admin_pb.ListTablesRequest(state="failing"), CALL)
        return [one.table for one in answer.tables]

    with_property(world, {**NOTHING_ELSE, "self-optimizing.execute.num-retries": "0"})
    world.refresh()
    optimizer = clusterer(world)
    failed_ms = milliseconds(world.now)
    for number in range(2 * times):
        if number == times:
            world.tables.set_enabled(world.table().identifier, True)
            assert (shown().failures, listed()) == (0, [])
        elif number % times:
            assert (shown().failures, listed()) == (0, [])
        process_id = cluster_with(world, Grouping())
        assert world.complete(optimizer, world.take(optimizer).attempt, Failure(code, "a.parquet is not there"))
        assert world.status(process_id) is ProcessStatus.FAILED
        failed_ms = failed_ms if number < times else milliseconds(world.now)
        world.later(60)
    table = shown()
    assert (table.state, table.failure_code, table.failures, listed()) == ("failing", code, times, ["cat.db.t"])
    assert table.status_reason.startswith("cluster fails: ")
    assert f"[{code}] task 1 failed 1 time; last: a.parquet is not there" in table.failure
    assert (table.failing_since_ms, table.retry_at_ms > 0) == (failed_ms - (times - 1) * 60_000, times == 1)
    world.refresh()
    assert listed() == ["cat.db.t"]
    work_on(world, cluster_with(world, Grouping()), optimizer)
    assert (shown().failures, listed()) == (0, [])


def test_no_more_commits_than_the_property_allows(world: World) -> None:
    with_property(world, {"self-optimizing.cluster.partial-progress.max-commits": "2"})
    process_id = cluster_with(world, Grouping())
    work_on(world, process_id, clusterer(world))
    assert [groups for _, groups in attempts(world, process_id)] == [(), (1, 2, 3), (4, 5, 6)]
    assert world.status(process_id) is ProcessStatus.SUCCESS


def test_a_group_whose_rows_others_deleted_gives_way_and_the_others_are_committed(world: World) -> None:
    with_property(world, {"self-optimizing.cluster.update-strategy": "give-way"})
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


def test_a_group_whose_file_left_the_head_is_cancelled_at_the_next_look(world: World) -> None:
    process_id = cluster_with(world, Grouping())
    gone = sorted(live_paths(world))[0]
    writer.remove_files(world.catalog.load_table("db.t"), [gone])
    before = world.rows()
    world.starting.check_files(world.table().table_id)
    cancelled = [task for task in world.tasks(process_id) if task.status is TaskStatus.CANCELED]
    assert len(cancelled) == 1
    assert cancelled[0].failure.startswith(f"{gone} is no longer live: snapshot {world.table_head()} (")
    assert work_on(world, process_id, clusterer(world)) == 5
    process = world.process(process_id)
    assert process.status is ProcessStatus.PARTIAL
    assert process.failure_code == CommitConflict.code
    oracle.assert_same_rows(before, world.rows())


def test_a_process_all_of_whose_groups_are_gone_fails_as_a_conflict(world: World) -> None:
    process_id = cluster_with(world, Grouping())
    writer.remove_files(world.catalog.load_table("db.t"), live_paths(world))
    world.starting.check_files(world.table().table_id)
    process = world.process(process_id)
    assert (process.status, process.failure_code) == (ProcessStatus.FAILED, CommitConflict.code)


def test_cancelled_after_some_commits_it_ends_partly_with_what_it_has_committed(world: World) -> None:
    before = world.rows()
    process_id = cluster_with(world, Grouping())
    work_on(world, process_id, clusterer(world), 2)
    process = world.optimizing.cancel(process_id, "by hand").process
    assert process.status is ProcessStatus.PARTIAL
    assert process.failure.startswith("by hand")
    assert process.receipt.data_files_after == 2
    assert {one.name: one.value for one in process.receipt.more}["groups_dropped"] == 4
    oracle.assert_same_rows(before, world.rows())
    assert {task.status for task in world.tasks(process_id)} == {TaskStatus.SUCCESS, TaskStatus.CANCELED}


# Commits whose end is not known


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
    assert sent[0] > which
    world.restart()
    optimizer = clusterer(world)
    for _ in range(2):
        commit_due(world, process_id)
        work_on(world, process_id, optimizer)
    assert world.status(process_id) is ProcessStatus.SUCCESS
    assert world.snapshots_of(process_id) == 6
    done = [groups for outcome, groups in attempts(world, process_id) if outcome is CommitOutcome.DONE]
    assert done == [(), (1,), (2,), (3,), (4,), (5,), (6,)]
    oracle.assert_same_rows(before, world.rows())


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


def test_a_plan_that_waits_offers_no_task_and_holds_no_lane(world: World) -> None:
    process_id = cluster_with(world, Grouping(), SCHEDULED)
    assert world.status(process_id) is ProcessStatus.REQUESTED
    assert world.poll(clusterer(world)) == []
    assert world.optimizing.list_committing() == []
    world.store.read(lambda db: processes.find_active(db, world.table().table_id, "layout"))
    started = world.starting.start(process_id[:12])
    assert started.status is ProcessStatus.RUNNING
    before = world.rows()
    work_on(world, process_id, clusterer(world))
    assert world.status(process_id) is ProcessStatus.SUCCESS
    oracle.assert_same_rows(before, world.rows())


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
    with_property(world, {"self-optimizing.cluster.plan-ttl": "2h"})
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


def test_a_blocker_keeps_a_plan_from_being_made_and_from_being_started(world: World) -> None:
    process_id = cluster_with(world, Grouping(most=2), SCHEDULED)
    world.blockers.block(world.table().table_id, frozenset({BlockedOperation.OPTIMIZE}), reason="a load")
    with pytest.raises(TableBlocked):
        world.starting.start(process_id)
    with pytest.raises(TableBlocked):
        cluster_with(world, Grouping(), SCHEDULED)


def test_expiry_keeps_the_base_of_a_plan_that_waits(world: World) -> None:
    process_id = cluster_with(world, Grouping(), SCHEDULED)
    base = world.process(process_id).snapshot_id
    needed = world.pinned(world.table().table_id)
    assert base in needed.reasons
    assert set(inputs_of(world, process_id)) <= needed.paths
    # Everything else of the table is replaced and expired: what the plan reads stays.
    writer.append(world.catalog.load_table("db.t"), [row(500, "a")])
    with_property(world, {"history.expire.max-snapshot-age-ms": "1", "history.expire.min-snapshots-to-keep": "1"})
    world.now = datetime.now(UTC) + timedelta(days=2)
    world.run("expire-snapshots")
    assert base in {one.snapshot_id for one in world.catalog.load_table("db.t").metadata.snapshots}
    assert all(Path(path.removeprefix("file://")).exists() for path in inputs_of(world, process_id))


# By the clock


def due(world: World) -> list[str]:
    world.tables.refresh(world.table().table_id)
    return [name for _, name, _ in world.maintaining.list_due()]


def test_the_clock_clusters_only_where_it_is_switched_on_and_the_table_is_optimized(world: World) -> None:
    world.table()
    assert CLUSTER not in due(world)
    with_property(world, {"self-optimizing.cluster.enabled": "true"})
    assert CLUSTER not in due(world)
    with_property(world, {"self-optimizing.enabled": "true"})
    assert CLUSTER in due(world)
    begun = world.maintaining.begin(world.table().table_id, CLUSTER, trigger=EVALUATION)
    assert world.status(begun.process_id) is ProcessStatus.RUNNING


def test_in_the_mode_scheduled_the_clock_makes_one_plan_and_starts_none(world: World, grouping: Grouping) -> None:
    grouping.most = 1
    switched = {"self-optimizing.enabled": "true", "self-optimizing.cluster.enabled": "true"}
    with_property(world, {**switched, "self-optimizing.cluster.mode": "scheduled"})
    world.table()
    assert CLUSTER in due(world)
    begun = world.maintaining.begin(world.table().table_id, CLUSTER, trigger=EVALUATION)
    assert world.status(begun.process_id) is ProcessStatus.REQUESTED
    assert world.starting.start_due() == []
    again = world.maintaining.begin(world.table().table_id, CLUSTER, trigger=EVALUATION)
    assert (again.process_id, f"amoro process start {begun.process_id}" in again.reason) == ("", True)


def test_writers_that_ask_are_refused_until_the_process_ends_where_the_table_says_so(world: World) -> None:
    with_property(world, {"self-optimizing.cluster.update-strategy": "reject"})
    writing, table_id = frozenset({BlockedOperation.BATCH_WRITE}), world.table().table_id
    process_id = cluster_with(world, Grouping(), SCHEDULED)
    held = world.blockers.block(table_id, writing, reason="a load").blocker
    with pytest.raises(TableBlocked, match="a load"):
        world.starting.start(process_id)
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


@pytest.mark.parametrize("ends", ["cancelled", "failed"])
def test_the_announcement_ends_with_the_process_however_it_ends(world: World, ends: str) -> None:
    with_property(world, {"self-optimizing.cluster.update-strategy": "reject"})
    process_id = cluster_with(world, Grouping())
    if ends == "cancelled":
        world.optimizing.cancel(process_id, "by hand")
    else:
        writer.remove_files(world.catalog.load_table("db.t"), live_paths(world))
        world.starting.check_files(world.table().table_id)
    assert not world.process(process_id).is_active
    world.blockers.block(world.table().table_id, frozenset({BlockedOperation.BATCH_WRITE}))


def test_the_announcement_lasts_as_long_as_the_process(world: World) -> None:
    with_property(world, {"self-optimizing.cluster.update-strategy": "reject"})
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
