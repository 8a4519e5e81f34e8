"""Requests of the REST API: routes, parameters, cursors, errors as problem+json (RFC 9457), and events of others."""

import difflib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from urllib.parse import parse_qs, unquote, unquote_plus

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from starlette.requests import Request
from starlette.responses import Response

from amoro_core.documents.json_documents import answer_type, request_type
from amoro_core.errors import AmoroError, InvalidArgument, MalformedRequest, NotFound, UnknownToken
from amoro_core.logger import get_logger
from amoro_core.model.paging import opened, sealed
from amoro_core.model.properties import parse_duration
from amoro_core.model.text_sanitizing import briefly, without_secrets
from amoro_core.protocol.operations import ROUTES, Route

log = get_logger("amoro.http")

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = "5"
#: The HTTP status of errors by the exit status of a command that they end. 7 is an outcome, not a failure.
STATUSES: Mapping[int, int] = {1: 500, 2: 400, 3: 404, 4: 403, 5: 409, 6: 422, 7: 200, 124: 504}


class HttpError(Exception):
    """Ends a request with this response instead of its operation's."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code)
        self.response = response


def status_of(error: AmoroError) -> int:
    """The HTTP status of the error."""
    return 401 if isinstance(error, UnknownToken) else STATUSES[error.exit_status]


def as_amoro_error(error: BaseException) -> AmoroError:
    """The error; of any other exception an internal error, and the exception is in the log."""
    if isinstance(error, AmoroError):
        return error
    log.exception("request.failed", exc_info=error)
    text = without_secrets(f"internal error: {type(error).__name__}: {error}")
    return AmoroError(text, hint="The coordinator's log has more.")


def problem_of(error: BaseException) -> Response:
    """The problem document for the error."""
    refusal = as_amoro_error(error)
    return problem(status_of(refusal), refusal)


def problem(status: int, error: AmoroError, headers: Mapping[str, str] | None = None) -> Response:
    """The answer with that status, and the error's code, message, hint, and value if it has one."""
    body = {
        "type": f"urn:amoro:error:{error.code}",
        "title": re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__).lower(),
        "status": status,
        "detail": error.message,
        "code": error.code,
        "hint": error.hint or error.remedy,
    }
    value = getattr(error, "value", None)
    if isinstance(value, bool | int | float):
        body["value"] = value
    elif value is not None:
        body["value"] = briefly(value if isinstance(value, str) else repr(value))
    own = {401: {"WWW-Authenticate": "Bearer"}, 409: {"Retry-After": RETRY_AFTER_S}}.get(status, {})
    content = json.dumps(body, separators=(",", ":"))
    return Response(content, status, {**own, **(headers or {})}, MEDIA_TYPE)


Schema = dict[str, Any]

