"""Looks at a table itself: they read metadata or manifests, so they are asked for, few at once, and end in time."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from amoro_core.errors import WaitTimeout

DEADLINE_S = 10.0
AT_ONCE = 2
_REMEMBERED = 64

Seen = TypeVar("Seen")


class Looks(Generic[Seen]):
    """At most so many looks at once in this process, each for a while; what was seen last is remembered by its key."""

    def __init__(self, at_once: int = AT_ONCE, deadline_s: float = DEADLINE_S) -> None:
        self._room = asyncio.Semaphore(at_once)
        self._deadline_s = deadline_s
        self._seen: OrderedDict[tuple[object, ...], Seen] = OrderedDict()

    def remembered(self, key: tuple[object, ...]) -> Seen | None:
        """What was seen under the key; None if nothing was, or too long ago."""
        return self._seen.get(key)

    def remember(self, key: tuple[object, ...], seen: Seen) -> None:
        """Remember it in place of what was looked at the longest ago."""
        self._seen[key] = seen
        self._seen.move_to_end(key)
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)

    @asynccontextmanager
    async def looking(self, what: str, otherwise: str) -> AsyncIterator[None]:
        """The time for one look, the wait for room included. Raises WaitTimeout; `otherwise` says how to go on."""
        try:
            async with asyncio.timeout(self._deadline_s), self._room:
                yield
        except TimeoutError as late:
            raise WaitTimeout(f"{what} was not read within {self._deadline_s:g} s", hint=otherwise) from late
