"""Optimizer groups: their life, what used them, whose turn it is, and what waits for a plan or for threads."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from amoro_core.errors import AlreadyExists, GroupNotFound, IllegalState, InvalidArgument, OptimizerNotFound
from amoro_core.model.processes import ResourceGroup
from amoro_core.model.tables import BlockedOperation, OptimizingStatus, OptimizingType, TableRuntime
from amoro_core.scheduling.policy import POLICIES, PendingTable
from amoro_core.services.groups import GroupChange, GroupService, GroupUse
from amoro_core.services.listings import QueueService
from amoro_core.store import processes, tables
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
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


@pytest.mark.parametrize("name", ["", "a b", "a\n"])
def test_what_can_not_be_a_name_is_refused(world: World, name: str) -> None:
    with pytest.raises(InvalidArgument, match="can't be the name of a group"):
        world.groups.create(ResourceGroup(name))


def test_an_unknown_policy_is_refused_and_nothing_is_changed(world: World) -> None:
    with pytest.raises(InvalidArgument, match="unknown scheduling policy 'fair'"):
        world.groups.create(ResourceGroup("x", "fair"))
    with pytest.raises(InvalidArgument, match="unknown scheduling policy 'fair'"):
        world.groups.update("default", GroupChange("fair"))
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


def draining(world: World) -> list[bool]:
    return [item.draining for item, _ in world.optimizers.list_optimizers()]


def test_a_draining_optimizer_is_known_by_its_prefix_until_it_leaves(world: World) -> None:
    optimizer = world.optimizer()
    assert draining(world) == [False]
    assert world.optimizers.drain(optimizer)[0].optimizer_id == optimizer
    assert world.optimizers.drain(optimizer[:8])[0].optimizer_id == optimizer
    assert draining(world) == [True]
    world.optimizers.forget(optimizer)
    with pytest.raises(OptimizerNotFound, match=f"optimizer {optimizer} is not registered"):
        world.optimizers.drain(optimizer)
    with pytest.raises(InvalidArgument, match="too short"):
        world.optimizers.drain("01997")


def test_a_drain_survives_a_restart_and_a_changed_number_of_threads(world: World) -> None:
    registered = world.optimizers.register(
        group="default", threads=2, memory_bytes=1, labels={}, heartbeat_interval=timedelta(seconds=10)
    )
    world.optimizers.drain(registered.optimizer.optimizer_id)
    world.optimizers.touch(registered.optimizer.optimizer_id, 3, {})
    kept = replace(registered.optimizer, threads=3, draining=True)
    assert world.optimizers.authenticate(registered.token) == kept
    world.restart()
    assert world.optimizers.authenticate(registered.token) == kept


def newest_first(table: PendingTable, now: datetime) -> int:
    return -table.table_id


def test_a_policy_that_is_plugged_in_orders_its_group_alone(world: World) -> None:
    world.groups = GroupService(
        world.store, lambda: world.now, {**POLICIES, "reversed": newest_first}, world.services.containers
    )
    world.groups.update("default", GroupChange("reversed"))
    listed = [made(world, name) for name in ("a", "b", "c")]
    assert names(world.groups.in_turn(listed)) == ["c", "b", "a"]
    with pytest.raises(InvalidArgument, match="unknown scheduling policy 'fair'") as refused:
        world.groups.update("default", GroupChange("fair"))
    assert refused.value.hint == "Known policies: quota, balanced, fifo, priority, value, reversed."


def test_a_policy_that_fails_or_is_gone_holds_nobody_up(world: World) -> None:
    def broken(table: PendingTable, now: datetime) -> int:
        raise RuntimeError("no luck")

    listed = [made(world, name) for name in ("a", "b")]
    world.groups = GroupService(
        world.store, lambda: world.now, {**POLICIES, "broken": broken}, world.services.containers
    )
    world.groups.update("default", GroupChange("broken"))
    assert names(world.groups.in_turn(listed)) == ["a", "b"]
    world.groups = GroupService(world.store, lambda: world.now, POLICIES, world.services.containers)
    assert names(world.groups.in_turn(listed)) == ["a", "b"]


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


def optimized(world: World, table_id: int, at: datetime) -> None:
    world.store.write(lambda db: tables.save(db, replace(tables.get(db, table_id), last_optimized_at=at)))


def shown(world: World, group: str = "") -> list[tuple[str, int, str, str]]:
    found = world.queue.list_queue(group)
    return [(one.table.identifier.name, one.place, one.policy, one.held_back) for one in found.pending]


def test_pending_tables_stand_in_the_order_in_which_they_are_planned(world: World) -> None:
    world.groups.create(ResourceGroup("nightly", "balanced"))
    for name, hours in (("a", 3), ("b", 1), ("c", 2)):
        optimized(
            world, pending(world, name, **{"self-optimizing.group": "nightly"}), world.now - timedelta(hours=hours)
        )
    pending(world, "d")
    assert shown(world) == [
        ("d", 1, "quota", ""),
        ("a", 1, "balanced", ""),
        ("c", 2, "balanced", ""),
        ("b", 3, "balanced", ""),
    ]
    turns = world.groups.in_turn([one for one in world.tables.list_pending() if one.group == "nightly"])
    assert [one.identifier.name for one in turns] == ["a", "c", "b"]
    first = world.queue.list_queue("nightly").pending[0]
    assert (first.key, first.occupation, first.table.type) == (
        (world.now - timedelta(hours=3), 0.0),
        0.0,
        OptimizingType.MINOR,
    )
    few = world.queue.list_queue("nightly", 2)
    assert (len(few.pending), few.pending_total) == (2, 3)
    few = world.queue.list_queue(limit=2)
    assert [(one.table.identifier.name, one.place) for one in few.pending] == [("d", 1), ("a", 1)]
    assert few.pending_total == 4
    world.tables.set_enabled(world.table("cat.db.a").identifier, False)
    assert [name for name, *_ in shown(world)] == ["d", "c", "b"]


def test_a_blocked_table_keeps_its_place_and_says_so(world: World) -> None:
    table_id = pending(world, "a")
    world.blockers.block(table_id, frozenset({BlockedOperation.OPTIMIZE}), timedelta(seconds=30), "month-end")
    assert shown(world) == [("a", 1, "quota", "blocked")]
    world.later(60)
    assert shown(world) == [("a", 1, "quota", "")]


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
