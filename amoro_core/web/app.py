"""The application: its routes, and the guards around them."""

from collections.abc import Collection

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from amoro_core.logger import get_logger
from amoro_core.web import health_routes, mcp_endpoint, pages, rest, scan_reports, static
from amoro_core.web.app_context import AppContext
from amoro_core.web.middleware import HeaderGuard, HostGuard, OriginGuard, Timing

log = get_logger("amoro.http")


def make_app(parts: AppContext, hosts: Collection[str]) -> Starlette:
    """The application over these parts; it answers to loopback's names and to `hosts`."""
    routes = [
        *health_routes.routes(),
        *static.routes(),
        *rest.routes(),
        *mcp_endpoint.routes(),
        *scan_reports.routes(),
        *pages.routes(),
    ]
    timing = Middleware(Timing, meters=parts.meters, routes=routes)
    app = Starlette(
        routes=routes,
        middleware=[timing, Middleware(HeaderGuard), Middleware(HostGuard, hosts=hosts), Middleware(OriginGuard)],
        exception_handlers={Exception: _failed},
    )
    app.state.offered = parts
    return app


async def _failed(request: Request, error: Exception) -> Response:
    log.error("request.failed", method=request.method, path=request.url.path, error=repr(error))
    return PlainTextResponse("internal error: the coordinator's log has more\n", 500)
