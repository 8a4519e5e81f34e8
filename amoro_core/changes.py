"""Waiting for something to change, in coroutines, while any thread may change it."""

import asyncio


class Changes:
    """An event that many coroutines wait for and any thread may fire."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event = asyncio.Event()
        self.are_over = False  # nothing will change any more: who waits gets what there is

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Say where the waiting ones live; before that, firing does nothing."""
        self._loop = loop

    def fire(self) -> None:
        """Wake everybody who waits now."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def end(self) -> None:
        """Wake everybody for the last time."""
        self.are_over = True
        self.fire()

    def current(self) -> asyncio.Event:
        """The event of the next firing: take it before looking at the state, then wait on it."""
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
