"""Planning: from a table to the tasks of a process."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from amoro_core.actions.action_api import Action, Optimizing, PlanningContext, Request
from amoro_core.errors import IllegalState, InvalidArgument, NotFound, TableBusy, TableRefused
from amoro_core.failpoints import failpoint
from amoro_core.formats.ports import with_roles
from amoro_core.formats.tables import Tables, Vending
from amoro_core.logger import get_logger
from amoro_core.model.maintenance import ReservedFiles
from amoro_core.model.optimizing_config import effective_properties, parse_config
from amoro_core.model.plans import Evaluation, SavedPlan
from amoro_core.model.processes import OptimizingProcess
from amoro_core.model.tables import OptimizingStatus, OptimizingType, TableIdentifier, TableRuntime
from amoro_core.model.text_sanitizing import LONGEST_REASON, briefly, without_secrets
from amoro_core.state import tables as table_machine
from amoro_core.state.backoff import backed_off
from amoro_core.store import groups, plans, tables
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.journal import keep_table
from amoro_core.transactions.process_context import require_unreserved, reserved_files
from amoro_core.transactions.store_plan import EVALUATION, ProcessRequest, Works, planned, require_free, store_planned

log = get_logger("amoro.planning")


@dataclass(frozen=True, slots=True)
class StartResult:
    """The result of planning a process; `process_id` None: nothing to do."""

    process_id: str | None
    evaluation: Evaluation


class PlanningService:
    """Creates optimizing processes: a table is marked, planned outside of any transaction, and its plan stored."""

    def __init__(
        self,
        store: Store,
        tables_of: Tables,
        action: Optimizing,
        find_action: Callable[[str], Action],
        clock: Callable[[], datetime],
        vending: Vending,
        *,
        work_planned: Callable[[], None],
        changed: Callable[[], None],
    ) -> None:
        self._store = store
        self._tables = tables_of
        self._action = action
        self._find_action = find_action
        self._clock = clock
        self._vending = vending
        self._work_planned = work_planned
        self._changed = changed

    def begin(
        self,
        table_id: int,
        *,
        trigger: str,
        requested: OptimizingType | None = None,
        force: bool = False,
        where: str = "",
    ) -> StartResult:
        """Plan a process for a table and store it, if there is something to do.

        The table is marked first, planned outside of any transaction, and the plan stored only if the mark still
        stands. `where` selects partitions. Raises TableBusy, TableBlocked, TableRefused, InvalidArgument (a condition
        that does not select whole partitions), and what loading the table raises; the table is then idle (or refused)
        again, and a failure counts for the back-off unless requested.
        """
        before, runtime = self._store.write(lambda db: self._mark_planning(db, table_id, trigger))
        self._changed()
        try:
            failpoint("plan.after_mark")
            begun = self._plan_marked(runtime, before, ProcessRequest(trigger, Request(requested, force, where)))
        except TableRefused as refusal:
            event = table_machine.Refuse(refusal.reason, refusal.told)
            self._store.write(lambda db: self._unmark(db, table_id, event))
            raise
        except TableBusy as busy:
            again = table_machine.PlanEmpty(busy.message)
            self._store.write(lambda db: self._unmark(db, table_id, again, again=True))
            raise
        except InvalidArgument:
            # An invalid request tells nothing about the table, which is evaluated again.
            empty = table_machine.PlanEmpty(before)
            self._store.write(lambda db: self._unmark(db, table_id, empty, again=True))
            raise
        except BaseException as error:
            why = without_secrets(briefly(str(error) or type(error).__name__, LONGEST_REASON))
            self._store.write(lambda db: self._plan_failed(db, table_id, why, asked=trigger != EVALUATION))
            raise
        finally:
            self._changed()
        if begun.process_id is not None:
            self._work_planned()
        return begun

    def _plan_marked(self, runtime: TableRuntime, before: str, asked: ProcessRequest) -> StartResult:
        catalog = self._tables.catalog(runtime.identifier.catalog)
        opened = self._tables.open(runtime.identifier)
        table = with_roles(opened, self._action.roles, asked.request.name or "optimizing")
        table.refuse_unsupported()
        properties = effective_properties(dict(catalog.properties), table.facts.properties)
        config = parse_config(properties)
        now, request = self._clock(), asked.request
        last = self._store.read(lambda db: tables.partitions_last_optimized(db, runtime.table_id))
        capacity = self._store.read(lambda db: groups.capacity(db, config.group))
        others = self._store.read(lambda db: reserved_files(db, runtime.table_id, table.facts.uuid, self._find_action))
        situation = PlanningContext(config, properties, last, capacity, now, taken=others)
        evaluation, made = self._action.plan(table, situation, request)
        if made is None:
            # What was asked for says nothing about what the triggers say, for which the table may have been pending.
            # Nor does what was left to other plans, which the table's evaluation may not have known yet.
            again = request.name is not None or bool(request.where) or bool(others.paths)
            event = table_machine.PlanEmpty((again and before) or evaluation.reason)
            self._store.write(lambda db: self._unmark(db, runtime.table_id, event, again=again))
            return StartResult(None, evaluation)
        process, works = planned(runtime, table, self._action, made, asked, config, now)
        self._vending.keep(runtime.identifier, opened.io_properties(), now)  # optimizers are soon going to ask for them
        failpoint("plan.before_store")
        self._store.write(lambda db: self._store_plan(db, process, works, made.data_files, others))
        failpoint("plan.after_store")
        log.info(
            "process.planned",
            process=process.process_id,
            table=str(runtime.identifier),
            type=process.type,
            tasks=len(works),
            reason=process.reason,
        )
        return StartResult(process.process_id, evaluation)

    def _mark_planning(self, db: Connection, table_id: int, trigger: str) -> tuple[str, TableRuntime]:
        """The former reason of the table's status, and the table marked as planning."""
        runtime = before = tables.get(db, table_id)
        require_free(db, runtime, self._action.lane, self._clock())
        if runtime.status is OptimizingStatus.REFUSED:
            runtime = table_machine.advance(runtime, table_machine.Mended(), self._clock())
        try:
            planning = table_machine.advance(runtime, table_machine.BeginPlan(trigger), self._clock())
        except IllegalState as error:
            raise TableBusy(f"table {runtime.identifier} is {runtime.status}", hint="Try again later.") from error
        keep_table(db, before, planning, self._clock())
        return runtime.status_reason, planning

    def _unmark(self, db: Connection, table_id: int, event: table_machine.TableEvent, *, again: bool = False) -> None:
        """Update the table after planning; `again`: evaluate it at the next refresh even if it has not changed."""
        before = tables.get(db, table_id)
        ended = table_machine.advance(before, event, self._clock())
        keep_table(db, before, replace(ended, evaluated_snapshot_id=None) if again else ended, self._clock())

    def _plan_failed(self, db: Connection, table_id: int, why: str, *, asked: bool) -> None:
        now = self._clock()
        runtime = tables.get(db, table_id)
        if runtime.status is not OptimizingStatus.PLANNING:
            return
        event = table_machine.PlanFailed(f"planning failed: {why}")
        idle = table_machine.advance(runtime, event, now)
        keep_table(db, runtime, idle if asked else backed_off(idle, now), now)

    def _store_plan(
        self, db: Connection, process: OptimizingProcess, works: Works, data_files: Sequence[str], others: ReservedFiles
    ) -> None:
        now = self._clock()
        require_unreserved(db, process, data_files, others, self._find_action)
        runtime = tables.get(db, process.table_id)
        begun = table_machine.planned(OptimizingType(process.type), process.reason)
        store_planned(db, runtime, process, works, now)
        tables.save(db, table_machine.advance(runtime, begun, now))


KEPT_FOR = timedelta(minutes=10)
MOST = 100


class SavedPlanService:
    """The newest hundred plans that were kept."""

    def __init__(self, store: Store, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._clock = clock

    def keep(self, table: TableIdentifier, content: bytes) -> SavedPlan:
        """Keep the plan under an id that can't be guessed; what is old or too much goes."""
        made = SavedPlan(secrets.token_urlsafe(9), str(table), self._clock(), content)

        def enter(db: Connection) -> None:
            plans.add_saved_plan(db, made)
            plans.trim_saved_plans(db, made.saved_at - KEPT_FOR, MOST)

        self._store.write(enter)
        return made

    def get(self, table: TableIdentifier, plan_id: str) -> SavedPlan:
        """The table's plan. Raises NotFound for one that is not kept (any more), or is another table's."""
        found = self._store.read(lambda db: plans.find_saved_plan(db, plan_id))
        if found is None or found.table != str(table) or self._clock() - found.saved_at >= KEPT_FOR:
            raise NotFound(
                f"no plan {plan_id!r} of {table} is kept",
                hint="Plans are kept for ten minutes, and the newest hundred of them: plan the table again.",
            )
        return found
