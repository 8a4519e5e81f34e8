"""Condemned files that are not deleted yet: listing, restoring, making due."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from amoro_core.errors import IllegalState, InvalidArgument, ProcessNotFound
from amoro_core.failpoints import failpoint
from amoro_core.formats.ports import Role, Sweepable, with_roles
from amoro_core.formats.tables import Tables
from amoro_core.logger import get_logger
from amoro_core.model.maintenance import Condemned
from amoro_core.model.paging import ALL, Page, Window, cut, opened_pair, page_limit, sealed
from amoro_core.model.processes import OptimizingProcess
from amoro_core.model.tables import TableIdentifier
from amoro_core.store import pending_deletions, processes, tables
from amoro_core.store.database import Connection, Store
from amoro_core.store.pending_deletions import BatchFacts, BatchStatus
from amoro_core.transactions.file_holds import restore_batch, trash_path

log = get_logger("amoro.trash")


@dataclass(frozen=True, slots=True)
class Trash:
    """Files that a process has condemned and that are not deleted yet."""

    process: OptimizingProcess
    table: TableIdentifier
    files: int
    bytes: int
    purge_at: datetime  # of those that go first
    deleting_files: int  # whose deletion has begun: they can't be restored


#: A file with the status of its batch, and where it lies in a trash.
TrashFile = tuple[Condemned, BatchStatus, str]


@dataclass
class TrashService:
    """Condemned files of all tables."""

    store: Store
    tables: Tables
    clock: Callable[[], datetime]

    def page(self, table_id: int | None = None, window: Window = ALL) -> Page[Trash]:
        """Condemned files by process, the next to be deleted first; of one table or all.

        `after` is the `next` of the page before. Raises InvalidArgument for another one.
        """
        most, scope = page_limit(window.limit), ("trash", table_id)
        after = opened_pair(window.after, scope)

        def read(db: Connection) -> Page[Trash]:
            rows = pending_deletions.list_processes(db, table_id, after, most + 1)
            page = cut(rows, most, pending_deletions.count_processes(db, table_id), lambda place: sealed(scope, place))
            return page.mapped(lambda place: _trash(db, place[1], pending_deletions.list_facts(db, table_id, place[1])))

        return self.store.read(read)

    def show(self, prefix: str, window: Window = ALL) -> tuple[Trash, Page[TrashFile]]:
        """The trash of a process, and its files by batch and path.

        `after` is the `next` of the page before. Raises InvalidArgument, and ProcessNotFound for one without a file.
        """
        most = page_limit(window.limit)

        def read(db: Connection) -> tuple[Trash, Page[TrashFile]]:
            process, batches = _waiting(db, prefix)
            scope = ("trashed", process.process_id)
            first, path = opened_pair(window.after, scope) or (0, "")
            files: list[tuple[int, TrashFile]] = []
            for batch_facts in sorted(batches, key=lambda facts: facts.batch_id):
                if batch_facts.batch_id < first or len(files) > most:
                    continue
                batch = pending_deletions.get(db, batch_facts.batch_id)
                if batch is None:
                    continue
                for file in sorted(batch.files, key=lambda file: file.path):
                    if (batch_facts.batch_id, file.path) > (first, path):
                        files.append((batch_facts.batch_id, (file, batch_facts.status, trash_path(batch, file.path))))
            trash = _trash(db, process.process_id, batches)
            page = cut(files, most, trash.files, lambda pair: sealed(scope, (pair[0], pair[1][0].path)))
            return trash, page.mapped(lambda pair: pair[1])

        return self.store.read(read)

    def restore(self, prefix: str) -> Trash:
        """Restore the files that a process has condemned, from a trash too, and return them.

        Raises ProcessNotFound if nothing of it is condemned, IllegalState if all that is left is being deleted or
        moved, or if files could not be moved back, which stay in the trash; and what opening the table raises.
        """
        table = self._table_of_moved(prefix)

        def take_back(db: Connection) -> Trash:
            process, batches = _waiting(db, prefix)
            restorable = (BatchStatus.WAITING, *(_MOVED if table else ()))
            chosen = [batch_facts for batch_facts in batches if batch_facts.status in restorable]
            if not chosen:
                raise IllegalState(
                    f"the files of process {process.process_id} are being deleted or moved: they can't be restored now"
                )
            pending_deletions.restore(db, process.process_id)
            for item in chosen:
                if item.status is BatchStatus.MOVED and (batch := pending_deletions.get(db, item.batch_id)) is not None:
                    pending_deletions.save(db, replace(batch, status=BatchStatus.RETURNING))
            return _trash(db, process.process_id, chosen)

        restored = self.store.write(take_back)
        if table is not None:
            self._move_back(table, restored)
        log.info("trash.restored", process=restored.process.process_id, files=restored.files)
        return restored

    def _table_of_moved(self, prefix: str) -> Sweepable | None:
        """The table of the process, if any of what it has condemned was moved to a trash."""

        def moved(db: Connection) -> TableIdentifier | None:
            process, batches = _waiting(db, prefix)
            is_any = any(batch.status in _MOVED for batch in batches)
            return tables.get(db, process.table_id).identifier if is_any else None

        identifier = self.store.read(moved)
        if identifier is None:
            return None
        return with_roles(self.tables.open(identifier), (Role.SWEEP,), "restoring files from the trash")

    def _move_back(self, table: Sweepable, restored: Trash) -> None:
        """Move the files that are on their way back, batch after batch; after a kill it is done by the next restore."""
        process_id, failed = restored.process.process_id, dict[str, str]()
        returning = (BatchStatus.RETURNING,)
        for batch_facts in self.store.read(
            lambda db: pending_deletions.list_facts(db, process_id=process_id, statuses=returning)
        ):
            batch = self.store.read(partial(pending_deletions.get, batch_id=batch_facts.batch_id))
            if batch is not None:
                failpoint("trash.before_return")
                back, why = restore_batch(table, batch)
                failpoint("trash.after_return")
                self.store.write(partial(pending_deletions.settle_returned, batch=batch, back=back))
                failed |= why
        if failed:
            path, why_not = next(iter(failed.items()))
            raise IllegalState(
                f"{len(failed)} of {restored.files} files stay in the trash: {path}: {why_not}",
                hint=f"After fixing this, run: amoro trash restore {process_id}",
            )

    def make_due_now(self, table_id: int) -> tuple[int, int]:
        """Make all condemned files of a table due now; returns the numbers of files and bytes."""

        def make_due(db: Connection) -> tuple[int, int]:
            pending_deletions.make_due(db, table_id, self.clock())
            due = pending_deletions.due(db, table_id, self.clock())
            return due.files, due.bytes

        return self.store.write(make_due)


#: In a trash, or on the way back from there.
_MOVED = (BatchStatus.MOVED, BatchStatus.RETURNING)


def _waiting(db: Connection, prefix: str) -> tuple[OptimizingProcess, list[BatchFacts]]:
    process = processes.find_by_part(db, prefix)
    batches = pending_deletions.list_facts(db, process_id=process.process_id)
    if not batches:
        raise ProcessNotFound(
            f"process {process.process_id} ({process.type}) has no files in the trash",
            hint="`amoro trash list` shows those that have.",
        )
    return process, batches


def _trash(db: Connection, process_id: str, batches: Iterable[BatchFacts]) -> Trash:
    listed = tuple(batches)
    process = processes.get(db, process_id)
    return Trash(
        process,
        tables.get(db, process.table_id).identifier,
        sum(batch.files for batch in listed),
        sum(batch.bytes for batch in listed),
        min(batch.purge_at for batch in listed),
        sum(batch.files for batch in listed if batch.status is BatchStatus.DELETING),
    )


def require_confirmed(table: TableIdentifier, confirmed: str) -> None:
    """Raise InvalidArgument unless the confirmation names the table."""
    if confirmed != str(table):
        raise InvalidArgument(
            f"--confirm names {confirmed!r}, and the table is {table}", hint=f"Confirm it with: --confirm {table}"
        )
