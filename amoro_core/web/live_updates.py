"""Live updates: hints to open pages that what they show has changed, as server-sent events.

A hint carries no data. The page fetches what it shows again, with its own rights, by the address it has.
"""

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Iterator, Sequence

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from amoro_core.errors import AmoroError
from amoro_core.metrics_registry import Meters
from amoro_core.model import metrics
from amoro_core.notifier import Revisions, Subject
from amoro_core.web.app_context import offered, principal_of

TICK_S = 0.5  # how often streams look for changes, all at once: their pages then share what is rendered
PAUSE_S = 1.0  # in which a page is told once, of all its subjects that have changed: it fetches its content whole
COMMENT_S = 15.0  # of silence, before a comment shows proxies and the page that the stream is alive
LASTING_S = 600.0  # then the page connects anew, and its rights are looked at again
MOST_TOPICS = 20
RETRY_S = 10  # what a page that gets no stream waits
_TOPIC = re.compile(r"([a-z]{1,30})(?::([^,\s]{1,200}))?")


class Streams:
    """How many streams are open, and how many may be."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.open = 0
        self._tick, self._latest = -1.0, 0

    def latest(self, revisions: Revisions, now: float) -> int:
        """The greatest revision of when the first of them looked in this tick.

        What all tell of in it is no newer, so that the content that is made for the first page that follows is new
        enough for the others.
        """
        if now // TICK_S != self._tick:
            self._tick, self._latest = now // TICK_S, revisions.latest
        return self._latest

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Counts a stream while it lasts."""
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1


def routes(most: int, meters: Meters) -> Sequence[BaseRoute]:
    """The route of the stream; at most so many are open at a time."""
    streams = Streams(most)
    meters.ask(metrics.STREAMS, lambda: {(): float(streams.open)})

    async def answer(request: Request) -> "Response | Stream":
        try:
            await principal_of(request)
        except AmoroError as error:
            return PlainTextResponse(f"{error.message}\n", 401)
        if streams.open >= streams.most:
            return PlainTextResponse("too many streams\n", 503, headers={"Retry-After": str(RETRY_S)})
        subjects = parse(request.query_params.get("topics", ""))
        since = request.headers.get("last-event-id") or request.query_params.get("since", "")
        if subjects is None or not (since.isascii() and since.isdigit() and len(since) < 20):
            return PlainTextResponse("topics=TOPIC[:ID],... and since=REVISION are needed\n", 400)
        return Stream(offered(request).revisions, subjects, int(since), streams)

    return (Route("/events/stream", answer),)


def parse(text: str) -> list[Subject] | None:
    """The subjects of a list such as "processes,tables:17"; None for what is no such list, or has more than twenty."""
    found = [_TOPIC.fullmatch(part) for part in text.split(",")]
    if not text or len(found) > MOST_TOPICS:
        return None
    subjects = [(match[1], match[2] or "") for match in found if match]
    return subjects if len(subjects) == len(found) else None


class Watched:
    """What a stream has told of its subjects. `due` names those that have changed since, once a second."""

    def __init__(self, revisions: Revisions, subjects: Sequence[Subject], since: int) -> None:
        self._revisions = revisions
        self._told = dict.fromkeys(subjects, since)
        self._at = -PAUSE_S

    def due(self, now: float, latest: int | None = None) -> list[tuple[Subject, int]]:
        """The subjects to tell of now, with their revisions; `now` in seconds of a clock that never goes back.

        Of changes beyond `latest` it tells later.
        """
        if now - self._at < PAUSE_S:
            return []
        most = self._revisions.latest if latest is None else latest
        known = [(subject, min(self._revisions.of(*subject), most)) for subject in self._told]
        found = [(subject, revision) for subject, revision in known if revision > self._told[subject]]
        if found:
            self._told.update(found)
            # From whole seconds on, so that all streams come to tell at the same time while things change all the time.
            self._at = now // PAUSE_S * PAUSE_S
        return found

    @property
    def position(self) -> int:
        """The revision from which a stream that follows this one has to begin, so that nothing is left out."""
        return min(self._told.values())


class Stream:
    """A response that lasts: a hint whenever a subject has changed."""

    def __init__(self, revisions: Revisions, subjects: Sequence[Subject], since: int, streams: Streams) -> None:
        self._revisions = revisions
        self._watched = Watched(revisions, subjects, since)
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the page leaves, or its time is over."""
        with self._streams.one():
            gone = asyncio.ensure_future(_gone(receive))
            try:
                headers = {
                    b"content-type": b"text/event-stream; charset=utf-8",
                    b"cache-control": b"no-store",
                    b"x-accel-buffering": b"no",  # nginx would keep hints back
                }
                await send({"type": "http.response.start", "status": 200, "headers": list(headers.items())})
                # The server cancels what is open when it stops; the page connects anew by itself.
                with contextlib.suppress(asyncio.CancelledError):
                    await self._tell(send, gone)
                await send({"type": "http.response.body", "body": b""})
            finally:
                gone.cancel()

    async def _tell(self, send: Send, gone: "asyncio.Future[None]") -> None:
        text, begun = "retry: 1000\n\n", time.monotonic()
        said = begun
        while not gone.done():
            now = time.monotonic()
            for (topic, subject), revision in self._watched.due(now, self._streams.latest(self._revisions, now)):
                hint = json.dumps({"topic": topic, "id": subject, "revision": revision})
                text += f"id: {self._watched.position}\ndata: {hint}\n\n"
            if not text and now - said >= COMMENT_S:
                text = ": here\n\n"
            if text:
                await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
                text, said = "", now
            if now - begun >= LASTING_S:
                return
            await asyncio.wait({gone}, timeout=TICK_S - time.monotonic() % TICK_S)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