#: Integer fields: minimum, maximum, default.
_BOUNDED = {"limit": (1, 500, 50), "lines": (1, 10_000, 100)}
#: Requests name times by these, all other `_ms` are durations.
_TIMES = re.compile(r"(since|until|before|after|at)_ms$")
_DURATION = r"^(\d+(\.\d+)?(ms|s|min|m|h|d))+$"
_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A field of a request under its name in REST."""

    name: str
    field: FieldDescriptor

    @property
    def schema(self) -> Schema:
        """The JSON Schema of a value in a body or a query."""
        if is_map(self.field):
            return {"type": "object", "additionalProperties": {"type": "string"}}
        single = _single_schema(self.field)
        return {"type": "array", "items": single} if self.field.is_repeated else single

    def put(self, message: Message, value: Any) -> None:
        """Set the field to a value of a body. Raises MalformedRequest."""
        if is_map(self.field):
            getattr(message, self.field.name).update(self._texts(value))
        elif self.field.is_repeated:
            if not isinstance(value, list):
                raise MalformedRequest(f"{self.name} must be a list", value=value)
            self._put_all(message, value)
        elif self.field.message_type is not None:
            fill(getattr(message, self.field.name), value, parameters(self.field.message_type), self.name)
            getattr(message, self.field.name).SetInParent()
        else:
            setattr(message, self.field.name, self._scalar(value))

    def put_texts(self, message: Message, texts: list[str]) -> None:
        """Set the field from a path or a query. Raises MalformedRequest."""
        if self.field.is_repeated:
            self._put_all(message, [_read(self.field, text, self.name) for text in texts])
            return
        if len(texts) > 1:
            raise MalformedRequest(f"{self.name} is given {len(texts)} times", value=texts[1])
        setattr(message, self.field.name, self._scalar(_read(self.field, texts[0], self.name)))

    def _put_all(self, message: Message, values: list[Any]) -> None:
        target = getattr(message, self.field.name)
        kind = self.field.message_type
        for value in values:
            if kind is None:
                target.append(self._scalar(value))
            else:
                fill(target.add(), value, parameters(kind), self.name)

    def _texts(self, value: Any) -> dict[str, str]:
        if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
            raise MalformedRequest(f"{self.name} must be an object whose values are texts", value=value)
        return {_encodable(key, self.name): _encodable(text, self.name) for key, text in value.items()}

    def _scalar(self, value: Any) -> Any:
        if self.field.name.endswith("_ms"):
            return _milliseconds(self, value)
        kind = self.field.cpp_type
        if kind == FieldDescriptor.CPPTYPE_STRING:
            if not isinstance(value, str):
                raise MalformedRequest(f"{self.name} must be a text", value=value)
            return _encodable(value, self.name)
        if kind == FieldDescriptor.CPPTYPE_BOOL:
            if not isinstance(value, bool):
                raise MalformedRequest(f"{self.name} must be true or false", value=value)
            return value
        if kind in _INTEGERS:
            least, most = bounds(self.field)
            if isinstance(value, float) and value.is_integer():
                value = int(value)  # 1.0 is an integer for JSON Schema
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise MalformedRequest(f"{self.name} must be a whole number from {least} to {most}", value=value)
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise MalformedRequest(f"{self.name} must be a number", value=value)
        return float(value)


def parameters(descriptor: Descriptor, without: Collection[str] = ()) -> dict[str, Parameter]:
    """The parameters of a message by their names in REST."""
    result = (Parameter(field.name.removesuffix("_ms"), field) for field in descriptor.fields)
    return {parameter.name: parameter for parameter in result if parameter.field.name not in without}


def fill(message: Message, value: Any, parameters: Mapping[str, Parameter], where: str) -> None:
    """Set the fields of the message to those of a JSON object. Raises MalformedRequest, also for unknown keys."""
    if not isinstance(value, dict):
        raise MalformedRequest(f"{where} must be an object", value=value)
    require_names(value, parameters, where)
    for name, item in value.items():
        parameters[name].put(message, item)


def require_names(names: Iterable[str], allowed: Collection[str], where: str) -> None:
    """Raise MalformedRequest for the first unknown name; the hint has the nearest one."""
    for name in names:
        if name not in allowed:
            close = difflib.get_close_matches(name, allowed, n=1)
            text = ", ".join(sorted(allowed))
            hint = f"Did you mean {close[0]}?" if close else f"Known: {text}." if text else "It takes none."
            raise MalformedRequest(f"{where} has the unknown key {name!r}", hint=hint, value=name)


def is_map(field: FieldDescriptor) -> bool:
    """Whether the field is a map, whose values are texts."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def bounds(field: FieldDescriptor) -> tuple[int, int]:
    """The least and the most that a field of whole numbers takes."""
    least, most, _ = _BOUNDED.get(field.name, (*_INTEGERS[field.cpp_type], 0))
    return least, most


def object_schema(parameters: Mapping[str, Parameter], required: Sequence[str] = ()) -> Schema:
    """The JSON Schema of a body with these parameters."""
    properties = {name: parameter.schema for name, parameter in parameters.items()}
    needed = {"required": list(required)} if required else {}
    return {"type": "object", "properties": properties, **needed, "additionalProperties": False}


def _single_schema(field: FieldDescriptor) -> Schema:
    if field.message_type is not None:
        return object_schema(parameters(field.message_type))
    if field.name.endswith("_ms"):
        if _TIMES.search(field.name):
            return {"type": "string", "format": "date-time"}
        return {"type": "string", "pattern": _DURATION, "examples": ["30s"]}
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return {"type": "string"}
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return {"type": "boolean"}
    if kind in _INTEGERS:
        least, most = bounds(field)
        default = {"default": _BOUNDED[field.name][2]} if field.name in _BOUNDED else {}
        return {"type": "integer", "minimum": least, "maximum": most, **default}
    return {"type": "number"}


def _read(field: FieldDescriptor, text: str, name: str) -> Any:
    """The value that a text of a path or query stands for."""
    kind = field.cpp_type
    if field.name.endswith("_ms") or kind == FieldDescriptor.CPPTYPE_STRING:
        return text
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return {"true": True, "false": False}.get(text, text)
    if kind in _INTEGERS:
        return int(text) if re.fullmatch(r"-?[0-9]{1,20}", text) else text
    try:
        return float(text)
    except ValueError as error:
        raise MalformedRequest(f"{name} must be a number", value=text) from error


