"""Rewriting manifests sorted by partition: the same live files with the same numbers in fewer manifests."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record
from pyiceberg.types import PrimitiveType

from amoro_core.errors import CheckFailed, CommitConflict
from amoro_core.iceberg.commit.rewrite_files import FORMAT_VERSIONS, MAIN, Draft, is_counted, is_writable, totals
from amoro_core.iceberg.manifest.avro import has_no_row_id, with_first_row_id
from amoro_core.iceberg.manifest.manifest_cache import ManifestReader
from amoro_core.iceberg.manifest.reading import is_unpartitioned, live_files, read_manifest
from amoro_core.iceberg.manifest.writing import counted, existing_entry, merge_settings, new_header
from amoro_core.iceberg.scan import live_manifests
from amoro_core.maintenance.manifests import (
    LEAST_CLUSTERED,
    Box,
    Listed,
    Point,
    box_of,
    is_halved,
    key_of,
    layout,
    manifests_per_partition,
    small_ones,
    wide_ones,
)
from amoro_core.model.commits import ManifestCluster, ManifestsStaged, Operation

_WORDS = {ManifestContent.DATA: "data", ManifestContent.DELETES: "delete"}


@dataclass(frozen=True, slots=True)
class ManifestSource:
    """A loaded table, and the reader of its manifests."""

    table: Table
    read: ManifestReader
    read_locations: Sequence[str]
    way_out: str = ""

    def head(self) -> Snapshot:
        """The snapshot of main. Raises CommitConflict without one."""
        main = self.table.metadata.refs.get(MAIN)
        result = None if main is None else self.table.metadata.snapshot_by_id(main.snapshot_id)
        if result is None:
            raise CommitConflict(f"the table {'.'.join(self.table.name())} has no snapshot left")
        return result

    def manifests(self) -> list[ManifestFile]:
        """The head's manifests with live files, checked like those of a scan, with their counts."""
        live = live_manifests(self.table, self.head(), self.read_locations, self.way_out)
        return [manifest if is_counted(manifest) else counted(self.read(self.table.io, manifest)) for manifest in live]

    def live(self, files: Iterable[ManifestFile]) -> list[ManifestEntry]:
        """The live entries of the manifests, in their order."""
        return [entry for file in files for entry in self.read(self.table.io, file).live]


def clusters(source: ManifestSource, min_count: int | None) -> tuple[ManifestCluster, ...]:
    """The manifests of main's head that are worth rewriting, by content and spec.

    `min_count` is the number of small manifests that makes it due; None: requested, so that any gain suffices.
    """
    return tuple(
        ManifestCluster(
            _WORDS[content],
            spec_id,
            tuple(file.manifest_path for file in files),
            sum(file.manifest_length for file in files),
            _files_in(files),
            reason,
        )
        for content, spec_id, (files, reason) in _chosen(source, min_count)
    )


Found = tuple[list[ManifestFile], str]  # the manifests, and why


def _chosen(source: ManifestSource, min_count: int | None) -> list[tuple[ManifestContent, int, Found]]:
    metadata, groups = source.table.metadata, dict[tuple[ManifestContent, int], list[ManifestFile]]()
    for manifest in source.manifests():
        groups.setdefault((manifest.content, manifest.partition_spec_id), []).append(manifest)
    target = merge_settings(metadata.properties).target_bytes
    done = []
    for (content, spec_id), files in sorted(groups.items()):
        # The type of a column that no schema has any more is unknown: such manifests are kept.
        if is_writable(new_header(metadata, spec_id)) and (entries := _worth(source, files, target, min_count)):
            done.append((content, spec_id, entries))
    return done


def _worth(source: ManifestSource, files: list[ManifestFile], target: int, min_count: int | None) -> Found | None:
    first, listed = files[0], [_listed(source, file) for file in files]
    of = f"{_WORDS[first.content]} manifests of spec {first.partition_spec_id}"
    if small := small_ones(listed, target, min_count or 2):
        return [files[at] for at in small], f"{len(small)} of {len(files)} {of} are small"
    chosen = [files[at] for at in wide_ones(listed, LEAST_CLUSTERED if min_count else 2)]
    if not chosen:
        return None
    # Bounds tell how much manifests overlap now; only their partitions tell how much they will.
    entries = _sorted(source.live(chosen))
    points = [_point(entry) for entry in entries]
    boxes = [box for manifest in chosen if (box := _listed(source, manifest).box) is not None]
    new = [box_of(points[start:end]) for start, end in layout(points, _most(chosen, target))]
    partitions = list(dict.fromkeys(points))
    before, after = (manifests_per_partition(some, partitions) for some in (boxes, new))
    if not is_halved(before, after):
        return None
    return chosen, f"a partition lies in {before:.1f} of {len(chosen)} {of}, in {after:.1f} once they are clustered"


def _files_in(manifests: Iterable[ManifestFile]) -> int:
    return sum(live_files(manifest) or 0 for manifest in manifests)


