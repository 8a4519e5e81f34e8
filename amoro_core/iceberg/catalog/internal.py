"""Catalogs of the kind `internal`: rows of pyiceberg's SqlCatalog and Java's JdbcCatalog in a SQLite file of ours.

Whoever commits, the service or a client of REST, commits here: metadata files are written, then the rows of all tables
are swapped in one transaction, by the locations that were read before.
"""

import os
import re
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from zlib import MAX_WBITS, decompress

from pydantic_core import from_json, to_json
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier

from amoro_core.errors import (
    AlreadyExists,
    CatalogUnavailable,
    CommitConflict,
    CommitUnknown,
    Conflict,
    DataFileMissing,
    InvalidArgument,
    NamespaceNotFound,
    StoreFailed,
    TableNotFound,
)
from amoro_core.iceberg.metadata_updates import Json, created, is_create, normalised, require, updated
from amoro_core.iceberg.pyiceberg_sandbox import confined
from amoro_core.model.location_policy import Grant
from amoro_core.model.paths import flaw_of_location, is_local, normalise

Name = tuple[str, ...]

_BUSY_S = 30.0
_ROUNDS = 5  # of a commit whose tables others change meanwhile, while what it requires still holds
_LEFT_OVER_MS = 3_600_000  # a file that was named for so long without being swapped in belongs to nobody
#: The tables as pyiceberg and Java make them; `table_location` and `written_file` are ours.
_SCHEMA = """
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS iceberg_tables (
  catalog_name VARCHAR(255) NOT NULL, table_namespace VARCHAR(255) NOT NULL, table_name VARCHAR(255) NOT NULL,
  metadata_location VARCHAR(1000), previous_metadata_location VARCHAR(1000), iceberg_type VARCHAR(5),
  table_location TEXT, PRIMARY KEY (catalog_name, table_namespace, table_name));
CREATE INDEX IF NOT EXISTS table_by_location ON iceberg_tables (table_location);
CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (
  catalog_name VARCHAR(255) NOT NULL, namespace VARCHAR(255) NOT NULL, property_key VARCHAR(255) NOT NULL,
  property_value VARCHAR(1000) NOT NULL, PRIMARY KEY (catalog_name, namespace, property_key));
CREATE TABLE IF NOT EXISTS written_file (location TEXT PRIMARY KEY, written_ms INTEGER NOT NULL) STRICT;
"""
_EXISTS = "exists"  # the property by which a namespace without others is there
_NAMESPACES = (
    "SELECT namespace FROM iceberg_namespace_properties WHERE catalog_name = ?1 "
    "UNION SELECT table_namespace FROM iceberg_tables WHERE catalog_name = ?1"
)
_PROPERTIES = (
    "SELECT property_key, property_value FROM iceberg_namespace_properties WHERE catalog_name = ? AND namespace = ?"
)
_POINTER = (
    "SELECT metadata_location FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?"
)
_RENAME = (
    "UPDATE iceberg_tables SET table_namespace = ?, table_name = ? "
    "WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?"
)
_DROP = "DELETE FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?"
_INSERT = "INSERT OR IGNORE INTO iceberg_tables VALUES (?, ?, ?, ?, NULL, 'TABLE', ?)"
_SWAP = (
    "UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = ?, table_location = ? "
    "WHERE catalog_name = ? AND table_namespace = ? AND table_name = ? AND metadata_location = ?"
)
_NEIGHBOUR = (
    "SELECT table_namespace, table_name FROM iceberg_tables "
    "WHERE (table_location IN (SELECT value FROM json_each(?)) OR table_location BETWEEN ? AND ?) "
    "AND NOT (catalog_name = ? AND table_namespace = ? AND table_name = ?)"
)


def create_database(path: Path) -> None:
    """Create the file of internal catalogs, readable by its owner alone, unless it is there."""
    path.touch(mode=0o600)
    with closing(sqlite3.connect(path, timeout=_BUSY_S)) as db:
        db.executescript(_SCHEMA)


