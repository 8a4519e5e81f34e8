"""The surroundings of a table for an action: what others need, have written, or have condemned."""

from collections.abc import Callable
from datetime import datetime, timedelta

from amoro_core.actions.contract import Action
from amoro_core.model.maintenance import Surroundings
from amoro_core.model.undoing import UNDOES
from amoro_core.store import condemned, processes, snapshot_leases, tables
from amoro_core.store.database import Connection
from amoro_core.transactions.pins import pins

_MOST_ENDED = 10_000
#: Processes that remove rows, which an undo brings back.
_REMOVE_ROWS = UNDOES["undo-expire-data"]


def surroundings(
    db: Connection,
    table_id: int,
    find_action: Callable[[str], Action],
    now: datetime,
    own: str = "",
    undo_keep: timedelta = timedelta(),
) -> Surroundings:
    """The surroundings at one moment. `own` is the calling process, which does not block itself.

    `undo_keep`: how long a process that removed rows can be undone, during which its base snapshot must stay. Raises
    TableNotFound.
    """
    runtime = tables.get(db, table_id)
    needed = pins(db, table_id, find_action, own)
    leases = snapshot_leases.list_leases(db, now, table_id, runtime.uuid)
    known = processes.list_processes(db, table_id, limit=_MOST_ENDED)
    bases = {
        one.receipt.base_snapshot_id: f"undo of {one.process_id}"
        for one in known
        if one.type in _REMOVE_ROWS and one.receipt and one.finished_at and now - one.finished_at <= undo_keep
    }
    pinned = {**bases, **needed.reasons, **{one.snapshot_id: one.words for one in leases}}
    return Surroundings(
        pinned=pinned,
        since={one.snapshot_id: one.words for one in leases if one.is_since},
        paths=needed.paths,
        condemned=condemned.paths(db, table_id, own),
        due=condemned.due(db, table_id, now),
        active=frozenset(processes.list_active_ids(db)),
        ended={one.process_id: one.finished_at for one in known if one.finished_at is not None},
    )


def neighbours(db: Connection, table_id: int) -> dict[str, str]:
    """The locations of all other tables that are known, by full name."""
    return {str(name): location for number, name, location in tables.list_locations(db) if number != table_id}
