"""Processes from their first to their last task: scheduling, results, losses, cancelling."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from amoro_core.actions.contract import Action
from amoro_core.errors import AmoroError, IllegalState, InvalidArgument, StaleReport, TaskNotFound
from amoro_core.events import get_logger
from amoro_core.failpoints import failpoint
from amoro_core.formats.tables import Tables
from amoro_core.meters import Meters
from amoro_core.model.journal import About, EventKind
from amoro_core.model.processes import Attempt, OptimizingProcess, OptimizingTask, ProcessStatus
from amoro_core.model.tables import OptimizingStatus, TableIdentifier
from amoro_core.model.work import DELETE, Work, WorkResult
from amoro_core.state import tables as table_machine
from amoro_core.state import tasks as task_machine
from amoro_core.state.leases import Lease, lease_of, leases, overdue, refuse_cancelling
from amoro_core.store import commits, processes, tables, tasks
from amoro_core.store.database import Connection, Store
from amoro_core.store.opening import current_epoch
from amoro_core.transactions.closing import Ending, close, unwanted
from amoro_core.transactions.fetching import read_piece
from amoro_core.transactions.handing import adopt, dismiss, give_back
from amoro_core.transactions.late import condemn_late
from amoro_core.transactions.reports import Admission, Failure, Outcome, Refusal, ScheduledTask
from amoro_core.transactions.scheduling import TaskScheduler, may_schedule
from amoro_core.transactions.settling import Effects, measure, reported, settle, take_back
from amoro_core.transactions.telling import keep_task, tell
from amoro_core.transactions.unfinished import committing, left_over

__all__ = [
    "Acked",
    "Admission",
    "Failure",
    "OptimizingService",
    "Outcome",
    "ProcessView",
    "Refusal",
    "ScheduledTask",
    "Signals",
]

log = get_logger("amoro.optimizing")


@dataclass(frozen=True, slots=True)
class Signals:
    """Callbacks, called after the change is committed to the store."""

    work_planned: Callable[[], None]
    commit_due: Callable[[str, str], None]  # a process is COMMITTING; its id and its table's catalog
    left_over: Callable[[str, str], None]  # a process ended without a commit: its outputs must be removed
    changed: Callable[[], None]  # any process or task changed


@dataclass(frozen=True, slots=True)
class ProcessView:
    """A process with its table and its tasks."""

    process: OptimizingProcess
    table: TableIdentifier
    tasks: tuple[OptimizingTask, ...]


class AckGuard(Protocol):
    """The guard of attempts that delete."""

    def admit(self, optimizer_id: str, attempt: Attempt) -> Admission:
        """Whether the attempt may begin."""

    def begin(self, db: Connection, task: OptimizingTask) -> bool:
        """Record that it begins; False if its work has changed meanwhile."""


#: The answer to an ack: the storage properties, None when the attempt is stale, or to ask again.
Acked = Mapping[str, str] | Admission | None


class OptimizingService:
    """Processes and their tasks. Every change of state is decided by the pure machines within one write."""

    def __init__(
        self,
        store: Store,
        tables_of: Tables,
        clock: Callable[[], datetime],
        signals: Signals,
        find_action: Callable[[str], Action],
        guarding: AckGuard,
        core_ms: Callable[[], Mapping[Attempt, int]] = dict,
        meters: Meters | None = None,
    ) -> None:
        """`core_ms` tells the CPU time that running attempts have taken so far."""
        self._guarding, self._store, self._tables = guarding, store, tables_of
        self._find_action, self._meters = find_action, meters or Meters()
        self._clock, self._signals = clock, signals
        self._vended: dict[str, tuple[datetime, Mapping[str, str]]] = {}
        self.scheduler = TaskScheduler(core_ms)  # only the store's writer schedules
        self._leases: Mapping[Lease, float] = {}  # only the keeper touches them

    # Scheduling

    def poll(self, optimizer_id: str, group: str, thread_ids: Sequence[int]) -> list[ScheduledTask]:
        """Schedule at most one planned task for each of these free threads, all in one transaction.

        Raises UnknownToken for an optimizer whose registration ended meanwhile.
        """
        if not self._store.read(lambda db: may_schedule(db, optimizer_id, group, thread_ids)):
            return []
        effects = Effects()
        chosen = self._store.write(
            lambda db: self.scheduler.schedule(db, optimizer_id, group, thread_ids, effects, self._clock())
        )
        if chosen:
            failpoint("poll.after_store")
        self._send(effects)
        scheduled = [self._store.read(partial(self._scheduled, task=task)) for task in chosen]
        if scheduled:
            self._signals.changed()
        return scheduled

    def _scheduled(self, db: Connection, task: OptimizingTask) -> ScheduledTask:
        if task.thread is None:
            raise IllegalState(f"task {task.task_id} is not scheduled")
        return ScheduledTask(
            attempt=Attempt(task.task_id, task.attempt),
            thread_id=task.thread.thread_id,
            table=tables.get(db, task.table_id).identifier,
            work=Work(task.kind, tasks.read_input(db, task.task_id)),
        )

    # Reports

    def ack(self, optimizer_id: str, attempts: Sequence[Attempt], *, may_wait: bool = False) -> list[Acked]:
        """Accept attempts; for each the storage properties to vend, or None when it is stale.

        Work that deletes is guarded first. With `may_wait` the answer may be Admission.LATER: ask again.
        """
        answers = [self._acked(optimizer_id, attempt, may_wait) for attempt in attempts]
        failpoint("ack.after_store")
        self._signals.changed()
        return [self._vend(answer) if isinstance(answer, int) else answer for answer in answers]

    def _acked(self, optimizer_id: str, attempt: Attempt, may_wait: bool) -> int | Admission | None:
        admission = self._guarding.admit(optimizer_id, attempt)
        if admission is Admission.REFUSED or (admission is Admission.LATER and may_wait):
            return None if admission is Admission.REFUSED else admission
        effects = Effects()
        is_free = admission is Admission.FREE
        table_id = self._store.write(lambda db: self._ack(db, optimizer_id, attempt, effects, is_free=is_free))
        self._send(effects)
        return table_id

    def _ack(
        self, db: Connection, optimizer_id: str, attempt: Attempt, effects: Effects, *, is_free: bool
    ) -> int | None:
        event = task_machine.Ack(attempt.number, optimizer_id)
        try:
            task = tasks.get(db, attempt.task_id)
            if task_machine.repeats(task, event):
                return task.table_id
            now = self._clock()
            acked = task_machine.advance(task, event, now)
        except (StaleReport, IllegalState, TaskNotFound) as error:
            log.warning("ack.refused", attempt=str(attempt), optimizer=optimizer_id, why=error.message)
            return None
        if not is_free or (task.kind == DELETE and not self._guarding.begin(db, task)):
            reason = "what it was to delete has changed" if is_free else "what it deletes could not be guarded yet"
            take_back(db, task, reason, effects, self._clock(), lost=False)
            return None
        keep_task(db, task, acked, now)
        return task.table_id

    def _vend(self, table_id: int) -> Mapping[str, str]:
        """Storage properties for a table's files, reloaded when older than a minute."""
        runtime = self._store.read(lambda db: tables.get(db, table_id))
        key, now = str(runtime.identifier), self._clock()
        known = self._vended.get(key)
        if known is not None and now - known[0] < timedelta(minutes=1):
            return known[1]
        try:
            table = self._tables.open(runtime.identifier)
        except AmoroError as error:
            # The optimizer may have credentials of its own; if not, its attempt fails with a reason and is retried.
            log.warning("credentials.unavailable", table=key, error=error.message)
            return {}
        properties = table.io_properties()
        self._vended[key] = (now, properties)
        return properties

    def read_blob(self, optimizer_id: str, attempt: Attempt, sha256: str, piece: int) -> bytes | None:
        """A piece of a blob of an attempt that the optimizer runs; None after the last one. Raises TaskNotFound."""
        return self._store.read(lambda db: read_piece(db, optimizer_id, attempt, sha256, piece))

    def complete(self, optimizer_id: str, attempt: Attempt, result: Outcome) -> bool:
        """Accept a result; returns whether it counts. A stale one is absorbed, a repeated one accepted again.

        A refusal returns the task, and the optimizer gets no more of its kind. Raises InvalidArgument for a result of
        another kind than the task's.
        """
        effects = Effects()
        failpoint("complete.before_store")
        accepted = self._store.write(lambda db: self._complete(db, optimizer_id, attempt, result, effects))
        failpoint("complete.after_store")
        self._send(effects)
        self._signals.changed()
        return accepted

    def _complete(self, db: Connection, optimizer_id: str, attempt: Attempt, result: Outcome, effects: Effects) -> bool:
        if isinstance(result, Refusal):
            return give_back(db, optimizer_id, attempt, result, effects, self._clock())
        self.scheduler.note()
        event: task_machine.TaskReport
        if isinstance(result, Failure):
            event = task_machine.Fail(attempt.number, optimizer_id, result.code, result.message[:4000])
        else:
            event = task_machine.Succeed(attempt.number, optimizer_id)
        try:
            task = tasks.get(db, attempt.task_id)
            if isinstance(result, WorkResult) and result.kind != task.kind:
                raise InvalidArgument(
                    f"attempt {attempt} has work of the kind {task.kind!r}, its result is of the kind {result.kind!r}"
                )
            if task_machine.repeats(task, event):
                if isinstance(result, Failure):
                    return True
                return tasks.read_output(db, task.task_id) == (attempt.number, result.payload)
            now = self._clock()
            ended = task_machine.advance(task, event, now)
        except (StaleReport, IllegalState, TaskNotFound) as error:
            files = condemn_late(db, attempt, result, self._find_action, self._clock())
            log.warning("result.absorbed", attempt=str(attempt), optimizer=optimizer_id, files=files, why=error.message)
            return False
        keep_task(db, task, ended, now)
        if isinstance(result, WorkResult):
            tasks.save_output(db, task.task_id, attempt.number, result.payload)
        log.info("task.completed", task=str(task.task_id), attempt=attempt.number, status=ended.status.value)
        effects.attempts.append(reported(ended))
        settle(db, task.task_id.process_id, effects, self._clock())
        return True

    # Losses

    def adopt(self, db: Connection, optimizer_id: str, previous_id: str, running: Sequence[Attempt]) -> list[Attempt]:
        """Move running attempts from an optimizer's earlier registration to its new one; returns them.

        Runs within the write that stores the registration. The rest stays with the earlier one until that is lost.
        """
        return adopt(db, optimizer_id, previous_id, running, self._clock())

    def dismiss(self, optimizer_id: str, reason: str, *, lost: bool) -> int:
        """Take back the optimizer's tasks and end its registration atomically, so that it gets nothing in between.

        Returns how many tasks it held. `lost` counts towards the poison rule. An unregistered optimizer is not an
        error.
        """
        effects = Effects()
        taken = self._store.write(lambda db: dismiss(db, optimizer_id, reason, effects, self._clock(), lost=lost))
        self._send(effects)
        self._signals.changed()
        return taken

    def sweep(self, now_s: float, ack_timeout: timedelta, close_timeout: timedelta) -> None:
        """Take back what was not acknowledged in time or runs too long.

        `now_s` is monotonic, and the age of an attempt or an ack counts from the first sweep that saw it: setting the
        clock has no effect, and after a restart every attempt has the full time again.
        """
        held = self._store.read(lambda db: tasks.list_held(db))
        self._leases = leases(self._leases, held, now_s)
        late = [
            (task, reason)
            for task in held
            if (reason := overdue(task, now_s - self._leases[lease_of(task)], ack_timeout, close_timeout)) is not None
        ]
        if not late:
            return
        effects = Effects()

        def end(db: Connection) -> None:
            for task, reason in late:
                if tasks.get(db, task.task_id) == task:
                    take_back(db, task, reason, effects, self._clock(), lost=True)

        self._store.write(end)
        self._send(effects)
        self._signals.changed()

    def abandoned(self, optimizer_id: str, running: Iterable[Attempt]) -> list[Attempt]:
        """The attempts an optimizer runs that no longer belong to it."""
        held = {
            Attempt(task.task_id, task.attempt)
            for task in self._store.read(lambda db: tasks.list_held(db, optimizer_id))
        }
        return [attempt for attempt in running if attempt not in held]

    # What follows

    def announce(self, effects: Effects) -> None:
        """Signal the effects of a change of processes, once it is stored."""
        self._send(effects)
        self._signals.changed()

    def _send(self, effects: Effects) -> None:
        measure(self._meters, effects)
        if effects.work:
            self._signals.work_planned()
        for process_id, catalog in effects.commits:
            self._signals.commit_due(process_id, catalog)
        for process_id, catalog in effects.left_over:
            self._signals.left_over(process_id, catalog)

    # Taking back

    def cancel(self, process_id: str, reason: str) -> ProcessView:
        """End a process that has sent nothing: its tasks are cancelled, optimizers abandon them, outputs are removed.

        The id may be a unique prefix. The table is evaluated again at its next refresh. Raises ProcessNotFound;
        IllegalState if its commit was sent or is unknown, or it has ended: nothing is changed then.
        """

        def end(db: Connection) -> ProcessView:
            process = processes.find_by_prefix(db, process_id)
            refuse_cancelling(process, commits.list_for_process(db, process.process_id))
            return self._close(db, process, Ending(reason))

        return self._closed(self._store.write(end))

    def cancel_unwanted(self, table_id: int) -> ProcessView | None:
        """End the table's running process if it has become pointless; None: there is none.

        That is when optimizing the table was switched off, or its name belongs to another table. A committing one
        continues.
        """

        def end(db: Connection) -> ProcessView | None:
            found = unwanted(db, table_id)
            return None if found is None else self._close(db, *found)

        view = self._store.write(end)
        return None if view is None else self._closed(view)

    def _close(self, db: Connection, process: OptimizingProcess, ending: Ending) -> ProcessView:
        close(db, process, ending, self._clock())
        return _view(db, processes.get(db, process.process_id))

    def _closed(self, view: ProcessView) -> ProcessView:
        failpoint("cancel.after_store")
        log.info(
            "process.cancelled", process=view.process.process_id, table=str(view.table), reason=view.process.failure
        )
        self._signals.left_over(view.process.process_id, view.table.catalog)
        self._signals.changed()
        return view

    # Reading

    def find_process(self, process_id: str) -> ProcessView:
        """The process with that id, or with that prefix of six characters or more. Raises ProcessNotFound."""
        return self._store.read(lambda db: _view(db, processes.find_by_prefix(db, process_id)))

    def list_processes(
        self, table_id: int | None = None, status: ProcessStatus | None = None, limit: int = 100
    ) -> list[ProcessView]:
        """Processes, newest first."""
        statuses = None if status is None else (status,)
        return self._store.read(
            lambda db: [_view(db, item) for item in processes.list_processes(db, table_id, statuses, limit)]
        )

    def running_tasks(self, optimizer_id: str) -> int:
        """How many tasks an optimizer holds."""
        return len(self._store.read(lambda db: tasks.list_held(db, optimizer_id)))

    def active_process(self, table_id: int) -> OptimizingProcess | None:
        """The table's active process."""
        return self._store.read(lambda db: processes.find_active(db, table_id))

    def list_committing(self) -> list[tuple[str, str]]:
        """Id and catalog of each process whose commit must be made or traced now, oldest first."""
        return self._store.read(lambda db: committing(db, self._clock()))

    # Restart

    def recover(self) -> None:
        """Resume every state after a restart: nothing is dropped, and commits are reconciled before new plans."""
        effects = Effects()
        self._store.write(lambda db: self._recover(db, effects))
        self._send(effects)

    def _recover(self, db: Connection, effects: Effects) -> None:
        now = self._clock()
        epoch = current_epoch(db)
        tell(db, EventKind.LEADER_CHANGED, f"a coordinator began, epoch {epoch}", About(), now, {"epoch": epoch})
        for process in processes.list_active(db):
            if process.status is ProcessStatus.RUNNING:
                settle(db, process.process_id, effects, now)
        effects.commits += committing(db)
        effects.left_over += left_over(db)
        for runtime in tables.list_tables(db, status=OptimizingStatus.PLANNING):
            if processes.find_active(db, runtime.table_id) is None:
                event = table_machine.PlanFailed("the coordinator ended while it planned")
                tables.save(db, table_machine.advance(runtime, event, now))


def _view(db: Connection, process: OptimizingProcess) -> ProcessView:
    return ProcessView(
        process, tables.get(db, process.table_id).identifier, tuple(tasks.list_for_process(db, process.process_id))
    )
