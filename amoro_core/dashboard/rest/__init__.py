"""The REST API: a table of routes over the operations of the AdminService."""

from collections.abc import Sequence

from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from amoro_core.dashboard.rest.handling import Rest
from amoro_core.dashboard.rest.routes import PREFIX


def routes() -> Sequence[BaseRoute]:
    """The route of everything below /api/v1."""
    return (_Below(),)


class _Below(BaseRoute):
    """Every path below the prefix, whatever it holds: Starlette's own patterns pass over those with a line break."""

    def __init__(self) -> None:
        self._app = Rest()

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether the request is for the API."""
        is_below = scope["type"] == "http" and f"{scope['path']}/".startswith(f"{PREFIX}/")
        return (Match.FULL if is_below else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        await self._app(scope, receive, send)
