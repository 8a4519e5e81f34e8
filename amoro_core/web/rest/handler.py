"""The REST API: requests become calls of the AdminService, answers become JSON; keys and tags guard repetitions."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from google.protobuf.message import Message
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from amoro_core.admin.dispatcher import MAX_WAIT_S
from amoro_core.errors import AmoroError, Conflict, MalformedRequest, UnknownToken
from amoro_core.model.accounts import KeptAnswer
from amoro_core.model.principals import Channel, anonymous
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.web.app_context import address_of, call, offered, principal_of
from amoro_core.web.middleware import PrefixRoute
from amoro_core.web.rest import openapi
from amoro_core.web.rest.requests import (
    PREFIX,
    HttpError,
    ParsedRequest,
    asked,
    content_of,
    is_paged,
    message_of,
    paths,
    problem,
    problem_of,
    status_of,
)
from amoro_core.web.rest.responses import (
    TAGS,
    document,
    encoded,
    is_tag,
    is_unchanged,
    link_to_next,
    listed,
    tag_of,
)

HEADER = "Idempotency-Key"
_KEY = re.compile(r"[!-~]{1,255}")


async def once(request: Request, said: ParsedRequest, act: Callable[[], Awaitable[Response]]) -> Response:
    """The answer of `act`, or, for a key that is known, the answer that was given before.

    What was refused (4xx) did nothing, and its key may be used again. Raises MalformedRequest, Conflict, and Answered
    with 422 for a key that came with another request.
    """
    key = request.headers.get(HEADER)
    if key is None:
        return await act()
    if not _KEY.fullmatch(key):
        raise MalformedRequest(f"{HEADER} must be 1 to 255 visible characters", value=key)
    parts, loop = offered(request), asyncio.get_running_loop()
    key_hash = _hash((await principal_of(request)).title.encode(), key.encode())
    query = request.scope["query_string"]
    request_hash = _hash(said.route.method.encode(), said.path.encode(), query, await content_of(request))
    try:
        known = await loop.run_in_executor(parts.pool, partial(parts.repeats.begin, key_hash, request_hash))
    except MalformedRequest as error:
        raise HttpError(problem(422, error)) from error
    if known is not None:
        return _again(known)
    try:
        response = await act()
    except HttpError as answered:
        response = answered.response
    except Exception as error:
        response = problem_of(error)
    if 400 <= response.status_code < 500:
        await loop.run_in_executor(parts.pool, partial(parts.repeats.forget, key_hash))
        return response
    content = b"" if said.route.is_secret else bytes(response.body)
    location = response.headers.get("location", "")
    kept = KeptAnswer(response.status_code, response.media_type or "", location, content)
    await loop.run_in_executor(parts.pool, partial(parts.repeats.finish, key_hash, kept))
    return response


def _again(known: KeptAnswer) -> Response:
    if not known.content:
        raise Conflict(
            "this was done already, and its answer held a secret, which is kept nowhere",
            hint="Undo it, then ask with another key.",
        )
    headers = {"Location": known.location} if known.location else {}
    return Response(known.content, known.status, headers, known.media_type)


def _hash(*parts: bytes) -> str:
    return sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).hexdigest()


_JSON = "application/json"
_ENDED = ("success", "partial", "failed", "closed", "commit_unknown", "held")


def routes() -> Sequence[BaseRoute]:
    """The route of everything below /api/v1."""
    return (PrefixRoute(PREFIX, Rest()),)


class Rest:
    """The REST API as an application below its prefix."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except HttpError as answered:
            response = answered.response
        except Exception as error:
            response = problem_of(error)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if request.url.path == f"{PREFIX}/openapi.json" and request.method in ("GET", "HEAD"):
            return Response(openapi.served(), media_type=_JSON)
        said = asked(request)
        await _require_known(request, said.route.operation)  # who is nobody hears nothing of what the request lacks
        match said.route.method:
            case "POST":
                return await once(request, said, lambda: self._change(request, said))
            case "PATCH" | "PUT":
                await message_of(request, said)  # what is wrong with it is told first
                return await self._change(request, said, Condition(request, said))
            case "DELETE":
                return await self._change(request, said)
        return await _look(request, said)

    async def _change(self, request: Request, said: ParsedRequest, condition: "Condition | None" = None) -> Response:
        message, wait = await message_of(request, said)
        try:
            answer: Any = await call(request, said.route.operation, message, condition)
        except AmoroError as error:
            if condition is not None and condition.is_stale:
                raise HttpError(problem(412, error)) from error
            if status_of(error) == 200:
                return _unknown(error)
            raise
        if said.route.lasting and answer.process_id:
            return await _begun(request, said, answer, wait)
        return Response(encoded(document(said.route, answer)), said.route.status, media_type=_JSON)


