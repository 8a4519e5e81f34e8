"""A new snapshot of main being written: its files, and the request that adds it."""

import re
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import UnknownType

from amoro_core.errors import CommitConflict
from amoro_core.files.storage.io import translated
from amoro_core.iceberg.manifest.avro import first_new_row_id
from amoro_core.iceberg.manifest.manifest_cache import ManifestReader
from amoro_core.iceberg.manifest.reading import (
    ChangeCounts,
    Manifest,
    ManifestHeader,
    identity_of,
    partition_types,
    read_list,
    read_manifest,
    summary_of,
    to_partition,
)
from amoro_core.iceberg.manifest.writing import (
    Listing,
    MergeSettings,
    added_entry,
    counted,
    deleted_entry,
    existing_entry,
    in_bins,
    merge_settings,
    new_header,
    within_budget,
    write_list,
    write_manifest,
)
from amoro_core.iceberg.metadata import Json, commit_request, metadata_location, ref_required
from amoro_core.model.commits import CommitContent, Head, StagedCommit
from amoro_core.model.files import DataFile, DeleteFile, DeleteIdentity
from amoro_core.model.paths import normalise
from amoro_core.scan.live_files import LiveFiles

MAIN = "main"
#: The versions of Iceberg's format that can be written.
FORMAT_VERSIONS = (1, 2, 3)

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
class Draft:
    """A snapshot that is not visible yet; discarded on failure."""

    table: Table
    snapshot_id: int
    sequence_number: int
    read: ManifestReader = read_manifest
    written: list[str] = field(default_factory=list)
    own: dict[str, Sequence[ManifestEntry]] = field(default_factory=dict)  # of the manifests written, by path
    numbered: int = 0
    name: str = field(default_factory=lambda: str(uuid.uuid4()))

    def path(self, name: str) -> str:
        """The path of a new file of that name below the table's metadata location."""
        path = f"{metadata_location(self.table.metadata)}/{name}"
        # Before the first byte, so that a partly written file is cleaned up too.
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
        """The entries of a manifest to carry over: all of our own manifests', the live ones of others."""
        if file.manifest_path in self.own:
            return self.own[file.manifest_path]
        return [existing_entry(entry) for entry in self.read(self.table.io, file).live]

    def drop(self, path: str) -> None:
        """Delete a manifest of our own that was merged into another."""
        with suppress(Exception):  # it is then cleaned up with everything written
            self.table.io.delete(path)
            self.written.remove(path)

    def discard(self) -> None:
        """Delete everything written."""
        for path in self.written:
            with suppress(Exception):  # the error of staging matters more
                self.table.io.delete(path)

    def finish(
        self, parent: Snapshot, manifests: Sequence[ManifestFile], operation: str, summary: Mapping[str, str]
    ) -> StagedCommit:
        """Write the manifest list, and make the request that adds the snapshot on main's head, which is `parent`.

        New manifests take the snapshot's sequence number, and row ids from the table's next one on. Raises
        TableRefused("metadata") for a table of format 3 without a next row id.
        """
        metadata = self.table.metadata
        logged = (entry.timestamp_ms for entry in metadata.snapshot_log)
        latest_ms = max((metadata.last_updated_ms, parent.timestamp_ms, *logged))
        first_row_id = first_new_row_id(metadata)
        path = self.path(f"snap-{self.snapshot_id}-1-{self.name}.avro")
        with translated(path):
            listing = Listing(
                metadata.format_version, self.snapshot_id, parent.snapshot_id, self.sequence_number, first_row_id
            )
            rows = write_list(self.table.io, path, listing, manifests)
        snapshot = {
            "snapshot-id": self.snapshot_id,
            "parent-snapshot-id": parent.snapshot_id,
            # Format 1 has none.
            **({"sequence-number": self.sequence_number} if self.sequence_number else {}),
            # Later than every time in the table's metadata, whatever the clocks of other writers.
            "timestamp-ms": max(time.time_ns() // 1_000_000, latest_ms + 1),
            "manifest-list": path,
            "summary": {**summary, "operation": operation},
            "schema-id": metadata.current_schema_id,
            **({} if first_row_id is None else {"first-row-id": first_row_id, "added-rows": rows}),
        }
        return StagedCommit(
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=parent.snapshot_id,
            sequence_number=self.sequence_number,
            manifest_list=path,
            payload=_payload(self.table, parent.snapshot_id, snapshot),
            metadata_files=tuple(self.written),
        )


#: A valid total in the parent's summary; writers may have put anything there.
_COUNT = re.compile(r"[0-9]{1,18}")


def totals(parent: Snapshot, counts: Mapping[str, Any]) -> dict[str, str]:
    """The totals of a snapshot's summary: its parent's, if any, plus the changes in the counts."""
    before = summary_of(parent)
    return {
        total: str(value)
        for total, added, removed in _TOTALS
        if _COUNT.fullmatch(str(before.get(total, "")))
        and (value := int(before[total]) + int(counts.get(added, 0)) - int(counts.get(removed, 0))) >= 0
    }


def _payload(table: Table, parent_id: int, snapshot: Json) -> bytes:
    """The request that adds the snapshot to main, at its parent."""
    main = table.metadata.refs[MAIN]
    # The update replaces the whole ref: its retention must be repeated.
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
    return commit_request(
        table, [{"action": "add-snapshot", "snapshot": snapshot}, moved], [ref_required(MAIN, parent_id)]
    )


def stage(
    table: Table,
    head: Head,
    content: CommitContent,
    summary: Mapping[str, str],
    *,
    read: ManifestReader = read_manifest,
    merge: bool = True,
) -> StagedCommit:
    """Write manifests and manifest list of a snapshot on that head of the table as just loaded.

    With `merge`, small manifests are merged according to the table's properties. Nothing is visible before the commit
    is sent; on failure what was written is deleted.

    Raises CommitConflict when the table has another head, or does not have each removed file exactly once,
    TableRefused("configuration"), StorageFull or WorkFailed.
    """
    metadata = table.metadata
    main = metadata.refs.get(MAIN)
    if str(metadata.table_uuid) != head.table_uuid or main is None or main.snapshot_id != head.snapshot_id:
        raise CommitConflict(f"the table changed after snapshot {head.snapshot_id} was validated")
    if metadata.format_version not in FORMAT_VERSIONS:
        raise ValueError(f"format {metadata.format_version} can't be written")
    settings = merge_settings(metadata.properties) if merge else MergeSettings(enabled=False)
    draft = Draft(table, metadata.new_snapshot_id(), metadata.next_sequence_number(), read)
    _require_older(content, metadata, draft.sequence_number)
    try:
        return _stage(draft, head, content, summary, settings)
    except BaseException:
        draft.discard()
        raise


def _require_older(content: CommitContent, metadata: TableMetadata, sequence_number: int) -> None:
    """Raise for a new file whose sequence number is its snapshot's: equality deletes that it needs would not apply."""
    if metadata.format_version == 1 and (*content.added_deletes, *content.removed_deletes, *content.carried_deletes):
        raise ValueError("format 1 has no delete files")
    for file in _both(content.added_data, content.added_deletes):
        if not 0 <= file.sequence_number < max(sequence_number, 1):
            raise ValueError(f"{file.path} has sequence number {file.sequence_number}, the commit {sequence_number}")


def _stage(
    draft: Draft, head: Head, content: CommitContent, summary: Mapping[str, str], settings: MergeSettings
) -> StagedCommit:
    parent = next(snapshot for snapshot in draft.table.metadata.snapshots if snapshot.snapshot_id == head.snapshot_id)
    metrics = ChangeCounts()
    added = [*_added(draft, ManifestContent.DATA, content.added_data, metrics)]
    own = (replace(delete, sequence_number=draft.sequence_number) for delete in content.carried_deletes)
    added += _added(draft, ManifestContent.DELETES, (*content.added_deletes, *own), metrics)
    _require_new(content, head)
    require_one_vector(content, head)
    rest = _rest(draft, read_list(draft.table.io, parent.manifest_list), content, metrics, head)
    manifests = _merged(draft, [*added, *rest], settings)
    files = _both(content.added_data, content.added_deletes) + _both(content.removed_data, content.removed_deletes)
    changed = {(file.spec_id, file.partition) for file in files}
    counts = {**metrics.to_dict(), "changed-partition-count": str(len(changed))}
    properties = {"snapshot.producer": "OPTIMIZE", **summary, **counts, **totals(parent, counts)}
    return draft.finish(parent, manifests, content.operation, properties)


def _added(
    draft: Draft, content: ManifestContent, files: Iterable[DataFile | DeleteFile], metrics: ChangeCounts
) -> Iterator[ManifestFile]:
    """One manifest for each spec of the new files."""
    by_spec: dict[int, list[DataFile | DeleteFile]] = {}
    for file in files:
        by_spec.setdefault(file.spec_id, []).append(file)
    for spec_id, some in sorted(by_spec.items()):
        header = new_header(draft.table.metadata, spec_id)
        entries = [added_entry(file, header, draft.snapshot_id) for file in some]
        for entry in entries:
            metrics.add_file(entry.data_file)
        yield draft.manifest(content, header, entries)


Home = tuple[bool, int]  # whether data, and the spec: common to all files of a manifest


def _home(file: DataFile | DeleteFile) -> Home:
    return isinstance(file, DataFile), file.spec_id


def _home_of(manifest: ManifestFile) -> Home:
    return manifest.content == ManifestContent.DATA, manifest.partition_spec_id


def _rest(
    draft: Draft, manifests: Iterable[ManifestFile], content: CommitContent, metrics: ChangeCounts, head: Head
) -> list[ManifestFile]:
    """The parent's manifests without the removed files: reused if unchanged, else rewritten. Those that hold removed
    files according to the head are read, each entry compared with what was validated."""
    removals = {_part(file): file for file in _both(content.removed_data, content.removed_deletes)}
    if len(removals) != len(content.removed_data) + len(content.removed_deletes):
        raise ValueError("a file is to be removed twice")
    homes = {_home(file) for file in removals.values()}
    holding = LiveFiles.of(head.scan.files).manifests_of((file.path for file in content.removed_data), removals)
    counter: Counter[DeleteIdentity] = Counter()
    done: list[ManifestFile] = []
    for file in manifests:
        if not (file.has_added_files() or file.has_existing_files()):
            continue
        may_hold = _home_of(file) in homes and (holding is None or file.manifest_path in holding)
        if not is_counted(file) or may_hold:
            manifest = draft.read(draft.table.io, file)
            dropped = _removed(draft, manifest, removals)
            file = _without(draft, manifest, dropped) if dropped else counted(manifest)
            counter.update(identity_of(entry.data_file) for entry in dropped)
            for entry in dropped:
                metrics.remove_file(entry.data_file)
        done.append(file)
    for part, removed in removals.items():
        if counter[part] != 1:
            raise CommitConflict(f"{removed.path} is live {counter[part]} times on the head, so it can't be replaced")
    return done


def is_counted(file: ManifestFile) -> bool:
    """Whether the manifest list has the counts of files and rows of each status."""
    counts = (file.added_files_count, file.existing_files_count, file.deleted_files_count)
    rows = (file.added_rows_count, file.existing_rows_count, file.deleted_rows_count)
    return None not in (*counts, *rows)


def _require_new(content: CommitContent, head: Head) -> None:
    """Raise CommitConflict for a new file that is live on the head: its rows would be there twice. A vector that comes
    back may lie in a file of which other vectors are live."""
    live = LiveFiles.of(head.scan.files)
    new = {_spot(file): file.path for file in _both(content.added_data, _added_deletes(content))}
    there = {(normalise(live.columns.paths[at].as_py()), 0) for at in live.ids_of(path for path, _ in new).tolist()}
    there |= {_spot(delete) for delete in (*live.applied, *head.scan.dangling)}
    parts, paths = {path for path, offset in there if offset}, {path for path, offset in there if not offset}
    for (path, offset), spelled in sorted(new.items()):
        if path in paths or (path, offset) in there or (path in parts and not offset):
            raise CommitConflict(f"{spelled} is in the table already")


def _spot(file: DataFile | DeleteFile) -> tuple[str, int]:
    """Where a file, or a vector in its file, begins."""
    part = _part(file)
    return normalise(part.path), part.offset


def require_one_vector(content: CommitContent, head: Head) -> None:
    """Raise CommitConflict if the commit would leave a data file with two vectors: Java's readers can't plan such a
    table."""
    going = {delete.identity for delete in content.removed_deletes}
    deletes = (*LiveFiles.of(head.scan.files).applied, *head.scan.dangling)
    staying = (delete for delete in deletes if delete.is_vector and delete.identity not in going)
    new = (delete for delete in _added_deletes(content) if delete.is_vector)
    seen: dict[str, DeleteFile] = {}
    for vector in (*staying, *new):
        named = normalise(vector.named_file or "")
        if (other := seen.setdefault(named, vector)) is not vector:
            raise CommitConflict(
                f"{named} would have two deletion vectors: {other.path} at {other.identity.offset} and {vector.path} at"
                f" {vector.identity.offset}"
            )


def _removed(
    draft: Draft, manifest: Manifest, removals: Mapping[DeleteIdentity, DataFile | DeleteFile]
) -> list[ManifestEntry]:
    """The manifest's live entries to remove. Raises CommitConflict for one that differs from what was validated."""
    metadata = draft.table.metadata
    types = partition_types(metadata, metadata.specs()[manifest.file.partition_spec_id])
    removed = []
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
        removed.append(entry)
    return removed


def _without(draft: Draft, manifest: Manifest, removals: Sequence[ManifestEntry]) -> ManifestFile:
    removed = {id(entry) for entry in removals}
    entries = [
        deleted_entry(entry, draft.snapshot_id) if id(entry) in removed else existing_entry(entry)
        for entry in manifest.live
    ]
    return draft.manifest(manifest.file.content, manifest.header, entries)


def _merged(draft: Draft, manifests: Iterable[ManifestFile], settings: MergeSettings) -> list[ManifestFile]:
    """The manifests with small ones merged, data first; manifests of different specs are never merged."""
    listed = list(manifests)
    done: list[ManifestFile] = []
    by_content = ([manifest for manifest in listed if manifest.content == content] for content in ManifestContent)
    bins = [manifest_files for manifests in by_content for manifest_files in in_bins(manifests, settings)]
    for some in within_budget(bins, settings):
        header = new_header(draft.table.metadata, some[0].partition_spec_id) if len(some) > 1 else None
        if header is None or not is_writable(header):
            done += some
            continue
        # Entries carried over keep their numbers, so that min_sequence_number stays right.
        entries = [entry for manifest in some for entry in draft.entries(manifest)]
        done.append(draft.manifest(some[0].content, header, entries))
        for manifest_file in some:
            if manifest_file.manifest_path in draft.own:
                draft.drop(manifest_file.manifest_path)
    return done


def is_writable(header: ManifestHeader) -> bool:
    """Whether the type of every partition field is known; it is not for a column that no schema has any more."""
    return not any(isinstance(nested_field.field_type, UnknownType) for nested_field in header.partition_type.fields)


def _added_deletes(content: CommitContent) -> tuple[DeleteFile, ...]:
    return (*content.added_deletes, *content.carried_deletes)


def _both(data: Iterable[DataFile], deletes: Iterable[DeleteFile]) -> list[DataFile | DeleteFile]:
    return [*data, *deletes]


def _part(file: DataFile | DeleteFile) -> DeleteIdentity:
    """The part of a file that an entry refers to: the whole file for data files."""
    return DeleteIdentity(file.path, 0, file.size_bytes) if isinstance(file, DataFile) else file.identity
