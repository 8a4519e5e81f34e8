"""A loaded Iceberg table: the base of all its roles."""

from collections.abc import Mapping

from pyiceberg.table import Table

from amoro_core.errors import CommitConflict
from amoro_core.files.io import FileAccess, open_access
from amoro_core.iceberg import commit
from amoro_core.iceberg.caching import ManifestCache
from amoro_core.iceberg.catalogs import granted, load_table, open_catalog
from amoro_core.iceberg.guards import confined_to
from amoro_core.iceberg.metadata import read_locations, write_locations
from amoro_core.model.grants import Grant
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier

#: Properties that are passed to a FileIO; all others (URIs and tokens of catalogs) are withheld.
_FILE_IO_PREFIXES = ("s3.", "gcs.", "adls.", "hdfs.", "hf.", "client.", "pyarrow.", "oss.")


class LoadedIcebergTable:
    """One Iceberg table as loaded at one moment, and as reloaded last.

    A reloaded table must be the same one: nothing is read, concluded or removed based on another table of its name.
    """

    def __init__(self, config: CatalogConfig, identifier: TableIdentifier, table: Table) -> None:
        self._config = config
        self._identifier = identifier
        self._table = table
        self._newest = table
        self._fallen: tuple[str, ...] = ()  # metadata files that go with the last commit
        self._manifests = ManifestCache()  # of `head` and `stage`

    def io_properties(self) -> Mapping[str, str]:
        """Properties of a FileIO for this table's files, including vended credentials; none of the catalog itself."""
        properties = {**dict(open_catalog(self._config).properties), **self._newest.io.properties}
        return {
            key: value
            for key, value in sorted(properties.items())
            if key.startswith(_FILE_IO_PREFIXES) and isinstance(value, str)
        }

    def send(self, payload: bytes) -> None:
        """Send a staged commit. Raises CommitConflict, CommitRefused or CommitUnknown."""
        with confined_to(self._grant()):
            self._fallen = commit.send(open_catalog(self._config), self._newest, payload)

    def _renewed(self) -> Table:
        self._newest = self._load()
        return self._newest

    def _load(self) -> Table:
        found, uuid = load_table(self._config, self._identifier), self._table.metadata.table_uuid
        # Before anything else: sequence numbers of two tables can't be compared.
        if found.metadata.table_uuid != uuid:
            raise CommitConflict(
                f"{self._identifier} is another table: UUID {found.metadata.table_uuid}, before {uuid}"
            )
        return found

    def _grant(self) -> Grant:
        return granted(self._config, open_catalog(self._config))

    def _readable(self, table: Table) -> tuple[str, ...]:
        return read_locations(table.metadata, self._grant())

    def _access(self, table: Table, *more: str) -> FileAccess:
        """Access to the table's files, and to those below further places as far as they are granted."""
        grant = self._grant()
        return open_access(
            self.io_properties(),
            table.metadata.location,
            read_locations=read_locations(table.metadata, grant),
            write_locations=write_locations(table.metadata, grant, *more),
            way_out=grant.way_out,
        )
