"""Actions beside optimizing: when they are due on a table, and their processes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from amoro_core.actions.contract import Action, Interruptible, Periodic, Plan, Request, Situation, Undoing, Verdict
from amoro_core.errors import CommitConflict, Held, InvalidArgument, TableBlocked, TableBusy, TableRefused
from amoro_core.events import get_logger
from amoro_core.failpoints import failpoint
from amoro_core.formats.port import AnyTable, with_roles
from amoro_core.formats.tables import Tables
from amoro_core.maintaining.timing import MaintenanceConfig
from amoro_core.model.config import decide_enabled, effective_properties, parse_config
from amoro_core.model.maintenance import NO_OPTIONS, Options
from amoro_core.model.processes import OPTIMIZING_ACTION, OptimizingProcess, ProcessStatus
from amoro_core.model.properties import parse_into
from amoro_core.model.tables import ActionRecord, TableIdentifier, TableRuntime
from amoro_core.scheduling.refreshing import REFRESH_INTERVAL
from amoro_core.state import processes as process_machine
from amoro_core.state.backoff import backed_off
from amoro_core.store import actions, data_commits, groups, process_plans, processes, tables
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.clockwork import Clockwork, Consent, due_at, refuse_forbidden
from amoro_core.transactions.closing import Ending
from amoro_core.transactions.closing import close as close_process
from amoro_core.transactions.pins import Pins, pins
from amoro_core.transactions.planned import (
    EVALUATION,
    Asked,
    Works,
    keep_plan,
    planned,
    require_free,
    require_no_lease_since,
    store_planned,
)
from amoro_core.transactions.settling import Effects, settle
from amoro_core.transactions.surroundings import surroundings
from amoro_core.transactions.undone import undone

log = get_logger("amoro.maintaining")

#: A process that nobody has confirmed by then is closed.
HELD_FOR = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Maintained:
    """What asking for an action came to; `process_id` "": there is nothing to do, or nothing was to be done."""

    process_id: str
    reason: str
    due_at: datetime | None
    plan: Plan | None
    held: str = ""  # why the process waits until somebody confirms it


@dataclass(frozen=True, slots=True)
class KnownAction:
    """What is known of an action on a table."""

    record: ActionRecord
    consent: Consent
    process: OptimizingProcess | None  # that has not ended
    due_at: datetime | None  # None: at no known time
    is_due: bool = False


@dataclass(frozen=True, slots=True)
class _Looked:
    """A table that was loaded for an action."""

    table: AnyTable
    situation: Situation


class MaintenanceService:
    """Makes the processes of actions beside optimizing, when they are due or somebody asks for one."""

    def __init__(
        self,
        store: Store,
        tables_of: Tables,
        known: Mapping[str, Action],
        clock: Callable[[], datetime],
        planned: Callable[[Effects], None],
        clockwork: Clockwork,
        task_limit: timedelta,
    ) -> None:
        """`known` are all actions by their names; `planned` is told what a process that was stored asks for;
        after `task_limit` no task of an ended process writes any more."""
        self._task_limit = task_limit
        self._store = store
        self._tables = tables_of
        self._every = known
        self._undoing = [action for action in known.values() if isinstance(action, Undoing)]
        undoing = {action.name for action in self._undoing}
        self._known = {
            name: action for name, action in known.items() if name != OPTIMIZING_ACTION and name not in undoing
        }
        self._clock = clock
        self._planned = planned
        self._clockwork = clockwork

    def require(self, name: str) -> Action:
        """The action that somebody named. Raises InvalidArgument."""
        found = self._known.get(name)
        if found is None:
            known = ", ".join(sorted(self._known))
            raise InvalidArgument(f"there is no action {name!r}", hint=f"One of: {known}. Files: amoro optimize TABLE.")
        return found

    def list_due(self) -> list[tuple[int, str, str]]:
        """Table, action and the table's catalog for all that is due and may begin, the longest due first."""
        due = self._store.read(lambda db: actions.list_due(db, self._clock()))
        return [one for one in due if one[1] in self._known]

    def pinned(self, table_id: int) -> Pins:
        """What active processes of the table need, so that nobody else may remove it. Raises TableNotFound."""
        return self._store.read(lambda db: pins(db, table_id, self._of_action))

    def list_actions(self, runtime: TableRuntime) -> list[KnownAction]:
        """Every action on the table with what is kept of it, in the order in which they are known.

        Raises TableRefused("configuration"), and what loading the table raises.
        """
        table = self._tables.open(runtime.identifier)
        defaults = dict(self._tables.catalog(runtime.identifier.catalog).properties)
        enabled = decide_enabled(runtime.enabled_override, table.facts.properties, defaults)
        looks = self._clockwork.look(table, defaults, enabled, runtime.enabled_override)
        looks = self._clockwork.ask(table, defaults, looks, self._clock())
        unasked = Consent(False, "it begins only when somebody asks")

        def known(db: Connection, name: str, process: OptimizingProcess | None) -> KnownAction:
            record = actions.get(db, runtime.table_id, name)
            if name not in looks:
                return KnownAction(record, unasked, process, None)
            now = self._clock()
            at = due_at(db, runtime.table_id, looks[name], record, now)
            return KnownAction(record, looks[name].consent, process, at, at is not None and at <= now)

        def read(db: Connection) -> list[KnownAction]:
            active = {one.action: one for one in processes.list_active_of(db, runtime.table_id)}
            return [known(db, name, active.get(name)) for name in self._known]

        return self._store.read(read)

    def preview(self, identifier: TableIdentifier, name: str, options: Options = NO_OPTIONS) -> Maintained:
        """What the action would do on the table now; nothing is changed.

        Raises InvalidArgument, TableRefused, and what loading the table raises.
        """
        action = self.require(name)
        runtime = self._store.read(lambda db: tables.find(db, identifier))
        verdict, plan = self._plan(self._look(identifier, action, runtime), action, Request(name, options=options))
        return Maintained("", verdict.reason, verdict.due_at, plan, plan.held if plan else "")

    def begin(self, table_id: int, name: str, *, trigger: str, options: Options = NO_OPTIONS) -> Maintained:
        """Plan a process of the action and store it, if there is something to do.

        Without tasks it is done in the coordinator. A plan that a breaker holds waits until somebody confirms it.
        Raises InvalidArgument, TableRefused, Held (another process of the action waits for a person), and what loading
        the table raises; unless somebody asked, a failure counts for the action's back-off. Where somebody asked also
        TableBusy and TableBlocked; the clock tries again in a minute.
        """
        action = self.require(name)
        if trigger != EVALUATION:
            held = self._held(table_id, name)
            if held is not None:
                return self._confirm(held, action, options)
            return self._begin(table_id, action, Asked(trigger, Request(name, options=options)))
        try:
            return self._begin(table_id, action, Asked(trigger, Request()))
        except (TableBusy, TableBlocked) as busy:
            later = self._clock() + REFRESH_INTERVAL
            self._note(table_id, name, busy.message, later)
            return Maintained("", busy.message, later, None)
        except TableRefused as refusal:
            self._note(table_id, name, refusal.message, None)  # it is due again when the next refresh finds it so
            raise
        except Exception as error:
            why = str(error) or type(error).__name__
            self._store.write(lambda db: _failed(db, table_id, name, f"planning failed: {why}", self._clock()))
            raise

    def preview_undo(self, process_id: str) -> Maintained:
        """What would take back what the process did; nothing is changed.

        Raises ProcessNotFound, CannotUndo, TableRefused, and what loading the table raises.
        """
        case, action, request = self._store.read(lambda db: undone(db, process_id, self._undoing))
        looked = self._look(case.runtime.identifier, action, case.runtime)
        verdict, plan = self._plan(looked, action, request)
        return Maintained("", verdict.reason, verdict.due_at, plan)

    def undo(self, process_id: str) -> Maintained:
        """Plan and store the process that takes back what another one did.

        Raises as `preview_undo`, TableBusy and TableBlocked.
        """
        case, action, request = self._store.read(lambda db: undone(db, process_id, self._undoing))
        return self._begin(case.runtime.table_id, action, Asked("request", request))

    def interrupt(self) -> None:
        """End soon what actions read in the coordinator: it is about to stop."""
        for action in self._every.values():
            if isinstance(action, Interruptible):
                action.interrupt()

    def close_held(self) -> list[str]:
        """Close what nobody has confirmed for too long; the ids of the processes."""
        before = self._clock() - HELD_FOR
        ending = Ending(f"nobody confirmed it within {HELD_FOR.days} days")

        def close(db: Connection) -> list[str]:
            old = [one for one in processes.list_active(db) if one.status == ProcessStatus.HELD]
            old = [one for one in old if one.created_at <= before]
            for one in old:
                close_process(db, one, ending, self._clock())
            return [one.process_id for one in old]

        return self._store.write(close)

    # Planning

    def _begin(self, table_id: int, action: Action, asked: Asked) -> Maintained:
        runtime = self._store.read(lambda db: tables.get(db, table_id))
        self._store.read(lambda db: require_free(db, runtime, action.lane, self._clock(), maintains=True))
        failpoint("plan.after_mark")
        looked = self._look(runtime.identifier, action, runtime)
        if asked.trigger == EVALUATION and (later := self._not_yet(looked, runtime, action)) is not None:
            return later
        verdict, made = self._plan(looked, action, asked.request)
        if made is None:
            self._note(table_id, action.name, verdict.reason, verdict.due_at, ran=not asked.request.options.given)
            return Maintained("", verdict.reason, verdict.due_at, None)
        now = self._clock()
        process, works = planned(runtime, looked.table, action, made, asked, looked.situation.config, now)
        held = "" if asked.request.options.confirmed else made.held
        if held:
            process = process_machine.advance(process, process_machine.Hold(held), now)
        effects = Effects(work=bool(works) and not held)

        def store(db: Connection) -> None:
            uuid = looked.table.facts.uuid
            require_free(db, replace(runtime, uuid=uuid), action.lane, self._clock(), maintains=True)
            require_no_lease_since(db, runtime, action.lane, looked.situation.now, self._clock())
            store_planned(db, runtime, process, () if held else works)
            keep_plan(db, process, made, asked.request.options, self._clock())
            actions.save(db, replace(actions.get(db, table_id, action.name), reason=made.reason, next_at=None))
            settle(db, process.process_id, effects, self._clock())

        failpoint("plan.before_store")
        self._store.write(store)
        failpoint("plan.after_store")
        self._tell(process, runtime, works)
        self._planned(effects)
        return Maintained(process.process_id, made.reason, verdict.due_at, made, held)

    def _confirm(self, held: OptimizingProcess, action: Action, options: Options) -> Maintained:
        """Let a held process go on, planned anew. Raises Held without a confirmation, and beyond what was confirmed."""
        runtime = self._store.read(lambda db: tables.get(db, held.table_id))
        if not options.confirmed:
            raise _is_held(held, runtime, held.failure)
        kept = self._store.read(lambda db: process_plans.get(db, held.process_id))
        looked = self._look(runtime.identifier, action, runtime, held.process_id)
        if looked.table.facts.uuid != held.table_uuid:
            raise CommitConflict(f"{runtime.identifier} is another table by now: UUID {looked.table.facts.uuid}")
        request = Request(held.type, options=replace(kept.options, confirmed=True))
        verdict, made = self._plan(looked, action, request)
        if made is None:
            ending = Ending(f"nothing to do any more: {verdict.reason}")
            self._store.write(lambda db: close_process(db, held, ending, self._clock()))
            return Maintained("", verdict.reason, verdict.due_at, None)
        beyond = [key for key, value in made.measures.items() if value > kept.measures.get(key, 0)]
        if beyond:
            words = ", ".join(f"{key} {made.measures[key]} (seen: {kept.measures.get(key, 0)})" for key in beyond)
            again = replace(held, failure=f"{made.held or made.reason}; more than was confirmed: {words}")

            def hold(db: Connection) -> None:
                processes.save(db, again)
                keep_plan(db, again, made, kept.options, self._clock())

            self._store.write(hold)
            raise _is_held(again, runtime, again.failure)
        return self._go_on(held, runtime, looked, action, made, request)

    def _go_on(
        self,
        held: OptimizingProcess,
        runtime: TableRuntime,
        looked: _Looked,
        action: Action,
        made: Plan,
        request: Request,
    ) -> Maintained:
        asked = Asked(held.trigger, request)
        anew, works = planned(
            runtime, looked.table, action, made, asked, looked.situation.config, self._clock(), held.process_id
        )
        effects = Effects(work=bool(works))

        def store(db: Connection) -> None:
            now = self._clock()
            require_free(db, runtime, action.lane, now, maintains=True, own=held.process_id)
            current = processes.get(db, held.process_id)
            process = process_machine.advance(current, process_machine.Confirmed(), now)
            store_planned(db, runtime, replace(anew, status=process.status), works, is_new=False)
            keep_plan(db, process, made, request.options, now)
            settle(db, process.process_id, effects, now)

        self._store.write(store)
        log.info("process.confirmed", process=held.process_id, table=str(runtime.identifier), type=held.type)
        self._tell(anew, runtime, works)
        self._planned(effects)
        return Maintained(held.process_id, made.reason, None, made)

    def _look(
        self, identifier: TableIdentifier, action: Action, runtime: TableRuntime | None, own: str = ""
    ) -> _Looked:
        """Load the table for the action. Raises TableRefused, and what loading raises."""
        catalog = self._tables.catalog(identifier.catalog)
        table = with_roles(self._tables.open(identifier), action.roles, action.name)
        table.refuse_unsupported()
        properties = effective_properties(dict(catalog.properties), table.facts.properties)
        refuse_forbidden(action, properties, str(identifier))
        config = parse_config(properties)
        now = self._clock()
        capacity = self._store.read(lambda db: groups.capacity(db, config.group))
        situation = Situation(config, properties, {}, capacity, now, task_limit=self._task_limit)
        if runtime is not None:
            table_id, keep = runtime.table_id, parse_into(MaintenanceConfig, properties).undo_keep
            situation = replace(
                situation,
                last_commit=self._store.read(lambda db: data_commits.find(db, table_id, table.facts.uuid)),
                around=lambda: self._store.read(lambda db: surroundings(db, table_id, self._of_action, now, own, keep)),
            )
        return _Looked(table, situation)

    def _not_yet(self, looked: _Looked, runtime: TableRuntime, action: Action) -> Maintained | None:
        """What the clock is told of an action that is not due after all, or off by now; None: it is due."""
        if not isinstance(action, Periodic):
            return None
        defaults = dict(self._tables.catalog(runtime.identifier.catalog).properties)
        enabled = decide_enabled(runtime.enabled_override, looked.table.facts.properties, defaults)
        looks = self._clockwork.look(looked.table, defaults, enabled, runtime.enabled_override)
        found, now = looks[action.name], self._clock()
        known = self._store.read(lambda db: actions.get(db, runtime.table_id, action.name))
        at = self._store.read(lambda db: due_at(db, runtime.table_id, found, known, now))
        if at is not None and at <= now:
            return None
        reason = known.reason if found.consent.is_given else f"off: {found.consent.reason}"
        self._note(runtime.table_id, action.name, reason, at)
        return Maintained("", reason, at, None)

    @staticmethod
    def _plan(looked: _Looked, action: Action, request: Request) -> tuple[Verdict, Plan | None]:
        return action.plan(looked.table, looked.situation, request)

    # Reading and keeping

    def _of_action(self, name: str) -> Action:
        return self._every[name]

    def _held(self, table_id: int, name: str) -> OptimizingProcess | None:
        """The process of the action on the table that waits for a person."""
        active = self._store.read(lambda db: processes.list_active_of(db, table_id))
        held = (one for one in active if one.action == name and one.status == ProcessStatus.HELD)
        return next(held, None)

    def _note(self, table_id: int, name: str, reason: str, next_at: datetime | None, *, ran: bool = False) -> None:
        """Keep why nothing was begun, and when it is looked at again. `ran`: it was due, and there is nothing to do."""

        def keep(db: Connection) -> None:
            known = replace(actions.get(db, table_id, name), reason=reason, next_at=next_at)
            if ran and isinstance(self._known[name], Periodic):
                known = replace(known, last_at=self._clock(), next_at=self._clock(), failures=0, retry_at=None)
            actions.save(db, known)

        self._store.write(keep)

    @staticmethod
    def _tell(process: OptimizingProcess, runtime: TableRuntime, works: Works) -> None:
        log.info(
            "process.planned",
            process=process.process_id,
            table=str(runtime.identifier),
            type=process.type,
            tasks=len(works),
            status=str(process.status),
            reason=process.reason,
        )


def _is_held(process: OptimizingProcess, runtime: TableRuntime, why: str) -> Held:
    name = str(runtime.identifier)
    return Held(
        f"process {process.process_id} ({process.type}) on {name} is held: {why}",
        hint=f"Look at its plan: amoro process show {process.process_id}. "
        f"Then: amoro table maintain {name} --action {process.type} --confirm {name}",
    )


def _failed(db: Connection, table_id: int, name: str, reason: str, now: datetime) -> None:
    known = backed_off(actions.get(db, table_id, name), now)
    actions.save(db, replace(known, reason=reason, next_at=known.retry_at))
