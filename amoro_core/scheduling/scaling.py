"""How many instances a group has: what follows from what is wanted, what was started and who is registered."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from amoro_core.model.containers import Liveness, Observation, Resource, ResourceState, Scaling, ScalingConfig

#: An instance that ends by itself before its optimizer was registered so long is a failed start.
SETTLED = timedelta(minutes=1)
#: Between two tries to end an instance by force.
STOP_AGAIN = timedelta(seconds=30)
FIRST_WAIT = timedelta(seconds=1)
LAST_WAIT = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Target:
    """What a group is to have."""

    container: str
    scaling: Scaling
    config: ScalingConfig

    @property
    def instances(self) -> int:
        """How many instances the group should have."""
        return max(self.scaling.instances, self.config.min_instances)

    @property
    def has_given_up(self) -> bool:
        """Whether too many starts failed in a row: nothing more is started until somebody scales the group."""
        return self.scaling.failed_starts >= self.config.max_failed_starts


@dataclass(frozen=True, slots=True)
class LiveOptimizer:
    """A registered optimizer that says what resource it was started as."""

    optimizer_id: str
    resource_id: str
    running: int = 0  # attempts, as last heard
    is_draining: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """One more instance."""


@dataclass(frozen=True, slots=True)
class Note:
    """The instance is in another state, without anything to be done."""

    resource_id: str
    state: ResourceState


@dataclass(frozen=True, slots=True)
class Drain:
    """The optimizer finishes what it runs and leaves."""

    optimizer_id: str
    resource_id: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The instance is ended: asked to, or by force. A failure counts as a failed start."""

    resource_id: str
    by_force: bool
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Forget:
    """The instance has ended; what its optimizer still holds, if it is registered, goes to others."""

    resource_id: str
    optimizer_id: str = ""
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Settle:
    """Instances of the group run: failed starts before them no longer count."""


Action = Start | Note | Drain | Stop | Forget | Settle


def decide(
    target: Target | None,
    resources: Sequence[Resource],
    live: Iterable[LiveOptimizer],
    observed: Mapping[str, Observation],
    now: datetime,
) -> list[Action]:
    """What is to be done about a group's instances now, in this order; `target` None: the group is gone."""
    by_resource = {optimizer.resource_id: optimizer for optimizer in live}
    actions: list[Action] = []
    staying: list[Resource] = []
    for resource in resources:
        optimizer = by_resource.get(resource.resource_id)
        action = _each(resource, optimizer, observed.get(resource.resource_id), target, now)
        if action is not None:
            actions.append(action)
        if not isinstance(action, Forget | Stop | Drain) and resource.state in _STAYING:
            staying.append(resource)
    wanted = 0 if target is None else target.instances
    fitting = [resource for resource in staying if target is not None and resource.container == target.container]
    actions += [_leave(item, by_resource.get(item.resource_id)) for item in staying if item not in fitting]
    surplus = max(0, len(fitting) - wanted)
    newest_first = sorted(fitting, key=lambda item: (item.started_at, item.resource_id), reverse=True)
    chosen = sorted(newest_first, key=lambda item: _cost(by_resource.get(item.resource_id)))[:surplus]
    actions += [_leave(item, by_resource.get(item.resource_id)) for item in chosen]
    if target is None:
        return actions
    if target.scaling.failed_starts and any(_is_settled(item, by_resource, now) for item in fitting):
        actions.append(Settle())
    failed = any(isinstance(action, Stop | Forget) and action.failure for action in actions)
    return [*actions, *([] if failed else _starts(target, fitting, by_resource, now))]


def orphans(known: Collection[str], live: Iterable[LiveOptimizer]) -> list[Drain]:
    """Optimizers that were started as a resource that nobody knows, as after a restored backup: they are to leave.

    Only ids as ours are: who starts optimizers by hand may give them any other.
    """
    return [
        Drain(optimizer.optimizer_id, optimizer.resource_id)
        for optimizer in live
        if not optimizer.is_draining and optimizer.resource_id not in known and is_resource_id(optimizer.resource_id)
    ]


