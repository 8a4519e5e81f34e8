"""Iceberg tables behind the port."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.table import Table

from amoro_core.errors import CatalogUnavailable, CommitConflict, TableRefused
from amoro_core.files.deletes import read_positions
from amoro_core.files.footers import read_facts
from amoro_core.files.io import FileAccess
from amoro_core.files.options import FORMAT_KEY, writer_options
from amoro_core.files.position_maps import read_left_out
from amoro_core.files.row_lookup import Place, look_up
from amoro_core.files.vector_reading import read_vectors
from amoro_core.formats.carrying import write_carried
from amoro_core.formats.iceberg_upkeep import UpkeptIcebergTable
from amoro_core.formats.port import Role
from amoro_core.iceberg import (
    choosing,
    commit,
    filters,
    staging,
    upgrading,
)
from amoro_core.iceberg.caching import ManifestReader
from amoro_core.iceberg.catalogs import catalog_errors, commits_refused, is_unchanged, load_table, open_catalog
from amoro_core.iceberg.column_cache import ColumnCache
from amoro_core.iceberg.column_reading import ColumnReader, read_here
from amoro_core.iceberg.disputed import disputed_deletes
from amoro_core.iceberg.evidence import trace_of
from amoro_core.iceberg.features import left_alone, refuse_files, refuse_table, refuse_unreadable
from amoro_core.iceberg.heads import read_head
from amoro_core.iceberg.known_manifests import KnownTables
from amoro_core.iceberg.late_deletes import late_deletes
from amoro_core.iceberg.manifests import read_manifest
from amoro_core.iceberg.metadata import (
    context,
    equality_ids,
    read_locations,
    refuse_locations,
    snapshot_facts,
    table_facts,
    table_schema,
)
from amoro_core.iceberg.metadata_locations import locations
from amoro_core.iceberg.partition_paths import PartitionPaths
from amoro_core.iceberg.scan import NOTHING_KNOWN, Known, scan
from amoro_core.model.commits import CommitContent, Evidence, FileFacts, Group, Head, StagedCommit, Trace
from amoro_core.model.config import effective_properties, welcomes_parquet
from amoro_core.model.discovery import discovery_filter
from amoro_core.model.files import DataFile, DeleteFile, DeleteIdentity, FileFormat, ScannedFile, TableScan
from amoro_core.model.late_deletes import LateDelete
from amoro_core.model.paths import normalise
from amoro_core.model.plans import PartitionKey
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.rewrite import TableContext
from amoro_core.model.tables import ICEBERG, SnapshotFacts, TableFacts, TableIdentifier, TableSchema
from amoro_core.positions import PositionSet
from amoro_core.validating.rebasing import CarriedRows

#: The last format version in which rows are deleted by position delete files.
_WITHOUT_VECTORS = 2


class IcebergFormat:
    """Iceberg tables in pyiceberg's catalogs."""

    name = ICEBERG

    def __init__(
        self,
        cache: ColumnCache | None = None,
        tables: KnownTables | None = None,
        columns: ColumnReader | None = read_here,
    ) -> None:
        """`cache` has on disk, and `tables` in memory, what was decoded of manifests of the tables that are loaded;
        `columns` decodes those of data files, None: entry by entry."""
        self._known = Known(cache, tables, columns=columns)

    def check(self, catalog: CatalogConfig) -> None:
        """Raise CatalogUnavailable when the catalog does not work as configured."""
        opened = open_catalog(catalog)
        with catalog_errors(catalog):
            opened.list_namespaces()

    def commits_refused(self, catalog: CatalogConfig) -> str | None:
        """Why nothing can be committed through this kind of catalog; None when it can."""
        return commits_refused(catalog)

    def list_tables(self, catalog: CatalogConfig) -> list[TableIdentifier]:
        """The tables of the catalog that its filters admit, in order of their names. Raises CatalogUnavailable."""
        opened = open_catalog(catalog)
        wanted = discovery_filter(dict(catalog.properties))
        with catalog_errors(catalog):
            namespaces = [namespace for namespace in _namespaces(opened) if wanted.admits_namespace(namespace)]
            found = {name for namespace in namespaces for name in _tables_in(opened, namespace)}
        return sorted(filter(wanted.admits, (TableIdentifier(catalog.name, name[:-1], name[-1]) for name in found)))

    def locations(
        self, catalog: CatalogConfig, names: Collection[tuple[str, ...]]
    ) -> Mapping[tuple[str, ...], str] | None:
        """Where the metadata of those tables are; None for catalogs that are asked table by table."""
        return locations(catalog, names)

    def is_unchanged(self, catalog: CatalogConfig, identifier: TableIdentifier, metadata_location: str) -> bool:
        """Whether a REST catalog says that the table is still as it was loaded, with that metadata."""
        return is_unchanged(catalog, identifier, metadata_location)

    def load(self, catalog: CatalogConfig, identifier: TableIdentifier) -> "IcebergTable":
        """Raises TableNotFound only when the catalog said that the table does not exist."""
        return IcebergTable(catalog, identifier, load_table(catalog, identifier), self._known)


