"""Wakes coroutines from any thread."""

import asyncio
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
        self._events = {key: event for key, event in self._events.items() if key is not loop}

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
