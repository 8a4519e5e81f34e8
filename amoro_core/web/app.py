"""The web application: its routes, probes and metrics, and the middleware around them."""

import asyncio
from collections.abc import Collection
from functools import partial

from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from amoro_core.errors import UnknownToken
from amoro_core.logger import get_logger
from amoro_core.web import mcp_endpoint, pages, static
from amoro_core.web.app_context import AppContext, bearer, context_of
from amoro_core.web.middleware import HeaderGuard, HostGuard, OriginGuard, Timing
from amoro_core.web.pages.framework import Site
from amoro_core.web.rest import handler, iceberg

log = get_logger("amoro.http")


def make_app(parts: AppContext, hosts: Collection[str]) -> Starlette:
    """The application over these parts; it answers to loopback's names and to `hosts`."""
    site = Site()
    routes = [
        Route("/metrics", _metrics),
        *(Route(path, _alive) for path in ("/livez", "/readyz")),
        *static.routes(),
        *handler.routes(),
        *mcp_endpoint.routes(),
        *handler.scan_report_routes(),
        *iceberg.routes(),
        *pages.routes(site),
    ]
    timing = Middleware(Timing, meters=parts.meters, routes=routes)
    app = Starlette(
        routes=routes,
        middleware=[timing, Middleware(HeaderGuard), Middleware(HostGuard, hosts=hosts), Middleware(OriginGuard)],
        exception_handlers={404: site.missing, 405: site.missing, Exception: _failed},
    )
    app.state.context = parts
    return app


async def _failed(request: Request, error: Exception) -> Response:
    log.error("request.failed", method=request.method, path=request.url.path, error=repr(error))
    return PlainTextResponse("internal error: the coordinator's log has more\n", 500)


async def _alive(request: Request) -> Response:
    return PlainTextResponse("ok\n")


async def _metrics(request: Request) -> Response:
    parts, loop = context_of(request), asyncio.get_running_loop()
    try:
        token = bearer(request)
    except UnknownToken:
        token = ""
    if not token or not await loop.run_in_executor(parts.pool, partial(parts.may_scrape, token)):
        needed = {"WWW-Authenticate": "Bearer"}
        return PlainTextResponse("a token with the role viewer is needed\n", 401, headers=needed)
    text = await loop.run_in_executor(parts.pool, parts.metrics)
    return Response(text, media_type=CONTENT_TYPE_LATEST)
