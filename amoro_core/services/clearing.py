"""Removing files once a process is done with its work: what it was to remove, and what it has left over."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Protocol

from amoro_core.actions.contract import Action, Condemning, Mending, Sweeping
from amoro_core.errors import AccessDenied, AmoroError, CommitConflict, GuardSpoke, TableNotFound
from amoro_core.events import get_logger
from amoro_core.failpoints import failpoint
from amoro_core.formats.port import Committable, Role, with_roles
from amoro_core.formats.tables import Tables
from amoro_core.model.actions import Case
from amoro_core.model.processes import CommitAttempt, CommitOutcome, Figure, ProcessStatus, Receipt
from amoro_core.model.secrets import without_secrets
from amoro_core.model.texts import cut
from amoro_core.state import processes as process_machine
from amoro_core.store import commits, condemned, processes
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.cases import open_planned, read_case
from amoro_core.transactions.releasing import done, done_words, is_partial, move, release_condemned

log = get_logger("amoro.clearing")

#: Files whose removal is one batch: each batch asks the table anew which of them it names.
CLEARED_AT_ONCE = 1000
#: A process whose table is gone, or another by now, clears nothing.
_GONE = (CommitConflict, TableNotFound)
_ALL = 2**31 - 1
_LONGEST_REASON = 2000  # bytes


class Sweeper(Protocol):
    """What deletes condemned files."""

    def sweep(self, case: Case) -> Receipt:
        """Delete what is due of the process's table. Raises GuardSpoke, and what guard and storage raise."""


