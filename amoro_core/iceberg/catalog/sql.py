"""SQL catalogs that read a table's row as it is: pyiceberg makes an object of it, which takes three times as long.

Imported only when one is opened: SQLAlchemy takes 0.3 s of a start.
"""

import os
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io import load_file_io
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier
from sqlalchemy import bindparam, select


class RowSqlCatalog(SqlCatalog):
    """A SQL catalog whose tables are looked up by one statement, made once."""

    def load_table(self, identifier: str | Identifier) -> Table:
        """As pyiceberg's. Raises NoSuchTableError."""
        namespace = Catalog.namespace_to_string(Catalog.namespace_from(identifier))
        name = Catalog.table_name_from(identifier)
        with self.engine.connect() as connection:
            wanted = {"catalog": self.name, "namespace": namespace, "name": name}
            row: Any = connection.execute(self._row, wanted).first()
        if row is None:
            raise NoSuchTableError(f"Table does not exist: {namespace}.{name}")
        return self._convert_orm_to_iceberg(row)

    def metadata_locations(self) -> Iterator[tuple[str, str, str]]:
        """Namespace, name and metadata file of each table, and of each view: rows as they are."""
        rows: Any = IcebergTables.__table__
        columns = rows.c.table_namespace, rows.c.table_name, rows.c.metadata_location
        query = select(*columns).where(rows.c.catalog_name == self.name)
        with self.engine.connect() as connection:
            for row in connection.execute(query):
                yield tuple(row)

    def catalog_names(self) -> list[str]:
        """The names of all catalogs that have tables in the database, in order."""
        name: Any = IcebergTables.__table__.c.catalog_name
        with self.engine.connect() as connection:
            return list(connection.execute(select(name).distinct().order_by(name)).scalars())

    @cached_property
    def _row(self) -> Any:
        columns: Any = IcebergTables.__table__.c
        found = select(columns.table_namespace, columns.table_name, columns.metadata_location).where(
            columns.catalog_name == bindparam("catalog"),
            columns.table_namespace == bindparam("namespace"),
            columns.table_name == bindparam("name"),
        )
        # A view is no table; None in a schema without the column that tells.
        is_table = self._iceberg_type_filter()
        return found if is_table is None else found.where(is_table)


#: Properties of pyiceberg's SQL catalogs that need its own.
_OF_SQLALCHEMY = frozenset({"echo", "pool_pre_ping", "init_catalog_tables", "schema_version"})
_TIMEOUT_S = 5.0  # the driver's
_TABLES = "SELECT * FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ?"
_PLACES = "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables WHERE catalog_name = ?"
_NAMESPACES = (
    "SELECT table_namespace FROM iceberg_tables WHERE catalog_name = ?"
    " UNION SELECT namespace FROM iceberg_namespace_properties WHERE catalog_name = ?"
)
_NAMES = "SELECT DISTINCT catalog_name FROM iceberg_tables ORDER BY catalog_name"
_SWAP = (
    "UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = ?"
    " WHERE catalog_name = ? AND table_namespace = ? AND table_name = ? AND metadata_location = ?"
)


class SqliteFailed(Exception):
    """SQLite failed: `orig` is the driver's error; `statement` is None if it was in opening the file or in COMMIT."""

    def __init__(self, orig: sqlite3.Error, statement: str | None) -> None:
        super().__init__(str(orig))
        self.orig = orig
        self.statement = statement


@dataclass(frozen=True, slots=True)
class DatabaseFile:
    """A file of SQLite, by its absolute path, and how many seconds a lock is waited for."""

    path: str
    timeout_s: float


def database_file(properties: Mapping[str, str]) -> DatabaseFile | None:
    """The database, if the catalog is a file of SQLite for which no other option is set than `timeout`."""
    found = re.fullmatch(r"sqlite(?:\+pysqlite)?:///([^?]+)(?:\?timeout=(\d+(?:\.\d+)?))?", properties["uri"])
    if found is None or found[1] == ":memory:" or found[1].startswith("file:") or _OF_SQLALCHEMY & properties.keys():
        return None
    return DatabaseFile(os.path.abspath(found[1]), float(found[2] or _TIMEOUT_S))


