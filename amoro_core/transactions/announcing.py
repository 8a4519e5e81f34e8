"""Blockers that a process takes for its own time: writers that ask are refused until it ends."""

from dataclasses import replace
from datetime import datetime

from amoro_core.errors import TableBlocked
from amoro_core.model.blockers import LONGEST_HOLD, BlockedOperation, Blocker
from amoro_core.model.ids import uuid7
from amoro_core.model.processes import OptimizingProcess
from amoro_core.model.tables import TableRuntime
from amoro_core.store import blockers, tables
from amoro_core.store.database import Connection

_AGAINST = frozenset({BlockedOperation.BATCH_WRITE})


def announce(db: Connection, runtime: TableRuntime, process: OptimizingProcess, now: datetime) -> Blocker:
    """Block batch writers that ask, until the process ends: for a day, and longer as it is renewed.

    Raises TableBlocked if another holder has such a blocker: a batch write is under way.
    """
    held = blockers.find_against(db, runtime.table_id, _AGAINST, now)
    if held is not None:
        raise TableBlocked(
            f"{runtime.identifier} is {held.words}",
            hint=f"Try again later, or release it: amoro table unblock {held.blocker_id}",
        )
    blocker = Blocker(
        uuid7(now), runtime.table_id, _AGAINST, now, now + LONGEST_HOLD, LONGEST_HOLD, _reason(process.process_id)
    )
    return blockers.add(db, blocker)


def renew(db: Connection, process: OptimizingProcess, now: datetime) -> bool:
    """Hold what the process has blocked for a day from now; whether that could be done.

    A blocker that has expired, as while no coordinator ran, is taken anew unless somebody else has one.
    """
    own = next((one for one in blockers.list_active(db, now, process.table_id) if _is_of(one, process)), None)
    if own is not None:
        blockers.save(db, replace(own, expires_at=now + LONGEST_HOLD))
    elif blockers.find_against(db, process.table_id, _AGAINST, now) is None:
        announce(db, tables.get(db, process.table_id), process, now)
    else:
        return False
    return True


def needs_renewal(db: Connection, process: OptimizingProcess, now: datetime) -> bool:
    """Whether less than half a day of what the process has blocked is left."""
    held = (one.expires_at for one in blockers.list_active(db, now, process.table_id) if _is_of(one, process))
    return max(held, default=now) - now < LONGEST_HOLD / 2


def withdraw(db: Connection, process: OptimizingProcess, now: datetime) -> None:
    """Release what the process has blocked, if it has."""
    for one in blockers.list_active(db, now, process.table_id):
        if _is_of(one, process):
            blockers.remove(db, one.blocker_id)


def _is_of(blocker: Blocker, process: OptimizingProcess) -> bool:
    return blocker.reason == _reason(process.process_id)


def _reason(process_id: str) -> str:
    return f"process {process_id} orders rows"
