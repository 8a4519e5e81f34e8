"""Iceberg's REST protocol for catalogs of the kind `internal`, below /iceberg and /api/iceberg/rest.

The prefix is the catalog. Views, vended credentials and OAuth tokens are not offered, and not advertised.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as column
from functools import partial
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, quote, unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from amoro_core.admin.context import Services
from amoro_core.errors import (
    AlreadyExists,
    AmoroError,
    CommitConflict,
    CommitUnknown,
    Conflict,
    DataFileMissing,
    InvalidArgument,
    NamespaceNotFound,
    NotAllowed,
    NotFound,
    TableNotFound,
    TableRefused,
    UnknownToken,
)
from amoro_core.model.paging import opened, sealed
from amoro_core.model.principals import Channel, Role, anonymous
from amoro_core.model.tables import TableIdentifier
from amoro_core.services.catalogs import InternalCatalog, InternalCatalogService, TableChange, TableState
from amoro_core.web.app_context import bearer, context_of
from amoro_core.web.login import address_of
from amoro_core.web.middleware import PrefixRoute
from amoro_core.web.rest.requests import as_amoro_error, limited_content, status_of

PREFIXES = ("/iceberg", "/api/iceberg/rest")
MOST_BYTES = 16 * 1024 * 1024
MOST_ITEMS = 1000  # of a page
_LEVELS = "\x1f"  # between the levels of a namespace
#: Iceberg's type of errors; the first class that fits counts.
_TYPES: Mapping[type[AmoroError], str] = {
    UnknownToken: "NotAuthorizedException",
    NotAllowed: "ForbiddenException",
    TableNotFound: "NoSuchTableException",
    NamespaceNotFound: "NoSuchNamespaceException",
    NotFound: "NotFoundException",
    DataFileMissing: "NotFoundException",
    AlreadyExists: "AlreadyExistsException",
    CommitConflict: "CommitFailedException",
    Conflict: "NamespaceNotEmptyException",
    InvalidArgument: "BadRequestException",
    TableRefused: "BadRequestException",
}
#: Where it is another than in our own API; 500 and 504 tell clients that the outcome of a commit is unknown.
_STATUSES: Mapping[type[AmoroError], int] = {DataFileMissing: 404, TableRefused: 400, CommitUnknown: 500}


@dataclass(slots=True)
class _Call:
    """A request of a catalog: what its path, query and body name."""

    catalog: str
    space: tuple[str, ...]
    table: str
    query: Mapping[str, str]
    body: Mapping[str, Any]
    known_tag: str  # If-None-Match
    own: InternalCatalogService = column(init=False)
    opened: InternalCatalog = column(init=False)  # while it is answered

    def answered(self, services: Services, function: Callable[["_Call"], Any]) -> Response:
        self.own = services.own_catalogs
        with self.own.opened(self.catalog) as (self.opened, _):
            answer = function(self)
        if answer is None:
            return Response(status_code=204)
        return answer if isinstance(answer, Response) else _json(answer)

    def properties(self) -> dict[str, str]:
        return self.opened.namespace_properties(self.space)

    @property
    def name(self) -> tuple[str, ...]:
        return (*self.space, self.table)

    def text(self, key: str) -> str:
        if not isinstance(text := self.body.get(key), str) or not text:
            raise InvalidArgument(f"Cannot parse {key}: expected a text, found {text!r:.100}")
        return text


def _objects(value: Any) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise InvalidArgument(f"expected a list of JSON objects, found {value!r:.100}")
    return value


def _name_of(value: Any) -> tuple[str, ...]:
    """The name in a TableIdentifier of the protocol."""
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
        raise InvalidArgument(f"{value!r:.200} names no table")
    return (*_space_of(value), value["name"])


def _space_of(value: Mapping[str, Any]) -> tuple[str, ...]:
    space = value.get("namespace")
    if not isinstance(space, list) or not space or not all(isinstance(level, str) and level for level in space):
        raise InvalidArgument(f"Cannot parse namespace: expected a list of texts, found {space!r:.100}")
    return tuple(space)


def _json(content: Any, status: int = 200) -> Response:
    return Response(json.dumps(content, separators=(",", ":")), status, media_type="application/json")


def _page(call: _Call, key: str, items: list[list[str]], document_of: Callable[[list[str]], Any]) -> Response:
    """All items, which are sorted; or those after a page's token."""
    token, scope, following = call.query.get("pageToken"), [call.catalog, key, *call.space], None
    if token is not None:
        after = json.loads(str(opened(token, scope, (str,))[0])) if token else []
        size = call.query.get("pageSize", str(MOST_ITEMS))
        if not size.isascii() or not size.isdigit() or int(size) < 1:
            raise InvalidArgument(f"pageSize {size!r:.100} is not a number above zero")
        rest = [item for item in items if item > after]
        items = rest[: min(int(size), MOST_ITEMS)]
        following = sealed(scope, (json.dumps(items[-1]),)) if len(items) < len(rest) else None
    return _json({key: [document_of(item) for item in items], "next-page-token": following})


