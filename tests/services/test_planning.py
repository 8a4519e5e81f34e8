"""What a plan follows: blockers, properties that change, chosen partitions, and plans that people have seen."""

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType

from amoro_core.admin.context import Call
from amoro_core.admin.optimizing import plan_table
from amoro_core.errors import BlockerNotFound, InvalidArgument, NotFound, TableBlocked, TableBusy
from amoro_core.formats.configuration import check_change
from amoro_core.model.principals import Principal, Role
from amoro_core.model.processes import ProcessStatus, ResourceGroup, TaskStatus
from amoro_core.model.tables import BlockedOperation, OptimizingStatus, OptimizingType, TableState, parse_table
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.services.catalogs import CatalogChange
from amoro_core.services.groups import GroupChange
from amoro_core.services.task_lifecycle import Failure
from amoro_core.transactions.process_context import reserved_files
from amoro_core.transactions.store_plan import EVALUATION
from tests.engine import oracle, writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.services.clustered import Grouping, cluster_with, clusterer, plan_groups_with, work_on
from tests.services.rigs import reaching
from tests.services.world import START, World, make_small_files, make_two_partitions
from tests.store.builders import open_store, services

OPTIMIZE, BATCH_WRITE = BlockedOperation.OPTIMIZE, BlockedOperation.BATCH_WRITE
MINUTE, MS = timedelta(minutes=1), timedelta(milliseconds=1)


def block(world: World, *operations: BlockedOperation, **more: object) -> Any:
    table_id = world.table().table_id
    return world.blockers.block(table_id, frozenset(operations or (OPTIMIZE,)), **more)


def test_optimizing_waits_for_its_window_and_a_request_does_not(world: World) -> None:
    """The world begins at noon, UTC; the window is open from 21:00 to 05:00, UTC."""
    night = {"self-optimizing.window": "22:00-06:00", "maintenance.zone": "Europe/Berlin"}
    always = {"self-optimizing.enabled": "true", "self-optimizing.minor.trigger.file-count": "2"}
    make_small_files(world.catalog, 5, {**always, **night})
    opens, waits = START.replace(hour=21), "waits for the window until 2026-03-01 21:00 UTC"
    held = world.refresh()
    assert (held.status, held.state, held.next_due_at) == (OptimizingStatus.IDLE, TableState.DUE, opens)
    assert held.status_reason.endswith(f"are enough for minor; {waits}")
    plan = plan_table(world.services, pb.PlanTableRequest(table="cat.db.t"), Call(Principal("admin", Role.ADMIN)))
    assert (plan.type, plan.reason) == ("minor", held.status_reason)

    world.now = opens
    assert world.refresh().status is OptimizingStatus.PENDING
    # What did not get its turn before the window closed is not planned, and waits for the next one.
    world.now = opens + timedelta(hours=8)
    table_id = world.table().table_id
    assert world.planning.begin(table_id, trigger=EVALUATION).process_id is None
    late = world.table()
    assert (late.status, late.next_due_at) == (OptimizingStatus.IDLE, opens + timedelta(days=1))
    assert late.status_reason.endswith("; waits for the window until 2026-03-02 21:00 UTC")
    # What was asked for begins at any time, and what began may end.
    assert world.optimize() is ProcessStatus.SUCCESS

    for wrong, why in (("22:00-22:00", "it never opens"), ("night", "expected two times")):
        with pytest.raises(InvalidArgument, match=f"self-optimizing.window has the malformed value '{wrong}': {why}"):
            check_change({"self-optimizing.window": wrong})


def test_a_blocked_table_is_not_planned_until_the_blocker_expires_and_not_a_tick_longer(world: World) -> None:
    make_small_files(world.catalog)
    held = block(world, reason="nightly overwrite").blocker
    assert (held.created_at, held.expires_at, held.held_for) == (START, START + MINUTE, MINUTE)
    world.now = START + MINUTE - MS
    with pytest.raises(TableBlocked) as blocked:
        world.begin(OptimizingType.MINOR)
    assert blocked.value.message == (
        f"cat.db.t is blocked for optimize until 2026-03-01 12:01:00 UTC by {held.blocker_id} (nightly overwrite)"
    )
    assert (blocked.value.exit_status, world.table().status) == (5, OptimizingStatus.IDLE)
    assert world.blockers.blocked_from(OPTIMIZE) == {world.table().table_id}
    world.now = START + MINUTE
    assert world.blockers.list_active() == []
    assert world.optimize(OptimizingType.MINOR) is ProcessStatus.SUCCESS
    assert world.blockers.trim() == 1
    # A blocker survives a restart, and goes with its table.
    held_again = block(world)
    world.restart()
    assert world.blockers.list_active() == [held_again]
    world.catalog.drop_table("db.t")
    world.discovery.explore("cat")
    assert world.blockers.list_active() == []


