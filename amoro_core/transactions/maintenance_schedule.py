"""When maintenance actions are due on a table, and the context of clustering plans."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256

from amoro_core.actions.action_api import (
    Action,
    Clustering,
    Configured,
    Periodic,
    PlanningContext,
    Service,
    Sweeping,
    Triggered,
    TriggerVerdict,
    Verdict,
)
from amoro_core.errors import TableRefused
from amoro_core.formats.ports import OpenTable, Role, lacking, with_roles
from amoro_core.maintenance.schedule import MaintenanceConfig, next_run, opening
from amoro_core.model.maintenance import DueBatch, Surroundings, turn
from amoro_core.model.optimizing_config import Enabled, effective_properties
from amoro_core.model.processes import UNDOES
from amoro_core.model.properties import boolean, parse_into, parse_value, properties_of
from amoro_core.model.tables import ActionRecord
from amoro_core.planning.clustering.model import ClusterVerdict
from amoro_core.state.backoff import with_properties
from amoro_core.state.process_decisions import conflicting_process
from amoro_core.store import actions, pending_deletions, processes, snapshot_leases, table_stats, tables
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.journal import keep_record
from amoro_core.transactions.process_context import pins, reserved_files


def with_clustered(
    db: Connection, situation: PlanningContext, table_id: int, uuid: str, find_action: Callable[[str], Action]
) -> PlanningContext:
    """The situation with the files of other plans, the groups that are known, how the table is read, and the choice."""
    return replace(
        situation,
        taken=reserved_files(db, table_id, uuid, find_action, situation.now),
        known_groups=table_stats.list_cluster_groups(db, table_id, uuid),
        scans=table_stats.list_scans(db, table_id),
        choice=table_stats.find_choice(db, table_id),
    )


def keep_choice(store: Store, table_id: int, situation: PlanningContext, verdict: Verdict) -> None:
    """Keep the columns that the verdict has chosen, if they were chosen anew."""
    if isinstance(verdict, ClusterVerdict) and verdict.choice is not None and verdict.choice != situation.choice:
        choice = verdict.choice
        store.write(lambda db: table_stats.save_choice(db, table_id, choice))


_MOST_ENDED = 10_000
#: Processes that remove rows, which an undo brings back.
_REMOVE_ROWS = UNDOES["undo-expire-data"]


def surroundings(
    db: Connection,
    table_id: int,
    find_action: Callable[[str], Action],
    now: datetime,
    own: str = "",
    undo_keep: timedelta = timedelta(),
) -> Surroundings:
    """The surroundings at one moment. `own` is the calling process, which does not block itself.

    `undo_keep`: how long a process that removed rows can be undone, during which its base snapshot must stay. Raises
    TableNotFound.
    """
    runtime = tables.get(db, table_id)
    needed = pins(db, table_id, find_action, own)
    leases = snapshot_leases.list_leases(db, now, table_id, runtime.uuid)
    recent = processes.list_processes(db, table_id, limit=_MOST_ENDED)
    bases = {
        item.receipt.base_snapshot_id: f"undo of {item.process_id}"
        for item in recent
        if item.type in _REMOVE_ROWS and item.receipt and item.finished_at and now - item.finished_at <= undo_keep
    }
    pinned = {**bases, **needed.reasons, **{lease.snapshot_id: lease.words for lease in leases}}
    return Surroundings(
        pinned=pinned,
        since={lease.snapshot_id: lease.words for lease in leases if lease.is_since},
        paths=needed.paths,
        condemned=pending_deletions.paths(db, table_id, own),
        due=pending_deletions.due(db, table_id, now),
        active=frozenset(processes.list_active_ids(db)),
        ended={process.process_id: process.finished_at for process in recent if process.finished_at is not None},
    )


def neighbours(db: Connection, table_id: int) -> dict[str, str]:
    """The locations of all other tables that are known, by full name."""
    return {str(name): location for number, name, location in tables.list_locations(db) if number != table_id}


def due_batches(store: Store, table_id: int, table_uuid: str, now: datetime) -> Iterator[DueBatch]:
    """The batches of the table that are due at that time, by kind in order; not those that were moved to a trash."""
    for batch_id in store.read(lambda db: pending_deletions.list_due(db, table_id, now)):
        batch = store.read(partial(pending_deletions.get, batch_id=batch_id))
        if batch is not None and batch.table_uuid == table_uuid and not batch.moved_to:
            yield DueBatch(batch.batch_id, batch.kind, batch.files)


GC_KEY = "gc.enabled"
#: Catalogs of this kind keep branches of their own, whose files no table's metadata names.
_BRANCHING = "nessie."


@dataclass(frozen=True, slots=True)
class ScheduleDecision:
    """Whether an action is scheduled on a table, and why or why not."""

    is_given: bool
    reason: str


@dataclass(frozen=True, slots=True)
class ActionState:
    """The result of evaluating an action on a table, to be stored."""

    consent: ScheduleDecision
    verdict: TriggerVerdict | None = None  # of an action that computes its own due time
    every: timedelta = timedelta()
    config: MaintenanceConfig = field(default_factory=MaintenanceConfig)
    uuid: str = ""
    waits_for_condemned: bool = False  # there is nothing to do before something condemned is due
    properties: str = ""  # a digest of those that it goes by


Looks = Mapping[str, ActionState]


@dataclass(frozen=True, slots=True)
class _Scheduled:
    """A scheduled action and its protocols, checked once: `isinstance` of a protocol is slow."""

    action: Action
    every: timedelta | None  # None: it is off everywhere
    periodic: Periodic | None
    orders: bool  # it is one of clustering
    sweeps: bool
    serves: str  # the format whose engine does it; "": it is no service
    keys: tuple[str, ...] | None  # of the properties that it uses; None: of all

    @classmethod
    def of(cls, action: Action, action_intervals: Mapping[str, timedelta | None]) -> "_Scheduled":
        """The action, at the interval of the settings or its own."""
        periodic = action if isinstance(action, Periodic) else None
        interval = action_intervals.get(action.name, timedelta() if periodic is None else periodic.every)
        # An action of another package that declares none uses all.
        keys = None
        if isinstance(action, Configured):
            keys = tuple(item.key for item in properties_of(action.configuration))
        serves = action.format if isinstance(action, Service) else ""
        orders, sweeps = isinstance(action, Clustering), isinstance(action, Sweeping)
        return cls(action, interval, periodic, orders, sweeps, serves, keys)

    def concerns(self, table: OpenTable) -> bool:
        """Whether it is for tables like this one: services are for one format, and nothing else is for its tables."""
        return self.serves == (table.facts.format if Role.SERVICE in table.roles else "")

    def digest(self, properties: Mapping[str, str]) -> str:
        """A digest of the set properties that the action uses: eight bytes, as hex."""
        keys = properties if self.keys is None else self.keys
        own = {key: properties[key] for key in keys if key in properties}
        return sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:16]


class MaintenanceSchedule:
    """The scheduled actions, with the intervals of the settings."""

    def __init__(self, every_action: Iterable[Action], action_intervals: Mapping[str, timedelta | None]) -> None:
        """`action_intervals`: intervals by action; None is off everywhere, and an action without one has its own."""
        actions = tuple(every_action)
        self._triggered = tuple(action for action in actions if isinstance(action, Triggered))
        periodic = tuple(action for action in actions if isinstance(action, Periodic))
        self._scheduled = tuple(_Scheduled.of(action, action_intervals) for action in (*self._triggered, *periodic))
        self.names = frozenset(item.action.name for item in self._scheduled)

    def look(self, table: OpenTable, defaults: Mapping[str, str], enabled: Enabled, override: bool | None) -> Looks:
        """The result for each action, before its last run is known.

        `defaults` are the properties of the table's catalog, `override` is `amoro table enable|disable`. Raises
        TableRefused("configuration").
        """
        facts = table.facts
        properties = effective_properties(defaults, facts.properties)
        config = parse_into(MaintenanceConfig, properties)
        result: dict[str, ActionState] = {}
        for item in self._scheduled:
            if not item.concerns(table):
                continue
            consent = _consent(item, properties, enabled, override)
            if refusal := lacking(table, item.action.roles, item.action.name):
                consent = ScheduleDecision(False, refusal.message)
            interval, digest = item.every or timedelta(), item.digest(properties)
            result[item.action.name] = ActionState(consent, None, interval, config, facts.uuid, item.sweeps, digest)
        return result

    def ask(self, table: OpenTable, defaults: Mapping[str, str], looks: Looks, now: datetime) -> Looks:
        """The same, with the verdicts of actions that are on, and of services. Raises TableRefused("configuration")."""
        properties = effective_properties(defaults, table.facts.properties)
        result = dict(looks)
        for action in self._triggered:
            state = looks.get(action.name)
            if state is not None and (state.consent.is_given or Role.SERVICE in action.roles):
                verdict = action.evaluate(with_roles(table, action.roles, action.name), properties, now)
                consent = state.consent if verdict else ScheduleDecision(False, "its property is not true")
                if verdict is not None and not consent.is_given:
                    consent = ScheduleDecision(False, f"{verdict.reason}; {consent.reason}")
                result[action.name] = replace(state, verdict=verdict, consent=consent)
        return result


def _consent(
    scheduled: _Scheduled, properties: Mapping[str, str], enabled: Enabled, override: bool | None
) -> ScheduleDecision:
    """Whether the action is scheduled on a table with those effective properties."""
    if scheduled.every is None:
        return ScheduleDecision(False, f"off everywhere: {scheduled.action.name}.enabled=false in amoro.yaml")
    if override is False:
        return ScheduleDecision(False, "amoro table disable")
    action = scheduled.periodic
    if scheduled.serves and not enabled.value:
        return ScheduleDecision(False, enabled.origin)
    if action is None:
        return ScheduleDecision(True, "")
    if action.needs_gc and (forbidden := _gc_forbidden(properties)):
        return ScheduleDecision(False, forbidden)
    if not action.switch:
        return ScheduleDecision(True, "always on")
    if scheduled.orders and not enabled.value:
        return ScheduleDecision(False, f"the table is only observed, whatever {action.switch} says")
    if action.switch in properties:
        return ScheduleDecision(action.enabled(properties), f"{action.switch}={properties[action.switch]}")
    if not enabled.value:
        return ScheduleDecision(False, f"the table is only observed, and {action.switch} is not set")
    is_on = action.enabled(properties)
    return ScheduleDecision(is_on, f"{action.switch} is {'true' if is_on else 'false'} by default")


def _gc_forbidden(properties: Mapping[str, str]) -> str:
    """Why the properties forbid actions that delete, even on request; "" when they don't. Raises TableRefused."""
    if GC_KEY in properties and not parse_value(GC_KEY, properties[GC_KEY], boolean):
        return f"{GC_KEY}=false: other tables or tools may need its files and snapshots"
    branching = sorted(key for key in properties if key.startswith(_BRANCHING))
    if branching:
        return f"its catalog keeps branches of its own ({branching[0]} is set), whose files the table does not name"
    return ""


