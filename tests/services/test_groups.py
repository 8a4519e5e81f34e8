"""Optimizer groups: their life, what used them, and whose turn it is."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from amoro_core.errors import AlreadyExists, GroupNotFound, IllegalState, InvalidArgument, OptimizerNotFound
from amoro_core.model.processes import ResourceGroup
from amoro_core.model.tables import OptimizingType, TableRuntime
from amoro_core.scheduling.policy import POLICIES, PendingTable
from amoro_core.services.groups import GroupChange, GroupService, GroupUse
from amoro_core.store import tables
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.services.world import World


def made(world: World, name: str, **properties: str) -> TableRuntime:
    """A table with small files, looked at."""
    table = writer.make_table(world.catalog, f"db.{name}", SCHEMA, properties=properties)
    for number in range(3):
        writer.append(table, [row(number)])
    runtime = world.tables.refresh(world.table(f"cat.db.{name}").table_id)
    assert runtime is not None
    return runtime


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
    world.optimizers.forget(registered.optimizer.optimizer_id)


def test_the_use_of_a_group_counts_what_runs_and_what_ended_within_the_hour(world: World) -> None:
    runtime = made(world, "t")
    optimizer = world.optimizer(threads=4)
    world.begin(OptimizingType.MINOR)
    (handed,) = world.poll(optimizer)
    world.optimizing.ack(optimizer, [handed.attempt])
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


def test_under_quota_the_table_that_used_less_of_its_share_is_planned_first(world: World) -> None:
    first, second = made(world, "a"), made(world, "b")
    assert names(world.groups.in_turn([second, first])) == ["a", "b"]
    optimizer = world.optimizer(threads=4)
    world.begin(OptimizingType.MINOR, "cat.db.a")
    (handed,) = world.poll(optimizer)
    world.optimizing.ack(optimizer, [handed.attempt])
    world.later(60)
    assert names(world.groups.in_turn([first, second])) == ["b", "a"]


def test_under_balanced_the_table_that_was_optimized_longest_ago_is_planned_first(world: World) -> None:
    world.groups.update("default", GroupChange("balanced"))
    old, new, never = made(world, "a"), made(world, "b"), made(world, "c")
    old = replace(old, last_optimized_at=world.now - timedelta(hours=2))
    new = replace(new, last_optimized_at=world.now)
    assert names(world.groups.in_turn([old, new, never])) == ["c", "a", "b"]


def test_groups_take_turns_and_one_that_does_not_exist_holds_nobody_up(world: World) -> None:
    listed = [made(world, name) for name in ("a", "b", "c")]
    elsewhere = [replace(listed[1], group="nope"), replace(listed[2], group="nope")]
    assert names(world.groups.in_turn([listed[0], *elsewhere])) == ["a", "b", "c"]
    assert world.groups.in_turn([]) == []
    assert [runtime.group for runtime in world.store.read(tables.list_tables)] == ["default"] * 3


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


def test_a_released_optimizer_that_registers_anew_at_once_must_leave(world: World) -> None:
    optimizer = world.optimizer()

    def dismiss() -> int:
        """It is alive, and hears first that its registration has ended."""
        held = world.optimizing.dismiss(optimizer, "its optimizer was released", lost=False)
        world.optimizers.register(
            group="default",
            threads=1,
            memory_bytes=1,
            labels={},
            heartbeat_interval=timedelta(seconds=10),
            previous_id=optimizer,
        )
        return held

    assert world.optimizers.release(optimizer, dismiss) == 0
    assert draining(world) == [True]


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
    world.groups = GroupService(world.store, lambda: world.now, {**POLICIES, "reversed": newest_first})
    world.groups.update("default", GroupChange("reversed"))
    listed = [made(world, name) for name in ("a", "b", "c")]
    assert names(world.groups.in_turn(listed)) == ["c", "b", "a"]
    with pytest.raises(InvalidArgument, match="unknown scheduling policy 'fair'") as refused:
        world.groups.update("default", GroupChange("fair"))
    assert refused.value.hint == "Known policies: quota, balanced, reversed."


def test_a_policy_that_fails_or_is_gone_holds_nobody_up(world: World) -> None:
    def broken(table: PendingTable, now: datetime) -> int:
        raise RuntimeError("no luck")

    listed = [made(world, name) for name in ("a", "b")]
    world.groups = GroupService(world.store, lambda: world.now, {**POLICIES, "broken": broken})
    world.groups.update("default", GroupChange("broken"))
    assert names(world.groups.in_turn(listed)) == ["a", "b"]
    world.groups = GroupService(world.store, lambda: world.now)
    assert names(world.groups.in_turn(listed)) == ["a", "b"]


def test_a_prefix_of_two_optimizers_is_refused(world: World) -> None:
    first = world.optimizer()
    world.optimizer()
    with pytest.raises(InvalidArgument, match=f"more than one optimizer begins with '{first[:8]}'"):
        world.optimizers.drain(first[:8])
