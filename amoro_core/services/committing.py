"""Commits: results of tasks, staging, sending, the status of unknown commits, clean-up."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType

from amoro_core.actions.action_api import (
    Action,
    Clustering,
    Condemning,
    Gathering,
    Interruptible,
    Prepare,
    Restoring,
    Sweeping,
    remove_fallen,
)
from amoro_core.errors import (
    AccessDenied,
    AmoroError,
    CatalogUnavailable,
    CheckFailed,
    CommitConflict,
    CommitRefused,
    CommitUnknown,
    Fenced,
    IllegalState,
    StorageFull,
    StoreFailed,
    TableNotFound,
    TableRefused,
    WorkFailed,
)
from amoro_core.failpoints import failpoint
from amoro_core.formats.ports import AnyTable, Committable, Role, with_roles
from amoro_core.formats.tables import Tables
from amoro_core.logger import get_logger
from amoro_core.metrics_registry import Meters
from amoro_core.model import metrics
from amoro_core.model.commits import SnapshotAdded, Trace
from amoro_core.model.processes import (
    CommitAttempt,
    CommitOutcome,
    Dropped,
    OptimizingProcess,
    ProcessContext,
    ProcessStatus,
)
from amoro_core.model.text_sanitizing import LONGEST_REASON, briefly, cut, without_secrets
from amoro_core.services.maintenance import MaintenanceService
from amoro_core.services.post_commit_cleanup import ClearingService
from amoro_core.state import processes as process_machine
from amoro_core.state.backoff import Outcome
from amoro_core.store import pending_deletions, processes, tables
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.advance_process import (
    Effects,
    cancel_open_tasks,
    end_process,
    failure_of,
    finish_table,
    finish_text,
    has_ended_work,
    is_partial,
    move_process,
    release_condemned,
    release_table,
)
from amoro_core.transactions.process_context import (
    attempt_of,
    base_metadata_files,
    config_of,
    keep_dropped,
    keep_landed,
    open_planned,
    read_context,
    refuse_second,
    retry_commit,
)

log = get_logger("amoro.committing")

_DUE = (ProcessStatus.COMMITTING, ProcessStatus.COMMIT_UNKNOWN)
#: Errors that end a commit; while an attempt is unknown, only that its table is gone or was replaced.
_GONE = (CommitConflict, TableNotFound)
NOTHING_DROPPED: Mapping[int, str] = MappingProxyType({})
_ENDS = (*_GONE, CommitRefused, CheckFailed, TableRefused)


@dataclass
class CommittingService:
    """Commits and ends processes. Each process is worked on by one caller at a time, as ensured by `loops`."""

    store: Store
    tables: Tables
    find_action: Callable[[str], Action]
    clock: Callable[[], datetime]
    changed: Callable[[], None]
    clearing: ClearingService
    maintaining: MaintenanceService
    meters: Meters

    def commit(self, process_id: str) -> str:
        """Commit and end a process whose tasks have ended, as far as possible; returns its status.

        Raises CatalogUnavailable (and other errors of reading, staging and sending) when it could not proceed; the
        delay, with the time of the next try, is kept with the process. Permanent refusals end it.
        """
        case = self._case(process_id)
        if self._is_due(case.process):
            try:
                self._advance(case)
            except Exception as error:
                now = self._case(process_id).process
                if not self._is_due(now):
                    log.info("commit.abandoned", process=process_id, status=str(now.status))  # cancelled meanwhile
                elif not self._ended_by(process_id, error):
                    raise
        if self._status(process_id) is ProcessStatus.CLEARING:
            self.clearing.clear(process_id)
        return self._status(process_id)

    def _is_due(self, process: OptimizingProcess) -> bool:
        if process.status is ProcessStatus.RUNNING and not process.commits:
            return self.store.read(lambda db: has_ended_work(db, process))
        return process.status in _DUE

    def _advance(self, case: ProcessContext) -> None:
        """Proceed until the process has ended or is unknown. Raises what prevents that, and why it failed."""
        process_id = case.process.process_id
        if case.process.status is ProcessStatus.RUNNING:
            self._end_work(case)
            return
        action = self._action(case)
        table = with_roles(open_planned(self.tables, case), action.roles | {Role.COMMIT}, case.process.type)
        prepare = (
            action.preparing_while(lambda: self._status(process_id) == ProcessStatus.COMMITTING)
            if isinstance(action, Interruptible)
            else action.preparing()
        )
        while True:
            if not self._reconciled(self._case(process_id), table):
                if Role.READ in action.roles:
                    refuse_second(self._case(process_id), table.snapshots())
                limit = config_of(self.tables, case.runtime).commit_timeout
                with self.meters.timed(metrics.COMMIT_TIME, case.process.type):
                    retry_commit(limit, lambda: self._attempt(self._case(process_id), table, prepare))
            # The next groups of a process that commits group by group may be ready.
            if not case.process.max_commits or self._status(process_id) is not ProcessStatus.COMMITTING:
                return

    def _ended_by(self, process_id: str, error: Exception) -> bool:
        """Whether the error ends the process; if not, the delay is kept with it, if the store can still be written."""
        case = self._case(process_id)
        ours = error if isinstance(error, AmoroError) else WorkFailed(briefly(f"{type(error).__name__}: {error}"))
        is_open = any(attempt.is_open for attempt in case.attempts)
        if isinstance(ours, _GONE if is_open else _ENDS):
            self._fail(case, ours)
            return True
        reason = cut(without_secrets(ours.message), LONGEST_REASON)
        delayed = process_machine.CommitDelayed(ours.code, reason, isinstance(ours, AccessDenied))
        with suppress(StoreFailed, StorageFull, Fenced):
            process = self.store.write(lambda db: self._moved(db, process_id, delayed))
            if not is_open and process_machine.is_refused_for_good(process):
                self._fail(case, CommitRefused(f"{reason}; tried {process_machine.MAX_REFUSALS} times"))
                return True
            self.changed()
        return False

    def _moved(self, db: Connection, process_id: str, event: process_machine.ProcessEvent) -> OptimizingProcess:
        return move_process(db, process_id, event, self.clock())

    def _reconciled(self, case: ProcessContext, table: Committable) -> bool:
        """Whether an earlier attempt ends the commit or leaves it unknown; if not, a new one may be made."""
        for attempt in case.attempts:
            if attempt.outcome is CommitOutcome.DONE and not case.process.max_commits:
                self._succeed(case, attempt)
                return True
            if attempt.is_open:
                trace = table.trace(attempt.evidence)
                if trace is Trace.OPEN:
                    trace = self._send_again(case, table, attempt)
                log.info("commit.reconciled", process=attempt.process_id, attempt=attempt.number, trace=trace.value)
                if trace is Trace.LANDED:
                    self._succeed(case, attempt)
                    return True
                if trace is Trace.OPEN:
                    self._unclear(case, attempt, "the catalog does not say whether the commit was applied")
                    return True
                self._discard(case, attempt, CommitOutcome.REFUTED)
        return False

    def _send_again(self, case: ProcessContext, table: Committable, attempt: CommitAttempt) -> Trace:
        """Resend an unknown attempt byte for byte: same id, parent and requirement, so that at most one applies."""
        failpoint("commit.before_resend")
        self.store.require_own()
        try:
            table.send(attempt.payload)
        except (CommitConflict, CommitUnknown, WorkFailed) as error:
            log.warning("commit.unclear", process=case.process.process_id, attempt=attempt.number, why=error.message)
            table = with_roles(open_planned(self.tables, case), (Role.COMMIT,), case.process.type)
            return table.trace(attempt.evidence)
        return Trace.LANDED

    def _attempt(self, case: ProcessContext, table: AnyTable, prepare: Prepare) -> bool:
        """Prepare, store, send. False: another writer was first, and it may be tried again."""
        change = prepare(table, case, self.clock())
        if isinstance(change, Dropped):
            self._drop(case, change)
            return True
        attempt = attempt_of(case, change, self.clock())

        def add(db: Connection) -> None:
            self._moved(db, attempt.process_id, process_machine.CommitSent())
            processes.add_commit(db, attempt)

        try:
            # If this fails, the staged files are kept: the row may exist all the same, and be sent after a restart.
            self.store.write(add)
        except IllegalState:
            self.clearing.remove(case, attempt.metadata_files)  # cancelled meanwhile: there is no row
            raise
        failpoint("commit.after_intent")
        ended = self._sent(case, table, attempt, change.dropped)
        if ended:
            self._note_dropped(case.process, change.dropped)
        return ended

    def _note_dropped(self, process: OptimizingProcess, dropped: Mapping[int, str]) -> None:
        for number, reason in dropped.items():
            log.warning("group.dropped", process=process.process_id, task=number, reason=reason)
        self.meters.count(metrics.DROPPED_GROUPS, process.type, by=len(dropped))

    def _sent(
        self, case: ProcessContext, table: Committable, attempt: CommitAttempt, dropped: Mapping[int, str]
    ) -> bool:
        # The attempt may be stored in a database that is not read again.
        self.store.require_own()
        try:
            table.send(attempt.payload)
        except CommitConflict as error:
            self._discard(case, attempt, CommitOutcome.CONFLICT)
            log.info("commit.conflicted", process=attempt.process_id, attempt=attempt.number, why=error.message)
            return False
        except CommitUnknown as error:
            self._unclear(case, attempt, error.message)
            return True
        except (CommitRefused, CatalogUnavailable, StorageFull) as error:  # of any other error nothing is known
            self._discard(case, attempt, CommitOutcome.REFUSED)
            if case.process.max_commits and not attempt.groups and isinstance(error, CommitRefused):
                return False  # what was to come before the groups' commit does not: the action goes without it
            raise
        failpoint("commit.after_send")
        self._succeed(case, attempt, dropped)
        table_id, find_action = case.process.table_id, self.find_action
        remove_fallen(case, table, lambda: self.store.read(lambda db: base_metadata_files(db, table_id, find_action)))
        return True

    def _discard(self, case: ProcessContext, attempt: CommitAttempt, outcome: CommitOutcome) -> None:
        """Store that an attempt was not applied, and remove its files, which only snapshots since then might name."""

        def save(db: Connection) -> None:
            processes.save_commit_outcome(db, attempt.process_id, attempt.number, outcome)
            process = processes.get(db, attempt.process_id)
            if outcome is CommitOutcome.REFUTED and process.status is ProcessStatus.COMMIT_UNKNOWN:
                self._moved(db, process.process_id, process_machine.CommitRefuted())

        self.store.write(save)
        self.meters.count(metrics.COMMIT_ATTEMPTS, outcome)
        failpoint("commit.after_loss")
        evidence = attempt.evidence
        since = evidence.sequence_number if isinstance(evidence, SnapshotAdded) else 0
        self.clearing.remove(case, attempt.metadata_files, since)

    def _end_work(self, case: ProcessContext) -> None:
        """End a process that commits nothing."""
        action = self._action(case)
        if isinstance(action, Gathering) and case.tasks:
            self.maintaining.gather(case, action)
        else:
            receipt, paths = action.receipt(case), action.removals(case)

            def end(db: Connection) -> None:
                now, process = self.clock(), processes.get(db, case.process.process_id)
                if paths or isinstance(action, Sweeping):
                    processes.add_clearing(db, process.process_id, paths)
                    self._moved(db, process.process_id, process_machine.BeginClearing(receipt))
                    return
                self._restore(db, case)
                self._moved(db, process.process_id, process_machine.Cleared(receipt))
                finish_table(db, process, finish_text(process, None), now)
                release_condemned(db, process, now)

            self.store.write(end)
        self.changed()
        self.clearing.tidy(case.process.process_id)

    def _restore(self, db: Connection, case: ProcessContext) -> None:
        """Release condemned files that an undo brings back, once it has landed."""
        action = self._action(case)
        if isinstance(action, Restoring):
            pending_deletions.restore(db, action.restores(case))
            pending_deletions.unmark_files(db, case.process.table_id, action.spares(case))

    def _succeed(
        self, case: ProcessContext, attempt: CommitAttempt, dropped: Mapping[int, str] = NOTHING_DROPPED
    ) -> None:
        if case.process.max_commits:
            self._go_on(case, attempt, dropped)
            return
        receipt, action = attempt.receipt, self._action(case)
        partial = is_partial(case, attempt)
        keys, paths = action.optimized(case, attempt.groups), action.removals(case)
        unused = frozenset(result.number for result in case.results) - frozenset(attempt.groups)
        is_left_over = bool(action.outputs(replace(case, attempts=(*case.attempts, attempt)), unused))

        def finish(db: Connection) -> None:
            now = self.clock()
            processes.save_commit_outcome(db, attempt.process_id, attempt.number, CommitOutcome.DONE)
            self._restore(db, case)
            process = processes.get(db, attempt.process_id)
            tables.record_partitions(db, process.table_id, keys, process.type, process.created_at)
            if paths or isinstance(action, Condemning):
                processes.add_clearing(db, process.process_id, paths)
                self._moved(db, process.process_id, process_machine.BeginClearing(receipt))
                return
            event = process_machine.CommittedPartly(receipt) if partial else process_machine.Committed(receipt)
            ended = self._moved(db, process.process_id, event)
            if is_left_over:
                processes.save(db, replace(ended, left_over=True))
            text, parent_id = finish_text(process, attempt), receipt.base_snapshot_id
            finish_table(db, process, text, now, attempt.snapshot_id, parent_id=parent_id)

        self.store.write(finish)
        self.meters.count(metrics.COMMIT_ATTEMPTS, CommitOutcome.DONE)
        failpoint("commit.after_done")
        log.info(
            "process.committed",
            process=attempt.process_id,
            table=str(case.runtime.identifier),
            snapshot=attempt.snapshot_id,
            rows=receipt.rows_after,
            partial=partial,
        )
        self.changed()
        if is_left_over:
            self.clearing.clean_up(case.process.process_id)

    def _go_on(self, case: ProcessContext, attempt: CommitAttempt, dropped: Mapping[int, str]) -> None:
        """The commit of some groups has landed: the process goes on with the others, or ends."""
        action, effects = self._action(case), Effects()
        keys = action.optimized(case, attempt.groups)
        groups = action.clustered_groups(case, attempt.groups) if isinstance(action, Clustering) else ()
        self.store.write(lambda db: keep_landed(db, attempt, keys, groups, dropped, effects, self.clock()))
        self.meters.count(metrics.COMMIT_ATTEMPTS, CommitOutcome.DONE)
        failpoint("commit.after_done")
        log.info("groups.committed", process=attempt.process_id, groups=len(attempt.groups), what=attempt.words)
        self._settled(effects)

    def _drop(self, case: ProcessContext, dropped: Dropped) -> None:
        """None of the groups that were ready can be committed."""
        process_id, effects = case.process.process_id, Effects()
        self.store.write(lambda db: keep_dropped(db, process_id, dropped.groups, effects, self.clock()))
        self._note_dropped(case.process, dropped.groups)
        self._settled(effects)

    def _settled(self, effects: Effects) -> None:
        self.changed()
        for process_id, _ in effects.left_over:
            self.clearing.clean_up(process_id)

    def _unclear(self, case: ProcessContext, attempt: CommitAttempt, message: str) -> None:
        def keep(db: Connection) -> None:
            processes.save_commit_outcome(db, attempt.process_id, attempt.number, CommitOutcome.UNKNOWN)
            process = processes.get(db, attempt.process_id)
            if process.status is ProcessStatus.COMMITTING:
                self._moved(db, process.process_id, process_machine.CommitUnclear(message))
            else:
                processes.save(db, replace(process, delay=None))  # the table answers again

        self.store.write(keep)
        self.meters.count(metrics.COMMIT_ATTEMPTS, CommitOutcome.UNKNOWN)
        log.error("commit.unknown", process=case.process.process_id, attempt=attempt.number, why=message)
        self.changed()

    def _fail(self, case: ProcessContext, error: AmoroError) -> None:
        def finish(db: Connection) -> None:
            process = processes.get(db, case.process.process_id)
            attempts = processes.list_commits(db, process.process_id)
            end_process(db, process, failure_of(db, process, attempts, error), self.clock())
            cancel_open_tasks(db, process.process_id, "the process failed", self.clock())
            # Losing to a writer is no fault of the table: the next round comes after its min-plan-interval.
            outcome = Outcome.FRUITLESS if isinstance(error, CommitConflict) else Outcome.FAILED
            release_table(db, process, f"{process.type} failed: {error.message}", self.clock(), outcome, error.code)

        self.store.write(finish)
        if isinstance(error, CheckFailed):
            self.meters.count(metrics.FAILED_CHECKS, case.process.type)
        if isinstance(error, CommitConflict):
            self.meters.count(metrics.DROPPED_GROUPS, case.process.type, by=len(case.results))
        failpoint("commit.after_failure")
        log.warning("process.failed", process=case.process.process_id, code=error.code, reason=error.message)
        self.changed()
        self.clearing.clean_up(case.process.process_id)

    def _action(self, case: ProcessContext) -> Action:
        return self.find_action(case.process.type)

    def _status(self, process_id: str) -> str:
        return self.store.read(lambda db: processes.get(db, process_id)).status

    def _case(self, process_id: str) -> ProcessContext:
        return self.store.read(lambda db: read_context(db, process_id))
