"""The state database: one writer, readers that cannot write."""

import contextlib
import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from sqlite_utils import Database

from amoro_core.errors import AlreadyExists, Fenced, StorageFull, StoreFailed
from amoro_core.store.migrations import migrate
from amoro_core.store.rows import execute, select_one

__all__ = ["Database", "Store"]

T = TypeVar("T")

#: The most writes that share a transaction: bounds how long the first of them waits for the last.
MAX_BATCH = 256
_BUSY_SECONDS = 5.0

_WRITER_PRAGMAS = (
    "PRAGMA journal_mode = WAL",  # readers never wait for the writer, nor it for them
    "PRAGMA synchronous = FULL",  # what was acknowledged survives a power loss: each COMMIT is synced
    "PRAGMA foreign_keys = ON",  # off by default in SQLite
    "PRAGMA trusted_schema = OFF",  # a schema that somebody else edited runs no functions
)
_READER_PRAGMAS = (
    "PRAGMA query_only = ON",  # mode=ro already refuses writes; this says so without touching the file
    "PRAGMA trusted_schema = OFF",
)


@dataclass(frozen=True, slots=True)
class _Write:
    run: Callable[[Database], Any]
    future: Future[Any]


@dataclass(frozen=True, slots=True)
class _Outcome:
    result: Any
    error: BaseException | None


class Store:
    """The open state database. What a write that fails has changed is always taken back.

    All writes run on one thread, which owns the only connection that can write or checkpoint (SQLite before 3.51.3
    can corrupt a WAL that two connections reset at once). Functions that wait run together in one transaction, each
    in a savepoint; their results are released only after COMMIT.
    """

    def __init__(self, path: Path) -> None:
        """Use `Store.open`."""
        self._path = path
        self._epoch = 0
        self._waiting: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._gate = threading.Lock()  # guards _closed, _idle_readers, and that nothing is queued after the end
        self._closed = False
        self._idle_readers: list[Database] = []
        self._opened: Future[None] = Future()
        self._writer = threading.Thread(target=self._serve, name="store-writer", daemon=True)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open or make the database, migrate it, and fence off every store that was opened before.

        Raises StoreFailed when it cannot be opened, is not ours, or a newer version has written it.
        """
        store = cls(path)
        store._writer.start()
        store._opened.result()
        return store

    def write(self, run: Callable[[Database], T]) -> T:
        """Run a function of the writing connection in a transaction; its result, once that is committed.

        When it raises, only what it wrote is taken back, and its error is raised here. It must not end the
        transaction, do anything slow, or return a cursor.

        Raises StoreFailed (StorageFull when the disk is full) when nothing of it was kept; Fenced when a newer
        coordinator owns the database.
        """
        return self.submit(run).result()

    def submit(self, run: Callable[[Database], T]) -> "Future[T]":
        """As `write`, but the result and the errors come by the future: for callers that must not block."""
        if threading.current_thread() is self._writer:
            raise RuntimeError("a write inside a write would wait for itself: pass the connection on")
        future: Future[T] = Future()
        with self._gate:
            self._refuse_closed()
            self._waiting.put(_Write(run, future))
        return future

    def read(self, run: Callable[[Database], T]) -> T:
        """Run a function of a connection that cannot write; all that it reads is of one moment.

        It must not return a cursor. Raises StoreFailed.
        """
        db = self._borrow()
        try:
            db.conn.execute("BEGIN")
            return run(db)
        except sqlite3.Error as error:
            raise _ours(error) from error
        finally:
            if db.conn.in_transaction:
                db.conn.execute("ROLLBACK")
            self._give_back(db)

    def backup(self, target: Path) -> None:
        """Write a copy of one moment, compacted, to a file that does not exist yet; others go on meanwhile.

        Raises AlreadyExists, StoreFailed; no half-written file is left behind.
        """
        with self._gate:
            self._refuse_closed()
        # Named so that nobody takes it for a backup, and on the same file system, so that the rename is atomic.
        draft = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            if target.exists():
                raise FileExistsError(target)
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            db = _connect(self._path, "ro", ())
            try:
                db.conn.execute("VACUUM INTO ?", (str(draft),))
            finally:
                db.close()
            _sync(draft)
            os.link(draft, target)
        except FileExistsError as error:
            raise AlreadyExists(f"{target} exists already; a backup never replaces a file") from error
        except OSError as error:
            raise StoreFailed(f"the backup {target} can't be written: {error.strerror}") from error
        except sqlite3.Error as error:
            raise _ours(error) from error
        finally:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)

    def check(self) -> list[str]:
        """What is wrong with the file: SQLite's own findings and references that lead nowhere; nothing when sound."""

        def look(db: Database) -> list[str]:
            found = [row[0] for row in db.conn.execute("PRAGMA integrity_check").fetchall()]
            lost = db.conn.execute("PRAGMA foreign_key_check").fetchall()
            return [text for text in found if text != "ok"] + [
                f"row {row[1]} of {row[0]} refers to a row of {row[2]} that does not exist" for row in lost
            ]

        return self.read(look)

    def close(self) -> None:
        """Finish the writes that wait and close every connection; a second call does nothing."""
        with self._gate:
            if not self._closed:
                self._closed = True
                self._waiting.put(None)
            idle, self._idle_readers = self._idle_readers, []
        for db in idle:
            db.close()
        self._writer.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # Readers. A connection belongs to one thread while that reads and goes back to the idle ones afterwards, so that
    # threads that end leave no connection behind.

    def _borrow(self) -> Database:
        with self._gate:
            self._refuse_closed()
            if self._idle_readers:
                return self._idle_readers.pop()
        try:
            return _connect(self._path, "ro", _READER_PRAGMAS)
        except sqlite3.Error as error:
            raise _ours(error) from error

    def _give_back(self, db: Database) -> None:
        with self._gate:
            if not self._closed:
                self._idle_readers.append(db)
                return
        db.close()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreFailed("the state database is closed")

    # The writer's thread.

    def _serve(self) -> None:
        try:
            db, self._epoch = _open_writer(self._path)
        except BaseException as error:
            self._opened.set_exception(error)
            return
        try:
            self._opened.set_result(None)
            while batch := self._next_batch():
                self._run_batch(db, batch)
        finally:
            db.close()

    def _next_batch(self) -> list[_Write]:
        """The writes that wait, at least one; none at the end. Nothing is queued behind the end's mark."""
        batch: list[_Write] = []
        write = self._waiting.get()
        while write is not None:
            batch.append(write)
            if len(batch) == MAX_BATCH or self._waiting.empty():
                return batch
            write = self._waiting.get()
        if batch:
            self._waiting.put(None)
        return batch

    def _run_batch(self, db: Database, batch: list[_Write]) -> None:
        try:
            db.conn.execute("BEGIN IMMEDIATE")
            self._refuse_fenced(db)
            outcomes = [_run_one(db, write.run) for write in batch]
            db.conn.execute("COMMIT")
        except BaseException as error:
            _roll_back(db)
            for write in batch:
                write.future.set_exception(_for_batch(error))
            return
        for write, outcome in zip(batch, outcomes, strict=True):
            if outcome.error is not None:
                write.future.set_exception(outcome.error)
            else:
                write.future.set_result(outcome.result)

    def _refuse_fenced(self, db: Database) -> None:
        if _current_epoch(db) != self._epoch:
            raise Fenced(
                "another coordinator has opened the state database since; this one must not write any more",
                hint="Only one coordinator may run on a state directory.",
            )


