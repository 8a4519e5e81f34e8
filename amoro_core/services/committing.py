"""Committing what a process made: at most once, and only what is proved right on the head of that moment."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime

import structlog

from amoro_core.errors import (
    AmoroError,
    CheckFailed,
    CommitConflict,
    CommitRefused,
    CommitUnknown,
    DataFileMissing,
    TableNotFound,
    TableRefused,
    UnreadableFile,
)
from amoro_core.failpoints import failpoint
from amoro_core.formats.known import KnownFiles
from amoro_core.formats.port import OpenTable, TableFormat
from amoro_core.model.commits import (
    PROCESS_ID,
    CommitContent,
    FileFacts,
    Group,
    Head,
    PlanRecord,
    Trace,
)
from amoro_core.model.files import ScannedFile
from amoro_core.model.plans import PartitionKey
from amoro_core.model.processes import (
    CatalogConfig,
    CommitAttempt,
    CommitOutcome,
    OptimizingProcess,
    ProcessStatus,
)
from amoro_core.model.tables import TableIdentifier
from amoro_core.state import processes as process_machine
from amoro_core.state import tables as table_machine
from amoro_core.state.backoff import backed_off
from amoro_core.store import commits, partitions, processes, tables
from amoro_core.store.database import Database, Store
from amoro_core.transactions.cases import CommitCase, attempt_of, read_case
from amoro_core.validating.check import check
from amoro_core.validating.rules import ambiguous_deletes, validate

log = structlog.get_logger("amoro.committing")

#: Attempts of one commit against a table that others keep changing; each is staged in well under a second.
MAX_ATTEMPTS = 20


class CommittingService:
    """Commits of processes. One process is worked on by one caller at a time, which `loops` sees to."""

    def __init__(
        self,
        store: Store,
        tables_of: TableFormat,
        find_catalog: Callable[[str], CatalogConfig],
        clock: Callable[[], datetime],
        changed: Callable[[], None],
    ) -> None:
        self._store = store
        self._format = tables_of
        self._find_catalog = find_catalog
        self._clock = clock
        self._changed = changed

    def commit(self, process_id: str) -> ProcessStatus:
        """Bring a COMMITTING or unknown process to its end, as far as the table lets it; returns where it stands.

        Raises CatalogUnavailable (and what else loading raises) before anything was sent: it is tried again later.
        """
        case = self._case(process_id)
        if case.process.status not in (ProcessStatus.COMMITTING, ProcessStatus.COMMIT_UNKNOWN):
            return case.process.status
        try:
            table, known = self._load(case.runtime.identifier), KnownFiles()
            if self._reconciled(case, table):
                return self._status(process_id)
            for _ in range(MAX_ATTEMPTS):
                if self._attempt(self._case(process_id), table, known):
                    return self._status(process_id)
            self._fail(case, CommitConflict(f"other writers were faster {MAX_ATTEMPTS} times in a row"))
        except (CommitConflict, CommitRefused, CheckFailed, TableRefused, TableNotFound) as error:
            self._fail(case, error)
        return self._status(process_id)

    # What is known of earlier attempts

    def _reconciled(self, case: CommitCase, table: OpenTable) -> bool:
        """Whether an earlier attempt ends the commit or leaves it unknown; if not, a new one may be made."""
        for attempt in case.attempts:
            if attempt.outcome is CommitOutcome.DONE:
                self._succeed(case, attempt)
                return True
            if _is_open(attempt):
                trace = _trace(table, attempt)
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

    def _send_again(self, case: CommitCase, table: OpenTable, attempt: CommitAttempt) -> Trace:
        """Send an unknown attempt byte for byte: same id, parent and requirement, so that at most one applies."""
        failpoint("commit.before_resend")
        try:
            table.send(attempt.payload)
        except (CommitConflict, CommitRefused, CommitUnknown) as error:
            log.warning("commit.unclear", process=case.process.process_id, attempt=attempt.number, why=error.message)
            fresh = self._load(case.runtime.identifier)
            return _trace(fresh, attempt)
        return Trace.LANDED

    # A new attempt

    def _attempt(self, case: CommitCase, table: OpenTable, known: KnownFiles) -> bool:
        """Validate, check, stage, write down, send. False: somebody else was first, and it may be tried again."""
        head = table.head(case.process.snapshot_id, case.record.sequence_number)
        validation = validate(case.record, head, known.named(table, ambiguous_deletes(case.record, head)))
        if validation.conflict is not None:
            raise CommitConflict(validation.conflict, hint="The next round plans it anew.")
        if validation.content is None:
            raise CommitConflict("; ".join(validation.dropped.values()), hint="The next round plans it anew.")
        content = validation.content
        _check(case.record, content, head, table, known)
        failpoint("commit.before_intent")
        staged = table.stage(head, content, _summary(case.process))
        failpoint("commit.after_stage")
        attempt = attempt_of(case, content, head, staged, self._clock())
        # Should this fail, what was staged stays: the row may be there all the same, and be sent after a restart.
        self._store.write(lambda db: self._intend(db, attempt))
        failpoint("commit.after_intent")
        ended = self._sent(case, table, attempt)
        if ended:
            for number, reason in validation.dropped.items():
                log.warning("group.dropped", process=case.process.process_id, task=number, reason=reason)
        return ended

    def _sent(self, case: CommitCase, table: OpenTable, attempt: CommitAttempt) -> bool:
        try:
            table.send(attempt.payload)
        except CommitConflict as error:
            self._store.write(
                lambda db: commits.save_outcome(db, attempt.process_id, attempt.number, CommitOutcome.CONFLICT)
            )
            failpoint("commit.after_loss")
            self._clean(case, attempt.metadata_files)
            log.info("commit.conflicted", process=attempt.process_id, attempt=attempt.number, why=error.message)
            return False
        except CommitRefused:
            self._store.write(
                lambda db: commits.save_outcome(db, attempt.process_id, attempt.number, CommitOutcome.REFUSED)
            )
            failpoint("commit.after_loss")
            self._clean(case, attempt.metadata_files)
            raise
        except CommitUnknown as error:
            self._unclear(case, attempt, error.message)
            return True
        failpoint("commit.after_send")
        self._succeed(case, attempt)
        return True

    def _intend(self, db: Database, attempt: CommitAttempt) -> None:
        process = processes.get(db, attempt.process_id)
        processes.save(db, process_machine.advance(process, process_machine.CommitSent(), self._clock()))
        commits.add(db, attempt)

    # Ends

    def _succeed(self, case: CommitCase, attempt: CommitAttempt) -> None:
        receipt = attempt.receipt
        partial = len(attempt.groups) < case.tasks

        def finish(db: Database) -> None:
            now = self._clock()
            commits.save_outcome(db, attempt.process_id, attempt.number, CommitOutcome.DONE)
            process = processes.get(db, attempt.process_id)
            event: process_machine.ProcessEvent = (
                process_machine.CommittedPartly(receipt) if partial else process_machine.Committed(receipt)
            )
            processes.save(db, process_machine.advance(process, event, now))
            keys = {_key(group) for group in case.record.groups if group.number in attempt.groups}
            partitions.record(db, process.table_id, tuple(keys), process.type, process.created_at)
            runtime = tables.get(db, process.table_id)
            reason = f"{process.type} committed snapshot {attempt.snapshot_id}"
            ended = table_machine.advance(runtime, table_machine.ProcessEnded(reason), now)
            tables.save(
                db,
                replace(ended, failures=0, retry_at=None, last_optimized_at=now, snapshot_id=attempt.snapshot_id),
            )

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
            dropped = [group for group in case.record.groups if group.number not in attempt.groups]
            self._clean(case, _outputs(dropped))

    def _unclear(self, case: CommitCase, attempt: CommitAttempt, message: str) -> None:
        def keep(db: Database) -> None:
            commits.save_outcome(db, attempt.process_id, attempt.number, CommitOutcome.UNKNOWN)
            process = processes.get(db, attempt.process_id)
            if process.status is ProcessStatus.COMMITTING:
                event = process_machine.CommitUnclear(message)
                processes.save(db, process_machine.advance(process, event, self._clock()))

        self._store.write(keep)
        log.error("commit.unknown", process=case.process.process_id, attempt=attempt.number, why=message)
        self._changed()

    def _refuted(self, case: CommitCase, attempt: CommitAttempt) -> None:
        def keep(db: Database) -> None:
            commits.save_outcome(db, attempt.process_id, attempt.number, CommitOutcome.REFUTED)
            process = processes.get(db, attempt.process_id)
            if process.status is ProcessStatus.COMMIT_UNKNOWN:
                processes.save(db, process_machine.advance(process, process_machine.CommitRefuted(), self._clock()))

        self._store.write(keep)
        failpoint("commit.after_loss")
        self._clean(case, attempt.metadata_files)

    def _fail(self, case: CommitCase, error: AmoroError) -> None:
        def finish(db: Database) -> None:
            now = self._clock()
            process = processes.get(db, case.process.process_id)
            processes.save(db, process_machine.advance(process, _failure(case, error), now))
            runtime = tables.get(db, process.table_id)
            ended = table_machine.ProcessEnded(f"{process.type} failed: {error.message}")
            runtime = table_machine.advance(runtime, ended, now)
            # Losing to a writer is no fault of the table: the next round comes after its min-plan-interval.
            tables.save(db, runtime if isinstance(error, CommitConflict) else backed_off(runtime, now))

        self._store.write(finish)
        failpoint("commit.after_failure")
        log.warning("process.failed", process=case.process.process_id, code=error.code, reason=error.message)
        self._changed()
        self.clean_up(case.process.process_id)

    # Clean-up

    def clean_up(self, process_id: str) -> tuple[str, ...]:
        """Remove what a process that ended without commit has written, after a reference check.

        Nothing is removed while any attempt to commit is unknown. Returns what was removed.
        """
        case = self._case(process_id)
        if case.process.status.is_active or any(_is_open(attempt) for attempt in case.attempts):
            return ()
        if any(attempt.outcome is CommitOutcome.DONE for attempt in case.attempts):
            return ()
        return self._clean(case, _outputs(case.record.groups))

    def _clean(self, case: CommitCase, paths: Iterable[str]) -> tuple[str, ...]:
        identifier = case.runtime.identifier
        attempts = self._store.read(lambda db: commits.list_for_process(db, case.process.process_id))
        needed = {path for attempt in attempts if _may_come_back(attempt) for path in _named_by(attempt)}
        wanted = tuple(path for path in paths if path not in needed)
        if not wanted:
            return ()
        try:
            removed = self._load(identifier).delete_unreferenced(wanted)
        except AmoroError as error:
            # What stays is an orphan: harmless, and removed by orphan cleaning.
            log.warning("files.left_over", table=str(identifier), files=len(wanted), why=error.message)
            return ()
        log.info("files.removed", table=str(identifier), files=len(removed), kept=len(wanted) - len(removed))
        return removed

    # Reading

    def _load(self, identifier: TableIdentifier) -> OpenTable:
        return self._format.load(self._find_catalog(identifier.catalog), identifier)

    def _status(self, process_id: str) -> ProcessStatus:
        return self._store.read(lambda db: processes.get(db, process_id)).status

    def _case(self, process_id: str) -> CommitCase:
        return self._store.read(lambda db: read_case(db, process_id))


def _check(record: PlanRecord, content: CommitContent, head: Head, table: OpenTable, known: KnownFiles) -> None:
    """The check that can't be skipped: what is about to be committed adds up, file by file and row by row."""
    kept = replace(record, groups=tuple(group for group in record.groups if group.number in content.groups))
    matched: dict[str, ScannedFile] = {file.data.path: file for file in head.scan.files}
    inputs = {
        file.data.path: matched[file.data.path]
        for group in kept.groups
        for file in (*group.work.rewritten, *group.work.converted)
        if file.data.path in matched
    }
    facts: dict[str, FileFacts] = {}
    for path in _outputs(kept.groups):
        try:
            facts[path] = known.facts(table, path)
        except (DataFileMissing, UnreadableFile) as error:
            raise CheckFailed(f"output {path} is not as reported: {error.message}") from error
    check(kept, inputs, facts)


