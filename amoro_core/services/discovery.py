"""Finds tables of catalogs, disposes of those that are gone, and detects changed ones."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from math import inf

from amoro_core.errors import AccessDenied, AmoroError, CatalogUnavailable, TableNotFound, TableRefused, TooManyEvents
from amoro_core.formats.tables import Tables
from amoro_core.logger import get_logger
from amoro_core.model.optimizing_config import OptimizingConfig, effective_properties, parse_config
from amoro_core.model.principals import Throttle
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import OptimizingStatus, TableFilter, TableIdentifier, TableRuntime, discovery_filter
from amoro_core.model.text_sanitizing import LONGEST_REASON, briefly, without_secrets
from amoro_core.scheduling.policy import REFRESH_INTERVAL, REFRESH_INTERVAL_MAX, next_refresh, rests_until
from amoro_core.store import table_listing, tables
from amoro_core.store.database import Connection, Store
from amoro_core.store.table_listing import list_names
from amoro_core.store.tables import DueTable, MetadataLocation
from amoro_core.transactions.table_registry import add_all, add_table, dispose, postpone_refresh

log = get_logger("amoro.tables")


@dataclass(frozen=True, slots=True)
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
                hint=f"To optimize it anyway: amoro table enable {identifier}",
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


#: Tables of a catalog are counted up to here.
MOST_COUNTED = 10_000


@dataclass(frozen=True, slots=True)
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
        failure = briefly(without_secrets(error.message), LONGEST_REASON) if error is not None and failed else ""
        self._heard[catalog] = (self._clock(), failure)

    def looks(self, catalogs: Iterable[str]) -> list[CatalogLook]:
        """One of each, in the order given."""
        names = list(catalogs)
        counted = self._store.read(
            lambda db: [table_listing.count(db, TableFilter(catalog=name), MOST_COUNTED + 1) for name in names]
        )
        return [
            CatalogLook(name, min(tables, MOST_COUNTED), tables <= MOST_COUNTED, *self._heard.get(name, (None, "")))
            for name, tables in zip(names, counted, strict=True)
        ]


#: A catalog is looked over so often; less often if that takes more than this share of the time, or of a core.
COMPARE_INTERVAL_S = 30.0
MOST_SHARE = 0.5
MOST_OF_A_CORE = 0.1
#: So rarely at most, and so rarely if it can only be asked table by table.
ASK_AGAIN_S = 300.0
#: Where all tables of a catalog are refreshed anew, as after a start, there is so much time for each of them.
HURRY_PAUSE = timedelta(milliseconds=10)
_MS = timedelta(milliseconds=1)
_RESTING = frozenset({OptimizingStatus.IDLE, OptimizingStatus.PENDING})
#: Rows in a write, so that others do not wait for long.
_AT_ONCE = 2000


@dataclass(frozen=True, slots=True)
class Compared:
    """What looking over a catalog has found."""

    changed: int  # tables that are refreshed at once for it
    resting: int  # tables that are not refreshed in their usual time, since they have not changed


class ComparingService:
    """Compares where catalogs say that the metadata of tables are with where they were when these were refreshed.

    A table whose metadata moved is refreshed at once. One whose metadata are where they were is neither loaded nor
    parsed: it is refreshed when something comes due by the clock, and once in a few hours whatever was said.
    """

    def __init__(
        self,
        store: Store,
        tables_of: Tables,
        clock: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._tables = tables_of
        self._clock = clock
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._next_s: dict[str, float] = {}
        # From when on refreshes go by a catalog as it is now: tables are evaluated by its properties, too.
        self._since: dict[str, tuple[CatalogConfig, datetime]] = {}
        # What was said and what was known of each table when it was refreshed for it: while a refresh changes nothing,
        # as when it fails, the table's own time counts.
        self._told: dict[int, tuple[str, str]] = {}
        self._failed_s: dict[str, float] = {}  # since when looking a catalog over has failed each time

    def is_due(self, catalog: str) -> bool:
        """Whether the catalog is due for a check."""
        with self._lock:
            return self._next_s.get(catalog, 0.0) <= self._monotonic()

    def compare(self, catalog: str) -> Compared | None:
        """Look the catalog over; None if it can only be asked table by table.

        Raises CatalogNotFound, and CatalogUnavailable; if that goes on its tables are refreshed in their usual time.
        """
        begun_s, cpu_s = self._monotonic(), time.thread_time()
        pause_s = COMPARE_INTERVAL_S
        try:
            found = self._compare(self._tables.catalog(catalog))
            took_s = self._monotonic() - begun_s
            pause_s = ASK_AGAIN_S if found is None else compare_interval_s(took_s, time.thread_time() - cpu_s)
        except CatalogUnavailable:
            self._fail(catalog, begun_s)
            raise
        finally:
            with self._lock:
                self._next_s[catalog] = begun_s + pause_s
        return found

    def spares(self, table_id: int) -> bool:
        """Whether a table needs no refresh: nothing is due, and its catalog reports no change.

        It is refreshed in its usual time then. Raises TableNotFound, CatalogNotFound, CatalogUnavailable.
        """
        table, now = self._store.read(lambda db: tables.get(db, table_id)), self._clock()
        if None in (table.refresh_at, table.refreshed_at, table.evaluated_at) or table.status not in _RESTING:
            return False
        moments = (table.next_due_at if table.enabled else None, table.retry_at)
        refreshed_at = table.refreshed_at or now
        if rests_until(table_id, refreshed_at, moments, now) is None or not self._tables.is_unchanged(table):
            return False
        self._store.write(
            partial(postpone_refresh, table_id=table_id, moment=next_refresh(table, now, self._usual(table)))
        )
        return True

    def _usual(self, table: TableRuntime) -> OptimizingConfig:
        defaults = dict(self._tables.catalog(table.identifier.catalog).properties)
        return parse_config(effective_properties(defaults, table.properties))

    def _compare(self, config: CatalogConfig) -> Compared | None:
        catalog, now = config.name, self._clock()
        seen, since = self._since.get(catalog, (None, now))
        if seen != config:
            since = now + REFRESH_INTERVAL  # refreshes that are under way may go by what it was before
            self._hurry(catalog)
            self._since[catalog] = (config, since)
        known = self._store.read(lambda db: tables.list_metadata_locations(db, catalog))
        locations = self._tables.locations(config, {table.name for table in known})
        self._failed_s.pop(catalog, None)
        if locations is None:
            return None
        moved, same = self._sorted(known, locations)
        changed = 0
        for start in range(0, len(moved), _AT_ONCE):
            some = moved[start : start + _AT_ONCE]
            changed += self._store.write(partial(tables.refresh_by, table_ids=some, now=now))
        due = self._store.read(lambda db: tables.list_due_locations(db, catalog, now + REFRESH_INTERVAL_MAX, since))
        resting = self._rest([table for table in due if same.get(table.table_id) == table.metadata_location], now)
        if changed:
            log.info("catalog.compared", catalog=catalog, changed=changed, resting=resting)
        return Compared(changed, resting)

    def _sorted(
        self, known: list[MetadataLocation], locations: Mapping[str, Mapping[tuple[str, ...], str]]
    ) -> tuple[list[int], dict[int, str]]:
        """The tables whose metadata moved and were not refreshed for it yet; where those are that did not move."""
        moved: list[int] = []
        same: dict[int, str] = {}
        for table in known:
            place = locations.get(table.format, {}).get(table.name)
            if place is None:
                continue
            if place == table.metadata_location:
                same[table.table_id] = place
                self._told.pop(table.table_id, None)
            elif self._told.get(table.table_id) != (place, table.metadata_location):
                self._told[table.table_id] = place, table.metadata_location
                moved.append(table.table_id)
        return moved, same

    def _rest(self, due: list[DueTable], now: datetime) -> int:
        moments = [
            (table, until)
            for table in due
            if (until := rests_until(table.table_id, table.refreshed_at, (table.next_due_at, table.retry_at), now))
            and until > table.refresh_at
        ]
        for start in range(0, len(moments), _AT_ONCE):
            self._store.write(partial(tables.postpone, moments=moments[start : start + _AT_ONCE]))
        return len(moments)

    def _fail(self, catalog: str, now_s: float) -> None:
        """Once this has gone on for long, tables are refreshed in their usual time: each may answer by itself."""
        if now_s - self._failed_s.setdefault(catalog, now_s) >= REFRESH_INTERVAL_MAX.total_seconds():
            self._failed_s[catalog] = inf
            self._hurry(catalog)

    def _hurry(self, catalog: str) -> None:
        """Let those of the catalog's tables that rest be refreshed soon, whether they have changed or not."""

        def hurry(db: Connection) -> int:
            within = max(REFRESH_INTERVAL_MAX, tables.count(db) * HURRY_PAUSE)
            return tables.spread(db, catalog, self._clock(), within // _MS)

        self._store.write(hurry)


def compare_interval_s(took_s: float, cpu_s: float) -> float:
    """Seconds between the starts of two checks of a catalog, from their duration and CPU time `cpu_s`."""
    return min(max(COMPARE_INTERVAL_S, took_s / MOST_SHARE, cpu_s / MOST_OF_A_CORE), ASK_AGAIN_S)


#: Events that come within that time of the first are one; each table is looked at once for them.
COALESCED_S = 0.2
#: So many events are taken of one caller within a minute.
MOST_A_MINUTE = 1000
LONGEST_HINT = 200


class HearingService:
    """Change notifications that trigger an early refresh.

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
        """The table as it is known; it is refreshed soon.

        Raises TooManyEvents for a caller above the rate limit, and what finding the table raises.
        """
        with self._lock:
            later_s = self._throttle.take(caller)
        if later_s > 0:
            raise TooManyEvents(
                f"{caller} has sent {MOST_A_MINUTE} change notifications within a minute; "
                f"{identifier} is refreshed on schedule",
                hint=f"Send it again in {later_s:.0f} s, or not at all.",
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
