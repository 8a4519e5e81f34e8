"""Tables that are directories: below a catalog's warehouse, or where the parameters in a Hive metastore say."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from amoro_core.errors import CatalogMisconfigured, CatalogUnavailable, DataFileMissing, TableNotFound, TableRefused
from amoro_core.files.storage.io import FileAccess, open_access
from amoro_core.formats.ports import Role
from amoro_core.iceberg.catalog.catalogs import (
    STORAGE_PREFIXES,
    catalog_errors,
    hive_tables,
    kind_of,
    open_catalog,
    resolved,
)
from amoro_core.model.location_policy import grant_of
from amoro_core.model.paths import flaw_of_location, normalise
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableFacts, TableIdentifier, discovery_filter

#: The namespace of tables directly below a warehouse, as in Spark; a database's directory may end in `.db`.
_DEFAULT, _DATABASE = "default", ".db"
#: How many folders deep tables are looked for.
_DEPTH = 4


@dataclass(frozen=True, slots=True)
class TableDirectory:
    """Where one table lies, with access to its files."""

    identifier: TableIdentifier
    location: str
    access: FileAccess = field(repr=False)
    storage: Mapping[str, str] = field(repr=False)  # properties of its storage
    parameters: Mapping[str, str] = field(default_factory=dict)  # in the Hive metastore


class DirectoryTable:
    """A table in a directory, as loaded at one moment, whose services its format's own engine does."""

    roles = frozenset({Role.SERVICE})
    facts: TableFacts

    def __init__(self, directory: TableDirectory) -> None:
        self.directory = directory

    def refuse_unsupported(self, *, for_commit: bool = True) -> None:
        """Refuses nothing; its services refuse what they don't support."""

    def skip_reason(self) -> str:
        return f"{self.facts.format.capitalize()} does it, on an optimizer with Spark"

    def io_properties(self) -> Mapping[str, str]:
        return self.directory.storage


