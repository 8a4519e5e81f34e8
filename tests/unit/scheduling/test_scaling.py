"""What is done about a group's instances: every rule by itself."""

from datetime import UTC, datetime, timedelta

import pytest

from amoro_core.model.containers import Liveness, Observation, Resource, ResourceState, Scaling, ScalingConfig
from amoro_core.scheduling.scaling import (
    LAST_WAIT,
    SETTLED,
    STOP_AGAIN,
    Action,
    Drain,
    Forget,
    LiveOptimizer,
    Note,
    Settle,
    Start,
    Stop,
    Target,
    decide,
    failed,
    orphans,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
TICK = timedelta(milliseconds=1)
CONFIG = ScalingConfig()
STARTING, RUNNING, DRAINING, STOPPING = ResourceState
ALIVE, ENDED = Observation(Liveness.ALIVE), Observation(Liveness.ENDED, "exit 1")


def instance(name: str, state: ResourceState, age: timedelta = timedelta(0), container: str = "local") -> Resource:
    return Resource(name, "g", container, state, NOW - timedelta(hours=1) - age, NOW - age)


def target(
    instances: int, failures: int = 0, retry_at: datetime | None = None, config: ScalingConfig = CONFIG
) -> Target:
    return Target("local", Scaling(instances, failures, retry_at), config)


def decided(
    wanted: Target | None, *resources: Resource, live: tuple[LiveOptimizer, ...] = (), ended: str = ""
) -> list[Action]:
    observed = {item.resource_id: ENDED if item.resource_id == ended else ALIVE for item in resources}
    return decide(wanted, resources, live, observed, NOW)


def test_what_is_missing_is_started() -> None:
    assert decided(target(2)) == [Start(), Start()]
    assert decided(target(2), instance("a", STARTING)) == [Start()]
    assert decided(target(2), instance("a", STARTING), instance("b", STARTING)) == []


def test_the_minimum_is_kept_whatever_was_wanted() -> None:
    assert decided(target(0, config=ScalingConfig(min_instances=1))) == [Start()]


def test_an_instance_runs_once_its_optimizer_is_registered() -> None:
    assert decided(target(1), instance("a", STARTING), live=(LiveOptimizer("o", "a"),)) == [Note("a", RUNNING)]
    assert decided(target(1), instance("a", RUNNING), live=(LiveOptimizer("o", "a"),)) == []


def test_what_leaves_first_is_not_registered_then_idle_then_new() -> None:
    old, new = instance("old", RUNNING, 3 * SETTLED), instance("new", RUNNING, SETTLED)
    idle, begun = instance("idle", RUNNING, 5 * SETTLED), instance("begun", STARTING)
    all_four = (idle, old, new, begun)
    live = (LiveOptimizer("o-idle", "idle"), LiveOptimizer("o-old", "old", 1), LiveOptimizer("o-new", "new", 1))
    leaving = [decided(target(count), *all_four, live=live) for count in (3, 2, 1, 0)]
    order: list[Action] = [Stop("begun", False), Drain("o-idle", "idle"), Drain("o-new", "new"), Drain("o-old", "old")]
    assert leaving == [order[:count] for count in (1, 2, 3, 4)]


def test_what_drains_counts_no_more_and_is_replaced() -> None:
    live = (LiveOptimizer("o", "a", 1, is_draining=True),)
    assert decided(target(1), instance("a", DRAINING), live=live) == [Start()]
    # Drained by somebody else.
    assert decided(target(1), instance("a", RUNNING), live=live) == [Drain("o", "a"), Start()]


def test_who_registers_anew_while_it_drains_is_told_again() -> None:
    assert decided(target(0), instance("a", DRAINING), live=(LiveOptimizer("o", "a"),)) == [Drain("o", "a")]


def test_draining_ends_by_force_after_its_time() -> None:
    limit = CONFIG.drain_timeout
    assert decided(target(0), instance("a", DRAINING, limit)) == []
    assert decided(target(0), instance("a", DRAINING, limit + TICK)) == [Stop("a", True)]
    assert decided(target(0), instance("a", STOPPING, STOP_AGAIN)) == []
    assert decided(target(0), instance("a", STOPPING, STOP_AGAIN + TICK)) == [Stop("a", True)]


def test_who_does_not_register_in_time_is_a_failed_start() -> None:
    limit = CONFIG.start_timeout
    assert decided(target(1), instance("a", STARTING, limit)) == []
    said = "its optimizer did not register within 180 s"
    # Nothing is started in the same pass: the wait counts from this failure.
    assert decided(target(2), instance("a", STARTING, limit + TICK)) == [Stop("a", True, said)]


def test_who_is_not_heard_of_any_more_has_the_time_of_a_start_to_register_anew() -> None:
    assert decided(target(1), instance("a", RUNNING, SETTLED)) == [Note("a", STARTING)]


@pytest.mark.parametrize(
    ("state", "age", "failure"),
    [
        (STARTING, timedelta(0), "exit 1"),
        (RUNNING, SETTLED - TICK, "exit 1"),
        (RUNNING, SETTLED, ""),
        (DRAINING, timedelta(0), ""),
        (STOPPING, timedelta(0), ""),
    ],
)
def test_what_has_ended_is_forgotten_and_counts_as_failed_when_it_was_short_and_unwanted(
    state: ResourceState, age: timedelta, failure: str
) -> None:
    actions = decided(target(1), instance("a", state, age), ended="a")
    assert actions == [Forget("a", "", failure), *([] if failure else [Start()])]


def test_what_an_ended_instance_still_held_is_given_up() -> None:
    assert decided(target(0), instance("a", DRAINING), live=(LiveOptimizer("o", "a"),), ended="a") == [
        Forget("a", "o", "")
    ]


def test_after_a_failure_one_is_tried_at_a_time_and_only_after_the_wait() -> None:
    assert decided(target(3, 1, NOW + TICK)) == []
    assert decided(target(3, 1, NOW)) == [Start()]
    assert decided(target(3, 1, NOW), instance("a", STARTING)) == []
    assert decided(target(3, 1, NOW), instance("a", RUNNING), live=(LiveOptimizer("o", "a"),)) == [Start()]


def test_after_too_many_failures_nothing_is_started() -> None:
    limited = ScalingConfig(max_failed_starts=2)
    assert decided(target(1, 1, NOW, limited)) == [Start()]
    assert decided(target(1, 2, NOW, limited)) == []


def test_failures_are_forgotten_once_an_instance_has_run_for_a_while() -> None:
    live = (LiveOptimizer("o", "a"),)
    assert decided(target(1, 3, NOW), instance("a", RUNNING, SETTLED - TICK), live=live) == []
    assert decided(target(1, 3, NOW), instance("a", RUNNING, SETTLED), live=live) == [Settle()]
    assert decided(target(1, 0), instance("a", RUNNING, SETTLED), live=live) == []


def test_instances_of_a_group_that_is_gone_are_closed() -> None:
    found = decided(None, instance("a", RUNNING), instance("b", STARTING), live=(LiveOptimizer("o", "a"),))
    assert found == [Drain("o", "a"), Stop("b", False)]


def test_instances_of_the_container_that_a_group_had_before_are_replaced() -> None:
    before = instance("a", RUNNING, container="spark")
    assert decided(target(1), before, live=(LiveOptimizer("o", "a"),)) == [Drain("o", "a"), Start()]


def test_what_can_not_be_told_is_waited_for() -> None:
    unknown = {"a": Observation(Liveness.UNKNOWN)}
    assert decide(target(1), [instance("a", RUNNING)], [LiveOptimizer("o", "a")], unknown, NOW) == []
    assert decide(target(1), [instance("a", STARTING)], [], {}, NOW) == []


def test_the_wait_doubles_up_to_its_limit() -> None:
    waits = [failed(Scaling(1, before), NOW) for before in (0, 1, 2, 3, 30)]
    seconds = (1, 2, 4, 8, LAST_WAIT.total_seconds())
    assert waits == [
        (before + 1, NOW + timedelta(seconds=wait)) for before, wait in zip((0, 1, 2, 3, 30), seconds, strict=True)
    ]


def test_only_unknown_resources_with_ids_like_ours_are_orphans() -> None:
    ours, lost = "01997a4c-0000-7000-8000-000000000001", "01997a4c-0000-7000-8000-000000000002"
    live = [
        LiveOptimizer("o1", ours),
        LiveOptimizer("o2", lost),
        LiveOptimizer("o3", "by-optimizer"),
        LiveOptimizer("o4", lost, is_draining=True),
    ]
    assert orphans({ours}, live) == [Drain("o2", lost)]
    assert orphans((), [LiveOptimizer("o5", "0b9f2f3e-4c3a-4d5e-9f5e-0123456789ab")]) == []
