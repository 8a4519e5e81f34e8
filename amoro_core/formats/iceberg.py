"""Iceberg tables in pyiceberg's catalogs. `formats.ports` documents the methods."""

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from functools import cached_property

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from amoro_core.errors import CatalogUnavailable, CommitConflict, TableRefused
from amoro_core.files.deletes.delete_files import write_position_deletes
from amoro_core.files.deletes.vectors import write_vectors
from amoro_core.files.parquet.reading import read_facts, read_layout
from amoro_core.files.schema.write_options import FORMAT_KEY, WriterOptions, writer_options
from amoro_core.files.storage.inventory import Keys, StorageRoot
from amoro_core.files.storage.io import FileAccess, open_access
from amoro_core.formats.ports import Role
from amoro_core.iceberg import metadata, partition_filter, table_support
from amoro_core.iceberg.catalog import catalogs
from amoro_core.iceberg.catalog.catalogs import STORAGE_PREFIXES
from amoro_core.iceberg.commit import committing, rewrite_files
from amoro_core.iceberg.commit.committing import trace_of
from amoro_core.iceberg.commit.validation_history import late_deletes, read_head
from amoro_core.iceberg.maintenance import expiry, reachable, rewrite_manifests, statistics
from amoro_core.iceberg.maintenance.reachability_guard import Guard
from amoro_core.iceberg.manifest.columns import ColumnReader, read_columns
from amoro_core.iceberg.manifest.manifest_cache import ManifestCache, ManifestReader, TableManifestCache
from amoro_core.iceberg.manifest.reading import PartitionPaths, read_manifest, uncommitted
from amoro_core.iceberg.metadata import (
    context,
    equality_ids,
    ground,
    history_of,
    read_locations,
    refuse_locations,
    snapshot_facts,
    sorting_of,
    table_facts,
    table_schema,
    time_column,
    write_locations,
)
from amoro_core.iceberg.pyiceberg_sandbox import confined_to
from amoro_core.iceberg.scan import DEFAULT_SOURCES, ManifestSources, scan
from amoro_core.iceberg.table_support import (
    disputed_deletes,
    refuse_files,
    refuse_table,
    refuse_unreadable,
    unpublished_branch,
)
from amoro_core.maintenance.orphans import ReferencedFiles, TableLocations
from amoro_core.maintenance.trash import Trash, TrashConfig, root_of, trash_of
from amoro_core.model.clustering import Layout, LayoutKey, Sorting, group_of
from amoro_core.model.commits import (
    OPTIMIZING_TYPE,
    ROLLBACK_MARKS,
    ColumnSketch,
    CommitContent,
    Evidence,
    FileFacts,
    Head,
    ManifestCluster,
    ManifestsStaged,
    SnapshotAdded,
    SnapshotsRemoved,
    SortOrderAdded,
    StagedCommit,
    StagedStatistics,
    StatisticsEntries,
    Trace,
)
from amoro_core.model.files import DataFile, DeleteFile, DeleteIdentity, FileFormat, ScannedFile, TableScan
from amoro_core.model.location_policy import Grant
from amoro_core.model.maintenance import Ended, LateDelete, Reach, Released, StoredFile, TimeColumn
from amoro_core.model.optimizing_config import effective_properties, parse_config, welcomes_parquet
from amoro_core.model.paths import normalise
from amoro_core.model.plans import PartitionKey
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.properties import parse_into
from amoro_core.model.tables import (
    ICEBERG,
    History,
    SnapshotFacts,
    TableFacts,
    TableIdentifier,
    TableSchema,
    discovery_filter,
)
from amoro_core.model.task_payload import TableContext
from amoro_core.validation.view import CarriedRows


def write_carried(
    access: FileAccess, rows: Sequence[CarriedRows], process_id: str, options: WriterOptions | None
) -> tuple[DeleteFile, ...]:
    """One position delete file for each output, in its directory; without options a vector for each, in one file.

    Their sequence numbers are those of the outputs, until the commit gives them its own. Raises StorageFull; all are
    deleted again then, as far as possible.
    """
    if not rows:
        return ()
    if options is None:
        path = _path(rows[0], process_id, "puffin")
        vectors = [(carried_rows.output, carried_rows.positions) for carried_rows in rows]
        return write_vectors(access, path, vectors, rows[0].output.sequence_number)
    written: list[DeleteFile] = []
    with access.deleted_on_failure(file.path for file in written):
        for row in rows:
            path = _path(row, process_id, "parquet")
            number = row.output.sequence_number
            written.append(write_position_deletes(access, path, row.output, row.positions.ascending(), number, options))
    return tuple(written)


