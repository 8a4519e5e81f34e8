"""The head of a table relative to a plan's snapshot, and deletes that came too late for a commit."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import takewhile

from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

from amoro_core.errors import CommitConflict, DataFileMissing, TableRefused, UnreadableFile
from amoro_core.files.deletes.delete_files import read_positions
from amoro_core.files.storage.io import FileAccess
from amoro_core.iceberg.manifest.manifest_cache import ManifestReader
from amoro_core.iceberg.manifest.reading import (
    history_from,
    identity_of,
    partition_types,
    read_list,
    read_manifest,
    summary_of,
    to_delete_file,
)
from amoro_core.iceberg.table_support import refuse_listed
from amoro_core.model.commits import PROCESS_ID, Head
from amoro_core.model.files import DeleteFile, DeleteIdentity, DeleteKind, TableScan
from amoro_core.model.maintenance import LateDelete, application_of
from amoro_core.model.paths import normalise
from amoro_core.scan.live_files import LiveFiles


def read_head(
    table: Table, planned_snapshot_id: int, scan: Callable[[Table], TableScan], read: ManifestReader = read_manifest
) -> Head:
    """The head of the table as just loaded; `scan` reads its live files. Raises CommitConflict without a snapshot,
    DataFileMissing, UnreadableFile or CatalogUnavailable for its metadata files, and what `scan` raises."""
    metadata = table.metadata
    snapshot = metadata.current_snapshot()
    if snapshot is None:
        raise CommitConflict(f"the table {'.'.join(table.name())} has no snapshot left")
    table_scan = scan(table)
    since = _since(metadata, planned_snapshot_id)
    removed = None if since is None else _removed(table, planned_snapshot_id, since, table_scan, read)
    return Head(
        table_uuid=str(metadata.table_uuid),
        format_version=metadata.format_version,
        snapshot_id=snapshot.snapshot_id,
        sequence_number=snapshot.sequence_number or 0,
        descends=_descends(metadata, planned_snapshot_id, since),
        field_ids=frozenset(metadata.schema().field_ids),
        scan=table_scan,
        removed_equality_deletes=removed,
        authors={
            _number(item): f"snapshot {item.snapshot_id} of {application_of(summary_of(item))}" for item in since or ()
        },
    )


def _since(metadata: TableMetadata, planned_snapshot_id: int) -> list[Snapshot] | None:
    """Main's snapshots after the planned one, newest first; None when they don't lead to it. The planned one itself may
    have expired: its child still names it."""
    if metadata.current_snapshot_id == planned_snapshot_id:
        return []
    result: list[Snapshot] = []
    for snapshot in history_from(metadata, metadata.current_snapshot_id):
        result.append(snapshot)
        if snapshot.parent_snapshot_id == planned_snapshot_id:
            return result
    return None


def _descends(metadata: TableMetadata, planned_snapshot_id: int, since: list[Snapshot] | None) -> bool | None:
    """Whether main descends from the planned snapshot; None when an expiry cut the history: only some writers then keep
    the parent id."""
    if since is not None:
        return True
    if all(snapshot.snapshot_id != planned_snapshot_id for snapshot in metadata.snapshots):
        return None
    *_, oldest = history_from(metadata, metadata.current_snapshot_id)
    return False if oldest.parent_snapshot_id is None else None


def _removed(
    table: Table, planned_snapshot_id: int, since: list[Snapshot], scan: TableScan, read: ManifestReader
) -> tuple[DeleteFile, ...]:
    """Equality deletes that a snapshot after the plan's removed, or that were added since and that a writer dropped
    without an entry for their removal, by path."""
    metadata = table.metadata
    planned = next((snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id == planned_snapshot_id), None)
    limit = None if planned is None else planned.sequence_number or 0
    delete_files = (*scan.dangling, *LiveFiles.of(scan.files).applied)
    live = {delete.numbered for delete in delete_files if delete.kind is DeleteKind.EQUALITY}
    deletes: dict[tuple[DeleteIdentity, int], DeleteFile] = {}
    for manifest in _delete_manifests(table, since, limit):
        types = partition_types(metadata, metadata.specs()[manifest.partition_spec_id])
        for entry in read(table.io, manifest).entries:
            if entry.data_file.content != DataFileContent.EQUALITY_DELETES:
                continue
            key = (identity_of(entry.data_file), entry.sequence_number or 0)
            if entry.status == ManifestEntryStatus.DELETED or key not in live:
                deletes[key] = to_delete_file(entry, types)
    return tuple(deletes[key] for key in sorted(deletes))


def _delete_manifests(table: Table, since: list[Snapshot], limit: int | None) -> list[ManifestFile]:
    """The distinct delete manifests of the snapshots, without those that existed when the plan was made."""
    by_path = {}
    for snapshot in since:
        listed = read_list(table.io, snapshot.manifest_list)
        refuse_listed(table.metadata, snapshot, listed)
        for manifest in listed:
            if manifest.content == ManifestContent.DELETES and (limit is None or manifest.sequence_number > limit):
                by_path[manifest.manifest_path] = manifest
    return [by_path[path] for path in sorted(by_path)]


#: A writer that planned on files which were replaced longer ago is not expected any more.
LOOKS_BACK = timedelta(days=1)
#: Larger position delete files that may name several files are not read for it.
MAX_BYTES = 1024 * 1024
_UNREADABLE = (DataFileMissing, UnreadableFile, TableRefused)


def late_deletes(
    table: Table, scan: TableScan, access: FileAccess, read: ManifestReader, since: int
) -> tuple[LateDelete, ...]:
    """Those that main's head, which `scan` has the files of, holds above the sequence number `since`, oldest first.

    It examines our commits within LOOKS_BACK before the head, and what is newer than the first of them. Snapshots that
    only replace files delete no row. Deletes that others removed again meanwhile are not found.
    """
    ours = _ours(table.metadata)
    if not ours:
        return ()
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    first = max(since, ours[0].sequence_number or 0)
    late: dict[int, dict[str, list[DeleteFile]]] = {}
    live = LiveFiles.of(scan.files)
    for snapshot_id, delete in _newer(table, first, read):
        author = by_id.get(snapshot_id)
        if author is None or (author.summary and author.summary.operation is Operation.REPLACE):
            continue
        for path in _absent(delete, live, access):
            late.setdefault(snapshot_id, {}).setdefault(path, []).append(delete)
    return tuple(_late(table, ours, [(by_id[key], named) for key, named in late.items()], read)) if late else ()


def _ours(metadata: TableMetadata) -> list[Snapshot]:
    """Main's snapshots that processes of ours committed lately, the oldest first."""
    head = metadata.current_snapshot()
    if head is None:
        return []
    oldest_ms = head.timestamp_ms - LOOKS_BACK // timedelta(milliseconds=1)
    recent = takewhile(lambda item: item.timestamp_ms >= oldest_ms, history_from(metadata, head.snapshot_id))
    return [snapshot for snapshot in reversed(list(recent)) if summary_of(snapshot).get(PROCESS_ID)]


