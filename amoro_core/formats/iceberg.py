"""Iceberg tables behind the port."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.table import Table

from amoro_core.errors import CatalogUnavailable, CommitConflict, TableRefused
from amoro_core.files.deletes import read_positions
from amoro_core.files.footers import read_facts
from amoro_core.files.io import FileAccess, open_access
from amoro_core.iceberg import commit, filters, staging
from amoro_core.iceberg.caching import ManifestCache
from amoro_core.iceberg.catalogs import catalog_errors, commits_refused, load_table, open_catalog, warehouse_of
from amoro_core.iceberg.features import left_alone, refuse_files, refuse_table
from amoro_core.iceberg.heads import read_head
from amoro_core.iceberg.metadata import (
    context,
    equality_ids,
    partition_path,
    read_locations,
    snapshot_facts,
    table_facts,
    write_locations,
)
from amoro_core.iceberg.scan import scan
from amoro_core.iceberg.sites import read_site
from amoro_core.model.commits import CommitContent, FileFacts, Head, StagedCommit, Trace
from amoro_core.model.discovery import discovery_filter
from amoro_core.model.files import DataFile, DeleteFile, TableScan
from amoro_core.model.plans import PartitionKey
from amoro_core.model.processes import CatalogConfig, SiteFile
from amoro_core.model.rewrite import TableContext
from amoro_core.model.tables import SnapshotFacts, TableFacts, TableIdentifier

#: What a FileIO may be told; everything else (URIs and tokens of catalogs) stays here.
_FILE_IO_PREFIXES = ("s3.", "gcs.", "adls.", "hdfs.", "hf.", "client.", "pyarrow.", "oss.")


class IcebergFormat:
    """Iceberg tables in pyiceberg's catalogs."""

    def check(self, catalog: CatalogConfig) -> None:
        """Raise CatalogUnavailable when the catalog does not work as configured."""
        opened = open_catalog(catalog)
        with catalog_errors(catalog):
            opened.list_namespaces()

    def commits_refused(self, catalog: CatalogConfig) -> str | None:
        """Why nothing can be committed through this kind of catalog; None when it can."""
        return commits_refused(catalog)

    def read_site(self, name: str, content: str) -> SiteFile:
        """A configuration file with the catalog's properties that it stands for. Raises InvalidArgument."""
        return read_site(name, content)

    def list_tables(self, catalog: CatalogConfig) -> list[TableIdentifier]:
        """The tables of the catalog that its filters admit, in order of their names. Raises CatalogUnavailable."""
        opened = open_catalog(catalog)
        wanted = discovery_filter(dict(catalog.properties))
        with catalog_errors(catalog):
            namespaces = [namespace for namespace in _namespaces(opened) if wanted.admits_namespace(namespace)]
            found = {name for namespace in namespaces for name in _tables_in(opened, namespace)}
        return sorted(filter(wanted.admits, (TableIdentifier(catalog.name, name[:-1], name[-1]) for name in found)))

    def load(self, catalog: CatalogConfig, identifier: TableIdentifier) -> "IcebergTable":
        """Raises TableNotFound only when the catalog said that the table does not exist."""
        return IcebergTable(catalog, identifier, load_table(catalog, identifier))


def _namespaces(catalog: Catalog) -> list[tuple[str, ...]]:
    """Every namespace, nested ones too; those that vanish meanwhile are left out."""
    found: list[tuple[str, ...]] = []
    waiting: list[tuple[str, ...]] = [()]
    seen: set[tuple[str, ...]] = set()
    while waiting:
        parent = waiting.pop()
        try:
            children = catalog.list_namespaces(parent)
        except NoSuchNamespaceError:
            continue
        for child in map(tuple, children):
            if child not in seen and child[: len(parent)] == parent:
                seen.add(child)
                found.append(child)
                waiting.append(child)
    return found


