"""Metadata of calls, and threads for their work."""

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
