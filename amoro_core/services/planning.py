"""Plans processes of tables; saved plans; starts plans that wait."""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import chain

from amoro_core.actions.action_api import Action, Optimizing, PlanningContext, Replacing, Request
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
from amoro_core.formats.ports import Readable, Role, with_roles
from amoro_core.formats.tables import Tables, Vending
from amoro_core.logger import get_logger
from amoro_core.maintenance.schedule import closed_until
from amoro_core.model.commits import removals_since
from amoro_core.model.files import TableScan
from amoro_core.model.maintenance import application_of
from amoro_core.model.optimizing_config import parse_config
from amoro_core.model.paths import normalise
from amoro_core.model.plans import Evaluation, SavedPlan
from amoro_core.model.processes import OptimizingProcess, ProcessContext, ProcessStatus, TaskStatus
from amoro_core.model.tables import OptimizingStatus, OptimizingType, SnapshotFacts, TableIdentifier, TableRuntime
from amoro_core.model.text_sanitizing import LONGEST_REASON, briefly, without_secrets
from amoro_core.scan.live_files import LiveFiles
from amoro_core.state import tables as table_machine
from amoro_core.state.backoff import backed_off
from amoro_core.store import groups, plans, processes, tables, tasks
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.advance_process import Effects, Signals, renew_block
from amoro_core.transactions.journal import keep_table
from amoro_core.transactions.process_context import (
    Ending,
    close,
    drop_groups,
    give_up,
    open_planned,
    require_unreserved,
    reserved_files,
    with_blocked,
)
from amoro_core.transactions.store_plan import (
    EVALUATION,
    ProcessRequest,
    list_expired,
    list_requested,
    list_startable,
    list_to_renew,
    log_planned,
    planned,
    refuse_starting,
    require_free,
    start,
    store_planned,
)
from amoro_core.transactions.table_registry import commits_since_plan, value_of

log = get_logger("amoro.starting")

KEPT_FOR = timedelta(minutes=10)  # saved plans, and their maximum
MOST_SAVED = 100


@dataclass(frozen=True, slots=True)
class StartResult:
    """The result of planning a process; `process_id` None: nothing to do."""

    process_id: str | None
    evaluation: Evaluation


