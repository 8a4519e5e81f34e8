"""A Hive metastore in memory, served over thrift on loopback: the calls that pyiceberg's catalog makes, no others."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
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
from thrift.protocol import TBinaryProtocol
from thrift.transport import TSocket, TTransport


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
