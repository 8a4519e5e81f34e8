"""For programs that watch: /metrics with a token, /livez and /readyz without."""

import asyncio
from collections.abc import Sequence
from functools import partial

from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from amoro_core.errors import UnknownToken
from amoro_core.web.app_context import bearer, offered


def routes() -> Sequence[BaseRoute]:
    """The routes of metrics and probes."""
    return (Route("/metrics", _metrics), Route("/livez", _alive), Route("/readyz", _alive))


async def _alive(request: Request) -> Response:
    return PlainTextResponse("ok\n")


async def _metrics(request: Request) -> Response:
    parts, loop = offered(request), asyncio.get_running_loop()
    try:
        token = bearer(request)
    except UnknownToken:
        token = ""
    if not token or not await loop.run_in_executor(parts.pool, partial(parts.may_scrape, token)):
        needed = {"WWW-Authenticate": "Bearer"}
        return PlainTextResponse("a token with the role viewer is needed\n", 401, headers=needed)
    text = await loop.run_in_executor(parts.pool, parts.metrics)
    return Response(text, media_type=CONTENT_TYPE_LATEST)
