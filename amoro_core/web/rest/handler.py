"""The REST API: requests become calls of the AdminService, answers become JSON; keys and tags guard repetitions."""

import asyncio
import json
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
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from amoro_core.admin.dispatcher import MAX_WAIT_S
from amoro_core.errors import AmoroError, Conflict, MalformedRequest, UnknownToken
from amoro_core.model.principals import Channel, StoredAnswer, anonymous
from amoro_core.model.scan_stats import filters_of_report
from amoro_core.model.tables import TableIdentifier
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.web.app_context import bearer, call, context_of, principal_of
from amoro_core.web.login import address_of
from amoro_core.web.middleware import PrefixRoute
from amoro_core.web.rest import openapi
from amoro_core.web.rest.requests import (
    PREFIX,
    HttpError,
    ParsedRequest,
    content_of,
    is_paged,
    message_of,
    parse_request,
    paths,
    problem,
    problem_of,
    status_of,
)
from amoro_core.web.rest.responses import TAGS, document, encoded, is_tag, is_unchanged, link_to_next, listed, tag_of

HEADER = "Idempotency-Key"
_KEY = re.compile(r"[!-~]{1,255}")


async def answer_once(request: Request, parsed: ParsedRequest, act: Callable[[], Awaitable[Response]]) -> Response:
    """The answer of `act`, or for a known key the earlier answer.

    A refused request (4xx) changed nothing, and its key may be used again. Raises MalformedRequest, Conflict, and
    HttpError with 422 for a key that came with another request.
    """
    key = request.headers.get(HEADER)
    if key is None:
        return await act()
    if not _KEY.fullmatch(key):
        raise MalformedRequest(f"{HEADER} must be 1 to 255 visible characters", value=key)
    parts, loop = context_of(request), asyncio.get_running_loop()
    key_hash = _hash((await principal_of(request)).title.encode(), key.encode())
    query = request.scope["query_string"]
    request_hash = _hash(parsed.route.method.encode(), parsed.path.encode(), query, await content_of(request))
    try:
        earlier = await loop.run_in_executor(parts.pool, partial(parts.repeats.begin, key_hash, request_hash))
    except MalformedRequest as error:
        raise HttpError(problem(422, error)) from error
    if earlier is not None:
        return _repeated(earlier)
    response = await _response(act())
    if 400 <= response.status_code < 500:
        await loop.run_in_executor(parts.pool, partial(parts.repeats.forget, key_hash))
        return response
    content = b"" if parsed.route.is_secret else bytes(response.body)
    location = response.headers.get("location", "")
    stored = StoredAnswer(response.status_code, response.media_type or "", location, content)
    await loop.run_in_executor(parts.pool, partial(parts.repeats.finish, key_hash, stored))
    return response


async def _response(answer: Awaitable[Response]) -> Response:
    """The answer, or the problem that it has met."""
    try:
        return await answer
    except HttpError as answered:
        return answered.response
    except Exception as error:
        return problem_of(error)


def _repeated(stored: StoredAnswer) -> Response:
    if not stored.content:
        raise Conflict(
            "this was done already; its answer held a secret, which is not stored",
            hint="Undo it, then ask with another key.",
        )
    headers = {"Location": stored.location} if stored.location else {}
    return Response(stored.content, stored.status, headers, stored.media_type)


def _hash(*parts: bytes) -> str:
    return sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).hexdigest()


_JSON = "application/json"
_ENDED = ("success", "partial", "failed", "closed", "commit_unknown", "held")


def routes() -> Sequence[BaseRoute]:
    """The route of everything below /api/v1."""
    return (PrefixRoute(PREFIX, _rest),)


async def _rest(scope: Scope, receive: Receive, send: Send) -> None:
    """The REST API as an application below its prefix."""
    response = await _response(_answer(Request(scope, receive)))
    await response(scope, receive, send)


async def _answer(request: Request) -> Response:
    if request.url.path == f"{PREFIX}/openapi.json" and request.method in ("GET", "HEAD"):
        return Response(openapi.served(), media_type=_JSON)
    parsed = parse_request(request)
    await _require_account(request, parsed.route.operation)  # before anything is said about the request
    match parsed.route.method:
        case "POST":
            return await answer_once(request, parsed, lambda: _change(request, parsed))
        case "PATCH" | "PUT":
            await message_of(request, parsed)  # a malformed body is reported before a missing tag
            return await _change(request, parsed, Condition(request, parsed))
        case "DELETE":
            return await _change(request, parsed)
    return await _read(request, parsed)


async def _change(request: Request, parsed: ParsedRequest, condition: "Condition | None" = None) -> Response:
    message, wait = await message_of(request, parsed)
    try:
        answer: Any = await call(request, parsed.route.operation, message, condition)
    except AmoroError as error:
        if condition is not None and condition.is_stale:
            raise HttpError(problem(412, error)) from error
        if status_of(error) == 200:
            return _unknown(error)
        raise
    if parsed.route.lasting and answer.process_id:
        return await _accepted(request, parsed, answer, wait)
    return Response(encoded(document(parsed.route, answer)), parsed.route.status, media_type=_JSON)


