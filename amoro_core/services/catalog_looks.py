"""Whether catalogs answered when they were last asked, and how many of their tables are known."""

from collections.abc import Callable, Iterable
from datetime import datetime

from amoro_core.errors import AccessDenied, AmoroError
from amoro_core.model.secrets import without_secrets
from amoro_core.model.table_lists import WantedTables
from amoro_core.model.texts import LONGEST_REASON, briefly
from amoro_core.records import record
from amoro_core.store import table_listing
from amoro_core.store.database import Store

#: Tables of a catalog are counted up to here.
MOST_COUNTED = 10_000


@record
class CatalogLook:
    """What is known of a catalog without asking it."""

    catalog: str
    tables: int
    tables_is_exact: bool
    heard_at: datetime | None  # when it was last asked; None: not since the start
    failure: str  # why it did not answer then; "": it did


class CatalogLookService:
    """The last answers of catalogs, since the start: each request for a table or a list of tables is one."""

    def __init__(self, store: Store, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._clock = clock
        self._heard: dict[str, tuple[datetime, str]] = {}

    def note(self, catalog: str, error: AmoroError | None) -> None:
        """The catalog answered now, or failed; one that denies access to something answers."""
        failed = error is not None and not isinstance(error, AccessDenied)
        said = briefly(without_secrets(error.message), LONGEST_REASON) if error is not None and failed else ""
        self._heard[catalog] = (self._clock(), said)

    def looks(self, catalogs: Iterable[str]) -> list[CatalogLook]:
        """One of each, in the order given."""
        names = list(catalogs)
        counted = self._store.read(
            lambda db: [table_listing.count(db, WantedTables(catalog=name), MOST_COUNTED + 1) for name in names]
        )
        return [
            CatalogLook(name, min(tables, MOST_COUNTED), tables <= MOST_COUNTED, *self._heard.get(name, (None, "")))
            for name, tables in zip(names, counted, strict=True)
        ]
