"""All live files of a table's main branch, read from its manifests one by one."""

from collections.abc import Iterable, Sequence

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from amoro_core.errors import TableRefused, UnreadableFile
from amoro_core.files.locations import require_within
from amoro_core.iceberg.caching import ManifestReader
from amoro_core.iceberg.entries import (
    PartitionTypes,
    is_unpartitioned,
    partition_types,
    to_data_file,
    to_delete_file,
)
from amoro_core.iceberg.manifests import Manifest, read_list, read_manifest
from amoro_core.matching import match
from amoro_core.model.files import DataFile, DeleteFile, TableScan


def scan(
    table: Table,
    read_locations: Sequence[str],
    read: ManifestReader = read_manifest,
    snapshot_id: int | None = None,
) -> TableScan | None:
    """The live files of main's head, or of a snapshot, with their deletes, files of every format; None without one.

    Raises TableRefused (what lies outside the locations, is encrypted, or a delete that readers disagree about),
    DataFileMissing or UnreadableFile (a manifest list or a manifest), CatalogUnavailable (the storage).
    """
    metadata = table.metadata
    snapshot = metadata.current_snapshot() if snapshot_id is None else metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        return None
    types = {spec_id: partition_types(metadata, spec) for spec_id, spec in metadata.specs().items()}
    data: list[DataFile] = []
    deletes: list[DeleteFile] = []
    for manifest in live_manifests(table.io, snapshot, read_locations):
        _collect(read(table.io, manifest), types, data, deletes)
    refuse_outside([*(file.path for file in data), *(file.path for file in deletes)], read_locations)
    unpartitioned = frozenset(spec_id for spec_id, spec in metadata.specs().items() if is_unpartitioned(spec))
    files, dangling = match(data, deletes, unpartitioned)
    return TableScan(snapshot.snapshot_id, snapshot.sequence_number or 0, files, dangling)


def live_manifests(io: FileIO, snapshot: Snapshot, read_locations: Sequence[str]) -> list[ManifestFile]:
    """The snapshot's manifests that may have live entries. Raises as `scan`."""
    refuse_outside([snapshot.manifest_list], read_locations)
    manifests = read_list(io, snapshot.manifest_list)
    live = [one for one in manifests if one.has_added_files() or one.has_existing_files()]
    refuse_outside([one.manifest_path for one in live], read_locations)
    if encrypted := [one.manifest_path for one in live if one.key_metadata is not None]:
        raise TableRefused(f"the manifest {encrypted[0]} is encrypted", reason="encryption")
    return live


def refuse_outside(paths: Iterable[str], read_locations: Sequence[str]) -> None:
    """Raise TableRefused("location") for the first path that lies below none of the locations."""
    for path in paths:
        require_within(path, read_locations, "read")


def _collect(
    manifest: Manifest,
    types: dict[int, PartitionTypes],
    data: list[DataFile],
    deletes: list[DeleteFile],
) -> None:
    spec_id = manifest.file.partition_spec_id
    if spec_id not in types:
        raise UnreadableFile(f"{manifest.file.manifest_path} names the unknown spec {spec_id}")
    own = types[spec_id]
    for entry in manifest.live:
        if manifest.file.content == ManifestContent.DATA:
            data.append(to_data_file(entry, own))
        else:
            deletes.append(to_delete_file(entry, own))
