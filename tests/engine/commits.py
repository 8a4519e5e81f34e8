"""Snapshots made by hand: manifests and manifest lists, committed with retries."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
)
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotSummaryCollector, Summary, update_snapshot_summaries
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, AssertTableUUID, SetSnapshotRefUpdate
from sqlalchemy.exc import OperationalError

from tests.engine.files import schema_for_spec
from tests.engine.manifests import CONTENT_OFFSET, WRITERS, entries_of, manifests_in, write_list

ATTEMPTS = 20
MAIN = "main"


@dataclass(frozen=True, slots=True)
class Change:
    """What one snapshot does: files added at its own sequence number, live files removed by path."""

    added: tuple[DataFile, ...] = ()
    removed_paths: frozenset[str] = frozenset()
    summary: Mapping[str, str] = field(default_factory=dict)
    removed_vectors: frozenset[tuple[str, int]] = frozenset()  # by path and offset

    @property
    def operation(self) -> Operation:
        """The operation as Java's producers name it."""
        adds_data = any(file.content == DataFileContent.DATA for file in self.added)
        adds_deletes = any(file.content != DataFileContent.DATA for file in self.added)
        if adds_data and not adds_deletes and not self.removed_paths:
            return Operation.APPEND
        return Operation.OVERWRITE if adds_data else Operation.DELETE


def commit(table: Table, build: Callable[[Table], Change | None], branch: str = MAIN) -> Snapshot | None:
    """Commit what `build` makes of the freshly loaded table, and again of each newer head after a conflict.

    Returns the new snapshot, or None where `build` has nothing to do. The given table is refreshed.
    Raises CommitFailedException after the last attempt, ValueError where a file to be removed is not live.
    """
    for attempt in range(1, ATTEMPTS + 1):
        head = table.catalog.load_table(table.name())
        change = build(head)
        if change is None:
            return None
        snapshot = _new_snapshot(head, change, branch)
        try:
            _send(head, snapshot, branch)
        except (CommitFailedException, OperationalError):
            if attempt == ATTEMPTS and not _landed(table, snapshot):
                raise
        if _landed(table, snapshot):
            return snapshot
    raise CommitFailedException(f"the snapshot {snapshot.snapshot_id} did not land, though no attempt said so")


def _landed(table: Table, snapshot: Snapshot) -> bool:
    return table.refresh().snapshot_by_id(snapshot.snapshot_id) is not None


def _send(table: Table, snapshot: Snapshot, branch: str) -> None:
    ref = table.metadata.refs.get(branch)
    requirements = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        AssertRefSnapshotId(ref=branch, snapshot_id=ref.snapshot_id if ref else None),
    )
    updates = (AddSnapshotUpdate(snapshot=snapshot), moved_ref(branch, ref, snapshot.snapshot_id))
    try:
        table.catalog.commit_table(table, requirements, updates)
    except ValueError as error:
        # pyiceberg's word for snapshots that others have added meanwhile without moving the branch.
        if "older than last sequence number" in str(error):
            raise CommitFailedException(str(error)) from error
        raise


def moved_ref(name: str, ref: SnapshotRef | None, snapshot_id: int) -> SetSnapshotRefUpdate:
    """The update that points a ref elsewhere and keeps its retention; a new ref is a branch."""
    return SetSnapshotRefUpdate(
        ref_name=name,
        type=ref.snapshot_ref_type if ref else SnapshotRefType.BRANCH,
        snapshot_id=snapshot_id,
        max_ref_age_ms=ref.max_ref_age_ms if ref else None,
        max_snapshot_age_ms=ref.max_snapshot_age_ms if ref else None,
        min_snapshots_to_keep=ref.min_snapshots_to_keep if ref else None,
    )


