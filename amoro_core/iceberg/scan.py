"""All live files of a table's main branch, read from its manifests one by one."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from amoro_core.errors import TableRefused
from amoro_core.files.storage.io import require_all_real, require_all_within
from amoro_core.iceberg.manifest.columns import ColumnReader
from amoro_core.iceberg.manifest.manifest_cache import (
    NO_MANIFESTS,
    Key,
    ManifestReader,
    Matched,
    TableManifestCache,
    TableManifests,
    key_of,
)
from amoro_core.iceberg.manifest.reading import (
    is_unpartitioned,
    partition_types,
    read_list,
    read_manifest,
    to_data_file,
    to_delete_file,
)
from amoro_core.iceberg.table_support import refuse_listed, refuse_manifest
from amoro_core.model.files import FORMAT_WITH_VECTORS, DeleteFile, TableScan
from amoro_core.model.paths import scheme_of
from amoro_core.scan.columns import ColumnPart, Gathering, Paths
from amoro_core.scan.matching import match, refuse_several_vectors


@dataclass(frozen=True, slots=True)
class ManifestSources:
    """Where a scan gets manifests from: the cache of tables, and the reader of columns."""

    tables: TableManifestCache | None = None
    columns: ColumnReader | None = None  # reads data manifests; None: they are read entry by entry


DEFAULT_SOURCES = ManifestSources()


def scan(
    table: Table,
    read_locations: Sequence[str],
    read: ManifestReader = read_manifest,
    snapshot_id: int | None = None,
    way_out: str = "",
    sources: ManifestSources = DEFAULT_SOURCES,
) -> TableScan | None:
    """The live files of main's head, or of a snapshot, with their deletes, files of every format; None without one.

    `way_out` is the hint for files outside the locations. Manifests in the cache of `sources` are not read again.

    Raises TableRefused (a file outside the locations, encryption, contradictions, or a delete about which readers
    disagree), DataFileMissing or UnreadableFile (a manifest list or a manifest), CatalogUnavailable (the storage).
    """
    metadata = table.metadata
    snapshot = metadata.current_snapshot() if snapshot_id is None else metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        return None
    uuid = str(metadata.table_uuid)
    before = NO_MANIFESTS if sources.tables is None else sources.tables.find(uuid)
    source = _Source(table, read, sources, before)
    data, deletes = dict[Key, ColumnPart](), dict[Key, tuple[DeleteFile, ...]]()
    for listed in live_manifests(table, snapshot, read_locations, way_out):
        key = key_of(listed, source.names[listed.partition_spec_id])
        if listed.content == ManifestContent.DATA:
            data[key] = source.data(key, listed)
        else:
            deletes[key] = source.deletes(key, listed)
    unpartitioned = frozenset(spec_id for spec_id, spec in metadata.specs().items() if is_unpartitioned(spec))
    manifests = TableManifests(data, deletes, unpartitioned)
    _refuse_early_vectors(metadata, (file for delete_files in deletes.values() for file in delete_files))
    _refuse_parts_outside([column_part.paths for column_part in data.values()], read_locations, way_out)
    refuse_outside((file.path for delete_files in deletes.values() for file in delete_files), read_locations, way_out)
    matched = before.matched
    if matched is None or not before.has_same_manifests(manifests):
        matched = _matched(manifests)
        if sources.tables is not None:
            sources.tables.keep(uuid, replace(manifests, matched=matched))
    files, dangling = matched
    return TableScan(
        snapshot.snapshot_id, snapshot.sequence_number or 0, files, dangling, unpartitioned, metadata.format_version
    )


def _matched(manifests: TableManifests) -> Matched:
    gathering = Gathering()
    for part in manifests.data.values():
        gathering.take(part)
    columns = gathering.columns()
    deletes = [file for delete_files in manifests.deletes.values() for file in delete_files]
    refuse_several_vectors(deletes)
    files, dangling = match(columns, deletes, manifests.unpartitioned)
    files.homes = manifests.homes
    return files, dangling


class _Source:
    """The live files of manifests, cached or read."""

    def __init__(self, table: Table, read: ManifestReader, sources: ManifestSources, before: TableManifests) -> None:
        self._table, self._read, self._columns, self._before = table, read, sources.columns, before
        metadata = table.metadata
        self.types = {spec_id: partition_types(metadata, spec) for spec_id, spec in metadata.specs().items()}
        self.names = {spec_id: tuple(map(str, types)) for spec_id, types in self.types.items()}

    def data(self, key: Key, listed: ManifestFile) -> ColumnPart:
        part, types = self._before.data.get(key), self.types[listed.partition_spec_id]
        if part is None and self._columns is not None:
            part = self._columns(self._table.io, listed, types)
        if part is None:
            gathering = Gathering()
            for entry in self._entries(listed):
                gathering.add(to_data_file(entry, types))
            part = gathering.end_part()
        return part

    def deletes(self, key: Key, listed: ManifestFile) -> tuple[DeleteFile, ...]:
        if (delete_files := self._before.deletes.get(key)) is not None:
            return delete_files
        types = self.types[listed.partition_spec_id]
        return tuple(to_delete_file(entry, types) for entry in self._entries(listed))

    def _entries(self, listed: ManifestFile) -> tuple[ManifestEntry, ...]:
        manifest = self._read(self._table.io, listed)
        refuse_manifest(manifest, len(self._table.metadata.specs()[listed.partition_spec_id].fields))
        return manifest.live


def live_manifests(
    table: Table, snapshot: Snapshot, read_locations: Sequence[str], way_out: str = ""
) -> list[ManifestFile]:
    """The snapshot's manifests that may have live entries. Raises like `scan`."""
    refuse_outside([snapshot.manifest_list], read_locations, way_out)
    manifests = read_list(table.io, snapshot.manifest_list)
    refuse_listed(table.metadata, snapshot, manifests)
    live = [manifest for manifest in manifests if manifest.has_added_files() or manifest.has_existing_files()]
    refuse_outside([manifest_file.manifest_path for manifest_file in live], read_locations, way_out)
    if encrypted := [manifest_file.manifest_path for manifest_file in live if manifest_file.key_metadata is not None]:
        raise TableRefused(f"the manifest {encrypted[0]} is encrypted", reason="encryption")
    return live