def refuse_forbidden(action: Action, properties: Mapping[str, str], table: str) -> None:
    """Raise TableRefused("gc") for an action that the table's properties forbid."""
    needs_gc = isinstance(action, Periodic) and action.needs_gc
    if needs_gc and (forbidden := _gc_forbidden(properties)):
        raise TableRefused(
            f"{action.name} is forbidden on {table}: {forbidden}",
            reason="gc",
            hint="Only its owner can know: remove the property when nothing else needs its files.",
        )


def due_at(db: Connection, table_id: int, state: ActionState, record: ActionRecord, now: datetime) -> datetime | None:
    """When an action is due, given its last run; None: not known."""
    if not state.consent.is_given or record.paused_at is not None:
        return None
    if state.waits_for_condemned:
        purge_at = pending_deletions.next_purge(db, table_id)
        return None if purge_at is None else _next_run(state, record, now, purge_at)
    if state.verdict is not None:
        at = now if state.verdict.is_due else state.verdict.due_at
        if at is None or record.last_at is None:
            return at
        return max(at, record.last_at + state.every)
    return _next_run(state, record, now)


def _next_run(state: ActionState, record: ActionRecord, now: datetime, earliest: datetime | None = None) -> datetime:
    at = next_run(record.last_at, state.every, state.uuid, record.action, now)
    at = at if earliest is None else max(at, earliest)
    if state.config.window is None:
        return at
    # Actions that were due in a window and did not start wait for the next one.
    return opening(state.config, max(at, now))


