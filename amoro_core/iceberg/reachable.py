"""Which files a table reaches, for planning: manifest by manifest, as columns of keys, never all paths at once.

Whatever can't be read raises, so that nothing is taken for unreachable. The guard (`guarding`) answers the same again
by code of its own.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Set

import numpy as np
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from amoro_core.errors import CatalogUnavailable, DataFileMissing, UnreadableFile
from amoro_core.iceberg.entry_paths import read_paths
from amoro_core.iceberg.keys import NO_KEYS, Keys, Place, key_of, keys_of, merged, seeking, seeking_places
from amoro_core.iceberg.manifests import read_list
from amoro_core.maintaining.places import Named
from amoro_core.model.maintenance import FileKind, Released
from amoro_core.model.paths import looser_spellings, split_place


def named(table: Table) -> Named:
    """Everything that any snapshot of the table, as loaded, names; removed entries too.

    Raises DataFileMissing, UnreadableFile or CatalogUnavailable when any list or manifest can't be read.
    """
    metadata = table.metadata
    manifests = _manifests_of(table.io, metadata.snapshots)
    columns: defaultdict[Place, list[Keys]] = defaultdict(list)
    _add_by_place(columns, [*_named_by(metadata, table.metadata_location), *manifests])
    for file in manifests.values():
        _add_by_place(columns, (one.path for one in _entries(table.io, file, live=False)))
    return Named(seeking_places({place: merged(parts) for place, parts in columns.items()}))


def _add_by_place(columns: defaultdict[Place, list[Keys]], paths: Iterable[str]) -> None:
    """Add the keys of the paths to those of their schemes and authorities."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in paths:
        found["/".join(path.split("/", 3)[:3])].append(path)  # what tells the two
    for root, some in found.items():
        columns[split_place(root)[:2]].append(keys_of(some))


def would_release(table: Table, gone: Set[int]) -> Iterator[Released]:
    """What `released` would answer, were these snapshots of the table, as loaded, gone. Raises as `named`, for
    what the gone ones named too: as long as they are in the table, a file that is missing is a fault."""
    metadata = table.metadata
    kept = metadata.model_copy(
        update={
            "snapshots": [one for one in metadata.snapshots if one.snapshot_id not in gone],
            "statistics": [one for one in metadata.statistics if one.snapshot_id not in gone],
            "partition_statistics": [one for one in metadata.partition_statistics if one.snapshot_id not in gone],
        }
    )
    return _released(table.io, metadata, gone, kept, table.metadata_location, are_known=True)


def released(base: TableMetadata, gone: Set[int], now: Table) -> Iterator[Released]:
    """The files that the snapshots `gone` of the state `base` reach as live, and that no snapshot of `now` does.

    What one of the gone snapshots named and is not there any more is passed over: somebody else has removed it. Each
    file comes once, in the order in which files are deleted; memory is a few bytes for each. Raises as `named`,
    and CatalogUnavailable for a state that still has one of the snapshots.
    """
    if still := gone & {one.snapshot_id for one in now.metadata.snapshots}:
        raise CatalogUnavailable(
            f"the catalog answers with a state that still has snapshot {min(still)}, which was removed",
            hint="It is tried again by itself.",
        )
    return _released(now.io, base, gone, now.metadata, now.metadata_location, are_known=False)


def _released(
    io: FileIO, base: TableMetadata, gone: Set[int], kept: TableMetadata, location: str, *, are_known: bool
) -> Iterator[Released]:
    if not gone:
        return
    manifests = _manifests_of(io, kept.snapshots)
    ours = keys_of([*_named_by(kept, location), *manifests])
    is_named = seeking(ours)
    wanted = [one for one in base.snapshots if one.snapshot_id in gone]
    lists = {one.manifest_list: one for one in wanted if not is_named(one.manifest_list)}
    left = {path: one for path, one in _still_there(io, lists.values(), are_known).items() if not is_named(path)}
    candidates = merged(keys_of(one.path for one in _entries_of(io, file, are_known)) for file in left.values())
    is_needed = seeking(merged([ours, _found(io, manifests.values(), candidates)]))
    yield from _once(
        one
        for kind in ManifestContent
        for one in _files_of(io, left.values(), kind, are_known)
        if not is_needed(one.path)
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


def _still_there(io: FileIO, snapshots: Iterable[Snapshot], are_known: bool) -> dict[str, ManifestFile]:
    if are_known:
        return _manifests_of(io, snapshots)
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
    for entry in read_paths(io, file):
        found += 1
        if live and not entry.is_live:
            continue
        kind = FileKind.DATA if entry.content == DataFileContent.DATA else FileKind.DELETE
        yield Released(entry.path, kind, entry.size_bytes, entry.content == DataFileContent.EQUALITY_DELETES)
    counts = (file.added_files_count, file.existing_files_count, file.deleted_files_count)
    if None not in counts and found != sum(one for one in counts if one is not None):
        raise UnreadableFile(f"the manifest {file.manifest_path} has {found} entries, and its list counts {counts}")


def _entries_of(io: FileIO, file: ManifestFile, are_known: bool) -> Iterator[Released]:
    try:
        yield from _entries(io, file, live=True)
    except DataFileMissing:
        if are_known:
            raise


def _found(io: FileIO, manifests: Iterable[ManifestFile], candidates: Keys) -> Keys:
    """Those of the candidates that are live in a manifest."""
    found = NO_KEYS
    for file in manifests:
        if len(found) == len(candidates):
            break  # nothing is left that could be released
        live = keys_of(one.path for one in _entries(io, file, live=True))
        found = merged([found, np.intersect1d(live, candidates, assume_unique=True)])
    return found


def _files_of(
    io: FileIO, manifests: Iterable[ManifestFile], kind: ManifestContent, are_known: bool
) -> Iterator[Released]:
    for file in manifests:
        if file.content == kind:
            yield from _entries_of(io, file, are_known)


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