async def _look(request: Request, said: ParsedRequest) -> Response:
    message, _ = await message_of(request, said)
    answer = await call(request, said.route.operation, message)
    body = listed(said, answer) if said.route.items else document(said.route, answer)
    content = encoded(body)
    headers = {"ETag": tag_of(body, content)}
    if is_paged(said.route) and body["next"]:
        headers["Link"] = link_to_next(said, body["next"])
    if is_tag(request.headers.get("if-none-match", ""), headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=_JSON)


async def _begun(request: Request, said: ParsedRequest, answer: Any, wait: timedelta) -> Response:
    """202 with where the process is, or the document with its end if that comes in time."""
    process = await _end_of(request, answer.process_id, wait) if wait else None
    if process is not None:
        return Response(encoded(document(said.route, answer, process)), media_type=_JSON)
    location = {"Location": f"{PREFIX}/processes/{quote(answer.process_id)}"}
    return Response(encoded(document(said.route, answer)), 202, location, _JSON)


async def _end_of(request: Request, process_id: str, wait: timedelta) -> pb.Process | None:
    deadline = time.monotonic() + wait.total_seconds()
    while (left := deadline - time.monotonic()) > 0:
        wait_ms = max(1, round(min(left, MAX_WAIT_S) * 1000))
        found = await call(request, "GetProcess", pb.GetProcessRequest(process_id=process_id, wait_ms=wait_ms))
        if isinstance(found, pb.Process) and found.status in _ENDED:
            return found
    return None


class Condition:
    """The header If-Match: asked by the operation, in its transaction, of what it is about to change."""

    def __init__(self, request: Request, said: ParsedRequest) -> None:
        """Raises Answered with 428 for a request without the header, and MalformedRequest."""
        given = request.headers.get("if-match")
        if given is None:
            error = MalformedRequest(
                f"{said.route.method} needs the header If-Match",
                hint="Send the ETag that GET of this path has answered.",
            )
            raise HttpError(problem(428, error))
        if not re.match(TAGS, given):
            raise MalformedRequest("If-Match is no entity tag", hint="Send the ETag of the GET.", value=given)
        self._given = given
        self._shown = paths()[said.route.path]["GET"]
        self.is_stale = False  # whether it is another than the tag says

    def __call__(self, message: Message) -> None:
        """Raise Conflict unless the message has the tag."""
        body = document(self._shown, message)
        self.is_stale = not is_unchanged(self._given, tag_of(body, encoded(body)))
        if self.is_stale:
            raise Conflict("it has changed meanwhile", hint="Look at it again, then decide.")


async def _require_known(request: Request, method: str) -> None:
    """Raise UnknownToken unless somebody known asks for the method; if it changes something, the audit has it."""
    try:
        await principal_of(request)
    except UnknownToken as error:
        await offered(request).operations.refuse(method, anonymous(Channel.REST, address_of(request)), error)
        raise


def _unknown(error: AmoroError) -> Response:
    """What was asked for may have been done: no failure, and nothing to repeat."""
    body = {
        "schema": "amoro.unknown/v1",
        "outcome": "unknown",
        "code": error.code,
        "message": error.message,
        "hint": error.hint or error.remedy,
    }
    return Response(encoded(body), media_type=_JSON)