class ClearingService:
    """Removes files of processes, none that the table names as it is then."""

    def __init__(
        self,
        store: Store,
        tables_of: Tables,
        find_action: Callable[[str], Action],
        clock: Callable[[], datetime],
        changed: Callable[[], None],
        sweeping: Sweeper,
    ) -> None:
        self._sweeping = sweeping
        self._store = store
        self._tables = tables_of
        self._find_action = find_action
        self._clock = clock
        self._changed = changed

    def clear(self, process_id: str) -> None:
        """Remove what was written down, batch after batch, and end the process.

        When it can't go on that is kept with the process, and the reason raised. It ends where the table is gone, and
        where the right to delete was refused so often that asking again is pointless; anything else is tried again.
        """
        try:
            self._clear(process_id)
        except GuardSpoke as spoken:
            held = process_machine.Hold(spoken.message)
            self._store.write(lambda db: move(db, process_id, held, self._clock()))
            log.error("process.held", process=process_id, why=spoken.message)
            self._changed()
        except AmoroError as error:
            if not self._goes_on(process_id):
                raise
            reason = cut(without_secrets(error.message), _LONGEST_REASON)
            delayed = process_machine.CommitDelayed(error.code, reason, isinstance(error, AccessDenied))
            process = self._store.write(lambda db: move(db, process_id, delayed, self._clock()))
            self._changed()
            if not isinstance(error, _GONE) and not process_machine.is_refused_for_good(process):
                raise
            self._end(process_id, error)

    def _clear(self, process_id: str) -> None:
        case = self._store.read(lambda db: read_case(db, process_id))
        action = self._find_action(case.process.type)
        receipt = case.process.receipt
        if isinstance(action, Sweeping):
            receipt = self._sweeping.sweep(case)
        if isinstance(action, Condemning):
            receipt = self._condemn(case, action)
        while paths := self._store.read(lambda db: processes.list_clearing(db, process_id, CLEARED_AT_ONCE)):
            if not self._goes_on(process_id):
                return
            failpoint("clear.before_delete")
            removed = frozenset(self._table(case).delete_unreferenced(paths))
            failpoint("clear.after_delete")
            kept = [path for path in paths if path not in removed]
            self._store.write(partial(_settled, process_id=process_id, removed=removed, kept=kept))
            log.info("files.removed", process=process_id, files=len(removed), kept=len(kept))
        self._end(process_id, receipt=receipt)

    def _goes_on(self, process_id: str) -> bool:
        """Whether the process was not closed meanwhile."""
        return self._store.read(lambda db: processes.get(db, process_id)).status == ProcessStatus.CLEARING

    def _condemn(self, case: Case, action: Condemning) -> Receipt | None:
        """Write down what the commit has left that nothing needs; anew, should a death have cut it short before."""
        process = case.process
        table = with_roles(open_planned(self._tables, case), action.roles, process.type)
        mended = action.mend(table, case) if isinstance(action, Mending) else ()
        if mended:
            log.error("commit.mended", process=process.process_id, what="; ".join(mended))
        self._store.write(lambda db: condemned.remove_written(db, process.process_id))
        purge_at = self._clock() + action.keep(case)
        counts: Counter[str] = Counter()
        batches = condemned.batches_of(
            action.condemned(table, case), process.process_id, process.table_id, process.table_uuid, purge_at
        )
        for batch in batches:
            self._store.write(partial(condemned.add_many, batches=[batch]))
            counts[f"{batch.kind.value.replace('-', '_')}_files_condemned"] += len(batch.files)
            counts["bytes_condemned"] += sum(one.size_bytes or 0 for one in batch.files)
        failpoint("clear.after_condemning")
        if process.receipt is None:
            return None
        figures = [
            Figure(name, value, "bytes" if name.startswith("bytes") else "files") for name, value in counts.items()
        ]
        if mended:
            figures.append(Figure("mended", len(mended), ""))
        words = "; ".join((process.receipt.words, *mended))
        return replace(process.receipt, words=words, more=(*process.receipt.more, *figures))

    def _end(self, process_id: str, given_up: AmoroError | None = None, receipt: Receipt | None = None) -> None:
        """End a process that clears. `given_up`: why the rest of its files stays."""
        case = self._store.read(lambda db: read_case(db, process_id))
        landed = next((one for one in case.attempts if one.outcome is CommitOutcome.DONE), None)

        def finish(db: Connection) -> None:
            if processes.get(db, process_id).status != ProcessStatus.CLEARING:
                return  # closed meanwhile
            now = self._clock()
            kept = processes.count_kept(db, process_id) + len(processes.list_clearing(db, process_id, _ALL))
            event: process_machine.ProcessEvent = process_machine.Cleared(receipt)
            if kept:
                why = given_up.message if given_up else "the table names them, or they could not be removed"
                event = process_machine.ClearedPartly(given_up.code if given_up else "", f"{kept} files stay: {why}")
            elif landed is not None and is_partial(case, landed):
                event = process_machine.ClearedPartly("", "")
            process = move(db, process_id, event, now)
            done(db, process, done_words(process, landed), now, None if landed is None else landed.snapshot_id)
            release_condemned(db, process, now)

        self._store.write(finish)
        failpoint("clear.after_done")
        self._changed()

    # What is left over

    def clean_up(self, process_id: str) -> tuple[str, ...]:
        """Remove what a process that ended without commit has written, after a reference check.

        Nothing is removed while any attempt to commit is unknown. Returns what was removed.
        """
        case = self._store.read(lambda db: read_case(db, process_id))
        if case.process.is_active or any(attempt.is_open for attempt in case.attempts):
            return ()
        if any(attempt.outcome is CommitOutcome.DONE for attempt in case.attempts):
            return ()
        every = frozenset(result.number for result in case.results)
        removed = self.remove(case, self._find_action(case.process.type).outputs(case, every))
        if removed is not None:
            self._store.write(partial(_cleaned, process_id=process_id))
        return removed or ()

    def remove(self, case: Case, paths: Iterable[str]) -> tuple[str, ...] | None:
        """Remove those of the files that no snapshot names; None where the table could not be asked."""
        identifier = case.runtime.identifier
        attempts = self._store.read(lambda db: commits.list_for_process(db, case.process.process_id))
        needed = {path for attempt in attempts if attempt.may_come_back for path in _named_by(attempt)}
        wanted = tuple(path for path in paths if path not in needed)
        if not wanted:
            return ()
        try:
            # Nothing where another table has the name by now: its references say nothing about the planned one's files.
            removed = self._table(case).delete_unreferenced(wanted)
        except AmoroError as error:
            # What stays is an orphan: harmless, and removed by orphan cleaning.
            log.warning("files.left_over", table=str(identifier), files=len(wanted), why=error.message)
            return () if isinstance(error, _GONE) else None
        log.info("files.removed", table=str(identifier), files=len(removed), kept=len(wanted) - len(removed))
        return removed

    def _table(self, case: Case) -> Committable:
        return with_roles(open_planned(self._tables, case), (Role.COMMIT,), "removing what is left over")


def _named_by(attempt: CommitAttempt) -> tuple[str, ...]:
    return (*attempt.files, *attempt.metadata_files)


def _settled(db: Connection, process_id: str, removed: Iterable[str], kept: Iterable[str]) -> None:
    processes.settle_clearing(db, process_id, removed, kept=False)
    processes.settle_clearing(db, process_id, kept, kept=True)


def _cleaned(db: Connection, process_id: str) -> None:
    processes.save(db, replace(processes.get(db, process_id), left_over=False))
