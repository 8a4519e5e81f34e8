"""Instances kept through a container that does what the test says, over a real store and with a clock set by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from amoro_core.containers.base import ExternalContainer
from amoro_core.errors import AmoroError, GroupNotFound, InvalidArgument, OptimizerNotFound
from amoro_core.model.group_config import RESOURCE_LABEL, Launch, Liveness, Observation, Resource, ResourceState
from amoro_core.model.paging import Window
from amoro_core.model.processes import ProcessStatus, ResourceGroup
from amoro_core.model.tables import OptimizingType
from amoro_core.scheduling.scaling import LiveOptimizer
from amoro_core.services.containers import ContainerService, LaunchParameters
from tests.services.world import World, make_small_files

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
    world: World, yard: Yard, started: ContainerService
) -> None:
    (resource_id,) = yard.alive
    yard.alive.clear()
    world.later(5)
    started.keep("g")
    assert started.find("g").failure == f"gone (amoro optimizer logs {resource_id})"
    containers = started
    containers.scale("g", 0)
    containers.keep("g")
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
    containers = started
    register(yard)
    yard.live.append(LiveOptimizer("orphan", "01997a4c-0000-7000-8000-000000000001"))
    containers.close_orphans()
    assert yard.asked() == ["drain orphan"]
    world.groups.remove("g")
    assert containers.list_active_groups() == ["g"]
    containers.keep("g")
    assert yard.asked() == [f"drain {yard.live[0].optimizer_id}"]
    yard.alive.clear()
    yard.live.clear()
    world.later(5)
    containers.keep("g")
    assert containers.list_active_groups() == []


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

    beat = timedelta(seconds=10)
    registered = world.optimizers.register(group="g", threads=1, memory_bytes=1, labels={}, heartbeat_interval=beat)
    optimizer = registered.optimizer.optimizer_id
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
    yard.alive.clear()
    yard.live.clear()
    world.later(5)
    containers.keep("g")
    assert (containers.list_active_groups(), containers.find("g").wanted) == ([], 0)
    (job,) = containers.jobs("g", Window(0)).items
    assert (job.resource.resource_id, job.resource.ended_at) == (resource_id, world.now)
    assert job.resource.cause == "it had no task for 20 s"


def test_jobs_are_the_latest_starts_with_the_causes_of_their_ends(
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
    containers.kill(optimizer.resource_id)
    yard.alive.clear()
    yard.live.clear()
    world.later(5)
    containers.keep("g")
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
    world: World, yard: Yard, containers: ContainerService
) -> None:
    containers.scale("g", 1)
    containers.keep("g")
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


def test_a_killed_instance_is_ended_by_force_and_replaced_and_what_it_held_given_up(
    world: World, yard: Yard, running: ContainerService
) -> None:
    (optimizer,) = yard.live
    killed = running.kill(optimizer.resource_id)
    assert killed.instance.resource.state is ResourceState.STOPPING
    assert yard.asked() == ["stop handle-1 True"]
    yard.alive.clear()
    world.later(1)
    running.keep("g")
    assert yard.asked() == [f"dismiss {optimizer.optimizer_id}"]
    assert (states(running), running.find("g").failed_starts) == (["starting"], 0)


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
    containers = started
    (resource_id,) = yard.alive
    assert containers.logs(resource_id[:8], 3) == (resource_id, [f"{resource_id} began", "token=***", "it ended"])
    assert containers.logs(resource_id, 1) == (resource_id, ["it ended"])
    assert containers.logs(ENDED, 1) == (ENDED, ["it ended"])
    yard.asked()
    # Ids name files: what is no id is asked of nobody.
    unknown = ENDED[:-1] + "f"
    for wanted in (unknown, f"../{ENDED}", ENDED[:-1], ENDED.upper()):
        with pytest.raises(OptimizerNotFound):
            containers.logs(wanted, 1)
    assert yard.asked() == [f"logs {unknown}"]
    for lines in (0, 10_001):
        with pytest.raises(InvalidArgument, match=f"the number of lines must be from 1 to 10000, not {lines}"):
            containers.logs(resource_id, lines)
