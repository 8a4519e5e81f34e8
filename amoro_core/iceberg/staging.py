"""The files of a commit: manifests and manifest list of a REPLACE snapshot, not yet visible to anybody."""

import json
import re
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, UpdateMetrics
from pyiceberg.types import UnknownType

from amoro_core.errors import CommitConflict
from amoro_core.files.io import translated
from amoro_core.iceberg.caching import ManifestReader
from amoro_core.iceberg.entries import identity_of, partition_types, to_partition
from amoro_core.iceberg.manifest_writing import (
    added_entry,
    counted,
    deleted_entry,
    existing_entry,
    new_header,
    write_list,
    write_manifest,
)
from amoro_core.iceberg.manifests import Manifest, ManifestHeader, read_list, read_manifest
from amoro_core.iceberg.merging import MergeSettings, in_bins, merge_settings
from amoro_core.iceberg.metadata import metadata_location
from amoro_core.model.commits import CommitContent, Head, StagedCommit
from amoro_core.model.files import DataFile, DeleteFile, DeleteIdentity

MAIN = "main"

_FORMAT_VERSIONS = (1, 2)
#: Totals of a snapshot's summary, each with what is added and what is removed.
_TOTALS = (
    ("total-data-files", "added-data-files", "deleted-data-files"),
    ("total-delete-files", "added-delete-files", "removed-delete-files"),
    ("total-records", "added-records", "deleted-records"),
    ("total-files-size", "added-files-size", "removed-files-size"),
    ("total-position-deletes", "added-position-deletes", "removed-position-deletes"),
    ("total-equality-deletes", "added-equality-deletes", "removed-equality-deletes"),
)


@dataclass(slots=True)
class _Staging:
    """The files of one snapshot as they are being written."""

    table: Table
    snapshot_id: int
    sequence_number: int
    read: ManifestReader = read_manifest
    written: list[str] = field(default_factory=list)
    own: dict[str, Sequence[ManifestEntry]] = field(default_factory=dict)  # of the manifests written, by path
    numbered: int = 0
    name: str = field(default_factory=lambda: str(uuid.uuid4()))

    def path(self, name: str) -> str:
        path = f"{metadata_location(self.table.metadata)}/{name}"
        # Before the first byte, so that a file of which only a part was written is cleaned too.
        self.written.append(path)
        return path

    def manifest(
        self, content: ManifestContent, header: ManifestHeader, entries: Sequence[ManifestEntry]
    ) -> ManifestFile:
        """Write the entries as a new manifest of the snapshot."""
        path = self.path(f"{self.name}-m{self.numbered}.avro")
        self.numbered += 1
        version = self.table.metadata.format_version
        with translated(path):
            done = write_manifest(self.table.io, path, version, content, header, self.snapshot_id, entries)
        self.own[path] = entries
        return done

    def entries(self, file: ManifestFile) -> Sequence[ManifestEntry]:
        """The entries that a manifest of the new snapshot keeps: all of our own ones, the live ones of others."""
        if file.manifest_path in self.own:
            return self.own[file.manifest_path]
        return [existing_entry(entry) for entry in self.read(self.table.io, file).live]

    def drop(self, path: str) -> None:
        """Delete a manifest of our own that was merged into another."""
        with suppress(Exception):  # then it stays among what was written, to be cleaned with it
            self.table.io.delete(path)
            self.written.remove(path)

    def discard(self) -> None:
        for path in self.written:
            with suppress(Exception):  # the reason why staging failed matters more
                self.table.io.delete(path)


def stage(
    table: Table,
    head: Head,
    content: CommitContent,
    summary: Mapping[str, str],
    *,
    read: ManifestReader = read_manifest,
    merge: bool = True,
) -> StagedCommit:
    """Write manifests and manifest list of a REPLACE snapshot on that head, of the table as loaded just now.

    Small manifests are merged as the table's properties say, unless that is not wanted. Nothing is visible before it
    is sent; when it fails, what it wrote is deleted. Raises CommitConflict when the table has another head, or does
    not hold each removed file exactly once, TableRefused("configuration"), StorageFull or WorkFailed.
    """
    metadata = table.metadata
    _require_head(metadata, head)
    if metadata.format_version not in _FORMAT_VERSIONS:
        raise ValueError(f"format {metadata.format_version} can't be written")
    settings = merge_settings(metadata.properties) if merge else MergeSettings(enabled=False)
    staging = _Staging(table, metadata.new_snapshot_id(), metadata.next_sequence_number(), read)
    _require_older(content, metadata, staging.sequence_number)
    try:
        return _stage(staging, head, content, summary, settings)
    except BaseException:
        staging.discard()
        raise


def _require_head(metadata: TableMetadata, head: Head) -> None:
    main = metadata.refs.get(MAIN)
    if str(metadata.table_uuid) != head.table_uuid or main is None or main.snapshot_id != head.snapshot_id:
        raise CommitConflict(f"the table changed after snapshot {head.snapshot_id} was validated")


