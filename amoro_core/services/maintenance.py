"""Maintenance: which actions are due, their state on a table, their plans, format upgrades."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from amoro_core.actions.action_api import (
    Action,
    Clustering,
    Interruptible,
    Periodic,
    Plan,
    PlanningContext,
    Request,
    Undoing,
    Verdict,
)
from amoro_core.errors import CommitConflict, InvalidArgument, TableBlocked, TableBusy, TableRefused
from amoro_core.failpoints import failpoint
from amoro_core.formats.ports import AnyTable, Role, with_roles
from amoro_core.formats.tables import Tables
from amoro_core.logger import get_logger
from amoro_core.maintenance.schedule import MaintenanceConfig, opening
from amoro_core.model.clustering import AS_CONFIGURED, ClusterOptions
from amoro_core.model.maintenance import NO_OPTIONS, Options, refuse_options
from amoro_core.model.optimizing_config import decide_enabled, effective_properties, parse_config
from amoro_core.model.processes import OPTIMIZING_ACTION, OptimizingProcess, ProcessStatus
from amoro_core.model.properties import parse_into
from amoro_core.model.tables import ActionRecord, TableIdentifier, TableRuntime
from amoro_core.scheduling.policy import REFRESH_INTERVAL
from amoro_core.state import backoff
from amoro_core.state import processes as process_machine
from amoro_core.state.backoff import with_properties
from amoro_core.store import actions, groups, plans, processes, tables
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.advance_process import Effects, advance_process, planning_failed
from amoro_core.transactions.journal import keep_process
from amoro_core.transactions.maintenance_schedule import (
    MaintenanceSchedule,
    ScheduleDecision,
    due_at,
    due_batches,
    keep_choice,
    neighbours,
    next_due,
    refuse_forbidden,
    surroundings,
    with_clustered,
)
from amoro_core.transactions.process_context import (
    Ending,
    Pins,
    close_unconfirmed,
    pins,
    require_unreserved,
    undo_request,
)
from amoro_core.transactions.process_context import close as close_process
from amoro_core.transactions.store_plan import (
    EVALUATION,
    ProcessRequest,
    beyond,
    confirmation_required,
    keep_plan,
    log_planned,
    planned,
    require_free,
    require_may_begin,
    require_no_lease_since,
    start,
    store_planned,
)


@dataclass(frozen=True, slots=True)
class KnownAction:
    """The state of an action on a table."""

    record: ActionRecord
    consent: ScheduleDecision
    process: OptimizingProcess | None  # that has not ended
    due_at: datetime | None  # None: at no known time
    is_due: bool = False


class KnownActionService:
    """Lists the actions other than optimizing of each table."""

    def __init__(
        self,
        store: Store,
        tables_of: Tables,
        names: Sequence[str],
        clock: Callable[[], datetime],
        clockwork: MaintenanceSchedule,
    ) -> None:
        """`names` of the actions, in the order in which they are shown."""
        self._store = store
        self._tables = tables_of
        self._names = names
        self._clock = clock
        self._clockwork = clockwork

    def list_actions(self, runtime: TableRuntime) -> list[KnownAction]:
        """Every action on the table with its state, in display order.

        Raises TableRefused("configuration"), and what loading the table raises.
        """
        table = self._tables.open(runtime.identifier)
        defaults = dict(self._tables.catalog(runtime.identifier.catalog).properties)
        enabled = decide_enabled(runtime.enabled_override, table.facts.properties, defaults)
        looks = self._clockwork.look(table, defaults, enabled, runtime.enabled_override)
        looks = self._clockwork.ask(table, defaults, looks, self._clock())
        unasked = ScheduleDecision(False, "it runs only on request")

        def known(db: Connection, name: str, process: OptimizingProcess | None) -> KnownAction:
            record = actions.get(db, runtime.table_id, name)
            if name not in looks:
                return KnownAction(record, unasked, process, None)
            now = self._clock()
            record = with_properties(record, looks[name].properties)
            at = due_at(db, runtime.table_id, looks[name], record, now)
            return KnownAction(record, looks[name].consent, process, at, at is not None and at <= now)

        def read(db: Connection) -> list[KnownAction]:
            active = {one.action: one for one in processes.list_active_of(db, runtime.table_id)}
            return [known(db, name, active.get(name)) for name in self._names]

        return self._store.read(read)


log = get_logger("amoro.maintaining")

#: A held process that is not confirmed within this time is closed.
HELD_FOR = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Maintained:
    """The result of requesting an action; `process_id` "": there is nothing to do, or it was a preview."""

    process_id: str
    reason: str
    due_at: datetime | None
    plan: Plan | None
    held: str = ""  # why the process waits for a confirmation
    verdict: Verdict | None = None  # of the action, where it was asked


@dataclass(frozen=True, slots=True)
class _Looked:
    """A table that was loaded for an action."""

    table: AnyTable
    situation: PlanningContext


@dataclass(frozen=True, slots=True)
class WorkLimits:
    """Limits of work done by optimizers."""

    task_limit: timedelta  # how long tasks of an ended process may still write
    delete_rate: int = 1000  # files of a catalog that are deleted in a second, at most


class MaintenanceService:
    """Starts the processes of actions other than optimizing, when they are due or requested."""

    def __init__(
        self,
        store: Store,
        tables_of: Tables,
        known: Mapping[str, Action],
        clock: Callable[[], datetime],
        planned: Callable[[Effects], None],
        clockwork: MaintenanceSchedule,
        limits: WorkLimits,
    ) -> None:
        """`known` are all actions by name; `planned` receives the effects of a stored process."""
        self._limits = limits
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
        """The action of that name. Raises InvalidArgument."""
        found = self._known.get(name)
        if found is None:
            known = ", ".join(sorted(self._known))
            raise InvalidArgument(f"there is no action {name!r}", hint=f"One of: {known}. Files: amoro optimize TABLE.")
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """The actions that can be requested, in order."""
        return tuple(self._known)

    def list_due(self) -> list[tuple[int, str, str]]:
        """Table, action and the table's catalog for every due action that may begin, the longest due first."""
        due = self._store.read(lambda db: actions.list_due(db, self._clock()))
        return [one for one in due if one[1] in self._known]

    def begin_due(self, table_id: int) -> None:
        """Begin what is due on the table, one after the other in the order of maintenance.

        What a process of its lane is in the way of stays due and follows at once when that one has ended. Raises as
        `begin`; the rest is begun the next time then.
        """
        begun: set[str] = set()

        def read(db: Connection) -> str | None:
            return next_due(db, table_id, self._known, begun, self._clock())

        while (name := self._store.read(read)) is not None:
            begun.add(name)
            self.begin(table_id, name, trigger=EVALUATION)

    def pinned(self, table_id: int) -> Pins:
        """What active processes of the table need, which others must not remove. Raises TableNotFound."""
        return self._store.read(lambda db: pins(db, table_id, self._of_action))

    def preview(
        self,
        identifier: TableIdentifier,
        name: str,
        options: Options = NO_OPTIONS,
        cluster: ClusterOptions = AS_CONFIGURED,
        where: str = "",
    ) -> Maintained:
        """What the action would do on the table now; nothing is changed.

        Raises InvalidArgument, TableRefused, and what loading the table raises.
        """
        action = self.require(name)
        runtime = self._store.read(lambda db: tables.find(db, identifier))
        request = Request(name, False, where, options, cluster, is_preview=True)
        verdict, plan = self._plan(self._look(identifier, action, runtime), action, request)
        return Maintained("", verdict.reason, verdict.due_at, plan, plan.held if plan else "", verdict)

    def begin(
        self,
        table_id: int,
        name: str,
        *,
        trigger: str,
        options: Options = NO_OPTIONS,
        cluster: ClusterOptions = AS_CONFIGURED,
        where: str = "",
    ) -> Maintained:
        """Plan a process of the action and store it, if there is something to do.

        Without tasks it runs in the coordinator. A plan held by a breaker waits for confirmation. Raises
        InvalidArgument, TableRefused, Held (another process of the action waits for confirmation), and what loading the
        table raises; a failure counts for the action's back-off unless requested. A request also raises TableBusy and
        TableBlocked; the schedule retries in a minute.
        """
        action = self.require(name)
        if trigger != EVALUATION:
            held = self._held(table_id, name)
            if held is not None:
                return self._confirm(held, action, options)
            return self._begin(table_id, action, ProcessRequest(trigger, Request(name, False, where, options, cluster)))
        try:
            return self._begin(table_id, action, ProcessRequest(trigger, Request()))
        except (TableBusy, TableBlocked) as busy:
            later = self._clock() + REFRESH_INTERVAL
            self._note(table_id, name, busy.message, later)
            return Maintained("", busy.message, later, None)
        except TableRefused as refusal:
            self._note(table_id, name, refusal.message, None)  # it is due again when the next refresh finds it so
            raise
        except Exception as error:
            failure = error
            self._store.write(lambda db: planning_failed(db, table_id, name, failure, self._clock()))
            raise

    def preview_undo(self, process_id: str) -> Maintained:
        """The plan that would undo the process; nothing is changed.

        Raises ProcessNotFound, CannotUndo, TableRefused, and what loading the table raises.
        """
        case, action, request = self._store.read(lambda db: undo_request(db, process_id, self._undoing))
        inspection = self._look(case.runtime.identifier, action, case.runtime)
        verdict, plan = self._plan(inspection, action, request)
        return Maintained("", verdict.reason, verdict.due_at, plan)

    def undo(self, process_id: str) -> Maintained:
        """Plan and store the process that undoes another one.

        Raises like `preview_undo`, TableBusy and TableBlocked.
        """
        case, action, request = self._store.read(lambda db: undo_request(db, process_id, self._undoing))
        return self._begin(case.runtime.table_id, action, ProcessRequest("request", request))

    def interrupt(self) -> None:
        """Interrupt reading by actions in the coordinator, which is about to stop."""
        for action in self._every.values():
            if isinstance(action, Interruptible):
                action.interrupt()

    def close_unconfirmed(self) -> list[str]:
        """Close processes that were not confirmed in time; returns their ids."""
        return self._store.write(lambda db: close_unconfirmed(db, HELD_FOR, self._clock()))

    # Planning

    def _begin(self, table_id: int, action: Action, process_request: ProcessRequest) -> Maintained:
        runtime = self._store.read(lambda db: tables.get(db, table_id))
        self._store.read(lambda db: require_may_begin(db, runtime, action, process_request, self._clock()))
        failpoint("plan.after_mark")
        inspection = self._look(runtime.identifier, action, runtime)
        if process_request.trigger == EVALUATION and (later := self._not_yet(inspection, runtime, action)) is not None:
            return later
        verdict, made = self._plan(inspection, action, process_request.request)
        keep_choice(self._store, table_id, inspection.situation, verdict)
        if made is None:
            self._note(
                table_id, action.name, verdict.reason, verdict.due_at, ran=not process_request.request.options.given
            )
            return Maintained("", verdict.reason, verdict.due_at, None, "", verdict)
        now = self._clock()
        process, works = planned(
            runtime, inspection.table, action, made, process_request, inspection.situation.config, now
        )
        held = "" if process_request.request.options.confirmed else made.held
        if held:
            process = process_machine.advance(process, process_machine.Hold(held), now)
        effects = Effects(work=bool(works) and not held)
        start_at = None if made.waits else opening(parse_into(MaintenanceConfig, inspection.situation.properties), now)

        def store(db: Connection) -> None:
            uuid = inspection.table.facts.uuid
            waits = made.ttl is not None
            require_may_begin(db, replace(runtime, uuid=uuid), action, process_request, self._clock(), stored=True)
            require_no_lease_since(db, runtime, action.lane, inspection.situation.now, self._clock())
            require_unreserved(db, process, made.data_files, inspection.situation.taken, self._of_action)
            store_planned(db, runtime, process, () if held else works, self._clock())
            keep_plan(db, process, made, process_request.request.options, self._clock(), start_at if waits else None)
            if waits and not made.waits and (process_request.trigger != EVALUATION or start_at == now):
                start(db, process, effects, self._clock())
            actions.save(db, replace(actions.get(db, table_id, action.name), reason=made.reason, next_at=None))
            advance_process(db, process.process_id, effects, self._clock())

        failpoint("plan.before_store")
        self._store.write(store)
        failpoint("plan.after_store")
        log_planned(process, runtime, works)
        self._planned(effects)
        return Maintained(process.process_id, made.reason, verdict.due_at, made, held, verdict)

    def _confirm(self, held: OptimizingProcess, action: Action, options: Options) -> Maintained:
        """Resume a held process, planned again. Raises Held without confirmation, and beyond what was confirmed."""
        runtime = self._store.read(lambda db: tables.get(db, held.table_id))
        if not options.confirmed:
            raise confirmation_required(held, runtime, held.failure)
        kept = self._store.read(lambda db: plans.get_plan(db, held.process_id))
        inspection = self._look(runtime.identifier, action, runtime, held.process_id)
        if inspection.table.facts.uuid != held.table_uuid:
            raise CommitConflict(f"{runtime.identifier} is another table by now: UUID {inspection.table.facts.uuid}")
        request = Request(held.type, options=replace(kept.options, confirmed=True))
        verdict, made = self._plan(inspection, action, request)
        if made is None:
            ending = Ending(f"nothing to do any more: {verdict.reason}")
            self._store.write(lambda db: close_process(db, held, ending, self._clock()))
            return Maintained("", verdict.reason, verdict.due_at, None)
        if made.tasks and not made.measures:
            made = replace(made, measures=kept.measures)  # with which what the tasks find is compared
        if why := beyond(made, kept.measures):
            again = replace(held, failure=why)

            def hold(db: Connection) -> None:
                keep_process(db, held, again, self._clock())
                keep_plan(db, again, made, kept.options, self._clock())

            self._store.write(hold)
            raise confirmation_required(again, runtime, again.failure)
        return self._go_on(held, runtime, inspection, action, made, request)

    def _go_on(
        self,
        held: OptimizingProcess,
        runtime: TableRuntime,
        inspection: _Looked,
        action: Action,
        made: Plan,
        request: Request,
    ) -> Maintained:
        process_request = ProcessRequest(held.trigger, request)
        anew, works = planned(
            runtime,
            inspection.table,
            action,
            made,
            process_request,
            inspection.situation.config,
            self._clock(),
            held.process_id,
        )
        effects = Effects(work=bool(works))

        def store(db: Connection) -> None:
            now = self._clock()
            require_free(db, runtime, action.lane, now, maintains=True, own=held.process_id, action=action.name)
            current = processes.get(db, held.process_id)
            process = process_machine.advance(current, process_machine.Confirmed(), now)
            store_planned(db, runtime, replace(anew, status=process.status), works, now, before=current)
            keep_plan(db, process, made, request.options, now)
            advance_process(db, process.process_id, effects, now)

        self._store.write(store)
        log.info("process.confirmed", process=held.process_id, table=str(runtime.identifier), type=held.type)
        log_planned(anew, runtime, works)
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
        limits = self._limits
        situation = PlanningContext(
            config, properties, {}, capacity, now, task_limit=limits.task_limit, delete_rate=limits.delete_rate
        )
        if runtime is not None and isinstance(action, Clustering):
            whose = (situation, runtime.table_id, table.facts.uuid)
            situation = self._store.read(lambda db: with_clustered(db, *whose, self._of_action))
        if runtime is not None:
            table_id, keep = runtime.table_id, parse_into(MaintenanceConfig, properties).undo_keep
            situation = replace(
                situation,
                last_commit=self._store.read(lambda db: tables.find_data_commit(db, table_id, table.facts.uuid)),
                around=lambda: self._store.read(lambda db: surroundings(db, table_id, self._of_action, now, own, keep)),
                neighbours=lambda: self._store.read(lambda db: neighbours(db, table_id)),
                due_batches=lambda: due_batches(self._store, table_id, table.facts.uuid, now),
            )
        return _Looked(table, situation)

    def _not_yet(self, inspection: _Looked, runtime: TableRuntime, action: Action) -> Maintained | None:
        """The result for a scheduled action that is not due after all, or switched off by now; None: it is due."""
        if not isinstance(action, Periodic):
            return None
        defaults = dict(self._tables.catalog(runtime.identifier.catalog).properties)
        enabled = decide_enabled(runtime.enabled_override, inspection.table.facts.properties, defaults)
        looks = self._clockwork.look(inspection.table, defaults, enabled, runtime.enabled_override)
        found, now = looks[action.name], self._clock()
        known = self._store.read(lambda db: actions.get(db, runtime.table_id, action.name))
        at = self._store.read(lambda db: due_at(db, runtime.table_id, found, known, now))
        if at is not None and at <= now:
            return None
        reason = known.reason if found.consent.is_given else f"off: {found.consent.reason}"
        self._note(runtime.table_id, action.name, reason, at)
        return Maintained("", reason, at, None)

    @staticmethod
    def _plan(inspection: _Looked, action: Action, request: Request) -> tuple[Verdict, Plan | None]:
        refuse_options(action.name, request.options)
        return action.plan(inspection.table, inspection.situation, request)

    # Reading and keeping

    def _of_action(self, name: str) -> Action:
        return self._every[name]

    def _held(self, table_id: int, name: str) -> OptimizingProcess | None:
        """The held process of the action on the table."""
        active = self._store.read(lambda db: processes.list_active_of(db, table_id))
        held = (one for one in active if one.action == name and one.status == ProcessStatus.HELD)
        return next(held, None)

    def _note(self, table_id: int, name: str, reason: str, next_at: datetime | None, *, ran: bool = False) -> None:
        """Store why nothing was started, and the next evaluation. `ran`: it was due, but there was nothing to do."""

        def keep(db: Connection) -> None:
            known = replace(actions.get(db, table_id, name), reason=reason, next_at=next_at)
            if ran:
                known = backoff.succeeded(known)
            if ran and isinstance(self._known[name], Periodic):
                known = replace(known, last_at=self._clock(), next_at=self._clock())
            actions.save(db, known)

        self._store.write(keep)


