"""What open pages fetch after a hint: rendered once for all who may see the same, until something of it changes."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

from amoro_core.records import record
from amoro_core.revisions import Revisions, Subject

MOST_KEPT = 500
LONGEST_S = 10.0  # a fragment says how long ago things were

#: The address of the page, and what decides about its content: role, pattern.
Key = tuple[str, ...]


@record
class Fragment:
    """A rendered part of a page as it is sent, and the subjects that it shows."""

    content: bytes
    subjects: Sequence[Subject]


class Fragments:
    """Fragments by page and rights. Each is valid while it shows what those who ask have to see."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Key, tuple[Fragment, int, float]] = OrderedDict()
        self._locks: OrderedDict[Key, asyncio.Lock] = OrderedDict()

    async def get(
        self,
        key: Key,
        revisions: Revisions,
        make: Callable[[], Awaitable[Fragment | None]],
        hinted: int | None = None,
    ) -> bytes | None:
        """The fragment, made unless it is known; None where `make` gives none. Those who ask at once wait for one.

        It shows all that had changed up to the revision `hinted`, or until now where that is None. A page that was told
        of a revision is told of later ones by the next hint: so, while things change all the time, the pages that are
        told at once share one fragment.
        """
        lock = self._locks.setdefault(key, asyncio.Lock())
        if len(self._locks) > 2 * MOST_KEPT:
            self._locks.popitem(last=False)
        async with lock:
            known = self._kept.get(key)
            if known and known[1] >= _wanted(revisions, known[0], hinted) and time.monotonic() - known[2] < LONGEST_S:
                self._kept.move_to_end(key)
                return known[0].content
            # Noted before it is made: it may lack a change meanwhile.
            begun = revisions.latest
            made = await make()
            if made is None:
                self._kept.pop(key, None)
                return None
            self._kept[key] = (made, begun, time.monotonic())
            self._kept.move_to_end(key)
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
            return made.content


def _wanted(revisions: Revisions, fragment: Fragment, hinted: int | None) -> int:
    """The revision up to which it has to show all."""
    newest = max(revisions.of(*subject) for subject in fragment.subjects)
    return newest if hinted is None else min(newest, hinted)
