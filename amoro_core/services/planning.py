"""Planning: from a table to the tasks of a process."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from amoro_core.actions.contract import Optimizing, Request, Situation
from amoro_core.errors import IllegalState, InvalidArgument, TableBusy, TableRefused
from amoro_core.events import get_logger
from amoro_core.failpoints import failpoint
from amoro_core.formats.port import with_roles
from amoro_core.formats.tables import Tables
from amoro_core.model.config import effective_properties, parse_config
from amoro_core.model.plans import Evaluation
from amoro_core.model.processes import OptimizingProcess, OptimizingTask
from amoro_core.model.secrets import without_secrets
from amoro_core.model.tables import OptimizingStatus, OptimizingType, TableRuntime
from amoro_core.model.texts import LONGEST_REASON, briefly
from amoro_core.state import tables as table_machine
from amoro_core.state.backoff import backed_off
from amoro_core.store import groups, partitions, tables
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.planned import EVALUATION, Asked, planned, require_free, store_planned

log = get_logger("amoro.planning")


@dataclass(frozen=True, slots=True)
class Begun:
    """What planning a process came to; `process_id` None: nothing to do."""

    process_id: str | None
    evaluation: Evaluation


class PlanningService:
    """Makes optimizing processes: a table is marked, planned outside of any transaction, and its plan stored."""

    def __init__(
        self,
        store: Store,
        tables_of: Tables,
        action: Optimizing,
        clock: Callable[[], datetime],
        *,
        work_planned: Callable[[], None],
        changed: Callable[[], None],
    ) -> None:
        self._store = store
        self._tables = tables_of
        self._action = action
        self._clock = clock
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
    ) -> Begun:
        """Plan a process for a table and store it, if there is something to do.

        The table is marked first, planned outside of any transaction, and the plan stored only while
        the mark stands. `where` limits it to partitions that it chooses. Raises TableBusy, TableBlocked, TableRefused,
        InvalidArgument (a condition that chooses no whole partitions), and what loading the table raises; the table
        is idle (or refused) again then, and a failure counts for the back-off unless somebody asked.
        """
        before, runtime = self._store.write(lambda db: self._mark_planning(db, table_id, trigger))
        self._changed()
        try:
            failpoint("plan.after_mark")
            begun = self._plan_marked(runtime, before, Asked(trigger, Request(requested, force, where)))
        except TableRefused as refusal:
            event = table_machine.Refuse(refusal.reason, refusal.told)
            self._store.write(lambda db: self._unmark(db, table_id, event))
            raise
        except InvalidArgument:
            # What was asked for can't be, which says nothing about the table: it is evaluated anew.
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

    def _plan_marked(self, runtime: TableRuntime, before: str, asked: Asked) -> Begun:
        catalog = self._tables.catalog(runtime.identifier.catalog)
        opened = self._tables.open(runtime.identifier)
        table = with_roles(opened, self._action.roles, asked.request.name or "optimizing")
        table.refuse_unsupported()
        properties = effective_properties(dict(catalog.properties), table.facts.properties)
        config = parse_config(properties)
        now, request = self._clock(), asked.request
        last = self._store.read(lambda db: partitions.last_optimized(db, runtime.table_id))
        capacity = self._store.read(lambda db: groups.capacity(db, config.group))
        evaluation, made = self._action.plan(table, Situation(config, properties, last, capacity, now), request)
        if made is None:
            # What was asked for says nothing about what the triggers say, for which the table may have been pending.
            again = request.name is not None or bool(request.where)
            event = table_machine.PlanEmpty((again and before) or evaluation.reason)
            self._store.write(lambda db: self._unmark(db, runtime.table_id, event, again=again))
            return Begun(None, evaluation)
        process, works = planned(runtime, table, self._action, made, asked, config, now)
        failpoint("plan.before_store")
        self._store.write(lambda db: self._store_plan(db, process, works))
        failpoint("plan.after_store")
        log.info(
            "process.planned",
            process=process.process_id,
            table=str(runtime.identifier),
            type=process.type,
            tasks=len(works),
            reason=process.reason,
        )
        return Begun(process.process_id, evaluation)

    def _mark_planning(self, db: Connection, table_id: int, trigger: str) -> tuple[str, TableRuntime]:
        """The reason that the table's status had, and the table as it is planned now."""
        runtime = tables.get(db, table_id)
        require_free(db, runtime, self._action.lane, self._clock())
        if runtime.status is OptimizingStatus.REFUSED:
            runtime = table_machine.advance(runtime, table_machine.Mended(), self._clock())
        try:
            planning = table_machine.advance(runtime, table_machine.BeginPlan(trigger), self._clock())
        except IllegalState as error:
            raise TableBusy(f"table {runtime.identifier} is {runtime.status}", hint="Try again later.") from error
        tables.save(db, planning)
        return runtime.status_reason, planning

    def _unmark(self, db: Connection, table_id: int, event: table_machine.TableEvent, *, again: bool = False) -> None:
        """The table after planning; `again`: to be evaluated at the next refresh, though its snapshot is the same."""
        ended = table_machine.advance(tables.get(db, table_id), event, self._clock())
        tables.save(db, replace(ended, evaluated_snapshot_id=None) if again else ended)

    def _plan_failed(self, db: Connection, table_id: int, why: str, *, asked: bool) -> None:
        now = self._clock()
        runtime = tables.get(db, table_id)
        if runtime.status is not OptimizingStatus.PLANNING:
            return
        event = table_machine.PlanFailed(f"planning failed: {why}")
        idle = table_machine.advance(runtime, event, now)
        tables.save(db, idle if asked else backed_off(idle, now))

    def _store_plan(
        self, db: Connection, process: OptimizingProcess, works: Sequence[tuple[OptimizingTask, bytes]]
    ) -> None:
        now = self._clock()
        runtime = tables.get(db, process.table_id)
        begun = table_machine.planned(OptimizingType(process.type), process.reason)
        store_planned(db, runtime, process, works)
        tables.save(db, table_machine.advance(runtime, begun, now))
