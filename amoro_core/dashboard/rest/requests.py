"""What a request says: its route by the undecoded path, and the message for its operation."""

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from functools import cache
from typing import Any
from urllib.parse import parse_qs, unquote

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from starlette.requests import Request

from amoro_core.dashboard.rest.cursors import place_of
from amoro_core.dashboard.rest.parameters import Parameter, fill, parameters, require_known
from amoro_core.dashboard.rest.problems import Answered, problem
from amoro_core.dashboard.rest.routes import PREFIX, Route, paths
from amoro_core.errors import MalformedRequest, NotFound
from amoro_core.model.quantities import parse_duration
from amoro_core.protocol import admin_pb2
from amoro_core.records import record

MOST_BYTES = 8 * 1024 * 1024
LONGEST_WAIT = timedelta(minutes=10)
_SERVICE = admin_pb2.DESCRIPTOR.services_by_name["AdminService"]
#: Parameters of the query that are no field of the operation.
WAIT = "wait"


@record
class Asked:
    """A request, taken apart: the texts of its path and query by name."""

    route: Route
    path: str
    in_path: Mapping[str, str]
    query: Mapping[str, Sequence[str]]


def request_type(operation: str) -> Descriptor:
    """The message that the operation takes."""
    found: Descriptor = _SERVICE.methods_by_name[operation].input_type
    return found


def answer_type(operation: str) -> Descriptor:
    """The message that the operation answers."""
    found: Descriptor = _SERVICE.methods_by_name[operation].output_type
    return found


@cache
def known_in_path(route: Route) -> Mapping[str, Parameter]:
    """The parameters that the path names."""
    every = parameters(request_type(route.operation))
    return {name: every[name] for name in route.from_path}


@cache
def known_elsewhere(route: Route) -> Mapping[str, Parameter]:
    """The parameters of the query of a GET or DELETE, or of the body of another method."""
    return parameters(request_type(route.operation), route.from_path)


@cache
def is_paged(route: Route) -> bool:
    """Whether the answer of a GET says where its next page begins."""
    answered = answer_type(route.operation).fields_by_name
    return route.method == "GET" and "after" in known_elsewhere(route) and "next" in answered


def asked(request: Request) -> Asked:
    """The route of the request and its texts.

    Raises MalformedRequest, NotFound for a path that is not known, and Answered with 405 for a method that is not.
    """
    raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    path = raw.partition(b"?")[0].decode("ascii", "replace").removeprefix(PREFIX)
    try:
        # Split before it is decoded: a name may hold a slash.
        segments = [unquote(segment, errors="strict") for segment in path.strip("/").split("/")]
        query = parse_qs(
            request.scope["query_string"].decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100
        )
    except ValueError as error:
        raise MalformedRequest("the address is not UTF-8, percent-encoded", value=repr(raw)) from error
    for known, methods in paths().items():
        found = _match(known.strip("/").split("/"), segments)
        if found is not None:
            method = "GET" if request.method == "HEAD" else request.method
            if method not in methods:
                allowed = {"Allow": ", ".join(sorted(methods))}
                refused = MalformedRequest(f"{request.method} is no method of {path}", value=request.method)
                raise Answered(problem(405, refused, headers=allowed))
            return Asked(methods[method], path, found, query)
    raise NotFound(f"there is no {PREFIX}{path}", hint=f"Every path is in {PREFIX}/openapi.json.")


async def message_of(request: Request, said: Asked) -> tuple[Message, timedelta]:
    """The message for the operation, and how long to wait for the end of what it begins. Raises MalformedRequest."""
    route = said.route
    message = naming(route, said.in_path)
    known, query = known_elsewhere(route), dict(said.query)
    waited = query.pop(WAIT, None) if route.lasting else None
    if route.has_body:
        require_known(query, {WAIT} if route.lasting else (), "the query")
        body = await _body(request)
        fill(message, body, known, "the body")
        _require(route, body, "the body")
        return message, _wait(waited)
    require_known(query, known, "the query")
    await _refuse_body(request)
    _require(route, query, "the query")
    for name, parameter in known.items():
        if name in query:
            parameter.put_texts(message, list(query[name]))
        else:
            parameter.put_default(message)
    if route.items and "after" in query:
        _place(message, said)
    return message, _wait(waited)


def naming(route: Route, in_path: Mapping[str, str]) -> Message:
    """The message of the route's operation with what the path says. Raises MalformedRequest."""
    message: Message = GetMessageClass(request_type(route.operation))()
    for name, parameter in known_in_path(route).items():
        parameter.put_texts(message, [in_path[name]])
    return message


def _require(route: Route, given: Collection[str], where: str) -> None:
    for name in route.required:
        if name not in given:
            raise MalformedRequest(f"{where} lacks {name}", value=name)


def _place(message: Any, said: Asked) -> None:
    message.after = place_of(said.path, said.query, message.after)


def _match(known: Sequence[str], segments: Sequence[str]) -> dict[str, str] | None:
    if len(known) != len(segments):
        return None
    found: dict[str, str] = {}
    for name, segment in zip(known, segments, strict=True):
        if name.startswith("{") and segment:
            found[name[1:-1]] = segment
        elif name != segment:
            return None
    return found


async def _body(request: Request) -> Any:
    content = await content_of(request)
    if not content:
        return {}
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        error = MalformedRequest("the body must be JSON", hint="Send Content-Type: application/json.", value=kind)
        raise Answered(problem(415, error))
    try:
        return json.loads(content, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise MalformedRequest(f"the body is not JSON: {error}") from error


async def _refuse_body(request: Request) -> None:
    if await content_of(request):
        raise MalformedRequest(f"{request.method} takes no body")


async def content_of(request: Request) -> bytes:
    """The body of the request, however often it is asked for. Raises Answered with 413 for a long one."""
    if hasattr(request.state, "content"):
        return bytes(request.state.content)
    found = bytearray()
    async for chunk in request.stream():
        found += chunk
        if len(found) > MOST_BYTES:
            error = MalformedRequest(f"the body has more than {MOST_BYTES} bytes")
            raise Answered(problem(413, error, headers={"Connection": "close"}))
    request.state.content = found
    return bytes(found)


def _wait(texts: Sequence[str] | None) -> timedelta:
    if texts is None:
        return timedelta(0)
    try:
        return min(parse_duration(texts[-1]), LONGEST_WAIT)
    except ValueError as error:
        raise MalformedRequest("wait must be a duration, such as 30s", value=texts[-1]) from error


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number of JSON")
