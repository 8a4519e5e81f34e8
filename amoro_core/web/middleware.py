"""Plain ASGI middleware around every request: host and origin checks, security headers, timing."""

from collections.abc import Collection, Iterable
from time import monotonic

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Match, Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from amoro_core.metrics_registry import Meters
from amoro_core.model import metrics

#: Names by which a browser on this machine reaches it.
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def host_of(header: str) -> str:
    """The host that a `Host` header names: lower case, without port and brackets."""
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]


class HostGuard:
    """Answers 421 unless the `Host` header names this server.

    A page whose name was rebound to this address would otherwise speak to it with the rights of its reader's machine.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = frozenset(host_of(bracketed(host)) for host in hosts) | LOOPBACK_NAMES

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (host := host_of(Headers(scope=scope).get("host", ""))) not in self._hosts:
            text = f"Host {host!r} is not allowed.\nAllowed names: http-hosts in amoro.yaml.\n"
            await PlainTextResponse(text, 421)(scope, receive, send)
            return
        await self._app(scope, receive, send)


class OriginGuard:
    """Answers 403 to a request that changes something with a browser's credentials, unless our own page sent it.

    Browsers say so in `Sec-Fetch-Site`; over plain HTTP beyond loopback they leave it out, and `Origin` has to be our
    own. A bearer token is sent by no browser on its own; without credentials the API answers 401 anyway.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in _SAFE_METHODS and not _is_ours(scope):
            text = "This request was not sent by a page of this coordinator.\n"
            await PlainTextResponse(text, 403)(scope, receive, send)
            return
        await self._app(scope, receive, send)


class HeaderGuard:
    """Gives every answer the headers that keep it from being framed, sniffed, cached or extended by foreign content."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, guarded if scope["type"] == "http" else send)


def _is_ours(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    is_api = scope["path"].startswith(("/api/", "/iceberg/"))
    if "cookie" not in headers and is_api:
        return True
    if headers.get("authorization", "").lower().startswith("bearer "):
        return True
    if (site := headers.get("sec-fetch-site")) is not None:
        return site == "same-origin"
    return headers.get("origin") == f"{scope['scheme']}://{headers.get('host', '')}"


def bracketed(host: str) -> str:
    """The host as a `Host` header writes it: IPv6 in brackets."""
    return f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host


class PrefixRoute(BaseRoute):
    """A route for every path below the prefix; Starlette's own patterns do not match line breaks."""

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


#: The label of paths without a route: arbitrary paths must not become labels.
UNKNOWN = "unknown"


class Timing:
    """Measures every request."""

    def __init__(self, app: ASGIApp, meters: Meters, routes: Iterable[BaseRoute]) -> None:
        self._app = app
        self._meters = meters
        self._routes = tuple(routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = monotonic()
        try:
            await self._app(scope, receive, send)
        finally:
            self._meters.observe(metrics.HTTP_TIME, monotonic() - begun, template_of(scope, self._routes))


def template_of(scope: Scope, routes: Iterable[BaseRoute]) -> str:
    """The route's path as it is written, such as /tables/{table}; of static files the place of all of them."""
    for route in routes:
        if isinstance(route, Route | Mount) and route.matches({**scope})[0] is not Match.NONE:
            return route.path
    return UNKNOWN