def _run_one(db: Database, run: Callable[[Database], Any]) -> _Outcome:
    """One write in its savepoint. Raises when the whole transaction is gone: a full disk or an I/O error ends it."""
    db.conn.execute("SAVEPOINT one_write")
    try:
        result = run(db)
    except BaseException as error:
        if not db.conn.in_transaction:
            raise
        db.conn.execute("ROLLBACK TO one_write")
        db.conn.execute("RELEASE one_write")
        return _Outcome(None, _ours(error) if isinstance(error, sqlite3.Error) else error)
    if not db.conn.in_transaction:
        raise StoreFailed("a write ended the transaction that it shares with others")
    db.conn.execute("RELEASE one_write")
    return _Outcome(result, None)


def _roll_back(db: Database) -> None:
    """End the transaction where the error has not ended it."""
    # The thread must live on to answer those that wait; a transaction that stays makes the next BEGIN fail.
    with contextlib.suppress(sqlite3.Error):
        if db.conn.in_transaction:
            db.conn.execute("ROLLBACK")


def _ours(error: sqlite3.Error) -> StoreFailed | StorageFull:
    full = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL  # the low byte is the primary code
    if full:
        ours: StoreFailed | StorageFull = StorageFull(
            "the disk with the state database is full; the change did not happen",
            hint="Make room; the coordinator goes on by itself.",
        )
    else:
        ours = StoreFailed(f"the state database failed: {error}")
    ours.__cause__ = error
    return ours


def _for_batch(error: BaseException) -> BaseException:
    """An error for each caller of a batch that failed as a whole: callers do not share one instance."""
    match error:
        case sqlite3.Error():
            return _ours(error)
        case Fenced() | StoreFailed():
            return type(error)(error.message, hint=error.hint)
    ours = StoreFailed(f"a write that shared the transaction ended it: {error}; the change did not happen")
    ours.__cause__ = error
    return ours


def _open_writer(path: Path) -> tuple[Database, int]:
    """The writing connection to the migrated database, and the epoch that it owns."""
    try:
        _make_private(path)
        db = _connect(path, "rw", _WRITER_PRAGMAS)
    except (OSError, sqlite3.Error) as error:
        raise _not_opened(path, error) from error
    try:
        db.conn.execute("BEGIN IMMEDIATE")
        migrate(db)
        execute(db, "UPDATE coordinator_epoch SET epoch = epoch + 1")
        epoch = _current_epoch(db)
        db.conn.execute("COMMIT")
    except sqlite3.Error as error:
        db.close()
        raise _not_opened(path, error) from error
    except BaseException:
        db.close()
        raise
    return db, epoch


def _make_private(path: Path) -> None:
    """Make the file, readable by its owner alone; SQLite gives -wal and -shm the same mode.

    A file that exists is not opened here: closing it would drop the locks that SQLite holds on it in this process.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        path.chmod(0o600)


def _not_opened(path: Path, error: Exception) -> StoreFailed:
    return StoreFailed(
        f"the state database {path} cannot be opened: {error}",
        hint="Check the state directory (--home), its rights, and the room on its disk.",
    )


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _connect(path: Path, mode: str, pragmas: tuple[str, ...]) -> Database:
    """A connection that begins no transaction by itself. A reader's passes between threads, one at a time."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=_BUSY_SECONDS,  # busy_timeout: a backup or a person's shell may hold a lock for a moment
        isolation_level=None,
        check_same_thread=mode == "rw",
    )
    try:
        db = Database(connection, execute_plugins=False)  # no code of other packages on these connections
        for pragma in pragmas:
            db.conn.execute(pragma)
    except BaseException:
        connection.close()
        raise
    return db


def _current_epoch(db: Database) -> int:
    row = select_one(db, "SELECT epoch FROM coordinator_epoch")
    if row is None:
        raise StoreFailed("the state database has lost its epoch")
    return int(row["epoch"])
