"""Optimizer groups: their optimizers and tables, how threads are shared, and which table is planned next."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain, zip_longest
from typing import TypeVar

from amoro_core.errors import AlreadyExists, InvalidArgument
from amoro_core.logger import get_logger
from amoro_core.model.group_config import parse_group
from amoro_core.model.paging import Page
from amoro_core.model.processes import ResourceGroup
from amoro_core.model.tables import TableIdentifier
from amoro_core.model.text_sanitizing import NAMES, is_name
from amoro_core.scheduling.policy import (
    DEFAULT_POLICY,
    PendingTable,
    Policy,
    find_policy,
    occupation,
    order_pending,
    quota_limit,
)
from amoro_core.services.containers import ContainerService
from amoro_core.store import groups, tables, tasks
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.task_queue import WaitingTable, count_threads, pending_of, recent_holds, runs_of

log = get_logger("amoro.groups")

DEFAULT_GROUP = "default"
Table = TypeVar("Table", bound=WaitingTable)


@dataclass(frozen=True, slots=True)
class GroupChange:
    """A change of a group; whatever is not given stays."""

    policy: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)  # replaced or added
    removed_properties: frozenset[str] = frozenset()
    container: str | None = None


@dataclass(frozen=True, slots=True)
class GroupUse:
    """A table's recent use of its group."""

    table: TableIdentifier
    quota: float
    limit: int  # threads
    running_tasks: int
    occupation: float  # share of the limit in the last hour; infinite without limit
    table_id: int = 0


@dataclass(frozen=True, slots=True)
class GroupView:
    """The present state of a group."""

    group: ResourceGroup
    optimizers: int
    threads: int
    tables: int
    running_tasks: int
    uses: tuple[GroupUse, ...] = ()  # of tables that used it in the last hour, the most first; lists have none


@dataclass
class GroupService:
    """Groups by name; `default` always exists. `policies` are those that a group may name."""

    store: Store
    clock: Callable[[], datetime]
    policies: Mapping[str, Policy]
    containers: ContainerService
    #: Groups and policies whose failure was logged.
    _failing: set[tuple[str, str]] = field(init=False, default_factory=set)

    def create(self, group: ResourceGroup) -> GroupView:
        """Raises AlreadyExists, InvalidArgument (name, policy, container, a malformed property)."""
        if not is_name(group.name):
            raise InvalidArgument(f"{group.name!r} can't be the name of a group", hint=NAMES)
        find_policy(self.policies, group.scheduling_policy)
        parse_group(group.properties)
        self.containers.check(group)

        def enter(db: Connection) -> None:
            if groups.find(db, group.name) is not None:
                raise AlreadyExists(f"optimizer group {group.name!r} exists already")
            groups.add(db, group)

        self.store.write(enter)
        log.info("group.created", group=group.name, policy=group.scheduling_policy)
        return self.get(group.name)

    def get(self, name: str) -> GroupView:
        """The group with its uses. Raises GroupNotFound."""

        def read(db: Connection) -> GroupView:
            (view,) = _views(db, (groups.get(db, name),))
            return replace(view, uses=_uses(db, view, self.clock()))

        return self.store.read(read)

    def find(self, name: str) -> ResourceGroup:
        """The group alone, without its use. Raises GroupNotFound."""
        return self.store.read(lambda db: groups.get(db, name))

    def list_groups(self) -> list[GroupView]:
        """All groups without their uses, sorted by name."""
        return self.store.read(lambda db: _views(db, groups.list_groups(db)))

    def page(self, after: str, limit: int) -> Page[GroupView]:
        """At most `limit` groups after a name without their uses, sorted by name."""

        def read(db: Connection) -> Page[GroupView]:
            page = groups.page(db, after, limit)
            return Page(tuple(_views(db, page.items)), page.total, page.next)

        return self.store.read(read)

    def update(
        self, name: str, change: GroupChange, condition: Callable[[ResourceGroup], None] | None = None
    ) -> GroupView:
        """Change a group; `condition` is asked, in the same transaction, of what it is before.

        Raises GroupNotFound, InvalidArgument, and what the condition raises; nothing is changed then.
        """
        if change.policy is not None:
            find_policy(self.policies, change.policy)

        def enter(db: Connection) -> None:
            before = groups.get(db, name)
            if condition is not None:
                condition(before)
            changed = _changed(before, change)
            self.containers.check(changed)
            groups.save(db, changed)

        self.store.write(enter)
        log.info("group.updated", group=name)
        return self.get(name)

    def remove(self, name: str) -> None:
        """Raises GroupNotFound; IllegalState while optimizers or tables use it; InvalidArgument for `default`."""
        if name == DEFAULT_GROUP:
            raise InvalidArgument("the group 'default' always exists", hint="Other groups can be removed.")
        self.store.write(lambda db: groups.remove(db, name))
        log.info("group.removed", group=name)

    def in_turn(self, pending: Sequence[Table]) -> list[Table]:
        """The tables in planning order: in each group by its policy, groups in turns."""
        if not pending:
            return []
        policies, waiting = self.store.read(lambda db: pending_of(db, pending, self.clock()))
        by_id = {runtime.table_id: runtime for runtime in pending}
        ordered = [
            # A group that does not exist has no policy; planning names it.
            [by_id[table.table_id] for table in self._ordered(name, policies.get(name, DEFAULT_POLICY), tables)]
            for name, tables in waiting.items()
        ]
        return [runtime for runtime in chain.from_iterable(zip_longest(*ordered)) if runtime is not None]

    def _ordered(self, group: str, name: str, waiting: Sequence[PendingTable]) -> list[PendingTable]:
        """The tables of one group by its policy; by the default one if that is missing or fails."""
        try:
            return order_pending(waiting, find_policy(self.policies, name), self.clock())
        except Exception as error:
            # Plugged-in code: it must stop neither this group nor the others.
            if (group, name) not in self._failing:
                self._failing.add((group, name))
                log.exception("policy.failed", group=group, policy=name, used=DEFAULT_POLICY, why=str(error))
            return order_pending(waiting, self.policies[DEFAULT_POLICY], self.clock())


