"""Actions beside optimizing: when they are due on a table, and their processes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from amoro_core.actions.contract import Action, Plan, Request, Situation, Verdict
from amoro_core.errors import InvalidArgument, TableBlocked, TableBusy, TableRefused
from amoro_core.events import get_logger
from amoro_core.failpoints import failpoint
from amoro_core.formats.port import AnyTable, with_roles
from amoro_core.formats.tables import Tables
from amoro_core.model.config import effective_properties, parse_config
from amoro_core.model.processes import OPTIMIZING_ACTION
from amoro_core.model.tables import TableIdentifier
from amoro_core.scheduling.refreshing import REFRESH_INTERVAL
from amoro_core.state.backoff import backed_off
from amoro_core.store import actions, groups, tables
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.pins import Pins, pins
from amoro_core.transactions.planned import EVALUATION, Asked, planned, require_free, store_planned
from amoro_core.transactions.settling import Effects, settle

log = get_logger("amoro.maintaining")


@dataclass(frozen=True, slots=True)
class Maintained:
    """What asking for an action came to; `process_id` "": there is nothing to do, or nothing was to be done."""

    process_id: str
    reason: str
    due_at: datetime | None
    plan: Plan | None


class MaintenanceService:
    """Makes the processes of actions beside optimizing, when they are due or somebody asks for one."""

    def __init__(
        self,
        store: Store,
        tables_of: Tables,
        known: Mapping[str, Action],
        clock: Callable[[], datetime],
        planned: Callable[[Effects], None],
    ) -> None:
        """`known` are all actions by their names; `planned` is told what a process that was stored asks for."""
        self._store = store
        self._tables = tables_of
        self._every = known
        self._known = {name: action for name, action in known.items() if name != OPTIMIZING_ACTION}
        self._clock = clock
        self._planned = planned

    def require(self, name: str) -> Action:
        """The action that somebody named. Raises InvalidArgument."""
        found = self._known.get(name)
        if found is None:
            known = ", ".join(sorted(self._known))
            raise InvalidArgument(f"there is no action {name!r}", hint=f"One of: {known}. Files: amoro optimize TABLE.")
        return found

    def list_due(self) -> list[tuple[int, str, str]]:
        """Table, action and the table's catalog for all that is due and may begin, the longest due first."""
        return self._store.read(lambda db: actions.list_due(db, self._clock()))

    def pinned(self, table_id: int) -> Pins:
        """What active processes of the table need, so that nobody else may remove it. Raises TableNotFound."""
        return self._store.read(lambda db: pins(db, table_id, lambda name: self._every[name]))

    def preview(self, identifier: TableIdentifier, name: str) -> Maintained:
        """What the action would do on the table now; nothing is changed.

        Raises InvalidArgument, TableRefused, and what loading the table raises.
        """
        action = self.require(name)
        _, _, verdict, plan = self._plan(identifier, action, Request(name))
        return Maintained("", verdict.reason, verdict.due_at, plan)

    def begin(self, table_id: int, name: str, *, trigger: str) -> Maintained:
        """Plan a process of the action and store it, if there is something to do.

        Without tasks it is done in the coordinator. Raises InvalidArgument, TableBusy, TableBlocked, TableRefused,
        and what loading the table raises; unless somebody asked, a failure counts for the action's back-off.
        """
        action = self.require(name)
        if trigger != EVALUATION:
            return self._begin(table_id, action, Asked(trigger, Request(name)))
        try:
            return self._begin(table_id, action, Asked(trigger, Request()))
        except (TableBusy, TableBlocked) as busy:
            self._note(table_id, name, busy.message, self._clock() + REFRESH_INTERVAL)
            raise
        except TableRefused as refusal:
            self._note(table_id, name, refusal.message, None)  # it is due again when the next refresh finds it so
            raise
        except Exception as error:
            why = str(error) or type(error).__name__
            self._store.write(lambda db: _failed(db, table_id, name, f"planning failed: {why}", self._clock()))
            raise

    def _begin(self, table_id: int, action: Action, asked: Asked) -> Maintained:
        runtime = self._store.read(lambda db: tables.get(db, table_id))
        self._store.read(lambda db: require_free(db, runtime, action.lane, self._clock()))
        failpoint("plan.after_mark")
        table, situation, verdict, made = self._plan(runtime.identifier, action, asked.request)
        if made is None:
            self._note(table_id, action.name, verdict.reason, verdict.due_at)
            return Maintained("", verdict.reason, verdict.due_at, None)
        process, works = planned(runtime, table, action, made, asked, situation.config, self._clock())
        effects = Effects(work=bool(works))

        def store(db: Connection) -> None:
            require_free(db, replace(runtime, uuid=table.facts.uuid), action.lane, self._clock())
            store_planned(db, runtime, process, works)
            actions.save(db, replace(actions.get(db, table_id, action.name), reason=made.reason, next_at=None))
            settle(db, process.process_id, effects, self._clock())

        failpoint("plan.before_store")
        self._store.write(store)
        failpoint("plan.after_store")
        log.info(
            "process.planned",
            process=process.process_id,
            table=str(runtime.identifier),
            type=process.type,
            tasks=len(works),
            reason=process.reason,
        )
        self._planned(effects)
        return Maintained(process.process_id, made.reason, verdict.due_at, made)

    def _plan(
        self, identifier: TableIdentifier, action: Action, request: Request
    ) -> tuple[AnyTable, Situation, Verdict, Plan | None]:
        catalog = self._tables.catalog(identifier.catalog)
        table = with_roles(self._tables.open(identifier), action.roles, action.name)
        table.refuse_unsupported()
        properties = effective_properties(dict(catalog.properties), table.facts.properties)
        config = parse_config(properties)
        capacity = self._store.read(lambda db: groups.capacity(db, config.group))
        situation = Situation(config, properties, {}, capacity, self._clock())
        return table, situation, *action.plan(table, situation, request)

    def _note(self, table_id: int, name: str, reason: str, next_at: datetime | None) -> None:
        def keep(db: Connection) -> None:
            actions.save(db, replace(actions.get(db, table_id, name), reason=reason, next_at=next_at))

        self._store.write(keep)


def _failed(db: Connection, table_id: int, name: str, reason: str, now: datetime) -> None:
    known = backed_off(actions.get(db, table_id, name), now)
    actions.save(db, replace(known, reason=reason, next_at=known.retry_at))
