"""The description of the REST API in OpenAPI 3.1, made of the table of routes and the messages."""

import inspect
import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import Any

from google.protobuf.descriptor import Descriptor

from amoro_core.admin.dispatcher import FUNCTIONS
from amoro_core.documents.json_documents import answer_type, message_schema, schemas
from amoro_core.protocol.operations import OPERATIONS, ROUTES, Route
from amoro_core.web.rest import requests
from amoro_core.web.rest.requests import (
    EVENTS_SCHEMA,
    PREFIX,
    WAIT,
    Schema,
    is_paged,
    object_schema,
    other_parameters,
    path_parameters,
    paths,
)
from amoro_core.web.rest.responses import TAGS, item_schema

_TEXT: Schema = {"type": "string"}
_HEADER_TEXT: Schema = {"schema": _TEXT}
_PROBLEM: Schema = {
    "type": "object",
    "properties": {
        "type": _TEXT,
        "title": _TEXT,
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What happened, why, and to which value."},
        "code": {"type": "string", "pattern": "^AMORO-[0-9]{4}$"},
        "hint": {"type": "string", "description": "What to do."},
        "value": {"description": "What was wrong.", "type": ["string", "number", "boolean"]},
    },
    "required": ["type", "title", "status", "detail", "code", "hint"],
}
_UNKNOWN: Schema = {
    "type": "object",
    "properties": {
        "schema": {"const": "amoro.unknown/v1"},
        "outcome": {"const": "unknown"},
        "code": _TEXT,
        "message": _TEXT,
        "hint": _TEXT,
    },
    "required": ["schema", "outcome", "code", "message", "hint"],
}
#: Operations that commit to a table themselves, whose answer may be lost.
_MAY_BE_UNKNOWN = ("TakeLease", "RenewLease", "ReleaseLease")
_REFUSALS = {
    400: "The request is wrong; `value` is what.",
    401: "No token, or one that is not known.",
    403: "The role of the token is not enough.",
    404: "It does not exist.",
    409: "Something else was first; try again later.",
    422: "It is refused, by name; or the Idempotency-Key came with another request.",
    500: "It could not be done, or an internal error.",
    504: "It did not end in time, and goes on.",
}


