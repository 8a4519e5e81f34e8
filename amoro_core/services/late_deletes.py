"""Telling of deletes by others that came after a commit of ours and name files that it had replaced."""

from collections.abc import Callable
from datetime import datetime

from amoro_core.errors import AmoroError
from amoro_core.events import get_logger
from amoro_core.formats.port import Readable
from amoro_core.meters import Meters
from amoro_core.model import metrics
from amoro_core.model.files import TableScan
from amoro_core.model.journal import About, EventFilter, EventKind
from amoro_core.model.late_deletes import LateDelete
from amoro_core.model.tables import TableRuntime
from amoro_core.store import events
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.telling import tell

log = get_logger("amoro.late_deletes")

#: Events of a table that are looked through for what was told before.
_LATEST = 1000


class LateDeleteService:
    """Tells once of each snapshot of others that deletes rows of files which a commit of ours had replaced."""

    def __init__(self, store: Store, clock: Callable[[], datetime], meters: Meters) -> None:
        self._store = store
        self._clock = clock
        self._meters = meters
        self._looked: dict[int, tuple[str, int]] = {}  # by table id: UUID and sequence number up to which it was looked

    def look(self, runtime: TableRuntime, table: Readable, scan: TableScan | None) -> None:
        """Look at what came to a table, of which `scan` was just read. What can't be read is looked at another time."""
        if scan is None or not runtime.table_id:
            return
        uuid, known = self._looked.get(runtime.table_id, ("", 0))
        since = known if uuid == table.facts.uuid else 0
        try:
            found = table.late_deletes(scan, since)
        except AmoroError as error:
            log.warning("late_deletes.not_looked", table=str(runtime.identifier), why=error.message)
            return
        if found:
            for late in self._store.write(lambda db: self._new(db, runtime, found)):
                self._meters.count(metrics.LATE_DELETES)
                log.error("rows.came_back", table=str(runtime.identifier), process=late.process_id, what=_words(late))
        self._looked[runtime.table_id] = table.facts.uuid, scan.sequence_number

    def _new(self, db: Connection, runtime: TableRuntime, found: tuple[LateDelete, ...]) -> list[LateDelete]:
        """Keep an event of each that was not told before, as before a restart."""
        wanted = EventFilter(kinds=(EventKind.LATE_DELETES,), table_id=runtime.table_id)
        told = {event.data.get("snapshot") for event in events.list_newest(db, wanted, None, _LATEST)}
        new = [late for late in found if str(late.snapshot_id) not in told]
        for late in new:
            about = About(runtime.table_id, str(runtime.identifier), late.process_id)
            data: dict[str, str | int] = {
                "snapshot": str(late.snapshot_id),
                "application": late.application,
                "files": len(late.files),
                "replaced_by": str(late.replaced_by),
            }
            tell(db, EventKind.LATE_DELETES, _words(late), about, self._clock(), data)
        return new


def _words(late: LateDelete) -> str:
    more = f" and {len(late.files) - 1} more" if len(late.files) > 1 else ""
    return (
        f"snapshot {late.snapshot_id} of {late.application} deletes rows of {late.files[0]}{more}, which snapshot"
        f" {late.replaced_by} had replaced before: unless deleted otherwise, these rows are still there"
    )
