"""SQL catalogs that read a table's row as it is: pyiceberg makes an object of it, which takes three times as long.

Imported only when one is opened: SQLAlchemy takes half a second of every start.
"""

from functools import cached_property
from typing import Any, cast

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from sqlalchemy import bindparam, select

from amoro_core.iceberg.catalogs import catalog_errors, open_catalog
from amoro_core.model.processes import CatalogConfig


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


def other_names(config: CatalogConfig) -> tuple[str, ...]:
    """The names of the catalogs that have tables in a SQL catalog's database where it has none itself.

    A table belongs to the name of the catalog that it was made in. Raises CatalogUnavailable.
    """
    catalog = cast(SqlCatalog, open_catalog(config))
    name: Any = IcebergTables.__table__.c.catalog_name
    with catalog_errors(config), catalog.engine.connect() as connection:
        found = connection.execute(select(name).distinct().order_by(name)).scalars().all()
    return () if config.name in found else tuple(found)