def _failure(case: CommitCase, error: AmoroError) -> process_machine.ProcessEvent:
    message = f"{error.message} ({error.hint})" if error.hint else error.message
    if isinstance(error, TableNotFound) and any(_is_open(attempt) for attempt in case.attempts):
        unknown = f"{message}; whether a commit to it was applied is not known, and none of its files is removed"
        return process_machine.TableGone(error.code, unknown)
    return process_machine.ProcessFailed(error.code, message)


def _summary(process: OptimizingProcess) -> dict[str, str]:
    return {
        "snapshot.producer": "OPTIMIZE",
        PROCESS_ID: process.process_id,
        "amoro.optimizing-type": process.type.value,
    }


def _outputs(groups: Sequence[Group]) -> tuple[str, ...]:
    data = [file.path for group in groups for file in group.output.data_files]
    return (*data, *(file.path for group in groups for file in group.output.delete_files))


def _key(group: Group) -> PartitionKey:
    first = (*group.work.rewritten, *group.work.converted)[0].data
    return PartitionKey(first.spec_id, first.partition)


def _trace(table: OpenTable, attempt: CommitAttempt) -> Trace:
    return table.trace(attempt.snapshot_id, attempt.parent_snapshot_id, attempt.sequence_number, attempt.files)


def _may_come_back(attempt: CommitAttempt) -> bool:
    """Whether a refuted attempt that is still under way would land after all, should main go back to its parent.

    Only without sequence numbers, so in format 1: elsewhere catalogs refuse a snapshot that is not the newest.
    """
    return attempt.outcome is CommitOutcome.REFUTED and attempt.sequence_number == 0


def _named_by(attempt: CommitAttempt) -> tuple[str, ...]:
    return (*attempt.files, *attempt.metadata_files)


def _is_open(attempt: CommitAttempt) -> bool:
    """Whether nobody knows what became of the attempt; one that was only written down counts, too."""
    return attempt.outcome in (CommitOutcome.SENT, CommitOutcome.UNKNOWN)