def test_renewing_holds_from_now_on_and_what_expired_cannot_be_renewed(world: World) -> None:
    make_small_files(world.catalog)
    held = block(world, held_for=2 * MINUTE).blocker
    world.now = START + 2 * MINUTE - MS
    renewed = world.blockers.renew(held.blocker_id[:30]).blocker
    assert renewed.expires_at == world.now + 2 * MINUTE
    assert world.blockers.renew(held.blocker_id, MINUTE).blocker.expires_at == world.now + MINUTE
    for held_for in (timedelta(0), -MINUTE, timedelta(days=1) + MS):
        words = re.escape(f"a blocker of {held_for} is not possible: it lasts at most 1 day, 0:00:00")
        with pytest.raises(InvalidArgument, match=words):
            world.blockers.renew(held.blocker_id, held_for)
    with pytest.raises(InvalidArgument, match="it lasts at most 1 day"):
        block(world, BATCH_WRITE, held_for=timedelta(days=1) + MS)
    world.later(60)
    for change in (world.blockers.renew, world.blockers.release):
        with pytest.raises(BlockerNotFound, match="was released or has expired"):
            change(held.blocker_id)


def test_no_blocker_against_optimizing_is_taken_while_a_process_is_planned_or_active(world: World) -> None:
    make_small_files(world.catalog)
    seen: list[object] = []

    def meanwhile(name: str) -> None:
        if name == "plan.before_store":
            with pytest.raises(TableBusy, match=r"cat\.db\.t is planning"):
                block(world)
            seen.append(name)

    with reaching(meanwhile):
        process = world.begin(OptimizingType.MINOR)
    assert seen == ["plan.before_store"]
    with pytest.raises(TableBusy, match=f"process {process} \\(minor, running\\) is active on cat.db.t"):
        block(world)
    assert block(world, BATCH_WRITE).blocker.operations == {BATCH_WRITE}
    world.run_all(process)
    with pytest.raises(TableBusy, match="committing"):
        block(world)
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    block(world)


def test_two_blockers_never_hold_the_same_work_and_are_told_by_the_ends_of_their_ids(world: World) -> None:
    make_small_files(world.catalog)
    with pytest.raises(InvalidArgument, match="a blocker needs at least one operation"):
        world.blockers.block(world.table().table_id, frozenset())
    first, second = block(world).blocker.blocker_id, block(world, BATCH_WRITE).blocker.blocker_id
    for operations in ((OPTIMIZE,), (BATCH_WRITE,), (OPTIMIZE, BATCH_WRITE)):
        with pytest.raises(TableBlocked):
            block(world, *operations)
    common = next(length for length in range(36, 0, -1) if first[:length] == second[:length])
    with pytest.raises(BlockerNotFound, match="more than one blocker .*: " + ", ".join(sorted((first, second)))):
        world.blockers.release(first[:common])
    with pytest.raises(BlockerNotFound, match="is too short"):
        world.blockers.release(first[:5])
    assert world.blockers.release(first[-8:]).blocker.blocker_id == first


# Properties that change while a process runs, and what a group's properties do


MIB = 1024 * 1024
TABLE = parse_table("cat.db.t")


def two_tasks(world: World, **properties: str) -> str:
    make_two_partitions(world.catalog, properties)
    return world.begin(OptimizingType.MINOR)


def test_fewer_retries_count_for_the_process_that_runs_and_what_succeeded_is_committed(world: World) -> None:
    process = two_tasks(world)
    world.refresh_with({"self-optimizing.execute.num-retries": "0", "self-optimizing.allow-partial-commit": "true"})
    before, optimizer = world.rows(), world.optimizer()
    world.run_one(optimizer, Failure("AMORO-1001", "broken"))
    world.run_one(optimizer)
    assert world.heard.commits == [process]
    assert world.committing.commit(process) is ProcessStatus.PARTIAL
    oracle.assert_same_rows(before, world.rows())


