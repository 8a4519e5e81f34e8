"""What waits for a plan or a thread, in the order in which it gets one, and the coordinator in figures."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from amoro_core.model.blockers import BlockedOperation
from amoro_core.model.table_lists import Pending
from amoro_core.model.tables import TableIdentifier
from amoro_core.scheduling.policy import DEFAULT_POLICY, POLICIES, PendingTable, Policy, Use, order_pending, standing
from amoro_core.scheduling.quota import occupation, quota_limit
from amoro_core.scheduling.shares import Accounts, share_of
from amoro_core.store import blockers, tables, tasks, waiting
from amoro_core.store.database import Connection, Store
from amoro_core.store.waiting import Figures, WaitingTasks
from amoro_core.transactions.pending import count_threads, pending_of

#: The most rows of each list.
MOST = 500
#: Figures are counted again after so long.
FRESH_S = 1.0
LOOK_BACK = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class PendingPlace:
    """A table that waits for a plan."""

    table: Pending
    place: int  # in its group, from 1
    policy: str
    key: Any  # by which the policy orders
    limit: int  # threads that its quota allows now
    occupation: float  # share of the limit in the last hour; infinite without limit
    held_back: str  # why it is not planned though it is its turn; "": it is not


@dataclass(frozen=True, slots=True)
class WaitingPlace:
    """A process whose tasks wait for threads."""

    process: WaitingTasks
    table: TableIdentifier
    place: int  # in its group, from 1
    use: Use  # of the group by its table


@dataclass(frozen=True, slots=True)
class Queue:
    """The first of what waits, by group."""

    pending: tuple[PendingPlace, ...]
    waiting: tuple[WaitingPlace, ...]
    pending_total: int
    waiting_total: int


class QueueService:
    """Queues of the groups. `accounts` are those that threads are assigned by."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], datetime],
        accounts: Callable[[], Mapping[str, Accounts]],
        policies: Mapping[str, Policy] = POLICIES,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._clock = clock
        self._accounts = accounts
        self._policies = policies
        self._monotonic = monotonic
        self._gate = threading.Lock()  # one caller counts, the others wait for it
        self._counted: tuple[float, Figures, datetime] | None = None

    def list_queue(self, group: str = "", limit: int = 0) -> Queue:
        """At most `limit` tables and processes that wait, of one group or all; 0: as many as there may be."""
        most, now = min(limit or MOST, MOST), self._clock()

        def read(db: Connection) -> Queue:
            pending, pending_total = self._pending(db, group, most, now)
            found, waiting_total = self._waiting(db, group, most)
            return Queue(pending, found, pending_total, waiting_total)

        return self._store.read(read)

    def figures(self) -> tuple[Figures, datetime]:
        """The figures, counted at that time, which is at most a second ago."""
        with self._gate:
            now_s = self._monotonic()
            if self._counted is None or not 0 <= now_s - self._counted[0] < FRESH_S:
                now = self._clock()
                self._counted = now_s, self._store.read(lambda db: waiting.figures(db, now - LOOK_BACK)), now
            return self._counted[1:]

    def _pending(self, db: Connection, group: str, most: int, now: datetime) -> tuple[tuple[PendingPlace, ...], int]:
        """The first places, and how many there are; everything is read of the tables that get one of these only."""
        turns = tables.list_turns(db, group)
        policies, by_group = pending_of(db, turns, now)
        first: list[tuple[int, PendingTable, str, Any]] = []
        for name, found in by_group.items():
            if len(first) < most:
                ordered = self._ordered(policies.get(name, ""), found, most - len(first), now)
                first += [(place, *one) for place, one in enumerate(ordered, 1)]
        known = {table.table_id: table for table in tables.list_pending(db, [one.table_id for _, one, _, _ in first])}
        blocked = {
            item.table_id for item in blockers.list_active(db, now) if BlockedOperation.OPTIMIZE in item.operations
        }
        shown = tuple(
            PendingPlace(
                table=known[one.table_id],
                place=place,
                policy=policy,
                key=key,
                limit=one.limit,
                occupation=occupation(one.runs, one.limit, now),
                held_back=_held_back(known[one.table_id], one.table_id in blocked),
            )
            for place, one, policy, key in first
        )
        return shown, len(turns)

    def _ordered(
        self, name: str, found: Sequence[PendingTable], most: int, now: datetime
    ) -> list[tuple[PendingTable, str, Any]]:
        """The first tables in planning order, with the policy and its key; by the default one where that is missing or
        fails, as planning does."""
        try:
            policy = self._policies[name]
            return [(one, name, policy(one, now)) for one in order_pending(found, policy, now)[:most]]
        except Exception:
            # A plugged-in policy may raise anything; planning logs it.
            policy = self._policies[DEFAULT_POLICY]
            return [(one, DEFAULT_POLICY, policy(one, now)) for one in order_pending(found, policy, now)[:most]]

    def _waiting(self, db: Connection, group: str, most: int) -> tuple[tuple[WaitingPlace, ...], int]:
        """The first places, and how many there are."""
        found, threads = waiting.list_waiting(db, group), count_threads(db)
        running = Counter((task.group, task.table_id) for task in tasks.list_held(db))
        accounts = self._accounts()

        def use(item: WaitingTasks) -> Use:
            size = threads.get(item.group, 0)
            ahead_s = accounts.get(item.group, _NEW).ahead_s.get(item.table_id, 0.0)
            held = running[item.group, item.table_id]
            return Use(held, quota_limit(item.quota, max(1, size)), share_of(item.quota, size), ahead_s)

        def turn(one: tuple[WaitingTasks, Use]) -> tuple[object, ...]:
            item, used = one
            typical_s = accounts.get(item.group, _NEW).typical_s
            return item.group, *standing(used, typical_s), item.created_at, item.process_id

        first = sorted(((item, use(item)) for item in found), key=turn)[:most]
        names = tables.names(db, {item.table_id for item, _ in first})
        places: Counter[str] = Counter()
        shown = []
        for item, used in first:
            places[item.group] += 1
            shown.append(WaitingPlace(item, names[item.table_id], places[item.group], used))
        return tuple(shown), len(found)


_NEW = Accounts(datetime.min)


def _held_back(table: Pending, is_blocked: bool) -> str:
    if not table.enabled:
        return "disabled"
    return "blocked" if is_blocked else ""
