"""A small Iceberg REST catalog on loopback, over a catalog of pyiceberg; every request passes through a proxy."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest, Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import RemoveSnapshotsUpdate

from amoro_core.iceberg.catalog import rest as catalogs_rest
from amoro_core.iceberg.catalog.timeouts import Watchdog
from amoro_core.iceberg.maintenance.expiry import exact
from amoro_core.model.processes import CatalogConfig
from tests.faults.proxy import Cut, Proxy, Reply, Response

_LOOK_S = 0.02
_ERRORS: tuple[tuple[type[Exception], int, str], ...] = (
    (NoSuchTableError, 404, "NoSuchTableException"),
    (NoSuchNamespaceError, 404, "NoSuchNamespaceException"),
    (TableAlreadyExistsError, 409, "AlreadyExistsException"),
    (NamespaceAlreadyExistsError, 409, "AlreadyExistsException"),
    (NamespaceNotEmptyError, 409, "NamespaceNotEmptyException"),
    (CommitFailedException, 409, "CommitFailedException"),
    (ValueError, 400, "BadRequestException"),
)


class RestServer:
    """The server and its threads, from entering to leaving the context."""

    def __init__(self, catalog: SqlCatalog) -> None:
        self.proxy = Proxy()
        #: What the server says that it knows; nothing where it is empty, as old servers do.
        self.endpoints: list[str] = []
        self._catalog = catalog
        self._ended = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.rest = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="rest", daemon=True)

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def config(self, name: str = "cat") -> CatalogConfig:
        """How services reach the catalog by this server, under that name."""
        warehouse = self._catalog.properties["warehouse"]
        return CatalogConfig(name, (("type", "rest"), ("uri", self.uri), ("warehouse", warehouse)))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def wait_for_end(self) -> None:
        """Keep a request waiting until the server ends."""
        self._ended.wait()

    def reply(self, method: str, target: str, body: bytes) -> Reply:
        """What is answered to a request, after the proxy had its way with it."""
        parts = urlsplit(target)
        path = [unquote(part) for part in parts.path.strip("/").split("/")]
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        is_commit = method == "POST" and len(path) == 5

        def forward() -> Response:
            try:
                if path == ["v1", "config"] and self.endpoints:
                    return _json({"defaults": {}, "overrides": {}, "endpoints": self.endpoints})
                return _handle(self._catalog, method, path, query, body)
            except Exception as error:
                return _error(error)

        loads_table = method == "GET" and len(path) == 5
        return self.proxy.handle(forward, body if is_commit else None, loads_table=loads_table)

    def loaded(self, namespace: str, table: str) -> Response:
        """What a load of the table is answered now, past the proxy."""
        return _handle(self._catalog, "GET", ["v1", "namespaces", namespace, "tables", table], {}, b"")


def _error(error: Exception) -> Response:
    for kind, status, name in _ERRORS:
        if isinstance(error, kind):
            return error_response(status, name, str(error))
    return error_response(500, "InternalServerError", f"{type(error).__name__}: {error}")


def error_response(status: int, kind: str, message: str) -> Response:
    """An error as the REST catalog's specification writes it."""
    return _json({"error": {"message": message, "type": kind, "code": status}}, status)