@dataclass
class PlanningService:
    """Creates optimizing processes: a table is marked, planned outside of any transaction, and its plan stored."""

    store: Store
    tables: Tables
    action: Optimizing
    find_action: Callable[[str], Action]
    clock: Callable[[], datetime]
    vending: Vending
    signals: Signals

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
        before, since, runtime = self.store.write(lambda db: self._mark_planning(db, table_id, trigger))
        self.signals.changed()
        try:
            failpoint("plan.after_mark")
            wanted = ProcessRequest(trigger, Request(requested, force, where))
            begun = self._plan_marked(runtime, before, since, wanted)
        except TableRefused as refusal:
            self._unmark(table_id, table_machine.Refuse(refusal.reason, refusal.full_text))
            raise
        except TableBusy as busy:
            self._unmark(table_id, table_machine.PlanEmpty(busy.message), again=True)
            raise
        except InvalidArgument:
            # An invalid request tells nothing about the table, which is evaluated again.
            self._unmark(table_id, table_machine.PlanEmpty(before), again=True)
            raise
        except BaseException as error:
            why = without_secrets(briefly(str(error) or type(error).__name__, LONGEST_REASON))
            code = error.code if isinstance(error, AmoroError) else AmoroError.code
            self.store.write(lambda db: self._plan_failed(db, table_id, code, why, is_requested=trigger != EVALUATION))
            raise
        finally:
            self.signals.changed()
        if begun.process_id is not None:
            self.signals.work_planned()
        return begun

    def _plan_marked(
        self, runtime: TableRuntime, before: str, since: datetime | None, wanted: ProcessRequest
    ) -> StartResult:
        opened = self.tables.open(runtime.identifier)
        table = with_roles(opened, self.action.roles, wanted.request.name or "optimizing")
        table.refuse_unsupported()
        properties = self.tables.effective_properties(runtime.identifier.catalog, table)
        config = parse_config(properties)
        now, request = self.clock(), wanted.request
        last = self.store.read(lambda db: tables.partitions_last_optimized(db, runtime.table_id))
        capacity = self.store.read(lambda db: groups.capacity(db, config.group))
        ours = (runtime.table_id, table.facts.uuid, self.find_action, now)
        others = with_blocked(self.store.read(lambda db: reserved_files(db, *ours)), table)
        commits = self.store.read(lambda db: commits_since_plan(db, runtime, table, config))
        situation = PlanningContext(config, properties, last, capacity, now, taken=others, commits=commits)
        evaluation, plan = self.action.plan(table, situation, request)
        if plan is None:
            # What was asked for says nothing about what the triggers say, for which the table may have been pending.
            # Nor does what was left to other plans, which the table's evaluation may not have known yet.
            again = request.name is not None or bool(request.where) or bool(others.paths)
            event = table_machine.PlanEmpty((again and before) or evaluation.reason)
            self._unmark(runtime.table_id, event, again=again)
            return StartResult(None, evaluation)
        opens_at = closed_until(config, now)
        if opens_at is not None and wanted.trigger == EVALUATION:
            event = table_machine.PlanEmpty(f"{evaluation.reason}; {table_machine.window_reason(opens_at)}")
            self._unmark(runtime.table_id, event, due_at=opens_at)
            return StartResult(None, evaluation)
        process, works = planned(runtime, table, self.action, plan, wanted, config, now)
        value = self.store.read(lambda db: value_of(db, runtime, evaluation.saving, now))
        process = replace(process, due_at=since, value=value)
        self.vending.keep(runtime.identifier, opened.io_properties(), now)  # optimizers are soon going to ask for them
        failpoint("plan.before_store")
        data_files = plan.data_files

        def store(db: Connection) -> None:
            now = self.clock()
            require_unreserved(db, process, data_files, others, self.find_action, now)
            store_planned(db, tables.get(db, runtime.table_id), process, works, now)
            begun = table_machine.planned(OptimizingType(process.type), process.reason)
            tables.save(db, table_machine.advance(tables.get(db, runtime.table_id), begun, now))

        self.store.write(store)
        failpoint("plan.after_store")
        log_planned(process, runtime, works)
        return StartResult(process.process_id, evaluation)

    def save_plan(self, table: TableIdentifier, content: bytes) -> SavedPlan:
        """Keep a plan for ten minutes under an id that can't be guessed; only the newest hundred are kept."""
        plan = SavedPlan(secrets.token_urlsafe(9), str(table), self.clock(), content)

        def add(db: Connection) -> None:
            plans.add_saved_plan(db, plan)
            plans.trim_saved_plans(db, plan.saved_at - KEPT_FOR, MOST_SAVED)

        self.store.write(add)
        return plan

    def saved_plan(self, table: TableIdentifier, plan_id: str) -> SavedPlan:
        """The table's saved plan. Raises NotFound for one that is not kept (any more), or is another table's."""
        plan = self.store.read(lambda db: plans.find_saved_plan(db, plan_id))
        if plan is None or plan.table != str(table) or self.clock() - plan.saved_at >= KEPT_FOR:
            raise NotFound(
                f"no plan {plan_id!r} of {table} is kept",
                hint="Plans are kept for ten minutes, and the newest hundred of them: plan the table again.",
            )
        return plan

    def _mark_planning(self, db: Connection, table_id: int, trigger: str) -> tuple[str, datetime | None, TableRuntime]:
        """The former reason of the table's status, since when it waited, and the table marked as planning."""
        runtime = before = tables.get(db, table_id)
        require_free(db, runtime, self.action.lane, self.clock())
        if runtime.status is OptimizingStatus.REFUSED:
            runtime = table_machine.advance(runtime, table_machine.Mended(), self.clock())
        try:
            planning = table_machine.advance(runtime, table_machine.BeginPlan(trigger), self.clock())
        except IllegalState as error:
            raise TableBusy(f"table {runtime.identifier} is {runtime.status}", hint="Try again later.") from error
        keep_table(db, before, planning, self.clock())
        since = before.status_since if before.status is OptimizingStatus.PENDING else None
        return runtime.status_reason, since, planning

    def _unmark(
        self, table_id: int, event: table_machine.TableEvent, *, again: bool = False, due_at: datetime | None = None
    ) -> None:
        """Update the table after planning; `again`: evaluate it at the next refresh even if it has not changed, or
        at a time when it is due."""

        def end(db: Connection) -> None:
            before = tables.get(db, table_id)
            ended = table_machine.advance(before, event, self.clock())
            ended = replace(ended, next_due_at=due_at or ended.next_due_at)
            keep_table(db, before, replace(ended, evaluated_snapshot_id=None) if again else ended, self.clock())

        self.store.write(end)

    def _plan_failed(self, db: Connection, table_id: int, code: str, why: str, *, is_requested: bool) -> None:
        now, runtime = self.clock(), tables.get(db, table_id)
        if runtime.status is OptimizingStatus.PLANNING:
            idle = table_machine.advance(runtime, table_machine.PlanFailed(f"planning failed: {why}"), now)
            keep_table(db, runtime, idle if is_requested else backed_off(idle, code, now), now)


