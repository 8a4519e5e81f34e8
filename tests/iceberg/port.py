"""A table behind the port, made of what a test has at hand."""

from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from amoro_core.formats.iceberg import IcebergTable
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier


def port(table: Table | TableMetadata) -> IcebergTable:
    """The table as it was loaded, or one of which there are only metadata."""
    nothing: Any = None
    loaded = table if isinstance(table, Table) else Table(("db", "t"), table, "", nothing, nothing)
    return IcebergTable(CatalogConfig("cat", (("type", "sql"),)), TableIdentifier("cat", ("db",), "t"), loaded)
