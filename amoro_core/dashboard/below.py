"""A route for everything below a prefix."""

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send


class Below(BaseRoute):
    """Every path below the prefix, whatever it holds: Starlette's own patterns pass over those with a line break."""

    def __init__(self, prefix: str, app: ASGIApp) -> None:
        self._prefix = prefix
        self._app = app

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether the request is for the application."""
        is_below = scope["type"] == "http" and f"{scope['path']}/".startswith(f"{self._prefix}/")
        return (Match.FULL if is_below else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        await self._app(scope, receive, send)
