"""The state database for those who only read it, beside a coordinator or without one."""

import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Self, TypeVar
from uuid import uuid4

from amoro_core.errors import StoreFailed
from amoro_core.store.connect import READER_PRAGMAS, open_reader, ours
from amoro_core.store.database import Connection, Store
from amoro_core.store.migrations import MIGRATIONS, applied, migrate

T = TypeVar("T")


class ReadingStore(Store):
    """The state as it stands, which nothing done here changes: no lock, no epoch, no migration.

    A file of the present schema is read where it is; SQLite may make the files -wal and -shm beside it. What an earlier
    version has written is read from a copy in memory that is migrated; where there is no file the state is empty.
    """

    only_reads = True

    @classmethod
    def open(cls, path: Path) -> Self:
        """Raises StoreFailed for a file that is not ours, or that a newer version has written."""
        store = cls(path)
        try:
            store._memory = _in_memory(path)
        except (sqlite3.Error, OSError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise StoreFailed(
                f"the state database {path} cannot be read: {why}",
                hint="Check the state directory (--home) and its rights.",
            ) from error
        return store

    def __init__(self, path: Path) -> None:
        """Use `ReadingStore.open`."""
        super().__init__(path)
        self._memory: _Memory | None = None

    def submit_all(self, runs: Sequence[Callable[[Connection], T]]) -> "list[Future[T]]":
        """Nothing is written. Raises StoreFailed."""
        raise StoreFailed("this command only reads the state directory", hint="Report it: nothing was changed.")

    def backup(self, target: Path) -> None:
        """As the store's own. Raises StoreFailed, too, where there is no database yet."""
        if not self._path.exists():
            raise StoreFailed(
                f"there is no state database {self._path} to copy",
                hint="It is made by amoro up; or name another state directory with --home.",
            )
        super().backup(target)

    def close(self) -> None:
        """Close every connection; a second call does nothing."""
        with self._gate:
            self._closed = True
            idle, self._idle_readers = self._idle_readers, []
        for db in idle:
            db.close()
        if self._memory is not None:
            self._memory.keeper.close()

    def _open_reader(self) -> Connection:
        if self._memory is None:
            return super()._open_reader()
        try:
            return self._memory.connect()
        except sqlite3.Error as error:
            raise ours(error) from error


class _Memory:
    """A database in memory that lives as long as its first connection, the keeper."""

    def __init__(self) -> None:
        self._uri = f"file:amoro-{uuid4()}?mode=memory&cache=shared"
        self.keeper = self._open()

    def connect(self) -> Connection:
        """A connection that does not write, to be used by one thread at a time."""
        db = self._open()
        for pragma in READER_PRAGMAS:
            db.execute(pragma)
        return db

    def _open(self) -> Connection:
        connection = sqlite3.connect(self._uri, uri=True, isolation_level=None, check_same_thread=False)
        return Connection(connection)


def _in_memory(path: Path) -> _Memory | None:
    """The migrated copy of what is there; None for a file that can be read where it is."""
    memory = _Memory()
    try:
        if path.exists():
            with closing(open_reader(path)) as source:
                if _schema(source) == len(MIGRATIONS):
                    memory.keeper.close()
                    return None
                source.raw.backup(memory.keeper.raw)
        memory.keeper.execute("BEGIN IMMEDIATE")
        migrate(memory.keeper)
        memory.keeper.execute("COMMIT")
    except BaseException:
        memory.keeper.close()
        raise
    return memory


def _schema(db: Connection) -> int:
    """The number of the last migration; 0 for a file that was made and not filled."""
    known = db.select_one("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'schema_migration'")
    return applied(db) if known else 0
