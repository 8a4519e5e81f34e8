"""Services that hold catalogs, on loopback: a Hive metastore in memory, and moto as Glue with its version check."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from io import BytesIO
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

from hive_metastore import ThriftHiveMetastore
from hive_metastore.ttypes import (
    AlreadyExistsException,
    CheckLockRequest,
    Database,
    LockRequest,
    LockResponse,
    LockState,
    NoSuchObjectException,
    Table,
    UnlockRequest,
)
from moto.glue.models import glue_backends
from moto.server import DomainDispatcherApplication, create_backend_app
from thrift.protocol import TBinaryProtocol
from thrift.transport import TSocket, TTransport

from tests.objectstore.store import served as served_application


class Metastore:
    """Databases, tables and exclusive locks of tables, as the handler of thrift's processor."""

    def __init__(self) -> None:
        self._guard = threading.RLock()
        self._databases: dict[str, Database] = {}
        self._tables: dict[tuple[str, str], Table] = {}
        self._locks: dict[int, tuple[str, str]] = {}
        self._last_lock = 0
        self.before_alter: Callable[[], None] | None = None
        self.fails_after_alter = False
        self.asked: list[int] = []  # how many tables were asked for by name at once

    @property
    def locked(self) -> list[tuple[str, str]]:
        return list(self._locks.values())

    def get_all_databases(self) -> list[str]:
        return sorted(self._databases)

    def get_database(self, name: str) -> Database:
        if name not in self._databases:
            raise NoSuchObjectException(name)
        return self._databases[name]

    def create_database(self, database: Database) -> None:
        if database.name in self._databases:
            raise AlreadyExistsException(database.name)
        self._databases[database.name] = database

    def create_table(self, tbl: Table) -> None:
        self._tables[tbl.dbName, tbl.tableName] = tbl

    def get_table(self, dbname: str, tbl_name: str) -> Table:
        if (dbname, tbl_name) not in self._tables:
            raise NoSuchObjectException(tbl_name)
        return deepcopy(self._tables[dbname, tbl_name])

    def get_all_tables(self, db_name: str) -> list[str]:
        return sorted(name for place, name in self._tables if place == db_name)

    def get_table_objects_by_name(self, dbname: str, tbl_names: list[str]) -> list[Table]:
        self.asked.append(len(tbl_names))
        return [self._tables[dbname, name] for name in tbl_names if (dbname, name) in self._tables]

    def drop_table(self, dbname: str, name: str, deleteData: bool) -> None:
        del self._tables[dbname, name]

    def lock(self, rqst: LockRequest) -> LockResponse:
        place = rqst.component[0].dbname, rqst.component[0].tablename
        with self._guard:
            self._last_lock += 1
            is_free = place not in self._locks.values()
            if is_free:
                self._locks[self._last_lock] = place
            return LockResponse(self._last_lock, LockState.ACQUIRED if is_free else LockState.NOT_ACQUIRED)

    def check_lock(self, rqst: CheckLockRequest) -> LockResponse:
        return LockResponse(rqst.lockid, LockState.ACQUIRED if rqst.lockid in self._locks else LockState.NOT_ACQUIRED)

    def unlock(self, rqst: UnlockRequest) -> None:
        self._locks.pop(rqst.lockid, None)

    def alter_table_with_environment_context(
        self, dbname: str, tbl_name: str, new_tbl: Table, environment_context: Any
    ) -> None:
        before, self.before_alter = self.before_alter, None
        if before:
            before()
        self._tables[dbname, tbl_name] = new_tbl
        if self.fails_after_alter:
            self.fails_after_alter = False
            raise RuntimeError("the metastore died")


class _Connection(BaseRequestHandler):
    def handle(self) -> None:
        connection = TSocket.TSocket()
        connection.setHandle(self.request)
        protocol = TBinaryProtocol.TBinaryProtocol(TTransport.TBufferedTransport(connection))
        with suppress(TTransport.TTransportException):  # the client is done
            while True:
                self.server.processor.process(protocol, protocol)


class _Server(ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, metastore: Metastore) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.processor = ThriftHiveMetastore.Processor(metastore)


@contextmanager
def served(metastore: Metastore) -> Iterator[str]:
    """The metastore's URI while it is served."""
    with _Server(metastore) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"thrift://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


# Glue

Environment = dict[str, Any]
Responder = Callable[..., Any]


class Glue:
    """A WSGI application: Glue, which refuses an update of a version that is not the newest, and fails as told."""

    def __init__(self) -> None:
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._updating = threading.Lock()
        self._version = 0
        self.before_update: Callable[[], None] | None = None
        self.answers: list[int] = []  # of the next updates, which are applied all the same
        self.updates: list[str] = []  # by the version they named

    def __call__(self, environ: Environment, respond: Responder) -> Iterable[bytes]:
        match environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2]:
            case "UpdateTable":
                return self._update(environ, respond)
            case "GetTable":
                return self._versioned(environ, respond)
            case _:
                return self._moto(environ, respond)

    def _versioned(self, environ: Environment, respond: Responder) -> Iterable[bytes]:
        """moto's answer with the version that Glue would give."""
        with self._updating:
            said: list[Any] = []
            body = b"".join(self._moto(environ, lambda *start: said.extend(start)))
            found = json.loads(body)
            if "Table" in found:
                found["Table"]["VersionId"] = str(self._version)
            return _answer(respond, said[0], json.dumps(found).encode())

    def _update(self, environ: Environment, respond: Responder) -> Iterable[bytes]:
        before, self.before_update = self.before_update, None
        if before:
            before()
        body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        environ["wsgi.input"] = BytesIO(body)
        version = json.loads(body)["VersionId"]
        with self._updating:
            self.updates.append(version)
            if version != str(self._version):
                return _refuse(respond, "400 Bad Request", "ConcurrentModificationException")
            self._version += 1
            done = self._moto(environ, respond if not self.answers else lambda *_: None)
            if self.answers:
                return _refuse(respond, f"{self.answers.pop(0)} Failed", "InternalServiceException")
            return done


def _refuse(respond: Responder, status: str, kind: str) -> Iterable[bytes]:
    return _answer(respond, status, json.dumps({"__type": kind, "Message": kind}).encode())


def _answer(respond: Responder, status: str, body: bytes) -> Iterable[bytes]:
    respond(status, [("Content-Type", "application/x-amz-json-1.1"), ("Content-Length", str(len(body)))])
    return [body]


@contextmanager
def served_glue(glue: Glue) -> Iterator[dict[str, str]]:
    """The properties of a catalog of it while it is served."""
    for account in glue_backends.values():  # moto keeps what earlier tests made
        account.reset()
    with served_application(glue) as address:
        yield {
            "type": "glue",
            "glue.endpoint": address,
            "glue.region": "eu-west-1",
            "glue.access-key-id": "key",
            "glue.secret-access-key": "secret",
            "glue.max-retries": "2",
        }
