"""Decoded delete files, kept for the tasks of a whole process within a number of bytes."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

#: How long another's work is waited for until the next look at whether the attempt was cancelled.
_LOOK_S = 0.1


@dataclass(slots=True)
class _Entry:
    value: Any
    nbytes: int


class BoundedCache:
    """Values by key, the least recently used of which go first; shared by threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}
        self._nbytes = 0

    @property
    def nbytes(self) -> int:
        """What the cached values take."""
        return self._nbytes

    def get(self, key: Hashable) -> Any | None:
        """The value, if it is there."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry.value

    def put(self, key: Hashable, value: Any, nbytes: int, capacity: int) -> None:
        """Keep the value, as long as all values together have at most `capacity` bytes; a larger one is not kept."""
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
        """The value; the first to ask makes it (value and bytes), while others that ask for it wait.

        When making fails those who waited try themselves. `checkpoint` is called while waiting and may raise.
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
        """Forget everything."""
        with self._lock:
            self._entries.clear()
            self._nbytes = 0


#: The delete files that this process has decoded, whatever its tasks.
DECODED_DELETES = BoundedCache()
