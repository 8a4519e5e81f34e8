"""Whose turn it is among the tables of a group that wait."""

from collections.abc import Collection
from dataclasses import dataclass, field
from heapq import heappop, heappush

from amoro_core.scheduling.policy import Use, standing
from amoro_core.scheduling.quota import quota_limit
from amoro_core.scheduling.shares import Accounts, share_of
from amoro_core.store.connection import Connection
from amoro_core.store.open_tasks import OpenProcess, OpenTask
from amoro_core.transactions.board import Able, Board

#: Sorts tables as `choose_tasks` takes turns; the last item is the table.
Key = tuple[bool, float, int, str, int]


@dataclass(slots=True)
class _Order:
    """The tables that may have a task for somebody, by their keys."""

    heap: list[Key] = field(default_factory=list)  # entries that are not a table's present key are left over
    keys: dict[int, Key] = field(default_factory=dict)

    def put(self, key: Key) -> None:
        """Put a table in, or where it stands now."""
        if self.keys.get(key[-1]) != key:
            heappush(self.heap, key)
            self.keys[key[-1]] = key

    def drop(self, table_id: int) -> None:
        self.keys.pop(table_id, None)

    def first(self) -> int | None:
        """The table with the least key."""
        while self.heap and self.keys.get(self.heap[0][-1]) != self.heap[0]:
            heappop(self.heap)
        return self.heap[0][-1] if self.heap else None


class Turns:
    """The turns of a group's tables, by accounts of one moment and that many threads.

    They are kept from one call to the next, and cost what changes on the board, not what waits there.
    """

    def __init__(self, db: Connection, board: Board, group: str, threads: int, accounts: Accounts) -> None:
        self._board, self._group, self._threads, self._accounts = board, group, threads, accounts
        self._reading = board.reading
        self._processes: dict[int, list[OpenProcess]] = {}  # of each table that waits, oldest first
        self._quotas: dict[int, float] = {}
        self._allowed: dict[float, tuple[int, float]] = {}  # by quota: the limit and the share that it means
        self._orders: dict[Able, _Order] = {}
        self._stand(db, board.waiting_tables(group))

    def are_of(self, threads: int, accounts: Accounts) -> bool:
        """Whether they count still: by these threads and accounts, and by what the board last read as a whole."""
        return self._accounts is accounts and self._threads == threads and self._reading == self._board.reading

    def next(self, db: Connection, able: Able) -> OpenTask | None:
        """The task of the table whose turn it is, for somebody able to do it; None: nothing waits for him."""
        if moved := self._board.take_moved(self._group):
            self._stand(db, moved)
        order = self._orders.get(able)
        if order is None:
            order = self._orders[able] = _Order()
            for table_id in self._processes:
                order.put(self._key(table_id))
        while (first := order.first()) is not None:
            if (found := self._board.first(self._group, self._processes[first], able)) is not None:
                return found
            order.drop(first)  # until something of it changes
        return None

    def _stand(self, db: Connection, table_ids: Collection[int]) -> None:
        """Put these tables where they stand now."""
        self._quotas |= self._board.quotas(db, table_ids)
        for table_id in table_ids:
            if processes := self._board.waiting(self._group, table_id):
                self._processes[table_id] = processes
                for order in self._orders.values():
                    order.put(self._key(table_id))
            elif table_id in self._processes:
                del self._processes[table_id]
                for order in self._orders.values():
                    order.drop(table_id)

    def _key(self, table_id: int) -> Key:
        quota, oldest = self._quotas[table_id], self._processes[table_id][0]
        if quota not in self._allowed:
            self._allowed[quota] = quota_limit(quota, max(1, self._threads)), share_of(quota, self._threads)
        running, ahead_s = self._board.running(self._group, table_id), self._accounts.ahead_s.get(table_id, 0.0)
        over, ahead_s = standing(Use(running, *self._allowed[quota], ahead_s), self._accounts.typical_s)
        return over, ahead_s, oldest.created_at_ms, oldest.process_id, table_id
