"""The context of the web application: operations, logins, metrics; and the caller of a request."""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

from google.protobuf.message import Message
from starlette.requests import Request

from amoro_core.admin.dispatcher import Operations
from amoro_core.errors import UnknownToken
from amoro_core.metrics_registry import Meters
from amoro_core.model.principals import Channel, Principal
from amoro_core.services.history import RepeatingService
from amoro_core.web.login import LoginService, OidcLogin, address_of


@dataclass(frozen=True, slots=True)
class AppContext:
    """The operations, and the parts around them. Blocking work runs in `pool`, never in the event loop."""

    operations: Operations
    metrics: Callable[[], bytes]  # as Prometheus reads them
    may_scrape: Callable[[str], bool]  # whether a token may read the metrics
    pool: Executor
    repeats: RepeatingService
    logins: LoginService
    mcp_writes: bool = False  # whether MCP offers the tools that write, to tokens that may use them
    terminal: bool = False  # whether operators may send SQL
    meters: Meters = field(default_factory=Meters)
    oidc: OidcLogin | None = None  # of an OpenID provider


def context_of(request: Request) -> AppContext:
    """The context of the request's application."""
    result: AppContext = request.app.state.context
    return result


async def principal_of(request: Request) -> Principal:
    """The account of the request's token, or on pages of its session cookie.

    It is cached in the request. Raises UnknownToken.
    """
    result: Principal | None = getattr(request.state, "principal", None)
    if result is None:
        is_rest = request.url.path.startswith("/api/")
        way, visitor = Channel.REST if is_rest else Channel.PAGE, None
        if not is_rest and "authorization" not in request.headers:
            visitor = await context_of(request).logins.visitor(request)
        if visitor is not None:
            result = replace(visitor, way=way, address=address_of(request))
        else:
            result = await context_of(request).operations.admit(bearer(request), way, address_of(request))
        request.state.principal = result
    return result


async def call(
    request: Request, method: str, message: Message, require_seen: Callable[[Message], None] | None = None
) -> Message:
    """Call a method of the AdminService as the sender of the request; `require_seen` as for `Operations.call`.

    Raises UnknownToken for a request without credentials, and the errors of the operation.
    """
    principal = await principal_of(request)
    response: Message = await context_of(request).operations.call(method, message, principal, require_seen)
    return response


def bearer(request: Request) -> str:
    """The token that the request carries. Raises UnknownToken."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise UnknownToken("the request carries no token", hint="Send the header Authorization: Bearer TOKEN.")
    return token.strip()
