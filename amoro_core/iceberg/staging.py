"""Staging a commit that replaces or removes files: writing its manifests and manifest list."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import UnknownType

from amoro_core.errors import CommitConflict
from amoro_core.iceberg.caching import ManifestReader
from amoro_core.iceberg.counting import ChangeCounts
from amoro_core.iceberg.drafts import FORMAT_VERSIONS, MAIN, Draft, totals
from amoro_core.iceberg.entries import identity_of, partition_types, to_partition
from amoro_core.iceberg.manifest_lists import ManifestLists
from amoro_core.iceberg.manifest_writing import added_entry, counted, deleted_entry, existing_entry, new_header
from amoro_core.iceberg.manifests import Manifest, ManifestHeader, read_bytes, read_list, read_manifest
from amoro_core.iceberg.merging import MergeSettings, in_bins, merge_settings, within_budget
from amoro_core.iceberg.spliced_manifests import Source, Spliced, splice
from amoro_core.live.files import LiveFiles
from amoro_core.model.commits import CommitContent, Head, StagedCommit
from amoro_core.model.files import DataFile, DeleteFile, DeleteIdentity
from amoro_core.model.paths import normalise


def stage(
    table: Table,
    head: Head,
    content: CommitContent,
    summary: Mapping[str, str],
    *,
    read: ManifestReader = read_manifest,
    merge: bool = True,
    splices: bool = True,
    lists: ManifestLists | None = None,
) -> StagedCommit:
    """Write manifests and manifest list of a snapshot on that head of the table as just loaded.

    With `merge`, small manifests are merged according to the table's properties; with `splices`, data manifests that
    lose files are not decoded where they need not be. `lists` has read lists of the table before. Nothing is visible
    before the commit is sent; on failure what was written is deleted. Raises CommitConflict when the table has another
    head, or does not have each removed file exactly once, TableRefused("configuration"), StorageFull or WorkFailed.
    """
    metadata = table.metadata
    _require_head(metadata, head)
    if metadata.format_version not in FORMAT_VERSIONS:
        raise ValueError(f"format {metadata.format_version} can't be written")
    settings = merge_settings(metadata.properties) if merge else MergeSettings(enabled=False)
    draft = Draft(table, metadata.new_snapshot_id(), metadata.next_sequence_number(), read, splices)
    _require_older(content, metadata, draft.sequence_number)
    try:
        return _stage(draft, head, content, summary, settings, lists)
    except BaseException:
        draft.discard()
        raise


def _require_head(metadata: TableMetadata, head: Head) -> None:
    main = metadata.refs.get(MAIN)
    if str(metadata.table_uuid) != head.table_uuid or main is None or main.snapshot_id != head.snapshot_id:
        raise CommitConflict(f"the table changed after snapshot {head.snapshot_id} was validated")


def _require_older(content: CommitContent, metadata: TableMetadata, sequence_number: int) -> None:
    """Raise for a new file whose sequence number is its snapshot's: equality deletes that it needs would not apply."""
    if metadata.format_version == 1 and (*content.added_deletes, *content.removed_deletes, *content.carried_deletes):
        raise ValueError("format 1 has no delete files")
    for file in _both(content.added_data, content.added_deletes):
        if not 0 <= file.sequence_number < max(sequence_number, 1):
            raise ValueError(f"{file.path} has sequence number {file.sequence_number}, the commit {sequence_number}")


def _stage(
    draft: Draft,
    head: Head,
    content: CommitContent,
    summary: Mapping[str, str],
    settings: MergeSettings,
    lists: ManifestLists | None,
) -> StagedCommit:
    parent = next(one for one in draft.table.metadata.snapshots if one.snapshot_id == head.snapshot_id)
    metrics = ChangeCounts()
    added = [*_added(draft, ManifestContent.DATA, content.added_data, metrics)]
    own = (replace(one, sequence_number=draft.sequence_number) for one in content.carried_deletes)
    added += _added(draft, ManifestContent.DELETES, (*content.added_deletes, *own), metrics)
    _require_new(content, head)
    require_one_vector(content, head)
    kept = _kept(draft, read_list(draft.table.io, parent.manifest_list, lists), content, metrics, head)
    manifests = _merged(draft, [*added, *kept], settings)
    counts = {**metrics.to_dict(), "changed-partition-count": str(_changed_partitions(content))}
    every = {"snapshot.producer": "OPTIMIZE", **summary, **counts, **totals(parent, counts)}
    return draft.finish(parent, manifests, content.operation, every)


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


def _kept(
    draft: Draft, manifests: Iterable[ManifestFile], content: CommitContent, metrics: ChangeCounts, head: Head
) -> list[ManifestFile]:
    """The parent's manifests without the removed files: reused if unchanged, else rewritten.

    Those that hold removed files according to the head are read, each entry compared with what was validated.
    """
    removals = {_part(file): file for file in _both(content.removed_data, content.removed_deletes)}
    if len(removals) != len(content.removed_data) + len(content.removed_deletes):
        raise ValueError("a file is to be removed twice")
    homes = {_home(file) for file in removals.values()}
    holding = LiveFiles.of(head.scan.files).manifests_of((file.path for file in content.removed_data), removals)
    found: Counter[DeleteIdentity] = Counter()
    done: list[ManifestFile] = []
    for file in manifests:
        if not (file.has_added_files() or file.has_existing_files()):
            continue
        may_hold = _home_of(file) in homes and (holding is None or file.manifest_path in holding)
        if not is_counted(file) or may_hold:
            file, gone = _rest(draft, file, removals)
            found.update(identity_of(entry.data_file) for entry in gone)
            for entry in gone:
                metrics.remove_file(entry.data_file)
        done.append(file)
    for part, removed in removals.items():
        if found[part] != 1:
            raise CommitConflict(f"{removed.path} is live {found[part]} times on the head, so it can't be replaced")
    return done