def _most(files: Sequence[ManifestFile], target: int) -> int:
    """How many entries a manifest of the target size holds, estimated from these."""
    return max(1, target * _files_in(files) // max(1, sum(file.manifest_length for file in files)))


def _listed(source: ManifestSource, file: ManifestFile) -> Listed:
    metadata = source.table.metadata
    spec = metadata.specs()[file.partition_spec_id]
    box = None
    if not is_unpartitioned(spec) and file.partitions and len(file.partitions) == len(spec.fields):
        kinds = [field.field_type for field in new_header(metadata, file.partition_spec_id).partition_type.fields]
        low, high = [], []
        for kind, field in zip(kinds, file.partitions, strict=True):
            lower, upper = _bound(kind, field.lower_bound), _bound(kind, field.upper_bound)
            low.append(key_of(None if field.contains_null else lower))
            high.append(key_of(float("nan") if field.contains_nan else upper))
        box = Box(tuple(low), tuple(high))
    return Listed(file.manifest_length, live_files(file) or 0, box)


def _bound(kind: Any, bound: bytes | None) -> Any:
    return from_bytes(kind, bound) if bound is not None and isinstance(kind, PrimitiveType) else None


def _point(entry: ManifestEntry) -> Point:
    partition = entry.data_file.partition
    return tuple(key_of(partition[at]) for at in range(len(partition)))


def _sorted(entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    return sorted(entries, key=lambda item: (_point(item), item.sequence_number or 0, item.data_file.file_path))


def stage(
    source: ManifestSource, load: Callable[[], ManifestSource], min_count: int | None, summary: Mapping[str, str]
) -> ManifestsStaged:
    """Rewrite the manifests that are worth it, and write the manifest list of a REPLACE snapshot.

    The head is reloaded by `load` once the entries are written: manifests that others added meanwhile are kept, and
    clusters of which others replaced a manifest are dropped. On failure the files written are deleted. Raises
    CommitConflict when nothing is left to do, CheckFailed when the new manifests don't read back equal, and errors of
    reading and writing.
    """
    metadata = source.table.metadata
    if metadata.format_version not in FORMAT_VERSIONS:
        raise ValueError(f"format {metadata.format_version} can't be written")
    draft = Draft(source.table, metadata.new_snapshot_id(), metadata.next_sequence_number(), source.read)
    try:
        target = merge_settings(metadata.properties).target_bytes
        written = [(files, _written(draft, source, files, target)) for _, _, (files, _) in _chosen(source, min_count)]
        return _staged(draft, load(), written, summary)
    except BaseException:
        draft.discard()
        raise


def _written(draft: Draft, source: ManifestSource, files: list[ManifestFile], target: int) -> list[ManifestFile]:
    entries = _sorted(source.live(files))
    header = new_header(source.table.metadata, files[0].partition_spec_id)
    ranges = layout([_point(entry) for entry in entries], _most(files, target))
    existing = [existing_entry(entry) for entry in entries]
    done = [draft.manifest(files[0].content, header, existing[start:end]) for start, end in ranges]
    _require_same(source, entries, done)
    return done


def _require_same(source: ManifestSource, entries: Sequence[ManifestEntry], written: Sequence[ManifestFile]) -> None:
    """Read back what was written: the same multiset of live entries with all their fields, none with a new snapshot."""
    expected, counter = Counter(map(_hash_of, entries)), Counter[bytes]()
    # Without an id of its own a manifest gives none to its files. After an upgrade none has one, then all do.
    first_row_id = None if all(has_no_row_id(entry) for entry in entries) else 0
    for manifest_file in written:
        if source.table.metadata.format_version == 1:  # its entries have no sequence numbers of their own
            manifest_file.sequence_number = manifest_file.min_sequence_number = 0
        read = read_manifest(source.table.io, with_first_row_id(manifest_file, first_row_id)).entries
        counter.update(_hash_of(entry) for entry in read if entry.status == ManifestEntryStatus.EXISTING)
    if counter != expected:
        raise CheckFailed(
            f"{len(written)} new manifests do not have the {len(entries)} entries of the old ones",
            hint="Nothing was committed; the manifests are unchanged. Please report it with the table's metadata.",
        )


def _hash_of(entry: ManifestEntry) -> bytes:
    """A hash of an entry's fields, without its status."""
    file = entry.data_file
    fields = [_value(file[at]) for at in range(len(file))]
    own = (entry.snapshot_id, entry.sequence_number, entry.file_sequence_number, file.spec_id)
    return sha256(repr((own, fields)).encode()).digest()


def _value(value: Any) -> Any:
    if isinstance(value, Record):
        return [value[at] for at in range(len(value))]
    if isinstance(value, DataFileContent):
        return value.value  # a manifest of format 1 has none, so that it reads as a plain 0
    return sorted(value.items()) if isinstance(value, Mapping) else value


def _staged(
    draft: Draft,
    now: ManifestSource,
    written: Sequence[tuple[list[ManifestFile], list[ManifestFile]]],
    summary: Mapping[str, str],
) -> ManifestsStaged:
    listed = now.manifests()
    there = {manifest_file.manifest_path for manifest_file in listed}
    new, removed, dropped = list[ManifestFile](), set[str](), list[str]()
    for before, after in written:
        if missing := [manifest.manifest_path for manifest in before if manifest.manifest_path not in there]:
            dropped.append(f"the manifest {missing[0]} was replaced meanwhile")
            for manifest in after:
                draft.drop(manifest.manifest_path)
            continue
        new += after
        removed |= {manifest_file.manifest_path for manifest_file in before}
    if not new:
        raise CommitConflict("; ".join(dropped) or "no manifest is worth rewriting any more")
    remaining = [manifest_file for manifest_file in listed if manifest_file.manifest_path not in removed]
    entries = _files_in(new)
    counts = {
        "manifests-created": str(len(new)),
        "manifests-kept": str(len(remaining)),
        "manifests-replaced": str(len(removed)),
        "entries-processed": str(entries),
        "changed-partition-count": "0",
    }
    # The sequence number may have been taken by a concurrent snapshot.
    draft.table, draft.sequence_number = now.table, now.table.metadata.next_sequence_number()
    parent = now.head()
    staged = draft.finish(
        parent,
        sorted((*new, *remaining), key=lambda item: item.content),
        Operation.REPLACE,
        {"snapshot.producer": "OPTIMIZE", **summary, **counts, **totals(parent, {})},
    )
    return ManifestsStaged(staged, len(new), len(removed), len(remaining), entries, tuple(dropped))
