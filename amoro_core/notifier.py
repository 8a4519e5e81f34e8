"""Notification of coroutines by any thread."""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress


class Changes:
    """An event for which many coroutines wait, in any event loop that is bound, and which any thread may fire."""

    def __init__(self) -> None:
        self._events: dict[asyncio.AbstractEventLoop, asyncio.Event] = {}
        self._never = asyncio.Event()
        self.are_over = False  # no change will follow: waits end at once

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let coroutines of that event loop wait; before that, firing does not reach them."""
        self._events = {**self._events, loop: asyncio.Event()}

    def release(self, loop: asyncio.AbstractEventLoop) -> None:
        """Reach that event loop no more."""
        self._events = {one: event for one, event in self._events.items() if one is not loop}

    def fire(self) -> None:
        """Wake all coroutines that wait now."""
        for loop in self._events:
            with suppress(RuntimeError):  # it was closed
                loop.call_soon_threadsafe(self._wake, loop)

    def end(self) -> None:
        """Wake all coroutines for the last time."""
        self.are_over = True
        self.fire()

    def current(self) -> asyncio.Event:
        """The event of the next firing. Get it before reading the state, then wait for it."""
        return self._events.get(asyncio.get_running_loop(), self._never)

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        if event := self._events.get(loop):
            self._events[loop] = asyncio.Event()
            event.set()


async def wait_for(event: asyncio.Event, seconds: float) -> None:
    """Wait for the event, at most that long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):  # unlike `asyncio.wait_for` it makes no task of its own
            await event.wait()


#: Single subjects whose numbers are remembered. A forgotten one counts as changed when the last of these was forgotten.
MOST_REMEMBERED = 20_000

#: A topic, such as "processes", and the id of the one that changed.
Subject = tuple[str, str]


class Revisions:
    """Revisions of topics and of the single subjects within them; any thread may note and ask.

    Numbers grow over all subjects alike. They begin at `start`: give a later one after a restart, so that a number
    from before is never met again.
    """

    def __init__(self, start: int = 0, most: int = MOST_REMEMBERED) -> None:
        self._lock = threading.Lock()
        self._most = most
        self._latest = self._forgotten = start
        self._topics: dict[str, int] = {}
        self._subjects: OrderedDict[Subject, int] = OrderedDict()

    def note(self, changed: Iterable[Subject]) -> None:
        """These have changed, and so have their topics."""
        with self._lock:
            for subject in changed:
                self._latest += 1
                self._topics[subject[0]] = self._latest
                self._subjects[subject] = self._latest
                self._subjects.move_to_end(subject)
            while len(self._subjects) > self._most:
                self._forgotten = max(self._forgotten, self._subjects.popitem(last=False)[1])

    @property
    def latest(self) -> int:
        """The greatest revision of all subjects."""
        with self._lock:
            return self._latest

    def of(self, topic: str, subject: str = "") -> int:
        """The revision of a subject, or of the topic as a whole. It may grow without a change, never the reverse."""
        with self._lock:
            if not subject:
                return self._topics.get(topic, self._forgotten)
            return self._subjects.get((topic, subject), self._forgotten)
