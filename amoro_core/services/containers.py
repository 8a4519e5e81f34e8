"""Instances of optimizer groups: started, drained and stopped through containers to reach the target number."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from amoro_core.containers import spark
from amoro_core.containers.base import Container
from amoro_core.errors import AmoroError, InvalidArgument, OptimizerNotFound
from amoro_core.logger import get_logger
from amoro_core.model import group_config
from amoro_core.model import group_config as instance_config
from amoro_core.model.group_config import (
    ADDRESS,
    EXTERNAL,
    MAX_INSTANCES,
    MIN_INSTANCES,
    Instance,
    InstanceStatus,
    InstancesView,
    Launch,
    Liveness,
    Observation,
    Resource,
    ResourceState,
    Scaling,
    parse_group,
    parse_scaling,
    refuse_misspelt,
)
from amoro_core.model.history_events import About, EventKind
from amoro_core.model.processes import ResourceGroup, uuid7
from amoro_core.model.text_sanitizing import without_secrets
from amoro_core.scheduling.scaling import (
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
    is_resource_id,
    orphans,
)
from amoro_core.store import groups
from amoro_core.store.database import Connection, Store
from amoro_core.store.processes import PREFIX_LENGTH
from amoro_core.transactions.journal import append_event

log = get_logger("amoro.containers")

#: Properties of a group that have a meaning here.
_KEYS = (*group_config.KEYS, *instance_config.CONTAINER_KEYS, *spark.KEYS)

DEFAULT_MEMORY_BYTES = 512 * 1024 * 1024
MAX_LOG_LINES = 10_000


@dataclass(frozen=True, slots=True)
class LaunchParameters:
    """The arguments with which an instance finds the coordinator and registers."""

    address: Callable[[], str]
    token_file: Path
    heartbeat_interval: timedelta


@dataclass(frozen=True, slots=True)
class Registrations:
    """The registered optimizers that were started as a resource, and how to drain or dismiss one."""

    live: Callable[[], Iterable[LiveOptimizer]]
    drain: Callable[[str], object]  # tells it to leave
    dismiss: Callable[[str], object]  # ends the registration of one whose process has ended


class ContainerService:
    """Keeps the instances of each group at the target."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], datetime],
        containers: Mapping[str, Container],
        joining: LaunchParameters,
        registrations: Registrations,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._clock = clock
        self._containers = containers
        self._joining = joining
        self._registrations = registrations
        self._monotonic = monotonic
        self._observed: dict[str, tuple[float, Observation]] = {}

    def check(self, group: ResourceGroup) -> None:
        """Raise InvalidArgument for a group whose optimizers its container could not start."""
        container = self._container(group.container)
        refuse_misspelt((key for key, _ in group.properties), _KEYS)
        least = parse_scaling(group.properties).min_instances
        if least and not container.launches:
            raise InvalidArgument(f"{MIN_INSTANCES} needs a container that starts optimizers, not {group.container}")
        container.check(dict(group.properties))

    def scale(self, name: str, instances: int) -> InstancesView:
        """Set the target number of instances of the group, and reset its failed starts.

        Raises GroupNotFound; InvalidArgument for a number out of range or below min-instances, and for a group whose
        optimizers are started by hand.
        """
        if not 0 <= instances <= MAX_INSTANCES:
            raise InvalidArgument(f"the number of instances must be from 0 to {MAX_INSTANCES}, not {instances}")

        def enter(db: Connection) -> None:
            group = groups.get(db, name)
            least = parse_scaling(group.properties).min_instances
            if instances < least:
                raise InvalidArgument(
                    f"group {name!r} keeps at least {least} instances ({MIN_INSTANCES})",
                    hint=f"Remove the minimum first: amoro group update {name} --unset {MIN_INSTANCES}.",
                )
            if instances and not self._container(group.container).launches:
                raise InvalidArgument(
                    f"optimizers of group {name!r} are started by hand (its container is {group.container})",
                    hint=f"Give the group another one: amoro group update {name} --container local.",
                )
            before = groups.get_scaling(db, name).instances
            groups.save_scaling(db, name, Scaling(instances))
            words = f"group {name} is to have {instances} instances, before {before}"
            append_event(db, EventKind.SCALED, words, About(group=name), self._clock(), {"instances": instances})

        self._store.write(enter)
        log.info("group.scaled", group=name, instances=instances)
        return self.find(name)

    def find(self, name: str) -> InstancesView:
        """Raises GroupNotFound."""
        live = {optimizer.resource_id: optimizer.optimizer_id for optimizer in self._registrations.live()}

        def look(db: Connection) -> InstancesView:
            target = _target(groups.get(db, name), groups.get_scaling(db, name))
            return InstancesView(
                target.instances,
                tuple(Instance(item, live.get(item.resource_id, "")) for item in groups.list_resources(db, name)),
                target.scaling.failed_starts,
                target.scaling.retry_at,
                target.scaling.failure,
                target.has_given_up,
            )

        return self._store.read(look)

    def find_instance(self, wanted: str) -> InstanceStatus:
        """The instance with that id, or whose optimizer has it, with its present state from its container.

        The id may be a unique prefix of six characters or more. Raises OptimizerNotFound, InvalidArgument.
        """
        return self._asked(self._instance(wanted))

    def logs(self, wanted: str, lines: int) -> tuple[str, list[str]]:
        """The resource's id, and the last lines of its output without secrets; empty if its container has none.

        `wanted` as for `find_instance`; for an instance that has ended, the resource's full id. Raises
        OptimizerNotFound, InvalidArgument.
        """
        if not 1 <= lines <= MAX_LOG_LINES:
            raise InvalidArgument(f"the number of lines must be from 1 to {MAX_LOG_LINES}, not {lines}")
        try:
            resource = self._instance(wanted).resource
        except OptimizerNotFound:
            said = self._logs_of_ended(wanted, lines)
            if not said:
                raise
            return wanted, said
        said = self._container(resource.container).logs(resource, lines)
        return resource.resource_id, [without_secrets(line) for line in said]

    def kill(self, wanted: str) -> InstanceStatus:
        """Kill an instance; its tasks go to others, and its group gets another if the target requires it.

        `wanted` is as for `find_instance`. Raises OptimizerNotFound, InvalidArgument, AmoroError.
        """
        instance = self._instance(wanted)
        resource = replace(instance.resource, state=ResourceState.STOPPING, since=self._clock())
        self._stop(resource.group, resource.resource_id, True, "")
        return self._asked(replace(instance, resource=resource))

    def list_kept(self) -> list[str]:
        """Groups with instances or with a target above 0, including removed groups."""

        def look(db: Connection) -> set[str]:
            wanting = {
                group.name
                for group in groups.list_groups(db)
                if group.container != EXTERNAL and _target(group, groups.get_scaling(db, group.name)).instances
            }
            return wanting | {item.group for item in groups.list_resources(db)}

        return sorted(self._store.read(look))

    def close_orphans(self) -> None:
        """Drain optimizers that were started as a resource which the store does not know."""
        live = list(self._registrations.live())  # before reading the resources, which are stored before they start
        if not live:
            return
        known = {item.resource_id for item in self._store.read(groups.list_resources)}
        for orphan in orphans(known, live):
            log.warning("optimizer.orphaned", optimizer=orphan.optimizer_id, resource=orphan.resource_id)
            self._registrations.drain(orphan.optimizer_id)

    def keep(self, name: str) -> None:
        """Check the group's instances, and carry out the actions; a failing action does not stop the others."""
        owned = self._store.read(lambda db: groups.list_resources(db, name))
        observed = {item.resource_id: self._observe(item) for item in owned}
        target, owned = self._store.read(lambda db: (_find_target(db, name), groups.list_resources(db, name)))
        for action in decide(target, owned, self._registrations.live(), observed, self._clock()):
            try:
                self._carry_out(name, action)
            except AmoroError as error:
                log.warning("resource.failed", group=name, action=type(action).__name__, error=error.message)

    def _carry_out(self, group: str, action: Action) -> None:
        match action:
            case Start():
                self._start(group)
            case Note(resource_id, state):
                self._enter(resource_id, state)
            case Drain(optimizer_id, resource_id):
                log.info("resource.draining", group=group, resource=resource_id, optimizer=optimizer_id)
                self._registrations.drain(optimizer_id)
                self._enter(resource_id, ResourceState.DRAINING)
            case Stop(resource_id, by_force, failure):
                self._stop(group, resource_id, by_force, failure)
            case Forget(resource_id, optimizer_id, failure):
                log.info("resource.ended", group=group, resource=resource_id, failure=failure)
                if optimizer_id:
                    self._registrations.dismiss(optimizer_id)
                self._forget(group, resource_id, _with_log(failure, resource_id))
            case Settle():
                self._store.write(lambda db: _scaled(db, group, failed_starts=0, retry_at=None, failure=""))

    def _instance(self, wanted: str) -> Instance:
        """Raises OptimizerNotFound, InvalidArgument."""
        if len(wanted) < PREFIX_LENGTH:
            raise InvalidArgument(f"{wanted!r} is too short for an optimizer: give {PREFIX_LENGTH} characters or more")
        optimizers = {optimizer.resource_id: optimizer.optimizer_id for optimizer in self._registrations.live()}
        found = [
            Instance(item, optimizers.get(item.resource_id, ""))
            for item in self._store.read(groups.list_resources)
            if item.resource_id.startswith(wanted) or optimizers.get(item.resource_id, "").startswith(wanted)
        ]
        if not found:
            raise OptimizerNotFound(
                f"no container has started an optimizer {wanted} that still runs",
                hint="`amoro group show GROUP` lists the instances; others write their logs where they were started.",
            )
        if len(found) > 1:
            raise InvalidArgument(f"more than one optimizer begins with {wanted!r}", hint="Give more characters.")
        return found[0]

    def _asked(self, instance: Instance) -> InstanceStatus:
        try:
            container = self._container(instance.resource.container)
        except InvalidArgument as error:
            return InstanceStatus(instance, Observation(Liveness.UNKNOWN, error.message))
        return InstanceStatus(instance, container.status(instance.resource))

    def _logs_of_ended(self, resource_id: str, lines: int) -> list[str]:
        """The logs of a forgotten resource; its id is used in file names, so it must have our format."""
        if not is_resource_id(resource_id):
            return []
        now = self._clock()
        for name, container in self._containers.items():
            gone = Resource(resource_id, "", name, ResourceState.STOPPING, now, now)
            if said := container.logs(gone, lines):
                return [without_secrets(line) for line in said]
        return []

    def _start(self, name: str) -> None:
        now = self._clock()

        def enter(db: Connection) -> tuple[ResourceGroup, Resource]:
            group = groups.get(db, name)
            begun = Resource(uuid7(now), name, group.container, ResourceState.STARTING, now, now)
            # Stored before it is started: an optimizer that registers as an unknown resource is drained.
            return group, groups.add_resource(db, begun)

        group, resource = self._store.write(enter)
        try:
            handle = self._container(resource.container).start(self._launch(group, resource.resource_id))
        except Exception as error:
            # A plugged-in container may raise anything; it counts as a failed start.
            why = error.message if isinstance(error, AmoroError) else f"{type(error).__name__}: {error}"
            log.warning("resource.start_failed", group=name, resource=resource.resource_id, error=why)
            self._forget(name, resource.resource_id, why)
            return

        def note(db: Connection) -> None:
            # It may have been stopped meanwhile.
            known = groups.find_resource(db, resource.resource_id) or resource
            groups.save_resource(db, replace(known, handle=handle))

        self._store.write(note)
        log.info("resource.started", group=name, resource=resource.resource_id, container=resource.container)

    def _launch(self, group: ResourceGroup, resource_id: str) -> Launch:
        known = dict(group.properties)
        return Launch(
            resource_id=resource_id,
            group=group.name,
            address=known.get(ADDRESS) or self._joining.address(),
            token_file=self._joining.token_file,
            threads=parse_scaling(group.properties).threads,
            memory_bytes=parse_group(group.properties).memory_per_thread or DEFAULT_MEMORY_BYTES,
            heartbeat_interval=self._joining.heartbeat_interval,
            properties=group.properties,
        )

    def _stop(self, group: str, resource_id: str, by_force: bool, failure: str) -> None:
        log.info("resource.stopping", group=group, resource=resource_id, by_force=by_force, failure=failure)
        state = ResourceState.STOPPING if by_force else ResourceState.DRAINING
        resource = self._enter(resource_id, state)
        if failure:
            self._store.write(lambda db: self._count_failure(db, group, _with_log(failure, resource_id)))
        if resource is not None:
            self._observed.pop(resource_id, None)
            self._container(resource.container).stop(resource, by_force=by_force)

    def _enter(self, resource_id: str, state: ResourceState) -> Resource | None:
        """Store the resource's state, since now if it changed or it is stopped again."""

        def enter(db: Connection) -> Resource | None:
            resource = groups.find_resource(db, resource_id)
            if resource is None or (resource.state is state and state is not ResourceState.STOPPING):
                return resource
            return groups.save_resource(db, replace(resource, state=state, since=self._clock()))

        return self._store.write(enter)

    def _forget(self, group: str, resource_id: str, failure: str) -> None:
        def enter(db: Connection) -> None:
            groups.remove_resource(db, resource_id)
            if failure:
                self._count_failure(db, group, failure)

        self._store.write(enter)
        self._observed.pop(resource_id, None)

    def _count_failure(self, db: Connection, group: str, failure: str) -> None:
        if groups.find(db, group) is None:
            return
        count, retry_at = failed(groups.get_scaling(db, group), self._clock())
        _scaled(db, group, failed_starts=count, retry_at=retry_at, failure=failure)
        append_event(
            db, EventKind.FAILED, f"an instance of group {group} failed: {failure}", About(group=group), self._clock()
        )

    def _observe(self, resource: Resource) -> Observation:
        """The resource's state, requested no more often than the container allows."""
        try:
            container = self._container(resource.container)
        except InvalidArgument as error:
            return Observation(Liveness.UNKNOWN, error.message)
        now_s = self._monotonic()
        asked = self._observed.get(resource.resource_id)
        if asked is not None and now_s - asked[0] < container.status_interval_s:
            return asked[1]
        observed = container.status(resource)
        self._observed[resource.resource_id] = (now_s, observed)
        return observed

    def _container(self, name: str) -> Container:
        """The container of that name. Raises InvalidArgument, naming the known ones."""
        if name not in self._containers:
            raise InvalidArgument(
                f"unknown container {name!r}", hint=f"Known containers: {', '.join(self._containers)}."
            )
        return self._containers[name]


def _with_log(failure: str, resource_id: str) -> str:
    return f"{failure} (amoro optimizer logs {resource_id})" if failure else ""


def _find_target(db: Connection, name: str) -> Target | None:
    group = groups.find(db, name)
    return None if group is None else _target(group, groups.get_scaling(db, name))


def _target(group: ResourceGroup, scaling: Scaling) -> Target:
    return Target(group.container, scaling, parse_scaling(group.properties))


def _scaled(db: Connection, group: str, *, failed_starts: int, retry_at: datetime | None, failure: str) -> None:
    scaling = groups.get_scaling(db, group)
    changed = replace(scaling, failed_starts=failed_starts, retry_at=retry_at, failure=failure)
    groups.save_scaling(db, group, changed)