def _namespaces(catalog: Catalog) -> list[tuple[str, ...]]:
    """Every namespace, including nested ones; those that vanish meanwhile are left out."""
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


class IcebergTable(UpkeptIcebergTable):
    """One Iceberg table as loaded at one moment; writes use the table as last loaded by `head` or `trace`."""

    roles = frozenset(Role)

    def __init__(
        self, config: CatalogConfig, identifier: TableIdentifier, table: Table, known: Known = NOTHING_KNOWN
    ) -> None:
        super().__init__(config, identifier, table)
        self._known = known
        self._found: tuple[TableScan | None] | None = None  # the scan, once it was made
        self._has_staged = False

    @property
    def facts(self) -> TableFacts:
        """Facts about the table from loading it."""
        return self._facts

    @cached_property
    def _facts(self) -> TableFacts:
        return table_facts(self._table, self._identifier)

    def refuse_unsupported(self, *, for_commit: bool = True) -> None:
        """Raise TableRefused for what catalog and metadata alone show to be unsupported."""
        if not for_commit:
            refuse_unreadable(self._table.metadata)
            return
        if reason := commits_refused(self._config):
            raise TableRefused(
                f"nothing can be committed through catalog {self._config.name}: {reason}", reason="catalog"
            )
        refuse_table(self._table.metadata, dict(self._config.properties))
        refuse_locations(self._table.metadata, self._grant())

    def left_alone(self) -> str | None:
        """Why a table under write-audit-publish is not optimized now; None when it may be."""
        return left_alone(self._table.metadata)

    def snapshots(self) -> tuple[SnapshotFacts, ...]:
        """Every snapshot that the metadata knows, the newest first."""
        return snapshot_facts(self._table.metadata)

    def schema(self) -> TableSchema:
        """The current schema and the default partition spec."""
        return table_schema(self._table.metadata)

    def scan(self) -> TableScan | None:
        """All live files of main's head with their deletes, read once; None for a table without snapshot.

        Raises TableRefused for unsupported files (location, partition of a delete, format, equality ids); read-only
        callers use `scan_of`.
        """
        found = self._scanned()
        if found is not None:
            refuse_files(self._table.metadata, found)
        return found

    def scan_of(self, snapshot_id: int) -> TableScan | None:
        """All live files of a snapshot with their deletes, files of every format; None when it is not known."""
        return self._scan(self._table, self._manifests.read, snapshot_id)

    def reading(self, spec_id: int, scans: Sequence[TableScan]) -> TableContext:
        """What must be known to read the files of that spec in those scans under the current schema."""
        compared = frozenset[int]().union(*(equality_ids(found) for found in scans))
        return context(self._table, self._identifier, spec_id, compared, self._readable(self._table))

    def disputed_deletes(self, files: Iterable[ScannedFile]) -> frozenset[DeleteIdentity]:
        """The equality deletes that may delete rows of any of the files and that Java skips there."""
        return disputed_deletes(self._newest.metadata, files)

    def late_deletes(self, scan: TableScan, since: int) -> tuple[LateDelete, ...]:
        """Snapshots of others above that sequence number that delete rows of files which a commit had replaced."""
        return late_deletes(self._table, scan, self._access(self._table), read_manifest, since)

    def access(self) -> FileAccess:
        """Access to the table's files."""
        return self._access(self._table)

    def selects(self, condition: str) -> Callable[[DataFile], bool]:
        """A predicate: whether a data file may contain rows that satisfy the condition."""
        return filters.selector(self._table.metadata, condition)

    def chooses(self, condition: str) -> Callable[[PartitionKey], bool]:
        """A predicate: whether a partition may contain rows that satisfy the condition, by its values alone."""
        return choosing.chooser(self._table.metadata, condition)

    def context(self, spec_id: int) -> TableContext:
        """What executors must know to rewrite files of that spec; scans the table unless done already."""
        made = context(
            self._table, self._identifier, spec_id, equality_ids(self._scanned()), self._readable(self._table)
        )
        effective = effective_properties(dict(self._config.properties), self._table.metadata.properties)
        if not welcomes_parquet(effective):
            return made
        return replace(made, properties={**made.properties, FORMAT_KEY: FileFormat.PARQUET.value})

    def refuse_inputs(self, paths: Iterable[str]) -> None:
        """Raise TableRefused for planned files that are not regular files ("file") or lie elsewhere ("location")."""
        access = self.access()
        for path in paths:
            access.require_regular(path)

    def partition_path(self, key: PartitionKey) -> str:
        """The partition as Iceberg writes it in paths, "" when unpartitioned."""
        return self._partition_paths.path_of(key)

    @cached_property
    def _partition_paths(self) -> PartitionPaths:
        return PartitionPaths(self._table.metadata)

    def head(self, planned_snapshot_id: int, planned_sequence_number: int = 0) -> Head:
        """The table's present state relative to that snapshot.

        Raises TableNotFound when it is gone, CommitConflict when its name belongs to another table, CatalogUnavailable
        for a state older than the plan, as from a lagging replica, and TableRefused for unsupported features added
        since the plan.
        """
        self._newest = self._load()
        metadata = self._newest.metadata
        if metadata.format_version != 1 and metadata.last_sequence_number < planned_sequence_number:
            raise CatalogUnavailable(
                f"the catalog answers with a state of {self._identifier} that is older than the plan",
                hint="It is retried automatically.",
            )
        refuse_table(metadata, dict(self._config.properties))
        refuse_locations(metadata, self._grant())
        lists = self._known.lists(metadata)
        head = read_head(self._newest, planned_snapshot_id, self._scan_of, self._manifests.read, lists)
        refuse_files(metadata, head.scan)
        return head

    def stage(self, head: Head, content: CommitContent, summary: Mapping[str, str]) -> StagedCommit:
        """Write the manifests of a snapshot on that head; nothing is visible yet.

        Only the first call merges small manifests. Raises CommitConflict when the head is no longer the table's.
        """
        if not _is_head(self._newest, head):
            self._newest = self._load()
            if not _is_head(self._newest, head):
                raise CommitConflict(f"{self._identifier} changed after snapshot {head.snapshot_id} was validated")
        # Merging manifests takes time, during which the next attempt may conflict too.
        merge, self._has_staged = not self._has_staged, True
        lists = self._known.lists(self._newest.metadata)
        return staging.stage(self._newest, head, content, summary, read=self._manifests.read, merge=merge, lists=lists)

    def stage_tag(self, name: str, snapshot_id: int, max_age_ms: int | None, *, again: bool = False) -> bytes:
        """The payload that tags a snapshot. Raises CommitConflict when the name is taken or the snapshot is gone."""
        self._newest = self._load()
        return commit.tag(self._newest, name, snapshot_id, max_age_ms, again=again)

    def stage_upgrade(self) -> bytes:
        """The payload that upgrades the reloaded table to format 3. Raises TableRefused for what is not handled."""
        self._newest = self._load()
        upgrading.refuse_upgrade(self._newest, dict(self._config.properties))
        return upgrading.stage_upgrade(self._newest, own_metadata=self._writes_metadata())

    def trace(self, evidence: Evidence) -> Trace:
        """Whether a change that was sent landed, according to the table's present state."""
        self._newest = self._load()
        return trace_of(self._newest, evidence)

    def file_facts(self, path: str) -> FileFacts:
        """Facts from a written file's footer. Raises DataFileMissing or UnreadableFile."""
        return read_facts(self._access(self._newest), path)

    def positions(self, delete: DeleteFile, rows: Mapping[str, int]) -> Mapping[str, PositionSet]:
        """What a position delete deletes of the data files at these normalised paths, each with its number of rows."""
        access = self._access(self._newest)
        if delete.is_vector:
            return {normalise(delete.named_file or ""): read_vectors(access, [delete], rows, _nothing)[delete.identity]}
        found = read_positions(access, delete, _nothing, rows)
        # A position behind the end deletes nothing; followed into outputs it would stand for a row of another file.
        return {path: PositionSet.of(positions[positions < rows[path]]) for path, positions in found.items()}

    def left_out(self, group: Group) -> Mapping[int, PositionSet]:
        """The rows that a task left out, by the number of the input."""
        if group.output.position_map is None:
            raise ValueError(f"task {group.number} does not tell which rows it left out")
        rows = [given.data.record_count for given in group.work.rewritten]
        return read_left_out(self._access(self._newest), group.output.position_map, rows)

    def look_up(
        self, group: Group, wanted: Mapping[int, PositionSet], taken: Mapping[int, PositionSet]
    ) -> Mapping[Place, Place]:
        """Where rows of the rewritten files of a task that looks rows up are in its outputs."""
        if group.look_up is None:
            raise ValueError(f"the rows of task {group.number} are not looked up")
        outputs, keys = group.output.data_files, group.look_up.keys
        return look_up(self._access(self._newest), group.work, outputs, keys, wanted, taken)

    def write_carried(self, rows: Sequence[CarriedRows], process_id: str) -> tuple[DeleteFile, ...]:
        """Write the deletes of these rows beside the outputs, for one attempt of a commit; nothing is visible yet."""
        metadata = self._newest.metadata
        options = writer_options(metadata.properties) if metadata.format_version <= _WITHOUT_VECTORS else None
        return write_carried(self._access(self._newest), rows, process_id, options)

    def delete_unreferenced(self, paths: Iterable[str], since: int = 0) -> tuple[str, ...]:
        """Delete those of our files below the table's location that no snapshot references now.

        Raises CommitConflict when the name belongs to another table.
        """
        self._newest = self._load()
        lists = self._known.lists(self._newest.metadata)
        return commit.delete_unreferenced(self._newest, self._access(self._newest), paths, since, lists)

    def _scanned(self) -> TableScan | None:
        if self._found is None:
            self._found = (self._scan(self._table, read_manifest, known=self._known),)
        return self._found[0]

    def _scan_of(self, table: Table) -> TableScan:
        """The scan of a head, which has a snapshot. Files of any format: those outside the plan don't matter.

        A commit goes by what was read from manifests, never by the cache on disk.
        """
        found = self._scan(table, self._manifests.read, known=replace(self._known, trusts_cache=False))
        if found is None:
            raise CommitConflict(f"{self._identifier} has no snapshot left")
        return found

    def _scan(
        self, table: Table, read: ManifestReader, snapshot_id: int | None = None, known: Known = NOTHING_KNOWN
    ) -> TableScan | None:
        grant = self._grant()
        return scan(table, read_locations(table.metadata, grant), read, snapshot_id, grant.way_out, known)


def _nothing() -> None:
    """No checkpoint."""


def _is_head(table: Table, head: Head) -> bool:
    metadata = table.metadata
    return str(metadata.table_uuid) == head.table_uuid and metadata.current_snapshot_id == head.snapshot_id
