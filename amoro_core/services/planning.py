"""Plans processes of tables; saved plans; starts plans that wait."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from amoro_core.actions.action_api import Action, Clustering, Optimizing, PlanningContext, Request
from amoro_core.errors import (
    AmoroError,
    CommitConflict,
    IllegalState,
    InvalidArgument,
    NotFound,
    TableBlocked,
    TableBusy,
    TableRefused,
)
from amoro_core.failpoints import failpoint
from amoro_core.formats.ports import Role, with_roles
from amoro_core.formats.tables import Tables, Vending
from amoro_core.logger import get_logger
from amoro_core.model.files import TableScan
from amoro_core.model.maintenance import ReservedFiles
from amoro_core.model.optimizing_config import effective_properties, parse_config
from amoro_core.model.paths import normalise
from amoro_core.model.plans import Evaluation, SavedPlan
from amoro_core.model.processes import LAYOUT, OptimizingProcess, ProcessContext, ProcessStatus, TaskStatus
from amoro_core.model.tables import OptimizingStatus, OptimizingType, TableIdentifier, TableRuntime
from amoro_core.model.text_sanitizing import LONGEST_REASON, briefly, without_secrets
from amoro_core.scan.live_files import LiveFiles
from amoro_core.state import tables as table_machine
from amoro_core.state import tasks as task_machine
from amoro_core.state.backoff import backed_off
from amoro_core.store import groups, plans, processes, table_stats, tables, tasks
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.advance_process import Effects, advance_process, renew_block
from amoro_core.transactions.journal import advance_task, keep_table
from amoro_core.transactions.process_context import (
    Ending,
    close,
    open_planned,
    read_context,
    require_unreserved,
    reserved_files,
)
from amoro_core.transactions.store_plan import (
    EVALUATION,
    ProcessRequest,
    Works,
    list_expired,
    list_requested,
    list_startable,
    list_to_renew,
    planned,
    refuse_starting,
    require_free,
    start,
    store_planned,
)

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
            event = table_machine.Refuse(refusal.reason, refusal.full_text)
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


stored_log = get_logger("amoro.starting")

_OPEN = (TaskStatus.PLANNED, TaskStatus.SCHEDULED, TaskStatus.ACKED)
_GOING = (ProcessStatus.REQUESTED, ProcessStatus.RUNNING, ProcessStatus.COMMITTING)


class StartingService:
    """Starts plans that wait, closes those whose time is over, and gives up groups whose files are gone."""

    def __init__(
        self,
        store: Store,
        tables_of: Tables,
        find_action: Callable[[str], Action],
        clock: Callable[[], datetime],
        announce: Callable[[Effects], None],
    ) -> None:
        """`announce` signals the effects of a stored change."""
        self._store = store
        self._tables = tables_of
        self._find_action = find_action
        self._clock = clock
        self._announce = announce
        self._seen: dict[str, int | None] = {}  # the head that a process was compared with last

    def start(self, process_id: str) -> OptimizingProcess:
        """Let a plan that waits begin; the id may be a unique prefix.

        Raises ProcessNotFound, IllegalState for one that has begun or has ended, CommitConflict where a file of it is
        gone (it is closed then), TableBusy, TableBlocked, and what loading the table raises.
        """
        process = self._store.read(lambda db: processes.find_by_prefix(db, process_id))
        refuse_starting(process)
        if gone := self._look_at(process):
            raise CommitConflict(
                f"process {process.process_id} was closed: {gone}",
                hint="Plan anew: amoro optimize TABLE --type cluster",
            )
        return self._start(process)

    def waiting(self, table_id: int) -> list[str]:
        """The ids of the table's plans that wait for their start, oldest first."""
        return [one.process_id for one in self._store.read(lambda db: list_requested(db, table_id))]

    def _start(self, process: OptimizingProcess) -> OptimizingProcess:
        effects = Effects()
        failpoint("start.before_store")
        started = self._store.write(lambda db: start(db, processes.get(db, process.process_id), effects, self._clock()))
        failpoint("start.after_store")
        stored_log.info("process.started", process=process.process_id, type=process.type)
        self._announce(effects)
        return started

    def start_due(self) -> list[str]:
        """Start plans whose time has come, unless their tables are busy or blocked; the ids of the processes."""
        begun = []
        for process in self._store.read(lambda db: list_startable(db, self._clock())):
            try:
                self._start(process)
            except (TableBusy, TableBlocked) as busy:
                stored_log.debug("process.waits", process=process.process_id, why=busy.message)
            else:
                begun.append(process.process_id)
        return begun

    def close_expired(self) -> list[str]:
        """Close plans that were not started before they expired; the ids of the processes."""
        if not self._store.read(lambda db: list_expired(db, self._clock())):
            return []
        effects = Effects()

        def end(db: Connection) -> list[str]:
            old = list_expired(db, self._clock())
            for one in old:
                ending = Ending("nobody started it within self-optimizing.cluster.plan-ttl")
                close(db, one, ending, self._clock())
            return [one.process_id for one in old]

        closed = self._store.write(end)
        self._announce(effects)
        return closed

    def renew_blockers(self) -> list[str]:
        """Renew blockers of writers that expire soon; the ids of processes that lost theirs.

        To be called several times in half a day.
        """
        lost = []
        for process in self._store.read(lambda db: list_to_renew(db, self._clock())):
            if not self._store.write(partial(self._renew, process)):
                lost.append(process.process_id)
                stored_log.warning("blocker.taken_by_others", process=process.process_id)
        return lost

    def _renew(self, process: OptimizingProcess, db: Connection) -> bool:
        if not processes.get(db, process.process_id).is_active:
            return True
        return renew_block(db, process, self._clock())

    def look_after(self, table_id: int) -> None:
        """Compare the files of the table's plans that order rows with its head, once for each head.

        A plan that was not started is closed where one of them is gone; of one that runs the groups are given up whose
        files are gone. Raises what loading the table raises.
        """
        active = self._store.read(lambda db: processes.list_active_of(db, table_id))
        for process in active:
            if process.lane == LAYOUT and process.status in _GOING:
                self._look_at(process)

    def _look_at(self, process: OptimizingProcess) -> str:
        """The reason if the process was closed because a file is gone; else ""."""
        case = self._store.read(lambda db: read_context(db, process.process_id))
        try:
            opened = open_planned(self._tables, case)
        except CommitConflict as another:
            if process.status != ProcessStatus.REQUESTED:
                return ""  # it is ended as every process is whose table is another one
            return self._close(process, another)
        head = opened.facts.snapshot_id
        if head == self._seen.get(process.process_id, process.snapshot_id):
            return ""
        table = with_roles(opened, (Role.READ,), process.type)
        found = None if head is None else table.scan_of(head)
        works = self._store.read(lambda db: self._open_files(db, case))
        live = self._live(found, works)
        gone = {
            number: f"{lost[0]} is no longer live"
            for number, paths in works.items()
            if (lost := [path for path in paths if normalise(path) not in live])
        }
        self._seen[process.process_id] = head
        if not gone:
            return ""
        if process.status == ProcessStatus.REQUESTED:
            return self._close(process, CommitConflict(next(iter(gone.values()))))
        self._give_up(process, gone)
        return ""

    @staticmethod
    def _live(scan: TableScan | None, works: Mapping[int, tuple[str, ...]]) -> set[str]:
        """The normalised paths of those of the files that are live."""
        live = LiveFiles.of(scan.files if scan is not None else ())
        ids = live.ids_of(path for paths in works.values() for path in paths)
        return {normalise(live.columns.row(at).path) for at in ids.tolist()}

    def _open_files(self, db: Connection, case: ProcessContext) -> dict[int, tuple[str, ...]]:
        """The data files of each group that is not done, by the number of its task."""
        action = self._find_action(case.process.type)
        if not isinstance(action, Clustering):
            return {}
        return {
            task.task_id.number: action.data_files(tasks.read_input(db, task.task_id))
            for task in tasks.list_for_process(db, case.process.process_id)
            if task.status in _OPEN
        }

    def _give_up(self, process: OptimizingProcess, gone: Mapping[int, str]) -> None:
        effects = Effects()

        def drop(db: Connection) -> None:
            now = self._clock()
            if processes.get(db, process.process_id).status not in _GOING:
                return
            table_stats.add_dropped_groups(db, process.process_id, gone)
            for task in tasks.list_for_process(db, process.process_id):
                reason = gone.get(task.task_id.number)
                if reason is not None and task.status in _OPEN:
                    advance_task(db, task, task_machine.Cancel(reason), now)
            advance_process(db, process.process_id, effects, now)

        self._store.write(drop)
        for number, reason in gone.items():
            stored_log.warning("group.dropped", process=process.process_id, task=number, reason=reason)
        self._announce(effects)

    def _close(self, process: OptimizingProcess, error: AmoroError) -> str:
        def end(db: Connection) -> None:
            current = processes.get(db, process.process_id)
            if current.status == ProcessStatus.REQUESTED:
                close(db, current, Ending(error.message, error.code), self._clock())

        self._store.write(end)
        stored_log.info("process.closed", process=process.process_id, reason=error.message)
        self._announce(Effects())
        return error.message