def _handle(catalog: SqlCatalog, method: str, path: list[str], query: Mapping[str, str], body: bytes) -> Response:
    match method, path:
        case "GET", ["v1", "config"]:
            return _json({"defaults": {}, "overrides": {}})
        case "GET", ["v1", "namespaces"]:
            listed = catalog.list_namespaces(_namespace(query["parent"]) if "parent" in query else ())
            return _json({"namespaces": [list(one) for one in listed]})
        case "POST", ["v1", "namespaces"]:
            given = json.loads(body)
            catalog.create_namespace(tuple(given["namespace"]), given.get("properties") or {})
            return _json({"namespace": given["namespace"], "properties": given.get("properties") or {}})
        case "GET" | "HEAD", ["v1", "namespaces", name]:
            properties = catalog.load_namespace_properties(_namespace(name))
            return _json({"namespace": list(_namespace(name)), "properties": properties})
        case "DELETE", ["v1", "namespaces", name]:
            catalog.drop_namespace(_namespace(name))
            return Response(204, b"")
        case "GET", ["v1", "namespaces", name, "tables"]:
            tables = catalog.list_tables(_namespace(name))
            return _json({"identifiers": [{"namespace": list(one[:-1]), "name": one[-1]} for one in tables]})
        case "POST", ["v1", "namespaces", name, "tables"]:
            given = {"location": None, "partition-spec": None, "write-order": None, **json.loads(body)}
            return _created(catalog, _namespace(name), CreateTableRequest.model_validate(given))
        case "GET" | "HEAD", ["v1", "namespaces", name, "tables", table]:
            return _table(catalog.load_table((*_namespace(name), table)))
        case "DELETE", ["v1", "namespaces", name, "tables", table]:
            catalog.drop_table((*_namespace(name), table))
            return Response(204, b"")
        case "POST", ["v1", "namespaces", name, "tables", table]:
            return _committed(catalog, (*_namespace(name), table), CommitTableRequest.model_validate_json(body))
        case _:
            return error_response(404, "NotFoundException", f"{method} /{'/'.join(path)} is not known")


def _namespace(name: str) -> tuple[str, ...]:
    return tuple(name.split("\x1f"))


def _created(catalog: SqlCatalog, namespace: tuple[str, ...], request: CreateTableRequest) -> Response:
    made = catalog.create_table(
        (*namespace, request.name),
        request.table_schema,
        location=request.location,
        partition_spec=request.partition_spec or UNPARTITIONED_PARTITION_SPEC,
        sort_order=request.write_order or UNSORTED_SORT_ORDER,
        properties=request.properties,
    )
    return _table(made)


def _committed(catalog: SqlCatalog, identifier: tuple[str, ...], request: CommitTableRequest) -> Response:
    # As Java's servers apply them; but removals take a tag along that was made meanwhile, as some servers do.
    updates = tuple(
        one if isinstance(one, RemoveSnapshotsUpdate) else exact(catalog, (one,))[0] for one in request.updates
    )
    done = catalog.commit_table(catalog.load_table(identifier), request.requirements, updates)
    return Response(200, done.model_dump_json().encode())


def _table(table: Table) -> Response:
    metadata = json.loads(table.metadata.model_dump_json())
    return _json({"metadata-location": table.metadata_location, "metadata": metadata, "config": {}})


def _json(value: Any, status: int = 200) -> Response:
    return Response(status, json.dumps(value).encode())


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    rest: RestServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that went away are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Without, the small packets of header and body wait for each other.
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Tests ask the proxy what happened."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        rest = self.server.rest
        reply = rest.reply(self.command, self.path, body)
        match reply.cut:
            case None:
                self._answer(reply.response, reply.response.body)
                return
            case Cut.BROKEN_BODY:
                self._answer(reply.response, reply.response.body[: len(reply.response.body) // 2])
                return
            case Cut.SHORT_BODY:
                # More is announced than comes.
                self._head(reply.response, len(reply.response.body))
                self.wfile.write(reply.response.body[: len(reply.response.body) // 2])
            case Cut.RESET:
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.connection.close()
            case Cut.HANG:
                rest.proxy.hung += 1
                rest.wait_for_end()
        self.close_connection = True

    def _answer(self, response: Response, body: bytes) -> None:
        self._head(response, len(body))
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, response: Response, length: int) -> None:
        self.send_response(response.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def do_GET(self) -> None:
        self._serve()

    def do_HEAD(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()


def give_up_hanging(patch: pytest.MonkeyPatch, proxy: Proxy) -> None:
    """Let the time of a request be up once the proxy has left one without an answer that was sent since.

    A short limit would end others, too, where programs share the cores; they have the usual one.
    """

    class Impatient(Watchdog):
        def start(self) -> None:
            self._hung_before = proxy.hung
            super().start()

        def _watch(self) -> None:
            deadline = time.monotonic() + self._seconds
            while proxy.hung == self._hung_before and time.monotonic() < deadline:
                if self._over.wait(_LOOK_S):
                    return
            self._seconds = 0
            super()._watch()

    patch.setattr(catalogs_rest, "Watchdog", Impatient)
