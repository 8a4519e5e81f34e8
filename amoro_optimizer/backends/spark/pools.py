"""Pools of Spark's fair scheduler: one for each table that has jobs now."""

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Pools:
    """Assigns pools to tables. Spark keeps a pool for ever, so free ones are reused before another is made."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, tuple[int, int]] = {}  # by table: the pool's number, and how many jobs there are

    @contextmanager
    def pool_of(self, table: str) -> Iterator[str]:
        """The pool for a job of the table, exclusive until the table's last job is over."""
        with self._lock:
            number, jobs = self._held.get(table) or (self._free(), 0)
            self._held[table] = number, jobs + 1
        try:
            yield f"amoro-{number}"
        finally:
            with self._lock:
                number, jobs = self._held.pop(table)
                if jobs > 1:
                    self._held[table] = number, jobs - 1

    def _free(self) -> int:
        taken = {number for number, _ in self._held.values()}
        return next(number for number in itertools.count(1) if number not in taken)