def _newer(table: Table, since: int, read: ManifestReader) -> Iterator[tuple[int, DeleteFile]]:
    """The head's deletes by position above a sequence number, each with the snapshot that added it."""
    head = table.metadata.current_snapshot()
    if head is None:
        return
    for manifest in read_list(table.io, head.manifest_list):
        if manifest.content != ManifestContent.DELETES or manifest.sequence_number <= since:
            continue
        types = partition_types(table.metadata, table.metadata.specs()[manifest.partition_spec_id])
        for entry in read(table.io, manifest).entries:
            is_live = entry.status != ManifestEntryStatus.DELETED
            is_newer = (entry.sequence_number or 0) > since
            if is_live and is_newer and entry.data_file.content == DataFileContent.POSITION_DELETES:
                yield entry.snapshot_id or 0, to_delete_file(entry, types)


def _absent(delete: DeleteFile, live: LiveFiles, access: FileAccess) -> set[str]:
    """The files that it names and that are not live, by normalised path; none where it is too large to be read."""
    named: set[str] = set()
    if delete.named_file is not None:
        named = {normalise(delete.named_file)}
    elif delete.size_bytes <= MAX_BYTES:
        with suppress(*_UNREADABLE):
            named = set(read_positions(access, delete, lambda: None))
    there = {normalise(live.columns.row(at).path) for at in live.ids_of(named).tolist()}
    return named - there


def _late(
    table: Table,
    ours: Sequence[Snapshot],
    late: Sequence[tuple[Snapshot, Mapping[str, Sequence[DeleteFile]]]],
    read: ManifestReader,
) -> Iterator[LateDelete]:
    """Of the absent files that snapshots name, those that commits of ours had replaced before."""
    replaced = {commit.snapshot_id: _replaced(table, commit, read) for commit in ours}
    for snapshot, delete_files in sorted(late, key=lambda item: _number(item[0])):
        before = [commit for commit in ours if _number(commit) < _number(snapshot)]
        by = {path: commit for commit in before for path in replaced[commit.snapshot_id]}
        files = sorted(path for path in delete_files if path in by)
        if not files:
            continue
        last = max((by[path] for path in files), key=_number)
        yield LateDelete(
            snapshot_id=snapshot.snapshot_id,
            sequence_number=_number(snapshot),
            committed_at=datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC),
            application=application_of(summary_of(snapshot)),
            deletes=tuple(sorted({delete.path for path in files for delete in delete_files[path]})),
            files=tuple(files),
            process_id=summary_of(last)[PROCESS_ID],
            replaced_by=last.snapshot_id,
        )


def _replaced(table: Table, snapshot: Snapshot, read: ManifestReader) -> set[str]:
    """The data files that a commit removed, by normalised path."""
    return {
        normalise(entry.data_file.file_path)
        for manifest in read_list(table.io, snapshot.manifest_list)
        if manifest.content == ManifestContent.DATA and manifest.added_snapshot_id == snapshot.snapshot_id
        for entry in read(table.io, manifest).entries
        if entry.status == ManifestEntryStatus.DELETED
    }


def _number(snapshot: Snapshot) -> int:
    return snapshot.sequence_number or 0