def _require_older(content: CommitContent, metadata: TableMetadata, sequence_number: int) -> None:
    """A new file as new as its snapshot would hide it from equality deletes that it still needs."""
    if metadata.format_version == 1 and (content.added_deletes or content.removed_deletes):
        raise ValueError("format 1 has no delete files")
    for file in _both(content.added_data, content.added_deletes):
        if not 0 <= file.sequence_number < max(sequence_number, 1):
            raise ValueError(f"{file.path} has sequence number {file.sequence_number}, the commit {sequence_number}")


def _stage(
    staging: _Staging, head: Head, content: CommitContent, summary: Mapping[str, str], settings: MergeSettings
) -> StagedCommit:
    metadata, io = staging.table.metadata, staging.table.io
    parent = next(one for one in metadata.snapshots if one.snapshot_id == head.snapshot_id)
    metrics = UpdateMetrics()
    added = [*_added(staging, ManifestContent.DATA, content.added_data, metrics)]
    added += _added(staging, ManifestContent.DELETES, content.added_deletes, metrics)
    carried = _carried(staging, parent, content, metrics)
    manifests = _merged(staging, [*added, *carried], settings)
    path = staging.path(f"snap-{staging.snapshot_id}-1-{staging.name}.avro")
    with translated(path):
        write_list(
            io,
            path,
            metadata.format_version,
            staging.snapshot_id,
            parent.snapshot_id,
            staging.sequence_number,
            manifests,
        )
    snapshot = {
        "snapshot-id": staging.snapshot_id,
        "parent-snapshot-id": parent.snapshot_id,
        # Format 1 has none.
        **({"sequence-number": staging.sequence_number} if staging.sequence_number else {}),
        "timestamp-ms": _timestamp_ms(metadata, parent),
        "manifest-list": path,
        "summary": _summary(metrics, _changed_partitions(content), parent, summary),
        "schema-id": metadata.current_schema_id,
    }
    return StagedCommit(
        snapshot_id=staging.snapshot_id,
        parent_snapshot_id=parent.snapshot_id,
        sequence_number=staging.sequence_number,
        manifest_list=path,
        payload=_payload(metadata, parent.snapshot_id, snapshot),
        metadata_files=tuple(staging.written),
    )


def _added(
    staging: _Staging, content: ManifestContent, files: Iterable[DataFile | DeleteFile], metrics: UpdateMetrics
) -> Iterator[ManifestFile]:
    """One manifest for each spec of the new files."""
    by_spec: dict[int, list[DataFile | DeleteFile]] = {}
    for file in files:
        by_spec.setdefault(file.spec_id, []).append(file)
    for spec_id, some in sorted(by_spec.items()):
        header = new_header(staging.table.metadata, spec_id)
        entries = [added_entry(file, header, staging.snapshot_id) for file in some]
        for entry in entries:
            metrics.add_file(entry.data_file)
        yield staging.manifest(content, header, entries)


Home = tuple[bool, int]  # whether of data, and the spec: what all files of a manifest have in common


def _home(file: DataFile | DeleteFile) -> Home:
    return isinstance(file, DataFile), file.spec_id


def _home_of(manifest: ManifestFile) -> Home:
    return manifest.content == ManifestContent.DATA, manifest.partition_spec_id


def _carried(staging: _Staging, parent: Snapshot, content: CommitContent, metrics: UpdateMetrics) -> list[ManifestFile]:
    """The parent's manifests without the removed files: reused where they lose none, written anew where they do."""
    io = staging.table.io
    removals = {_part(file): file for file in _both(content.removed_data, content.removed_deletes)}
    if len(removals) != len(content.removed_data) + len(content.removed_deletes):
        raise ValueError("a file is to be removed twice")
    new = {file.path for file in _both(content.added_data, content.added_deletes)}
    homes = {_home(file) for file in removals.values()}
    found: Counter[DeleteIdentity] = Counter()
    done: list[ManifestFile] = []
    for file in read_list(io, parent.manifest_list):
        if not (file.has_added_files() or file.has_existing_files()):
            continue
        if not _is_counted(file) or _home_of(file) in homes:
            manifest = staging.read(io, file)
            _require_new(manifest, new)
            gone = _removed(staging, manifest, removals)
            found.update(identity_of(entry.data_file) for entry in gone)
            for entry in gone:
                metrics.remove_file(entry.data_file)
            if gone:
                done.append(_without(staging, manifest, gone))
                continue
            file = counted(manifest)
        done.append(file)
    for part, removed in removals.items():
        if found[part] != 1:
            raise CommitConflict(f"{removed.path} is live {found[part]} times on the head, so it can't be replaced")
    return done


def _is_counted(file: ManifestFile) -> bool:
    counts = (file.added_files_count, file.existing_files_count, file.deleted_files_count)
    rows = (file.added_rows_count, file.existing_rows_count, file.deleted_rows_count)
    return None not in (*counts, *rows)


def _require_new(manifest: Manifest, new: set[str]) -> None:
    for entry in manifest.live:
        if entry.data_file.file_path in new:
            raise CommitConflict(f"{entry.data_file.file_path} is in the table already")