def _views(db: Connection, wanted: Iterable[ResourceGroup]) -> list[GroupView]:
    """The groups without their uses: for these everything that ended in the last hour is read."""
    threads, running, named = count_threads(db), tasks.count_assigned(db), tables.count_by_group(db)
    registered = Counter(optimizer.group for optimizer in groups.list_optimizers(db))
    return [
        GroupView(
            group,
            registered[group.name],
            threads.get(group.name, 0),
            named.get(group.name, 0),
            running.get(group.name, 0),
        )
        for group in wanted
    ]


def _uses(db: Connection, view: GroupView, now: datetime) -> tuple[GroupUse, ...]:
    recent = [hold for hold in recent_holds(db, now) if hold.group == view.group.name]
    running = Counter(hold.table_id for hold in recent if hold.until is None)
    runs = {table_id: used for (_, table_id), used in runs_of(recent).items()}
    names, quotas = tables.names(db, runs), tables.quotas(db, runs)
    uses = [
        GroupUse(
            names[table_id],
            quotas[table_id],
            limit := quota_limit(quotas[table_id], max(1, view.threads)),
            running[table_id],
            occupation(used, limit, now),
            table_id,
        )
        for table_id, used in runs.items()
        if table_id in names
    ]
    return tuple(sorted(uses, key=lambda use: (-use.occupation, use.table)))


def _changed(group: ResourceGroup, change: GroupChange) -> ResourceGroup:
    before = dict(group.properties)
    for key in sorted(change.removed_properties - before.keys()):
        raise InvalidArgument(f"optimizer group {group.name!r} has no property {key!r} to remove")
    rest = {key: value for key, value in before.items() if key not in change.removed_properties}
    properties = tuple(sorted({**rest, **change.properties}.items()))
    parse_group(properties)
    return replace(
        group,
        scheduling_policy=change.policy or group.scheduling_policy,
        properties=properties,
        container=change.container or group.container,
    )
