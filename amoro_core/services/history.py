"""How long what has ended is kept."""

from collections.abc import Callable
from datetime import datetime, timedelta

from amoro_core.events import get_logger
from amoro_core.store import processes
from amoro_core.store.database import Store

log = get_logger("amoro.history")

#: Processes of one write: others wait for it, and each may have thousands of tasks with their payloads.
CHUNK = 20


class HistoryService:
    """Forgets processes, with their tasks and attempts, that ended longer ago than they are kept."""

    def __init__(self, store: Store, clock: Callable[[], datetime], keep: timedelta) -> None:
        self._store = store
        self._clock = clock
        self._keep = keep

    def trim(self) -> int:
        """Forget what ended too long ago; how many processes. What is active stays, however old."""
        before = self._clock() - self._keep
        forgotten = 0
        while removed := self._store.write(lambda db: processes.remove_ended(db, before, CHUNK)):
            forgotten += removed
        if forgotten:
            log.info("history.trimmed", processes=forgotten, ended_before=before.isoformat())
        return forgotten