def _path(rows: CarriedRows, process_id: str, extension: str) -> str:
    """A new path beside the output, not named as a conversion: what came before the commit is not folded into it."""
    return f"{rows.output.path.rpartition('/')[0]}/{process_id}-{rows.group}-{uuid.uuid4()}-carried.{extension}"


#: The last format version in which rows are deleted by position delete files.
_WITHOUT_VECTORS = 2


class IcebergTable:
    """One Iceberg table as loaded at one moment, and as reloaded last, with every role of `ports` but services.

    A reloaded table must be the same one: nothing is read, concluded or removed based on another table of its name.
    Writes use the table as last loaded by `head` or `trace`.
    """

    roles = frozenset(Role) - {Role.SERVICE}

    def __init__(
        self,
        config: CatalogConfig,
        identifier: TableIdentifier,
        table: Table,
        sources: ManifestSources = DEFAULT_SOURCES,
    ) -> None:
        self._config = config
        self._identifier = identifier
        self._table = table
        self._newest = table
        self._fallen: tuple[str, ...] = ()  # metadata files that go with the last commit
        self._manifests = ManifestCache()  # of `head` and `stage`
        self._sources = sources
        self._has_staged = False

    @cached_property
    def facts(self) -> TableFacts:
        return table_facts(self._table, self._identifier)

    def refuse_unsupported(self, *, for_commit: bool = True) -> None:
        if not for_commit:
            refuse_unreadable(self._table.metadata)
            return
        if reason := catalogs.commits_refused(self._config):
            raise TableRefused(
                f"nothing can be committed through catalog {self._config.name}: {reason}", reason="catalog"
            )
        self._refuse_unsupported(self._table.metadata)

    def _refuse_unsupported(self, metadata: TableMetadata) -> None:
        refuse_table(metadata, self._config.defaults_for(self._identifier))
        refuse_locations(metadata, self._grant())

    def skip_reason(self) -> str | None:
        return unpublished_branch(self._table.metadata)

    def snapshots(self) -> tuple[SnapshotFacts, ...]:
        return snapshot_facts(self._table.metadata)

    def schema(self) -> TableSchema:
        return table_schema(self._table.metadata)

    def scan(self) -> TableScan | None:
        table_scan = self._scanned
        if table_scan is not None:
            refuse_files(self._table.metadata, table_scan)
        return table_scan

    def scan_of(self, snapshot_id: int) -> TableScan | None:
        return self._scan(self._table, self._manifests.read, snapshot_id)

    def reading(self, spec_id: int, scans: Sequence[TableScan]) -> TableContext:
        compared = frozenset[int]().union(*(equality_ids(table_scan) for table_scan in scans))
        return self._context(spec_id, compared)

    def _context(self, spec_id: int, compared: frozenset[int]) -> TableContext:
        readable = read_locations(self._table.metadata, self._grant())
        return context(self._table, self._identifier, spec_id, compared, readable)

    def disputed_deletes(self, files: Iterable[ScannedFile]) -> frozenset[DeleteIdentity]:
        return disputed_deletes(self._newest.metadata, files)

    def late_deletes(self, scan: TableScan, since: int) -> tuple[LateDelete, ...]:
        return late_deletes(self._table, scan, self.access(), read_manifest, since)

    def access(self, trash_folder: str = "") -> FileAccess:
        metadata, grant = self._newest.metadata, self._grant()
        trash = [root_of(trash_folder)] if trash_folder else []
        return open_access(
            self.io_properties(),
            metadata.location,
            read_locations=read_locations(metadata, grant),
            write_locations=write_locations(metadata, grant, *trash),
            way_out=grant.way_out,
        )

    def selects(self, condition: str) -> Callable[[DataFile], bool]:
        return partition_filter.selector(self._table.metadata, condition)

    def chooses(self, condition: str, *, widely: bool = False) -> Callable[[PartitionKey], bool]:
        return partition_filter.chooser(self._table.metadata, condition, widely=widely)

    def context(self, spec_id: int) -> TableContext:
        table_context = self._context(spec_id, equality_ids(self._scanned))
        if not welcomes_parquet(self._properties(self._table)):
            return table_context
        return replace(table_context, properties={**table_context.properties, FORMAT_KEY: FileFormat.PARQUET.value})

    def _properties(self, table: Table) -> Mapping[str, str]:
        """The table's properties over those of policies and the defaults of its catalog."""
        return effective_properties(self._config.defaults_for(self._identifier), table.metadata.properties)

    def refuse_inputs(self, paths: Iterable[str]) -> None:
        access = self.access()
        for path in paths:
            access.require_regular(path)

    def partition_path(self, key: PartitionKey) -> str:
        return self._partition_paths.path_of(key)

    @cached_property
    def _partition_paths(self) -> PartitionPaths:
        return PartitionPaths(self._table.metadata)

    def head(self, planned_snapshot_id: int, planned_sequence_number: int = 0) -> Head:
        self._newest = self._load()
        metadata = self._newest.metadata
        if metadata.format_version != 1 and metadata.last_sequence_number < planned_sequence_number:
            # As from a replica that lags.
            raise CatalogUnavailable(
                f"the catalog answers with a state of {self._identifier} that is older than the plan",
                hint="It is retried automatically.",
            )
        self._refuse_unsupported(metadata)
        head = read_head(self._newest, planned_snapshot_id, self._scan_of, self._manifests.read)
        refuse_files(metadata, head.scan)
        return head

    def stage(self, head: Head, content: CommitContent, summary: Mapping[str, str]) -> StagedCommit:
        if not _is_head(self._newest, head):
            self._newest = self._load()
            if not _is_head(self._newest, head):
                raise CommitConflict(f"{self._identifier} changed after snapshot {head.snapshot_id} was validated")
        yields = OPTIMIZING_TYPE in summary and parse_config(self._properties(self._newest)).polaris_rollback
        if yields and catalogs.is_polaris(catalogs.open_catalog(self._config)):
            summary = {**summary, **ROLLBACK_MARKS}
        # Only the first attempt merges: that takes time, during which the next one may conflict too.
        merge, self._has_staged = not self._has_staged, True
        return rewrite_files.stage(self._newest, head, content, summary, read=self._manifests.read, merge=merge)

    def stage_tag(self, name: str, snapshot_id: int, max_age_ms: int | None, *, again: bool = False) -> bytes:
        return committing.tag(self._renewed(), name, snapshot_id, max_age_ms, again=again)

    def stage_upgrade(self) -> bytes:
        refuse_table(self._renewed().metadata, self._config.defaults_for(self._identifier))
        return table_support.stage_upgrade(self._newest, own_metadata=self._writes_metadata())

    def stage_properties(self, changes: Mapping[str, str | None]) -> bytes:
        return table_support.stage_properties(self._table, changes, own_metadata=self._writes_metadata())

    def trace(self, evidence: Evidence) -> Trace:
        return trace_of(self._renewed(), evidence)

    def file_facts(self, path: str) -> FileFacts:
        return read_facts(self.access(), path)

    def write_carried(self, rows: Sequence[CarriedRows], process_id: str) -> tuple[DeleteFile, ...]:
        metadata = self._newest.metadata
        options = writer_options(metadata.properties) if metadata.format_version <= _WITHOUT_VECTORS else None
        return write_carried(self.access(), rows, process_id, options)

    def delete_unreferenced(self, paths: Iterable[str], since: int = 0) -> tuple[str, ...]:
        self._newest = self._load()
        return committing.delete_unreferenced(self._newest, self.access(), paths, since)

    @cached_property
    def _scanned(self) -> TableScan | None:
        return self._scan(self._table, read_manifest, sources=self._sources)

    def _scan_of(self, table: Table) -> TableScan:
        """The scan of a head, which has a snapshot. Files of any format: those outside the plan don't matter."""
        table_scan = self._scan(table, self._manifests.read, sources=self._sources)
        if table_scan is None:
            raise CommitConflict(f"{self._identifier} has no snapshot left")
        return table_scan

    def _scan(
        self,
        table: Table,
        read: ManifestReader,
        snapshot_id: int | None = None,
        sources: ManifestSources = DEFAULT_SOURCES,
    ) -> TableScan | None:
        grant = self._grant()
        return scan(table, read_locations(table.metadata, grant), read, snapshot_id, grant.way_out, sources)

    def ground(self) -> TableLocations:
        metadata, grant = self._table.metadata, self._grant()
        readable, writable = read_locations(metadata, grant), write_locations(metadata, grant)
        return ground(self._table, readable, writable, dict(self._config.properties))

    def named(self) -> ReferencedFiles:
        return reachable.named(self._table)

    def named_in_ranges(self, cuts: Sequence[str]) -> Sequence[Mapping[StorageRoot, Keys]]:
        return reachable.named_in_ranges(self._table, cuts)

    def sampled(self) -> Sequence[str]:
        return reachable.sampled(self._table)

    def uncommitted(self, manifests: Iterable[StoredFile]) -> Set[str]:
        return uncommitted(self._table.io, manifests)

    def reach(self) -> Reach:
        metadata, grant = self._table.metadata, self._grant()
        return Reach(metadata.location, read_locations(metadata, grant), write_locations(metadata, grant))

    def guard(self, sequence_number: int = 0) -> Guard:
        return Guard(self._load, self._table, sequence_number)

    def trash(self) -> Trash | None:
        location = self._newest.metadata.location
        result = trash_of(self._properties(self._newest), self._identifier, location)
        if result is not None:
            self._grant().refuse(location, result.root)
        return result

    def history(self, *, anew: bool = False) -> History:
        return history_of(self._renewed() if anew else self._table)

    def would_release(self, snapshot_ids: Set[int]) -> Iterator[Released]:
        return reachable.would_release(self._table, snapshot_ids)

    def stage_expiry(
        self, snapshot_ids: Set[int], refs: Sequence[str], *, clean: bool
    ) -> tuple[bytes, SnapshotsRemoved]:
        return expiry.stage_expiry(self._newest, snapshot_ids, refs, clean=clean, own_metadata=self._writes_metadata())

    def bring_back(self, removed: SnapshotsRemoved) -> tuple[str, ...]:
        return expiry.bring_back(self._renewed, self.send, removed, self._writes_metadata())

    def released(self, metadata_location: str, removed: SnapshotsRemoved) -> Iterator[Released]:
        now = self._renewed()
        base = expiry.state_before(now, metadata_location, removed)
        return iter(()) if base is None else reachable.released(base, frozenset(removed.snapshot_ids), now)

    def stage_return(
        self, metadata_location: str, removed: SnapshotsRemoved
    ) -> tuple[bytes, SnapshotAdded, tuple[str, ...]]:
        return expiry.stage_return(self._again(), metadata_location, removed, own_metadata=self._writes_metadata())

    def time_column(self, name: str) -> TimeColumn:
        return time_column(self._table.metadata, name)

    def sorting(self) -> Sorting:
        return sorting_of(self._table.metadata)

    def filtered_columns(self, condition: str) -> frozenset[str]:
        return partition_filter.columns_of(self._table.metadata, condition)

    def distinct_values(self) -> Mapping[int, int]:
        return statistics.distinct_values(self._table.metadata)

    def layout_of(self, file: DataFile) -> Layout | None:
        if file.file_format is not FileFormat.PARQUET:
            return None
        stored = read_layout(self.access(), file.path)
        return stored[1] if stored is not None and stored[0] == group_of(file.path) else None

    def manifest_clusters(self, min_count: int | None) -> tuple[ManifestCluster, ...]:
        return rewrite_manifests.clusters(self._source(self._table), min_count)

    def stage_manifests(self, min_count: int | None, summary: Mapping[str, str]) -> ManifestsStaged:
        def present() -> rewrite_manifests.ManifestSource:
            return self._source(self._again())

        return rewrite_manifests.stage(present(), present, min_count, summary)

    def _source(self, table: Table) -> rewrite_manifests.ManifestSource:
        grant = self._grant()
        locations = read_locations(table.metadata, grant)
        return rewrite_manifests.ManifestSource(table, self._manifests.read, locations, grant.way_out)

    def _again(self) -> Table:
        """The table reloaded for a commit. Raises TableRefused for features that are unsupported by now."""
        self._refuse_unsupported(self._renewed().metadata)
        return self._newest

    def order_id_of(self, keys: Sequence[LayoutKey]) -> int:
        return metadata.order_id_of(self._newest.metadata, keys)

    def stage_sort_order(self, keys: Sequence[LayoutKey]) -> tuple[bytes, SortOrderAdded]:
        return metadata.stage_sort_order(self._again(), keys, own_metadata=self._writes_metadata())

    def countable_columns(self) -> Mapping[str, int]:
        return statistics.countable_columns(self._table.metadata.schema())

    def is_partitioned(self) -> bool:
        return statistics.is_partitioned(self._table.metadata)

    def statistics(self) -> StatisticsEntries:
        return statistics.statistics_of(self._newest.metadata)

    def stage_statistics(
        self, snapshot_id: int, sketches: Sequence[ColumnSketch], *, partitions: bool
    ) -> StagedStatistics:
        table, read = self._renewed(), self._manifests.read
        return statistics.stage_statistics(
            table, self.access(), snapshot_id, sketches, partitions=partitions, read=read
        )

    def stage_statistics_removal(self, paths: Collection[str]) -> bytes:
        return statistics.stage_removal(self._renewed(), paths)

    def remove_fallen(self, kept: Callable[[], Collection[str]]) -> tuple[str, ...]:
        fallen, self._fallen = self._fallen, ()
        if parse_into(TrashConfig, self._properties(self._newest)).enabled:
            return ()
        needed = {normalise(path) for path in kept()} if fallen else set()
        going = [path for path in fallen if normalise(path) not in needed]
        removals = self.access().delete_many(going) if going else {}
        return tuple(path for path, removal in removals.items() if removal.ended is not Ended.FAILED)

    def _writes_metadata(self) -> bool:
        return expiry.writes_metadata(catalogs.open_catalog(self._config))

    def io_properties(self) -> Mapping[str, str]:
        merged = sorted({**dict(catalogs.open_catalog(self._config).properties), **self._newest.io.properties}.items())
        return {key: value for key, value in merged if key.startswith(STORAGE_PREFIXES) and isinstance(value, str)}

    def send(self, payload: bytes) -> None:
        with confined_to(self._grant()):
            self._fallen = committing.send(catalogs.open_catalog(self._config), self._newest, payload)

    def _renewed(self) -> Table:
        self._newest = self._load()
        return self._newest

    def _load(self) -> Table:
        result, uuid = catalogs.load_table(self._config, self._identifier), self._table.metadata.table_uuid
        # Before anything else: sequence numbers of two tables can't be compared.
        if result.metadata.table_uuid != uuid:
            raise CommitConflict(
                f"{self._identifier} is another table: UUID {result.metadata.table_uuid}, before {uuid}"
            )
        return result

    def _grant(self) -> Grant:
        return catalogs.granted(self._config, catalogs.open_catalog(self._config))