def _tables_in(catalog: Catalog, namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
    try:
        return [tuple(name) for name in catalog.list_tables(namespace)]
    except NoSuchNamespaceError:
        return []


class IcebergTable:
    """One Iceberg table as loaded at one moment; writing goes on the table as `head` or `trace` loaded it last."""

    def __init__(self, config: CatalogConfig, identifier: TableIdentifier, table: Table) -> None:
        self._config = config
        self._identifier = identifier
        self._table = table
        self._newest = table
        self._found: tuple[TableScan | None] | None = None  # the scan, once it was made
        self._manifests = ManifestCache()  # of `head` and `stage`
        self._has_staged = False

    @property
    def facts(self) -> TableFacts:
        """What loading the table said."""
        return table_facts(self._table, self._identifier)

    @property
    def schema_id(self) -> int:
        """The current schema's id."""
        return self._table.metadata.current_schema_id

    @property
    def last_column_id(self) -> int:
        """The highest field id the table has ever given."""
        return self._table.metadata.last_column_id

    def refuse_unsupported(self, *, for_commit: bool = True) -> None:
        """Raise TableRefused, by name, for what catalog and metadata alone say."""
        if for_commit and (reason := commits_refused(self._config)):
            raise TableRefused(
                f"nothing can be committed through catalog {self._config.name}: {reason}", reason="catalog"
            )
        refuse_table(self._table.metadata)

    def left_alone(self) -> str | None:
        """Why a table under write-audit-publish is not optimized now; None when it may be."""
        return left_alone(self._table.metadata)

    def snapshots(self) -> tuple[SnapshotFacts, ...]:
        """Every snapshot that the metadata knows, the newest first."""
        return snapshot_facts(self._table.metadata)

    def scan(self) -> TableScan | None:
        """All live files of main's head with their deletes, read once; None for a table without snapshot.

        Raises TableRefused for files that are not handled (location, partition of a delete, format, equality ids).
        """
        found = self._scanned()
        if found is not None:
            refuse_files(self._table.metadata, found)
        return found

    def scan_of(self, snapshot_id: int) -> TableScan | None:
        """All live files of a snapshot with their deletes, files of every format; None when it is not known."""
        return scan(self._table, self._readable(self._table), self._manifests.read, snapshot_id)

    def reading(self, spec_id: int, scans: Sequence[TableScan]) -> TableContext:
        """What must be known to read the files of that spec in those scans under the current schema."""
        compared = frozenset[int]().union(*(equality_ids(found) for found in scans))
        return context(self._table, self._identifier, spec_id, compared, self._readable(self._table))

    def access(self) -> FileAccess:
        """Access to the table's files."""
        return self._access(self._table)

    def selects(self, condition: str) -> Callable[[DataFile], bool]:
        """Whether a data file may hold rows that fulfil the condition."""
        return filters.selector(self._table.metadata, condition)

    def context(self, spec_id: int) -> TableContext:
        """What executors must know to rewrite files of that spec; the table is scanned unless it was."""
        return context(
            self._table, self._identifier, spec_id, equality_ids(self._scanned()), self._readable(self._table)
        )

    def partition_path(self, key: PartitionKey) -> str:
        """The partition as Iceberg writes it in paths, "" when unpartitioned."""
        return partition_path(self._table.metadata, key)

    def io_properties(self) -> Mapping[str, str]:
        """What a FileIO for this table's files must be told, vended credentials too; nothing of the catalog itself."""
        properties = {**dict(open_catalog(self._config).properties), **self._newest.io.properties}
        return {
            key: value
            for key, value in sorted(properties.items())
            if key.startswith(_FILE_IO_PREFIXES) and isinstance(value, str)
        }

    def head(self, planned_snapshot_id: int, planned_sequence_number: int = 0) -> Head:
        """The table as it is now, seen from that snapshot. Raises TableNotFound when it is gone.

        Raises CatalogUnavailable for a state that is older than the plan, as a replica that lags behind gives it.
        """
        self._newest = self._load()
        metadata = self._newest.metadata
        if metadata.format_version != 1 and metadata.last_sequence_number < planned_sequence_number:
            raise CatalogUnavailable(
                f"the catalog answers with a state of {self._identifier} that is older than the plan",
                hint="It is tried again by itself.",
            )
        return read_head(self._newest, planned_snapshot_id, self._scan_of, self._manifests.read)

    def stage(self, head: Head, content: CommitContent, summary: Mapping[str, str]) -> StagedCommit:
        """Write the manifests of a REPLACE snapshot on that head; nothing is visible yet.

        Only the first call merges small manifests. Raises CommitConflict when the head is no longer the table's.
        """
        if not _is_head(self._newest, head):
            self._newest = self._load()
            if not _is_head(self._newest, head):
                raise CommitConflict(f"{self._identifier} changed after snapshot {head.snapshot_id} was validated")
        # Merging manifests takes time, in which the next attempt might lose, too.
        merge, self._has_staged = not self._has_staged, True
        return staging.stage(self._newest, head, content, summary, read=self._manifests.read, merge=merge)

    def send(self, payload: bytes) -> None:
        """Send a staged commit. Raises CommitConflict, CommitRefused or CommitUnknown."""
        commit.send(open_catalog(self._config), self._newest, payload)

    def trace(self, snapshot_id: int, parent_snapshot_id: int, sequence_number: int, files: Sequence[str]) -> Trace:
        """Whether an attempt landed, seen from the table as it is now."""
        self._newest = self._load()
        return commit.trace(self._newest, snapshot_id, sequence_number, files, parent_snapshot_id)

    def file_facts(self, path: str) -> FileFacts:
        """What a written file says of itself. Raises DataFileMissing or UnreadableFile."""
        return read_facts(self._access(self._newest), path)

    def named_paths(self, delete: DeleteFile) -> frozenset[str]:
        """The data files that a position delete file names, by path."""
        return frozenset(read_positions(self._access(self._newest), delete, lambda: None))

    def delete_unreferenced(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Delete files of ours below the table's location that no snapshot of any ref reaches, seen now."""
        self._newest = self._load()
        return commit.delete_unreferenced(self._newest, self._access(self._newest), paths)

    def _load(self) -> Table:
        return load_table(self._config, self._identifier)

    def _scanned(self) -> TableScan | None:
        if self._found is None:
            self._found = (scan(self._table, self._readable(self._table)),)
        return self._found[0]

    def _scan_of(self, table: Table) -> TableScan:
        """The scan of a head, which has a snapshot. Files of any format: what the plan did not touch is no concern."""
        found = scan(table, self._readable(table), self._manifests.read)
        if found is None:
            raise CommitConflict(f"{self._identifier} has no snapshot any more")
        return found

    def _readable(self, table: Table) -> tuple[str, ...]:
        granted = (*warehouse_of(self._config, open_catalog(self._config)), *self._config.allowed_locations)
        return read_locations(table.metadata, granted)

    def _access(self, table: Table) -> FileAccess:
        return open_access(
            self.io_properties(),
            table.metadata.location,
            read_locations=self._readable(table),
            write_locations=write_locations(table.metadata),
        )


def _is_head(table: Table, head: Head) -> bool:
    metadata = table.metadata
    return str(metadata.table_uuid) == head.table_uuid and metadata.current_snapshot_id == head.snapshot_id
