"""The state directory: its lock, connections to the database, and facts of the file."""

import fcntl
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlite_utils import Database, Migrations

from amoro_core.errors import Fenced, StateDirectoryLocked, StorageFull, StoreFailed
from amoro_core.model.metrics import AppliedMigration, StateFacts
from amoro_core.model.text_sanitizing import briefly
from amoro_core.store.connection import ENGINE_VERSION, Connection

_POLL_SECONDS = 0.1


class StateLock:
    """An exclusive lock on a state directory, held until release or the end of the process.

    The kernel lets go of it when the last descriptor closes, however the process ends, so a lock is never left over.
    The file stays: removing it would let two processes lock two files of one name.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def acquire(cls, home: Path, timeout: timedelta = timedelta(0), *, passing: bool = False) -> Self:
        """Lock the directory, waiting at most `timeout`; `passing` for one command only, which others may wait for.

        Raises StateDirectoryLocked, which names the holder.
        """
        descriptor = os.open(home / "amoro.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + timeout.total_seconds()
        while not _try_lock(descriptor):
            left = deadline - time.monotonic()
            if left <= 0:
                os.close(descriptor)
                raise _locked(home)
            time.sleep(min(_POLL_SECONDS, left))
        # In place: the file's name is what others lock.
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "passing": passing}).encode(), 0)
        return cls(descriptor)

    def fileno(self) -> int:
        """The descriptor, to be passed on to worker processes, so that the lock outlives none of them."""
        if self._descriptor is None:
            raise ValueError("the lock is released")
        return self._descriptor

    def require_own(self, home: Path) -> None:
        """Raise Fenced when the directory has no such lock any more, or another one, which others may hold."""
        try:
            named = (home / "amoro.lock").stat()
        except (FileNotFoundError, NotADirectoryError):
            named = None
        held = os.fstat(self.fileno())
        if named is None or (named.st_dev, named.st_ino) != (held.st_dev, held.st_ino):
            raise Fenced(
                f"the lock of the state directory {home} is {'gone' if named is None else 'another file'} since it was "
                "taken",
                hint="Stop the coordinator before its state directory is moved, restored or removed.",
            )

    def release(self) -> None:
        """Let the directory go; a second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _locked(home: Path) -> StateDirectoryLocked:
    """The holder of the lock, as recorded: its pid in the lock file, its address in coordinator.json."""
    holder, announced = _read_json(home / "amoro.lock"), _read_json(home / "coordinator.json")
    pid = holder.get("pid", announced.get("pid"))
    named = [f"pid {pid}"] if pid is not None else []
    if announced.get("pid") == pid and "address" in announced:
        named.append(f"address {announced['address']}")
    passing = holder.get("passing") is True
    return StateDirectoryLocked(
        f"another {'command' if passing else 'coordinator'} works on the state directory {home}"
        + (f" ({', '.join(named)})" if named else ""),
        hint="Wait for its end, or name another directory with --home."
        if passing
        else "Stop it, wait for its end, or name another directory with --home.",
        passing=passing,
    )


def _read_json(file: Path) -> dict[str, Any]:
    """The file's content; empty if there is none yet."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


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
        raise StoreFailed(f"the state database {path} is damaged: a row of {found['table']} refers to a missing row")


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
    epoch = db.value("SELECT epoch FROM coordinator_epoch")
    if epoch is None:
        raise StoreFailed("the state database has lost its epoch")
    return int(epoch)


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
        failure: StoreFailed | StorageFull = StorageFull(
            "the disk with the state database is full; the change did not happen",
            hint="Free some space; the coordinator goes on by itself.",
        )
    else:
        failure = StoreFailed(f"the state database failed: {briefly(str(error))}")
    failure.__cause__ = error
    return failure


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


def facts_of(path: Path) -> StateFacts:
    """The file as it is, whatever version has written it. Raises StoreFailed."""
    home = path.parent
    free = shutil.disk_usage(home).free if home.exists() else 0
    epoch, migrations = 0, tuple[AppliedMigration, ...]()
    if path.exists():
        try:
            with closing(open_reader(path)) as db:
                epoch, migrations = current_epoch(db), _migrations(db)
        except sqlite3.Error as error:
            raise ours(error) from error
    log = path.with_name(f"{path.name}-wal")
    engine = ".".join(map(str, ENGINE_VERSION))
    return StateFacts(str(path), _size(path), _size(log), free, epoch, migrations, engine)


def _migrations(db: Connection) -> tuple[AppliedMigration, ...]:
    applied = enumerate(SCHEMA.applied(db.database), 1)
    return tuple(AppliedMigration(number, one.name, datetime.fromisoformat(one.applied_at)) for number, one in applied)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def first_schema(db: Database) -> None:
    """Every table of the first release."""
    for statement in _statements(Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")):
        db.execute(statement)


#: In their order.
MIGRATIONS = (first_schema,)
SCHEMA = Migrations("amoro")
for _migration in MIGRATIONS:
    SCHEMA()(_migration)


def migrate(db: Connection) -> int:
    """Apply the migrations that the database lacks, inside the caller's transaction; returns their number.

    References are not to be enforced meanwhile: a migration may replace a table that others refer to.

    Raises StoreFailed for a database of an unreleased or a newer version, or of another program.
    """
    pending = pending_migrations(db)
    SCHEMA.apply(db.database)
    return len(pending)


def pending_migrations(db: Connection) -> list[str]:
    """The names of the migrations that the database lacks. Raises StoreFailed as `migrate`."""
    tables = set(db.database.table_names())
    if "schema_migration" in tables:
        raise StoreFailed(
            "the state database was written by a version before the first release, whose schema is no longer read",
            hint="Let that version finish its processes and stop it; then start this version with an empty state "
            "directory (--home, or move amoro.db, amoro.db-wal and amoro.db-shm away) and add the catalogs again.",
        )
    if tables and SCHEMA.migrations_table not in tables:
        raise StoreFailed("the file is not a state database of Amoro", hint="Name another state directory with --home.")
    pending = [migration.name for migration in SCHEMA.pending(db.database)]
    known = {migration.__name__ for migration in MIGRATIONS}
    if unknown := [one.name for one in SCHEMA.applied(db.database) if one.name not in known]:
        raise StoreFailed(
            f"a newer version has written the state database: this version does not know the migration {unknown[0]}",
            hint="Use that version, or a backup from before the upgrade.",
        )
    return pending


def _statements(script: str) -> Iterator[str]:
    """The statements of a script one by one: `executescript` would commit the caller's transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
