"""Processes that wait for their commit, or for the removal of what they wrote, each with the catalog of its table."""

from datetime import datetime

from amoro_core.model.processes import IN_NO_LANE, ProcessStatus
from amoro_core.store import processes, tables
from amoro_core.store.database import Connection
from amoro_core.transactions.settling import has_ended_work


def committing(db: Connection, now: datetime | None = None) -> list[tuple[str, str]]:
    """Committing processes, oldest first; with `now`, without those that are retried later."""
    return [
        (process.process_id, tables.get(db, process.table_id).identifier.catalog)
        for process in processes.list_active(db)
        if process.status not in IN_NO_LANE
        and (process.status is not ProcessStatus.RUNNING or (not process.commits and has_ended_work(db, process)))
        and (now is None or process.delay is None or process.delay.retry_at <= now)
    ]


def left_over(db: Connection) -> list[tuple[str, str]]:
    """Processes that ended without a commit and whose files are not removed yet."""
    return [
        (process.process_id, tables.get(db, process.table_id).identifier.catalog)
        for process in processes.list_left_over(db)
    ]