def test_a_new_group_and_defaults_of_the_catalog_count_for_the_process_that_runs(world: World) -> None:
    process = two_tasks(world)
    world.run_one(world.optimizer())
    world.refresh_with({"self-optimizing.group": "fast"})
    assert {task.group for task in world.tasks(process)} == {"default"}
    world.groups.create(ResourceGroup("fast"))
    world.refresh()
    by_status = {task.status: task.group for task in world.tasks(process)}
    assert by_status == {TaskStatus.SUCCESS: "default", TaskStatus.PLANNED: "fast"}
    world.refresh_with({"self-optimizing.group": "default"})
    world.catalogs.update("cat", CatalogChange({"table.self-optimizing.execute.num-retries": "0"}))
    world.refresh()
    world.run_one(world.optimizer(), Failure("AMORO-1001", "broken"))
    assert world.status(process) is ProcessStatus.FAILED


@pytest.mark.parametrize("by", ["property", "command"])
def test_switching_a_table_off_ends_the_process_that_runs(world: World, by: str) -> None:
    process = two_tasks(world)
    (running,) = world.poll(world.optimizer())
    assert not world.table().enabled
    assert world.optimizing.cancel_unwanted(world.table().table_id) is None, "a request is carried through"
    if by == "property":
        world.refresh_with({"self-optimizing.enabled": "false"})
    else:
        world.tables.set_enabled(TABLE, False)
    view = world.optimizing.cancel_unwanted(world.table().table_id)
    assert (view.process.process_id, view.process.status) == (process, ProcessStatus.CLOSED)
    assert view.process.failure == "optimizing was switched off; 0 of 2 tasks done"
    assert {task.status for task in view.tasks} == {TaskStatus.CANCELED}
    assert world.heard.left_over == [process]
    assert world.table().status is OptimizingStatus.IDLE
    assert world.optimizing.ack(running.attempt.task_id.process_id, [running.attempt]) == [None]


def test_what_commits_already_is_not_ended_by_switching_off(world: World) -> None:
    process = two_tasks(world)
    world.run_all(process)
    world.tables.set_enabled(TABLE, False)
    assert world.optimizing.cancel_unwanted(world.table().table_id) is None
    assert world.committing.commit(process) is ProcessStatus.SUCCESS


def test_a_group_limits_what_a_process_reads_and_the_memory_of_its_optimizers(world: World) -> None:
    table = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART)
    for number in range(4):
        writer.append(table, [row(number, part) for part in "abc"])
    world.groups.update("default", GroupChange(properties={"max-input-file-size-per-thread": "1", "memory": "512"}))
    previewed = world.tables.preview(TABLE, OptimizingType.MINOR, False)
    assert len(previewed.plan.tasks) == 1
    assert len(world.tasks(world.begin(OptimizingType.MINOR))) == 1
    asks = "'default' asks for 512 MB of memory for each thread, .* has 511 MB"
    with pytest.raises(InvalidArgument, match=asks) as refused:
        world.optimizer(threads=2, memory_bytes=2 * 511 * MIB)
    assert refused.value.hint == "Start it with --memory 512MB, or in another group."
    world.optimizer(threads=2, memory_bytes=2 * 512 * MIB)


# A round that somebody limits to partitions: planned so, kept so, and no row of others is touched


@pytest.fixture
def table(world: World) -> Table:
    """Four small files in each of two partitions, and an equality delete that reaches rows of both."""
    made = writer.make_table(world.catalog, "db.t", SCHEMA)
    with made.update_spec() as update:
        update.add_identity("part")
    made.refresh()
    for number in range(4):
        writer.append(made, [row(number, "a"), row(number + 100, "b")])
    everywhere = writer.EqualityDelete(["id"], [{"id": 1}, {"id": 101}], (), writer.unpartitioned_spec_id(made))
    writer.row_delta(made, equality_deletes=[everywhere])
    return made


