"""Scaling of a group: actions derived from the target, the started instances and the registered optimizers."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from amoro_core.documents.formatting import many
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
from amoro_core.model.task_payload import PROCEDURES

#: An instance that ends by itself before its optimizer was registered for this long is a failed start.
SETTLED = timedelta(minutes=1)
#: Between two attempts to kill an instance.
STOP_AGAIN = timedelta(seconds=30)
FIRST_WAIT = timedelta(seconds=1)
LAST_WAIT = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a group."""

    container: str
    scaling: Scaling
    config: ScalingConfig
    waiting: int = 0  # tasks for which instances are started on demand

    def instances(self, running: int = 0) -> int:
        """How many instances the group should have, while those that it has run so many tasks."""
        least, most = max(self.scaling.instances, self.config.min_instances), self.config.max_instances
        if most is None:
            return least
        return min(most, max(least, -(-(self.waiting + running) // self.config.threads_of_each)))

    @property
    def has_given_up(self) -> bool:
        """Whether too many starts failed in a row: nothing is started until the group is scaled again."""
        return self.scaling.failed_starts >= self.config.max_failed_starts


@dataclass(frozen=True, slots=True)
class LiveOptimizer:
    """A registered optimizer with the id of the resource it was started as."""

    optimizer_id: str
    resource_id: str
    running: int = 0  # attempts, as last reported
    is_draining: bool = False
    idle: timedelta = timedelta()  # for how long it has run nothing


@dataclass(frozen=True, slots=True)
class Start:
    """Start one more instance."""


@dataclass(frozen=True, slots=True)
class Note:
    """Record the instance's new state; nothing else is done."""

    resource_id: str
    state: ResourceState


@dataclass(frozen=True, slots=True)
class Drain:
    """Drain the optimizer: it finishes its tasks and leaves."""

    optimizer_id: str
    resource_id: str
    cause: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the instance, gracefully or by force. With a failure it counts as a failed start."""

    resource_id: str
    by_force: bool
    failure: str = ""
    cause: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Forget:
    """Forget an instance that has ended; tasks that its optimizer still holds go to others."""

    resource_id: str
    optimizer_id: str = ""
    failure: str = ""
    cause: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Settle:
    """Reset the count of failed starts: instances of the group run."""


Action = Start | Note | Drain | Stop | Forget | Settle


def decide(
    target: Target | None,
    resources: Sequence[Resource],
    live: Iterable[LiveOptimizer],
    observed: Mapping[str, Observation],
    now: datetime,
) -> list[Action]:
    """The actions for a group's instances now, in this order; `target` None: the group was removed."""
    by_resource = {optimizer.resource_id: optimizer for optimizer in live}
    actions: list[Action] = []
    staying: list[Resource] = []
    for resource in resources:
        optimizer = by_resource.get(resource.resource_id)
        action = _each(resource, optimizer, observed.get(resource.resource_id), target, now)
        if action is not None:
            actions.append(action)
        if not isinstance(action, Forget | Stop | Drain) and resource.state in STAYING:
            staying.append(resource)
    fitting = [resource for resource in staying if target is not None and resource.container == target.container]
    cause = "its group was removed" if target is None else "its group has another container"
    actions += [_leave(item, by_resource.get(item.resource_id), cause) for item in staying if item not in fitting]
    if target is None:
        return actions
    wanted = target.instances(sum(max(0, _cost(by_resource.get(item.resource_id))) for item in fitting))
    newest_first = sorted(fitting, key=lambda item: (item.started_at, item.resource_id), reverse=True)
    candidates = sorted(newest_first, key=lambda item: _cost(by_resource.get(item.resource_id)))
    most, limit = target.config.max_instances, target.config.idle_timeout
    missing, cause = wanted - len(fitting), "its group was scaled in"
    if most is not None:
        candidates = [item for item in candidates if _is_idle(by_resource.get(item.resource_id), limit)]
        cause = f"it had no task for {limit.total_seconds():g} s"
        # What was asked to leave still runs.
        missing = min(missing, most - len(resources) + sum(isinstance(action, Forget) for action in actions))
    chosen = candidates[: max(0, len(fitting) - wanted)]
    actions += [_leave(item, by_resource.get(item.resource_id), cause) for item in chosen]
    settled = min(SETTLED, limit)
    if target.scaling.failed_starts and any(_is_settled(item, by_resource, now - settled) for item in fitting):
        actions.append(Settle())
    failed = any(isinstance(action, Stop | Forget) and action.failure for action in actions)
    return [*actions, *([] if failed else _starts(target, missing, fitting, by_resource, now))]


def orphans(stored: Collection[str], live: Iterable[LiveOptimizer]) -> list[Drain]:
    """Drains of optimizers started as an unknown resource, as after a restored backup; only for ids in our format."""
    return [
        Drain(optimizer.optimizer_id, optimizer.resource_id)
        for optimizer in live
        if not optimizer.is_draining and optimizer.resource_id not in stored and is_resource_id(optimizer.resource_id)
    ]


def failed(scaling: Scaling, now: datetime) -> tuple[int, datetime]:
    """The number of failed starts after one more, and the end of the back-off: 1 s, doubling to 5 min."""
    count = scaling.failed_starts + 1
    return count, now + min(FIRST_WAIT * 2 ** min(count - 1, 20), LAST_WAIT)


STAYING = (ResourceState.STARTING, ResourceState.RUNNING)


def _each(
    resource: Resource,
    optimizer: LiveOptimizer | None,
    observed: Observation | None,
    target: Target | None,
    now: datetime,
) -> Action | None:
    """The action that an instance's own state requires, regardless of the others."""
    config = ScalingConfig() if target is None else target.config
    age = now - resource.since
    if observed is not None and observed.liveness is Liveness.ENDED:
        failure = _failure(resource, observed, now)
        cause = failure or resource.cause or observed.detail
        return Forget(resource.resource_id, optimizer.optimizer_id if optimizer else "", failure, cause)
    match resource.state:
        case ResourceState.STARTING | ResourceState.RUNNING if optimizer is not None and optimizer.is_draining:
            return Drain(optimizer.optimizer_id, resource.resource_id, "it was drained by a command")
        case ResourceState.STARTING if optimizer is not None:
            return Note(resource.resource_id, ResourceState.RUNNING)
        case ResourceState.STARTING if age > config.start_timeout:
            reason = f"its optimizer did not register within {config.start_timeout.total_seconds():g} s"
            return Stop(resource.resource_id, True, reason, reason)
        case ResourceState.RUNNING if optimizer is None:
            # It no longer reports: it has the time of a start to register again.
            return Note(resource.resource_id, ResourceState.STARTING)
        case ResourceState.DRAINING if age > config.drain_timeout:
            return Stop(resource.resource_id, True)
        case ResourceState.DRAINING if optimizer is not None and not optimizer.is_draining:
            # It registered again, or only after it was asked to leave.
            return Drain(optimizer.optimizer_id, resource.resource_id)
        case ResourceState.STOPPING if age > STOP_AGAIN:
            return Stop(resource.resource_id, True)
    return None


def _failure(resource: Resource, observed: Observation, now: datetime) -> str:
    """Why the end of the instance is a failed start; empty when it was requested, or came after a while of work."""
    has_begun = resource.state is ResourceState.STARTING
    is_short = resource.state is ResourceState.RUNNING and now - resource.since < SETTLED
    return (observed.detail or "it has ended") if has_begun or is_short else ""


def _leave(resource: Resource, optimizer: LiveOptimizer | None, cause: str) -> Drain | Stop:
    if optimizer is None:
        return Stop(resource.resource_id, False, cause=cause)
    return Drain(optimizer.optimizer_id, resource.resource_id, cause)


def _is_idle(optimizer: LiveOptimizer | None, limit: timedelta) -> bool:
    """Whether it is registered, and has run nothing for so long."""
    return optimizer is not None and not optimizer.running and optimizer.idle >= limit


def _cost(optimizer: LiveOptimizer | None) -> int:
    """The cost of stopping the instance: nothing before it is registered, else its running tasks."""
    return -1 if optimizer is None else optimizer.running


def _is_settled(resource: Resource, live: Mapping[str, LiveOptimizer], since: datetime) -> bool:
    return resource.state is ResourceState.RUNNING and resource.resource_id in live and resource.since <= since


def _starts(
    target: Target, missing: int, fitting: Sequence[Resource], live: Mapping[str, LiveOptimizer], now: datetime
) -> list[Start]:
    if not target.scaling.failed_starts:
        return [Start()] * missing
    is_early = target.scaling.retry_at is not None and now < target.scaling.retry_at
    is_trying = any(item.resource_id not in live for item in fitting)
    # After a failure, one start is tried at a time.
    return [] if target.has_given_up or is_early or is_trying else [Start()] * min(1, missing)


def is_resource_id(text: str) -> bool:
    """Whether it has the format of our ids, which are also used as file names."""
    try:
        return str(UUID(text)) == text and UUID(text).version == 7
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Member:
    """A registered optimizer of the group."""

    is_draining: bool = False
    is_heard: bool = True  # since the coordinator started
    kinds: tuple[str, ...] = ()  # of work that it knows

    @property
    def takes_tasks(self) -> bool:
        """Whether it is alive and takes new tasks."""
        return self.is_heard and not self.is_draining


def no_optimizer_reason(group: str, container: str, members: Sequence[Member], view: InstancesView) -> str:
    """Why no optimizer takes tasks of the group, and the remedy; "" when one does."""
    if any(member.takes_tasks for member in members):
        return ""
    if view.most is not None and not view.failed_starts:
        starts = f"container {container} is starting {view.wanted} of at most {view.most} for group {group!r} on demand"
        return starts if view.wanted else ""
    return f"{_why(group, members)}: {_what_next(group, container, view)}"


def missing_kinds_reason(group: str, members: Sequence[Member], kinds: Iterable[str]) -> str:
    """Why no optimizer of the group takes work of these kinds, and the remedy; "" when some take each."""
    offered = {kind for member in members if member.takes_tasks for kind in member.kinds}
    unknown = sorted(set(kinds) - offered)
    if not unknown:
        return ""
    start = f"amoro optimizer run --group {group}"
    if formats := [format.capitalize() for format, kind in PROCEDURES.items() if kind in unknown]:
        return (
            f"no optimizer of group {group!r} has the jar of {' and of '.join(formats)}: start one with {start} "
            "--backend spark --jars FILE, or give the group's Spark container spark-jars=FILE"
        )
    return (
        f"no optimizer of group {group!r} takes work of the kind {', '.join(unknown)}: "
        f"update one of them, or start one that does with {start}"
    )


def _why(group: str, members: Sequence[Member]) -> str:
    if not members:
        return f"group {group!r} has no optimizer"
    if all(member.is_draining for member in members):
        return f"every optimizer of group {group!r} is draining"
    return f"no optimizer of group {group!r} has reported since the coordinator started"


def _what_next(group: str, container: str, view: InstancesView) -> str:
    if container == EXTERNAL:
        return f"start one with amoro optimizer run --group {group}"
    failed = (
        f" after {many(view.failed_starts, 'failed start')} in a row ({view.failure})" if view.failed_starts else ""
    )
    if view.has_given_up:
        return f"container {container} has given up{failed}; amoro group scale {group} N makes it try again"
    if view.wanted == 0:
        return f"container {container} keeps 0 of them; amoro group scale {group} 1 starts one"
    return f"container {container} is starting {view.wanted}{failed}"
