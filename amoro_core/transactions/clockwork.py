"""Scheduled actions of a table: which are on and why, and when each is due."""

import json
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import sha256

from amoro_core.actions.contract import Action, Clustering, Configured, Periodic, Sweeping, Triggered, TriggerVerdict
from amoro_core.errors import TableRefused
from amoro_core.formats.port import OpenTable, lacking, with_roles
from amoro_core.maintaining.timing import MaintenanceConfig, next_run, opening
from amoro_core.model.config import Enabled, effective_properties
from amoro_core.model.maintenance import turn
from amoro_core.model.properties import boolean, parse_into, parse_value, properties_of
from amoro_core.model.tables import ActionRecord
from amoro_core.state.lanes import in_the_way
from amoro_core.state.pausing import seen_with
from amoro_core.store import actions, condemned, processes, tables
from amoro_core.store.database import Connection
from amoro_core.transactions.telling import keep_record

GC_KEY = "gc.enabled"
#: Catalogs of this kind keep branches of their own, whose files no table's metadata names.
_BRANCHING = "nessie."


@dataclass(frozen=True, slots=True)
class Consent:
    """Whether an action is scheduled on a table, and why or why not."""

    is_given: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Looked:
    """What to store about an action on a table after evaluating it."""

    consent: Consent
    verdict: TriggerVerdict | None = None  # of an action that says itself when it is due
    every: timedelta = timedelta()
    config: MaintenanceConfig = field(default_factory=MaintenanceConfig)
    uuid: str = ""
    waits_for_condemned: bool = False  # there is nothing to do before something condemned is due
    properties: str = ""  # a digest of those that it goes by


Looks = Mapping[str, Looked]


class Clockwork:
    """The scheduled actions, with the intervals of the settings."""

    def __init__(self, every_action: Iterable[Action], rhythm: Mapping[str, timedelta | None]) -> None:
        """`rhythm`: intervals of actions by name, None for one that is off everywhere; others have their own."""
        known = tuple(every_action)
        self._triggered = tuple(action for action in known if isinstance(action, Triggered))
        self._periodic = tuple(action for action in known if isinstance(action, Periodic))
        self._rhythm = rhythm

    def look(self, table: OpenTable, defaults: Mapping[str, str], enabled: Enabled, override: bool | None) -> Looks:
        """What to store about each action, before its last run is known.

        `defaults` are the properties of the table's catalog, `override` is `amoro table enable|disable`. Raises
        TableRefused("configuration").
        """
        own = table.facts.properties
        properties = effective_properties(defaults, own)
        config = parse_into(MaintenanceConfig, properties)
        found: dict[str, Looked] = {}
        for action in (*self._triggered, *self._periodic):
            consent = self._consent(action, table, properties, enabled, override)
            every = self.every(action) or timedelta()
            waits = isinstance(action, Sweeping)
            found[action.name] = Looked(
                consent, None, every, config, table.facts.uuid, waits, _digest(action, properties)
            )
        return found

    def ask(self, table: OpenTable, defaults: Mapping[str, str], looks: Looks, now: datetime) -> Looks:
        """The same, with the verdicts of actions that are on. Raises TableRefused("configuration")."""
        properties = effective_properties(defaults, table.facts.properties)
        found = dict(looks)
        for action in self._triggered:
            looked = looks[action.name]
            if looked.consent.is_given:
                verdict = action.evaluate(with_roles(table, action.roles, action.name), properties, now)
                off = Consent(False, "its property is not true")
                found[action.name] = replace(looked, verdict=verdict, consent=looked.consent if verdict else off)
        return found

    def every(self, action: Action) -> timedelta | None:
        """The interval between two runs; None: it is off everywhere."""
        own = action.every if isinstance(action, Periodic) else timedelta()
        return self._rhythm.get(action.name, own)

    def consent(
        self, action: Action, properties: Mapping[str, str], enabled: Enabled, override: bool | None
    ) -> Consent:
        """Whether the action is scheduled on a table with those effective properties."""
        if self.every(action) is None:
            return Consent(False, f"off everywhere: {action.name}.enabled=false in amoro.yaml")
        if override is False:
            return Consent(False, "amoro table disable")
        if not isinstance(action, Periodic):
            return Consent(True, "")
        if forbidden := gc_forbidden(action, properties):
            return Consent(False, forbidden)
        if not action.switch:
            return Consent(True, "always on")
        if isinstance(action, Clustering) and not enabled.value:
            return Consent(False, f"the table is only observed, whatever {action.switch} says")
        if action.switch in properties:
            said = f"{action.switch}={properties[action.switch]}"
            return Consent(action.enabled(properties), said)
        if not enabled.value:
            return Consent(False, f"the table is only observed, and {action.switch} is not set")
        is_on = action.enabled(properties)
        return Consent(is_on, f"{action.switch} is {'true' if is_on else 'false'} by default")

    def _consent(
        self, action: Action, table: OpenTable, properties: Mapping[str, str], enabled: Enabled, override: bool | None
    ) -> Consent:
        refusal = lacking(table, action.roles, action.name)
        if refusal is not None:
            return Consent(False, refusal.message)
        return self.consent(action, properties, enabled, override)


