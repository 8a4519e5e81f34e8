"""What stands around a table when an action decides about it: what others need, have written, or have condemned."""

from collections.abc import Callable
from datetime import datetime

from amoro_core.actions.contract import Action
from amoro_core.model.maintenance import Surroundings
from amoro_core.store import condemned, processes, snapshot_leases, tables
from amoro_core.store.database import Connection
from amoro_core.transactions.pins import pins

_MOST_ENDED = 10_000


def surroundings(
    db: Connection, table_id: int, find_action: Callable[[str], Action], now: datetime, own: str = ""
) -> Surroundings:
    """Everything of one moment. `own` is the process that asks, which is not in its own way. Raises TableNotFound."""
    runtime = tables.get(db, table_id)
    needed = pins(db, table_id, find_action, own)
    leases = snapshot_leases.list_leases(db, now, table_id, runtime.uuid)
    pinned = {**needed.reasons, **{one.snapshot_id: one.words for one in leases}}
    known = processes.list_processes(db, table_id, limit=_MOST_ENDED)
    return Surroundings(
        pinned=pinned,
        since={one.snapshot_id: one.words for one in leases if one.is_since},
        paths=needed.paths,
        condemned=condemned.paths(db, table_id, own),
        due=condemned.due(db, table_id, now),
        neighbours={
            str(one.identifier): one.location
            for one in tables.list_tables(db)
            if one.table_id != table_id and one.location
        },
        active=frozenset(one.process_id for one in processes.list_active(db)),
        ended={one.process_id: one.finished_at for one in known if one.finished_at is not None},
    )
