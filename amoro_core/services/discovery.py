"""Finding the tables of catalogs, and forgetting those that are gone."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from amoro_core.errors import AmoroError, TableNotFound, TableRefused
from amoro_core.events import get_logger
from amoro_core.formats.tables import Tables
from amoro_core.model.discovery import discovery_filter
from amoro_core.model.tables import TableIdentifier, TableRuntime
from amoro_core.store import tables
from amoro_core.store.database import Store
from amoro_core.transactions.listing import add_all, dispose

log = get_logger("amoro.tables")


@dataclass(frozen=True, slots=True)
class Exploration:
    """What listing a catalog changed."""

    added: tuple[TableIdentifier, ...]
    disposed: tuple[TableIdentifier, ...]


class DiscoveryService:
    """Keeps the known tables in step with what catalogs list."""

    def __init__(self, store: Store, tables_of: Tables, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._tables = tables_of
        self._clock = clock

    def explore(self, catalog: str) -> Exploration:
        """Add the tables that the catalog lists and dispose of those that do not exist any more.

        A table that a listing lacks is disposed only after loading it said that it does not exist; what the catalog's
        filters leave out is forgotten, unless somebody enabled or disabled it by name.
        Raises CatalogNotFound, CatalogUnavailable; nothing is changed then.
        """
        config = self._tables.catalog(catalog)
        wanted = discovery_filter(dict(config.properties))
        listed = set(self._tables.formats.list_tables(config))
        known = {
            runtime.identifier: runtime for runtime in self._store.read(lambda db: tables.list_tables(db, catalog))
        }
        now = self._clock()
        added = tuple(sorted(listed - known.keys()))
        for start in range(0, len(added), 500):
            self._store.write(partial(add_all, identifiers=added[start : start + 500], now=now))
        disposed = tuple(
            identifier
            for identifier in sorted(known.keys() - listed)
            if (self._forget if not wanted.admits(identifier) else self._dispose_if_gone)(known[identifier])
        )
        if added or disposed:
            log.info("catalog.explored", catalog=catalog, added=len(added), disposed=len(disposed))
        return Exploration(added, disposed)

    def _forget(self, runtime: TableRuntime) -> bool:
        if runtime.enabled_override is not None:
            return False
        return self._store.write(lambda db: dispose(db, runtime.table_id))

    def _dispose_if_gone(self, runtime: TableRuntime) -> bool:
        try:
            self._tables.open(runtime.identifier)
        except TableNotFound:
            return self._store.write(lambda db: dispose(db, runtime.table_id))
        except TableRefused as refusal:
            # What has none of the catalog's formats any more is listed no more either.
            if refusal.reason == "format":
                return self._store.write(lambda db: dispose(db, runtime.table_id))
            log.warning("table.unlisted", table=str(runtime.identifier), error=refusal.message)
        except AmoroError as error:
            log.warning("table.unlisted", table=str(runtime.identifier), error=error.message)
        return False