def refuse_outside(paths: Iterable[str], read_locations: Sequence[str], way_out: str = "") -> None:
    """Raise TableRefused("location") for the first path below none of the locations, or whose directory links lead out
    of them. Whether a file itself is a link is checked when it is opened."""
    places = _local(require_all_within(paths, read_locations, "read", way_out))
    directories = dict.fromkeys(place.rpartition("/")[0] or "/" for place in places)
    require_all_real(directories, read_locations, "read", way_out)


def _refuse_parts_outside(parts: Sequence[Paths], read_locations: Sequence[str], way_out: str) -> None:
    """Like `refuse_outside`, mostly by the directories alone, of which there are few."""
    directories = dict.fromkeys(directory for part in parts for directory in part.shape.directories)
    odd = [path for part in parts for path in part.shape.odd]
    try:
        places = require_all_within(directories, read_locations, "read", way_out)
        require_all_real(_local(places), read_locations, "read", way_out)
        refuse_outside(odd, read_locations, way_out)
    except TableRefused:
        # To name the refused file; and a file that is itself a location is not refused.
        refuse_outside((path for part in parts for path in part.array.to_pylist()), read_locations, way_out)


def _local(places: Iterable[str]) -> Iterator[str]:
    """Those of normalised paths that lie in a file system of this machine."""
    return (place for place in places if scheme_of(place) == "file")


def _refuse_early_vectors(metadata: TableMetadata, deletes: Iterable[DeleteFile]) -> None:
    if metadata.format_version >= FORMAT_WITH_VECTORS:
        return
    if vector := next((delete for delete in deletes if delete.is_vector), None):
        raise TableRefused(
            f"{vector.path} is a deletion vector, which a table of format {metadata.format_version} can't have",
            reason="deletion-vector",
        )
