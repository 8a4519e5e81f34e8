"""What waits for a plan or a thread, in the order in which it gets one, and the coordinator in figures."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

from amoro_core.model.blockers import BlockedOperation
from amoro_core.model.cursors import opened, sealed
from amoro_core.model.lines import KINDS, NOTHING, START, Line, Mark, Part, packed, part, unpacked
from amoro_core.model.paging import ALL, Window, page_limit
from amoro_core.model.table_lists import Pending
from amoro_core.model.tables import TableIdentifier
from amoro_core.records import record
from amoro_core.scheduling.policy import DEFAULT_POLICY, POLICIES, PendingTable, Policy, Use, rank_pending, standing
from amoro_core.scheduling.quota import LOOK_BACK, occupation, quota_limit
from amoro_core.scheduling.shares import Accounts, share_of
from amoro_core.store import blockers, tables, tasks, waiting
from amoro_core.store.database import Connection, Store
from amoro_core.store.waiting import Figures, WaitingTasks
from amoro_core.transactions.pending import count_threads, pending_of

#: Rows of each list on a page where no limit is asked for.
ROWS = 500
#: Figures are counted again after so long.
FRESH_S = 1.0
DAY = timedelta(hours=24)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


#: A pending table with its policy and the key that this gives it.
_Ordered = tuple[str, Any, PendingTable]


@record
class PendingPlace:
    """A table that waits for a plan."""

    table: Pending
    place: int  # in its group, from 1
    policy: str
    key: Any  # by which the policy orders
    limit: int  # threads that its quota allows now
    occupation: float  # share of the limit in the last hour; infinite without limit
    held_back: str  # why it is not planned though it is its turn; "": it is not


@record
class WaitingPlace:
    """A process whose tasks wait for threads."""

    process: WaitingTasks
    table: TableIdentifier
    place: int  # in its group, from 1
    use: Use  # of the group by its table


@record
class Queue:
    """A page of what waits, by group."""

    pending: tuple[PendingPlace, ...]
    waiting: tuple[WaitingPlace, ...]
    pending_total: int  # 0 where they were not asked for, as the next
    waiting_total: int
    next: str  # the cursor after which the next page begins; "": nothing is left
    order_changed: bool  # whether what stands before this page is not what it was


@record
class _Start:
    """Where a page begins."""

    at: datetime  # the moment for which pending tables are ordered: that of the first page
    marks: Mapping[Line, Mark | None]  # None: the list has ended, or was not asked for


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

    def list_queue(self, group: str = "", window: Window = ALL, only: Line | None = None) -> Queue:
        """Tables and processes that wait, at most `limit` of each, of one group or all; or one of the two lists.

        All pages order pending tables for the moment of the first, so that time alone moves none. Raises
        InvalidArgument for a cursor of another list, and for a broken one.
        """
        most, now, scope = page_limit(window.limit or ROWS), self._clock(), ("queue", group, only or "")
        start = _opened(window.after, scope, only, now)

        def read(db: Connection) -> Queue:
            pending, tables_left = NOTHING, 0
            found, processes_left = NOTHING, 0
            if only is not Line.WAITING:
                pending, tables_left = self._pending(db, group, start, most, now)
            if only is not Line.PENDING:
                found, processes_left = self._waiting(db, group, start, most)
            ends = {Line.PENDING: pending.following, Line.WAITING: found.following}
            return Queue(
                pending=pending.entries,
                waiting=found.entries,
                pending_total=tables_left,
                waiting_total=processes_left,
                next=_sealed(_Start(start.at, ends), scope) if any(ends.values()) else "",
                order_changed=pending.order_changed or found.order_changed,
            )

        return self._store.read(read)

    def figures(self) -> tuple[Figures, datetime]:
        """The figures, counted at that time, which is at most a second ago."""
        with self._gate:
            now_s = self._monotonic()
            if self._counted is None or not 0 <= now_s - self._counted[0] < FRESH_S:
                now = self._clock()
                self._counted = now_s, self._store.read(lambda db: waiting.figures(db, now - DAY)), now
            return self._counted[1:]

    def _pending(
        self, db: Connection, group: str, start: _Start, most: int, now: datetime
    ) -> tuple[Part[PendingPlace], int]:
        """The tables of a page, and how many there are; everything is read of those on the page only."""
        turns, mark = tables.list_turns(db, group), start.marks[Line.PENDING]
        if mark is None:
            return NOTHING, len(turns)
        policies, by_group = pending_of(db, turns, start.at)
        page = part(
            by_group,
            lambda name: self._ordered(policies.get(name, ""), by_group[name], start.at),
            lambda one: str(one[2].table_id),
            mark,
            most,
        )
        ids = [one.table_id for _, (_, _, one) in page.entries]
        known = {table.table_id: table for table in tables.list_pending(db, ids)}
        blocked = {
            item.table_id for item in blockers.list_active(db, now) if BlockedOperation.OPTIMIZE in item.operations
        }

        def shown(found: tuple[int, _Ordered]) -> PendingPlace:
            place, (policy, key, one) = found
            return PendingPlace(
                table=known[one.table_id],
                place=place,
                policy=policy,
                key=key,
                limit=one.limit,
                occupation=occupation(one.runs, one.limit, start.at),
                held_back=_held_back(known[one.table_id], one.table_id in blocked),
            )

        return page.mapped(shown), len(turns)

    def _ordered(self, name: str, found: Sequence[PendingTable], at: datetime) -> list[_Ordered]:
        """The tables in planning order, with the policy and its key; by the default one where that is missing or
        fails, as planning does."""
        try:
            return [(name, *one) for one in rank_pending(found, self._policies[name], at)]
        except Exception:
            # A plugged-in policy may raise anything; planning logs it.
            policy = self._policies[DEFAULT_POLICY]
            return [(DEFAULT_POLICY, *one) for one in rank_pending(found, policy, at)]

    def _waiting(self, db: Connection, group: str, start: _Start, most: int) -> tuple[Part[WaitingPlace], int]:
        """The processes of a page, and how many there are."""
        found, mark = waiting.list_waiting(db, group), start.marks[Line.WAITING]
        if mark is None:
            return NOTHING, len(found)
        threads, accounts = count_threads(db), self._accounts()
        running = Counter((task.group, task.table_id) for task in tasks.list_held(db))
        by_group = {name: list(items) for name, items in groupby(found, key=lambda item: item.group)}

        def use(item: WaitingTasks) -> Use:
            size = threads.get(item.group, 0)
            ahead_s = accounts.get(item.group, _NEW).ahead_s.get(item.table_id, 0.0)
            held = running[item.group, item.table_id]
            return Use(held, quota_limit(item.quota, max(1, size)), share_of(item.quota, size), ahead_s)

        def turn(one: tuple[WaitingTasks, Use]) -> tuple[object, ...]:
            item, used = one
            typical_s = accounts.get(item.group, _NEW).typical_s
            return *standing(used, typical_s), item.created_at, item.process_id

        page = part(
            by_group,
            lambda name: sorted(((item, use(item)) for item in by_group[name]), key=turn),
            lambda one: one[0].process_id,
            mark,
            most,
        )
        names = tables.names(db, {item.table_id for _, (item, _) in page.entries})

        def shown(found: tuple[int, tuple[WaitingTasks, Use]]) -> WaitingPlace:
            place, (item, used) = found
            return WaitingPlace(item, names[item.table_id], place, used)

        return page.mapped(shown), len(found)


_NEW = Accounts(datetime.min)


def _held_back(table: Pending, is_blocked: bool) -> str:
    if not table.enabled:
        return "disabled"
    return "blocked" if is_blocked else ""


def _opened(cursor: str, scope: Sequence[object], only: Line | None, now: datetime) -> _Start:
    """Where the page after the cursor begins; where the list does for "". Raises InvalidArgument."""
    if not cursor:
        return _Start(now, {line: START if only in (None, line) else None for line in Line})
    at_us, *values = opened(cursor, scope, (int, *KINDS, *KINDS))
    now_us = (now - _EPOCH) // _MICROSECOND
    # Runs before the hour that counts are not read for an old cursor, however old it says it is.
    at = max(now_us - LOOK_BACK // _MICROSECOND, min(int(at_us), now_us))
    marks = (unpacked(values[: len(KINDS)]), unpacked(values[len(KINDS) :]))
    return _Start(_EPOCH + at * _MICROSECOND, dict(zip(Line, marks, strict=True)))


def _sealed(start: _Start, scope: Sequence[object]) -> str:
    at_us = (start.at - _EPOCH) // _MICROSECOND
    return sealed(scope, (at_us, *(value for line in Line for value in packed(start.marks[line]))))
