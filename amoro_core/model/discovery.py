"""Which tables of a catalog are discovered: its filters of databases and tables, named as in Amoro."""

import re
from collections.abc import Mapping

from amoro_core.errors import InvalidArgument
from amoro_core.model.tables import TableIdentifier
from amoro_core.records import record

DATABASE_FILTER = "database-filter"
TABLE_FILTER = "table-filter"


@record
class DiscoveryFilter:
    """Patterns that the whole name must match; None: any name matches."""

    database: re.Pattern[str] | None = None
    table: re.Pattern[str] | None = None

    def admits_namespace(self, namespace: tuple[str, ...]) -> bool:
        """Whether tables of the namespace are discovered; nested namespaces are joined by dots."""
        return self.database is None or self.database.fullmatch(".".join(namespace)) is not None

    def admits(self, identifier: TableIdentifier) -> bool:
        """Whether the table is discovered."""
        named = self.table is None or self.table.fullmatch(identifier.name) is not None
        return named and self.admits_namespace(identifier.namespace)


def discovery_filter(properties: Mapping[str, str]) -> DiscoveryFilter:
    """The filter in a catalog's properties. Raises InvalidArgument for an invalid regular expression."""
    return DiscoveryFilter(*(_pattern(key, properties.get(key, "")) for key in (DATABASE_FILTER, TABLE_FILTER)))


def _pattern(key: str, text: str) -> re.Pattern[str] | None:
    if not text:
        return None
    try:
        return re.compile(text)
    except re.error as error:
        raise InvalidArgument(f"{key} is not a regular expression: {text!r}: {error}") from error
