"""Scaling of a group's instances, groups without optimizers, and refresh intervals of tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amoro_core.model.group_config import (
    EXTERNAL,
    InstancesView,
    Liveness,
    Observation,
    Resource,
    ResourceState,
    Scaling,
    ScalingConfig,
)
from amoro_core.model.optimizing_config import OptimizingConfig, parse_config
from amoro_core.scheduling.policy import refresh_interval
from amoro_core.scheduling.scaling import (
    LAST_WAIT,
    SETTLED,
    STOP_AGAIN,
    Action,
    Drain,
    Forget,
    LiveOptimizer,
    Member,
    Note,
    Settle,
    Start,
    Stop,
    Target,
    decide,
    failed,
    missing_kinds_reason,
    no_optimizer_reason,
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


A_LIVES, A_DRAINS = (LiveOptimizer("o", "a"),), (LiveOptimizer("o", "a", 1, is_draining=True),)
DRAIN_LIMIT, START_LIMIT = CONFIG.drain_timeout, CONFIG.start_timeout
LATE = "its optimizer did not register within 180 s"


@pytest.mark.parametrize(
    ("wanted", "resources", "live", "actions"),
    [
        # What is missing is started; the minimum is kept whatever was wanted.
        (target(2), [], (), [Start(), Start()]),
        (target(2), [instance("a", STARTING)], (), [Start()]),
        (target(2), [instance("a", STARTING), instance("b", STARTING)], (), []),
        (target(0, config=ScalingConfig(min_instances=1)), [], (), [Start()]),
        # An instance runs once its optimizer is registered, which has its time.
        (target(1), [instance("a", STARTING)], A_LIVES, [Note("a", RUNNING)]),
        (target(1), [instance("a", RUNNING)], A_LIVES, []),
        (target(1), [instance("a", STARTING, START_LIMIT)], (), []),
        (target(2), [instance("a", STARTING, START_LIMIT + TICK)], (), [Stop("a", True, LATE)]),
        (target(1), [instance("a", RUNNING, SETTLED)], (), [Note("a", STARTING)]),  # it is not heard of any more
        # What drains counts no more and is replaced, whoever drained it; it is told again when it registers anew.
        (target(1), [instance("a", DRAINING)], A_DRAINS, [Start()]),
        (target(1), [instance("a", RUNNING)], A_DRAINS, [Drain("o", "a"), Start()]),
        (target(0), [instance("a", DRAINING)], A_LIVES, [Drain("o", "a")]),
        # Draining ends by force after its time.
        (target(0), [instance("a", DRAINING, DRAIN_LIMIT)], (), []),
        (target(0), [instance("a", DRAINING, DRAIN_LIMIT + TICK)], (), [Stop("a", True)]),
        (target(0), [instance("a", STOPPING, STOP_AGAIN)], (), []),
        (target(0), [instance("a", STOPPING, STOP_AGAIN + TICK)], (), [Stop("a", True)]),
        # After a failure one is tried at a time and only after the wait; after too many nothing is started.
        (target(3, 1, NOW + TICK), [], (), []),
        (target(3, 1, NOW), [], (), [Start()]),
        (target(3, 1, NOW), [instance("a", STARTING)], (), []),
        (target(3, 1, NOW), [instance("a", RUNNING)], A_LIVES, [Start()]),
        (target(1, 1, NOW, ScalingConfig(max_failed_starts=2)), [], (), [Start()]),
        (target(1, 2, NOW, ScalingConfig(max_failed_starts=2)), [], (), []),
        # Failures are forgotten once an instance has run for a while.
        (target(1, 3, NOW), [instance("a", RUNNING, SETTLED - TICK)], A_LIVES, []),
        (target(1, 3, NOW), [instance("a", RUNNING, SETTLED)], A_LIVES, [Settle()]),
        (target(1, 0), [instance("a", RUNNING, SETTLED)], A_LIVES, []),
        # Instances of a group that is gone are closed, those of the container that it had before replaced.
        (None, [instance("a", RUNNING), instance("b", STARTING)], A_LIVES, [Drain("o", "a"), Stop("b", False)]),
        (target(1), [instance("a", RUNNING, container="spark")], A_LIVES, [Drain("o", "a"), Start()]),
    ],
)  # fmt: skip
def test_what_is_done_about_the_instances_of_a_group(
    wanted: Target | None, resources: list[Resource], live: tuple[LiveOptimizer, ...], actions: list[Action]
) -> None:
    assert decided(wanted, *resources, live=live) == actions


def test_what_leaves_first_is_not_registered_then_idle_then_new() -> None:
    old, new = instance("old", RUNNING, 3 * SETTLED), instance("new", RUNNING, SETTLED)
    idle, begun = instance("idle", RUNNING, 5 * SETTLED), instance("begun", STARTING)
    all_four = (idle, old, new, begun)
    live = (LiveOptimizer("o-idle", "idle"), LiveOptimizer("o-old", "old", 1), LiveOptimizer("o-new", "new", 1))
    leaving = [decided(target(count), *all_four, live=live) for count in (3, 2, 1, 0)]
    order: list[Action] = [Stop("begun", False), Drain("o-idle", "idle"), Drain("o-new", "new"), Drain("o-old", "old")]
    assert leaving == [order[:count] for count in (1, 2, 3, 4)]


MINUTES_5 = ScalingConfig().idle_timeout
AT_MOST_2 = ScalingConfig(threads=2, max_instances=2)


def on_demand(waiting: int, resident: int = 0, failures: int = 0) -> Target:
    """At most two instances of two threads; so many tasks wait."""
    return Target("local", Scaling(resident, failures, NOW), AT_MOST_2, waiting)


def at_work(name: str, running: int = 1) -> LiveOptimizer:
    return LiveOptimizer(f"o-{name}", name, running)


def idle(name: str, since: timedelta = MINUTES_5) -> LiveOptimizer:
    return LiveOptimizer(f"o-{name}", name, idle=since)


A, B = instance("a", RUNNING, 2 * SETTLED), instance("b", RUNNING, SETTLED)


@pytest.mark.parametrize(
    ("wanted", "resources", "live", "actions"),
    [
        # Without work nothing is started, but for what is always kept; with work as many as have the threads for it.
        (on_demand(0), [], (), []),
        (on_demand(0, resident=1), [], (), [Start()]),
        (on_demand(1), [], (), [Start()]),
        (on_demand(3), [], (), [Start(), Start()]),
        (on_demand(100, resident=5), [], (), [Start(), Start()]),
        (on_demand(2), [instance("a", STARTING)], (), []),
        (on_demand(1), [A], (at_work("a", 1),), []),
        (on_demand(1), [A], (at_work("a", 2),), [Start()]),
        # What leaves runs still: there are never more than the maximum.
        (on_demand(9), [A, instance("b", DRAINING)], (at_work("a", 2), LiveOptimizer("o-b", "b", 1, True)), []),
        (on_demand(9), [instance("a", STOPPING), instance("b", STOPPING)], (), []),
        # Idle ones leave after their time and never with work, whatever is wanted.
        (on_demand(0), [A], (idle("a", MINUTES_5 - TICK),), []),
        (on_demand(0), [A], (idle("a"),), [Drain("o-a", "a")]),
        (on_demand(0), [A], (LiveOptimizer("o-a", "a", 1, idle=MINUTES_5),), []),
        (on_demand(0), [A, B], (at_work("a"), idle("b")), [Drain("o-b", "b")]),
        (on_demand(3), [A, B], (idle("a"), idle("b")), []),
        (on_demand(0), [instance("a", STARTING)], (), []),
        # One that ran and leaves shows that starts work.
        (on_demand(0, failures=2), [B], (idle("b"),), [Drain("o-b", "b"), Settle()]),
    ],
)  # fmt: skip
def test_on_demand_instances_follow_the_work(
    wanted: Target, resources: list[Resource], live: tuple[LiveOptimizer, ...], actions: list[Action]
) -> None:
    assert decided(wanted, *resources, live=live) == actions


@given(
    waiting=st.integers(0, 9),
    resident=st.integers(0, 3),
    failures=st.integers(0, 3),
    states=st.lists(
        st.tuples(st.sampled_from(ResourceState), st.booleans(), st.integers(0, 2), st.booleans()), max_size=4
    ),
)
def test_on_demand_there_are_never_more_than_the_maximum_and_work_is_never_ended(
    waiting: int, resident: int, failures: int, states: list[tuple[ResourceState, bool, int, bool]]
) -> None:
    found = [instance(str(at), state, SETTLED) for at, (state, *_) in enumerate(states)]
    live = tuple(
        LiveOptimizer(f"o-{at}", str(at), running, idle=MINUTES_5)
        for at, (_, is_live, running, _) in enumerate(states)
        if is_live
    )
    ended = next((str(at) for at, (*_, has_ended) in enumerate(states) if has_ended), "")
    actions = decided(on_demand(waiting, resident, failures), *found, live=live, ended=ended)
    gone = sum(isinstance(action, Forget) for action in actions)
    starts = sum(isinstance(action, Start) for action in actions)
    assert starts == 0 or len(found) - gone + starts <= 2
    busy = {
        str(at) for at, (state, is_live, running, _) in enumerate(states) if state is RUNNING and is_live and running
    }
    assert not any(isinstance(one, Stop | Drain) and one.resource_id in busy for one in actions)


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


def test_what_an_ended_instance_held_is_given_up_and_what_can_not_be_told_waited_for() -> None:
    assert decided(target(0), instance("a", DRAINING), live=(LiveOptimizer("o", "a"),), ended="a") == [
        Forget("a", "o", "")
    ]
    unknown = {"a": Observation(Liveness.UNKNOWN)}
    assert decide(target(1), [instance("a", RUNNING)], [LiveOptimizer("o", "a")], unknown, NOW) == []
    assert decide(target(1), [instance("a", STARTING)], [], {}, NOW) == []


def test_failed_starts_wait_twice_as_long_each_and_orphans_are_those_with_ids_like_ours() -> None:
    waits = [failed(Scaling(1, before), NOW) for before in (0, 1, 2, 3, 30)]
    seconds = (1, 2, 4, 8, LAST_WAIT.total_seconds())
    assert waits == [
        (before + 1, NOW + timedelta(seconds=wait)) for before, wait in zip((0, 1, 2, 3, 30), seconds, strict=True)
    ]
    ours, lost = "01997a4c-0000-7000-8000-000000000001", "01997a4c-0000-7000-8000-000000000002"
    live = [
        LiveOptimizer("o1", ours),
        LiveOptimizer("o2", lost),
        LiveOptimizer("o3", "by-optimizer"),
        LiveOptimizer("o4", lost, is_draining=True),
    ]
    assert orphans({ours}, live) == [Drain("o2", lost)]
    assert orphans((), [LiveOptimizer("o5", "0b9f2f3e-4c3a-4d5e-9f5e-0123456789ab")]) == []


# Groups whose optimizers take nothing


def kept(wanted: int = 0, failed_starts: int = 0, failure: str = "", has_given_up: bool = False) -> InstancesView:
    return InstancesView(wanted, (), failed_starts, None, failure, has_given_up)


BUSY, LEAVING, UNHEARD = Member(), Member(is_draining=True), Member(is_heard=False)


@pytest.mark.parametrize(
    ("members", "why"),
    [
        *(((*others, BUSY), "") for others in ((), (LEAVING,), (UNHEARD,))),
        ((), "group 'g' has no optimizer"),
        ((LEAVING, LEAVING), "every optimizer of group 'g' is draining"),
        ((UNHEARD,), "no optimizer of group 'g' has reported since the coordinator started"),
        ((LEAVING, UNHEARD), "no optimizer of group 'g' has reported since the coordinator started"),
    ],
)
def test_a_group_whose_optimizers_take_nothing_says_why(members: tuple[Member, ...], why: str) -> None:
    told = f"{why}: start one with amoro optimizer run --group g" if why else ""
    assert no_optimizer_reason("g", EXTERNAL, members, kept()) == told


def test_a_kind_of_work_that_only_draining_optimizers_know_waits_by_its_name() -> None:
    members = (Member(kinds=("rewrite",)), Member(is_draining=True, kinds=("list", "rewrite")))
    assert missing_kinds_reason("g", members, ("rewrite",)) == ""
    assert missing_kinds_reason("g", members, ("rewrite", "list", "delete")) == (
        "no optimizer of group 'g' takes work of the kind delete, list: update one of them, or start one that does "
        "with amoro optimizer run --group g"
    )
    assert missing_kinds_reason("g", members, ("procedure:hudi", "procedure:paimon")) == (
        "no optimizer of group 'g' has the jar of Hudi and of Paimon: start one with amoro optimizer run --group g "
        "--backend spark --jars FILE, or give the group's Spark container spark-jars=FILE"
    )


# Intervals of looks at tables


S, MS = timedelta(seconds=1), timedelta(milliseconds=1)
KEY = "self-optimizing.refresh-table.adaptive."


def test_table_has_its_own_longest_interval_and_step() -> None:
    config = parse_config({f"{KEY}max-interval-ms": "3600000", f"{KEY}increase-step-ms": "600000"})
    assert refresh_interval(59 * S, config) == 60 * S
    assert refresh_interval(60 * S, config) == 660 * S
    assert refresh_interval(10**6 * S, config) == 3600 * S


@settings(max_examples=200, deadline=None, derandomize=True)
@given(quiet=st.integers(0, 10**6), base=st.integers(1, 1000), step=st.integers(1, 3000), longest=st.integers(0, 9000))
def test_interval_is_the_one_that_looking_again_and_again_comes_to(
    quiet: int, base: int, step: int, longest: int
) -> None:
    config = OptimizingConfig(refresh_increase_step=step * MS)
    found = refresh_interval(quiet * MS, config, base * MS, longest * MS)
    interval, most = base, max(base, longest)
    while quiet >= interval and interval < most:
        quiet -= interval
        interval += step
    assert found == min(interval, most) * MS
