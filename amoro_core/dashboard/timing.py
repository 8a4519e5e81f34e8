"""How long requests take, by route."""

from collections.abc import Iterable
from time import monotonic

from starlette.routing import BaseRoute, Match, Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from amoro_core.meters import Meters
from amoro_core.model import metrics

#: The route of a path that is none: paths that strangers think up must not become labels.
UNKNOWN = "unknown"
_STREAM = b"text/event-stream"


class Timing:
    """Measures every request but streams, which last as long as their page is open."""

    def __init__(self, app: ASGIApp, meters: Meters, routes: Iterable[BaseRoute]) -> None:
        self._app = app
        self._meters = meters
        self._routes = tuple(routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, is_stream = monotonic(), False

        async def watched(message: Message) -> None:
            nonlocal is_stream
            if message["type"] == "http.response.start":
                is_stream = any(
                    name.lower() == b"content-type" and value.startswith(_STREAM)
                    for name, value in message.get("headers", ())
                )
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            if not is_stream:
                self._meters.observe(metrics.HTTP_TIME, monotonic() - begun, template_of(scope, self._routes))


def template_of(scope: Scope, routes: Iterable[BaseRoute]) -> str:
    """The route's path as it is written, such as /tables/{table}; of static files the place of all of them."""
    for route in routes:
        if isinstance(route, Route | Mount) and route.matches({**scope})[0] is not Match.NONE:
            return route.path
    return UNKNOWN
