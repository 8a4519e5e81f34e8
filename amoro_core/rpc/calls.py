"""What every servicer method does around its work: authenticate, run off the event loop, translate errors."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

import grpc

from amoro_core.errors import UnknownToken
from amoro_core.model.texts import printable
from amoro_core.protocol.channels import USER_KEY

T = TypeVar("T")

_LONGEST_NAME = 64


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


async def off_loop(pool: Executor, work: Callable[[], T]) -> T:
    """Run blocking work in the pool."""
    return await asyncio.get_running_loop().run_in_executor(pool, work)


def bearer(context: grpc.aio.ServicerContext[Any, Any]) -> str:
    """The token that the call carries. Raises UnknownToken."""
    for key, value in context.invocation_metadata() or ():
        if key == "authorization":
            text = value.decode() if isinstance(value, bytes) else value
            if text.startswith("Bearer "):
                return text.removeprefix("Bearer ")
    raise UnknownToken("the call carries no token", hint="Send the metadata authorization: Bearer TOKEN.")


def user_of(context: grpc.aio.ServicerContext[Any, Any]) -> str:
    """The user's name as the client gives it, fit to be shown; "" when it gives none. It proves nothing."""
    for key, value in context.invocation_metadata() or ():
        if key == USER_KEY and isinstance(value, bytes):
            return printable(value.decode(errors="replace"))[:_LONGEST_NAME]
    return ""