class DirectoryFormat(ABC):
    """A format of such tables, in catalogs of any storage or in a Hive metastore."""

    name: str
    marks: tuple[str, ...]  # files below a table's location, in one directory, any of which makes it one of the format

    @abstractmethod
    def is_listed(self, parameters: Mapping[str, str]) -> bool:
        """Whether the parameters of a table in a Hive metastore are those of the format."""

    def commits_refused(self, catalog: CatalogConfig) -> str | None:
        """None: the format's own engine commits."""
        return None

    def check(self, catalog: CatalogConfig) -> None:
        """Raise CatalogMisconfigured without a warehouse, CatalogUnavailable where it is gone."""
        if kind_of(catalog) != "hive":
            self._folders(catalog, *self._opened(catalog))
            return
        with catalog_errors(catalog):
            open_catalog(catalog).list_namespaces()

    def list_tables(self, catalog: CatalogConfig) -> list[TableIdentifier]:
        """The tables that the catalog's filters admit, in order of their names. Raises CatalogUnavailable."""
        listed = self._in_hive(catalog) if kind_of(catalog) == "hive" else self._below_warehouse(catalog)
        names = {TableIdentifier(catalog.name, name[:-1], name[-1]) for name in listed}
        return sorted(filter(discovery_filter(dict(catalog.properties)).admits, names))

    def find(self, catalog: CatalogConfig, identifier: TableIdentifier) -> TableDirectory:
        """The table's directory. Raises TableNotFound, TableRefused("format") for one of another format in Hive."""
        if kind_of(catalog) == "hive":
            return self._find_in_hive(catalog, identifier)
        (access, warehouse), (*namespace, name) = self._opened(catalog), identifier.in_catalog
        folders = ["/".join(namespace), "/".join(namespace) + _DATABASE, *([""] if namespace == [_DEFAULT] else [])]
        for folder in folders:
            location = "/".join(part for part in (warehouse, folder, name) if part)
            if ".." not in identifier.in_catalog and self._is_marked(access, location):
                return TableDirectory(identifier, location, access, _storage(catalog))
        self._folders(catalog, access, warehouse)  # a warehouse that is gone says nothing about its tables
        raise TableNotFound(
            f"table {identifier} does not exist: no directory of that name has {self.marks[0]}",
            hint=f"See: amoro table list --catalog {catalog.name}",
            table=identifier,
        )

    def _below_warehouse(self, catalog: CatalogConfig) -> Iterator[tuple[str, ...]]:
        access, warehouse = self._opened(catalog)
        directory = self.marks[0].partition("/")[0]
        waiting: list[tuple[str, ...]] = [()]
        while waiting:
            parts = waiting.pop()
            place = "/".join((warehouse, *parts))
            folders = self._folders(catalog, access, place, may_miss=bool(parts))
            if parts and directory in folders and self._is_marked(access, place):
                *above, database, name = parts if len(parts) > 1 else (_DEFAULT, *parts)
                yield (*above, database.removesuffix(_DATABASE), name)
            elif len(parts) < _DEPTH:
                waiting += [(*parts, item) for item in folders if not item.startswith((".", "_")) and "=" not in item]

    def _is_marked(self, access: FileAccess, location: str) -> bool:
        return any(access.exists(f"{location}/{mark}") for mark in self.marks)

    def _folders(
        self, catalog: CatalogConfig, access: FileAccess, place: str, *, may_miss: bool = False
    ) -> frozenset[str]:
        try:
            return access.folders(place)
        except (DataFileMissing, TableRefused) as error:
            if may_miss:  # removed since its parent was listed, or a link that leads elsewhere
                return frozenset()
            raise CatalogUnavailable(
                f"catalog {catalog.name}: the warehouse {place} does not exist",
                hint=f"Restore it, or name another one: amoro catalog update {catalog.name} warehouse=URI",
            ) from error

    def _opened(self, catalog: CatalogConfig) -> tuple[FileAccess, str]:
        """Access to the warehouse, and where that is."""
        named = resolved(catalog).get("warehouse", "")
        flaw = f"{named!r} is no location: {flaw_of_location(named)}" if named else "warehouse is missing"
        if not named or flaw_of_location(named):
            raise CatalogMisconfigured(
                f"catalog {catalog.name}: {flaw}", hint="Name the directory: warehouse=file:///absolute/path"
            )
        return _access(catalog, normalise(named)), normalise(named)

    def _in_hive(self, catalog: CatalogConfig) -> list[tuple[str, ...]]:
        hive: Any = open_catalog(catalog)
        admits = discovery_filter(dict(catalog.properties)).admits_namespace
        with catalog_errors(catalog):
            with hive._client as client:
                spaces = [space for space in client.get_all_databases() if admits((space,))]
                names = [(space, table) for space in spaces for table in client.get_all_tables(db_name=space)]
            return [name for name, table in hive_tables(hive, names) if self.is_listed(table.parameters or {})]

    def _find_in_hive(self, catalog: CatalogConfig, identifier: TableIdentifier) -> TableDirectory:
        with catalog_errors(catalog):
            tables = dict(hive_tables(open_catalog(catalog), [identifier.in_catalog]))
        if not tables:
            raise TableNotFound(f"table {identifier} does not exist", table=identifier)
        [table] = tables.values()
        parameters, location = dict(table.parameters or {}), normalise(table.sd.location or "")
        if not self.is_listed(parameters):
            raise TableRefused(
                f"{identifier} is not a {self.name.capitalize()} table, by its parameters in the metastore",
                reason="format",
            )
        return TableDirectory(identifier, location, _access(catalog, location), _storage(catalog), parameters)


def _storage(catalog: CatalogConfig) -> dict[str, str]:
    return {key: value for key, value in resolved(catalog).items() if key.startswith(STORAGE_PREFIXES)}


def _access(catalog: CatalogConfig, location: str) -> FileAccess:
    named = resolved(catalog).get("warehouse", "")
    grant = grant_of(catalog, (named,) if named else ())
    return open_access(
        _storage(catalog), location, read_locations=grant.readable(location), write_locations=(), way_out=grant.way_out
    )
