"""Storage properties that are given to optimizers, among them credentials."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from amoro_core.errors import AmoroError
from amoro_core.events import get_logger
from amoro_core.formats.tables import Tables
from amoro_core.model.tables import TableIdentifier

log = get_logger("amoro.optimizing")

FRESH = timedelta(minutes=1)


class Vending:
    """The properties of each table's storage, loaded anew when older than a minute."""

    def __init__(self, tables_of: Tables, clock: Callable[[], datetime]) -> None:
        self._tables, self._clock = tables_of, clock
        self._vended: dict[str, tuple[datetime, Mapping[str, str]]] = {}

    def properties_of(self, identifier: TableIdentifier) -> Mapping[str, str]:
        """The properties for the table's files; none where the table can't be loaded."""
        key, now = str(identifier), self._clock()
        known = self._vended.get(key)
        if known is not None and now - known[0] < FRESH:
            return known[1]
        try:
            table = self._tables.open(identifier)
        except AmoroError as error:
            # The optimizer may have credentials of its own; if not, its attempt fails with a reason and is retried.
            log.warning("credentials.unavailable", table=key, error=error.message)
            return {}
        properties = table.io_properties()
        self._vended[key] = (now, properties)
        return properties
