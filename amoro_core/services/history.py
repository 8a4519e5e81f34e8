"""Retention of ended processes, of events, of values over time and of scans."""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from amoro_core.events import get_logger
from amoro_core.model.journal import KEEP_EVENTS
from amoro_core.model.scans import KEEP_SCANS
from amoro_core.store import events, processes, series, table_scans
from amoro_core.store.database import Connection, Store

log = get_logger("amoro.history")

#: Processes deleted in one write: other writes wait for it, and each may have thousands of tasks with payloads.
CHUNK = 20

#: Small rows deleted in one write.
ROWS = 1000


class HistoryService:
    """Deletes processes, with their tasks and attempts, after their retention, old events, values and scans."""

    def __init__(self, store: Store, clock: Callable[[], datetime], keep: timedelta) -> None:
        self._store = store
        self._clock = clock
        self._keep = keep

    def trim(self) -> int:
        """Delete what is past its retention; returns the number of processes. Active ones stay, however old."""
        before = self._clock() - self._keep
        forgotten = 0
        while removed := self._store.write(lambda db: processes.remove_ended(db, before, CHUNK)):
            forgotten += removed
        old = self._clock() - KEEP_EVENTS
        while self._store.write(lambda db: events.trim(db, old, ROWS)):
            pass
        for series_id in self._store.read(series.list_ids):
            while self._store.write(partial(self._trim_series, series_id=series_id)):
                pass
        oldest = (self._clock() - KEEP_SCANS).date()
        self._store.write(lambda db: table_scans.forget_before(db, oldest))
        if forgotten:
            log.info("history.trimmed", processes=forgotten, ended_before=before.isoformat())
        return forgotten

    def _trim_series(self, db: Connection, series_id: int) -> int:
        return series.trim(db, series_id, self._clock(), ROWS)
