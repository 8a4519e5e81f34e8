"""All live files of a table's main branch, read from its manifests one by one."""

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from amoro_core.errors import TableRefused
from amoro_core.files.confining import require_real
from amoro_core.files.locations import require_within
from amoro_core.iceberg.caching import ManifestReader
from amoro_core.iceberg.column_cache import ColumnCache
from amoro_core.iceberg.contradictions import refuse_listed, refuse_manifest
from amoro_core.iceberg.entries import (
    is_unpartitioned,
    partition_types,
    to_data_file,
    to_delete_file,
)
from amoro_core.iceberg.manifests import read_list, read_manifest
from amoro_core.live.columns import Gathering
from amoro_core.live.matching import match
from amoro_core.model.files import DeleteFile, TableScan
from amoro_core.model.paths import is_local

#: Paths that can't be checked by their directory: without one, named "." or "..", or with a NUL.
_ODD = r"^[^/]*$|/\.{0,2}$|\x00"


def scan(
    table: Table,
    read_locations: Sequence[str],
    read: ManifestReader = read_manifest,
    snapshot_id: int | None = None,
    way_out: str = "",
    cache: ColumnCache | None = None,
) -> TableScan | None:
    """The live files of main's head, or of a snapshot, with their deletes, files of every format; None without one.

    `way_out` is the hint for files outside the locations. Data manifests that are in the cache are not read, others are
    added to it. Raises TableRefused (a file outside the locations,
    encryption, contradictions, or a delete about which readers disagree), DataFileMissing or UnreadableFile (a manifest
    list or a manifest), CatalogUnavailable (the storage).
    """
    metadata = table.metadata
    snapshot = metadata.current_snapshot() if snapshot_id is None else metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        return None
    types = {spec_id: partition_types(metadata, spec) for spec_id, spec in metadata.specs().items()}
    uuid, data, deletes = str(metadata.table_uuid), Gathering(), list[DeleteFile]()
    for listed in live_manifests(table, snapshot, read_locations, way_out):
        spec_id, holds_data = listed.partition_spec_id, listed.content == ManifestContent.DATA
        if cache is not None and holds_data and (known := cache.find(uuid, listed, types[spec_id])) is not None:
            data.take(known)
            continue
        manifest = read(table.io, listed)
        refuse_manifest(manifest, len(metadata.specs()[spec_id].fields))
        if not holds_data:
            deletes += [to_delete_file(entry, types[spec_id]) for entry in manifest.live]
            continue
        for entry in manifest.live:
            data.add(to_data_file(entry, types[spec_id]))
        part = data.end_part()
        if cache is not None:
            cache.keep(uuid, listed, types[spec_id], part)
    columns = data.columns()
    _refuse_columns_outside(columns.paths, read_locations, way_out)
    refuse_outside((file.path for file in deletes), read_locations, way_out)
    unpartitioned = frozenset(spec_id for spec_id, spec in metadata.specs().items() if is_unpartitioned(spec))
    files, dangling = match(columns, deletes, unpartitioned)
    return TableScan(snapshot.snapshot_id, snapshot.sequence_number or 0, files, dangling, unpartitioned)


def live_manifests(
    table: Table, snapshot: Snapshot, read_locations: Sequence[str], way_out: str = ""
) -> list[ManifestFile]:
    """The snapshot's manifests that may have live entries. Raises like `scan`."""
    refuse_outside([snapshot.manifest_list], read_locations, way_out)
    manifests = read_list(table.io, snapshot.manifest_list)
    refuse_listed(table.metadata, snapshot, manifests)
    live = [one for one in manifests if one.has_added_files() or one.has_existing_files()]
    refuse_outside([one.manifest_path for one in live], read_locations, way_out)
    if encrypted := [one.manifest_path for one in live if one.key_metadata is not None]:
        raise TableRefused(f"the manifest {encrypted[0]} is encrypted", reason="encryption")
    return live


def refuse_outside(paths: Iterable[str], read_locations: Sequence[str], way_out: str = "") -> None:
    """Raise TableRefused("location") for the first path below none of the locations, or whose directory links lead out
    of them. Whether a file itself is a link is checked when it is opened."""
    places = (require_within(path, read_locations, "read", way_out) for path in paths)
    for directory in dict.fromkeys(place.rpartition("/")[0] for place in places if is_local(place)):
        require_real(directory or "/", read_locations, "read", way_out)


def _refuse_columns_outside(paths: pa.ChunkedArray, read_locations: Sequence[str], way_out: str) -> None:
    """Like `refuse_outside`, mostly by the directories alone, of which there are few."""
    directories = pc.unique(pc.replace_substring_regex(paths, r"/[^/]*$", "/")).to_pylist()
    odd = paths.filter(pc.match_substring_regex(paths, _ODD)).to_pylist()
    try:
        for directory in directories:
            require_within(directory, read_locations, "read", way_out)
        refuse_outside((*(f"{directory}file" for directory in directories), *odd), read_locations, way_out)
    except TableRefused:
        # To name the refused file; and a file that is itself a location is not refused.
        refuse_outside(paths.to_pylist(), read_locations, way_out)