def backup_database(path: Path, target: Path) -> int:
    """Write a copy of one moment to a new file; returns its size. Raises StoreFailed."""
    try:
        target.touch(mode=0o600, exist_ok=False)
        with closing(sqlite3.connect(path, timeout=_BUSY_S)) as db:
            db.execute("VACUUM INTO ?", (str(target),))
    except (OSError, sqlite3.Error) as error:
        raise StoreFailed(f"the backup {target} can't be written: {error}") from error
    return target.stat().st_size


class TableChange(NamedTuple):
    """The changes that a commit makes to one table."""

    name: Name
    requirements: Sequence[Json]
    updates: Sequence[Json]


class TableState(NamedTuple):
    """A metadata file: its location and its content, which is JSON."""

    metadata_location: str
    content: bytes


class _Swap(NamedTuple):
    """A new state of a table, instead of the metadata file `before`; None: the table is new."""

    name: Name
    before: str | None
    after: TableState
    location: str


class _Lost(Exception):
    """Somebody else was faster."""


class InternalCatalog(NoopCatalog):
    """One catalog of the file, for one thread. Methods of pyiceberg raise its errors, all others ours."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        path = properties.get("uri", "").removeprefix("sqlite:///")
        if not Path(path).is_file():
            raise CatalogUnavailable(
                f"the file of internal catalogs {path!r} does not exist",
                hint="Restore it from a backup: it alone knows which metadata file of a table is the present one.",
            )
        self._db = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
        self._db.execute("PRAGMA synchronous = FULL")  # an acknowledged commit survives a power failure
        self._io = PyArrowFileIO({key: value for key, value in properties.items() if not key.endswith("impl")})

    def close(self) -> None:
        self._db.close()

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        """The namespaces directly below one, sorted. Raises NoSuchNamespaceError."""
        try:
            return [*self.namespaces(Catalog.identifier_to_tuple(namespace))]
        except NamespaceNotFound as error:
            raise NoSuchNamespaceError(error.message) from error

    def namespaces(self, parent: Name) -> list[Name]:
        """As `list_namespaces`. Raises NamespaceNotFound."""
        depth, names = len(parent), [_levels(row[0]) for row in self._db.execute(_NAMESPACES, (self.name,))]
        below = [name for name in names if name[:depth] == parent]
        if parent and not below:
            raise NamespaceNotFound(f"Namespace does not exist: {'.'.join(parent)}")
        return sorted({name[: depth + 1] for name in below if len(name) > depth})

    def every_namespace(self, parent: Name = ()) -> Iterator[Name]:
        """The namespaces at any depth, each before those in it."""
        for namespace in self.namespaces(parent):
            yield namespace
            yield from self.every_namespace(namespace)

    def namespace_properties(self, space: Name) -> dict[str, str]:
        """Raises NamespaceNotFound."""
        self.namespaces(space)
        rows = self._db.execute(_PROPERTIES, (self.name, _text(space)))
        return {key: value for key, value in rows if key != _EXISTS}

    def add_namespace(self, space: Name, properties: Mapping[str, str]) -> None:
        """Raises AlreadyExists, InvalidArgument."""
        _require_name(space)
        with self._transaction():
            with suppress(NamespaceNotFound):
                self.namespaces(space)
                raise AlreadyExists(f"Namespace already exists: {'.'.join(space)}")
            self._put_properties(space, properties)

    def change_namespace(self, space: Name, changed: Mapping[str, str], removed: Iterable[str]) -> dict[str, str]:
        """Change a namespace's properties; returns those before. Raises NamespaceNotFound."""
        with self._transaction():
            before = self.namespace_properties(space)
            self._remove_properties(space)
            rest = {key: value for key, value in before.items() if key not in set(removed)}
            self._put_properties(space, {**rest, **changed})
            return before

    def remove_namespace(self, space: Name, *, dry_run: bool = False) -> None:
        """Raises NamespaceNotFound, and Conflict for one that has tables or namespaces."""
        with self._transaction():
            if self.namespaces(space) or self.tables(space):
                raise Conflict(f"Namespace {'.'.join(space)} is not empty.")
            if not dry_run:
                self._remove_properties(space)

    def _put_properties(self, space: Name, properties: Mapping[str, str]) -> None:
        rows = ((self.name, _text(space), *item) for item in {**properties, _EXISTS: "true"}.items())
        self._db.executemany("INSERT INTO iceberg_namespace_properties VALUES (?, ?, ?, ?)", rows)

    def _remove_properties(self, space: Name) -> None:
        query = "DELETE FROM iceberg_namespace_properties WHERE catalog_name = ? AND namespace = ?"
        self._db.execute(query, (self.name, _text(space)))

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        """The tables directly in a namespace, sorted. Raises NoSuchNamespaceError."""
        space = Catalog.identifier_to_tuple(namespace)
        self.list_namespaces(space)
        return [(*space, table) for table in self.tables(space)]

    def tables(self, space: Name) -> list[str]:
        """The names of the tables directly in a namespace, sorted. Raises NamespaceNotFound."""
        self.namespaces(space)
        query = "SELECT table_name FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ?"
        return sorted(row[0] for row in self._db.execute(query, (self.name, _text(space))))

    def pointers(self) -> Iterator[tuple[Name, str]]:
        """All tables with the locations of their metadata files."""
        query = "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables WHERE catalog_name = ?"
        for space, table, location in self._db.execute(query, (self.name,)):
            yield (*_levels(space), table), location

    def pointer(self, name: Name) -> str:
        """The location of a table's metadata file. Raises TableNotFound."""
        row = self._db.execute(_POINTER, self._key(name)).fetchone()
        if row is None:
            raise TableNotFound(f"Table does not exist: {'.'.join(name)}")
        return str(row[0])

    def read(self, location: str) -> TableState:
        """The state that a metadata file has. Raises DataFileMissing and what reading raises."""
        try:
            with confined(self._io).new_input(location).open() as stream:
                content = bytes(stream.read())
        except FileNotFoundError as error:
            raise DataFileMissing(f"Failed to open input stream for file: {location}: it does not exist") from error
        return TableState(location, decompress(content, MAX_WBITS | 16) if content[:2] == b"\x1f\x8b" else content)

    def load_table(self, identifier: str | Identifier) -> Table:
        """The table's present state. Raises NoSuchTableError."""
        name = Catalog.identifier_to_tuple(identifier)
        try:
            state = self.read(self.pointer(name))
        except TableNotFound as error:
            raise NoSuchTableError(error.message) from error
        metadata, location = TableMetadataUtil.parse_raw(state.content.decode()), state.metadata_location
        file_io = self._load_file_io(metadata.properties, location)
        return Table(identifier=name, metadata=metadata, metadata_location=location, io=file_io, catalog=self)

    def remove_table(self, name: Name) -> None:
        """Remove a table's entry; its files stay. Raises TableNotFound."""
        if not self._db.execute(_DROP, self._key(name)).rowcount:
            raise TableNotFound(f"Table does not exist: {'.'.join(name)}")

    def move_table(self, name: Name, target: Name) -> None:
        """Give a table another name. Raises TableNotFound, NamespaceNotFound, AlreadyExists, InvalidArgument."""
        with self._transaction():
            self.pointer(name)
            self.require_free(target)
            self._db.execute(_RENAME, (_text(target[:-1]), target[-1], *self._key(name)))

    def require_free(self, name: Name) -> None:
        """Raise NamespaceNotFound, AlreadyExists, InvalidArgument unless a table can have the name."""
        _require_name(name)
        self.namespaces(name[:-1])
        with suppress(TableNotFound):
            self.pointer(name)
            raise AlreadyExists(f"Table already exists: {'.'.join(name)}")

    def add_table(self, name: Name, metadata: Json, grant: Grant) -> TableState:
        """Raises NamespaceNotFound, AlreadyExists, InvalidArgument, and what writing raises."""
        self.require_free(name)
        swap = self._written(name, None, metadata, grant)
        if not self._swapped([swap]):
            raise AlreadyExists(f"Table already exists: {'.'.join(name)}")
        return swap.after

    def register(self, name: Name, metadata_location: str, grant: Grant, *, overwrite: bool) -> TableState:
        """Make the file a table's present state; `overwrite`: also that of a table that exists. As `add_table`."""
        state, before = self.read(metadata_location), None
        metadata = parsed(lambda: normalised(from_json(state.content, cache_strings="keys")))
        _require_granted(metadata, grant)
        if overwrite:
            with suppress(TableNotFound):
                before = self.pointer(name)
        if before is None:
            self.require_free(name)
        if not self._swapped([_Swap(name, before, state, metadata["location"])], are_new=False):
            raise CommitConflict(f"Table {'.'.join(name)} was changed meanwhile")
        return state

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Change a table. Raises CommitFailedException, NoSuchTableError."""
        name = table.name()
        sent = [[from_json(item.model_dump_json()) for item in items] for items in (requirements, updates)]
        try:
            (state,) = self.commit([TableChange(name, *sent)], None)
        except CommitConflict as error:
            raise CommitFailedException(error.message) from error
        except TableNotFound as error:
            raise NoSuchTableError(error.message) from error
        metadata = TableMetadataUtil.parse_raw(state.content.decode())
        return CommitTableResponse(metadata=metadata, **{"metadata-location": state.metadata_location})

    def commit(self, changes: Sequence[TableChange], grant: Grant | None) -> list[TableState]:
        """Change all tables or none; returns their states after it. A repeated request changes nothing again.

        Raises TableNotFound, NamespaceNotFound, InvalidArgument, CommitConflict, what reading and writing raise, and
        CommitUnknown: only then something may have changed.
        """
        if len({change.name for change in changes}) < len(changes):
            raise InvalidArgument("a transaction changes each table once")
        for _ in range(_ROUNDS):
            swaps: list[_Swap] = []
            try:
                planned = [self._planned(change) for change in changes]
                for name, before, metadata in (plan for plan in planned if not isinstance(plan, TableState)):
                    swaps.append(self._written(name, before, metadata, grant))
            except BaseException:
                self._discard(swaps)
                raise
            if not swaps or self._swapped(swaps):
                written = iter(swaps)
                return [plan if isinstance(plan, TableState) else next(written).after for plan in planned]
        raise CommitConflict("others have changed the tables again and again", hint="Refresh, and try again.")

    def _planned(self, change: TableChange) -> "TableState | tuple[Name, str | None, Json]":
        """The table's state where nothing is to be changed; else its name, its metadata file, and what is to follow."""
        now_ms, is_new = round(time.time() * 1000), parsed(lambda: is_create(change.requirements))
        try:
            state = self.read(self.pointer(change.name))
        except TableNotFound:
            if not is_new:
                raise
            self.require_free(change.name)
            return change.name, None, parsed(lambda: created(change.updates, now_ms))
        metadata = normalised(from_json(state.content, cache_strings="keys"))
        added = [update.get("snapshot") for update in change.updates if update.get("action") == "add-snapshot"]
        # A proxy may send a request again whose answer was lost: snapshots are added with all else or not at all.
        if added and all(snapshot in metadata["snapshots"] for snapshot in added):
            return state
        parsed(lambda: require(metadata, change.requirements))
        after = parsed(lambda: updated(metadata, change.updates, now_ms, state.metadata_location))
        return state if after is None else (change.name, state.metadata_location, after)

    def _written(self, name: Name, before: str | None, metadata: Json, grant: Grant | None) -> _Swap:
        """Write the metadata to a new file, which is named as a possible left-over first."""
        if grant is not None:
            _require_granted(metadata, grant)
        version = re.match(r"v?(\d+)", before.rpartition("/")[2]) if before else None
        place = metadata["properties"].get("write.metadata.path", f"{metadata['location']}/metadata").rstrip("/")
        path = f"{place}/{int(version[1]) + 1 if version else 0:05d}-{uuid.uuid4()}.metadata.json"
        swap = _Swap(name, before, TableState(path, to_json(metadata)), metadata["location"])
        now_ms = round(time.time() * 1000)
        query = "SELECT location FROM written_file WHERE abs(written_ms) < ? LIMIT 10"
        for (left_over,) in self._db.execute(query, (now_ms - _LEFT_OVER_MS,)).fetchall():
            self._remove_file(left_over)
        self._db.execute("INSERT INTO written_file VALUES (?, ?)", (path, now_ms))
        try:
            with confined(self._io).new_output(path).create(overwrite=True) as stream:
                stream.write(swap.after.content)
            if is_local(path):
                _sync(Path(normalise(path)), is_new=before is None)
        except BaseException:
            self._discard([swap])
            raise
        return swap

    def _swapped(self, swaps: Sequence[_Swap], *, are_new: bool = True) -> bool:
        """Swap the rows of all tables; False, with nothing changed, when any table is not what it was."""
        try:
            with self._transaction():
                for swap in swaps:
                    self._swap(swap)
                    # A file that was swept as a left-over meanwhile must not come back.
                    named = "DELETE FROM written_file WHERE location = ? AND written_ms >= 0"
                    if not self._db.execute(named, (swap.after.metadata_location,)).rowcount and are_new:
                        raise _Lost
        except BaseException as error:
            if are_new:
                self._discard(swaps)
            if isinstance(error, _Lost):
                return False
            raise
        return True

    def _swap(self, swap: _Swap) -> None:
        name, before, after, location = swap[0], swap[1], swap[2], normalise(swap.location)
        key, place = self._key(name), f"{location}/"
        above = [location, *(location[:at] for at, letter in enumerate(location) if letter == "/")]
        values = (to_json(above).decode(), place, f"{place}\U0010ffff", *key)
        if other := self._db.execute(_NEIGHBOUR, values).fetchone():
            raise InvalidArgument(f"{location} overlaps the location of table {'.'.join(other)}")
        if before is None:
            self.namespaces(name[:-1])
            done = self._db.execute(_INSERT, (*key, after.metadata_location, location))
        else:
            done = self._db.execute(_SWAP, (after.metadata_location, before, location, *key, before))
        if not done.rowcount:
            raise _Lost

    def _discard(self, swaps: Iterable[_Swap]) -> None:
        for swap in swaps:
            self._remove_file(swap.after.metadata_location)

    def _remove_file(self, path: str) -> None:
        """Delete a file that was not swapped in: a time below zero forbids it from now on. What fails is left over."""
        with suppress(Exception):
            marked, now_ms = "UPDATE written_file SET written_ms = ? WHERE location = ?", round(time.time() * 1000)
            if self._db.execute(marked, (-now_ms, path)).rowcount:
                with suppress(FileNotFoundError):
                    confined(self._io).delete(path)
                self._db.execute("DELETE FROM written_file WHERE location = ?", (path,))

    def _key(self, name: Name) -> tuple[str, str, str]:
        return self.name, _text(name[:-1]), name[-1]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            try:
                self._db.execute("COMMIT")
            except sqlite3.Error as error:
                raise CommitUnknown(f"the catalog's database failed to commit: {error}") from error
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")