def _is_head(table: Table, head: Head) -> bool:
    metadata = table.metadata
    return str(metadata.table_uuid) == head.table_uuid and metadata.current_snapshot_id == head.snapshot_id


class IcebergFormat:
    """Iceberg tables in pyiceberg's catalogs."""

    name = ICEBERG

    def __init__(self, tables: TableManifestCache | None = None, columns: ColumnReader | None = read_columns) -> None:
        """`tables` has what was decoded of manifests; `columns` decodes those of data files, None: entry by entry."""
        self._sources = ManifestSources(tables, columns)

    def check(self, catalog: CatalogConfig) -> None:
        opened = catalogs.open_catalog(catalog)
        with catalogs.catalog_errors(catalog):
            opened.list_namespaces()

    commits_refused = staticmethod(catalogs.commits_refused)
    locations = staticmethod(catalogs.locations)
    is_unchanged = staticmethod(catalogs.is_unchanged)

    def list_tables(self, catalog: CatalogConfig) -> list[TableIdentifier]:
        opened = catalogs.open_catalog(catalog)
        wanted = discovery_filter(dict(catalog.properties))
        with catalogs.catalog_errors(catalog):
            namespaces = [namespace for namespace in _namespaces(opened) if wanted.admits_namespace(namespace)]
            names = set[tuple[str, ...]]()
            for namespace in namespaces:
                with suppress(NoSuchNamespaceError):
                    names |= {tuple(name) for name in opened.list_tables(namespace)}
        return sorted(filter(wanted.admits, (TableIdentifier(catalog.name, name[:-1], name[-1]) for name in names)))

    def load(self, catalog: CatalogConfig, identifier: TableIdentifier) -> "IcebergTable":
        return IcebergTable(catalog, identifier, catalogs.load_table(catalog, identifier), self._sources)


def _namespaces(catalog: Catalog) -> list[tuple[str, ...]]:
    """Every namespace, including nested ones; those that vanish meanwhile are left out."""
    result = dict[tuple[str, ...], None]()
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        parent = waiting.pop()
        children = list[tuple[str, ...]]()
        with suppress(NoSuchNamespaceError):
            children = [tuple(child) for child in catalog.list_namespaces(parent)]
        new = [child for child in dict.fromkeys(children) if child not in result and child[: len(parent)] == parent]
        result.update(dict.fromkeys(new))
        waiting += new
    return list(result)
