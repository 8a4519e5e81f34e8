"""Storage properties that are given to optimizers, among them credentials."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from threading import Lock

from amoro_core.errors import AmoroError
from amoro_core.events import get_logger
from amoro_core.model.tables import TableIdentifier

log = get_logger("amoro.optimizing")

FRESH = timedelta(minutes=1)
#: That a table can't be loaded is said so long to all who ask: each of its tasks would wait for the same catalog.
FAILED_FRESH = timedelta(seconds=1)


class Vending:
    """The properties of each table's storage, loaded anew when older than a minute."""

    def __init__(self, load: Callable[[TableIdentifier], Mapping[str, str]], clock: Callable[[], datetime]) -> None:
        """`load` asks the table's catalog for its properties, and raises an AmoroError where that can't be."""
        self._asked, self._clock = load, clock
        #: By table: since when they are known, for how long they count, and the properties; first told, first here.
        self._vended: dict[TableIdentifier, tuple[datetime, timedelta, Mapping[str, str]]] = {}
        self._lock = Lock()  # whoever adds to them

    def properties_of(self, identifier: TableIdentifier) -> Mapping[str, str]:
        """The properties for the table's files; none where the table can't be loaded."""
        known = self._fresh(identifier)
        return self._load(identifier) if known is None else known

    def known_of(self, identifiers: Iterable[TableIdentifier]) -> Mapping[TableIdentifier, Mapping[str, str]] | None:
        """As `properties_of` for all of these, if nothing is to be loaded for it; else None."""
        found = {one: self._fresh(one) for one in identifiers}
        known = {one: properties for one, properties in found.items() if properties is not None}
        return known if len(known) == len(found) else None

    def keep(
        self, identifier: TableIdentifier, properties: Mapping[str, str], since: datetime, fresh: timedelta = FRESH
    ) -> None:
        """Take over the properties of a table that was loaded at that time."""
        now = self._clock()
        with self._lock:
            self._vended.pop(identifier, None)
            self._vended[identifier] = since, fresh, properties
            while self._vended and not _counts(next(iter(self._vended.values()))[0], FRESH, now):
                del self._vended[next(iter(self._vended))]

    def _fresh(self, identifier: TableIdentifier) -> Mapping[str, str] | None:
        known = self._vended.get(identifier)
        if known is None or not _counts(known[0], known[1], self._clock()):
            return None
        return known[2]

    def _load(self, identifier: TableIdentifier) -> Mapping[str, str]:
        asked_at = self._clock()
        try:
            found = self._asked(identifier)
        except AmoroError as error:
            # The optimizer may have credentials of its own; if not, its attempt fails with a reason and is retried.
            log.warning("credentials.unavailable", table=str(identifier), error=error.message)
            self.keep(identifier, {}, self._clock(), FAILED_FRESH)
            return {}
        self.keep(identifier, found, asked_at)
        return found


def _counts(since: datetime, fresh: timedelta, now: datetime) -> bool:
    """Whether that is still fresh. What comes after now is not: the clock was set back, nobody knows how far."""
    return timedelta() <= now - since < fresh