def test_a_plan_has_the_chosen_partition_only_and_a_delete_that_others_need_stays(world: World, table: Table) -> None:
    rows = oracle.live_rows(table)
    assert len(rows) == 6
    preview = world.tables.preview(TABLE, OptimizingType.FULL, False, "part = 'a'")
    assert preview.partition_paths == ("part=a",)
    assert preview.evaluation.summary.data_files == 8  # counts and health are those of the whole table
    for part, data_files, delete_files in (("a", 5, 1), ("b", 2, 0)):
        process = world.begin(OptimizingType.FULL, where=f"part = '{part}'")
        assert {task.partition for task in world.tasks(process)} == {f"part={part}"}
        assert world.process(process).where == f"part = '{part}'"
        world.run_all(process)
        assert world.committing.commit(process) is ProcessStatus.SUCCESS
        table.refresh()
        oracle.assert_same_rows(rows, oracle.live_rows(table))
        contents = [file.content for file in oracle.live_files(table)]
        assert (contents.count(0), len(contents) - contents.count(0)) == (data_files, delete_files)


def test_the_files_of_a_process_are_taken_under_every_name_of_its_table(world: World, table: Table) -> None:
    process_id = world.begin(OptimizingType.FULL, where="part = 'a'")
    another, uuid = world.table().table_id + 1, str(table.metadata.table_uuid)
    given = (another, uuid, world.tables.find_action, world.now)
    taken = world.store.read(lambda db: reserved_files(db, *given))
    assert (taken.processes, len(taken.paths)) == ({process_id}, 5)  # the delete among them
    assert world.store.read(lambda db: reserved_files(db, *given, own=process_id)).paths == {}
    assert world.store.read(lambda db: reserved_files(db, another, "another", *given[2:])).paths == {}


def test_what_was_asked_for_in_vain_is_not_told_and_a_part_leaves_the_rest_due(world: World, table: Table) -> None:
    world.tables.set_enabled(TABLE, True)
    before = world.table()
    assert "fragment" in before.status_reason or "small files" in before.status_reason
    for where in ("id = 4", "part >", "part = 'c'"):
        with suppress(InvalidArgument):
            world.planning.begin(before.table_id, trigger="request", where=where)
        assert (world.table().status, world.table().status_reason) == (OptimizingStatus.IDLE, before.status_reason)
    process = world.begin(where="part = 'a'")
    world.run_all(process)
    world.committing.commit(process)
    world.later(61)
    assert world.refresh().status is OptimizingStatus.PENDING


# Plans that people have seen are kept: for ten minutes, a hundred of them, over a restart, each for its table


def test_the_newest_hundred_plans_are_kept_for_their_tables_for_ten_minutes(tmp_path: Path) -> None:
    now = [START]
    store = open_store(tmp_path / "amoro.db")
    service = services(store, lambda: now[0]).planning

    def kept() -> int:
        return len(store.read(lambda db: db.select("SELECT plan_id FROM saved_plan")))

    made = service.save_plan(TABLE, b"plan")
    for table, plan_id in ((parse_table("cat.db.other"), made.plan_id), (TABLE, "another")):
        with pytest.raises(NotFound):
            service.saved_plan(table, plan_id)
    now[0] += timedelta(minutes=10) - MS
    assert service.saved_plan(TABLE, made.plan_id) == made
    now[0] += MS
    with pytest.raises(NotFound, match=f"no plan '{made.plan_id}' of cat.db.t is kept"):
        service.saved_plan(TABLE, made.plan_id)
    now[0] += MS
    first, *others = [service.save_plan(TABLE, b"plan") for _ in range(101)]
    assert kept() == 100, "what is too old is not kept either"
    assert all(service.saved_plan(TABLE, one.plan_id) == one for one in others)
    with pytest.raises(NotFound):
        service.saved_plan(TABLE, first.plan_id)
    store.close()


# Writers that announce the partitions that they write: refused, granted, or given way to, and left alone by plans


KEY = "self-optimizing.conflict-granularity"
A = "part = 'a'"


def make(world: World, granularity: str = "partition") -> Table:
    """A table of two partitions of three files each."""
    return make_two_partitions(world.catalog, {KEY: granularity}, 3)


def block_part(world: World, condition: str = A, *operations: BlockedOperation, **more: object) -> str:
    return block(world, *operations, condition=condition, **more).blocker.blocker_id


def files(table: Table) -> Counter[str]:
    """How many live data files each partition has."""
    table.refresh()
    found = (one for one in oracle.live_files(table) if one.content == oracle.DATA)
    return Counter("a" if "part=a" in one.path else "b" for one in found)


