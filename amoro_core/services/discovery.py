"""Discovering the tables of catalogs, and disposing of those that are gone."""

from collections.abc import Callable
from datetime import datetime
from functools import partial

from amoro_core.errors import AmoroError, TableNotFound, TableRefused
from amoro_core.events import get_logger
from amoro_core.formats.tables import Tables
from amoro_core.model.discovery import discovery_filter
from amoro_core.model.tables import TableIdentifier, TableRuntime
from amoro_core.records import record
from amoro_core.store import tables
from amoro_core.store.database import Connection, Store
from amoro_core.store.table_listing import list_names
from amoro_core.transactions.listing import add_all, add_table, dispose

log = get_logger("amoro.tables")


@record
class Exploration:
    """The changes after listing a catalog."""

    added: tuple[TableIdentifier, ...]
    disposed: tuple[TableIdentifier, ...]


class DiscoveryService:
    """Keeps the known tables in sync with the catalogs."""

    def __init__(self, store: Store, tables_of: Tables, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._tables = tables_of
        self._clock = clock

    def explore(self, catalog: str) -> Exploration:
        """Add the tables that the catalog lists and dispose of those that do not exist any more.

        A table missing from a listing is disposed of only after loading it said that it does not exist; one excluded by
        the catalog's filters is, unless it was enabled or disabled by name. Raises CatalogNotFound, CatalogUnavailable;
        nothing is changed then.
        """
        config = self._tables.catalog(catalog)
        wanted = discovery_filter(dict(config.properties))
        listed = set(self._tables.list_all(config))
        known = {name: table_id for table_id, name in self._store.read(lambda db: list_names(db, catalog))}
        now = self._clock()
        added = tuple(sorted(listed - known.keys()))
        for start in range(0, len(added), 500):
            self._store.write(partial(add_all, identifiers=added[start : start + 500], now=now))
        disposed = tuple(
            identifier
            for identifier in sorted(known.keys() - listed)
            if (self._forget if not wanted.admits(identifier) else self._dispose_if_gone)(identifier, known[identifier])
        )
        if added or disposed:
            log.info("catalog.explored", catalog=catalog, added=len(added), disposed=len(disposed))
        return Exploration(added, disposed)

    def find(self, identifier: TableIdentifier) -> TableRuntime:
        """The runtime of a table; a new one is added, as when its catalog is listed.

        Raises TableNotFound, also for a new one that the catalog's filters leave out, TableRefused for one of no known
        format, CatalogNotFound, CatalogUnavailable.
        """
        known = self._store.read(lambda db: tables.find(db, identifier))
        if known is not None:
            return known
        if not discovery_filter(dict(self._tables.catalog(identifier.catalog).properties)).admits(identifier):
            raise TableNotFound(
                f"table {identifier} is not known: the filters of its catalog leave it out",
                hint=f"To have it looked at nevertheless: amoro table enable {identifier}",
            )
        self._tables.open(identifier)
        return self._store.write(lambda db: tables.find(db, identifier) or add_table(db, identifier, self._clock()))

    def _forget(self, identifier: TableIdentifier, table_id: int) -> bool:
        def forget(db: Connection) -> bool:
            return tables.get(db, table_id).enabled_override is None and dispose(db, table_id, self._clock())

        return self._store.write(forget)

    def _dispose_if_gone(self, identifier: TableIdentifier, table_id: int) -> bool:
        try:
            self._tables.open(identifier)
        except TableNotFound:
            return self._store.write(lambda db: dispose(db, table_id, self._clock()))
        except TableRefused as refusal:
            # A table that has none of the catalog's formats any more is not listed either.
            if refusal.reason == "format":
                return self._store.write(lambda db: dispose(db, table_id, self._clock()))
            log.warning("table.unlisted", table=str(identifier), error=refusal.message)
        except AmoroError as error:
            log.warning("table.unlisted", table=str(identifier), error=error.message)
        return False
