"""Notification of coroutines by any thread."""

import asyncio


class Changes:
    """An event for which many coroutines wait and which any thread may fire."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event = asyncio.Event()
        self.are_over = False  # no change will follow: waits end at once

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the event loop of the waiting coroutines; before that, firing does nothing."""
        self._loop = loop

    def fire(self) -> None:
        """Wake all coroutines that wait now."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def end(self) -> None:
        """Wake all coroutines for the last time."""
        self.are_over = True
        self.fire()

    def current(self) -> asyncio.Event:
        """The event of the next firing. Get it before reading the state, then wait for it."""
        return self._event

    def _wake(self) -> None:
        event, self._event = self._event, asyncio.Event()
        event.set()


async def wait_for(event: asyncio.Event, seconds: float) -> None:
    """Wait for the event, at most that long."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return
