"""Which files a table references, for planning: manifest by manifest, as arrays of keys, never all paths at once.

Whatever can't be read raises, so that nothing is taken for unreferenced by mistake. The guard (`reachability_guard`)
checks the same again with code of its own.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice

import numpy as np
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from amoro_core.errors import CatalogUnavailable, DataFileMissing, UnreadableFile
from amoro_core.files.storage.inventory import (
    NO_KEYS,
    Keys,
    StorageRoot,
    key_of,
    keys_in_ranges,
    keys_of,
    merged,
    seeking,
    seeking_places,
)
from amoro_core.iceberg.manifest.columns import read_paths
from amoro_core.iceberg.manifest.reading import read_list, summary_of
from amoro_core.maintenance.orphans import ReferencedFiles
from amoro_core.model.maintenance import FileKind, Released
from amoro_core.model.paths import path_aliases, split_place


def named(table: Table) -> ReferencedFiles:
    """Everything that any snapshot of the table as loaded references, including removed entries.

    Raises DataFileMissing, UnreadableFile or CatalogUnavailable when any list or manifest can't be read.
    """
    return ReferencedFiles(seeking_places(*named_in_ranges(table, ())))


def named_in_ranges(table: Table, cuts: Sequence[str]) -> tuple[Mapping[StorageRoot, Keys], ...]:
    """Like `named`, as keys for each range of paths: after `cuts[n - 1]` and not after `cuts[n]`.

    A path is in every range in which one of its spellings lies. Raises as `named`.
    """
    metadata = table.metadata
    manifests = _manifests_of(table.io, metadata.snapshots)
    parts_of: defaultdict[tuple[int, StorageRoot], list[Keys]] = defaultdict(list)

    def add(paths: Iterable[str]) -> None:
        for place, some in _by_place(paths).items():
            for at, keys in keys_in_ranges(some, cuts).items():
                parts_of[at, place].append(keys)

    add([*_named_by(metadata, table.metadata_location), *manifests])
    for file in manifests.values():
        add(entry.path for entry in _entries(table.io, file, live=False))
    ranges: tuple[dict[StorageRoot, Keys], ...] = tuple({} for _ in range(len(cuts) + 1))
    for (at, place), parts in parts_of.items():
        ranges[at][place] = merged(parts)
    return ranges


def sampled(table: Table) -> list[str]:
    """Some of the paths that the table names, from all over it. Raises as `named`."""
    manifests = list(_manifests_of(table.io, table.metadata.snapshots[-1:]).values())
    step = max(1, len(manifests) // _SAMPLED_MANIFESTS)
    return [entry.path for file in manifests[::step] for entry in islice(read_paths(table.io, file), _SAMPLED_PATHS)]


_SAMPLED_MANIFESTS, _SAMPLED_PATHS = 100, 1000


def _by_place(paths: Iterable[str]) -> dict[StorageRoot, list[str]]:
    """The paths by their schemes and authorities."""
    roots: defaultdict[str, list[str]] = defaultdict(list)
    for path in paths:
        roots["/".join(path.split("/", 3)[:3])].append(path)  # scheme and authority
    result: defaultdict[StorageRoot, list[str]] = defaultdict(list)
    for root, some in roots.items():
        result[split_place(root)[:2]].extend(some)
    return result


def would_release(table: Table, expired: Set[int]) -> Iterator[Released]:
    """What `released` would return if these snapshots of the table as loaded were gone. Raises like `named`, also for
    what these snapshots reference: as long as they are in the table, a missing file is a fault."""
    metadata = table.metadata
    after = metadata.model_copy(
        update={
            "snapshots": [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in expired],
            "statistics": [file for file in metadata.statistics if file.snapshot_id not in expired],
            "partition_statistics": [item for item in metadata.partition_statistics if item.snapshot_id not in expired],
        }
    )
    return _released(table.io, metadata, expired, after, table.metadata_location, are_known=True)


def released(base: TableMetadata, expired: Set[int], now: Table) -> Iterator[Released]:
    """The files that are live in the snapshots `expired` of the state `base`, and in no snapshot of `now`.

    Missing manifests of the gone snapshots are skipped: they were removed by someone else. Each file is returned once,
    in the order of deletion; memory is a few bytes for each. Raises like `named`, and CatalogUnavailable for a state
    that still has one of the snapshots.
    """
    if still := expired & {snapshot.snapshot_id for snapshot in now.metadata.snapshots}:
        raise CatalogUnavailable(
            f"the catalog answers with a state that still has snapshot {min(still)}, which was removed",
            hint="It is retried automatically.",
        )
    return _released(now.io, base, expired, now.metadata, now.metadata_location, are_known=False)


def _released(
    io: FileIO, base: TableMetadata, expired: Set[int], after: TableMetadata, location: str, *, are_known: bool
) -> Iterator[Released]:
    if not expired:
        return
    manifests = _manifests_of(io, after.snapshots)
    ours = keys_of([*_named_by(after, location), *manifests])
    is_named = seeking(ours)
    wanted = [snapshot for snapshot in base.snapshots if snapshot.snapshot_id in expired]
    lists = {snapshot.manifest_list: snapshot for snapshot in wanted if not is_named(snapshot.manifest_list)}
    present = {path: file for path, file in _still_there(io, lists.values(), are_known).items() if not is_named(path)}
    candidates = merged(keys_of(entry.path for entry in _entries_of(io, file, are_known)) for file in present.values())
    is_needed = seeking(merged([ours, _live(io, manifests.values(), candidates)]))
    yield from _once(
        entry
        for kind in ManifestContent
        for file in present.values()
        if file.content == kind
        for entry in _entries_of(io, file, are_known)
        if not is_needed(entry.path)
    )
    for path, file in present.items():
        yield Released(path, FileKind.MANIFEST, file.manifest_length)
    for path in lists:
        yield Released(path, FileKind.MANIFEST_LIST, None)
    yield from _once(
        Released(fields.statistics_path, FileKind.STATISTICS, fields.file_size_in_bytes)
        for fields in (*base.statistics, *base.partition_statistics)
        if fields.snapshot_id in expired and not is_needed(fields.statistics_path)
    )


def _named_by(metadata: TableMetadata, location: str) -> Iterator[str]:
    """The files that the metadata itself names."""
    yield location
    yield from (entry.metadata_file for entry in metadata.metadata_log)
    yield from (file.statistics_path for file in metadata.statistics)
    yield from (statistics_file.statistics_path for statistics_file in metadata.partition_statistics)
    yield from (snapshot.manifest_list for snapshot in metadata.snapshots)


def _manifests_of(io: FileIO, snapshots: Iterable[Snapshot]) -> dict[str, ManifestFile]:
    """The distinct manifests of the snapshots by path. Raises UnreadableFile for a snapshot that lost its files."""
    result: dict[str, ManifestFile] = {}
    for snapshot in snapshots:
        listed = read_list(io, snapshot.manifest_list)
        _require_files(snapshot, listed)
        result.update((manifest.manifest_path, manifest) for manifest in listed)
    return result


def _require_files(snapshot: Snapshot, listed: list[ManifestFile]) -> None:
    """Raise for an empty manifest list of a snapshot whose summary counts files."""
    files = str(summary_of(snapshot).get("total-data-files") or "0")
    if files != "0" and not listed:
        raise UnreadableFile(
            f"snapshot {snapshot.snapshot_id} has {files} data files, and its manifest list "
            f"{snapshot.manifest_list} names none"
        )


def _still_there(io: FileIO, snapshots: Iterable[Snapshot], are_known: bool) -> dict[str, ManifestFile]:
    if are_known:
        return _manifests_of(io, snapshots)
    result: dict[str, ManifestFile] = {}
    for snapshot in snapshots:
        try:
            result.update((manifest.manifest_path, manifest) for manifest in read_list(io, snapshot.manifest_list))
        except DataFileMissing:
            continue
    return result


def _entries(io: FileIO, file: ManifestFile, *, live: bool) -> Iterator[Released]:
    """The files of a manifest's entries. Raises UnreadableFile for fewer than its manifest list counts."""
    total = 0
    for entry in read_paths(io, file):
        total += 1
        if live and not entry.is_live:
            continue
        kind = FileKind.DATA if entry.content == DataFileContent.DATA else FileKind.DELETE
        yield Released(entry.path, kind, entry.size_bytes, entry.content == DataFileContent.EQUALITY_DELETES)
    counts = (file.added_files_count, file.existing_files_count, file.deleted_files_count)
    if None not in counts and total != sum(count for count in counts if count is not None):
        raise UnreadableFile(f"the manifest {file.manifest_path} has {total} entries, and its list counts {counts}")


def _entries_of(io: FileIO, file: ManifestFile, are_known: bool) -> Iterator[Released]:
    try:
        yield from _entries(io, file, live=True)
    except DataFileMissing:
        if are_known:
            raise


def _live(io: FileIO, manifests: Iterable[ManifestFile], candidates: Keys) -> Keys:
    result = NO_KEYS
    for file in manifests:
        if len(result) == len(candidates):
            break  # no candidate is left
        live = keys_of(entry.path for entry in _entries(io, file, live=True))
        result = merged([result, np.intersect1d(live, candidates, assume_unique=True)])
    return result


def _once(files: Iterable[Released]) -> Iterator[Released]:
    """Each file once, whatever its spelling."""
    seen: set[int] = set()
    for file in files:
        keys = {key_of(spelling) for spelling in path_aliases(file.path)}
        if not keys & seen:
            yield file
        seen |= keys
