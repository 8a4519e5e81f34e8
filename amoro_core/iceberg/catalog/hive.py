"""Hive catalogs. Imported only when one is opened: the client is an extra of pyiceberg's."""

from typing import Any

from pyiceberg.catalog.hive import HiveCatalog
from pyiceberg.table import Table

from amoro_core.iceberg.table_support import refuse_mixed_hive


class GuardedHiveCatalog(HiveCatalog):
    """A Hive catalog that detects tables of Amoro's Mixed-Hive format, which only the metastore's parameters mark."""

    def _convert_hive_into_iceberg(self, table: Any) -> Table:
        refuse_mixed_hive(table.parameters or {})
        return super()._convert_hive_into_iceberg(table)