def gc_forbidden(action: Action, properties: Mapping[str, str]) -> str:
    """Why the table's properties forbid the action, even on request; "" when they don't. Raises TableRefused."""
    if not (isinstance(action, Periodic) and action.needs_gc):
        return ""
    if GC_KEY in properties and not parse_value(GC_KEY, properties[GC_KEY], boolean):
        return f"{GC_KEY}=false: other tables or tools may need its files and snapshots"
    branching = sorted(key for key in properties if key.startswith(_BRANCHING))
    if branching:
        return f"its catalog keeps branches of its own ({branching[0]} is set), whose files the table does not name"
    return ""


def refuse_forbidden(action: Action, properties: Mapping[str, str], table: str) -> None:
    """Raise TableRefused("gc") for an action that the table's properties forbid."""
    if forbidden := gc_forbidden(action, properties):
        raise TableRefused(
            f"{action.name} is forbidden on {table}: {forbidden}",
            reason="gc",
            hint="Only its owner can know: remove the property when nothing else needs its files.",
        )


def due_at(db: Connection, table_id: int, looked: Looked, known: ActionRecord, now: datetime) -> datetime | None:
    """When an action is due, given its last run; None: not known."""
    if not looked.consent.is_given or known.paused_at is not None:
        return None
    if looked.waits_for_condemned:
        purge_at = condemned.next_purge(db, table_id)
        return None if purge_at is None else _next_run(looked, known, now, purge_at)
    if looked.verdict is not None:
        at = now if looked.verdict.is_due else looked.verdict.due_at
        if at is None or known.last_at is None:
            return at
        return max(at, known.last_at + looked.every)
    return _next_run(looked, known, now)


def _digest(action: Action, properties: Mapping[str, str]) -> str:
    """A digest of the set properties that the action uses: eight bytes, as hex.

    An action of another package that names none uses all.
    """
    if not isinstance(action, Configured):
        own = dict(properties)
    else:
        own = {one.key: properties[one.key] for one in properties_of(action.configuration) if one.key in properties}
    return sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:16]


def _next_run(looked: Looked, known: ActionRecord, now: datetime, earliest: datetime | None = None) -> datetime:
    at = next_run(known.last_at, looked.every, looked.uuid, known.action, now)
    at = at if earliest is None else max(at, earliest)
    if looked.config.window is None:
        return at
    # What was due in the window and has not begun by its end waits for the next one.
    return opening(looked.config, max(at, now))


def next_due(db: Connection, table_id: int, known: Mapping[str, Action], begun: Set[str], now: datetime) -> str | None:
    """Which of those actions begins next on the table: the first in the order of maintenance that is due, was not begun
    yet, and has no process in its way. Raises TableNotFound."""
    active = processes.list_active_of(db, table_id, tables.get(db, table_id).uuid)
    due = (name for _, name, _ in actions.list_due(db, now, table_id) if name in known and name not in begun)
    return min((name for name in due if in_the_way(known[name].lane, active) is None), key=turn, default=None)


def note(db: Connection, table_id: int, looks: Looks, now: datetime) -> None:
    """Store when each action is due, or why it is off; a pause ends when its properties have changed."""
    for name, looked in looks.items():
        before = actions.get(db, table_id, name)
        known = seen_with(before, looked.properties)
        reason = known.reason
        if not looked.consent.is_given:
            reason = f"off: {looked.consent.reason}"
        elif looked.verdict is not None:
            reason = looked.verdict.reason
        elif reason.startswith("off: "):
            reason = ""
        known = replace(known, reason=reason, next_at=due_at(db, table_id, looked, known, now))
        keep_record(db, before, known, now)
