"""The state database and its directory: the lock, one writer, readers that cannot write, facts of the file."""

import contextlib
import fcntl
import json
import os
import queue
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self, TypeVar
from uuid import uuid4

from sqlite_utils import Database, Migrations

from amoro_core.errors import AlreadyExists, Fenced, StateDirectoryLocked, StorageFull, StoreFailed
from amoro_core.model.metrics import AppliedMigration, StateFacts
from amoro_core.model.text_sanitizing import briefly
from amoro_core.store.connection import ENGINE_VERSION, STATEMENT_ERRORS, Connection

__all__ = ["Connection", "Store"]

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
            rest = deadline - time.monotonic()
            if rest <= 0:
                os.close(descriptor)
                raise _locked(home)
            time.sleep(min(_POLL_SECONDS, rest))
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
        locked = os.fstat(self.fileno())
        if named is None or (named.st_dev, named.st_ino) != (locked.st_dev, locked.st_ino):
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

    def __exit__(self, *error: object) -> None:
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
    row = db.select_one("PRAGMA foreign_key_check")
    if row is not None:
        raise StoreFailed(f"the state database {path} is damaged: a row of {row['table']} refers to a missing row")


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
        result = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return result.st_dev, result.st_ino


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
    return tuple(AppliedMigration(number, row.name, datetime.fromisoformat(row.applied_at)) for number, row in applied)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def first_schema(db: Database) -> None:
    """Every table of the first release."""
    for statement in _statements(Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")):
        db.execute(statement)


def states_of_tables(db: Database) -> None:
    """State and saving of tables, since when and by which error they fail, and when the work of processes began."""
    for table, column in (
        ("table_action", "failure_code TEXT NOT NULL DEFAULT ''"),
        ("table_action", "failing_since_ms INTEGER"),
        ("table_runtime", """saving_json TEXT NOT NULL DEFAULT '{"files":0,"bytes":0}'"""),
        ("table_runtime", "load_failure TEXT NOT NULL DEFAULT ''"),
        ("table_process", "started_at_ms INTEGER"),
        ("table_listing", "state TEXT NOT NULL DEFAULT 'new'"),
        ("table_listing", "unsaved INTEGER NOT NULL DEFAULT 0"),
    ):
        db.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
    # Evaluated again at once: only that tells what optimizing saves.
    db.execute("UPDATE table_runtime SET evaluated_snapshot_id = NULL, refresh_at_ms = NULL WHERE status = 'idle'")
    for column in ("state", "unsaved"):
        db.execute(f"CREATE INDEX table_listing_by_{column} ON table_listing ({column}, table_id)")
    db.execute("CREATE INDEX table_action_failing ON table_action (failing_since_ms) WHERE failures > 0")


def conditions_and_policies(db: Database) -> None:
    """Blockers of some partitions, and policies."""
    db.execute("ALTER TABLE table_blocker ADD COLUMN condition TEXT NOT NULL DEFAULT ''")
    db.execute(
        "CREATE TABLE policy_version (version INTEGER PRIMARY KEY CHECK (version > 0), policies TEXT NOT NULL, "
        "applied_by TEXT NOT NULL, applied_at_ms INTEGER NOT NULL) STRICT"
    )


def ends_of_instances(db: Database) -> None:
    """When instances of groups ended, and why."""
    db.execute("ALTER TABLE resource ADD COLUMN cause TEXT NOT NULL DEFAULT ''")
    db.execute("ALTER TABLE resource ADD COLUMN ended_at_ms INTEGER")


def cursors_of_listeners(db: Database) -> None:
    """How far each listener is in the journal."""
    db.execute(
        "CREATE TABLE listener (listener_name TEXT PRIMARY KEY CHECK (listener_name <> ''), event_id INTEGER NOT NULL, "
        "lost_events INTEGER NOT NULL CHECK (lost_events >= 0), failures INTEGER NOT NULL CHECK (failures >= 0), "
        "failing_since_ms INTEGER, failure TEXT NOT NULL, retry_at_ms INTEGER) STRICT"
    )


def turns_and_predictions(db: Database) -> None:
    """Class and value of tables and processes, the predicted and measured work, and what a table's last plan had."""
    for table, column in (
        ("table_runtime", "priority INTEGER NOT NULL DEFAULT 5 CHECK (priority BETWEEN 0 AND 9)"),
        ("table_runtime", "value REAL NOT NULL DEFAULT 0"),
        ("table_runtime", "rate REAL NOT NULL DEFAULT 1"),
        ("table_runtime", "planned_snapshot_id INTEGER"),
        ("table_runtime", "planned_sequence INTEGER NOT NULL DEFAULT 0"),
        ("table_process", "due_at_ms INTEGER"),
        ("table_process", "value REAL NOT NULL DEFAULT 0"),
        ("table_process", "predicted_ms INTEGER NOT NULL DEFAULT 0"),
        ("table_process", "measured_ms INTEGER NOT NULL DEFAULT 0"),
    ):
        db.execute(f"ALTER TABLE {table} ADD COLUMN {column}")


def locations_of_tables(db: Database) -> None:
    """Events of object stores find tables by their locations."""
    db.execute("CREATE INDEX table_runtime_by_location ON table_runtime (location)")


def vetoes_of_tables(db: Database) -> None:
    """Who forbids to optimize tables; the looks that follow tell."""
    db.execute("ALTER TABLE table_runtime ADD COLUMN veto TEXT CHECK (veto IN ('table', 'policy'))")
    db.execute("UPDATE table_runtime SET refresh_at_ms = NULL WHERE NOT enabled")


#: In their order.
MIGRATIONS = (
    first_schema,
    states_of_tables,
    conditions_and_policies,
    ends_of_instances,
    cursors_of_listeners,
    turns_and_predictions,
    locations_of_tables,
    vetoes_of_tables,
)
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
    names = {migration.__name__ for migration in MIGRATIONS}
    if unknown := [migration.name for migration in SCHEMA.applied(db.database) if migration.name not in names]:
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


T = TypeVar("T")

#: So many writes share a transaction, and those that were submitted with the last of them: bounds how long the first
#: of them waits for the last.
MAX_BATCH = 256


@dataclass(frozen=True, slots=True)
class _Write:
    run: Callable[[Connection], Any]
    future: Future[Any]


class Store:
    """The open state database. A write that fails is always rolled back.

    All writes run on one thread, which owns the only connection that can write or checkpoint (SQLite before 3.51.3
    can corrupt a WAL that two connections reset at once). Functions that wait run together in one transaction, each
    so that it is taken back alone; their results are released only after COMMIT.
    """

    #: Whether writing is refused.
    only_reads = False

    def __init__(self, path: Path) -> None:
        """Use `Store.open`."""
        self._path = path
        self._epoch = 0
        self._file: tuple[int, int] | None = None  # of which file the writer's connection is
        self._fence: Fenced | None = None  # why nothing more is read or written
        self._waiting: queue.SimpleQueue[tuple[_Write, ...] | None] = queue.SimpleQueue()
        self._gate = threading.Lock()  # guards _closed, _idle_readers, and that nothing is queued after the end
        self._closed = False
        #: Told of each write transaction: how long it took in seconds, and whether it was committed.
        self.when_written: Callable[[float, bool], None] = lambda seconds, worked: None
        self._idle_readers: list[Connection] = []
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

    def write(self, run: Callable[[Connection], T]) -> T:
        """Run a function of the writing connection in a transaction; its result, once that is committed.

        When it raises, only what it wrote is taken back, and its error is raised here. It must not end the
        transaction, do anything slow, or return a cursor.

        Raises StoreFailed (StorageFull when the disk is full) when nothing of it was kept; Fenced when a newer
        coordinator owns the database.
        """
        return self.submit(run).result()

    def submit(self, run: Callable[[Connection], T]) -> "Future[T]":
        """As `write`, but the result and the errors come by the future: for callers that must not block."""
        (future,) = self.submit_all((run,))
        return future

    def submit_all(self, runs: Sequence[Callable[[Connection], T]]) -> "list[Future[T]]":
        """As `submit`, for functions that share a transaction; each has its own error, and is taken back alone."""
        if threading.current_thread() is self._writer:
            raise RuntimeError("a write inside a write would wait for itself: pass the connection on")
        writes = [_Write(run, Future()) for run in runs]
        with self._gate:
            self._refuse_closed()
            if writes:
                self._waiting.put(tuple(writes))
        return [write.future for write in writes]

    def read(self, run: Callable[[Connection], T]) -> T:
        """Run a function of a connection that cannot write; all that it reads is of one moment.

        It must not return a cursor. Raises StoreFailed.
        """
        db = self._borrow()
        try:
            db.execute("BEGIN")
            return run(db)
        except sqlite3.Error as error:
            raise ours(error) from error
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")
            self._give_back(db)

    def require_own(self) -> None:
        """Raise Fenced when the database is another coordinator's by now, or its file is gone or another one."""
        self._require_file()
        self._require_epoch(self.read(current_epoch))

    def fence(self, why: Fenced) -> None:
        """Let nothing be read or written here any more."""
        self._fence = self._fence or why

    @property
    def path(self) -> Path:
        return self._path

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
            db = connect(self._path, "ro", ())
            try:
                db.execute("VACUUM INTO :target", {"target": str(draft)})
            finally:
                db.close()
            sync(draft)
            os.link(draft, target)
        except FileExistsError as error:
            raise AlreadyExists(f"{target} exists already; a backup never replaces a file") from error
        except OSError as error:
            raise StoreFailed(f"the backup {target} can't be written: {error.strerror}") from error
        except sqlite3.Error as error:
            raise ours(error) from error
        finally:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)

    def facts(self) -> StateFacts:
        """What is known of the file, whatever version has written it. Raises StoreFailed."""
        with self._gate:
            self._refuse_closed()
        return facts_of(self._path)

    def check(self) -> list[str]:
        """What is wrong with the file: SQLite's own findings and references that lead nowhere; nothing when sound."""

        def look(db: Connection) -> list[str]:
            texts = [row["integrity_check"] for row in db.select("PRAGMA integrity_check")]
            lost = db.select("PRAGMA foreign_key_check")
            return [text for text in texts if text != "ok"] + [
                f"row {row['rowid']} of {row['table']} refers to a row of {row['parent']} that does not exist"
                for row in lost
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

    def __exit__(self, *error: object) -> None:
        self.close()

    # Readers. A connection belongs to one thread while that reads and goes back to the idle ones afterwards, so that
    # threads that end leave no connection behind.

    def _borrow(self) -> Connection:
        with self._gate:
            self._refuse_closed()
            if self._idle_readers:
                return self._idle_readers.pop()
        return self._open_reader()

    def _open_reader(self) -> Connection:
        """A connection that cannot write. Raises StoreFailed."""
        try:
            return open_reader(self._path)
        except sqlite3.Error as error:
            raise ours(error) from error

    def _give_back(self, db: Connection) -> None:
        with self._gate:
            if not self._closed:
                self._idle_readers.append(db)
                return
        db.close()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreFailed("the state database is closed")
        if self._fence is not None:
            raise Fenced(self._fence.message, hint=self._fence.hint)

    # The writer's thread.

    def _serve(self) -> None:
        try:
            db, self._epoch = open_writer(self._path)
            self._file = file_of(self._path)
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
        writes = self._waiting.get()
        while writes is not None:
            batch += writes
            if len(batch) >= MAX_BATCH or self._waiting.empty():
                return batch
            writes = self._waiting.get()
        if batch:
            self._waiting.put(None)
        return batch

    def _run_batch(self, db: Connection, batch: list[_Write]) -> None:
        begun = time.monotonic()
        try:
            self._require_file()
            self._begin(db)
            outcomes = [self._run_one(db, write.run, savepoint=number > 0) for number, write in enumerate(batch)]
            db.execute("COMMIT")
        except BaseException as error:
            _roll_back(db)
            self.when_written(time.monotonic() - begun, False)
            for write in batch:
                write.future.set_exception(_for_batch(error))
            return
        self.when_written(time.monotonic() - begun, True)
        for write, (result, failure) in zip(batch, outcomes, strict=True):
            if failure is not None:
                write.future.set_exception(failure)
            else:
                write.future.set_result(result)

    def _begin(self, db: Connection) -> None:
        db.execute("BEGIN IMMEDIATE")
        self._require_epoch(current_epoch(db))

    def _run_one(
        self, db: Connection, run: Callable[[Connection], Any], *, savepoint: bool
    ) -> tuple[Any, BaseException | None]:
        """Run a write; its result, or its error once it is taken back.

        The first of a transaction needs no savepoint, which would cost a copy of each page that it changes: with it the
        transaction begins anew.

        Raises when the whole transaction is gone: a full disk or an I/O error ends it.
        """
        if savepoint:
            db.execute("SAVEPOINT one_write")
        try:
            result = run(db)
        except BaseException as error:
            if not db.in_transaction:
                raise
            if savepoint:
                db.execute("ROLLBACK TO one_write")
                db.execute("RELEASE one_write")
            else:
                db.execute("ROLLBACK")
                self._begin(db)
            return None, ours(error) if isinstance(error, STATEMENT_ERRORS) else error
        if not db.in_transaction:
            raise StoreFailed("a write ended the transaction that it shares with others")
        if savepoint:
            db.execute("RELEASE one_write")
        return result, None

    def _require_epoch(self, epoch: int) -> None:
        if epoch != self._epoch:
            raise Fenced(
                "another coordinator has opened the state database since; this one must no longer write",
                hint="Only one coordinator may run on a state directory.",
            )

    def _require_file(self) -> None:
        """Raise Fenced when the file has lost its name: writes to it would be lost without an error."""
        if (now := file_of(self._path)) != self._file:
            raise Fenced(
                f"the state database {self._path} is {'gone' if now is None else 'another file'} since it was opened",
                hint="Stop the coordinator before its state directory is moved, restored or removed.",
            )


def _roll_back(db: Connection) -> None:
    """End the transaction where the error has not ended it."""
    # The thread must live on to answer those that wait; a transaction that stays makes the next BEGIN fail.
    with contextlib.suppress(sqlite3.Error):
        if db.in_transaction:
            db.execute("ROLLBACK")


def _for_batch(error: BaseException) -> BaseException:
    """An error for each caller of a batch that failed as a whole: callers do not share one instance."""
    match error:
        case sqlite3.Error():
            return ours(error)
        case Fenced() | StoreFailed():
            return type(error)(error.message, hint=error.hint)
    failure = StoreFailed(f"a write that shared the transaction ended it: {error}; the change did not happen")
    failure.__cause__ = error
    return failure


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
        keeper = _connect_memory(uri)
        self._memory = uri, keeper
        keeper.execute("BEGIN IMMEDIATE")
        migrate(keeper)
        keeper.execute("COMMIT")

    def _open_reader(self) -> Connection:
        if self._memory is None:
            return super()._open_reader()
        try:
            db = _connect_memory(self._memory[0])
            for pragma in READER_PRAGMAS:
                db.execute(pragma)
        except sqlite3.Error as error:
            raise ours(error) from error
        return db


def _connect_memory(uri: str) -> Connection:
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