def _new_snapshot(table: Table, change: Change, branch: str) -> Snapshot:
    """Write the manifests and the manifest list of the change on the branch's head."""
    metadata = table.metadata
    ref = metadata.refs.get(branch)
    parent = table.snapshot_by_id(ref.snapshot_id) if ref else None
    snapshot_id, sequence = metadata.new_snapshot_id(), metadata.next_sequence_number()
    manifests = _added_manifests(table, snapshot_id, change.added)
    removed: list[DataFile] = []
    for manifest in manifests_in(table, parent) if parent else ():
        if manifest.has_added_files() or manifest.has_existing_files():
            kept, gone = _carried(table, snapshot_id, manifest, change)
            manifests.append(kept)
            removed += gone
    if missing := change.removed_paths - {file.file_path for file in removed}:
        raise ValueError(f"not live on {branch}: {sorted(missing)}")
    path = _metadata_path(metadata, f"snap-{snapshot_id}-1-{uuid.uuid4()}.avro")
    out = table.io.new_output(path)
    parent_id = parent.snapshot_id if parent else None
    row_ids = write_list(metadata, out, (snapshot_id, parent_id, sequence), manifests)
    return Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=parent_id,
        sequence_number=sequence,
        manifest_list=path,
        summary=_summary(metadata, change, removed, parent),
        schema_id=metadata.current_schema_id,
        **row_ids,
    )


def _summary(metadata: TableMetadata, change: Change, removed: Iterable[DataFile], parent: Snapshot | None) -> Summary:
    collector = SnapshotSummaryCollector()
    for files, count in ((change.added, collector.add_file), (removed, collector.remove_file)):
        for file in files:
            spec = metadata.specs()[file.spec_id]
            count(file, schema_for_spec(metadata, spec), spec)
    summary = Summary(operation=change.operation, **collector.build(), **change.summary)
    before = parent.summary.additional_properties if parent and parent.summary else None
    return update_snapshot_summaries(summary, before)


def _added_manifests(table: Table, snapshot_id: int, files: Iterable[DataFile]) -> list[ManifestFile]:
    """One manifest for each content and spec of the new files, whose sequence number is the snapshot's."""
    groups: dict[tuple[ManifestContent, int], list[DataFile]] = {}
    for file in files:
        is_data = file.content == DataFileContent.DATA
        groups.setdefault((ManifestContent.DATA if is_data else ManifestContent.DELETES, file.spec_id), []).append(file)
    done = []
    for (content, spec_id), group in groups.items():
        with _manifest_writer(table, content, spec_id, snapshot_id) as writer:
            for file in group:
                writer.add(
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, sequence_number=None, data_file=file
                    )
                )
        done.append(writer.to_manifest_file())
    return done


def _carried(
    table: Table, snapshot_id: int, manifest: ManifestFile, change: Change
) -> tuple[ManifestFile, list[DataFile]]:
    """The manifest itself, or rewritten where it lists a removed file; and the removed files."""
    if not (change.removed_paths or change.removed_vectors):
        return manifest, []
    entries = entries_of(table, manifest)
    removed = [entry.data_file for entry in entries if _goes(entry.data_file, change)]
    if not removed:
        return manifest, []
    with _manifest_writer(table, manifest.content, manifest.partition_spec_id, snapshot_id) as writer:
        for entry in entries:
            if _goes(entry.data_file, change):
                writer.delete(entry)
            else:
                writer.existing(entry)
    return writer.to_manifest_file(), removed


def _goes(file: DataFile, change: Change) -> bool:
    offset = file[CONTENT_OFFSET] if len(file._data) > CONTENT_OFFSET else None
    return file.file_path in change.removed_paths or (file.file_path, offset) in change.removed_vectors


def _manifest_writer(table: Table, content: ManifestContent, spec_id: int, snapshot_id: int) -> ManifestWriter:
    metadata = table.metadata
    if metadata.format_version == 1 and content == ManifestContent.DELETES:
        raise ValueError("a table of format 1 can't hold delete files")
    kind = WRITERS[metadata.format_version, content]
    spec = metadata.specs()[spec_id]
    out = table.io.new_output(_metadata_path(metadata, f"{uuid.uuid4()}-m0.avro"))
    return kind(spec, schema_for_spec(metadata, spec), out, snapshot_id, "deflate")


def _metadata_path(metadata: TableMetadata, name: str) -> str:
    base = metadata.properties.get("write.metadata.path", f"{metadata.location}/metadata").rstrip("/")
    return f"{base}/{name}"
