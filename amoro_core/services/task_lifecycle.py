"""Processes from their first to their last task: scheduling, results, losses, cancelling."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from amoro_core.actions.action_api import Action
from amoro_core.failpoints import failpoint
from amoro_core.formats.tables import Vending
from amoro_core.logger import get_logger
from amoro_core.model.history_events import About, EventKind
from amoro_core.model.processes import Attempt, OptimizingProcess, OptimizingTask, ProcessStatus
from amoro_core.model.tables import OptimizingStatus, TableIdentifier
from amoro_core.scheduling.policy import Accounts
from amoro_core.services.file_deletion import AckGuardService
from amoro_core.services.optimizers import OptimizerService
from amoro_core.state import tables as table_machine
from amoro_core.state.process_decisions import Lease, lease_of, leases, overdue, refuse_cancelling
from amoro_core.store import processes, tables, tasks
from amoro_core.store.database import Connection, Store, current_epoch
from amoro_core.transactions.advance_process import (
    Effects,
    Signals,
    advance_process,
    committing,
    list_leftover,
    take_back,
)
from amoro_core.transactions.journal import append_event
from amoro_core.transactions.process_context import Ending, close, unwanted
from amoro_core.transactions.task_queue import PollRequest, ScheduledTask, TaskScheduler, may_schedule, with_work
from amoro_core.transactions.task_reports import (
    Admission,
    Failure,
    Outcome,
    Refusal,
    Report,
    Reporting,
    ReportReply,
    dismiss,
    read_piece,
)

__all__ = [
    "Acked",
    "Admission",
    "Failure",
    "OptimizingService",
    "Outcome",
    "PollRequest",
    "ProcessView",
    "Refusal",
    "Report",
    "ReportReply",
    "ScheduledTask",
]

log = get_logger("amoro.optimizing")


@dataclass(frozen=True, slots=True)
class ProcessView:
    """A process with its table and its tasks."""

    process: OptimizingProcess
    table: TableIdentifier
    tasks: tuple[OptimizingTask, ...]


#: The answer to an ack: the storage properties, None when the attempt is stale, or to ask again.
Acked = Mapping[str, str] | Admission | None


@dataclass
class OptimizingService:
    """Processes and their tasks. Every change of state is decided by the pure machines within one write."""

    store: Store
    vending: Vending
    clock: Callable[[], datetime]
    signals: Signals
    find_action: Callable[[str], Action]
    guarding: AckGuardService
    optimizers: OptimizerService
    _leases: Mapping[Lease, float] = field(init=False, default_factory=dict)  # only the keeper touches them

    def __post_init__(self) -> None:
        # Used by the store's writer alone.
        self._scheduler = TaskScheduler(
            self.optimizers.core_ms, self.optimizers.heartbeat_timeout, self.optimizers.monotonic
        )
        self._reporting = Reporting(self.guarding.begin, self.find_action, self.clock)

    def accounts(self) -> Mapping[str, Accounts]:
        """The thread accounts of each group's tables, as they were last settled."""
        return self._scheduler.accounts

    def poll(self, optimizer_id: str, group: str, thread_ids: Sequence[int]) -> list[ScheduledTask]:
        """Schedule at most one planned task for each of these free threads, all in one transaction.

        Raises UnknownToken for an optimizer whose registration ended meanwhile.
        """
        request = PollRequest(optimizer_id, group, tuple(thread_ids))
        if not self.store.read(lambda db: may_schedule(db, request)):
            return []
        effects = Effects()
        scheduled = self.store.write(lambda db: self._scheduler.schedule(db, request, effects, self.clock()))
        self.signals.send(effects)
        given = self._with_work(scheduled)
        if given:
            self.signals.changed()
        return given

    def _with_work(self, scheduled: Sequence[OptimizingTask]) -> list[ScheduledTask]:
        if not scheduled:
            return []
        failpoint("poll.after_store")
        return self.store.read(lambda db: with_work(db, scheduled))

    def ack(self, optimizer_id: str, attempts: Sequence[Attempt], *, may_wait: bool = False) -> list[Acked]:
        """Accept attempts; for each the storage properties to vend, or None when it is stale.

        Work that deletes is guarded first. With `may_wait` the answer may be Admission.LATER: ask again.
        """
        names = self.store.write(lambda db: self._reporting.ack(db, optimizer_id, attempts))
        failpoint("ack.after_store")
        self.signals.changed()
        answers = {key: self._vend(name) for key, name in names.items()}
        guarded = [attempt for attempt in attempts if attempt not in names]
        answers |= self.ack_guarded(optimizer_id, guarded, may_wait=may_wait)
        return [answers[attempt] for attempt in attempts]

    def ack_guarded(self, optimizer_id: str, attempts: Sequence[Attempt], *, may_wait: bool) -> dict[Attempt, Acked]:
        """As `ack` for attempts that delete."""
        answers: dict[Attempt, Acked] = {}
        for attempt in dict.fromkeys(attempts):
            admission = self.guarding.admit(optimizer_id, attempt)
            if admission is Admission.FREE or (admission is Admission.LATER and not may_wait):
                answers[attempt] = self._vend(self._ack_guarded(optimizer_id, attempt, admission))
            else:
                answers[attempt] = Admission.LATER if admission is Admission.LATER else None
        return answers

    def _ack_guarded(self, optimizer_id: str, attempt: Attempt, admission: Admission) -> TableIdentifier | None:
        effects, is_free = Effects(), admission is Admission.FREE
        name = self.store.write(
            lambda db: self._reporting.ack_guarded(db, optimizer_id, attempt, effects, is_free=is_free)
        )
        self.signals.send(effects)
        failpoint("ack.after_store")
        self.signals.changed()
        return name

    def _vend(self, name: TableIdentifier | None) -> Acked:
        return None if name is None else self.vending.properties_of(name)

    def complete(self, optimizer_id: str, attempt: Attempt, result: Outcome) -> bool:
        """Accept a result; returns whether it counts. A stale one is absorbed, a repeated one accepted again.

        A refusal returns the task, and the optimizer gets no more of its kind. Raises InvalidArgument for a result of
        another kind than the task's.
        """
        return self.report((Report(optimizer_id, attempt, result),)).accepted[0]

    def report(self, reports: Sequence[Report], poll: PollRequest | None = None) -> ReportReply:
        """Accept results as `complete` does, then schedule as `poll` does, all in one transaction.

        A result that raises takes back nothing of the others, but nothing is scheduled; its error is raised.
        """
        accepted: list[bool] = []
        effects = [Effects() for _ in range(len(reports) + 1)]

        def complete(db: Connection, report: Report, its: Effects) -> list[OptimizingTask]:
            self._scheduler.note_core_time()
            accepted.append(self._reporting.complete(db, report, its))
            return []

        def schedule(db: Connection) -> list[OptimizingTask]:
            if poll is None or len(accepted) < len(reports):
                return []
            return self._scheduler.schedule(db, poll, effects[-1], self.clock())

        writes: list[Callable[[Connection], list[OptimizingTask]]] = [
            partial(complete, report=item, its=its) for item, its in zip(reports, effects, strict=False)
        ]
        if reports:
            failpoint("complete.before_store")
        stored = self.store.submit_all([*writes, schedule])
        wait(stored)
        failpoint("complete.after_store")
        for future, its in zip(stored, effects, strict=True):
            if future.exception() is None:
                self.signals.send(its)
        scheduled = [future.result() for future in stored][-1]
        self.signals.changed()
        return ReportReply(tuple(accepted), tuple(self._with_work(scheduled)))

    def read_blob(self, optimizer_id: str, attempt: Attempt, sha256: str, piece: int) -> bytes | None:
        """A piece of a blob of an attempt that the optimizer runs; None after the last one. Raises TaskNotFound."""
        return self.store.read(lambda db: read_piece(db, optimizer_id, attempt, sha256, piece))

    def dismiss(self, optimizer_id: str, reason: str, *, lost: bool) -> int:
        """Take back the optimizer's tasks and end its registration atomically, so that it gets nothing in between.

        Returns how many tasks it held. `lost` counts towards the poison rule.
        """
        effects = Effects()
        tasks_held = self.store.write(lambda db: dismiss(db, optimizer_id, reason, effects, self.clock(), lost=lost))
        self.optimizers.forget(optimizer_id)
        self.signals.announce(effects)
        return tasks_held

    def release(self, optimizer_id: str) -> int:
        """Dismiss an optimizer for good: if it is alive, it must leave. Returns how many tasks it held."""
        self.optimizers.mark_released(optimizer_id)  # first: one that learns of the end registers again immediately
        return self.dismiss(optimizer_id, "its optimizer was released", lost=False)

    def sweep(self, now_s: float, ack_timeout: timedelta, close_timeout: timedelta) -> None:
        """Take back what was not acknowledged in time or runs too long.

        `now_s` is monotonic, and the age of an attempt or an ack counts from the first sweep that saw it: setting the
        clock has no effect, and after a restart every attempt has the full time again.
        """
        assigned = self.store.read(lambda db: tasks.list_assigned(db))
        self._leases = leases(self._leases, assigned, now_s)
        late = [
            (task, reason)
            for task in assigned
            if (reason := overdue(task, now_s - self._leases[lease_of(task)], ack_timeout, close_timeout)) is not None
        ]
        if not late:
            return
        effects = Effects()

        def end(db: Connection) -> None:
            for task, reason in late:
                if tasks.get(db, task.task_id) == task:
                    take_back(db, task, reason, effects, self.clock(), lost=True)

        self.store.write(end)
        self.signals.announce(effects)

    def abandoned(self, optimizer_id: str, running: Iterable[Attempt]) -> list[Attempt]:
        """The attempts an optimizer runs that no longer belong to it."""
        assigned = {
            Attempt(task.task_id, task.attempt)
            for task in self.store.read(lambda db: tasks.list_assigned(db, optimizer_id))
        }
        return [attempt for attempt in running if attempt not in assigned]

    def cancel(self, process_id: str, reason: str) -> ProcessView:
        """End a process that has sent nothing: its tasks are cancelled, optimizers abandon them, outputs are removed.

        The id may be a unique prefix. The table is evaluated again at its next refresh. Raises ProcessNotFound;
        IllegalState if its commit was sent or is unknown, or it has ended: nothing is changed then.
        """

        def end(db: Connection) -> ProcessView:
            process = processes.find_by_part(db, process_id)
            refuse_cancelling(process, processes.list_commits(db, process.process_id))
            return self._close(db, process, Ending(reason))

        return self._announce_closed(self.store.write(end))

    def cancel_unwanted(self, table_id: int) -> ProcessView | None:
        """End the table's running process if it has become pointless; None: there is none.

        That is: its optimizing was switched off, or its name belongs to another table. A committing one continues.
        """

        def end(db: Connection) -> ProcessView | None:
            process = unwanted(db, table_id)
            return None if process is None else self._close(db, *process)

        view = self.store.write(end)
        return None if view is None else self._announce_closed(view)

    def _close(self, db: Connection, process: OptimizingProcess, ending: Ending) -> ProcessView:
        close(db, process, ending, self.clock())
        return _view(db, processes.get(db, process.process_id))

    def _announce_closed(self, view: ProcessView) -> ProcessView:
        failpoint("cancel.after_store")
        log.info(
            "process.cancelled", process=view.process.process_id, table=str(view.table), reason=view.process.failure
        )
        self.signals.left_over(view.process.process_id, view.table.catalog)
        self.signals.changed()
        return view

    def find_process(self, process_id: str) -> ProcessView:
        """The process with that id, or with that prefix of six characters or more. Raises ProcessNotFound."""
        return self.store.read(lambda db: _view(db, processes.find_by_part(db, process_id)))

    def list_processes(
        self, table_id: int | None = None, status: ProcessStatus | None = None, limit: int = 100
    ) -> list[ProcessView]:
        """Processes, newest first."""
        statuses = None if status is None else (status,)
        return self.store.read(
            lambda db: [_view(db, item) for item in processes.list_processes(db, table_id, statuses, limit)]
        )

    def running_tasks(self, optimizer_id: str) -> int:
        """How many tasks an optimizer holds."""
        return len(self.store.read(lambda db: tasks.list_assigned(db, optimizer_id)))

    def active_process(self, table_id: int) -> OptimizingProcess | None:
        return self.store.read(lambda db: processes.find_active(db, table_id))

    def list_committing(self) -> list[tuple[str, str]]:
        """Id and catalog of each process whose commit must be made or traced now, oldest first."""
        return self.store.read(lambda db: committing(db, self.clock()))

    def recover(self) -> None:
        """Resume every state after a restart: nothing is dropped, and commits are reconciled before new plans."""
        effects = Effects()

        def resume(db: Connection) -> None:
            now, epoch = self.clock(), current_epoch(db)
            words = f"a coordinator began, epoch {epoch}"
            append_event(db, EventKind.LEADER_CHANGED, words, About(), now, {"epoch": epoch})
            for process in processes.list_active(db):
                if process.status is ProcessStatus.RUNNING:
                    advance_process(db, process.process_id, effects, now)
            effects.commits += committing(db)
            effects.left_over += list_leftover(db)
            for runtime in tables.list_tables(db, status=OptimizingStatus.PLANNING):
                if processes.find_active(db, runtime.table_id) is None:
                    event = table_machine.PlanFailed("the coordinator ended while it planned")
                    tables.save(db, table_machine.advance(runtime, event, now))

        self.store.write(resume)
        self.signals.send(effects)


def _view(db: Connection, process: OptimizingProcess) -> ProcessView:
    return ProcessView(
        process, tables.get(db, process.table_id).identifier, tuple(tasks.list_for_process(db, process.process_id))
    )
