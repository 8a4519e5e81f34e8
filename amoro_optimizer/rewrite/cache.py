"""A cache of decoded delete files for the tasks of a process, limited in bytes."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

#: While waiting for another thread's work: the interval of checks whether the attempt was cancelled.
_LOOK_S = 0.1


@dataclass(slots=True)
class _Entry:
    value: Any
    nbytes: int


class BoundedCache:
    """An LRU cache of values by key, shared by threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}
        self._nbytes = 0

    @property
    def nbytes(self) -> int:
        """The size of the cached values."""
        return self._nbytes

    def get(self, key: Hashable) -> Any | None:
        """The value, if it is cached."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry.value

    def put(self, key: Hashable, value: Any, nbytes: int, capacity: int) -> None:
        """Cache the value, evicting others beyond `capacity` bytes in all; a larger value is not cached."""
        with self._lock:
            known = self._entries.pop(key, None)
            if known is not None:
                self._nbytes -= known.nbytes
            if nbytes <= capacity:
                self._entries[key] = _Entry(value, nbytes)
                self._nbytes += nbytes
            while self._nbytes > capacity:
                _, oldest = self._entries.popitem(last=False)
                self._nbytes -= oldest.nbytes

    def get_or_make(
        self, key: Hashable, make: Callable[[], tuple[Any, int]], capacity: int, checkpoint: Callable[[], None]
    ) -> Any:
        """The value; the first caller makes it (value and bytes), while other callers wait.

        If making it fails, waiting callers try themselves. `checkpoint` is called while waiting and may raise.
        """
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        while not making.acquire(timeout=_LOOK_S):
            checkpoint()
        try:
            found = self.get(key)
            if found is None:
                found, nbytes = make()
                self.put(key, found, nbytes, capacity)
            return found
        finally:
            making.release()
            with self._lock:
                self._making.pop(key, None)

    def clear(self) -> None:
        """Remove everything."""
        with self._lock:
            self._entries.clear()
            self._nbytes = 0


#: The delete files decoded by this process, for all tasks.
DECODED_DELETES = BoundedCache()