Removals = Mapping[DeleteIdentity, DataFile | DeleteFile]


def _rest(draft: Draft, file: ManifestFile, removals: Removals) -> tuple[ManifestFile, Sequence[ManifestEntry]]:
    """The manifest without the removed files, itself if it has none of them, and their entries."""
    spliced = _spliced(draft, file, removals) if draft.splices and is_counted(file) else None
    if spliced is not None:
        return draft.stored(spliced.content, spliced.listed) if spliced.gone else file, spliced.gone
    manifest = draft.read(draft.table.io, file)
    gone = _removed(draft, manifest, removals)
    return _without(draft, manifest, gone) if gone else counted(manifest), gone


def _spliced(draft: Draft, file: ManifestFile, removals: Removals) -> Spliced | None:
    if file.content != ManifestContent.DATA:
        return None
    metadata = draft.table.metadata
    types = partition_types(metadata, metadata.specs()[file.partition_spec_id])
    data = read_bytes(draft.table.io, file)
    source = Source(file, data, types, metadata.format_version, draft.snapshot_id)
    paths = frozenset(part.path for part in removals)
    return splice(source, paths, lambda manifest: _removed(draft, manifest, removals))


def is_counted(file: ManifestFile) -> bool:
    """Whether the manifest list has the counts of files and rows of each status."""
    counts = (file.added_files_count, file.existing_files_count, file.deleted_files_count)
    rows = (file.added_rows_count, file.existing_rows_count, file.deleted_rows_count)
    return None not in (*counts, *rows)


def _require_new(content: CommitContent, head: Head) -> None:
    """Raise CommitConflict for a new file that is live on the head: its rows would be there twice.

    A vector that comes back may lie in a file of which other vectors are live.
    """
    live = LiveFiles.of(head.scan.files)
    new = {_spot(file): file.path for file in _both(content.added_data, _added_deletes(content))}
    there = {(normalise(live.columns.paths[at].as_py()), 0) for at in live.ids_of(path for path, _ in new).tolist()}
    there |= {_spot(one) for one in (*live.applied, *head.scan.dangling)}
    parts, paths = {path for path, offset in there if offset}, {path for path, offset in there if not offset}
    for (path, offset), spelled in sorted(new.items()):
        if path in paths or (path, offset) in there or (path in parts and not offset):
            raise CommitConflict(f"{spelled} is in the table already")


def _spot(file: DataFile | DeleteFile) -> tuple[str, int]:
    """Where a file, or a vector in its file, begins."""
    part = _part(file)
    return normalise(part.path), part.offset


def require_one_vector(content: CommitContent, head: Head) -> None:
    """Raise CommitConflict unless each data file is named by at most one vector once the content is committed.

    With two of them Java's readers can't plan the table any more.
    """
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


def _removed(draft: Draft, manifest: Manifest, removals: Removals) -> list[ManifestEntry]:
    """The manifest's live entries to remove. Raises CommitConflict for one that differs from what was validated."""
    metadata = draft.table.metadata
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


def _without(draft: Draft, manifest: Manifest, gone: Sequence[ManifestEntry]) -> ManifestFile:
    removed = {id(entry) for entry in gone}
    entries = [
        deleted_entry(entry, draft.snapshot_id) if id(entry) in removed else existing_entry(entry)
        for entry in manifest.live
    ]
    return draft.manifest(manifest.file.content, manifest.header, entries)


def _merged(draft: Draft, manifests: Iterable[ManifestFile], settings: MergeSettings) -> list[ManifestFile]:
    """The manifests with small ones merged, data first; manifests of different specs are never merged."""
    every = list(manifests)
    done: list[ManifestFile] = []
    by_content = ([one for one in every if one.content == content] for content in ManifestContent)
    bins = [some for manifests in by_content for some in in_bins(manifests, settings)]
    for some in within_budget(bins, settings):
        header = new_header(draft.table.metadata, some[0].partition_spec_id) if len(some) > 1 else None
        if header is None or not is_writable(header):
            done += some
            continue
        # Entries carried over keep their numbers, so that min_sequence_number stays right.
        entries = [entry for one in some for entry in draft.entries(one)]
        done.append(draft.manifest(some[0].content, header, entries))
        for one in some:
            if draft.is_own(one.manifest_path):
                draft.drop(one.manifest_path)
    return done


def is_writable(header: ManifestHeader) -> bool:
    """Whether the type of every partition field is known; it is not for a column that no schema has any more."""
    return not any(isinstance(one.field_type, UnknownType) for one in header.partition_type.fields)


def _added_deletes(content: CommitContent) -> tuple[DeleteFile, ...]:
    return (*content.added_deletes, *content.carried_deletes)


def _both(data: Iterable[DataFile], deletes: Iterable[DeleteFile]) -> list[DataFile | DeleteFile]:
    return [*data, *deletes]


def _part(file: DataFile | DeleteFile) -> DeleteIdentity:
    """The part of a file that an entry refers to: the whole file for data files."""
    return DeleteIdentity(file.path, 0, file.size_bytes) if isinstance(file, DataFile) else file.identity


def _changed_partitions(content: CommitContent) -> int:
    files = _both(content.added_data, content.added_deletes) + _both(content.removed_data, content.removed_deletes)
    return len({(file.spec_id, file.partition) for file in files})
