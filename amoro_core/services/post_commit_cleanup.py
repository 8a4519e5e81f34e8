"""Removing files once a process has done its work: those it must remove, and those left over."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from amoro_core.actions.action_api import Action, Condemning, Mending, Sweeping, Tidying
from amoro_core.documents.formatting import format_bytes, many
from amoro_core.errors import AccessDenied, AmoroError, CommitConflict, FileStillReferenced, TableNotFound
from amoro_core.failpoints import failpoint
from amoro_core.formats.ports import Committable, Role, with_roles
from amoro_core.formats.tables import Tables
from amoro_core.logger import get_logger
from amoro_core.model.processes import CommitOutcome, Figure, ProcessContext, ProcessStatus, Receipt
from amoro_core.model.text_sanitizing import LONGEST_REASON, cut, without_secrets
from amoro_core.services.file_deletion import SweepingService
from amoro_core.state import processes as process_machine
from amoro_core.state.backoff import Outcome
from amoro_core.store import pending_deletions, processes
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.advance_process import (
    committed_groups,
    finish_table,
    finish_text,
    is_partial,
    move_process,
    release_condemned,
)
from amoro_core.transactions.process_context import open_planned, read_context

log = get_logger("amoro.clearing")

#: Files in a batch of removals; the table's references are checked for each batch.
CLEARED_AT_ONCE = 1000
#: A process whose table is gone or was replaced clears nothing.
_GONE = (CommitConflict, TableNotFound)
_ALL = 2**31 - 1


@dataclass
class ClearingService:
    """Removes files of processes, never one that the table references at that time."""

    store: Store
    tables: Tables
    find_action: Callable[[str], Action]
    clock: Callable[[], datetime]
    changed: Callable[[], None]
    sweeping: SweepingService

    def clear(self, process_id: str) -> None:
        """Remove the stored files, batch after batch, and end the process.

        When it can't proceed, the delay is kept with the process, and the reason raised. It ends if the table is gone,
        or if access was denied so often that retrying is pointless; anything else is retried.
        """
        try:
            self._clear(process_id)
        except FileStillReferenced as spoken:
            hold = process_machine.Hold(spoken.message)
            self.store.write(lambda db: move_process(db, process_id, hold, self.clock()))
            log.error("process.held", process=process_id, why=spoken.message)
            self.changed()
        except AmoroError as error:
            if not self._goes_on(process_id):
                raise
            reason = cut(without_secrets(error.message), LONGEST_REASON)
            delayed = process_machine.CommitDelayed(error.code, reason, isinstance(error, AccessDenied))
            process = self.store.write(lambda db: move_process(db, process_id, delayed, self.clock()))
            self.changed()
            if not isinstance(error, _GONE) and not process_machine.is_refused_for_good(process):
                raise
            self._end(process_id, error)

    def _clear(self, process_id: str) -> None:
        case = self.store.read(lambda db: read_context(db, process_id))
        action = self.find_action(case.process.type)
        receipt = case.process.receipt
        if isinstance(action, Sweeping):
            receipt = self.sweeping.sweep(case)
        if isinstance(action, Condemning):
            receipt = self._condemn(case, action)
        while paths := self.store.read(lambda db: processes.list_clearing(db, process_id, CLEARED_AT_ONCE)):
            if not self._goes_on(process_id):
                return
            failpoint("clear.before_delete")
            removed = frozenset(self._table(case).delete_unreferenced(paths))
            failpoint("clear.after_delete")
            rest = [path for path in paths if path not in removed]
            self.store.write(partial(_settle, process_id=process_id, removed=removed, kept=rest))
            log.info("files.removed", process=process_id, files=len(removed), kept=len(rest))
        self._end(process_id, receipt=receipt)

    def _goes_on(self, process_id: str) -> bool:
        """Whether the process continues, that is, was not closed meanwhile."""
        return self.store.read(lambda db: processes.get(db, process_id)).status == ProcessStatus.CLEARING

    def _condemn(self, case: ProcessContext, action: Condemning) -> Receipt | None:
        """Condemn the files that nothing needs after the commit; repeated if a crash interrupted it before."""
        process = case.process
        table = with_roles(open_planned(self.tables, case), action.roles, process.type)
        mended = action.restore_lost_refs(table, case) if isinstance(action, Mending) else ()
        if mended:
            log.error("commit.mended", process=process.process_id, what="; ".join(mended))
        self.store.write(lambda db: pending_deletions.remove_written(db, process.process_id))
        purge_at = self.clock() + action.keep(case)
        counts: Counter[str] = Counter()
        batches = pending_deletions.batches_of(
            action.condemned(table, case), process.process_id, process.table_id, process.table_uuid, purge_at
        )
        for batch in batches:
            self.store.write(partial(pending_deletions.add_many, batches=[batch]))
            counts[f"{batch.kind.value.replace('-', '_')}_files_condemned"] += len(batch.files)
            counts["bytes_condemned"] += sum(file.size_bytes or 0 for file in batch.files)
        failpoint("clear.after_condemning")
        if process.receipt is None:
            return None
        figures = [
            Figure(name, value, "bytes" if name.startswith("bytes") else "files") for name, value in counts.items()
        ]
        if mended:
            figures.append(Figure("mended", len(mended), ""))
        marked = many(sum(counts.values()) - counts["bytes_condemned"], "file")
        trash = (f"marked {marked} ({format_bytes(counts['bytes_condemned'])}) for deletion",) if counts else ()
        words = "; ".join((process.receipt.words, *trash, *mended))
        return replace(process.receipt, words=words, more=(*process.receipt.more, *figures))

    def _end(self, process_id: str, given_up: AmoroError | None = None, receipt: Receipt | None = None) -> None:
        """End a clearing process. `given_up`: why the rest of its files stays."""
        case = self.store.read(lambda db: read_context(db, process_id))
        landed = next((attempt for attempt in case.attempts if attempt.outcome is CommitOutcome.DONE), None)

        def finish(db: Connection) -> None:
            if processes.get(db, process_id).status != ProcessStatus.CLEARING:
                return  # closed meanwhile
            now = self.clock()
            count = processes.count_retained(db, process_id) + len(processes.list_clearing(db, process_id, _ALL))
            event: process_machine.ProcessEvent = process_machine.Cleared(receipt)
            if count:
                why = given_up.message if given_up else "the table names them, or they could not be removed"
                event = process_machine.ClearedPartly(
                    given_up.code if given_up else "", f"{many(count, 'file')} not removed: {why}"
                )
            elif landed is not None and is_partial(case, landed):
                event = process_machine.ClearedPartly("", "")
            process = move_process(db, process_id, event, now)
            snapshot_id = None if landed is None else landed.snapshot_id
            outcome = Outcome.FRUITLESS if _is_fruitless(receipt) else Outcome.DONE
            finish_table(db, process, finish_text(process, landed), now, snapshot_id, outcome)
            release_condemned(db, process, now)

        self.store.write(finish)
        failpoint("clear.after_done")
        self.changed()

    def tidy(self, process_id: str) -> None:
        """Remove empty folders of the table after a process that succeeded; failing to do so is only logged."""
        case = self.store.read(lambda db: read_context(db, process_id))
        action = self.find_action(case.process.type)
        if not isinstance(action, Tidying) or case.process.status != ProcessStatus.SUCCESS:
            return
        try:
            removed = action.tidy(with_roles(open_planned(self.tables, case), action.roles, case.process.type), case)
        except AmoroError as error:
            log.warning("folders.left_over", table=str(case.runtime.identifier), why=error.message)
            return
        if removed:
            log.info("folders.removed", table=str(case.runtime.identifier), folders=removed)

    def clean_up(self, process_id: str) -> tuple[str, ...]:
        """Remove the files of a process that ended and that no commit has, after a reference check.

        Nothing is removed while the outcome of any commit attempt is unknown. Returns what was removed.
        """
        case = self.store.read(lambda db: read_context(db, process_id))
        if not case.process.left_over or any(attempt.is_open for attempt in case.attempts):
            return ()
        committed = committed_groups(case.attempts)
        unused = frozenset(result.number for result in case.results) - committed
        removed = self.remove(case, self.find_action(case.process.type).outputs(case, unused))
        if removed is not None:
            self.store.write(lambda db: processes.save(db, replace(processes.get(db, process_id), left_over=False)))
        return removed or ()

    def remove(self, case: ProcessContext, paths: Iterable[str], since: int = 0) -> tuple[str, ...] | None:
        """Remove those of the files that no snapshot references; None if the table could not be loaded.

        `since`: a sequence number that the table had not reached when they were written.
        """
        identifier = case.runtime.identifier
        attempts = self.store.read(lambda db: processes.list_commits(db, case.process.process_id))
        needed = {
            path for attempt in attempts if attempt.may_come_back for path in (*attempt.files, *attempt.metadata_files)
        }
        wanted = tuple(path for path in paths if path not in needed)
        if not wanted:
            return ()
        try:
            # Nothing if another table has the name by now: its references tell nothing about the planned one's files.
            removed = self._table(case).delete_unreferenced(wanted, since)
        except AmoroError as error:
            # What stays is an orphan: harmless, and removed by orphan cleaning.
            log.warning("files.left_over", table=str(identifier), files=len(wanted), why=error.message)
            return () if isinstance(error, _GONE) else None
        log.info("files.removed", table=str(identifier), files=len(removed), kept=len(wanted) - len(removed))
        return removed

    def _table(self, case: ProcessContext) -> Committable:
        return with_roles(open_planned(self.tables, case), (Role.COMMIT,), "removing what is left over")


def _is_fruitless(receipt: Receipt | None) -> bool:
    """Whether a sweep tried to delete files without any success."""
    files = {figure.name: figure.value for figure in receipt.figures if figure.unit == "files"} if receipt else {}
    return files.pop("files_failed", 0) > 0 and not any(files.values())


def _settle(db: Connection, process_id: str, removed: Iterable[str], kept: Iterable[str]) -> None:
    processes.settle_clearing(db, process_id, removed, retained=False)
    processes.settle_clearing(db, process_id, kept, retained=True)
