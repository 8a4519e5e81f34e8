"""What was condemned and is not deleted yet: shown, taken back, hurried."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from amoro_core.errors import IllegalState, InvalidArgument, ProcessNotFound
from amoro_core.events import get_logger
from amoro_core.model.maintenance import Condemned
from amoro_core.model.processes import OptimizingProcess
from amoro_core.model.tables import TableIdentifier
from amoro_core.store import condemned, processes, tables
from amoro_core.store.condemned import BatchFacts, BatchStatus
from amoro_core.store.database import Connection, Store

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


@dataclass(frozen=True, slots=True)
class TrashFiles:
    """Some of the files, each with the status of its batch."""

    trash: Trash
    files: tuple[tuple[Condemned, BatchStatus], ...] = field(repr=False)


class TrashService:
    """Condemned files of all tables."""

    def __init__(self, store: Store, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._clock = clock

    def list_trash(self, table_id: int | None = None) -> list[Trash]:
        """What waits, by process, the next to be deleted first; of one table or all."""

        def read(db: Connection) -> list[Trash]:
            by_process: dict[str, list[BatchFacts]] = {}
            for one in condemned.list_facts(db, table_id):
                by_process.setdefault(one.process_id, []).append(one)
            return [_trash(db, process_id, some) for process_id, some in by_process.items()]

        return self._store.read(read)

    def show(self, prefix: str, limit: int) -> TrashFiles:
        """At most so many files that a process has condemned. Raises ProcessNotFound for one without any."""

        def read(db: Connection) -> TrashFiles:
            process, batches = _waiting(db, prefix)
            found: list[tuple[Condemned, BatchStatus]] = []
            for one in batches:
                batch = condemned.get(db, one.batch_id)
                found += [(file, one.status) for file in batch.files] if batch else []
                if len(found) >= limit:
                    break
            return TrashFiles(_trash(db, process.process_id, batches), tuple(found[:limit]))

        return self._store.read(read)

    def restore(self, prefix: str) -> Trash:
        """Take back what a process has condemned; what was taken back.

        Raises ProcessNotFound where nothing of it waits, and IllegalState where all that is left is being deleted.
        """

        def take_back(db: Connection) -> Trash:
            process, batches = _waiting(db, prefix)
            taken = [one for one in batches if one.status is BatchStatus.WAITING]
            if not taken:
                raise IllegalState(
                    f"the files of process {process.process_id} are being deleted: they can't be restored any more"
                )
            condemned.restore(db, process.process_id)
            return _trash(db, process.process_id, taken)

        restored = self._store.write(take_back)
        log.info("trash.restored", process=restored.process.process_id, files=restored.files)
        return restored

    def hurry(self, table_id: int) -> tuple[int, int]:
        """Let all that waits of a table be deleted from now on; how many files, of how many bytes."""

        def make_due(db: Connection) -> tuple[int, int]:
            condemned.make_due(db, table_id, self._clock())
            due = condemned.due(db, table_id, self._clock())
            return due.files, due.bytes

        return self._store.write(make_due)


def _waiting(db: Connection, prefix: str) -> tuple[OptimizingProcess, list[BatchFacts]]:
    process = processes.find_by_prefix(db, prefix)
    batches = condemned.list_facts(db, process_id=process.process_id)
    if not batches:
        raise ProcessNotFound(
            f"process {process.process_id} ({process.type}) has no condemned files that wait",
            hint="`amoro trash list` shows those that have.",
        )
    return process, batches


def _trash(db: Connection, process_id: str, batches: Iterable[BatchFacts]) -> Trash:
    every = tuple(batches)
    process = processes.get(db, process_id)
    return Trash(
        process,
        tables.get(db, process.table_id).identifier,
        sum(one.files for one in every),
        sum(one.bytes for one in every),
        min(one.purge_at for one in every),
        sum(one.files for one in every if one.status is BatchStatus.DELETING),
    )


def require_confirmed(table: TableIdentifier, confirmed: str) -> None:
    """Raise InvalidArgument unless the confirmation names the table."""
    if confirmed != str(table):
        raise InvalidArgument(
            f"--confirm names {confirmed!r}, and the table is {table}", hint=f"Confirm it with: --confirm {table}"
        )
