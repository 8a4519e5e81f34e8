"""Committing what a process made: at most once, and only what is proved right on the head of that moment."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from amoro_core.actions.contract import Action, Condemning, Prepare, Restoring, Sweeping
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
from amoro_core.events import get_logger
from amoro_core.failpoints import failpoint
from amoro_core.formats.port import AnyTable, Committable, Role, with_roles
from amoro_core.formats.tables import Tables
from amoro_core.model.actions import Case
from amoro_core.model.commits import Trace
from amoro_core.model.processes import (
    CommitAttempt,
    CommitOutcome,
    OptimizingProcess,
    ProcessStatus,
    Receipt,
)
from amoro_core.model.secrets import without_secrets
from amoro_core.model.texts import LONGEST_REASON, briefly, cut
from amoro_core.state import processes as process_machine
from amoro_core.store import commits, condemned, partitions, processes
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.cases import attempt_of, open_planned, read_case
from amoro_core.transactions.releasing import done, done_words, end, is_partial, move, release, release_condemned
from amoro_core.transactions.settling import has_ended_work

log = get_logger("amoro.committing")

#: Attempts of one commit against a table that others keep changing; each is staged in well under a second.
MAX_ATTEMPTS = 20
_DUE = (ProcessStatus.COMMITTING, ProcessStatus.COMMIT_UNKNOWN)
#: What ends a commit: with an attempt of which nobody knows only that its table is gone, or another by now.
_GONE = (CommitConflict, TableNotFound)
_ENDS = (*_GONE, CommitRefused, CheckFailed, TableRefused)


class Clearing(Protocol):
    """What removes files of processes."""

    def clear(self, process_id: str) -> None:
        """Remove what a process wrote down that it is to remove, and end it."""

    def clean_up(self, process_id: str) -> tuple[str, ...]:
        """Remove what a process has written that ended without commit."""

    def remove(self, case: Case, paths: Iterable[str]) -> tuple[str, ...] | None:
        """Remove those of the files that no snapshot names."""


class CommittingService:
    """The ends of processes. One process is worked on by one caller at a time, which `loops` sees to."""

    def __init__(
        self,
        store: Store,
        tables_of: Tables,
        find_action: Callable[[str], Action],
        clock: Callable[[], datetime],
        changed: Callable[[], None],
        clearing: Clearing,
    ) -> None:
        self._store = store
        self._clearing = clearing
        self._tables = tables_of
        self._find_action = find_action
        self._clock = clock
        self._changed = changed

    def commit(self, process_id: str) -> str:
        """Bring a process whose tasks have ended to its own end, as far as the table lets it; returns where it stands.

        Raises CatalogUnavailable (and what else reading, staging and sending raise) when it could not go on, which is
        kept with the process: it is to be tried again at the time that stands there. What is refused for good ends it.
        """
        case = self._case(process_id)
        if case.process.status is ProcessStatus.CLEARING:
            self._clearing.clear(process_id)
            return self._status(process_id)
        if not self._is_due(case.process):
            return case.process.status
        try:
            self._advance(case)
        except Exception as error:
            now = self._case(process_id).process
            if not self._is_due(now):
                log.info("commit.abandoned", process=process_id, status=str(now.status))  # cancelled meanwhile
            elif not self._ended_by(process_id, error):
                raise
        if (status := self._status(process_id)) is ProcessStatus.CLEARING:
            self._clearing.clear(process_id)
            return self._status(process_id)
        return status

    def _is_due(self, process: OptimizingProcess) -> bool:
        if process.status is ProcessStatus.RUNNING and not process.commits:
            return self._store.read(lambda db: has_ended_work(db, process))
        return process.status in _DUE

    def _advance(self, case: Case) -> None:
        """Go on until the process has ended or is unknown. Raises what keeps it from that, and why it failed."""
        process_id = case.process.process_id
        if case.process.status is ProcessStatus.RUNNING:
            self._end_work(case)
            return
        action = self._action(case)
        table = with_roles(open_planned(self._tables, case), action.roles | {Role.COMMIT}, case.process.type)
        prepare = action.preparing()
        if self._reconciled(case, table):
            return
        for _ in range(MAX_ATTEMPTS):
            if self._attempt(self._case(process_id), table, prepare):
                return
        raise CommitConflict(f"other writers were faster {MAX_ATTEMPTS} times in a row")

    def _ended_by(self, process_id: str, error: Exception) -> bool:
        """Whether the error ends the process; else that it waits is kept with it, where the store still takes it."""
        case = self._case(process_id)
        ours = error if isinstance(error, AmoroError) else WorkFailed(briefly(f"{type(error).__name__}: {error}"))
        is_open = any(attempt.is_open for attempt in case.attempts)
        if isinstance(ours, _GONE if is_open else _ENDS):
            self._fail(case, ours)
            return True
        reason = cut(without_secrets(ours.message), LONGEST_REASON)
        delayed = process_machine.CommitDelayed(ours.code, reason, isinstance(ours, AccessDenied))
        with suppress(StoreFailed, StorageFull, Fenced):
            process = self._store.write(lambda db: self._moved(db, process_id, delayed))
            if not is_open and process_machine.is_refused_for_good(process):
                self._fail(case, CommitRefused(f"{reason}; tried {process_machine.MAX_REFUSALS} times"))
                return True
            self._changed()
        return False

    def _moved(self, db: Connection, process_id: str, event: process_machine.ProcessEvent) -> OptimizingProcess:
        return move(db, process_id, event, self._clock())

    # What is known of earlier attempts

    def _reconciled(self, case: Case, table: Committable) -> bool:
        """Whether an earlier attempt ends the commit or leaves it unknown; if not, a new one may be made."""
        for attempt in case.attempts:
            if attempt.outcome is CommitOutcome.DONE:
                self._succeed(case, attempt)
                return True
            if attempt.is_open:
                trace = table.trace(attempt.evidence)
                if trace is Trace.OPEN:
                    trace = self._send_again(case, table, attempt)
                log.info(
                    "commit.reconciled", process=case.process.process_id, attempt=attempt.number, trace=trace.value
                )
                if trace is Trace.LANDED:
                    self._succeed(case, attempt)
                    return True
                if trace is Trace.OPEN:
                    self._unclear(case, attempt, "the catalog does not say whether the commit was applied")
                    return True
                self._refuted(case, attempt)
        return False

    def _send_again(self, case: Case, table: Committable, attempt: CommitAttempt) -> Trace:
        """Send an unknown attempt byte for byte: same id, parent and requirement, so that at most one applies."""
        failpoint("commit.before_resend")
        self._store.require_own()
        try:
            table.send(attempt.payload)
        except (CommitConflict, CommitUnknown, WorkFailed) as error:
            log.warning("commit.unclear", process=case.process.process_id, attempt=attempt.number, why=error.message)
            table = with_roles(open_planned(self._tables, case), (Role.COMMIT,), case.process.type)
            return table.trace(attempt.evidence)
        return Trace.LANDED

    # A new attempt

    def _attempt(self, case: Case, table: AnyTable, prepare: Prepare) -> bool:
        """Prepare, write down, send. False: somebody else was first, and it may be tried again."""
        change = prepare(table, case, self._clock())
        attempt = attempt_of(case, change, self._clock())
        try:
            # Should this fail, what was staged stays: the row may be there all the same, and be sent after a restart.
            self._store.write(lambda db: self._intend(db, attempt))
        except IllegalState:
            self._clearing.remove(case, attempt.metadata_files)  # cancelled meanwhile: there is no row
            raise
        failpoint("commit.after_intent")
        ended = self._sent(case, table, attempt)
        if ended:
            for number, reason in change.dropped.items():
                log.warning("group.dropped", process=case.process.process_id, task=number, reason=reason)
        return ended

    def _sent(self, case: Case, table: Committable, attempt: CommitAttempt) -> bool:
        # The attempt may be written down where nobody will ever look for it.
        self._store.require_own()
        try:
            table.send(attempt.payload)
        except CommitConflict as error:
            self._store.write(
                lambda db: commits.save_outcome(db, attempt.process_id, attempt.number, CommitOutcome.CONFLICT)
            )
            failpoint("commit.after_loss")
            self._clearing.remove(case, attempt.metadata_files)
            log.info("commit.conflicted", process=attempt.process_id, attempt=attempt.number, why=error.message)
            return False
        except CommitUnknown as error:
            self._unclear(case, attempt, error.message)
            return True
        except (CommitRefused, CatalogUnavailable, StorageFull):  # of any other error nothing is known
            self._store.write(
                lambda db: commits.save_outcome(db, attempt.process_id, attempt.number, CommitOutcome.REFUSED)
            )
            failpoint("commit.after_loss")
            self._clearing.remove(case, attempt.metadata_files)
            raise
        failpoint("commit.after_send")
        self._succeed(case, attempt)
        return True

    def _intend(self, db: Connection, attempt: CommitAttempt) -> None:
        self._moved(db, attempt.process_id, process_machine.CommitSent())
        commits.add(db, attempt)

    # Ends

    def _end_work(self, case: Case) -> None:
        """The end of a process that commits nothing."""
        action = self._action(case)
        receipt, paths = action.receipt(case), action.removals(case)
        self._store.write(lambda db: self._work_done(db, case, receipt, paths))
        self._changed()

    def _work_done(self, db: Connection, case: Case, receipt: Receipt | None, paths: Sequence[str]) -> None:
        now, process = self._clock(), processes.get(db, case.process.process_id)
        if paths or isinstance(self._action(case), Sweeping):
            processes.add_clearing(db, process.process_id, paths)
            self._moved(db, process.process_id, process_machine.BeginClearing(receipt))
            return
        self._restore(db, case)
        self._moved(db, process.process_id, process_machine.Cleared(receipt))
        done(db, process, done_words(process, None), now)
        release_condemned(db, process, now)

    def _restore(self, db: Connection, case: Case) -> None:
        """What an undo brings back is condemned no more from the moment on that it has landed."""
        action = self._action(case)
        if isinstance(action, Restoring):
            condemned.restore(db, action.restores(case))

    def _succeed(self, case: Case, attempt: CommitAttempt) -> None:
        receipt, action = attempt.receipt, self._action(case)
        partial = is_partial(case, attempt)
        keys, paths = action.optimized(case, attempt.groups), action.removals(case)

        def finish(db: Connection) -> None:
            now = self._clock()
            commits.save_outcome(db, attempt.process_id, attempt.number, CommitOutcome.DONE)
            self._restore(db, case)
            process = processes.get(db, attempt.process_id)
            partitions.record(db, process.table_id, keys, process.type, process.created_at)
            if paths or isinstance(action, Condemning):
                processes.add_clearing(db, process.process_id, paths)
                self._moved(db, process.process_id, process_machine.BeginClearing(receipt))
                return
            event = process_machine.CommittedPartly(receipt) if partial else process_machine.Committed(receipt)
            self._moved(db, process.process_id, event)
            done(db, process, done_words(process, attempt), now, attempt.snapshot_id)

        self._store.write(finish)
        failpoint("commit.after_done")
        log.info(
            "process.committed",
            process=attempt.process_id,
            table=str(case.runtime.identifier),
            snapshot=attempt.snapshot_id,
            rows=receipt.rows_after,
            partial=partial,
        )
        self._changed()
        if partial:
            dropped = frozenset(result.number for result in case.results) - frozenset(attempt.groups)
            self._clearing.remove(case, action.outputs(case, dropped))

    def _unclear(self, case: Case, attempt: CommitAttempt, message: str) -> None:
        def keep(db: Connection) -> None:
            commits.save_outcome(db, attempt.process_id, attempt.number, CommitOutcome.UNKNOWN)
            process = processes.get(db, attempt.process_id)
            if process.status is ProcessStatus.COMMITTING:
                self._moved(db, process.process_id, process_machine.CommitUnclear(message))
            else:
                processes.save(db, replace(process, delay=None))  # the table answers again

        self._store.write(keep)
        log.error("commit.unknown", process=case.process.process_id, attempt=attempt.number, why=message)
        self._changed()

    def _refuted(self, case: Case, attempt: CommitAttempt) -> None:
        def keep(db: Connection) -> None:
            commits.save_outcome(db, attempt.process_id, attempt.number, CommitOutcome.REFUTED)
            process = processes.get(db, attempt.process_id)
            if process.status is ProcessStatus.COMMIT_UNKNOWN:
                self._moved(db, process.process_id, process_machine.CommitRefuted())

        self._store.write(keep)
        failpoint("commit.after_loss")
        self._clearing.remove(case, attempt.metadata_files)

    def _fail(self, case: Case, error: AmoroError) -> None:
        def finish(db: Connection) -> None:
            process = processes.get(db, case.process.process_id)
            attempts = commits.list_for_process(db, process.process_id)
            end(db, process, _failure(attempts, error), self._clock())
            # Losing to a writer is no fault of the table: the next round comes after its min-plan-interval.
            lost = isinstance(error, CommitConflict)
            release(db, process, f"{process.type} failed: {error.message}", self._clock(), backs_off=not lost)

        self._store.write(finish)
        failpoint("commit.after_failure")
        log.warning("process.failed", process=case.process.process_id, code=error.code, reason=error.message)
        self._changed()
        self._clearing.clean_up(case.process.process_id)

    # Reading

    def _action(self, case: Case) -> Action:
        return self._find_action(case.process.type)

    def _status(self, process_id: str) -> str:
        return self._store.read(lambda db: processes.get(db, process_id)).status

    def _case(self, process_id: str) -> Case:
        return self._store.read(lambda db: read_case(db, process_id))


def _failure(attempts: Iterable[CommitAttempt], error: AmoroError) -> process_machine.ProcessEvent:
    """The process's end; with an attempt still open only a table that is gone, or another by now, leads here."""
    message = f"{error.message} ({error.hint})" if error.hint else error.message
    if any(attempt.is_open for attempt in attempts):
        unknown = f"{message}; whether a commit to it was applied is not known, and none of its files is removed"
        return process_machine.TableGone(error.code, unknown)
    return process_machine.ProcessFailed(error.code, message)