def test_a_partition_that_is_rewritten_is_refused_with_the_process_and_another_is_granted(world: World) -> None:
    table = make(world)
    process = world.begin(OptimizingType.MINOR)
    with pytest.raises(TableBusy, match=f"process {process} .minor, running. is active on cat.db.t where part = 'a'"):
        block_part(world)
    with pytest.raises(TableBusy) as busy:
        block_part(world, "part IN ('b', 'c')")
    assert busy.value.exit_status == 5
    block_part(world, "part = 'c'", reason="a load")
    with pytest.raises(TableBlocked, match=r"where part = 'c' until .* \(a load\)"):
        block_part(world, "part = 'c'")
    world.run_all(process)
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    assert files(table) == {"a": 1, "b": 1}


@pytest.mark.parametrize("done", [False, True])
def test_tasks_give_way_and_the_rest_commits(world: World, done: bool) -> None:
    """By file nothing hinders a writer."""
    table = make(world, "file")
    before, process, optimizer = oracle.live_rows(table), world.begin(OptimizingType.MINOR), world.optimizer()
    handed = world.take(optimizer)
    own = next(task for task in world.tasks(process) if task.task_id == handed.attempt.task_id)
    written = world.execute(handed)
    if done:
        world.complete(optimizer, handed.attempt, written)
    blocker = block_part(world, own.partition.replace("=", " = '") + "'", yields=True, reason="a load")
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
    world.blockers.release(block_part(world, "part >= 'a'", yields=True))
    assert world.status(process) is ProcessStatus.CLOSED
    process = world.begin_and_run(OptimizingType.MINOR)
    with pytest.raises(TableBusy, match=f"process {process} .minor, committing."):
        block_part(world, yields=True)
    world.optimizing.cancel(process, "by hand")
    process = world.begin(OptimizingType.MINOR)
    block(world, yields=True)
    assert world.status(process) is ProcessStatus.CLOSED
    assert world.blockers.blocked_from(OPTIMIZE) == {world.table().table_id}


def test_by_table_anything_hinders_a_writer(world: World) -> None:
    make(world, "table")
    process = world.begin(OptimizingType.MINOR)
    with pytest.raises(TableBusy):
        block_part(world, "part = 'c'")
    block_part(world, "part = 'c'", yields=True)
    assert world.status(process) is ProcessStatus.CLOSED
    with pytest.raises(TableBlocked):
        world.begin(OptimizingType.MINOR)


def test_a_blocker_taken_while_a_plan_is_made_makes_the_plan_lose(world: World) -> None:
    table, taken = make(world, "file"), list[str]()

    def meanwhile(name: str) -> None:
        if name == "plan.before_store" and not taken:
            taken.append(block_part(world))

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


def test_partitions_of_other_specs_are_blocked_where_they_may_have_such_rows(world: World) -> None:
    table = make(world, "file")
    with table.update_spec() as change:
        change.add_field("id", BucketTransform(2), "by_id")
    for _ in range(3):
        writer.append(table, [row(1, "a"), row(100, "b")])
    block_part(world, "part = 'a' AND id = 1")
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
        block_part(world, condition)
    with pytest.raises(InvalidArgument, match="concern optimizing, not batch-write"):
        block_part(world, A, BATCH_WRITE)
    assert world.blockers.list_active() == []
    writer.append(writer.make_table(world.catalog, "db.u", SCHEMA), [row(1)])
    with pytest.raises(InvalidArgument, match="which is unpartitioned"):
        world.blockers.block(world.table("cat.db.u").table_id, frozenset({OPTIMIZE}), condition=A)


def test_clustering_leaves_blocked_partitions_out_and_waits_for_those_blocked_since(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(world, "file")
    plan_groups_with(monkeypatch, Grouping(3))
    before, blocker = oracle.live_rows(table), block_part(world)
    process = cluster_with(world, Grouping())
    assert {task.partition for task in world.tasks(process)} == {"part=b"}
    block_part(world, "part = 'b'", yields=True)
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
            held = tried(start, lambda turn=turn: block_part(world, yields=turn % 3 == 0))
            process = planned.result()
            running = process is not None and world.status(process) is ProcessStatus.RUNNING
            there = [one for one in world.tasks(process) if one.partition == "part=a"] if running else []
            if held is not None:
                assert {one.status for one in there} <= {TaskStatus.CANCELED}
                world.blockers.release(held)
            if running:
                world.optimizing.cancel(process, "again")
    assert world.blockers.list_active() == []
