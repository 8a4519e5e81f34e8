"""Maintenance: which actions are due, their state on a table, their plans and results, format upgrades."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from amoro_core.actions.action_api import (
    Action,
    Clustering,
    Gathering,
    Interruptible,
    Periodic,
    Plan,
    PlanningContext,
    Request,
    Undoing,
    Verdict,
)
from amoro_core.actions.registry import Actions
from amoro_core.errors import CommitConflict, InvalidArgument, TableBlocked, TableBusy, TableRefused
from amoro_core.failpoints import failpoint
from amoro_core.formats.ports import AnyTable, OpenTable, Role, with_roles
from amoro_core.formats.tables import Tables
from amoro_core.logger import get_logger
from amoro_core.maintenance.schedule import MaintenanceConfig, opening
from amoro_core.model.clustering import AS_CONFIGURED, ClusterOptions
from amoro_core.model.maintenance import NO_OPTIONS, Options, refuse_options
from amoro_core.model.optimizing_config import parse_config
from amoro_core.model.paging import page_limit
from amoro_core.model.processes import OPTIMIZING_ACTION, OptimizingProcess, ProcessContext, ProcessStatus
from amoro_core.model.properties import parse_into
from amoro_core.model.tables import ActionRecord, TableIdentifier, TableRuntime, summary_count
from amoro_core.scheduling.policy import REFRESH_INTERVAL
from amoro_core.state import backoff
from amoro_core.state import processes as process_machine
from amoro_core.state.backoff import with_properties
from amoro_core.store import actions, groups, plans, processes, tables
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.advance_process import (
    Effects,
    Signals,
    advance_process,
    finish_table,
    finish_text,
    move_process,
    planning_failed,
    release_condemned,
)
from amoro_core.transactions.journal import keep_process, keep_record
from amoro_core.transactions.maintenance_schedule import (
    Looks,
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
    close_unconfirmed,
    open_planned,
    require_unreserved,
    undo_request,
    with_blocked,
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
from amoro_core.transactions.table_registry import enabled_of

log = get_logger("amoro.maintaining")
collection_log = get_logger("amoro.gathering")
upgrading_log = get_logger("amoro.upgrading")

#: A held process that is not confirmed within this time is closed.
HELD_FOR = timedelta(days=7)
_UNASKED = ScheduleDecision(False, "it runs only on request")

#: The only format version that tables are upgraded to.
TARGET = 3
_UPGRADE_ROLES = frozenset({Role.COMMIT, Role.MAINTAIN})
#: Attempts to upgrade while others commit.
_TRIES = 20
_UPGRADE_NOTES = (
    "It can't be undone: no engine can convert a table to an earlier format.",
    "Engines that don't know format 3 can't read or write the table any more.",
    "Files keep their place. Their rows get ids with the next commit; earlier snapshots have none.",
    "Deletion vectors take the place of position deletes as files are rewritten or converted.",
    "An optimizing process that is under way ends with a conflict; the table is planned anew.",
)
_BLOCKING = (
    "Equality deletes ({keys:,} keys) block an upgrade to format 4, which has none: amoro optimize {table} --type full"
    " applies them, and their writer must stop writing them."
)


@dataclass(frozen=True, slots=True)
class ActionStatus:
    """The state of an action on a table."""

    record: ActionRecord
    consent: ScheduleDecision
    process: OptimizingProcess | None  # that has not ended
    due_at: datetime | None  # None: at no known time
    is_due: bool = False


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
class Upgrade:
    """The changes of a format upgrade, planned or applied."""

    table: TableIdentifier
    before: int  # the format versions
    after: int
    is_done: bool
    notes: tuple[str, ...] = _UPGRADE_NOTES


@dataclass
class MaintenanceService:
    """Starts the processes of actions other than optimizing, when they are due or requested."""

    store: Store
    tables: Tables
    actions: Actions
    clock: Callable[[], datetime]
    signals: Signals
    schedule: MaintenanceSchedule
    task_limit: timedelta  # how long tasks of an ended process may still write
    delete_rate: int  # files of a catalog that are deleted in a second, at most

    def __post_init__(self) -> None:
        self._undoing = [action for action in self.actions.every if isinstance(action, Undoing)]
        self._startable = {
            action.name: action
            for action in self.actions.every
            if action.name != OPTIMIZING_ACTION and action not in self._undoing
        }

    def require(self, name: str) -> Action:
        """The action of that name. Raises InvalidArgument."""
        action = self._startable.get(name)
        if action is None:
            names = ", ".join(sorted(self._startable))
            raise InvalidArgument(f"there is no action {name!r}", hint=f"One of: {names}. Files: amoro optimize TABLE.")
        return action

    @property
    def names(self) -> tuple[str, ...]:
        """The actions that can be requested, in order."""
        return tuple(self._startable)

    def list_actions(self, runtime: TableRuntime) -> list[ActionStatus]:
        """Every action on the table with its state, in display order.

        Raises TableRefused("configuration"), and what loading the table raises.
        """
        table = self.tables.open(runtime.identifier)
        defaults, looks = self._evaluate_schedule(runtime, table)
        looks = self.schedule.ask(table, defaults, looks, self.clock())

        def status(db: Connection, name: str, process: OptimizingProcess | None) -> ActionStatus:
            record = actions.get(db, runtime.table_id, name)
            if name not in looks:
                return ActionStatus(record, _UNASKED, process, None)
            now = self.clock()
            record = with_properties(record, looks[name].properties)
            at = due_at(db, runtime.table_id, looks[name], record, now)
            return ActionStatus(record, looks[name].consent, process, at, at is not None and at <= now)

        def read(db: Connection) -> list[ActionStatus]:
            active = {process.action: process for process in processes.list_active_of(db, runtime.table_id)}
            names = [name for name in self.names if name in looks or name not in self.schedule.names]
            return [status(db, name, active.get(name)) for name in names]

        return self.store.read(read)

    def list_stored(
        self, table_ids: Collection[int] | None, limit: int
    ) -> tuple[list[tuple[TableIdentifier, ActionStatus]], int]:
        """Actions on these tables or all as they are stored, without asking a catalog; and how many there are.

        What fails or is paused is first, then the next due.
        """
        now = self.clock()

        def read(db: Connection) -> tuple[list[tuple[TableIdentifier, ActionStatus]], int]:
            records = actions.list_first(db, table_ids, page_limit(limit))
            listed = tables.list_by_id(db, [record.table_id for record in records])
            names = {table.table_id: table.identifier for table in listed}
            active = {(number, item.action): item for number in names for item in processes.list_active_of(db, number)}

            def status(record: ActionRecord) -> ActionStatus:
                process, at = active.get((record.table_id, record.action)), record.next_at
                is_on = ScheduleDecision(at is not None, "")
                return ActionStatus(record, is_on, process, at, at is not None and at <= now)

            return [(names[record.table_id], status(record)) for record in records], actions.count(db, table_ids)

        return self.store.read(read)

    def list_due(self) -> list[tuple[int, str, str]]:
        """Table, action and the table's catalog for every due action that may begin, the longest due first."""
        due = self.store.read(lambda db: actions.list_due(db, self.clock()))
        return [item for item in due if item[1] in self._startable]

    def begin_due(self, table_id: int) -> None:
        """Begin what is due on the table, one after the other in the order of maintenance.

        An action that conflicts with a process of its lane stays due, and follows when that has ended. Raises as
        `begin`; the rest is begun the next time then.
        """
        begun: set[str] = set()

        def read(db: Connection) -> str | None:
            return next_due(db, table_id, self._startable, begun, self.clock())

        while (name := self.store.read(read)) is not None:
            begun.add(name)
            self.begin(table_id, name, trigger=EVALUATION)

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
        runtime = self.store.read(lambda db: tables.find(db, identifier))
        request = Request(name, False, where, options, cluster, is_preview=True)
        return self._preview(identifier, self.require(name), runtime, request)

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
            active = self.store.read(lambda db: processes.list_active_of(db, table_id))
            for process in active:
                if process.action == name and process.status == ProcessStatus.HELD:
                    return self._confirm(process, action, options)
            return self._begin(table_id, action, ProcessRequest(trigger, Request(name, False, where, options, cluster)))
        try:
            return self._begin(table_id, action, ProcessRequest(trigger, Request()))
        except (TableBusy, TableBlocked) as busy:
            later = self.clock() + REFRESH_INTERVAL
            self._note(table_id, name, busy.message, later)
            return Maintained("", busy.message, later, None)
        except TableRefused as refusal:
            self._note(table_id, name, refusal.message, None)  # it is due again when the next refresh finds it so
            raise
        except Exception as error:
            failure = error
            self.store.write(lambda db: planning_failed(db, table_id, name, failure, self.clock()))
            raise

    def preview_undo(self, process_id: str) -> Maintained:
        """The plan that would undo the process; nothing is changed.

        Raises ProcessNotFound, CannotUndo, TableRefused, and what loading the table raises.
        """
        case, action, request = self.store.read(lambda db: undo_request(db, process_id, self._undoing))
        return self._preview(case.runtime.identifier, action, case.runtime, request)

    def undo(self, process_id: str) -> Maintained:
        """Plan and store the process that undoes another one.

        Raises like `preview_undo`, TableBusy and TableBlocked.
        """
        case, action, request = self.store.read(lambda db: undo_request(db, process_id, self._undoing))
        return self._begin(case.runtime.table_id, action, ProcessRequest("request", request))

    def interrupt(self) -> None:
        """Interrupt reading by actions in the coordinator, which is about to stop."""
        for action in self.actions.every:
            if isinstance(action, Interruptible):
                action.interrupt()

    def close_unconfirmed(self) -> list[str]:
        """Close processes that were not confirmed in time; returns their ids."""
        return self.store.write(lambda db: close_unconfirmed(db, HELD_FOR, self.clock()))

    def _preview(
        self, identifier: TableIdentifier, action: Action, runtime: TableRuntime | None, request: Request
    ) -> Maintained:
        verdict, plan = _plan(action, *self._load(identifier, action, runtime), request)
        return Maintained("", verdict.reason, verdict.due_at, plan, plan.held if plan else "", verdict)

    def _begin(self, table_id: int, action: Action, process_request: ProcessRequest) -> Maintained:
        runtime = self.store.read(lambda db: tables.get(db, table_id))
        self.store.read(lambda db: require_may_begin(db, runtime, action, process_request.trigger, self.clock()))
        failpoint("plan.after_mark")
        table, context = self._load(runtime.identifier, action, runtime)
        is_scheduled, request = process_request.trigger == EVALUATION, process_request.request
        if is_scheduled and (later := self._not_yet(table, runtime, action)) is not None:
            return later
        verdict, plan = _plan(action, table, context, request)
        keep_choice(self.store, table_id, context, verdict)
        if plan is None:
            self._note(table_id, action.name, verdict.reason, verdict.due_at, ran=not request.options.given)
            return Maintained("", verdict.reason, verdict.due_at, None, "", verdict)
        now = self.clock()
        process, works = planned(runtime, table, action, plan, process_request, context.config, now)
        reason = "" if request.options.confirmed else plan.held
        if reason:
            process = process_machine.advance(process, process_machine.Hold(reason), now)
        effects = Effects(work=bool(works) and not reason)
        start_at = None if plan.waits else opening(parse_into(MaintenanceConfig, context.properties), now)

        def store(db: Connection) -> None:
            waits = plan.ttl is not None
            present = replace(runtime, uuid=table.facts.uuid)
            require_may_begin(db, present, action, process_request.trigger, self.clock(), stored=True)
            require_no_lease_since(db, runtime, action.lane, context.now, self.clock())
            require_unreserved(db, process, plan.data_files, context.taken, self.actions.of, self.clock())
            store_planned(db, runtime, process, () if reason else works, self.clock())
            keep_plan(db, process, plan, request.options, self.clock(), start_at if waits else None)
            if waits and not plan.waits and (not is_scheduled or start_at == now):
                start(db, process, effects, self.clock())
            actions.save(db, replace(actions.get(db, table_id, action.name), reason=plan.reason, next_at=None))
            advance_process(db, process.process_id, effects, self.clock())

        failpoint("plan.before_store")
        self.store.write(store)
        failpoint("plan.after_store")
        log_planned(process, runtime, works)
        self.signals.announce(effects)
        return Maintained(process.process_id, plan.reason, verdict.due_at, plan, reason, verdict)

    def _confirm(self, held: OptimizingProcess, action: Action, options: Options) -> Maintained:
        """Resume a held process, planned again. Raises Held without confirmation, and beyond what was confirmed."""
        runtime = self.store.read(lambda db: tables.get(db, held.table_id))
        if not options.confirmed:
            raise confirmation_required(held, runtime, held.failure)
        stored = self.store.read(lambda db: plans.get_plan(db, held.process_id))
        table, context = self._load(runtime.identifier, action, runtime, held.process_id)
        if table.facts.uuid != held.table_uuid:
            raise CommitConflict(f"{runtime.identifier} is another table by now: UUID {table.facts.uuid}")
        request = Request(held.type, options=replace(stored.options, confirmed=True))
        verdict, plan = _plan(action, table, context, request)
        if plan is None:
            ending = Ending(f"nothing to do any more: {verdict.reason}")
            self.store.write(lambda db: close_process(db, held, ending, self.clock()))
            return Maintained("", verdict.reason, verdict.due_at, None)
        if plan.tasks and not plan.measures:
            plan = replace(plan, measures=stored.measures)  # with which what the tasks find is compared
        confirmed = plan
        if why := beyond(plan, stored.measures):
            again = replace(held, failure=why)

            def hold(db: Connection) -> None:
                keep_process(db, held, again, self.clock())
                keep_plan(db, again, confirmed, stored.options, self.clock())

            self.store.write(hold)
            raise confirmation_required(again, runtime, again.failure)
        process_request = ProcessRequest(held.trigger, request)
        anew, works = planned(
            runtime, table, action, plan, process_request, context.config, self.clock(), held.process_id
        )
        effects = Effects(work=bool(works))

        def resume(db: Connection) -> None:
            now = self.clock()
            require_free(db, runtime, action.lane, now, maintains=True, own=held.process_id, action=action.name)
            current = processes.get(db, held.process_id)
            process = process_machine.advance(current, process_machine.Confirmed(), now)
            store_planned(db, runtime, replace(anew, status=process.status), works, now, before=current)
            keep_plan(db, process, confirmed, request.options, now)
            advance_process(db, process.process_id, effects, now)

        self.store.write(resume)
        log.info("process.confirmed", process=held.process_id, table=str(runtime.identifier), type=held.type)
        log_planned(anew, runtime, works)
        self.signals.announce(effects)
        return Maintained(held.process_id, plan.reason, None, plan)

    def _load(
        self, identifier: TableIdentifier, action: Action, runtime: TableRuntime | None, own: str = ""
    ) -> tuple[AnyTable, PlanningContext]:
        """The table for the action, and the context of its plan. Raises TableRefused, and what loading raises."""
        table = with_roles(self.tables.open(identifier), action.roles, action.name)
        table.refuse_unsupported()
        context = self._context(identifier, table, runtime, own)
        refuse_forbidden(action, context.properties, str(identifier))
        if runtime is not None and isinstance(action, Clustering):
            whose = (context, runtime.table_id, table.facts.uuid)
            context = self.store.read(lambda db: with_clustered(db, *whose, self.actions.of))
            context = replace(context, taken=with_blocked(context.taken, table))
        return table, context

    def _context(
        self, identifier: TableIdentifier, table: AnyTable, runtime: TableRuntime | None, own: str
    ) -> PlanningContext:
        properties = self.tables.effective_properties(identifier.catalog, table)
        config, now = parse_config(properties), self.clock()
        capacity = self.store.read(lambda db: groups.capacity(db, config.group))
        context = PlanningContext(
            config, properties, {}, capacity, now, task_limit=self.task_limit, delete_rate=self.delete_rate
        )
        if runtime is None:
            return context
        table_id, uuid = runtime.table_id, table.facts.uuid
        keep = parse_into(MaintenanceConfig, properties).undo_keep
        return replace(
            context,
            last_commit=self.store.read(lambda db: tables.find_data_commit(db, table_id, uuid)),
            around=lambda: self.store.read(lambda db: surroundings(db, table_id, self.actions.of, now, own, keep)),
            neighbours=lambda: self.store.read(lambda db: neighbours(db, table_id)),
            due_batches=lambda: due_batches(self.store, table_id, uuid, now),
        )

    def _evaluate_schedule(self, runtime: TableRuntime, table: OpenTable) -> tuple[dict[str, str], Looks]:
        """The properties of the table's catalog, and the state of each scheduled action without its last run."""
        defaults = self.tables.catalog(runtime.identifier.catalog).defaults_for(runtime.identifier)
        enabled = enabled_of(table, defaults, runtime.enabled_override)
        return defaults, self.schedule.look(table, defaults, enabled, runtime.enabled_override)

    def _not_yet(self, table: OpenTable, runtime: TableRuntime, action: Action) -> Maintained | None:
        """The result for a scheduled action that is not due after all, or switched off by now; None: it is due."""
        if not isinstance(action, Periodic):
            return None
        _, looks = self._evaluate_schedule(runtime, table)
        state, now = looks[action.name], self.clock()
        record = self.store.read(lambda db: actions.get(db, runtime.table_id, action.name))
        at = self.store.read(lambda db: due_at(db, runtime.table_id, state, record, now))
        if at is not None and at <= now:
            return None
        reason = record.reason if state.consent.is_given else f"off: {state.consent.reason}"
        self._note(runtime.table_id, action.name, reason, at)
        return Maintained("", reason, at, None)

    def _note(self, table_id: int, name: str, reason: str, next_at: datetime | None, *, ran: bool = False) -> None:
        """Store why nothing was started, and the next evaluation. `ran`: it was due, but there was nothing to do."""

        def keep(db: Connection) -> None:
            before = actions.get(db, table_id, name)
            record = replace(before, reason=reason, next_at=next_at)
            if ran:
                record = backoff.succeeded(record)
            if ran and isinstance(self._startable[name], Periodic):
                record = replace(record, last_at=self.clock(), next_at=self.clock())
            keep_record(db, before, record, self.clock())

        self.store.write(keep)

    def gather(self, case: ProcessContext, action: Gathering) -> None:
        """Act on the results of tasks that determine what to do: condemn the files and end the process, or hold it.

        Raises what the action raises; nothing is changed then.
        """
        process_id = case.process.process_id
        table = with_roles(open_planned(self.tables, case), action.roles, case.process.type)
        stored = self.store.read(lambda db: plans.get_plan(db, process_id))
        context = self._context(case.runtime.identifier, table, case.runtime, process_id)
        plan = action.gathered(table, context, case, stored.options)
        reason = plan.held
        if stored.options.confirmed:
            reason = beyond(plan, stored.measures) if stored.measures else ""
        receipt = action.receipt(replace(case, process=replace(case.process, detail=plan.detail)))

        def store(db: Connection) -> None:
            now, process = self.clock(), processes.get(db, process_id)
            if process.status is not ProcessStatus.RUNNING:
                return  # closed meanwhile
            processes.save(db, replace(process, detail=plan.detail, reason=plan.reason))
            keep_plan(db, process, plan, replace(stored.options, confirmed=False), now)
            if reason:
                move_process(db, process_id, process_machine.Hold(reason), now)
                return
            ended = move_process(db, process_id, process_machine.Cleared(receipt), now)
            finish_table(db, ended, finish_text(ended, None), now)
            release_condemned(db, ended, now)

        failpoint("gather.before_store")
        self.store.write(store)
        failpoint("gather.after_store")
        collection_log.info("work.gathered", process=process_id, reason=plan.reason, held=reason)

    def upgrade(self, identifier: TableIdentifier, version: int, *, dry_run: bool = False) -> Upgrade:
        """Upgrade the table to that format version, by one commit without a snapshot; with `dry_run` only check it.

        Equality deletes, which block a later upgrade to format 4, are told. Raises InvalidArgument for another version
        than 3, and for a table that has it already; TableRefused for one that is not handled; errors of loading and
        committing: after CommitUnknown it may be upgraded.
        """
        table = with_roles(self.tables.open(identifier), _UPGRADE_ROLES, "an upgrade")
        before = table.facts.format_version
        equality = summary_count(table.facts.snapshot_summary, "total-equality-deletes")
        notes = (_BLOCKING.format(keys=equality, table=identifier),) if equality else ()
        if version != TARGET:
            hint = " ".join((f"Say --format-version {TARGET}.", *(notes if version > TARGET else ())))
            raise InvalidArgument(f"tables can't be upgraded to format version {version}", hint=hint)
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
        return Upgrade(identifier, before, TARGET, not dry_run, (*_UPGRADE_NOTES, *notes))


def _plan(action: Action, table: AnyTable, context: PlanningContext, request: Request) -> tuple[Verdict, Plan | None]:
    refuse_options(action.name, request.options)
    return action.plan(table, context, request)
