"""SQL catalogs that read a table's row as it is: pyiceberg makes an object of it, which takes three times as long.

Imported only when one is opened: SQLAlchemy takes 0.3 s of a start.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
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