def _milliseconds(parameter: Parameter, value: Any) -> int:
    text = f"{parameter.name} must be "
    if not isinstance(value, str):
        raise MalformedRequest(f"{text}a text", value=value)
    if not _TIMES.search(parameter.field.name):
        try:
            return round(parse_duration(value).total_seconds() * 1000)
        except ValueError as error:
            raise MalformedRequest(f"{text}a duration above zero and at most 365d, such as 30s", value=value) from error
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            raise ValueError(value)
        return round(moment.astimezone(UTC).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise MalformedRequest(f"{text}a time such as 2026-11-22T08:00:00Z", value=value) from error


def _encodable(text: str, name: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise MalformedRequest(f"{name} holds half of a surrogate pair", value=ascii(text)) from error
    return text


PREFIX = "/api/v1"


@cache
def paths() -> Mapping[str, Mapping[str, Route]]:
    """The routes by path, then by method."""
    result: dict[str, dict[str, Route]] = {}
    for route in ROUTES:
        result.setdefault(route.path, {})[route.method] = route
    return result


def cursor_of(path: str, filters: Mapping[str, Sequence[str]], place: str) -> str:
    """The cursor of the place in the list of that path with those filters."""
    return sealed(_scope(path, filters), (place,))


def _place_of(parsed: "ParsedRequest", cursor: str) -> str:
    """The place that the cursor stands for. Raises MalformedRequest for one of another list, and for a broken one."""
    try:
        (place,) = opened(cursor, _scope(parsed.path, parsed.query), (str,))
    except InvalidArgument as error:
        raise MalformedRequest(f"after: {error.message}", hint=error.hint, value=cursor) from error
    return str(place)


def _scope(path: str, filters: Mapping[str, Sequence[str]]) -> list[object]:
    return [path, sorted((name, list(values)) for name, values in filters.items() if name not in ("after", "limit"))]


MOST_BYTES = 8 * 1024 * 1024
LONGEST_WAIT = timedelta(minutes=10)
#: Parameters of the query that are no field of the operation.
WAIT = "wait"
#: The operation whose bodies have the shapes of their senders.
EVENTS = "ReceiveEvents"


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """A parsed request: its route, and the texts of path and query by name."""

    route: Route
    path: str
    in_path: Mapping[str, str]
    query: Mapping[str, Sequence[str]]


@cache
def path_parameters(route: Route) -> Mapping[str, Parameter]:
    """The parameters that the path names."""
    fields = parameters(request_type(route.operation))
    return {name: fields[name] for name in route.from_path}


@cache
def other_parameters(route: Route) -> Mapping[str, Parameter]:
    """The parameters of the query of a GET or DELETE, or of the body of another method."""
    return parameters(request_type(route.operation), route.from_path)


@cache
def is_paged(route: Route) -> bool:
    """Whether a GET answers in pages."""
    answered = answer_type(route.operation).fields_by_name
    return route.method == "GET" and "after" in other_parameters(route) and "next" in answered


def parse_request(request: Request) -> ParsedRequest:
    """The route of the request and its texts.

    Raises MalformedRequest, NotFound for an unknown path, and HttpError with 405 for a wrong method.
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
    for template, methods in paths().items():
        result = _match(template.strip("/").split("/"), segments)
        if result is not None:
            method = "GET" if request.method == "HEAD" else request.method
            if method not in methods:
                allowed = {"Allow": ", ".join(sorted(methods))}
                refused = MalformedRequest(f"{request.method} is not a method of {path}", value=request.method)
                raise HttpError(problem(405, refused, headers=allowed))
            return ParsedRequest(methods[method], path, result, query)
    raise NotFound(f"there is no {PREFIX}{path}", hint=f"Every path is in {PREFIX}/openapi.json.")


async def message_of(request: Request, parsed: ParsedRequest) -> tuple[Message, timedelta]:
    """The operation's message, and how long to wait for the process that it starts. Raises MalformedRequest."""
    route = parsed.route
    message: Any = GetMessageClass(request_type(route.operation))()
    for name, parameter in path_parameters(route).items():
        parameter.put_texts(message, [parsed.in_path[name]])
    parameters, query = other_parameters(route), dict(parsed.query)
    waited = query.pop(WAIT, None) if route.lasting else None
    if route.has_body:
        require_names(query, {WAIT} if route.lasting else (), "the query")
        body = await (_events(request) if route.operation == EVENTS else _body(request))
        fill(message, body, parameters, "the body")
        _require(route, body, "the body")
        return message, _wait(waited)
    require_names(query, parameters, "the query")
    if await content_of(request):
        raise MalformedRequest(f"{request.method} takes no body")
    _require(route, query, "the query")
    for name, parameter in parameters.items():
        if name in query:
            parameter.put_texts(message, list(query[name]))
        elif parameter.field.name in _BOUNDED:
            setattr(message, parameter.field.name, _BOUNDED[parameter.field.name][2])
    if route.items and "after" in query:
        message.after = _place_of(parsed, message.after)
    return message, _wait(waited)


def _require(route: Route, given: Collection[str], where: str) -> None:
    for name in route.required:
        if name not in given:
            raise MalformedRequest(f"{where} lacks {name}", value=name)


def _match(template: Sequence[str], segments: Sequence[str]) -> dict[str, str] | None:
    if len(template) != len(segments):
        return None
    result: dict[str, str] = {}
    for name, segment in zip(template, segments, strict=True):
        if name.startswith("{") and segment:
            result[name[1:-1]] = segment
        elif name != segment:
            return None
    return result


async def _events(request: Request) -> Any:
    """The body of events in the shapes of their senders. Raises HttpError with 413 for one that is too long."""
    is_long = len(await content_of(request)) > MOST_EVENT_BYTES
    events = {} if is_long else events_of(await _body(request, MEDIA_TYPES))
    if is_long or len(events["events"]) + events["ignored"] > MOST_EVENTS:
        limits = f"{MOST_EVENT_BYTES} bytes or {MOST_EVENTS} events"
        raise HttpError(problem(413, MalformedRequest(f"the body has more than {limits}", hint="Send it in parts.")))
    return events


async def _body(request: Request, kinds: Collection[str] = ("application/json",)) -> Any:
    content = await content_of(request)
    if not content:
        return {}
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in kinds:
        error = MalformedRequest("the body must be JSON", hint="Send Content-Type: application/json.", value=kind)
        raise HttpError(problem(415, error))
    try:
        return json.loads(content, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise MalformedRequest(f"the body is not JSON: {error}") from error


async def content_of(request: Request) -> bytes:
    """The body of the request, read once. Raises HttpError with 413 for one that is too long."""
    if not hasattr(request.state, "content"):
        try:
            request.state.content = await limited_content(request, MOST_BYTES)
        except MalformedRequest as error:
            raise HttpError(problem(413, error, headers={"Connection": "close"})) from error
    return bytes(request.state.content)


async def limited_content(request: Request, most: int) -> bytes:
    """The body of the request. Raises MalformedRequest for one of more bytes."""
    result = bytearray()
    async for chunk in request.stream():
        result += chunk
        if len(result) > most:
            raise MalformedRequest(f"the body has more than {most} bytes")
    return bytes(result)


def _wait(texts: Sequence[str] | None) -> timedelta:
    if texts is None:
        return timedelta(0)
    try:
        return min(parse_duration(texts[-1]), LONGEST_WAIT)
    except ValueError as error:
        raise MalformedRequest("wait must be a duration, such as 30s", value=texts[-1]) from error


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number of JSON")


MOST_EVENT_BYTES = 1 << 20  # of a body
MOST_EVENTS = 1000
#: Of a body.
MEDIA_TYPES = ("application/json", "application/cloudevents+json", "application/cloudevents-batch+json")
_SHAPES = (
    "CloudEvents 1.0, one or a list (the table in data.table, else subject), Records of S3 or MinIO, or an event of "
    "EventBridge"
)
#: The JSON Schema of a body.
EVENTS_SCHEMA: dict[str, Any] = {
    "description": f"{_SHAPES}.",
    "anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}, "maxItems": MOST_EVENTS}],
}
#: The metadata file of a commit; every other object belongs to no commit yet.
_METADATA = re.compile(r".*/metadata/[^/]+\.metadata\.json", re.DOTALL)


def events_of(body: Any) -> dict[str, Any]:
    """The body as the JSON of a ReceiveEventsRequest; events of other objects than new metadata files are counted only.

    Raises MalformedRequest for a body with an event of another shape, or without a table.
    """
    match body:
        case {"Records": [*items]} | [*items]:
            pass
        case _:
            items = [body]
    events = [_event(item, f"event {number}") for number, item in enumerate(items, 1)]
    named = [event for event in events if event]
    return {"events": named, "ignored": len(events) - len(named)}


def _event(item: Any, name: str) -> dict[str, str]:
    """The event's table, or the path of its object; empty where that is no new metadata file."""
    match item:
        case {"specversion": "1.0", "id": str(), "source": str(), "type": str()}:
            data = item.get("data")
            table = (data.get("table") if isinstance(data, Mapping) else None) or item.get("subject")
            if table and isinstance(table, str):
                return {"table": table}
            raise MalformedRequest(f"{name} names no table", hint="Name it in data.table or subject.", value=item["id"])
        case {"eventName": str() as kind, "s3": {"bucket": {"name": str() as bucket}, "object": {"key": str() as key}}}:
            key = unquote_plus(key)
        case {
            "detail-type": str() as kind,
            "detail": {"bucket": {"name": str() as bucket}, "object": {"key": str() as key}},
        }:
            pass  # EventBridge does not encode keys
        case _:
            raise MalformedRequest(f"{name} has no shape that is known", hint=f"Send {_SHAPES}.", value=item)
    path = f"s3://{bucket}/{key}" if bucket else f"/{key.lstrip('/')}"
    return {"path": path} if "ObjectCreated" in kind.replace(" ", "") and _METADATA.fullmatch(path) else {}
