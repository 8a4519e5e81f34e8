"""Opening the state database: connections that write or can't, and what SQLite says when one can't be had."""

import os
import sqlite3
from pathlib import Path

from amoro_core.errors import StorageFull, StoreFailed
from amoro_core.model.texts import briefly
from amoro_core.store.connection import Connection
from amoro_core.store.migrations import migrate

_BUSY_SECONDS = 5.0

_WRITER_PRAGMAS = (
    "PRAGMA journal_mode = WAL",  # readers never wait for the writer, nor it for them
    "PRAGMA synchronous = FULL",  # what was acknowledged survives a power loss: each COMMIT is synced
    "PRAGMA trusted_schema = OFF",  # a schema edited by others runs no functions
)
READER_PRAGMAS = (
    "PRAGMA query_only = ON",  # mode=ro already refuses writes; this says so without touching the file
    "PRAGMA trusted_schema = OFF",
)


def open_writer(path: Path) -> tuple[Connection, int]:
    """The writing connection to the migrated database, and the epoch that it owns."""
    try:
        _make_private(path)
        db = connect(path, "rw", _WRITER_PRAGMAS)
    except (OSError, sqlite3.Error) as error:
        raise _not_opened(path, error) from error
    try:
        # Not enforced yet: a migration may make a table anew that others refer to.
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute("BEGIN IMMEDIATE")
        if migrate(db):
            _check_references(path, db)
        db.execute("UPDATE coordinator_epoch SET epoch = epoch + 1")
        epoch = current_epoch(db)
        db.execute("COMMIT")
        db.execute("PRAGMA foreign_keys = ON")
    except sqlite3.Error as error:
        db.close()
        raise _not_opened(path, error) from error
    except BaseException:
        db.close()
        raise
    return db, epoch


def _check_references(path: Path, db: Connection) -> None:
    found = db.select_one("PRAGMA foreign_key_check")
    if found is not None:
        raise StoreFailed(f"the state database {path} is damaged: a row of {found['table']} refers to one that is gone")


def open_reader(path: Path) -> Connection:
    """A connection to the file that cannot write."""
    return connect(path, "ro", READER_PRAGMAS)


def connect(path: Path, mode: str, pragmas: tuple[str, ...]) -> Connection:
    """A connection that begins no transaction by itself. A reader's passes between threads, one at a time."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=_BUSY_SECONDS,  # busy_timeout: a backup or a person's shell may hold a lock for a moment
        isolation_level=None,
        check_same_thread=mode == "rw",
    )
    try:
        db = Connection(connection)
        for pragma in pragmas:
            db.execute(pragma)
    except BaseException:
        connection.close()
        raise
    return db


def current_epoch(db: Connection) -> int:
    """The epoch of whoever opened the database last. Raises StoreFailed without one."""
    row = db.select_one("SELECT epoch FROM coordinator_epoch")
    if row is None:
        raise StoreFailed("the state database has lost its epoch")
    return int(row["epoch"])


def file_of(path: Path) -> tuple[int, int] | None:
    """Device and inode of the file that has the name now; None when there is none."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def sync(path: Path) -> None:
    """Have the file, or the names in a directory, on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def ours(error: Exception) -> StoreFailed | StorageFull:
    """What SQLite raised as an error of ours."""
    full = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL  # the low byte is the primary code
    if full:
        told: StoreFailed | StorageFull = StorageFull(
            "the disk with the state database is full; the change did not happen",
            hint="Free some space; the coordinator goes on by itself.",
        )
    else:
        told = StoreFailed(f"the state database failed: {briefly(str(error))}")
    told.__cause__ = error
    return told


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
