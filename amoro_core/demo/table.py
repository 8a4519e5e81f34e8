"""The demo's catalog and table, and counts of its files."""

from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import MonthTransform

from amoro_core.demo.flights import SCHEDULED, SCHEMA
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier
from amoro_core.records import record

IDENTIFIER = TableIdentifier("demo", ("nyc",), "flights")

#: Sizes that suit a table of a few megabytes, so that all kinds of optimizing are seen within a minute.
PROPERTIES = {
    "format-version": "2",
    "self-optimizing.enabled": "true",
    "self-optimizing.target-size": str(256 * 1024),
    "self-optimizing.minor.trigger.file-count": "8",
    "self-optimizing.minor.trigger.interval": "-1",
    "self-optimizing.min-plan-interval": "1000",
    "read.split.open-file-cost": str(16 * 1024),
}
_SPEC = PartitionSpec(PartitionField(source_id=SCHEDULED, field_id=1000, transform=MonthTransform(), name="month"))


@record
class FileCounts:
    """Numbers of files, and their total size."""

    data: int = 0
    equality: int = 0
    position: int = 0
    size_bytes: int = 0

    def __add__(self, other: "FileCounts") -> "FileCounts":
        return FileCounts(
            self.data + other.data,
            self.equality + other.equality,
            self.position + other.position,
            self.size_bytes + other.size_bytes,
        )


class FileCounter:
    """Counts live files with pyiceberg; manifests are immutable, so each is read only once."""

    def __init__(self) -> None:
        self._known: dict[str, FileCounts] = {}

    def count(self, table: Table) -> FileCounts:
        """The live files of the table as it was loaded."""
        snapshot = table.current_snapshot()
        total = FileCounts()
        for manifest in snapshot.manifests(table.io) if snapshot else ():
            path = manifest.manifest_path
            if path not in self._known:
                self._known[path] = _counts(table.io, manifest)
            total += self._known[path]
        return total


def _counts(io: FileIO, manifest: ManifestFile) -> FileCounts:
    files = [entry.data_file for entry in manifest.fetch_manifest_entry(io)]
    kinds = [file.content for file in files]
    return FileCounts(
        kinds.count(DataFileContent.DATA),
        kinds.count(DataFileContent.EQUALITY_DELETES),
        kinds.count(DataFileContent.POSITION_DELETES),
        sum(file.file_size_in_bytes for file in files),
    )


def catalog_config(directory: Path) -> CatalogConfig:
    """The demo's catalog as configured in the coordinator."""
    return CatalogConfig(IDENTIFIER.catalog, (("type", "sql"), *_properties(directory).items()))


def open_catalog(directory: Path) -> SqlCatalog:
    """The demo's catalog, created if missing; the caller closes it, and must not share it between threads."""
    return SqlCatalog(IDENTIFIER.catalog, **_properties(directory))


def create_table(catalog: SqlCatalog) -> Table:
    """The new, empty table of flights."""
    catalog.create_namespace(IDENTIFIER.namespace)
    return catalog.create_table(IDENTIFIER.in_catalog, SCHEMA, partition_spec=_SPEC, properties=PROPERTIES)


def _properties(directory: Path) -> dict[str, str]:
    # The timeout: writer and coordinator share the database, and a slow disk must not look like a failure.
    return {
        "uri": f"sqlite:///{directory / 'catalog.db'}?timeout=60",
        "warehouse": (directory / "warehouse").as_uri(),
    }