def parsed(work: Callable[[], Any]) -> Any:
    """The result; where values of a request are of another kind than they should be, InvalidArgument is raised."""
    try:
        return work()
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InvalidArgument(f"Cannot parse the request: {type(error).__name__}: {error}") from error


def _sync(file: Path, *, is_new: bool) -> None:
    """Have a file and its name on disk; of a new table also the names of the directories above it."""
    for place in (file, *file.parents[: None if is_new else 1]):
        with suppress(PermissionError):  # a directory that may not be read is not one that was made for the file
            descriptor = os.open(place, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _require_granted(metadata: Json, grant: Grant) -> None:
    """Raise InvalidArgument, TableRefused unless the table's files lie where the catalog allows it."""
    location, properties = metadata["location"], metadata["properties"]
    if flaw := flaw_of_location(location):
        raise InvalidArgument(f"{location!r} is not a location: {flaw}")
    if not grant.covers(location):
        raise InvalidArgument(f"{location} is outside the catalog's warehouse", hint=grant.way_out)
    places = (properties.get(key) for key in ("write.metadata.path", "write.data.path"))
    grant.refuse(location, *filter(None, places))


def _require_name(name: Name) -> None:
    for part in name or ("",):
        if not part or not part.isprintable():
            raise InvalidArgument(f"{part!r} can't be a part of a name: it is empty, or has control characters")


def _text(space: Name) -> str:
    """The namespace as rows have it: its levels joined by dots; a dot within a level is escaped."""
    return ".".join(level.replace("%", "%25").replace(".", "%2E") for level in space)


def _levels(text: str) -> Name:
    return tuple(level.replace("%2E", ".").replace("%25", "%") for level in text.split("."))