@cache
def description() -> dict[str, Any]:
    """The whole description. Keys and their order are the same for the same version."""
    result: dict[str, dict[str, Any]] = {}
    for path, methods in paths().items():
        result[f"{PREFIX}{path}"] = {method.lower(): _operation(route) for method, route in methods.items()}
    shared = _Shared()
    described = {
        "openapi": "3.1.0",
        "info": {
            "title": "Amoro in Python",
            "version": version("amoro"),
            "description": "Everything that the command line and the dashboard do. Within v1 fields are only added.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": shared.named(result),
    }
    documents = shared.named(_documents())
    components = {
        "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        "schemas": {"Problem": _PROBLEM, "Unknown": _UNKNOWN, **documents, **shared.used()},
    }
    return {**described, "components": components}


@cache
def served() -> bytes:
    """The description as it is sent."""
    return json.dumps(description(), separators=(",", ":")).encode()


def _operation(route: Route) -> dict[str, Any]:
    parameters = [_parameter(name, "path", parameter.schema) for name, parameter in path_parameters(route).items()]
    if not route.has_body:
        parameters += [
            _parameter(name, "query", parameter.schema, name in route.required)
            for name, parameter in other_parameters(route).items()
        ]
    if route.lasting:
        parameters.append(_parameter(WAIT, "query", {"type": "string", "pattern": r"^\d+(ms|s|min|m)$"}))
    if route.method == "POST":
        parameters.append(_parameter("Idempotency-Key", "header", {"type": "string", "pattern": "^[!-~]{1,255}$"}))
    if route.method in ("PATCH", "PUT"):
        parameters.append(_parameter("If-Match", "header", {"type": "string", "pattern": TAGS}, True))
    result: dict[str, Any] = {
        "operationId": route.name or route.operation,
        "summary": _summary(route),
        "description": f"Needs the role {OPERATIONS[route.operation].role}.",
        "tags": [route.segments[0]],
        "parameters": parameters,
        "responses": _responses(route),
    }
    if route.has_body:
        body: Schema = {"schema": object_schema(other_parameters(route), route.required)}
        result["requestBody"] = {"required": bool(route.required), "content": {"application/json": body}}
        if route.operation == requests.EVENTS:
            result["requestBody"] = {"required": True, "content": {"application/json": {"schema": EVENTS_SCHEMA}}}
    return result


def _summary(route: Route) -> str:
    text = inspect.getdoc(FUNCTIONS[route.operation]) or ""
    return " ".join(text.split("\n\n")[0].split())


def _parameter(name: str, place: str, schema: Schema, required: bool = False) -> dict[str, Any]:
    single = {"minLength": 1} if place == "path" and schema == _TEXT else {}
    return {"name": name, "in": place, "required": place == "path" or required, "schema": {**schema, **single}}


def _responses(route: Route) -> dict[str, Any]:
    result: dict[str, Any] = {}
    if route.items:
        result["200"] = _answer(
            "A page of the list.", _list_schema(route), {"ETag": _HEADER_TEXT, "Link": _HEADER_TEXT}
        )
    else:
        headers = {"ETag": _HEADER_TEXT} if route.method == "GET" else {}
        headers |= {"Link": _HEADER_TEXT} if is_paged(route) else {}
        result[str(route.status)] = _answer("As asked for.", _document_schema(route), headers)
    if route.lasting:
        result["202"] = _answer("It has begun.", _document_schema(route), {"Location": _HEADER_TEXT})
    if route.operation in _MAY_BE_UNKNOWN:
        unknown: Schema = {"$ref": "#/components/schemas/Unknown"}
        if route.status == 200:
            unknown = {"anyOf": [_document_schema(route), unknown]}
        result["200"] = _answer("As asked for, or it is not known whether it was done.", unknown, {})
    if route.method == "GET":
        result["304"] = {"description": "It is what If-None-Match names.", "headers": {"ETag": _HEADER_TEXT}}
    refusals = {**_REFUSALS}
    if route.method in ("PATCH", "PUT"):
        refusals |= {412: "It has changed meanwhile.", 428: "If-Match is missing."}
    if route.has_body:
        refusals |= {413: "The body is too long.", 415: "The body is not JSON."}
    content = {requests.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for status, text in sorted(refusals.items()):
        result[str(status)] = {"description": text, "content": content}
    return result


def _answer(text: str, schema: Schema, headers: Mapping[str, Any]) -> dict[str, Any]:
    more = {"headers": dict(headers)} if headers else {}
    return {"description": text, **more, "content": {"application/json": {"schema": schema}}}


def _title(schema: str) -> str:
    """The name of a document's component: TableDocument for amoro.table/v1."""
    words = re.split(r"\W", schema.partition(".")[2].partition("/")[0])
    return f"{''.join(map(str.capitalize, words))}Document"


def _document_schema(route: Route) -> Schema:
    return {"$ref": f"#/components/schemas/{_title(route.schema)}"}


def _documents() -> dict[str, Schema]:
    """The documents of all routes by their names."""
    result = {}
    for name in sorted({route.schema for route in ROUTES if not route.items}):
        document = schemas()[name]
        result[_title(name)] = {key: document[key] for key in ("type", "properties", "required")}
    return result


def _list_schema(route: Route) -> Schema:
    properties = {
        "items": {"type": "array", "items": item_schema(route)},
        "next": {"type": ["string", "null"], "description": "The cursor of the next page, for `after`."},
        "total": {"type": "integer"},
        "total_is_exact": {"type": "boolean", "description": "False: there are more."},
    }
    return {"type": "object", "properties": properties, "required": list(properties)}


class _Shared:
    """Schemas of messages, which stand among the components, and are named wherever they occur."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._schemas: dict[str, Schema] = {}
        self._used: dict[str, Any] = {}
        for route in ROUTES:
            self._know(answer_type(route.operation))

    def named(self, value: Any) -> Any:
        """The value with a reference in place of every schema of a message."""
        if isinstance(value, list):
            return [self.named(item) for item in value]
        if not isinstance(value, dict):
            return value
        if name := self._names.get(_key(value)):
            return self._refer(name)
        if value.get("type") == ["object", "null"]:
            single = _key({**value, "type": "object"})
            if name := self._names.get(single):
                return {"anyOf": [self._refer(name), {"type": "null"}]}
            plain = {key: self.named(item) for key, item in value.items()}
            return {"anyOf": [{"additionalProperties": True, **plain, "type": "object"}, {"type": "null"}]}
        return {key: self.named(item) for key, item in value.items()}

    def used(self) -> dict[str, Any]:
        """The components that were referred to, by name."""
        return dict(sorted(self._used.items()))

    def _refer(self, name: str) -> Schema:
        if name not in self._used:
            self._used[name] = {}  # it may refer to itself
            self._used[name] = {key: self.named(item) for key, item in self._schemas[name].items()}
        return {"$ref": f"#/components/schemas/{name}"}

    def _know(self, descriptor: Descriptor) -> None:
        if descriptor.GetOptions().map_entry or descriptor.name in self._schemas:
            return
        schema = message_schema(descriptor)
        self._schemas[descriptor.name] = schema
        self._names.setdefault(_key(schema), descriptor.name)
        for field in descriptor.fields:
            if field.message_type is not None:
                self._know(field.message_type)


def _key(schema: Any) -> str:
    return json.dumps(schema, sort_keys=True)
