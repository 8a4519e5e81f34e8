"""Looking over whole catalogs: which tables have changed, asked in a few requests instead of one for each table."""

import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from math import inf

from amoro_core.errors import CatalogUnavailable
from amoro_core.events import get_logger
from amoro_core.formats.tables import Tables
from amoro_core.model.config import OptimizingConfig, effective_properties, parse_config
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import OptimizingStatus, TableRuntime
from amoro_core.records import record
from amoro_core.scheduling.refreshing import REFRESH_INTERVAL, REFRESH_INTERVAL_MAX, next_refresh, rests_until
from amoro_core.store import metadata_locations, tables
from amoro_core.store.database import Connection, Store
from amoro_core.store.metadata_locations import DueTable, KnownLocation
from amoro_core.transactions.listing import postpone_refresh

log = get_logger("amoro.tables")

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


@record
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
        """Whether the catalog is to be looked over now."""
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
        """Whether the refresh of a table is spared: nothing came due, and its catalog says that it has not changed.

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
        known = self._store.read(lambda db: metadata_locations.list_known(db, catalog))
        said = self._tables.locations(config, {table.name for table in known})
        self._failed_s.pop(catalog, None)
        if said is None:
            return None
        moved, same = self._sorted(known, said)
        changed = 0
        for start in range(0, len(moved), _AT_ONCE):
            some = moved[start : start + _AT_ONCE]
            changed += self._store.write(partial(metadata_locations.refresh_by, table_ids=some, now=now))
        due = self._store.read(lambda db: metadata_locations.list_due(db, catalog, now + REFRESH_INTERVAL_MAX, since))
        resting = self._rest([table for table in due if same.get(table.table_id) == table.metadata_location], now)
        if changed:
            log.info("catalog.compared", catalog=catalog, changed=changed, resting=resting)
        return Compared(changed, resting)

    def _sorted(
        self, known: list[KnownLocation], said: Mapping[str, Mapping[tuple[str, ...], str]]
    ) -> tuple[list[int], dict[int, str]]:
        """The tables whose metadata moved and were not refreshed for it yet; where those are that did not move."""
        moved: list[int] = []
        same: dict[int, str] = {}
        for table in known:
            place = said.get(table.format, {}).get(table.name)
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
            self._store.write(partial(metadata_locations.postpone, moments=moments[start : start + _AT_ONCE]))
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
            return metadata_locations.spread(db, catalog, self._clock(), within // _MS)

        self._store.write(hurry)


def compare_interval_s(took_s: float, cpu_s: float) -> float:
    """Seconds between the beginnings of two looks at a catalog, which take so many each, of them `cpu_s` of a core."""
    return min(max(COMPARE_INTERVAL_S, took_s / MOST_SHARE, cpu_s / MOST_OF_A_CORE), ASK_AGAIN_S)