def _list_namespaces(call: _Call) -> Response:
    parent = tuple(call.query["parent"].split(_LEVELS)) if call.query.get("parent") else ()
    return _page(call, "namespaces", [*map(list, call.opened.namespaces(parent))], lambda item: item)


def _create_namespace(call: _Call) -> dict[str, Any]:
    space, properties = _space_of(call.body), _texts(call.body.get("properties"))
    call.opened.add_namespace(space, properties)
    return {"namespace": space, "properties": properties}


def _update_namespace(call: _Call) -> dict[str, Any]:
    updates, removals = _texts(call.body.get("updates")), call.body.get("removals") or []
    if both := sorted(updates.keys() & set(removals)):
        raise InvalidArgument(f"Invalid namespace update, cannot both set and remove: {both}")
    before = call.opened.change_namespace(call.space, updates, removals)
    removed = [removal for removal in removals if removal in before]
    return {"updated": [*updates], "removed": removed, "missing": [item for item in removals if item not in before]}


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value or {}, Mapping) or not all(isinstance(text, str) for text in (value or {}).values()):
        raise InvalidArgument(f"the values of properties must be texts: {value!r:.100}")
    return dict(value or {})


def _list_tables(call: _Call) -> Response:
    items = [[name] for name in call.opened.tables(call.space)]
    return _page(call, "identifiers", items, lambda item: {"namespace": call.space, "name": item[0]})


def _loaded(state: TableState, mode: str = "") -> Response:
    location = json.dumps(state.metadata_location).encode()
    content = b'{"metadata-location":%s,"metadata":%s,"config":{}}' % (location, state.content)
    return Response(content, headers={"ETag": _tag(state.metadata_location, mode)}, media_type="application/json")


def _tag(location: str, mode: str) -> str:
    return f'"{sha256(f"{mode} {location}".encode()).hexdigest()[:32]}"'


def _load_table(call: _Call) -> Response:
    mode, location = "refs" if call.query.get("snapshots") == "refs" else "", call.opened.pointer(call.name)
    if call.known_tag == (tag := _tag(location, mode)):
        return Response(status_code=304, headers={"ETag": tag})
    state = call.opened.read(location)
    if mode:
        metadata = json.loads(state.content)
        needed = {ref["snapshot-id"] for ref in metadata.get("refs", {}).values()}
        metadata["snapshots"] = [item for item in metadata.get("snapshots", ()) if item["snapshot-id"] in needed]
        state = TableState(location, json.dumps(metadata).encode())
    return _loaded(state, mode)


def _require(call: _Call) -> None:
    call.opened.pointer(call.name) if call.table else call.properties()


def _create_table(call: _Call) -> Any:
    name = (*call.space, call.text("name"))
    metadata = call.own.new_metadata(call.catalog, name, call.body)
    if call.body.get("stage-create"):
        return {"metadata": metadata, "config": {}}
    return _loaded(call.own.create(call.catalog, name, metadata))


def _register_table(call: _Call) -> Response:
    name, location = (*call.space, call.text("name")), call.text("metadata-location")
    return _loaded(call.own.register(call.catalog, name, location, overwrite=call.body.get("overwrite") is True))


def _change(name: tuple[str, ...], body: Mapping[str, Any]) -> TableChange:
    return TableChange(name, _objects(body.get("requirements") or []), _objects(body.get("updates") or []))


def _changes(call: _Call) -> list[TableChange]:
    return [_change(_name_of(item.get("identifier")), item) for item in _objects(call.body.get("table-changes"))]


def _commit_table(call: _Call) -> Response:
    return _loaded(call.own.commit(call.catalog, [_change(call.name, call.body)])[0])


def _commit_transaction(call: _Call) -> None:
    call.own.commit(call.catalog, _changes(call))


def _renamed(call: _Call) -> list[tuple[str, ...]]:
    return [_name_of(call.body.get("source")), _name_of(call.body.get("destination"))]


_SPACES, _SPACE = "/namespaces", "/namespaces/{namespace}"
_TABLES, _TABLE = f"{_SPACE}/tables", f"{_SPACE}/tables/{{table}}"
_Targets = Callable[[_Call], list[tuple[str, ...]]]


def _of_path(call: _Call) -> list[tuple[str, ...]]:
    """The table, or of a namespace a name that patterns of the whole namespace match."""
    return [(*call.space, call.table or "*")]


def _of_body(call: _Call) -> list[tuple[str, ...]]:
    return [(*call.space, call.text("name"))]