upgrading_log = get_logger("amoro.upgrading")

#: The only version that tables are upgraded to.
TARGET = 3
_ROLES = frozenset({Role.COMMIT, Role.MAINTAIN})
#: Attempts while others commit.
_TRIES = 20
_NOTES = (
    "It can't be taken back: no engine makes a table of an earlier format of it.",
    "Engines that don't know format 3 can't read or write the table any more.",
    "Files keep their place. Their rows get ids with the next commit; earlier snapshots have none.",
    "Deletion vectors take the place of position deletes as files are rewritten or converted.",
    "An optimizing process that is under way ends with a conflict; the table is planned anew.",
)


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The changes of an upgrade, planned or applied."""

    table: TableIdentifier
    before: int  # the format versions
    after: int
    is_done: bool
    notes: tuple[str, ...] = _NOTES


class UpgradeService:
    """Upgrades of tables."""

    def __init__(self, tables_of: Tables) -> None:
        self._tables = tables_of

    def upgrade(self, identifier: TableIdentifier, version: int, *, dry_run: bool = False) -> Upgrade:
        """Upgrade the table to that format version, by one commit without a snapshot; with `dry_run` only check it.

        Raises InvalidArgument for another version than 3, and for a table that has it already; TableRefused for one
        that is not handled, or while format 3 is not; errors of loading and committing: after CommitUnknown it may be
        upgraded.
        """
        if version != TARGET:
            raise InvalidArgument(
                f"tables can't be upgraded to format version {version}", hint=f"Say --format-version {TARGET}."
            )
        table = with_roles(self._tables.open(identifier), _ROLES, "an upgrade")
        before = table.facts.format_version
        if before >= TARGET:
            raise InvalidArgument(
                f"{identifier} has format version {before} already", hint="There is nothing to be done."
            )
        table.refuse_unsupported()
        for tries_left in reversed(range(1 if dry_run else _TRIES)):
            payload = table.stage_upgrade()
            if dry_run:
                break
            try:
                table.send(payload)
                break
            except CommitConflict:
                if not tries_left:
                    raise
        if not dry_run:
            upgrading_log.info("table.upgraded", table=str(identifier), before=before, after=TARGET)
        return Upgrade(identifier, before, TARGET, not dry_run)
