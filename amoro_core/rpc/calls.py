"""Metadata of calls, and running their work in threads."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar
from urllib.parse import unquote

import grpc

from amoro_core.errors import UnknownToken
from amoro_core.model.principals import Way
from amoro_core.model.texts import printable
from amoro_core.protocol.channels import MCP_WAY, USER_KEY, WAY_KEY

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
    """The user's name as the client states it, safe to show; "" when it states none. It is not authenticated."""
    for key, value in context.invocation_metadata() or ():
        if key == USER_KEY and isinstance(value, bytes):
            return printable(value.decode(errors="replace"))[:_LONGEST_NAME]
    return ""


def way_of(context: grpc.aio.ServicerContext[Any, Any]) -> Way:
    """The way by which the call came: MCP where the client says that it asks for an assistant."""
    said = dict(context.invocation_metadata() or ()).get(WAY_KEY)
    return Way.MCP if said == MCP_WAY else Way.GRPC


def address_of(context: grpc.aio.ServicerContext[Any, Any]) -> str:
    """The address of the client without its port, as 10.1.2.3 or ::1; "" when it is not known."""
    family, _, rest = context.peer().partition(":")
    return unquote(rest.rpartition(":")[0]).strip("[]") if family in ("ipv4", "ipv6") else ""
