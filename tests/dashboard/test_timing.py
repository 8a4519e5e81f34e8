"""How long requests take is told by route, and never by what a stranger asks for."""

import asyncio
from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message

from amoro_core.dashboard.timing import Timing
from amoro_core.meters import Meters


async def _plain(request: Request) -> Response:
    return PlainTextResponse("ok")


async def _stream(request: Request) -> Response:
    async def lines() -> object:
        yield b": hello\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream")


async def _failing(request: Request) -> Response:
    raise ZeroDivisionError


ROUTES = [Route("/tables/{table}", _plain), Route("/events/stream", _stream), Route("/fails", _failing)]


def measured(*paths: str) -> dict[tuple[str, ...], int]:
    """How many requests each route was measured for, after these."""
    meters = Meters()
    app = Timing(Starlette(routes=ROUTES), meters, ROUTES)

    async def one(path: str) -> None:
        sent: list[Message] = []

        async def receive() -> Message:
            return await asyncio.Future()  # nobody leaves

        async def send(message: Message) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b"", "root_path": ""}
        try:
            await app(scope, receive, send)
        except ZeroDivisionError:
            return

    async def run(asked: Sequence[str]) -> None:
        for path in asked:
            await one(path)

    asyncio.run(run(paths))
    return {sample.labels: sample.buckets[-1] for sample in meters.histograms()}


def test_requests_are_measured_by_the_route_as_it_is_written() -> None:
    assert measured("/tables/a", "/tables/b", "/fails") == {("/tables/{table}",): 2, ("/fails",): 1}


def test_paths_that_strangers_think_up_share_one_label() -> None:
    assert measured("/wp-admin", "/x/y/z", "/tables") == {("unknown",): 3}


def test_streams_last_as_long_as_their_page_and_are_not_measured() -> None:
    assert measured("/events/stream") == {}
