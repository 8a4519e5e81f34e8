"""Instances of optimizer groups: started, drained and stopped through containers to reach the target number."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from amoro_core.containers import spark
from amoro_core.containers.base import Container
from amoro_core.documents.formatting import many
from amoro_core.errors import AmoroError, InvalidArgument, OptimizerNotFound
from amoro_core.failpoints import failpoint
from amoro_core.logger import get_logger
from amoro_core.model import group_config
from amoro_core.model.group_config import (
    ADDRESS,
    EXTERNAL,
    MAX_INSTANCES,
    MIN_INSTANCES,
    ON_DEMAND,
    RESOURCE_LABEL,
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
from amoro_core.model.paging import Page, Window, page_limit
from amoro_core.model.processes import ResourceGroup, pick, uuid7
from amoro_core.model.task_payload import PROCEDURES
from amoro_core.model.text_sanitizing import without_secrets
from amoro_core.scheduling.scaling import (
    STAYING,
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
from amoro_core.services.optimizers import OptimizerService
from amoro_core.services.task_lifecycle import OptimizingService
from amoro_core.store import groups, queue_stats, tasks
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.journal import append_event

log = get_logger("amoro.containers")

#: Properties of a group that have a meaning here.
_KEYS = (*group_config.KEYS, *group_config.CONTAINER_KEYS, *spark.KEYS)

DEFAULT_MEMORY_BYTES = 512 * 1024 * 1024
MAX_LOG_LINES = 10_000


@dataclass(frozen=True, slots=True)
class LaunchParameters:
    """The arguments with which an instance finds the coordinator and registers."""

    address: Callable[[], str]
    token_file: Path
    heartbeat_interval: timedelta


@dataclass
class ContainerService:
    """Keeps the instances of each group at the target."""

    store: Store
    clock: Callable[[], datetime]
    containers: Mapping[str, Container]
    launch: LaunchParameters
    optimizers: OptimizerService
    optimizing: OptimizingService
    monotonic: Callable[[], float] = time.monotonic
    _observed: dict[str, tuple[float, Observation]] = field(init=False, default_factory=dict)
    #: When instances on demand were last seen with a task, or first of all.
    _busy_s: dict[str, float] = field(init=False, default_factory=dict)

    def _live(self) -> list[LiveOptimizer]:
        """Registered optimizers that were started as a resource."""
        return [
            LiveOptimizer(optimizer.optimizer_id, resource_id, len(life.progress), optimizer.draining)
            for optimizer, life in self.optimizers.list_optimizers()
            if (resource_id := dict(optimizer.labels).get(RESOURCE_LABEL, ""))
        ]

    def _members(self, target: Target | None) -> list[LiveOptimizer]:
        """The same; on demand with the tasks that they hold now, and for how long they have held none."""
        live = self._live()
        if target is None or target.config.max_instances is None:
            return live
        now_s, assigned = self.monotonic(), self.store.read(tasks.list_assigned)
        tasks_of = Counter(task.thread.optimizer_id for task in assigned if task.thread)
        members = []
        for optimizer in live:
            running = max(optimizer.running, tasks_of[optimizer.optimizer_id])
            since_s = now_s if running else self._busy_s.get(optimizer.resource_id, now_s)
            self._busy_s[optimizer.resource_id] = since_s
            members.append(replace(optimizer, running=running, idle=timedelta(seconds=now_s - since_s)))
        return members

    def check(self, group: ResourceGroup) -> None:
        """Raise InvalidArgument for a group whose optimizers its container could not start."""
        container = self._container(group.container)
        refuse_misspelt((key for key, _ in group.properties), _KEYS)
        config = parse_scaling(group.properties)
        for key, number in ((MIN_INSTANCES, config.min_instances), (ON_DEMAND, config.max_instances)):
            if number and not container.launches:
                raise InvalidArgument(f"{key} needs a container that starts optimizers, not {group.container}")
        container.check(dict(group.properties))

    def scale(self, name: str, instances: int) -> InstancesView:
        """Set the target number of instances of the group, and reset its failed starts.

        Raises GroupNotFound; InvalidArgument for a number out of range, below min-instances or above max-instances,
        and for a group whose optimizers are started by hand.
        """
        if not 0 <= instances <= MAX_INSTANCES:
            raise InvalidArgument(f"the number of instances must be from 0 to {MAX_INSTANCES}, not {instances}")

        def enter(db: Connection) -> None:
            group = groups.get(db, name)
            config = parse_scaling(group.properties)
            least, most = config.min_instances, config.max_instances
            if most is not None and instances > most:
                raise InvalidArgument(
                    f"group {name!r} has at most {many(most, 'instance')} ({ON_DEMAND}), not {instances}",
                    hint=f"Raise the maximum first: amoro group update {name} --property {ON_DEMAND}={instances}.",
                )
            if instances < least:
                raise InvalidArgument(
                    f"group {name!r} keeps at least {many(least, 'instance')} ({MIN_INSTANCES})",
                    hint=f"Remove the minimum first: amoro group update {name} --unset {MIN_INSTANCES}.",
                )
            if instances and not self._container(group.container).launches:
                raise InvalidArgument(
                    f"optimizers of group {name!r} are started by hand (its container is {group.container})",
                    hint=f"Give the group another one: amoro group update {name} --container local.",
                )
            before = groups.get_scaling(db, name).instances
            groups.save_scaling(db, name, Scaling(instances))
            words = f"group {name} is scaled from {before} to {many(instances, 'instance')}"
            append_event(db, EventKind.SCALED, words, About(group=name), self.clock(), {"instances": instances})

        self.store.write(enter)
        log.info("group.scaled", group=name, instances=instances)
        return self.find(name)

    def find(self, name: str) -> InstancesView:
        """Raises GroupNotFound."""
        live = {optimizer.resource_id: optimizer.optimizer_id for optimizer in self._live()}

        def look(db: Connection) -> InstancesView:
            target, started = _target(db, groups.get(db, name)), groups.list_resources(db, name)
            most, staying = target.config.max_instances, sum(item.state in STAYING for item in started)
            return InstancesView(
                # What is on demand stays until it is idle.
                max(target.instances(), 0 if most is None else min(most, staying)),
                tuple(Instance(item, live.get(item.resource_id, "")) for item in started),
                target.scaling.failed_starts,
                target.scaling.retry_at,
                target.scaling.failure,
                target.has_given_up,
                most,
            )

        return self.store.read(look)

    def jobs(self, name: str, window: Window) -> Page[Instance]:
        """The group's instances, also those that have ended, the newest first. Raises GroupNotFound."""
        live = {optimizer.resource_id: optimizer.optimizer_id for optimizer in self._live()}
        self.store.read(lambda db: groups.get(db, name))
        page = self.store.read(lambda db: groups.resource_page(db, name, window.after, page_limit(window.limit)))
        return page.mapped(lambda item: Instance(item, live.get(item.resource_id, "")))

    def find_instance(self, wanted: str) -> InstanceStatus:
        """The instance with that id, or whose optimizer has it, with its present state from its container.

        The id may be the beginning or the end of one. Raises OptimizerNotFound, InvalidArgument.
        """
        return self._status(self._instance(wanted))

    def logs(self, wanted: str, lines: int) -> tuple[str, list[str]]:
        """The resource's id, and the last lines of its output without secrets; empty if its container has none.

        `wanted` as for `find_instance`; for an instance that has ended, the resource's full id.
        """
        if not 1 <= lines <= MAX_LOG_LINES:
            raise InvalidArgument(f"the number of lines must be from 1 to {MAX_LOG_LINES}, not {lines}")
        try:
            resource = self._instance(wanted).resource
        except OptimizerNotFound:
            if is_resource_id(wanted):  # it is used in file names
                now = self.clock()
                for name, container in self.containers.items():
                    ended = Resource(wanted, "", name, ResourceState.STOPPING, now, now)
                    if output := container.logs(ended, lines):
                        return wanted, [without_secrets(line) for line in output]
            raise
        output = self._container(resource.container).logs(resource, lines)
        return resource.resource_id, [without_secrets(line) for line in output]

    def kill(self, wanted: str) -> InstanceStatus:
        """Kill an instance, found as by `find_instance`; its group gets another if the target requires it."""
        instance = self._instance(wanted)
        resource = replace(instance.resource, state=ResourceState.STOPPING, since=self.clock())
        self._stop(resource.group, resource.resource_id, True, "", "it was killed by a command")
        return self._status(replace(instance, resource=resource))

    def list_running(self) -> list[Resource]:
        """The instances of all groups that have been started and not stopped; they outlive the coordinator."""
        stopping = ResourceState.STOPPING
        return [resource for resource in self.store.read(groups.list_resources) if resource.state is not stopping]

    def list_active_groups(self) -> list[str]:
        """Groups with instances or with a target above 0, including removed groups."""

        def look(db: Connection) -> set[str]:
            wanting = {
                group.name
                for group in groups.list_groups(db)
                if group.container != EXTERNAL and _target(db, group).instances()
            }
            return wanting | {item.group for item in groups.list_resources(db)}

        return sorted(self.store.read(look))

    def close_orphans(self) -> None:
        """Drain optimizers that were started as a resource which the store does not know."""
        live = self._live()  # before reading the resources, which are stored before they start
        if not live:
            return
        stored = {item.resource_id for item in self.store.read(groups.list_resources)}
        for orphan in orphans(stored, live):
            log.warning("optimizer.orphaned", optimizer=orphan.optimizer_id, resource=orphan.resource_id)
            self.optimizers.drain(orphan.optimizer_id)

    def keep(self, name: str) -> None:
        """Check the group's instances, and carry out the actions; a failing action does not stop the others."""
        owned = self.store.read(lambda db: groups.list_resources(db, name))
        observed = {item.resource_id: self._observe(item) for item in owned}

        def read(db: Connection) -> tuple[Target | None, list[Resource]]:
            group = groups.find(db, name)
            return None if group is None else _target(db, group), groups.list_resources(db, name)

        target, owned = self.store.read(read)
        for action in decide(target, owned, self._members(target), observed, self.clock()):
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
            case Drain(optimizer_id, resource_id, cause):
                log.info("resource.draining", group=group, resource=resource_id, optimizer=optimizer_id)
                self.optimizers.drain(optimizer_id)
                failpoint("instance.after_drain")
                self._enter(resource_id, ResourceState.DRAINING, cause)
            case Stop(resource_id, by_force, failure, cause):
                self._stop(group, resource_id, by_force, failure, cause)
            case Forget(resource_id, optimizer_id, failure, cause):
                log.info("resource.ended", group=group, resource=resource_id, failure=failure)
                if optimizer_id:
                    self.optimizing.dismiss(optimizer_id, "the process of its optimizer has ended", lost=True)
                self._forget(group, resource_id, _with_log(failure, resource_id), cause)
            case Settle():
                self.store.write(lambda db: _scaled(db, group, failed_starts=0, retry_at=None, failure=""))

    def _instance(self, wanted: str) -> Instance:
        """Raises OptimizerNotFound, InvalidArgument."""
        optimizers = {optimizer.resource_id: optimizer.optimizer_id for optimizer in self._live()}
        instances = [
            Instance(item, optimizers.get(item.resource_id, "")) for item in self.store.read(groups.list_resources)
        ]
        result = pick(wanted, instances, "an optimizer", lambda item: (item.resource.resource_id, item.optimizer_id))
        if result is None:
            raise OptimizerNotFound(
                f"no container has started an optimizer {wanted} that still runs",
                hint="`amoro group show GROUP` lists the instances; others write their logs where they were started.",
            )
        return result

    def _status(self, instance: Instance) -> InstanceStatus:
        try:
            container = self._container(instance.resource.container)
        except InvalidArgument as error:
            return InstanceStatus(instance, Observation(Liveness.UNKNOWN, error.message))
        return InstanceStatus(instance, container.status(instance.resource))

    def _start(self, name: str) -> None:
        now = self.clock()

        def enter(db: Connection) -> tuple[ResourceGroup, Resource]:
            group = groups.get(db, name)
            begun = Resource(uuid7(now), name, group.container, ResourceState.STARTING, now, now)
            # Stored before it is started: an optimizer that registers as an unknown resource is drained.
            return group, groups.add_resource(db, begun)

        failpoint("instance.before_store")
        group, resource = self.store.write(enter)
        failpoint("instance.after_store")
        try:
            launch = Launch(
                resource_id=resource.resource_id,
                group=name,
                address=dict(group.properties).get(ADDRESS) or self.launch.address(),
                token_file=self.launch.token_file,
                threads=parse_scaling(group.properties).threads,
                memory_bytes=parse_group(group.properties).memory_per_thread or DEFAULT_MEMORY_BYTES,
                heartbeat_interval=self.launch.heartbeat_interval,
                properties=group.properties,
            )
            handle = self._container(resource.container).start(launch)
        except Exception as error:
            # A plugged-in container may raise anything; it counts as a failed start.
            why = error.message if isinstance(error, AmoroError) else f"{type(error).__name__}: {error}"
            log.warning("resource.start_failed", group=name, resource=resource.resource_id, error=why)
            self._forget(name, resource.resource_id, why, why)
            return

        def note(db: Connection) -> None:
            # It may have been stopped meanwhile, and have ended.
            if (stored := groups.find_resource(db, resource.resource_id)) is not None:
                groups.save_resource(db, replace(stored, handle=handle))

        failpoint("instance.after_start")
        self.store.write(note)
        failpoint("instance.after_handle")
        log.info("resource.started", group=name, resource=resource.resource_id, container=resource.container)

    def _stop(self, group: str, resource_id: str, by_force: bool, failure: str, cause: str) -> None:
        log.info("resource.stopping", group=group, resource=resource_id, by_force=by_force, failure=failure)
        state = ResourceState.STOPPING if by_force else ResourceState.DRAINING
        resource = self._enter(resource_id, state, cause)
        if failure:
            self.store.write(lambda db: self._count_failure(db, group, _with_log(failure, resource_id)))
        if resource is not None:
            self._observed.pop(resource_id, None)
            self._container(resource.container).stop(resource, by_force=by_force)

    def _enter(self, resource_id: str, state: ResourceState, cause: str = "") -> Resource | None:
        """Store the resource's state, since now if it changed or it is stopped again, and why it leaves."""

        def enter(db: Connection) -> Resource | None:
            resource = groups.find_resource(db, resource_id)
            if resource is None or (resource.state is state and state is not ResourceState.STOPPING):
                return resource
            changed = replace(resource, state=state, since=self.clock(), cause=cause or resource.cause)
            return groups.save_resource(db, changed)

        return self.store.write(enter)

    def _forget(self, group: str, resource_id: str, failure: str, cause: str) -> None:
        def enter(db: Connection) -> None:
            groups.end_resource(db, resource_id, cause, self.clock())
            if failure:
                self._count_failure(db, group, failure)

        self.store.write(enter)
        self._observed.pop(resource_id, None)
        self._busy_s.pop(resource_id, None)

    def _count_failure(self, db: Connection, group: str, failure: str) -> None:
        if groups.find(db, group) is None:
            return
        count, retry_at = failed(groups.get_scaling(db, group), self.clock())
        _scaled(db, group, failed_starts=count, retry_at=retry_at, failure=failure)
        append_event(
            db, EventKind.FAILED, f"an instance of group {group} failed: {failure}", About(group=group), self.clock()
        )

    def _observe(self, resource: Resource) -> Observation:
        """The resource's state, requested no more often than the container allows."""
        try:
            container = self._container(resource.container)
        except InvalidArgument as error:
            return Observation(Liveness.UNKNOWN, error.message)
        now_s = self.monotonic()
        last = self._observed.get(resource.resource_id)
        if last is not None and now_s - last[0] < container.status_interval_s:
            return last[1]
        observed = container.status(resource)
        self._observed[resource.resource_id] = (now_s, observed)
        return observed

    def _container(self, name: str) -> Container:
        """The container of that name. Raises InvalidArgument, naming the known ones."""
        if name not in self.containers:
            raise InvalidArgument(
                f"unknown container {name!r}", hint=f"Known containers: {', '.join(self.containers)}."
            )
        return self.containers[name]


def _with_log(failure: str, resource_id: str) -> str:
    return f"{failure} (amoro optimizer logs {resource_id})" if failure else ""


def _target(db: Connection, group: ResourceGroup) -> Target:
    config, waiting = parse_scaling(group.properties), 0
    if config.max_instances is not None:
        # A service of Hudi's or Paimon's needs its jar.
        untaken = () if spark.JARS in dict(group.properties) else PROCEDURES.values()
        counted = queue_stats.count_waiting(db, group.name).items()
        waiting = sum(number for kind, number in counted if kind not in untaken)
    return Target(group.container, groups.get_scaling(db, group.name), config, waiting)


def _scaled(db: Connection, group: str, *, failed_starts: int, retry_at: datetime | None, failure: str) -> None:
    scaling = groups.get_scaling(db, group)
    changed = replace(scaling, failed_starts=failed_starts, retry_at=retry_at, failure=failure)
    groups.save_scaling(db, group, changed)
