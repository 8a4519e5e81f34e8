"""The table's present state relative to the snapshot that a plan was made on."""

from collections.abc import Callable

from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from amoro_core.errors import CommitConflict
from amoro_core.iceberg.caching import ManifestReader
from amoro_core.iceberg.contradictions import refuse_listed
from amoro_core.iceberg.entries import identity_of, partition_types, to_delete_file
from amoro_core.iceberg.manifest_lists import ManifestLists
from amoro_core.iceberg.manifests import read_list, read_manifest
from amoro_core.live.files import LiveFiles
from amoro_core.model.commits import Head
from amoro_core.model.files import DeleteFile, DeleteIdentity, DeleteKind, TableScan


def read_head(
    table: Table,
    planned_snapshot_id: int,
    scan: Callable[[Table], TableScan],
    read: ManifestReader = read_manifest,
    lists: ManifestLists | None = None,
) -> Head:
    """The head of the table as just loaded; `scan` reads its live files, `lists` has read lists of the table before.

    Raises CommitConflict without a snapshot, DataFileMissing, UnreadableFile or CatalogUnavailable for its metadata
    files, and what `scan` raises.
    """
    metadata = table.metadata
    snapshot = metadata.current_snapshot()
    if snapshot is None:
        raise CommitConflict(f"the table {'.'.join(table.name())} has no snapshot left")
    found = scan(table)
    since = _since(metadata, planned_snapshot_id)
    removed = None
    if since is not None:
        removed = _removed(table, planned_snapshot_id, since, found, read, lists or ManifestLists())
    return Head(
        table_uuid=str(metadata.table_uuid),
        format_version=metadata.format_version,
        snapshot_id=snapshot.snapshot_id,
        sequence_number=snapshot.sequence_number or 0,
        descends=_descends(metadata, planned_snapshot_id, since),
        field_ids=frozenset(metadata.schema().field_ids),
        scan=found,
        removed_equality_deletes=removed,
    )


def _since(metadata: TableMetadata, planned_snapshot_id: int) -> list[Snapshot] | None:
    """Main's snapshots after the planned one, newest first; None when they don't lead to it.

    The planned one itself may have expired: its child still names it.
    """
    by_id = {one.snapshot_id: one for one in metadata.snapshots}
    found: list[Snapshot] = []
    current = metadata.current_snapshot_id
    while current != planned_snapshot_id:
        snapshot = None if current is None else by_id.get(current)
        # A cycle of parents means damaged metadata.
        if snapshot is None or len(found) > len(by_id):
            return None
        found.append(snapshot)
        current = snapshot.parent_snapshot_id
    return found


def _descends(metadata: TableMetadata, planned_snapshot_id: int, since: list[Snapshot] | None) -> bool | None:
    """Whether main descends from the planned snapshot; None when an expiry cut the history: some writers then drop the
    parent id, others don't."""
    if since is not None:
        return True
    by_id = {one.snapshot_id: one for one in metadata.snapshots}
    if planned_snapshot_id not in by_id:
        return None
    current, seen = metadata.current_snapshot_id, 0
    while current is not None and current in by_id and seen <= len(by_id):
        current, seen = by_id[current].parent_snapshot_id, seen + 1
    return False if current is None else None


def _removed(
    table: Table,
    planned_snapshot_id: int,
    since: list[Snapshot],
    scan: TableScan,
    read: ManifestReader,
    lists: ManifestLists,
) -> tuple[DeleteFile, ...]:
    """Equality deletes that a snapshot after the plan's removed, or that were added since and are not live, by path.

    The latter are deletes that a writer dropped without an entry for their removal.
    """
    metadata = table.metadata
    planned = next((one for one in metadata.snapshots if one.snapshot_id == planned_snapshot_id), None)
    limit = None if planned is None else planned.sequence_number or 0
    live = _live_equality_deletes(scan)
    found: dict[tuple[DeleteIdentity, int], DeleteFile] = {}
    for manifest in _delete_manifests(table, since, limit, lists):
        types = partition_types(metadata, metadata.specs()[manifest.partition_spec_id])
        for entry in read(table.io, manifest).entries:
            if entry.data_file.content != DataFileContent.EQUALITY_DELETES:
                continue
            key = (identity_of(entry.data_file), entry.sequence_number or 0)
            if entry.status == ManifestEntryStatus.DELETED or key not in live:
                found[key] = to_delete_file(entry, types)
    return tuple(found[key] for key in sorted(found))


def _live_equality_deletes(scan: TableScan) -> set[tuple[DeleteIdentity, int]]:
    every = [*scan.dangling, *LiveFiles.of(scan.files).applied]
    return {one.numbered for one in every if one.kind is DeleteKind.EQUALITY}


def _delete_manifests(
    table: Table, since: list[Snapshot], limit: int | None, lists: ManifestLists
) -> list[ManifestFile]:
    """The distinct delete manifests of the snapshots, without those that existed when the plan was made."""
    found = {}
    for snapshot in since:
        listed = read_list(table.io, snapshot.manifest_list, lists)
        refuse_listed(table.metadata, snapshot, listed)
        for manifest in listed:
            if manifest.content == ManifestContent.DELETES and (limit is None or manifest.sequence_number > limit):
                found[manifest.manifest_path] = manifest
    return [found[path] for path in sorted(found)]
