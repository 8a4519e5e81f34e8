"""Finds tables of catalogs, disposes of those that are gone, and detects changed ones."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from math import inf
from typing import NamedTuple

from amoro_core.errors import AmoroError, CatalogUnavailable, TableNotFound, TableRefused, TooManyEvents
from amoro_core.formats.tables import Tables
from amoro_core.logger import get_logger
from amoro_core.metrics_registry import Meters
from amoro_core.model import metrics
from amoro_core.model.principals import Throttle
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import OptimizingStatus, TableIdentifier, TableRuntime, discovery_filter
from amoro_core.model.text_sanitizing import briefly
from amoro_core.scheduling.policy import REFRESH_INTERVAL, REFRESH_INTERVAL_MAX, next_refresh, rests_until
from amoro_core.services.tables import new_names
from amoro_core.store import tables
from amoro_core.store.database import Connection, Store
from amoro_core.store.table_listing import list_names
from amoro_core.store.tables import DueTable
from amoro_core.transactions.process_context import config_of
from amoro_core.transactions.table_registry import add_all, add_table, dispose, postpone_refresh, rename

log = get_logger("amoro.tables")


@dataclass(frozen=True, slots=True)
class Exploration:
    """The changes after listing a catalog."""

    added: tuple[TableIdentifier, ...]
    disposed: tuple[TableIdentifier, ...]


#: A catalog is compared so often; less often if that takes more than this share of the time, or of a core.
COMPARE_INTERVAL_S = 30.0
MOST_SHARE = 0.5
MOST_OF_A_CORE = 0.1
#: So rarely at most, and so rarely if it can only be asked table by table.
ASK_AGAIN_S = 300.0
#: Where all tables of a catalog are refreshed anew, as after a start, there is so much time for each of them.
REFRESH_SOON_PAUSE = timedelta(milliseconds=10)
_MS = timedelta(milliseconds=1)
_RESTING = frozenset({OptimizingStatus.IDLE, OptimizingStatus.PENDING})
#: Rows in a write, so that others do not wait for long.
_AT_ONCE = 2000


@dataclass(frozen=True, slots=True)
class Compared:
    """The result of comparing a catalog."""

    changed: int  # tables that are refreshed at once for it
    resting: int  # tables that are not refreshed in their usual time, since they have not changed


@dataclass
class DiscoveryService:
    """Keeps the known tables in sync with the catalogs, and compares the metadata locations that these report.

    A table whose metadata moved is refreshed at once. Another one is neither loaded nor parsed: it is refreshed when
    something comes due by the clock, and once in a few hours anyway.
    """

    store: Store
    tables: Tables
    clock: Callable[[], datetime]
    monotonic: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _next_s: dict[str, float] = field(init=False, default_factory=dict)
    #: From when on refreshes go by a catalog as it is now: tables are evaluated by its properties, too.
    _since: dict[str, tuple[CatalogConfig, datetime]] = field(init=False, default_factory=dict)
    #: The reported and the stored location of each table that was refreshed for it: while a refresh changes nothing, as
    #: when it fails, the table's own time counts.
    _refreshed_for: dict[int, tuple[str, str]] = field(init=False, default_factory=dict)
    _failed_s: dict[str, float] = field(init=False, default_factory=dict)  # since when each comparison has failed

    def explore(self, catalog: str) -> Exploration:
        """Add the tables that the catalog lists, give renamed ones their new names, and dispose of those that are gone.

        A table missing from a listing is disposed of only after loading it said that it does not exist; one excluded by
        the catalog's filters is, unless it was enabled or disabled by name. Raises CatalogNotFound, CatalogUnavailable;
        nothing is changed then.
        """
        config = self.tables.catalog(catalog)
        wanted = discovery_filter(dict(config.properties))
        listed = set(self.tables.list_all(config))
        ids = {name: table_id for table_id, name in self.store.read(lambda db: list_names(db, catalog))}
        now = self.clock()
        added = tuple(sorted(listed - ids.keys()))
        for start in range(0, len(added), 500):
            self.store.write(partial(add_all, identifiers=added[start : start + 500], now=now))
        missing = sorted(ids.keys() - listed)
        names = new_names(self.store, self.tables, catalog, listed) if missing else {}
        disposed = tuple(
            name
            for name in missing
            if (
                self._dispose_unless_exists(name, ids[name], names)
                if wanted.admits(name)
                else self._dispose_unless_set(ids[name])
            )
        )
        if added or disposed:
            log.info("catalog.explored", catalog=catalog, added=len(added), disposed=len(disposed))
        return Exploration(added, disposed)

    def find(self, identifier: TableIdentifier) -> TableRuntime:
        """The runtime of a table; a new one is added, as when its catalog is listed.

        Raises TableNotFound, also for a new one that the catalog's filters leave out, and what loading it raises.
        """
        table_runtime = self.store.read(lambda db: tables.find(db, identifier))
        if table_runtime is not None:
            return table_runtime
        if not discovery_filter(dict(self.tables.catalog(identifier.catalog).properties)).admits(identifier):
            raise TableNotFound(
                f"table {identifier} is not known: the filters of its catalog leave it out",
                hint=f"To optimize it anyway: amoro table enable {identifier}",
            )
        self.tables.open(identifier)
        return self.store.write(lambda db: tables.find(db, identifier) or add_table(db, identifier, self.clock()))

    def _dispose_unless_set(self, table_id: int) -> bool:
        def dispose_unless_set(db: Connection) -> bool:
            return tables.get(db, table_id).enabled_override is None and dispose(db, table_id, self.clock())

        return self.store.write(dispose_unless_set)

    def _dispose_unless_exists(
        self, identifier: TableIdentifier, table_id: int, names: Mapping[str, TableIdentifier]
    ) -> bool:
        def dispose_or_rename(db: Connection) -> bool:
            name = names.get(tables.get(db, table_id).uuid)
            return rename(db, table_id, name, self.clock()) if name else dispose(db, table_id, self.clock())

        try:
            self.tables.open(identifier)
        except TableNotFound:
            return self.store.write(dispose_or_rename)
        except AmoroError as error:
            # A table that has none of the catalog's formats any more is not listed either.
            if isinstance(error, TableRefused) and error.reason == "format":
                return self.store.write(lambda db: dispose(db, table_id, self.clock()))
            log.warning("table.unlisted", table=str(identifier), error=error.message)
        return False

    def is_due(self, catalog: str) -> bool:
        with self._lock:
            return self._next_s.get(catalog, 0.0) <= self.monotonic()

    def compare(self, catalog: str) -> Compared | None:
        """Compare all tables of the catalog; None if it can only be asked table by table.

        Raises CatalogNotFound, and CatalogUnavailable; if that goes on its tables are refreshed in their usual time.
        """
        begun_s, cpu_s = self.monotonic(), time.thread_time()
        pause_s = COMPARE_INTERVAL_S
        try:
            result = self._compare(self.tables.catalog(catalog))
            took_s = self.monotonic() - begun_s
            pause_s = ASK_AGAIN_S if result is None else compare_interval_s(took_s, time.thread_time() - cpu_s)
        except CatalogUnavailable:
            # Once this has gone on for long, tables are refreshed in their usual time: each may answer by itself.
            if begun_s - self._failed_s.setdefault(catalog, begun_s) >= REFRESH_INTERVAL_MAX.total_seconds():
                self._failed_s[catalog] = inf
                self._refresh_soon(catalog)
            raise
        finally:
            with self._lock:
                self._next_s[catalog] = begun_s + pause_s
        return result

    def postpone_unchanged(self, table_id: int) -> bool:
        """Whether a table needs no refresh: nothing is due, and its catalog reports no change.

        It is refreshed in its usual time then. Raises TableNotFound, CatalogNotFound, CatalogUnavailable.
        """
        table, now = self.store.read(lambda db: tables.get(db, table_id)), self.clock()
        if None in (table.refresh_at, table.refreshed_at, table.evaluated_at) or table.status not in _RESTING:
            return False
        moments = (table.next_due_at if table.enabled else None, table.retry_at)
        refreshed_at = table.refreshed_at or now
        if rests_until(table_id, refreshed_at, moments, now) is None or not self.tables.is_unchanged(table):
            return False
        moment = next_refresh(table, now, config_of(self.tables, table))
        self.store.write(lambda db: postpone_refresh(db, table_id, moment))
        return True

    def _compare(self, config: CatalogConfig) -> Compared | None:
        catalog, now = config.name, self.clock()
        seen, since = self._since.get(catalog, (None, now))
        if seen != config:
            since = now + REFRESH_INTERVAL  # refreshes that are under way may go by what it was before
            self._refresh_soon(catalog)
            self._since[catalog] = (config, since)
        stored = self.store.read(lambda db: tables.list_metadata_locations(db, catalog))
        locations = self.tables.locations(config, {table.name for table in stored})
        self._failed_s.pop(catalog, None)
        if locations is None:
            return None
        moved: list[int] = []
        same: dict[int, str] = {}
        for table in stored:
            place = locations.get(table.format, {}).get(table.name)
            if place is None:
                continue
            if place == table.metadata_location:
                same[table.table_id] = place
                self._refreshed_for.pop(table.table_id, None)
            elif self._refreshed_for.get(table.table_id) != (place, table.metadata_location):
                self._refreshed_for[table.table_id] = place, table.metadata_location
                moved.append(table.table_id)
        changed = 0
        for start in range(0, len(moved), _AT_ONCE):
            some = moved[start : start + _AT_ONCE]
            changed += self.store.write(partial(tables.refresh_by, table_ids=some, now=now))
        due = self.store.read(lambda db: tables.list_due_locations(db, catalog, now + REFRESH_INTERVAL_MAX, since))
        resting = self._rest([table for table in due if same.get(table.table_id) == table.metadata_location], now)
        if changed:
            log.info("catalog.compared", catalog=catalog, changed=changed, resting=resting)
        return Compared(changed, resting)

    def _rest(self, due: list[DueTable], now: datetime) -> int:
        moments = [
            (table, until)
            for table in due
            if (until := rests_until(table.table_id, table.refreshed_at, (table.next_due_at, table.retry_at), now))
            and until > table.refresh_at
        ]
        for start in range(0, len(moments), _AT_ONCE):
            self.store.write(partial(tables.postpone, moments=moments[start : start + _AT_ONCE]))
        return len(moments)

    def _refresh_soon(self, catalog: str) -> None:
        """Let those of the catalog's tables that rest be refreshed soon, whether they have changed or not."""

        def spread(db: Connection) -> int:
            within = max(REFRESH_INTERVAL_MAX, tables.count(db) * REFRESH_SOON_PAUSE)
            return tables.spread(db, catalog, self.clock(), within // _MS)

        self.store.write(spread)


def compare_interval_s(took_s: float, cpu_s: float) -> float:
    """Seconds between the starts of two checks of a catalog, from their duration and CPU time `cpu_s`."""
    return min(max(COMPARE_INTERVAL_S, took_s / MOST_SHARE, cpu_s / MOST_OF_A_CORE), ASK_AGAIN_S)


#: Notifications within that time of the first refresh each table once.
COALESCED_S = 0.2
#: So long after a commit to an internal catalog its table is refreshed: a table at most once within it.
COMMITTED_S = 1.0
#: Notifications of one caller within a minute.
MOST_A_MINUTE = 1000
LONGEST_HINT = 200


#: An object store tells of a metadata file before the catalog names it: a look that finds nothing is repeated then.
REPEATED_S = 2.0


class _Look(NamedTuple):
    """A look that a notification has caused at a table of the catalog."""

    catalog: str
    at_s: float  # monotonic; not before that
    is_repeated: bool = False


@dataclass
class ChangeNotificationService:
    """Change notifications that trigger an early refresh, and what refreshes have found.

    A lost one is harmless: the table is refreshed on schedule. Nothing is kept over a restart.
    """

    find: Callable[[TableIdentifier], TableRuntime]  # adds a table that is new, or raises TableNotFound
    #: Begins the refresh of a table of a catalog; False: one is going on, and may have begun too early.
    refresh: Callable[[int, str], bool]
    throttle: Throttle = field(default_factory=lambda: Throttle(MOST_A_MINUTE, timedelta(minutes=1)))
    coalesced_s: float = COALESCED_S
    meters: Meters = field(default_factory=Meters)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _committed: set[TableIdentifier] = field(init=False, default_factory=set)
    _due: dict[int, _Look] = field(init=False, default_factory=dict)
    _looking: dict[int, _Look] = field(init=False, default_factory=dict)  # begun, and nothing is found yet
    _timer: threading.Timer | None = field(init=False, default=None)
    _is_over: bool = field(init=False, default=False)

    def changed(self, identifier: TableIdentifier, hint: str, caller: str) -> TableRuntime:
        """The table as it is known; it is refreshed soon.

        Raises TooManyEvents for a caller above the rate limit, and what finding the table raises.
        """
        with self._lock:
            later_s = self.throttle.take(caller)
        if later_s > 0:
            raise TooManyEvents(
                f"{caller} has sent {MOST_A_MINUTE} change notifications within a minute; "
                f"{identifier} is refreshed on schedule",
                hint=f"Send it again in {later_s:.0f} s, or not at all.",
            )
        table = self.find(identifier)
        self._look_at(table.table_id, _Look(identifier.catalog, time.monotonic()))
        log.info("table.changed", table=str(identifier), hint=briefly(hint, LONGEST_HINT), caller=caller)
        return table

    def committed(self, identifier: TableIdentifier) -> None:
        """The table of an internal catalog was changed: it is refreshed soon, with all else of that second."""
        with self._lock:
            self._committed.add(identifier)
            self._begin(COMMITTED_S)

    def note_changes(self, table_id: int, commits: int) -> None:
        """Note that a refresh found the table changed, by that number of commits of other writers."""
        with self._lock:
            is_event = self._looking.pop(table_id, None) is not None
        self.meters.count(metrics.CHANGES_SEEN, "event" if is_event else "look", by=commits)

    def refreshed(self, table_id: int) -> None:
        """Repeat the refresh, which has ended, once if a notification caused it and it found nothing."""
        with self._lock:
            look = self._looking.pop(table_id, None)
        if look is not None and not look.is_repeated:
            self._look_at(table_id, _Look(look.catalog, time.monotonic() + REPEATED_S, is_repeated=True))

    def stop(self) -> None:
        """Refresh nothing more."""
        with self._lock:
            self._is_over = True
            timer = self._timer
        if timer is not None:
            timer.cancel()
            timer.join()

    def _look_at(self, table_id: int, look: _Look) -> None:
        with self._lock:
            self._due[table_id] = min(self._due.get(table_id, look), look, key=lambda item: item.at_s)
            self._begin(self.coalesced_s)

    def _begin(self, pause_s: float) -> None:
        if self._timer is None and not self._is_over:
            self._timer = threading.Timer(pause_s, self._refresh)
            self._timer.daemon = True
            self._timer.start()

    def _refresh(self) -> None:
        now_s = time.monotonic()
        with self._lock:
            committed, self._committed = self._committed, set()
        for identifier in committed:
            try:
                table_id = self.find(identifier).table_id
            except AmoroError as error:  # it is gone already, or no table for us
                log.info("table.not_refreshed", table=str(identifier), error=error.message)
            else:
                with self._lock:
                    self._due.setdefault(table_id, _Look(identifier.catalog, now_s, is_repeated=True))
        with self._lock:
            ids = [key for key, look in self._due.items() if look.at_s <= now_s and key not in self._looking]
            due = {table_id: self._due.pop(table_id) for table_id in ids}
            self._looking |= due
        begun = set[int]()
        try:
            begun.update(table_id for table_id, look in due.items() if self.refresh(table_id, look.catalog))
        finally:  # a fault in one refresh ends no later one
            with self._lock:
                waiting = {table_id: look for table_id, look in due.items() if table_id not in begun}
                self._looking = {key: look for key, look in self._looking.items() if key not in waiting}
                self._timer = None
                self._due = waiting | self._due
                if self._due or self._committed:
                    self._begin(self.coalesced_s)
