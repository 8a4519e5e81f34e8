"""/mcp: tools for assistants that speak MCP over HTTP; each request stands alone."""

import asyncio
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from amoro_core.errors import AmoroError
from amoro_core.model.principals import Channel, Principal, Role
from amoro_core.web.app_context import bearer, context_of
from amoro_core.web.login import address_of

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server


_PRINCIPAL = "amoro.principal"


def routes() -> Sequence[BaseRoute]:
    """The route, where the extra `mcp` is installed."""
    return (Route("/mcp", Assistants()),) if find_spec("mcp") else ()


class Assistants:
    """Answers MCP requests with a token of the role viewer; session cookies do not count.

    Tools that write are there for the role operator, where the settings have them; the operations themselves say on
    which tables.
    """

    def __init__(self) -> None:
        self._servers: dict[bool, Server[Any]] = {}  # by whether it has the tools that write

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = await _refused(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        principal: Principal = scope[_PRINCIPAL]
        writes = context_of(Request(scope)).mcp_writes and principal.role.allows(Role.OPERATOR)
        if writes not in self._servers:
            # It takes a second and 60 MB to load: loaded on the first request.
            self._servers[writes] = await asyncio.to_thread(_load_server, allow_writes=writes)
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        manager = StreamableHTTPSessionManager(self._servers[writes], json_response=True, stateless=True)
        async with manager.run():
            await manager.handle_request(scope, receive, send)


async def _refused(scope: Scope) -> Response | None:
    """The refusal, or None for an allowed caller, whose account is put into the scope."""
    request = Request(scope)
    try:
        token = bearer(request)
        principal = await context_of(request).operations.admit(token, Channel.MCP, address_of(request))
    except AmoroError as error:
        return PlainTextResponse(f"{error.message}\n", 401, headers={"WWW-Authenticate": "Bearer"})
    if not principal.role.allows(Role.VIEWER):
        return PlainTextResponse("a token with the role viewer is needed\n", 403)
    scope[_PRINCIPAL] = principal
    return None


def _load_server(*, allow_writes: bool) -> "Server[Any]":
    from amoro_core.mcp.server import make_server

    return make_server(_ask, version("amoro"), allow_writes=allow_writes)


async def _ask(method: str, message: Message, request: Any) -> Message:
    principal: Principal = request.scope[_PRINCIPAL]
    response: Message = await context_of(request).operations.call(method, message, principal)
    return response
