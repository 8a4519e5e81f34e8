"""Values that pages keep for a while in memory, by keys that can't be guessed."""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import timedelta
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Kept(Generic[Value]):
    """At most so many values, the oldest of which goes first; each for a time. Used by one event loop."""

    def __init__(self, most: int, lasting: timedelta, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._lasting_s = lasting.total_seconds()
        self._monotonic = monotonic
        self._values: OrderedDict[str, tuple[float, Value]] = OrderedDict()

    def add(self, value: Value) -> str:
        """Keep the value; its key."""
        key = secrets.token_urlsafe(9)
        self._values[key] = (self._monotonic() + self._lasting_s, value)
        if len(self._values) > self._most:
            self._values.popitem(last=False)
        return key

    def find(self, key: str) -> Value | None:
        """The value; None for a key that is not known (any more)."""
        until, value = self._values.get(key, (0.0, None))
        return value if until > self._monotonic() else None

    def take(self, key: str) -> Value | None:
        """The value, which is not kept any longer; None as `find`."""
        value = self.find(key)
        self._values.pop(key, None)
        return value
