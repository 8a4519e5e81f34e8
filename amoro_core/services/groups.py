"""Optimizer groups: who works for which tables, how threads are shared, and whose turn it is to be planned."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain, zip_longest

import structlog

from amoro_core.errors import AlreadyExists, InvalidArgument
from amoro_core.model.processes import OptimizingTask, ResourceGroup
from amoro_core.model.tables import TableIdentifier, TableRuntime
from amoro_core.scheduling.policy import PendingTable, order_pending
from amoro_core.scheduling.quota import LOOK_BACK, TaskRun, occupation, quota_limit
from amoro_core.store import groups, optimizers, tables, tasks
from amoro_core.store.database import Database, Store

log = structlog.get_logger("amoro.groups")

POLICIES = ("quota", "balanced")
DEFAULT_GROUP = "default"


@dataclass(frozen=True, slots=True)
class GroupChange:
    """What is to be different about a group; whatever is not named stays."""

    policy: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)  # replaced or added
    removed_properties: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class GroupUse:
    """How much a table used its group lately."""

    table: TableIdentifier
    quota: float
    limit: int  # threads
    running_tasks: int
    occupation: float  # part of the limit within the last hour; infinite without limit


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group as it stands."""

    group: ResourceGroup
    optimizers: int
    threads: int
    tables: int
    running_tasks: int
    uses: tuple[GroupUse, ...]  # of tables that used it within the last hour, the most first


class GroupService:
    """Groups by name; `default` always exists."""

    def __init__(self, store: Store, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._clock = clock

    def create(self, group: ResourceGroup) -> GroupView:
        """Raises AlreadyExists, InvalidArgument (name, policy)."""
        if not group.name or any(letter.isspace() or not letter.isprintable() for letter in group.name):
            raise InvalidArgument(f"{group.name!r} can't be the name of a group", hint="Use letters, digits, _ and -.")
        _refuse_unknown(group.scheduling_policy)

        def enter(db: Database) -> None:
            if groups.find(db, group.name) is not None:
                raise AlreadyExists(f"optimizer group {group.name!r} exists already")
            groups.add(db, group)

        self._store.write(enter)
        log.info("group.created", group=group.name, policy=group.scheduling_policy)
        return self.get(group.name)

    def get(self, name: str) -> GroupView:
        """Raises GroupNotFound."""
        return self._store.read(lambda db: _views(db, (groups.get(db, name),), self._clock()))[0]

    def list_groups(self) -> list[GroupView]:
        """All of them, in order of their names."""
        return self._store.read(lambda db: _views(db, groups.list_groups(db), self._clock()))

    def update(self, name: str, change: GroupChange) -> GroupView:
        """Raises GroupNotFound, InvalidArgument (policy, a removal of what is not there); nothing is changed then."""
        if change.policy is not None:
            _refuse_unknown(change.policy)
        self._store.write(lambda db: groups.save(db, _changed(groups.get(db, name), change)))
        log.info("group.updated", group=name)
        return self.get(name)

    def remove(self, name: str) -> None:
        """Raises GroupNotFound; IllegalState while optimizers or tables use it; InvalidArgument for `default`."""
        if name == DEFAULT_GROUP:
            raise InvalidArgument("the group 'default' always exists", hint="Other groups can be removed.")
        self._store.write(lambda db: groups.remove(db, name))
        log.info("group.removed", group=name)

    def in_turn(self, pending: Sequence[TableRuntime]) -> list[TableRuntime]:
        """The tables in the order in which they are planned: in each group as its policy says, groups by turns."""
        if not pending:
            return []
        return self._store.read(lambda db: _in_turn(db, pending, self._clock()))


def _in_turn(db: Database, pending: Sequence[TableRuntime], now: datetime) -> list[TableRuntime]:
    policies = {group.name: group.scheduling_policy for group in groups.list_groups(db)}
    threads = _threads(db)
    runs = _runs(_recent(db, now))
    ordered = []
    for name in sorted({runtime.group for runtime in pending}):
        members = {runtime.table_id: runtime for runtime in pending if runtime.group == name}
        waiting = [
            PendingTable(
                table_id,
                quota_limit(runtime.quota, max(1, threads.get(name, 0))),
                runs.get((name, table_id), ()),
                runtime.last_optimized_at,
            )
            for table_id, runtime in members.items()
        ]
        # A group that does not exist has no policy; planning names it.
        turns = order_pending(waiting, policies.get(name, POLICIES[0]), now)
        ordered.append([members[table.table_id] for table in turns])
    return [runtime for runtime in chain.from_iterable(zip_longest(*ordered)) if runtime is not None]


def _views(db: Database, wanted: Iterable[ResourceGroup], now: datetime) -> list[GroupView]:
    threads, recent = _threads(db), _recent(db, now)
    registered = [optimizer.group for optimizer in optimizers.list_optimizers(db)]
    known = {runtime.table_id: runtime for runtime in tables.list_tables(db)}
    named = [runtime.group for runtime in known.values()]
    held = [task for task in recent if task.thread is not None]
    runs = _runs(recent)
    views = []
    for group in wanted:
        total = threads.get(group.name, 0)
        running = [task.table_id for task in held if task.group == group.name]
        uses = [
            _use(known[table_id], used, running.count(table_id), total, now)
            for (name, table_id), used in runs.items()
            if name == group.name and table_id in known
        ]
        ordered = tuple(sorted(uses, key=lambda use: (-use.occupation, use.table)))
        views.append(
            GroupView(group, registered.count(group.name), total, named.count(group.name), len(running), ordered)
        )
    return views


def _use(runtime: TableRuntime, runs: Sequence[TaskRun], running: int, threads: int, now: datetime) -> GroupUse:
    limit = quota_limit(runtime.quota, max(1, threads))
    return GroupUse(runtime.identifier, runtime.quota, limit, running, occupation(runs, limit, now))


def _recent(db: Database, now: datetime) -> list[OptimizingTask]:
    """The tasks that hold a thread or ended within the time that counts."""
    return [*tasks.list_ended_since(db, now - LOOK_BACK), *tasks.list_held(db)]


def _runs(recent: Iterable[OptimizingTask]) -> dict[tuple[str, int], tuple[TaskRun, ...]]:
    """When tasks held a thread, by group and table; what never was handed out held none."""
    runs: dict[tuple[str, int], tuple[TaskRun, ...]] = {}
    for task in recent:
        if task.scheduled_at is not None:
            key = (task.group, task.table_id)
            runs[key] = (*runs.get(key, ()), TaskRun(task.scheduled_at, task.finished_at))
    return runs


def _threads(db: Database) -> dict[str, int]:
    """The threads of all optimizers, by group."""
    counted: dict[str, int] = {}
    for optimizer in optimizers.list_optimizers(db):
        counted[optimizer.group] = counted.get(optimizer.group, 0) + optimizer.threads
    return counted


def _changed(group: ResourceGroup, change: GroupChange) -> ResourceGroup:
    before = dict(group.properties)
    for key in sorted(change.removed_properties - before.keys()):
        raise InvalidArgument(f"optimizer group {group.name!r} has no property {key!r} to remove")
    kept = {key: value for key, value in before.items() if key not in change.removed_properties}
    return replace(
        group,
        scheduling_policy=change.policy or group.scheduling_policy,
        properties=tuple(sorted({**kept, **change.properties}.items())),
    )


def _refuse_unknown(policy: str) -> None:
    if policy not in POLICIES:
        raise InvalidArgument(f"unknown scheduling policy {policy!r}", hint="Write quota or balanced.")