async def _read(request: Request, parsed: ParsedRequest) -> Response:
    message, _ = await message_of(request, parsed)
    answer = await call(request, parsed.route.operation, message)
    body = listed(parsed, answer) if parsed.route.items else document(parsed.route, answer)
    content = encoded(body)
    headers = {"ETag": tag_of(body, content)}
    if is_paged(parsed.route) and body["next"]:
        headers["Link"] = link_to_next(parsed, body["next"])
    if is_tag(request.headers.get("if-none-match", ""), headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=_JSON)


async def _accepted(request: Request, parsed: ParsedRequest, answer: Any, wait: timedelta) -> Response:
    """202 with the location of the process, or its document if it ends in time."""
    process = await _end_of(request, answer.process_id, wait) if wait else None
    if process is not None:
        return Response(encoded(document(parsed.route, answer, process)), media_type=_JSON)
    location = {"Location": f"{PREFIX}/processes/{quote(answer.process_id)}"}
    return Response(encoded(document(parsed.route, answer)), 202, location, _JSON)


async def _end_of(request: Request, process_id: str, wait: timedelta) -> pb.Process | None:
    deadline = time.monotonic() + wait.total_seconds()
    while (seconds := deadline - time.monotonic()) > 0:
        wait_ms = max(1, round(min(seconds, MAX_WAIT_S) * 1000))
        response = await call(request, "GetProcess", pb.GetProcessRequest(process_id=process_id, wait_ms=wait_ms))
        if isinstance(response, pb.Process) and response.status in _ENDED:
            return response
    return None


class Condition:
    """The header If-Match, which the operation checks in its transaction against what it is about to change."""

    def __init__(self, request: Request, parsed: ParsedRequest) -> None:
        """Raises HttpError with 428 for a request without the header, and MalformedRequest."""
        given = request.headers.get("if-match")
        if given is None:
            error = MalformedRequest(
                f"{parsed.route.method} needs the header If-Match",
                hint="Send the ETag that GET of this path has answered.",
            )
            raise HttpError(problem(428, error))
        if not re.match(TAGS, given):
            raise MalformedRequest("If-Match is no entity tag", hint="Send the ETag of the GET.", value=given)
        self._given = given
        self._shown = paths()[parsed.route.path]["GET"]
        self.is_stale = False  # whether the tag no longer matches

    def __call__(self, message: Message) -> None:
        """Raise Conflict unless the message has the tag."""
        body = document(self._shown, message)
        self.is_stale = not is_unchanged(self._given, tag_of(body, encoded(body)))
        if self.is_stale:
            raise Conflict("it has changed meanwhile", hint="Look at it again, then decide.")


async def _require_account(request: Request, method: str) -> None:
    """Raise UnknownToken without a valid account; a refused change is recorded in the audit."""
    try:
        await principal_of(request)
    except UnknownToken as error:
        await context_of(request).operations.refuse(method, anonymous(Channel.REST, address_of(request)), error)
        raise


def _unknown(error: AmoroError) -> Response:
    """The answer when the outcome is unknown: no failure, and nothing to repeat."""
    body = {
        "schema": "amoro.unknown/v1",
        "outcome": "unknown",
        "code": error.code,
        "message": error.message,
        "hint": error.hint or error.remedy,
    }
    return Response(encoded(body), media_type=_JSON)


#: Between the parts of a namespace.
_SEPARATOR = "\x1f"
SCAN_REPORTS_PATH = "/iceberg/v1/{catalog}/namespaces/{namespace}/tables/{table}/metrics"


def scan_report_routes() -> Sequence[BaseRoute]:
    """The route of reports; its catalog is the prefix of the protocol."""
    places = (SCAN_REPORTS_PATH, SCAN_REPORTS_PATH.replace("/iceberg", "/api/iceberg/rest", 1))
    return [Route(place, _report, methods=["POST"]) for place in places]


async def _report(request: Request) -> Response:
    return await _response(_learned(request))


async def _learned(request: Request) -> Response:
    operations = context_of(request).operations
    address = address_of(request)
    try:
        principal = await operations.admit(bearer(request), Channel.REST, address)
    except UnknownToken as error:
        await operations.refuse("LearnScans", anonymous(Channel.REST, address), error)
        raise
    try:
        report = json.loads(await content_of(request))
    except (ValueError, RecursionError) as error:
        raise MalformedRequest("the report is no JSON") from error
    filters = filters_of_report(report)
    if filters is not None:
        path = request.path_params
        table = TableIdentifier(path["catalog"], tuple(path["namespace"].split(_SEPARATOR)), path["table"])
        values = [pb.ScanFilter(column=condition.column, operator=condition.operator.value) for condition in filters]
        message = pb.LearnScansRequest(table=str(table), scans=[pb.ToldScan(filters=values, scans=1)])
        await operations.call("LearnScans", message, principal)
    return Response(status_code=204)
