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
from amoro_core.store.schema import migrate, pending_migrations

T = TypeVar("T")


class ReadingStore(Store):
    """The state without changing it: no lock, no epoch, no migration.

    The file is read where it is; SQLite may create -wal and -shm beside it. Without a file the state is empty.
    """

    only_reads = True

    @classmethod
    def open(cls, path: Path) -> Self:
        """Raises StoreFailed for a file that is not ours, or whose schema is another version's."""
        store = cls(path)
        try:
            if _is_empty(path):
                store._open_empty()
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
        self._memory: tuple[str, Connection] | None = None  # the URI of an empty database, and what keeps it alive

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
            self._memory[1].close()

    def _open_empty(self) -> None:
        uri = f"file:amoro-{uuid4()}?mode=memory&cache=shared"
        keeper = _connect(uri)
        self._memory = uri, keeper
        keeper.execute("BEGIN IMMEDIATE")
        migrate(keeper)
        keeper.execute("COMMIT")

    def _open_reader(self) -> Connection:
        if self._memory is None:
            return super()._open_reader()
        try:
            db = _connect(self._memory[0])
            for pragma in READER_PRAGMAS:
                db.execute(pragma)
        except sqlite3.Error as error:
            raise ours(error) from error
        return db


def _connect(uri: str) -> Connection:
    return Connection(sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False))


def _is_empty(path: Path) -> bool:
    """Whether there is no file, or one that is not filled yet. Raises StoreFailed for a schema of another version."""
    if not path.exists():
        return True
    with closing(open_reader(path)) as db:
        if not db.database.table_names():
            return True
        pending = pending_migrations(db)
    if pending:
        raise StoreFailed(
            f"the state database {path} lacks the migration {pending[0]}",
            hint="Start the coordinator of this version once (amoro up): it applies the migration.",
        )
    return False