def next_due(db: Connection, table_id: int, named: Mapping[str, Action], begun: Set[str], now: datetime) -> str | None:
    """Which of those actions begins next on the table: the first in the order of maintenance that is due, was not begun
    yet, and has no process in its way. Raises TableNotFound."""
    active = processes.list_active_of(db, table_id, tables.get(db, table_id).uuid)
    due = (name for _, name, _ in actions.list_due(db, now, table_id) if name in named and name not in begun)
    return min((name for name in due if conflicting_process(named[name].lane, active) is None), key=turn, default=None)


def note(db: Connection, table_id: int, looks: Looks, now: datetime) -> None:
    """Store when each action is due, or why it is off; a pause ends when its properties have changed."""
    stored = {record.action: record for record in actions.list_of(db, table_id)}
    for name, action_state in looks.items():
        before = stored.get(name) or ActionRecord(table_id, name)
        record = with_properties(before, action_state.properties)
        reason = record.reason
        if not action_state.consent.is_given:
            reason = f"off: {action_state.consent.reason}"
        elif action_state.verdict is not None:
            reason = action_state.verdict.reason
        elif reason.startswith("off: "):
            reason = ""
        record = replace(record, reason=reason, next_at=due_at(db, table_id, action_state, record, now))
        if record != before:
            keep_record(db, before, record, now)
