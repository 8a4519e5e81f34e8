"""Optimizer groups: their life, what used them, whose turn it is, what waits, and their instances in containers."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from shutil import rmtree
from types import SimpleNamespace
from typing import Any, cast
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, LongType, NestedField

from amoro_core.containers.base import ExternalContainer
from amoro_core.errors import AlreadyExists, AmoroError, GroupNotFound, IllegalState, InvalidArgument, OptimizerNotFound
from amoro_core.model.group_config import RESOURCE_LABEL, Launch, Liveness, Observation, Resource, ResourceState
from amoro_core.model.paging import Window
from amoro_core.model.processes import ProcessStatus, ResourceGroup
from amoro_core.model.tables import BlockedOperation, OptimizingStatus, OptimizingType, TableRuntime
from amoro_core.scheduling.policy import POLICIES, PendingTable, Policy
from amoro_core.scheduling.scaling import LiveOptimizer
from amoro_core.services.containers import ContainerService, LaunchParameters
from amoro_core.services.groups import GroupChange, GroupService, GroupUse
from amoro_core.services.listings import QueueService
from amoro_core.store import processes, tables
from amoro_core.transactions.store_plan import EVALUATION
from tests.engine import writer
from tests.engine.builders import SCHEMA, ids, row
from tests.engine.files import Layout
from tests.services.world import World, make_small_files

ON = {"self-optimizing.enabled": "true"}


def made(world: World, name: str, count: int = 3, **properties: str) -> TableRuntime:
    """A table with small files, looked at."""
    make_small_files(world.catalog, count, properties, name=f"db.{name}")
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
    optimizer = world.optimizer(3, group="nightly")
    with pytest.raises(IllegalState, match="'nightly' is used by 1 optimizer; it stays"):
        world.groups.remove("nightly")
    view = world.groups.get("nightly")
    assert (view.optimizers, view.threads, view.tables) == (1, 3, 1)
    world.optimizing.dismiss(optimizer, "done", lost=False)


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


def test_a_policy_that_is_plugged_in_orders_its_group_and_holds_nobody_up_where_it_fails(world: World) -> None:
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


def pending(world: World, name: str, **properties: str) -> int:
    """A table that waits for a plan."""
    runtime = made(world, name, 12, **ON, **properties)
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
    table = make_small_files(world.catalog, 12, properties=ON, name="db.many")
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
    table = make_small_files(world.catalog, 24, properties=properties)
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


# Instances kept through a container that does what the test says


#: An instance that is forgotten, but whose log is there.
ENDED = "01997a4c-0000-7000-8000-00000000000e"


@dataclass
class Yard:
    """A container whose instances end when the test says so, and what the service asked of it and of optimizers."""

    launches = True
    status_interval_s = 5.0
    alive: dict[str, Launch] = field(default_factory=dict)
    live: list[LiveOptimizer] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    broken: str = ""

    def check(self, properties: Mapping[str, str]) -> None:
        if "bad" in properties:
            raise InvalidArgument("bad is bad")

    def start(self, launch: Launch) -> str:
        if self.broken:
            raise AmoroError(self.broken)
        self.alive[launch.resource_id] = launch
        return f"handle-{len(self.alive)}"

    def status(self, resource: Resource) -> Observation:
        self.done.append("status")
        return Observation(Liveness.ALIVE if resource.resource_id in self.alive else Liveness.ENDED, "gone")

    def stop(self, resource: Resource, *, by_force: bool) -> None:
        self.done.append(f"stop {resource.handle} {by_force}")

    def logs(self, resource: Resource, lines: int) -> list[str]:
        self.done.append(f"logs {resource.resource_id}")
        said = [f"{resource.resource_id} began", "token=hidden", "it ended"]
        return said[-lines:] if resource.resource_id in self.alive or resource.resource_id == ENDED else []

    def drain(self, optimizer_id: str) -> None:
        self.done.append(f"drain {optimizer_id}")

    def list_optimizers(self) -> list[tuple[SimpleNamespace, SimpleNamespace]]:
        def told(one: LiveOptimizer) -> SimpleNamespace:
            labels = ((RESOURCE_LABEL, one.resource_id),)
            return SimpleNamespace(optimizer_id=one.optimizer_id, labels=labels, draining=one.is_draining)

        return [(told(one), SimpleNamespace(progress={})) for one in self.live]

    def dismiss(self, optimizer_id: str, reason: str, *, lost: bool) -> None:
        self.done.append(f"dismiss {optimizer_id}")
        self.live = [optimizer for optimizer in self.live if optimizer.optimizer_id != optimizer_id]

    def asked(self) -> list[str]:
        """What was asked since the last time, without questions."""
        asked, self.done = [item for item in self.done if item != "status"], []
        return asked


def service(world: World, yard: Yard) -> ContainerService:
    return ContainerService(
        world.store,
        lambda: world.now,
        {"external": ExternalContainer(world.home), "yard": yard},
        LaunchParameters(lambda: "here:1", Path("/token"), timedelta(seconds=10)),
        cast(Any, yard),
        cast(Any, yard),
        monotonic=lambda: world.seconds,
    )


@pytest.fixture
def yard() -> Yard:
    return Yard()


@pytest.fixture
def containers(world: World, yard: Yard) -> ContainerService:
    world.containers["yard"] = yard
    world.groups.create(ResourceGroup("g", properties=(("threads", "3"), ("memory", "64")), container="yard"))
    return service(world, yard)


def states(containers: ContainerService) -> list[str]:
    return [item.resource.state.value for item in containers.find("g").instances]


def register(yard: Yard) -> None:
    yard.live = [LiveOptimizer(f"o-{resource_id}", resource_id) for resource_id in yard.alive]


def end_all(world: World, yard: Yard) -> None:
    """Every instance has ended, and its container may be asked again."""
    yard.alive.clear()
    yard.live.clear()
    world.later(5)


@pytest.fixture
def started(containers: ContainerService) -> ContainerService:
    """One instance was started, and has not registered yet."""
    containers.scale("g", 1)
    containers.keep("g")
    return containers


@pytest.fixture
def running(yard: Yard, started: ContainerService) -> ContainerService:
    """One instance has registered."""
    register(yard)
    started.keep("g")
    return started


def test_a_group_is_scaled_out_and_in(world: World, yard: Yard, containers: ContainerService) -> None:
    assert containers.scale("g", 2).wanted == 2
    containers.keep("g")
    assert states(containers) == ["starting", "starting"]
    one, _ = yard.alive.values()
    assert (one.group, one.address, one.token_file, one.threads) == ("g", "here:1", Path("/token"), 3)
    assert (one.memory_bytes, one.heartbeat_interval) == (64 * 1024**2, timedelta(seconds=10))
    assert {item.resource.handle for item in containers.find("g").instances} == {"handle-1", "handle-2"}
    register(yard)
    containers.keep("g")
    assert states(containers) == ["running", "running"]
    optimizers = {one.optimizer_id: one for one in yard.live}
    assert {item.optimizer_id for item in containers.find("g").instances} == optimizers.keys()

    containers.scale("g", 1)
    containers.keep("g")
    (drained,) = yard.asked()
    assert sorted(states(containers)) == ["draining", "running"]
    gone = optimizers[drained.removeprefix("drain ")]
    del yard.alive[gone.resource_id]
    yard.live.remove(gone)
    world.later(5)
    containers.keep("g")
    assert states(containers) == ["running"]
    assert containers.find("g").failed_starts == 0


def test_the_container_is_asked_no_more_often_than_it_wants(
    world: World, yard: Yard, started: ContainerService
) -> None:
    for seconds in (0, 4.9, 0.1, 4.9):
        world.later(seconds)
        started.keep("g")
    assert yard.done == ["status", "status"]


def test_failed_starts_are_spread_and_then_given_up_until_somebody_scales(
    world: World, yard: Yard, containers: ContainerService
) -> None:
    yard.broken = "no room"
    containers.scale("g", 1)
    tried = []
    for second in range(60):
        before = containers.find("g").failed_starts
        containers.keep("g")
        if containers.find("g").failed_starts > before:
            tried.append(second)
        world.later(1)
    assert tried == [0, 1, 3, 7, 15]
    view = containers.find("g")
    assert (view.failed_starts, view.failure, view.has_given_up, view.instances) == (5, "no room", True, ())
    yard.broken = ""
    assert not containers.scale("g", 1).has_given_up
    containers.keep("g")
    assert states(containers) == ["starting"]
    (resource_id,) = yard.alive
    yard.alive.clear()
    world.later(5)
    containers.keep("g")
    assert containers.find("g").failure == f"gone (amoro optimizer logs {resource_id})"


def test_a_restarted_coordinator_adopts_what_runs_and_replaces_what_died(
    world: World, yard: Yard, running: ContainerService
) -> None:
    before, (held,) = running.find("g"), yard.live
    world.restart()
    again = service(world, yard)
    assert again.list_active_groups() == ["g"]
    again.keep("g")
    assert again.find("g") == before
    assert (len(yard.alive), yard.asked()) == (1, [])
    yard.alive.clear()
    world.later(60)
    again.keep("g")
    assert yard.asked() == [f"dismiss {held.optimizer_id}"]
    assert (states(again), again.find("g").failed_starts) == (["starting"], 0)


def test_instances_of_a_removed_group_are_closed_and_orphans_drained(
    world: World, yard: Yard, started: ContainerService
) -> None:
    register(yard)
    yard.live.append(LiveOptimizer("orphan", "01997a4c-0000-7000-8000-000000000001"))
    started.close_orphans()
    assert yard.asked() == ["drain orphan"]
    world.groups.remove("g")
    assert started.list_active_groups() == ["g"]
    started.keep("g")
    assert yard.asked() == [f"drain {yard.live[0].optimizer_id}"]
    end_all(world, yard)
    started.keep("g")
    assert started.list_active_groups() == []


@pytest.mark.parametrize(
    ("wrong", "container", "why"),
    [
        ({}, "moon", "unknown container 'moon'"),
        ({"bad": ""}, "yard", "bad is bad"),
        ({"min-instances": "1"}, "external", "min-instances needs a container"),
        ({"max-instances": "1"}, "external", "max-instances needs a container"),
        ({"max-instances": "0"}, "yard", "max-instances has the malformed value '0': it is a number from 1 to 1000"),
        ({"max-instances": "2", "min-instances": "3"}, "yard", "min-instances=3 is more than max-instances=2"),
        ({"idle-timeout": "1min"}, "yard", "idle-timeout needs max-instances"),
        ({"max-instances": "2", "idle-timeout": "-1 bytes"}, "yard", "idle-timeout has the malformed value '-1 bytes'"),
    ],
)
def test_a_group_that_can_not_be_kept_is_refused_with_the_value(
    containers: ContainerService, wrong: dict[str, str], container: str, why: str
) -> None:
    with pytest.raises(InvalidArgument, match=why):
        containers.check(ResourceGroup("h", properties=tuple(wrong.items()), container=container))


@pytest.mark.parametrize(
    ("group", "wanted", "why"),
    [
        ("default", 1, "'default' are started by hand"),
        ("g", 1001, "the number of instances must be from 0 to 1000, not 1001"),
        ("h", 0, "'h' does not exist"),
        ("least", 0, "keeps at least 1 instance "),
        ("most", 3, r"has at most 2 instances \(max-instances\), not 3"),
    ],
)
def test_what_can_not_be_scaled_is_refused(
    world: World, containers: ContainerService, group: str, wanted: int, why: str
) -> None:
    world.groups.create(ResourceGroup("least", properties=(("min-instances", "1"),), container="yard"))
    world.groups.create(ResourceGroup("most", properties=(("max-instances", "2"),), container="yard"))
    with pytest.raises(GroupNotFound if group == "h" else InvalidArgument, match=why):
        containers.scale(group, wanted)
    assert containers.find("least").wanted == 1


def test_on_demand_an_instance_comes_with_the_work_and_leaves_when_it_is_idle(world: World, yard: Yard) -> None:
    """The yard's optimizers register when the test says so, and one of them works on the table's tasks."""
    world.containers["yard"] = yard
    on_demand = (("idle-timeout", "20s"), ("max-instances", "2"), ("threads", "1"))
    world.groups.create(ResourceGroup("g", properties=on_demand, container="yard"))
    containers, quiet = service(world, yard), {"self-optimizing.group": "g"}
    assert (containers.list_active_groups(), containers.find("g").wanted) == ([], 0)
    make_small_files(world.catalog, 5, quiet)
    world.refresh()
    assert world.services.no_optimizer_reason("g") == ""
    process = world.begin(OptimizingType.MINOR)
    assert containers.list_active_groups() == ["g"]
    assert (
        world.services.no_optimizer_reason("g") == "container yard is starting 1 of at most 2 for group 'g' on demand"
    )
    containers.keep("g")
    (resource_id,) = yard.alive
    assert states(containers) == ["starting"]
    # A coordinator that begins anew starts no second one.
    world.restart()
    containers = service(world, yard)
    containers.keep("g")
    assert len(yard.alive) == 1

    optimizer = world.optimizer(1, group="g")
    yard.live = [LiveOptimizer(optimizer, resource_id)]
    (handed,) = world.optimizing.poll(optimizer, "g", (1,))
    world.optimizing.ack(optimizer, [handed.attempt])
    for _ in range(3):
        world.later(20)
        containers.keep("g")
    assert (states(containers), yard.asked()) == (["running"], [])  # it holds a task, whatever its heartbeats say
    world.complete(optimizer, handed.attempt, world.execute(handed))
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    for seconds in (0, 19.9):
        world.later(seconds)
        containers.keep("g")
    assert yard.asked() == []
    world.later(0.1)
    containers.keep("g")
    assert yard.asked() == [f"drain {optimizer}"]
    end_all(world, yard)
    containers.keep("g")
    assert (containers.list_active_groups(), containers.find("g").wanted) == ([], 0)
    (job,) = containers.jobs("g", Window(0)).items
    assert (job.resource.resource_id, job.resource.ended_at) == (resource_id, world.now)
    assert job.resource.cause == "it had no task for 20 s"


def test_a_killed_instance_is_replaced_and_jobs_are_the_latest_starts_with_the_causes_of_their_ends(
    world: World, yard: Yard, containers: ContainerService
) -> None:
    yard.broken = "no room"
    containers.scale("g", 1)
    containers.keep("g")
    yard.broken = ""
    world.later(1)
    containers.keep("g")
    register(yard)
    (optimizer,) = yard.live
    world.later(5)
    containers.keep("g")
    killed = containers.kill(optimizer.resource_id)
    assert killed.instance.resource.state is ResourceState.STOPPING
    assert yard.asked() == ["stop handle-1 True"]
    yard.alive.clear()
    world.later(5)
    containers.keep("g")
    assert yard.asked() == [f"dismiss {optimizer.optimizer_id}"], "what it held is given up"
    assert (states(containers), containers.find("g").failed_starts) == (["starting"], 1), "the first one alone"
    world.later(5)
    page = containers.jobs("g", Window(2))
    assert [one.resource.cause for one in page.items] == ["", "it was killed by a command"]
    assert [one.resource.ended_at is None for one in page.items] == [True, False]
    (first,) = containers.jobs("g", Window(2, page.next)).items
    assert (page.total, first.resource.cause) == (3, "no room")
    with pytest.raises(GroupNotFound):
        containers.jobs("h", Window(2))


def test_a_property_that_is_almost_a_known_one_is_taken_for_a_slip_and_those_for_people_and_tools_are_left_alone(
    containers: ContainerService,
) -> None:
    for key, meant in (("thred", "threads"), ("spark-mastr", "spark-master")):
        with pytest.raises(InvalidArgument, match=f"the property '{key}' is not known") as slip:
            containers.check(ResourceGroup("h", properties=((key, "1"),), container="yard"))
        assert slip.value.hint == f"Did you mean {meant}?"
    own = (("my-address", "x"), ("owner", "data"), ("spark-conf.spark.executor.cores", "2"), ("team.memory", "1"))
    containers.check(ResourceGroup("h", properties=own, container="yard"))


def test_an_instance_is_found_by_its_id_or_its_optimizers_and_its_container_asked(
    yard: Yard, started: ContainerService
) -> None:
    containers = started
    (resource_id,) = yard.alive
    yard.live = [LiveOptimizer("optimizer-1", resource_id)]
    yard.asked()
    for wanted in (resource_id, resource_id[:8], resource_id[-8:], "optimizer-1", "optimi"):
        found = containers.find_instance(wanted)
        assert (found.instance.resource.resource_id, found.instance.optimizer_id) == (resource_id, "optimizer-1")
        assert found.observed == Observation(Liveness.ALIVE, "gone")
    assert yard.done == ["status"] * 5
    with pytest.raises(InvalidArgument, match="'optim' is too short"):
        containers.find_instance("optim")
    with pytest.raises(OptimizerNotFound, match="no container has started an optimizer optimizer-2 that still runs"):
        containers.find_instance("optimizer-2")
    containers.scale("g", 2)
    containers.keep("g")
    yard.live += [LiveOptimizer("optimizer-2", other) for other in yard.alive if other != resource_id]
    with pytest.raises(InvalidArgument, match=r"more than one optimizer .* with 'optimizer': "):
        containers.kill("optimizer")
    assert yard.asked() == []


def test_an_instance_that_is_killed_while_it_is_started_is_ended_once_it_has_a_handle(
    world: World, yard: Yard, containers: ContainerService
) -> None:
    started = yard.start

    def start_slowly(launch: Launch) -> str:
        containers.kill(launch.resource_id)
        return started(launch)

    yard.start = start_slowly
    containers.scale("g", 1)
    containers.keep("g")
    assert (states(containers), yard.asked()) == (["stopping"], ["stop  True"])
    containers.scale("g", 0)
    world.later(31)
    containers.keep("g")
    assert yard.asked() == ["stop handle-1 True"]


def test_the_log_of_an_instance_is_shown_without_secrets_after_its_end_too(
    yard: Yard, started: ContainerService
) -> None:
    (resource_id,) = yard.alive
    assert started.logs(resource_id[:8], 3) == (resource_id, [f"{resource_id} began", "token=***", "it ended"])
    for ended in (resource_id, ENDED):
        assert started.logs(ended, 1) == (ended, ["it ended"])
    yard.asked()
    # Ids name files: what is no id is asked of nobody.
    unknown = ENDED[:-1] + "f"
    for wanted in (unknown, f"../{ENDED}", ENDED[:-1], ENDED.upper()):
        with pytest.raises(OptimizerNotFound):
            started.logs(wanted, 1)
    assert yard.asked() == [f"logs {unknown}"]
    for lines in (0, 10_001):
        with pytest.raises(InvalidArgument, match=f"the number of lines must be from 1 to 10000, not {lines}"):
            started.logs(resource_id, lines)


def test_two_gigabytes_converge_by_processes_of_500_mb(world: World) -> None:
    properties = {**ON, "self-optimizing.max-plan-bytes": "500MB", "write.parquet.compression-codec": "uncompressed"}
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "data", BinaryType()))
    table = writer.make_table(world.catalog, "db.t", schema, properties=properties)
    chance, written = random.Random(1), {}
    for first in range(0, 2100, 150):
        rows = {number: chance.randbytes(1_000_000) for number in range(first, first + 150)}
        written |= {number: crc32(data) for number, data in rows.items()}
        writer.append(table, pa.table({"id": [*rows], "data": [*rows.values()]}), 10, layout=Layout(codec="none"))
    sizes: list[int] = []
    while world.refresh().status is OptimizingStatus.PENDING:
        sizes.append(sum(task.input_bytes for task in world.tasks(optimized_by_the_clock(world))))
        assert len(sizes) < 20
    assert sum(sizes) >= 2_000_000_000
    assert max(sizes) <= 500 * 2**20
    assert world.table().summary.fragment_files == 0
    left: list[tuple[int, int]] = []
    for task in table.refresh().scan().plan_files():
        for batch in pq.ParquetFile(task.file.file_path.removeprefix("file://")).iter_batches(8):
            left += [(one["id"], crc32(one["data"])) for one in batch.to_pylist()]
    assert sorted(left) == sorted(written.items())
    rmtree(table.location().removeprefix("file://"))


def test_class_9_runs_within_nine_agings_beside_a_stream_of_class_0(world: World) -> None:
    world.groups.update("default", GroupChange("priority", {"priority-aging": "10s"}))
    optimizer = world.optimizer(threads=1)
    last = begun(world, "last", **priority(9))
    planned_at, number = world.now, 0
    while True:
        # Two urgent tables for each task of seven seconds: the queue of class 0 never runs dry.
        for _ in range(2):
            begun(world, f"t{number}", **priority(0))
            number += 1
        handed = world.take(optimizer)
        if handed.attempt.task_id.process_id == last:
            break
        world.later(7)
        world.complete(optimizer, handed.attempt, world.execute(handed))
        assert world.now - planned_at <= timedelta(seconds=90 + 7)
    assert world.now - planned_at >= timedelta(seconds=84), "not before its time"
