"""Optimizer groups: their life, what used them, whose turn it is, and what waits for a plan or for threads."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from amoro_core.errors import AlreadyExists, GroupNotFound, IllegalState, InvalidArgument, OptimizerNotFound
from amoro_core.model.processes import ProcessStatus, ResourceGroup
from amoro_core.model.tables import BlockedOperation, OptimizingStatus, OptimizingType, TableRuntime
from amoro_core.scheduling.policy import POLICIES, PendingTable, Policy
from amoro_core.services.groups import GroupChange, GroupService, GroupUse
from amoro_core.services.listings import QueueService
from amoro_core.store import processes, tables
from amoro_core.transactions.store_plan import EVALUATION
from tests.engine import writer
from tests.engine.builders import SCHEMA, ids, row
from tests.services.world import World


def made(world: World, name: str, **properties: str) -> TableRuntime:
    """A table with small files, looked at."""
    table = writer.make_table(world.catalog, f"db.{name}", SCHEMA, properties=properties)
    for number in range(3):
        writer.append(table, [row(number)])
    return world.refresh(f"cat.db.{name}")


def names(runtimes: list[TableRuntime]) -> list[str]:
    return [runtime.identifier.name for runtime in runtimes]


def test_a_group_lives_from_its_creation_to_its_removal(world: World) -> None:
    created = world.groups.create(ResourceGroup("nightly", "balanced", (("owner", "data"),)))
    assert created.group == ResourceGroup("nightly", "balanced", (("owner", "data"),))
    assert (created.optimizers, created.threads, created.tables) == (0, 0, 0)
    with pytest.raises(AlreadyExists, match="'nightly' exists already"):
        world.groups.create(ResourceGroup("nightly"))
    changed = world.groups.update("nightly", GroupChange("quota", {"a": "b"}, frozenset({"owner"})))
    assert changed.group == ResourceGroup("nightly", "quota", (("a", "b"),))
    assert [view.group.name for view in world.groups.list_groups()] == ["default", "nightly"]
    world.groups.remove("nightly")
    with pytest.raises(GroupNotFound, match="'nightly' does not exist"):
        world.groups.get("nightly")


def test_what_can_not_be_a_name_or_a_policy_is_refused_and_nothing_is_changed(world: World) -> None:
    for name in ("", "a b", "a\n"):
        with pytest.raises(InvalidArgument, match="can't be the name of a group"):
            world.groups.create(ResourceGroup(name))
    with pytest.raises(InvalidArgument, match="unknown scheduling policy 'fair'"):
        world.groups.create(ResourceGroup("x", "fair"))
    with pytest.raises(InvalidArgument, match="has no property 'a' to remove"):
        world.groups.update("default", GroupChange("balanced", removed_properties=frozenset({"a"})))
    assert [view.group for view in world.groups.list_groups()] == [ResourceGroup("default")]


def test_a_group_stays_while_it_is_used(world: World) -> None:
    with pytest.raises(InvalidArgument, match="always exists"):
        world.groups.remove("default")
    world.groups.create(ResourceGroup("nightly"))
    made(world, "t", **{"self-optimizing.group": "nightly"})
    with pytest.raises(IllegalState, match="'nightly' is used by 1 table; it stays"):
        world.groups.remove("nightly")
    registered = world.optimizers.register(
        group="nightly", threads=3, memory_bytes=1, labels={}, heartbeat_interval=timedelta(seconds=10)
    )
    with pytest.raises(IllegalState, match="'nightly' is used by 1 optimizer; it stays"):
        world.groups.remove("nightly")
    view = world.groups.get("nightly")
    assert (view.optimizers, view.threads, view.tables) == (1, 3, 1)
    world.optimizing.dismiss(registered.optimizer.optimizer_id, "done", lost=False)


def test_the_use_of_a_group_counts_what_runs_and_what_ended_within_the_hour(world: World) -> None:
    runtime = made(world, "t")
    optimizer = world.optimizer(threads=4)
    world.begin(OptimizingType.MINOR)
    handed = world.take(optimizer)
    world.later(720)
    use = GroupUse(runtime.identifier, 0.5, 2, 1, 0.1, runtime.table_id)
    view = world.groups.get("default")
    assert (view.running_tasks, view.uses) == (1, (use,))
    assert world.groups.list_groups() == [replace(view, uses=())]
    world.complete(optimizer, handed.attempt, world.execute(handed))
    world.later(3240)
    view = world.groups.get("default")
    assert (view.running_tasks, view.uses) == (0, (replace(use, running_tasks=0, occupation=0.05),))
    world.later(360)
    assert world.groups.get("default").uses == ()


def test_a_draining_optimizer_is_known_by_its_prefix_after_a_restart_too_until_it_leaves(world: World) -> None:
    registered = world.optimizers.register(
        group="default", threads=2, memory_bytes=1, labels={}, heartbeat_interval=timedelta(seconds=10)
    )
    optimizer = registered.optimizer.optimizer_id
    for prefix in (optimizer, optimizer[:8]):
        assert world.optimizers.drain(prefix)[0].optimizer_id == optimizer
    world.optimizers.touch(optimizer, 3, {})
    kept = replace(registered.optimizer, threads=3, draining=True)
    assert world.optimizers.authenticate(registered.token) == kept
    world.restart()
    assert world.optimizers.authenticate(registered.token) == kept
    assert [item for item, _ in world.optimizers.list_optimizers()] == [kept]
    world.optimizers.forget(optimizer)
    with pytest.raises(OptimizerNotFound, match=f"optimizer {optimizer} is not registered"):
        world.optimizers.drain(optimizer)
    with pytest.raises(InvalidArgument, match="too short"):
        world.optimizers.drain("01997")


def test_a_policy_that_is_plugged_in_orders_its_group_and_holds_nobody_up_where_it_fails_or_is_gone(
    world: World,
) -> None:
    def newest_first(table: PendingTable, now: datetime) -> int:
        return -table.table_id

    def broken(table: PendingTable, now: datetime) -> int:
        raise RuntimeError("no luck")

    def with_policies(more: Mapping[str, Policy]) -> GroupService:
        return GroupService(world.store, lambda: world.now, {**POLICIES, **more}, world.services.containers)

    listed = [made(world, name) for name in ("a", "b", "c")]
    for own, order in ((newest_first, ["c", "b", "a"]), (broken, ["a", "b", "c"])):
        groups = with_policies({"own": own})
        groups.update("default", GroupChange("own"))
        assert names(groups.in_turn(listed)) == order
        with pytest.raises(InvalidArgument, match="unknown scheduling policy 'fair'") as refused:
            groups.update("default", GroupChange("fair"))
        assert refused.value.hint == "Known policies: quota, balanced, fifo, priority, value, own."
    assert names(with_policies({}).in_turn(listed)) == ["a", "b", "c"]


# What waits for a plan or for threads, in order, and figures that are counted once a second


ENABLED = {"self-optimizing.enabled": "true"}


def pending(world: World, name: str, **properties: str) -> int:
    """A table that waits for a plan."""
    table = writer.make_table(world.catalog, f"db.{name}", SCHEMA, properties={**ENABLED, **properties})
    for number in range(12):
        writer.append(table, [row(number)])
    runtime = world.refresh(f"cat.db.{name}")
    assert runtime.status is OptimizingStatus.PENDING
    return runtime.table_id


def shown(world: World, group: str = "") -> list[tuple[str, int, str, str]]:
    found = world.queue.list_queue(group)
    return [(one.table.identifier.name, one.place, one.policy, one.held_back) for one in found.pending]


def test_pending_tables_stand_in_the_order_in_which_they_are_planned(world: World) -> None:
    world.groups.create(ResourceGroup("nightly", "balanced"))
    for name, hours in (("a", 3), ("b", 1), ("c", 2)):
        table_id, at = pending(world, name, **{"self-optimizing.group": "nightly"}), world.now - timedelta(hours=hours)
        last = replace(world.store.read(lambda db, one=table_id: tables.get(db, one)), last_optimized_at=at)
        world.store.write(lambda db, last=last: tables.save(db, last))
    blocked = pending(world, "d")
    assert shown(world) == [
        ("d", 1, "quota", ""),
        ("a", 1, "balanced", ""),
        ("c", 2, "balanced", ""),
        ("b", 3, "balanced", ""),
    ]
    turns = world.groups.in_turn([one for one in world.tables.list_pending() if one.group == "nightly"])
    assert [one.identifier.name for one in turns] == ["a", "c", "b"]
    first = world.queue.list_queue("nightly").pending[0]
    key = (world.now - timedelta(hours=3), 0.0)
    assert (first.key, first.occupation, first.table.type) == (key, 0.0, OptimizingType.MINOR)
    few = world.queue.list_queue("nightly", 2)
    assert (len(few.pending), few.pending_total) == (2, 3)
    few = world.queue.list_queue(limit=2)
    assert [(one.table.identifier.name, one.place) for one in few.pending] == [("d", 1), ("a", 1)]
    assert few.pending_total == 4
    world.tables.set_enabled(world.table("cat.db.a").identifier, False)
    # A blocked table keeps its place, and says so.
    world.blockers.block(blocked, frozenset({BlockedOperation.OPTIMIZE}), timedelta(seconds=30), "month-end")
    assert [(name, held_back) for name, *_, held_back in shown(world)] == [("d", "blocked"), ("c", ""), ("b", "")]
    world.later(60)
    assert [(name, held_back) for name, *_, held_back in shown(world)] == [("d", ""), ("c", ""), ("b", "")]


def test_figures_count_everything_once_a_second(world: World) -> None:
    world.queue = QueueService(world.store, lambda: world.now, dict, monotonic=lambda: world.now.timestamp())
    optimizer = world.optimizer(threads=4)
    pending(world, "a")
    since = world.now
    pending(world, "b")
    figures, counted_at = world.queue.figures()
    assert counted_at == world.now
    assert (figures.statuses, figures.oldest_pending, figures.enabled_tables) == ({("pending", ""): 2}, since, 2)
    assert (figures.optimizers, figures.threads, figures.waiting_tasks, figures.running_tasks) == (1, 4, 0, 0)
    process_id = world.begin(OptimizingType.MINOR, "cat.db.a")
    assert world.queue.figures() == (figures, counted_at)
    world.later(1)
    figures, counted_at = world.queue.figures()
    assert counted_at == world.now
    assert (figures.processes, figures.waiting_tasks, figures.running_tasks) == ({"running": 1}, 1, 0)
    handed = world.take(optimizer)
    world.later(1)
    figures = world.queue.figures()[0]
    assert (figures.waiting_tasks, figures.running_tasks) == (0, 1)
    world.complete(optimizer, handed.attempt, world.execute(handed))
    world.committing.commit(process_id)
    receipt = world.store.read(lambda db: processes.get(db, process_id)).receipt
    world.later(1)
    figures = world.queue.figures()[0]
    assert (figures.ended, figures.rewritten_bytes, figures.removed_files) == ({"success": 1}, receipt.bytes_before, 11)
    world.later(24 * 3600 + 1)
    assert world.queue.figures()[0].ended == {}


# Strategies of tables and turns of groups: commits, bytes of a plan, classes, ageing, values, predictions


ON = {"self-optimizing.enabled": "true"}
COMMITS = {**ON, "self-optimizing.minor.trigger.commits": "5"}


def priority(number: int) -> dict[str, str]:
    return {"self-optimizing.priority": str(number)}


def begun(world: World, name: str, **properties: str) -> str:
    """A process of a new table, planned now."""
    made(world, name, **properties)
    return world.begin(OptimizingType.MINOR, f"cat.db.{name}")


def test_a_table_of_class_0_that_is_planned_last_gets_the_next_free_thread(world: World) -> None:
    world.groups.update("default", GroupChange("priority"))
    optimizer = world.optimizer(threads=1)
    for name in ("a", "b"):
        begun(world, name)
        world.later(1)
    running = world.take(optimizer)
    first = begun(world, "urgent", **priority(0))
    assert [(one.table.name, one.place) for one in world.queue.list_queue().waiting] == [("urgent", 1), ("b", 2)]
    world.complete(optimizer, running.attempt, world.execute(running))
    assert world.run_one(optimizer).attempt.task_id.process_id == first
    made(world, "c", **ON)
    made(world, "d", **ON, **priority(1))
    turns = [one.identifier.name for one in world.groups.in_turn(world.tables.list_pending())]
    assert turns == ["d", "c"], "in planning, too"
    listed = world.queue.list_queue().pending
    assert [(one.table.identifier.name, one.table.priority, one.policy) for one in listed] == [
        ("d", 1, "priority"),
        ("c", 5, "priority"),
    ]


def test_value_takes_what_saves_most_files_for_its_work_and_learns_its_rate(world: World) -> None:
    world.groups.update("default", GroupChange("value"))
    optimizer = world.optimizer(threads=1)
    few = begun(world, "few", **ON)
    table = writer.make_table(world.catalog, "db.many", SCHEMA, properties=ON)
    for number in range(12):
        writer.append(table, [row(number)])
    assert world.refresh("cat.db.many").value > 0
    many = world.begin(None, "cat.db.many")
    assert world.process(many).value > world.process(few).value > 0
    assert world.queue.list_queue().waiting[0].process.process_id == many
    predicted_ms = world.process(many).predicted_ms
    handed = world.take(optimizer)
    world.later(2 * predicted_ms / 1000)
    world.complete(optimizer, handed.attempt, world.execute(handed))
    assert world.committing.commit(many) is ProcessStatus.SUCCESS
    assert world.process(many).measured_ms == pytest.approx(2 * predicted_ms, abs=2)
    assert world.table("cat.db.many").rate == pytest.approx(2**0.3, rel=0.01)
    for number in range(12):
        writer.append(table, [row(100 + number)])
    preview = world.tables.preview(world.table("cat.db.many").identifier, OptimizingType.MINOR, False)
    assert preview.predicted_ms == pytest.approx(predicted_ms * 2**0.3, rel=0.1)
    assert preview.last.measured_ms == world.process(many).measured_ms


def optimized_by_the_clock(world: World) -> str:
    """A process that the clock has begun, to its end; a minute later."""
    process_id = world.planning.begin(world.table().table_id, trigger=EVALUATION).process_id
    assert process_id is not None
    world.run_all(process_id)
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    world.later(61)
    return process_id


def test_four_commits_do_nothing_and_the_fifth_plans_after_restart_and_expiry_too(world: World) -> None:
    table = writer.make_table(world.catalog, "db.t", SCHEMA, properties=COMMITS)
    for round_ in range(3):
        for number in range(1, 5):
            writer.append(table, [row(10 * round_ + number)])
            looked = world.refresh()
            assert looked.status is OptimizingStatus.IDLE
            assert f"{number} commit" in looked.status_reason
            assert "since the last plan, 5 needed" in looked.status_reason
            if round_ == 1:
                world.restart()
            if round_ == 2:  # the head alone stays
                writer.expire_snapshots(table)
        writer.append(table, [row(10 * round_ + 5)])
        looked = world.refresh()
        assert looked.status is OptimizingStatus.PENDING
        assert "5 commits since the last plan, 5 are enough for minor" in looked.status_reason
        optimized_by_the_clock(world)
        assert world.refresh().status is OptimizingStatus.IDLE


def test_every_plan_keeps_to_max_plan_bytes_and_the_last_leaves_nothing_due(world: World) -> None:
    limit = 6_000
    properties = {
        **ON,
        "self-optimizing.max-plan-bytes": str(limit),
        "self-optimizing.target-size": "4096",
        "self-optimizing.max-task-size-bytes": "4096",
        "self-optimizing.minor.trigger.file-count": "2",
        "read.split.open-file-cost": "0",
    }
    table = writer.make_table(world.catalog, "db.t", SCHEMA, properties=properties)
    for number in range(24):
        writer.append(table, [row(number)])
    writer.row_delta(table, equality_deletes=[(("id",), [{"id": 3}, {"id": 20}])])
    rows = ids(table)
    sizes: list[int] = []
    left: list[bool] = []
    while world.refresh().status is OptimizingStatus.PENDING:
        process_id = optimized_by_the_clock(world)
        sizes.append(sum(task.input_bytes for task in world.tasks(process_id)))
        left.append("left to the next plan by self-optimizing.max-plan-bytes" in world.process(process_id).reason)
        assert ids(table.refresh()) == rows
        assert len(sizes) < 20
    assert len(sizes) >= 3
    assert max(sizes) <= limit
    assert left[0]
    assert world.refresh().summary.equality_delete_files == 0
