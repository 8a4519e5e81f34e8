"""Processes that wait for their commit, or for the removal of what they wrote, each with the catalog of its table."""

from datetime import datetime

from amoro_core.model.processes import ProcessStatus
from amoro_core.store import processes, tables
from amoro_core.store.database import Connection
from amoro_core.transactions.settling import has_ended_work


def committing(db: Connection, now: datetime | None = None) -> list[tuple[str, str]]:
    """What commits, oldest first; at that time, where it is given, without what is tried again later."""
    return [
        (process.process_id, tables.get(db, process.table_id).identifier.catalog)
        for process in processes.list_active(db)
        if process.status != ProcessStatus.HELD
        and (process.status is not ProcessStatus.RUNNING or (not process.commits and has_ended_work(db, process)))
        and (now is None or process.delay is None or process.delay.retry_at <= now)
    ]


def left_over(db: Connection) -> list[tuple[str, str]]:
    """Processes that ended without a commit before what they had written was removed."""
    return [
        (process.process_id, tables.get(db, process.table_id).identifier.catalog)
        for process in processes.list_left_over(db)
    ]
