"""Events that tell of changed tables: hints, after which the ordinary look comes at once."""

import threading
from collections.abc import Callable
from datetime import timedelta

from amoro_core.errors import TooManyEvents
from amoro_core.events import get_logger
from amoro_core.model.tables import TableIdentifier, TableRuntime
from amoro_core.model.texts import briefly
from amoro_core.model.throttle import Throttle

log = get_logger("amoro.tables")

#: Events that come within that time of the first are one; each table is looked at once for them.
COALESCED_S = 0.2
#: So many events are taken of one caller within a minute.
MOST_A_MINUTE = 1000
LONGEST_HINT = 200


class HearingService:
    """Lets tables be looked at of which somebody says that they have changed.

    An event is never the truth: what is lost is found by the regular look. Nothing is kept over a restart.
    """

    def __init__(
        self,
        find: Callable[[TableIdentifier], TableRuntime],
        look: Callable[[int, str], bool],
        throttle: Throttle | None = None,
        coalesced_s: float = COALESCED_S,
    ) -> None:
        """`find` adds a table that is new, or raises TableNotFound; `look` begins the look at a table of a catalog,
        False: one is going on, and may have begun too early."""
        self._find, self._look = find, look
        self._throttle = throttle or Throttle(MOST_A_MINUTE, timedelta(minutes=1))
        self._coalesced_s = coalesced_s
        self._lock = threading.Lock()
        self._changed: dict[int, str] = {}
        self._timer: threading.Timer | None = None
        self._is_over = False

    def changed(self, identifier: TableIdentifier, hint: str, caller: str) -> TableRuntime:
        """What is known of the table, which is looked at soon.

        Raises TooManyEvents for a caller who tells too much, and what finding the table raises.
        """
        with self._lock:
            later_s = self._throttle.take(caller)
        if later_s > 0:
            raise TooManyEvents(
                f"{caller} has told of {MOST_A_MINUTE} changed tables within a minute; "
                f"{identifier} is looked at in its own time",
                hint=f"Tell again in {later_s:.0f} s, or not at all.",
            )
        table = self._find(identifier)
        with self._lock:
            self._changed[table.table_id] = identifier.catalog
            self._begin()
        log.info("table.changed", table=str(identifier), hint=briefly(hint, LONGEST_HINT), caller=caller)
        return table

    def stop(self) -> None:
        """Look at nothing more."""
        with self._lock:
            self._is_over = True
            timer = self._timer
        if timer is not None:
            timer.cancel()
            timer.join()

    def _begin(self) -> None:
        if self._timer is None and not self._is_over:
            self._timer = threading.Timer(self._coalesced_s, self._tell)
            self._timer.daemon = True
            self._timer.start()

    def _tell(self) -> None:
        with self._lock:
            changed, self._changed = self._changed, {}
        busy = {table_id: catalog for table_id, catalog in changed.items() if not self._look(table_id, catalog)}
        with self._lock:
            self._timer = None
            self._changed = busy | self._changed
            if self._changed:
                self._begin()