#: Method and path of each endpoint: the function, the operation as the audit names it, and the names that it changes.
#: The answer is JSON; None: 204. What is dropped with purgeRequested keeps its files, too.
_ENDPOINTS: Mapping[tuple[str, str], tuple[Callable[[_Call], Any], str, _Targets | None]] = {
    ("GET", _SPACES): (_list_namespaces, "", None),
    ("POST", _SPACES): (_create_namespace, "CreateNamespace", lambda call: [(*_space_of(call.body), "*")]),
    ("GET", _SPACE): (lambda call: {"namespace": call.space, "properties": call.properties()}, "", None),
    ("HEAD", _SPACE): (_require, "", None),
    ("DELETE", _SPACE): (lambda call: call.opened.remove_namespace(call.space), "DropNamespace", _of_path),
    ("POST", f"{_SPACE}/properties"): (_update_namespace, "UpdateNamespace", _of_path),
    ("GET", _TABLES): (_list_tables, "", None),
    ("POST", _TABLES): (_create_table, "CreateTable", _of_body),
    ("POST", f"{_SPACE}/register"): (_register_table, "RegisterTable", _of_body),
    ("GET", _TABLE): (_load_table, "", None),
    ("HEAD", _TABLE): (_require, "", None),
    ("POST", _TABLE): (_commit_table, "CommitTable", _of_path),
    ("DELETE", _TABLE): (lambda call: call.opened.remove_table(call.name), "DropTable", _of_path),
    ("POST", "/tables/rename"): (lambda call: call.opened.move_table(*_renamed(call)), "RenameTable", _renamed),
    ("POST", "/transactions/commit"): (
        _commit_transaction,
        "CommitTransaction",
        lambda call: [change.name for change in _changes(call)],
    ),
}
_PATHS = {path: re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path)) for _, path in _ENDPOINTS}
_ADVERTISED = [f"{method} /v1/{{prefix}}{path}" for method, path in (*_ENDPOINTS, ("POST", f"{_TABLE}/metrics"))]


def _config(services: Services, query: Mapping[str, str]) -> Response:
    names, wanted = services.own_catalogs.names(), query.get("warehouse")
    if wanted is None and len(names) != 1:
        raise InvalidArgument(f"the parameter warehouse is missing; internal catalogs: {', '.join(names) or 'none'}")
    if wanted is not None and wanted not in names:
        raise NotFound(f"there is no internal catalog {wanted!r:.100}; known: {', '.join(names) or 'none'}")
    prefix = quote(wanted or names[0], safe="")
    return _json({"defaults": {}, "overrides": {"prefix": prefix}, "endpoints": _ADVERTISED})


def routes() -> Sequence[BaseRoute]:
    """The routes of the protocol; reports of scans have their own, before these."""
    return [PrefixRoute(prefix, _Protocol(prefix)) for prefix in PREFIXES]


class _Protocol:
    """The protocol as an application below its prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._answer(Request(scope, receive))
        except Exception as error:
            response = _error(as_amoro_error(error))
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        operations, address = context_of(request).operations, address_of(request)
        try:
            principal = await operations.admit(bearer(request), Channel.REST, address)
        except UnknownToken as error:
            if request.method not in ("GET", "HEAD"):
                await operations.refuse("IcebergRest", anonymous(Channel.REST, address), error)
            raise
        raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
        path = raw.partition(b"?")[0].decode("ascii", "replace").removeprefix(self._prefix).rstrip("/")
        texts = parse_qs(request.scope["query_string"].decode("ascii", "replace"), keep_blank_values=True)
        query = {key: values[-1] for key, values in texts.items()}
        if path == "/v1/config":
            return await operations.perform("", principal, Role.VIEWER, (), partial(_config, query=query))
        _, _, catalog, rest = (*path.split("/", 3), "", "", "")[:4]
        matches = {key: match for key, pattern in _PATHS.items() if (match := pattern.fullmatch(f"/{rest}"))}
        if not path.startswith("/v1/") or not matches:
            raise NotFound(f"there is no endpoint {path!r:.200}")
        (key, match), *_ = matches.items()
        if (request.method, key) not in _ENDPOINTS:
            return _error(InvalidArgument(f"{request.method} is not offered for {path!r:.200}"), 405)
        function, operation, targets_of = _ENDPOINTS[request.method, key]
        parts = {name: unquote(text) for name, text in match.groupdict().items()}
        space = tuple(parts["namespace"].split(_LEVELS)) if "namespace" in parts else ()
        if "" in space:
            raise InvalidArgument(f"the namespace {parts['namespace']!r:.200} has an empty level")
        body = _body(await limited_content(request, MOST_BYTES)) if request.method == "POST" else {}
        tag = request.headers.get("if-none-match", "")
        call = _Call(unquote(catalog), space, parts.get("table", ""), query, body, tag)
        changed = [] if targets_of is None else targets_of(call)
        targets = [TableIdentifier(call.catalog, name[:-1], name[-1]) for name in changed]
        role = Role.VIEWER if targets_of is None else Role.OPERATOR
        work = partial(call.answered, function=function)
        return await operations.perform(operation, principal, role, targets, work)


def _body(content: bytes) -> Mapping[str, Any]:
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"the body is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise InvalidArgument("the body must be a JSON object")
    return body


def _error(error: AmoroError, status: int = 0) -> Response:
    kind = next((kind for type_, kind in _TYPES.items() if isinstance(error, type_)), "RuntimeException")
    code = status or next((code for type_, code in _STATUSES.items() if isinstance(error, type_)), status_of(error))
    return _json({"error": {"message": error.full_text, "type": kind, "code": code}}, code)