def _removed(
    staging: _Staging, manifest: Manifest, removals: Mapping[DeleteIdentity, DataFile | DeleteFile]
) -> list[ManifestEntry]:
    """The manifest's live entries that are to go. Raises CommitConflict for one that is not what was validated."""
    metadata = staging.table.metadata
    types = partition_types(metadata, metadata.specs()[manifest.file.partition_spec_id])
    gone = []
    for entry in manifest.live:
        expected = removals.get(identity_of(entry.data_file))
        if expected is None:
            continue
        is_same = (
            _home(expected) == _home_of(manifest.file)
            and entry.sequence_number == expected.sequence_number
            and to_partition(entry.data_file.partition, types) == expected.partition
        )
        if not is_same:
            raise CommitConflict(f"{expected.path} on the head is not the file that was validated")
        gone.append(entry)
    return gone


def _without(staging: _Staging, manifest: Manifest, gone: Sequence[ManifestEntry]) -> ManifestFile:
    removed = {id(entry) for entry in gone}
    entries = [
        deleted_entry(entry, staging.snapshot_id) if id(entry) in removed else existing_entry(entry)
        for entry in manifest.live
    ]
    return staging.manifest(manifest.file.content, manifest.header, entries)


def _merged(staging: _Staging, manifests: Iterable[ManifestFile], settings: MergeSettings) -> list[ManifestFile]:
    """The manifests with small ones merged: those of data first, and never one with another spec's."""
    every = list(manifests)
    done: list[ManifestFile] = []
    for content in (ManifestContent.DATA, ManifestContent.DELETES):
        for some in in_bins([one for one in every if one.content == content], settings):
            header = new_header(staging.table.metadata, some[0].partition_spec_id) if len(some) > 1 else None
            if header is None or not _is_writable(header):
                done += some
                continue
            # The entries of others keep their numbers, so that the least of them stays the manifest's least.
            done.append(staging.manifest(content, header, [entry for one in some for entry in staging.entries(one)]))
            for one in some:
                if one.manifest_path in staging.own:
                    staging.drop(one.manifest_path)
    return done


def _is_writable(header: ManifestHeader) -> bool:
    """Whether all partition fields have a type; nobody knows that of a column that no schema has any more."""
    return not any(isinstance(one.field_type, UnknownType) for one in header.partition_type.fields)


def _timestamp_ms(metadata: TableMetadata, parent: Snapshot) -> int:
    """Now, but after all that the table's metadata has seen, whatever the clocks of other writers said."""
    logged = (entry.timestamp_ms for entry in metadata.snapshot_log)
    latest = max((metadata.last_updated_ms, parent.timestamp_ms, *logged))
    return max(time.time_ns() // 1_000_000, latest + 1)


def _both(data: Iterable[DataFile], deletes: Iterable[DeleteFile]) -> list[DataFile | DeleteFile]:
    return [*data, *deletes]


def _part(file: DataFile | DeleteFile) -> DeleteIdentity:
    """The part of a file that an entry is about: data files are whole."""
    return DeleteIdentity(file.path, 0, file.size_bytes) if isinstance(file, DataFile) else file.identity


def _changed_partitions(content: CommitContent) -> int:
    files = _both(content.added_data, content.added_deletes) + _both(content.removed_data, content.removed_deletes)
    return len({(file.spec_id, file.partition) for file in files})


#: What is no such text in the parent's summary, a writer of whatever kind has put there.
_COUNT = re.compile(r"[0-9]{1,18}")


def _summary(metrics: UpdateMetrics, partitions: int, parent: Snapshot, given: Mapping[str, str]) -> dict[str, str]:
    counts = {**metrics.to_dict(), "changed-partition-count": str(partitions)}
    before = parent.summary.additional_properties if parent.summary else {}
    totals = {
        total: str(value)
        for total, added, removed in _TOTALS
        if _COUNT.fullmatch(str(before.get(total, "")))
        and (value := int(before[total]) + int(counts.get(added, 0)) - int(counts.get(removed, 0))) >= 0
    }
    return {**given, "operation": "replace", "snapshot.producer": "OPTIMIZE", **counts, **totals}


def _payload(metadata: TableMetadata, parent_id: int, snapshot: Mapping[str, Any]) -> bytes:
    """The request as the REST catalog's specification writes it."""
    main = metadata.refs[MAIN]
    # The update replaces the whole ref: what is not repeated of its retention is lost.
    retention = {
        "min-snapshots-to-keep": main.min_snapshots_to_keep,
        "max-snapshot-age-ms": main.max_snapshot_age_ms,
        "max-ref-age-ms": main.max_ref_age_ms,
    }
    moved = {
        "action": "set-snapshot-ref",
        "ref-name": MAIN,
        "type": "branch",
        "snapshot-id": snapshot["snapshot-id"],
        **{key: value for key, value in retention.items() if value is not None},
    }
    request = {
        "requirements": [
            {"type": "assert-table-uuid", "uuid": str(metadata.table_uuid)},
            {"type": "assert-ref-snapshot-id", "ref": MAIN, "snapshot-id": parent_id},
        ],
        "updates": [{"action": "add-snapshot", "snapshot": snapshot}, moved],
    }
    return json.dumps(request, separators=(",", ":")).encode()