class SqliteCatalog(NoopCatalog, MetastoreCatalog):
    """The tables of one name in a database file, which must exist.

    One connection, opened when it is needed, and closed by `close` and by each failure: what was not committed then is
    rolled back. Raises SqliteFailed whenever the database fails.
    """

    def __init__(self, name: str, file: DatabaseFile, **properties: str) -> None:
        super().__init__(name, **properties)
        self._file = file
        self._opened: sqlite3.Connection | None = None

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        """The namespaces directly below one. Raises NoSuchNamespaceError."""
        parent = Catalog.identifier_to_tuple(namespace)
        known = {Catalog.identifier_to_tuple(row[0]) for row in self._select(_NAMESPACES, self.name, self.name)}
        within = {name for name in known if name[: len(parent)] == parent}
        if parent and not within:
            raise NoSuchNamespaceError(f"Namespace does not exist: {'.'.join(parent)}")
        return [*{name[: len(parent) + 1] for name in within if len(name) > len(parent)}]

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        """The tables directly below a namespace. Raises NoSuchNamespaceError."""
        parent = Catalog.identifier_to_tuple(namespace)
        found = self._select(_TABLES, self.name, Catalog.namespace_to_string(parent))
        if not found:
            self.list_namespaces(parent)
        return [(*parent, row["table_name"]) for row in found if _is_table(row)]

    def load_table(self, identifier: str | Identifier) -> Table:
        """Raises NoSuchTableError."""
        name = Catalog.identifier_to_tuple(identifier)
        space, table = Catalog.namespace_to_string(name[:-1]), name[-1]
        found = self._select(f"{_TABLES} AND table_name = ?", self.name, space, table)
        location = next((row["metadata_location"] for row in found if _is_table(row)), None)
        if not location:
            raise NoSuchTableError(f"Table does not exist: {space}.{table}")
        io = load_file_io(properties=self.properties, location=location)
        metadata = FromInputFile.table_metadata(io.new_input(location))
        return Table(
            identifier=name,
            metadata=metadata,
            metadata_location=location,
            io=self._load_file_io(metadata.properties, location),
            catalog=self,
        )

    def metadata_locations(self) -> Iterator[tuple[str, str, str]]:
        """Namespace, name and metadata file of each table, and of each view."""
        for row in self._select(_PLACES, self.name):
            yield tuple(row)

    def catalog_names(self) -> list[str]:
        """The names of all catalogs that have tables in the database, in order."""
        return [row[0] for row in self._select(_NAMES)]

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Writes a metadata file, and makes it the table's if the one that it was made of still is.

        Raises CommitFailedException when it is not, or a requirement is not met, and NoSuchTableError.
        """
        name = table.name()
        try:
            current = self.load_table(name)
        except NoSuchTableError:
            for requirement in requirements:
                requirement.validate(None)
            raise
        staged = self._update_and_stage_table(current, name, requirements, updates)
        if staged.metadata == current.metadata:
            return _answer(current.metadata, current.metadata_location)
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        before, after = current.metadata_location, staged.metadata_location
        if not self._change(_SWAP, after, before, self.name, ".".join(name[:-1]), name[-1], before):
            raise CommitFailedException(f"Table has been updated by another process: {'.'.join(name)}")
        return _answer(staged.metadata, after)

    def close(self) -> None:
        """Close the connection; the next use opens another one."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _select(self, statement: str, *values: str) -> list[sqlite3.Row]:
        connection = self._connection()
        with self._failing(statement), closing(connection.execute(statement, values)) as found:
            return found.fetchall()

    def _change(self, statement: str, *values: str) -> int:
        """The number of rows changed, in a transaction of its own."""
        connection = self._connection()
        with self._failing(statement), closing(connection.execute(statement, values)) as done:
            changed = done.rowcount
        with self._failing(None):
            connection.commit()
        return changed

    def _connection(self) -> sqlite3.Connection:
        if self._opened is None:
            with self._failing(None):
                uri = f"{Path(self._file.path).as_uri()}?mode=rw"  # never makes an empty database
                self._opened = sqlite3.connect(uri, self._file.timeout_s, check_same_thread=False, uri=True)
            self._opened.row_factory = sqlite3.Row
        return self._opened

    @contextmanager
    def _failing(self, statement: str | None) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.close()
            if isinstance(error, sqlite3.Error):
                raise SqliteFailed(error, statement) from error
            raise


def _answer(metadata: TableMetadata, location: str) -> CommitTableResponse:
    return CommitTableResponse.model_validate({"metadata": metadata, "metadata-location": location})


def _is_table(row: sqlite3.Row) -> bool:
    """Java and Rust keep views in the same table, since its second version."""
    return dict(row).get("iceberg_type") in (None, "TABLE")
