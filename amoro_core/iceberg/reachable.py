"""Which files a table reaches, for planning: manifest by manifest, as columns of keys, never all paths at once.

Whatever can't be read raises, so that nothing is taken for unreachable. The guard (`guarding`) answers the same again
by code of its own.
"""

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass

import numpy as np
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from amoro_core.errors import DataFileMissing, UnreadableFile
from amoro_core.iceberg.keys import NO_KEYS, Keys, key_of, keys_of, merged, seeking, seeking_many
from amoro_core.iceberg.manifests import read_list, read_manifest
from amoro_core.maintaining.orphans import Named
from amoro_core.model.maintenance import FileKind
from amoro_core.model.paths import looser_spellings, split_place


@dataclass(frozen=True, slots=True)
class Released:
    """A file that a table has named and needs no more."""

    path: str
    kind: FileKind
    size_bytes: int | None
    has_equality_deletes: bool = False


def named(table: Table) -> Named:
    """Everything that any snapshot of the table, as loaded, names; removed entries too.

    Raises DataFileMissing, UnreadableFile or CatalogUnavailable when any list or manifest can't be read.
    """
    metadata = table.metadata
    manifests = _manifests_of(table.io, metadata.snapshots)
    roots: set[str] = set()
    parts = [keys_of(_rooted([*_named_by(metadata, table.metadata_location), *manifests], roots))]
    for file in manifests.values():
        parts.append(keys_of(_rooted((one.path for one in _entries(table.io, file, live=False)), roots)))
    return Named(seeking_many(merged(parts)), frozenset(split_place(root)[:2] for root in roots))


def _rooted(paths: Iterable[str], roots: set[str]) -> Iterator[str]:
    """The paths as they come; what they begin with, which tells scheme and authority, is noted."""
    for path in paths:
        roots.add("/".join(path.split("/", 3)[:3]))
        yield path


def released(base: TableMetadata, gone: Set[int], now: Table) -> Iterator[Released]:
    """The files that the snapshots `gone` of the state `base` reach as live, and that no snapshot of `now` does.

    What one of the gone snapshots named and is not there any more is passed over: somebody else has removed it. Each
    file comes once, in the order in which files are deleted; memory is a few bytes for each. Raises as `named`.
    """
    wanted = [one for one in base.snapshots if one.snapshot_id in gone]
    kept = _manifests_of(now.io, now.metadata.snapshots)
    ours = keys_of([*_named_by(now.metadata, now.metadata_location), *kept])
    is_named = seeking(ours)
    lists = {one.manifest_list: one for one in wanted if not is_named(one.manifest_list)}
    left = {path: one for path, one in _still_there(now.io, lists.values()).items() if not is_named(path)}
    candidates = merged(keys_of(one.path for one in _entries_there(now.io, file)) for file in left.values())
    needed = merged([ours, _found(now.io, kept.values(), candidates)])
    is_needed = seeking(needed)
    yield from _once(
        one for kind in ManifestContent for one in _files_of(now.io, left.values(), kind) if not is_needed(one.path)
    )
    for path, file in left.items():
        yield Released(path, FileKind.MANIFEST, file.manifest_length)
    for path in lists:
        yield Released(path, FileKind.MANIFEST_LIST, None)
    yield from _once(one for one in _statistics(base, gone) if not is_needed(one.path))


def _named_by(metadata: TableMetadata, location: str) -> Iterator[str]:
    """What the metadata names itself."""
    yield location
    yield from (entry.metadata_file for entry in metadata.metadata_log)
    yield from (one.statistics_path for one in metadata.statistics)
    yield from (one.statistics_path for one in metadata.partition_statistics)
    yield from (one.manifest_list for one in metadata.snapshots)


def _manifests_of(io: FileIO, snapshots: Iterable[Snapshot]) -> dict[str, ManifestFile]:
    """Each manifest of the snapshots once, by its path. Raises UnreadableFile for a snapshot that lost its files."""
    found: dict[str, ManifestFile] = {}
    for snapshot in snapshots:
        listed = read_list(io, snapshot.manifest_list)
        _require_files(snapshot, listed)
        found.update((one.manifest_path, one) for one in listed)
    return found


def _require_files(snapshot: Snapshot, listed: list[ManifestFile]) -> None:
    """A list without a manifest, of a snapshot that says it has files, is no list of it."""
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    files = str(summary.get("total-data-files") or "0")
    if files != "0" and not listed:
        raise UnreadableFile(
            f"snapshot {snapshot.snapshot_id} has {files} data files, and its manifest list "
            f"{snapshot.manifest_list} names none"
        )


def _still_there(io: FileIO, snapshots: Iterable[Snapshot]) -> dict[str, ManifestFile]:
    found: dict[str, ManifestFile] = {}
    for snapshot in snapshots:
        try:
            found.update((one.manifest_path, one) for one in read_list(io, snapshot.manifest_list))
        except DataFileMissing:
            continue
    return found


def _entries(io: FileIO, file: ManifestFile, *, live: bool) -> Iterator[Released]:
    """The files of a manifest's entries. Raises UnreadableFile when there are fewer than its list counts."""
    found = 0
    for entry in read_manifest(io, file).entries:
        found += 1
        if live and entry.status == ManifestEntryStatus.DELETED:
            continue
        data = entry.data_file
        kind = FileKind.DATA if data.content == DataFileContent.DATA else FileKind.DELETE
        is_equality = data.content == DataFileContent.EQUALITY_DELETES
        yield Released(data.file_path, kind, data.file_size_in_bytes, is_equality)
    counts = (file.added_files_count, file.existing_files_count, file.deleted_files_count)
    if None not in counts and found != sum(one for one in counts if one is not None):
        raise UnreadableFile(f"the manifest {file.manifest_path} has {found} entries, and its list counts {counts}")


def _entries_there(io: FileIO, file: ManifestFile) -> Iterator[Released]:
    try:
        yield from _entries(io, file, live=True)
    except DataFileMissing:
        return


def _found(io: FileIO, manifests: Iterable[ManifestFile], candidates: Keys) -> Keys:
    """Those of the candidates that are live in a manifest."""
    found = NO_KEYS
    for file in manifests:
        if len(found) == len(candidates):
            break  # nothing is left that could be released
        live = keys_of(one.path for one in _entries(io, file, live=True))
        found = merged([found, np.intersect1d(live, candidates, assume_unique=True)])
    return found


def _files_of(io: FileIO, manifests: Iterable[ManifestFile], kind: ManifestContent) -> Iterator[Released]:
    for file in manifests:
        if file.content == kind:
            yield from _entries_there(io, file)


def _statistics(base: TableMetadata, gone: Set[int]) -> Iterator[Released]:
    for one in (*base.statistics, *base.partition_statistics):
        if one.snapshot_id in gone:
            yield Released(one.statistics_path, FileKind.STATISTICS, one.file_size_in_bytes)


def _once(files: Iterable[Released]) -> Iterator[Released]:
    """Each file once, whatever its spelling."""
    seen: set[int] = set()
    for one in files:
        keys = {key_of(spelling) for spelling in looser_spellings(one.path)}
        if not keys & seen:
            yield one
        seen |= keys