def failed(scaling: Scaling, now: datetime) -> tuple[int, datetime]:
    """The number of failed starts after one more, and until when nothing is started: 1 s, doubling to 5 min."""
    count = scaling.failed_starts + 1
    return count, now + min(FIRST_WAIT * 2 ** min(count - 1, 20), LAST_WAIT)


_STAYING = (ResourceState.STARTING, ResourceState.RUNNING)


def _each(
    resource: Resource,
    optimizer: LiveOptimizer | None,
    observed: Observation | None,
    target: Target | None,
    now: datetime,
) -> Action | None:
    """What an instance's own state asks for, whatever the others do."""
    config = ScalingConfig() if target is None else target.config
    age = now - resource.since
    if observed is not None and observed.liveness is Liveness.ENDED:
        return Forget(
            resource.resource_id, optimizer.optimizer_id if optimizer else "", _failure(resource, observed, now)
        )
    match resource.state:
        case ResourceState.STARTING | ResourceState.RUNNING if optimizer is not None and optimizer.is_draining:
            # Somebody drained it by hand.
            return Drain(optimizer.optimizer_id, resource.resource_id)
        case ResourceState.STARTING if optimizer is not None:
            return Note(resource.resource_id, ResourceState.RUNNING)
        case ResourceState.STARTING if age > config.start_timeout:
            said = f"its optimizer did not register within {config.start_timeout.total_seconds():g} s"
            return Stop(resource.resource_id, True, said)
        case ResourceState.RUNNING if optimizer is None:
            # It is not heard of any more: it has the time of a start to register anew.
            return Note(resource.resource_id, ResourceState.STARTING)
        case ResourceState.DRAINING if age > config.drain_timeout:
            return Stop(resource.resource_id, True)
        case ResourceState.DRAINING if optimizer is not None and not optimizer.is_draining:
            # It has registered anew, or only after it was told to leave.
            return Drain(optimizer.optimizer_id, resource.resource_id)
        case ResourceState.STOPPING if age > STOP_AGAIN:
            return Stop(resource.resource_id, True)
    return None


def _failure(resource: Resource, observed: Observation, now: datetime) -> str:
    """Why the end of the instance is a failed start; empty when it was wanted, or came after a while of work."""
    has_begun = resource.state is ResourceState.STARTING
    is_short = resource.state is ResourceState.RUNNING and now - resource.since < SETTLED
    return (observed.detail or "it has ended") if has_begun or is_short else ""


def _leave(resource: Resource, optimizer: LiveOptimizer | None) -> Drain | Stop:
    return (
        Stop(resource.resource_id, False) if optimizer is None else Drain(optimizer.optimizer_id, resource.resource_id)
    )


def _cost(optimizer: LiveOptimizer | None) -> int:
    """What is lost with the instance: nothing before it is registered, else what it runs."""
    return -1 if optimizer is None else optimizer.running


def _is_settled(resource: Resource, live: Mapping[str, LiveOptimizer], now: datetime) -> bool:
    is_running = resource.state is ResourceState.RUNNING and resource.resource_id in live
    return is_running and now - resource.since >= SETTLED


def _starts(
    target: Target, fitting: Sequence[Resource], live: Mapping[str, LiveOptimizer], now: datetime
) -> list[Start]:
    missing = max(0, target.instances - len(fitting))
    if not target.scaling.failed_starts:
        return [Start()] * missing
    is_early = target.scaling.retry_at is not None and now < target.scaling.retry_at
    is_trying = any(item.resource_id not in live for item in fitting)
    # After a failure one is tried at a time.
    return [] if target.has_given_up or is_early or is_trying else [Start()] * min(1, missing)


def is_resource_id(text: str) -> bool:
    """Whether it looks like an id of ours, which is the name of a file, too."""
    try:
        return str(UUID(text)) == text and UUID(text).version == 7
    except ValueError:
        return False