_OPEN = (TaskStatus.PLANNED, TaskStatus.SCHEDULED, TaskStatus.ACKED)
_GOING = (ProcessStatus.REQUESTED, ProcessStatus.RUNNING, ProcessStatus.COMMITTING)


@dataclass
class StartingService:
    """Starts plans that wait, closes those whose time is over, and gives up groups whose files are gone."""

    store: Store
    tables: Tables
    find_action: Callable[[str], Action]
    clock: Callable[[], datetime]
    signals: Signals
    #: The head that a process was compared with last.
    _compared: dict[str, int | None] = field(init=False, default_factory=dict)

    def start(self, process_id: str) -> OptimizingProcess:
        """Let a plan that waits begin; the id may be a unique prefix.

        Raises ProcessNotFound, IllegalState for one that has begun or has ended, CommitConflict where a file of it is
        gone (it is closed then), TableBusy, TableBlocked, and what loading the table raises.
        """
        process = self.store.read(lambda db: processes.find_by_part(db, process_id))
        refuse_starting(process)
        if reason := self._check_files(process):
            raise CommitConflict(
                f"process {process.process_id} was closed: {reason}",
                hint="Plan anew: amoro optimize TABLE --type cluster",
            )
        return self._start(process)

    def waiting(self, table_id: int) -> list[str]:
        """The ids of the table's plans that wait for their start, oldest first."""
        return [process.process_id for process in self.store.read(lambda db: list_requested(db, table_id))]

    def _start(self, process: OptimizingProcess) -> OptimizingProcess:
        effects = Effects()
        failpoint("start.before_store")
        started = self.store.write(lambda db: start(db, processes.get(db, process.process_id), effects, self.clock()))
        failpoint("start.after_store")
        log.info("process.started", process=process.process_id, type=process.type)
        self.signals.announce(effects)
        return started

    def start_due(self) -> list[str]:
        """Start plans whose time has come, unless their tables are busy or blocked; the ids of the processes."""
        begun = []
        for process in self.store.read(lambda db: list_startable(db, self.clock())):
            try:
                self._start(process)
            except (TableBusy, TableBlocked) as busy:
                log.debug("process.waits", process=process.process_id, why=busy.message)
            else:
                begun.append(process.process_id)
        return begun

    def close_expired(self) -> list[str]:
        """Close plans that were not started before they expired; the ids of the processes."""
        if not self.store.read(lambda db: list_expired(db, self.clock())):
            return []

        def end(db: Connection) -> list[str]:
            old = list_expired(db, self.clock())
            for process in old:
                ending = Ending("nobody started it within self-optimizing.cluster.plan-ttl")
                close(db, process, ending, self.clock())
            return [optimizing_process.process_id for optimizing_process in old]

        closed = self.store.write(end)
        self.signals.announce(Effects())
        return closed

    def renew_blockers(self) -> list[str]:
        """Renew blockers of writers that expire soon; the ids of processes that lost theirs.

        To be called several times in half a day.
        """

        def renew(process: OptimizingProcess, db: Connection) -> bool:
            return not processes.get(db, process.process_id).is_active or renew_block(db, process, self.clock())

        lost = []
        for process in self.store.read(lambda db: list_to_renew(db, self.clock())):
            if not self.store.write(partial(renew, process)):
                lost.append(process.process_id)
                log.warning("blocker.taken_by_others", process=process.process_id)
        return lost

    def check_files(self, table_id: int, head: int | None = None) -> None:
        """Compare the files of the table's plans with its head, once for each head; `head` is the one just loaded.

        A plan that was not started is closed where one of them is gone; of one that runs the tasks are cancelled whose
        files are gone, and it ends where no other is left. Raises what loading the table raises.
        """
        for process in self.store.read(lambda db: processes.list_active_of(db, table_id)):
            is_seen = head is not None and head == self._compared.get(process.process_id, process.snapshot_id)
            if process.status in _GOING and not is_seen and isinstance(self.find_action(process.type), Replacing):
                self._check_files(process)

    def _check_files(self, process: OptimizingProcess) -> str:
        """The reason if the process was closed because a file is gone; else ""."""
        runtime = self.store.read(lambda db: tables.get(db, process.table_id))
        try:
            opened = open_planned(self.tables, ProcessContext(process, runtime, (), (), 0))
        except CommitConflict as another:
            if process.status != ProcessStatus.REQUESTED:
                return ""  # it is ended as every process is whose table is another one
            return self._close(process, another)
        head = opened.facts.snapshot_id
        if head == self._compared.get(process.process_id, process.snapshot_id):
            return ""
        table = with_roles(opened, (Role.READ,), process.type)
        removals = removals_since(table.snapshots(), head, process.snapshot_id)
        if removals is None:
            return ""
        missing = self._tasks_without_files(process, table, removals) if removals else {}
        self._compared[process.process_id] = head
        if not missing:
            return ""
        if process.status == ProcessStatus.REQUESTED:
            return self._close(process, CommitConflict(next(iter(missing.values()))))
        self._cancel_tasks(process, missing)
        return ""

    def _tasks_without_files(
        self, process: OptimizingProcess, table: Readable, removals: Sequence[SnapshotFacts]
    ) -> dict[int, str]:
        """The numbers of the open tasks whose files are gone, with the commits that removed them."""
        action = self.find_action(process.type)
        if not isinstance(action, Replacing):
            return {}
        all_tasks = self.store.read(lambda db: tasks.list_for_process(db, process.process_id))
        is_open = [task.task_id for task in all_tasks if task.status in _OPEN]
        inputs = self.store.read(lambda db: tasks.read_inputs(db, is_open))
        files = {task_id: action.data_files(given) for task_id, given in sorted(inputs.items())}
        live = _live(table.scan() if files else None, chain.from_iterable(files.values()))
        lost = {key: [path for path in paths if normalise(path) not in live] for key, paths in files.items()}
        lasting = ((key, paths) for key, paths in lost.items() if paths and action.gives_up(inputs[key], {*paths}))
        first = {key.number: paths[0] for key, paths in lasting}
        by = dict.fromkeys(first.values(), removals[-1])
        for earlier in reversed(removals[:-1] if first else ()):
            live = _live(table.scan_of(earlier.snapshot_id), by)
            by |= {path: earlier for path in by if normalise(path) not in live}
        words = {
            path: f"snapshot {item.snapshot_id} ({item.operation}) of {application_of(item.summary)}"
            for path, item in by.items()
        }
        return {number: f"{path} is no longer live: {words[path]} removed it" for number, path in first.items()}

    def _cancel_tasks(self, process: OptimizingProcess, reasons: Mapping[int, str]) -> None:
        effects = Effects()

        def cancel(db: Connection) -> None:
            now, current = self.clock(), processes.get(db, process.process_id)
            if current.status not in _GOING:
                return
            if current.max_commits:
                drop_groups(db, process.process_id, reasons, effects, now)
            else:
                give_up(db, current, reasons, effects, now, CommitConflict.code)

        self.store.write(cancel)
        for number, reason in reasons.items():
            log.warning("group.dropped", process=process.process_id, task=number, reason=reason)
        self.signals.announce(effects)

    def _close(self, process: OptimizingProcess, error: AmoroError) -> str:
        def end(db: Connection) -> None:
            current = processes.get(db, process.process_id)
            if current.status == ProcessStatus.REQUESTED:
                close(db, current, Ending(error.message, error.code), self.clock())

        self.store.write(end)
        log.info("process.closed", process=process.process_id, reason=error.message)
        self.signals.announce(Effects())
        return error.message


def _live(scan: TableScan | None, paths: Iterable[str]) -> set[str]:
    """Those of the data files that are live there, by normalised path."""
    files = LiveFiles.of(scan.files if scan is not None else ())
    return {normalise(files.columns.row(at).path) for at in files.ids_of(paths).tolist()}
