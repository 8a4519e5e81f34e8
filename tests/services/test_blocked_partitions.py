"""Writers that announce the partitions that they write: refused, granted, or given way to, and left alone by plans."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType

from amoro_core.errors import InvalidArgument, TableBlocked, TableBusy
from amoro_core.model.processes import ProcessStatus, TaskStatus
from amoro_core.model.tables import BlockedOperation, OptimizingStatus, OptimizingType
from tests.engine import oracle, writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.services.clustered import Grouping, cluster_with, clusterer, plan_groups_with, work_on
from tests.services.rigs import reaching
from tests.services.world import World

KEY = "self-optimizing.conflict-granularity"
A = "part = 'a'"


def make(world: World, granularity: str = "partition") -> Table:
    """A table of two partitions of three files each."""
    table = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART, properties={KEY: granularity})
    for number in range(3):
        writer.append(table, [row(number, "a"), row(number + 100, "b")])
    return table


def block(world: World, condition: str = A, **more: Any) -> str:
    operations = more.pop("operations", frozenset({BlockedOperation.OPTIMIZE}))
    return world.blockers.block(world.table().table_id, operations, condition=condition, **more).blocker.blocker_id


def files(table: Table) -> Counter[str]:
    """How many live data files each partition has."""
    table.refresh()
    found = (one for one in oracle.live_files(table) if one.content == oracle.DATA)
    return Counter("a" if "part=a" in one.path else "b" for one in found)


def test_a_partition_that_is_rewritten_is_refused_with_the_process_and_another_is_granted(world: World) -> None:
    table = make(world)
    process = world.begin(OptimizingType.MINOR)
    with pytest.raises(TableBusy, match=f"process {process} .minor, running. is active on cat.db.t where part = 'a'"):
        block(world)
    with pytest.raises(TableBusy) as busy:
        block(world, "part IN ('b', 'c')")
    assert busy.value.exit_status == 5
    block(world, "part = 'c'", reason="a load")
    with pytest.raises(TableBlocked, match=r"where part = 'c' until .* \(a load\)"):
        block(world, "part = 'c'")
    world.run_all(process)
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    assert files(table) == {"a": 1, "b": 1}


@pytest.mark.parametrize("done", [False, True])
def test_tasks_give_way_and_the_rest_commits(world: World, done: bool) -> None:
    table = make(world, "file")
    before, process, optimizer = oracle.live_rows(table), world.begin(OptimizingType.MINOR), world.optimizer()
    handed = world.take(optimizer)
    own = next(task for task in world.tasks(process) if task.task_id == handed.attempt.task_id)
    written = world.execute(handed)
    if done:
        world.complete(optimizer, handed.attempt, written)
    blocker = block(world, own.partition.replace("=", " = '") + "'", yields=True, reason="a load")
    # What is reported from now on counts for nothing.
    assert done or not world.complete(optimizer, handed.attempt, written)
    world.run_all(process, optimizer)
    status = {task.partition: task for task in world.tasks(process)}
    assert done or "gives way to a writer (a load)" in status[own.partition].failure
    assert world.committing.commit(process) is ProcessStatus.PARTIAL
    assert sorted(files(table).values()) == [1, 3]
    oracle.assert_same_rows(before, oracle.live_rows(table))
    live = {one.path for one in oracle.live_files(table)}
    assert not live & {file.path for file in written.data_files}
    # The plans after it leave the partition alone, and say why.
    begun = world.planning.begin(world.table().table_id, trigger="request", requested=OptimizingType.FULL)
    assert (begun.process_id, "left to a writer" in begun.evaluation.reason) == (None, True), begun.evaluation.reason
    assert world.refresh().status is OptimizingStatus.IDLE
    world.blockers.release(blocker)
    assert world.optimize(OptimizingType.MINOR) is ProcessStatus.SUCCESS
    assert files(table) == {"a": 1, "b": 1}
    oracle.assert_same_rows(before, oracle.live_rows(table))


def test_where_no_task_is_left_the_process_ends_and_a_committing_one_does_not_give_way(world: World) -> None:
    make(world)
    process = world.begin(OptimizingType.MINOR)
    world.blockers.release(block(world, "part >= 'a'", yields=True))
    assert world.status(process) is ProcessStatus.CLOSED
    process = world.begin_and_run(OptimizingType.MINOR)
    with pytest.raises(TableBusy, match=f"process {process} .minor, committing."):
        block(world, yields=True)
    world.optimizing.cancel(process, "by hand")
    process = world.begin(OptimizingType.MINOR)
    world.blockers.block(world.table().table_id, frozenset({BlockedOperation.OPTIMIZE}), yields=True)
    assert world.status(process) is ProcessStatus.CLOSED
    assert world.blockers.blocked_from(BlockedOperation.OPTIMIZE) == {world.table().table_id}


@pytest.mark.parametrize("granularity", ["file", "table"])
def test_by_file_nothing_hinders_a_writer_and_by_table_anything_does(world: World, granularity: str) -> None:
    table = make(world, granularity)
    process = world.begin(OptimizingType.MINOR)
    if granularity == "table":
        with pytest.raises(TableBusy):
            block(world, "part = 'c'")
        block(world, "part = 'c'", yields=True)
        assert world.status(process) is ProcessStatus.CLOSED
        with pytest.raises(TableBlocked):
            world.begin(OptimizingType.MINOR)
        return
    block(world)
    block(world, "part = 'b'")
    with pytest.raises(TableBlocked):
        block(world, "part >= 'b'")
    world.run_all(process)
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    assert files(table) == {"a": 1, "b": 1}


def test_a_blocker_taken_while_a_plan_is_made_makes_the_plan_lose(world: World) -> None:
    table, taken = make(world, "file"), list[str]()

    def meanwhile(name: str) -> None:
        if name == "plan.before_store" and not taken:
            taken.append(block(world))

    with reaching(meanwhile), pytest.raises(TableBusy, match="while this was planned the table was blocked"):
        world.begin(OptimizingType.MINOR)
    assert world.table().status is OptimizingStatus.IDLE
    assert world.optimize(OptimizingType.MINOR) is ProcessStatus.SUCCESS
    assert files(table) == {"a": 3, "b": 1}
    # When it has expired, what it held is due again without another commit.
    world.later(60)
    assert world.blockers.trim() == 1
    assert world.table().refresh_at is None
    assert world.optimize(OptimizingType.MINOR) is ProcessStatus.SUCCESS
    assert files(table) == {"a": 1, "b": 1}


def test_of_blockers_and_plans_that_race_none_has_what_the_other_has(world: World) -> None:
    make(world)
    table_id = world.table().table_id

    def tried(start: Barrier, act: Any) -> Any:
        start.wait()
        try:
            return act()
        except TableBusy:
            return None

    def plan() -> str | None:
        return world.planning.begin(table_id, trigger="request", requested=OptimizingType.MINOR).process_id

    with ThreadPoolExecutor(2) as pool:
        for turn in range(12):
            start = Barrier(2)
            planned = pool.submit(tried, start, plan)
            held = tried(start, lambda turn=turn: block(world, yields=turn % 3 == 0))
            process = planned.result()
            running = process is not None and world.status(process) is ProcessStatus.RUNNING
            there = [one for one in world.tasks(process) if one.partition == "part=a"] if running else []
            if held is not None:
                assert {one.status for one in there} <= {TaskStatus.CANCELED}
                world.blockers.release(held)
            if running:
                world.optimizing.cancel(process, "again")
    assert world.blockers.list_active() == []


def test_partitions_of_other_specs_are_blocked_where_they_may_have_such_rows(world: World) -> None:
    table = make(world, "file")
    with table.update_spec() as change:
        change.add_field("id", BucketTransform(2), "by_id")
    for _ in range(3):
        writer.append(table, [row(1, "a"), row(100, "b")])
    block(world, "part = 'a' AND id = 1")
    # The old spec tells only the part, the new one both.
    process = world.begin_and_run(OptimizingType.MINOR)
    assert {task.partition.partition("/by_id")[0] for task in world.tasks(process)} == {"part=b"}
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    elsewhere = next(at for at in range(2, 99) if _bucket(at) != _bucket(1))
    for _ in range(2):
        writer.append(table, [row(elsewhere, "a")])
    process = world.begin(OptimizingType.MINOR)
    assert [task.partition for task in world.tasks(process)] == [f"part=a/by_id={1 - _bucket(1)}"]
    world.optimizing.cancel(process, "seen")
    # When the column is gone the condition tells nothing: it blocks all.
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.rename_column("part", "piece")
    begun = world.planning.begin(world.table().table_id, trigger="request", requested=OptimizingType.FULL)
    assert begun.process_id is None


def _bucket(value: int) -> int:
    return BucketTransform(2).transform(LongType())(value) or 0


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("day = '2026-11-30'", "the table has no column day"),
        ("id = 5", "id is not a partition column of the table, which is partitioned by identity.part."),
        ("part =", "expected a condition"),
        ("part = 5 AND", "malformed"),
    ],
)
def test_a_condition_that_selects_no_partitions_is_refused(world: World, condition: str, words: str) -> None:
    make(world)
    with pytest.raises(InvalidArgument, match=words):
        block(world, condition)
    with pytest.raises(InvalidArgument, match="concern optimizing, not batch-write"):
        block(world, operations=frozenset({BlockedOperation.BATCH_WRITE}))
    assert world.blockers.list_active() == []


def test_of_a_table_without_partitions_there_is_no_part_to_block(world: World) -> None:
    writer.append(writer.make_table(world.catalog, "db.t", SCHEMA), [row(1)])
    with pytest.raises(InvalidArgument, match="which is unpartitioned"):
        block(world)


def test_clustering_leaves_blocked_partitions_out_and_waits_for_those_blocked_since(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(world, "file")
    plan_groups_with(monkeypatch, Grouping(3))
    before, blocker = oracle.live_rows(table), block(world)
    process = cluster_with(world, Grouping())
    assert {task.partition for task in world.tasks(process)} == {"part=b"}
    block(world, "part = 'b'", yields=True)
    assert world.status(process) is ProcessStatus.CLOSED
    world.blockers.release(blocker)
    process = cluster_with(world, Grouping())
    assert {task.partition for task in world.tasks(process)} == {"part=a"}
    work_on(world, process, clusterer(world))
    assert files(table)["b"] == 3
    oracle.assert_same_rows(before, oracle.live_rows(table))
    # Data expiry can leave nothing out, and waits.
    with pytest.raises(TableBlocked):
        world.maintaining.begin(world.table().table_id, "rewrite-manifests", trigger="request")
    world.now += timedelta(hours=1)
    assert world.blockers.trim() == 1
