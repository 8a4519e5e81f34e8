"""Which delete files a commit removes: those that no remaining data file needs."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field

import numpy as np

from amoro_core.model.commits import Group
from amoro_core.model.files import DataFile, DeleteFile, DeleteIdentity, DeleteKind, ScannedFile, TableScan
from amoro_core.model.paths import normalise
from amoro_core.scan.columns import Ids, Mask, Numbers, Place
from amoro_core.scan.live_files import LiveFiles

Numbered = tuple[DeleteIdentity, int]


@dataclass(frozen=True, slots=True)
class _Outside:
    """The live data files that the commit leaves unchanged.

    None needs deletes folded into its own position delete, nor position delete files beside a deletion vector.
    """

    files: LiveFiles
    ids: Ids
    above: int | None  # global equality deletes are needed above this number
    above_by_place: Mapping[tuple[DeleteKind, Place], int]  # other deletes above these
    deletes: Set[Numbered]  # those that apply to the files according to the matcher
    referenced: Set[str]  # the normalised paths that candidates reference
    is_free: Mask  # of all live files: those that position delete files may still apply to
    ordered: list[str] = field(default_factory=list)  # their normalised paths, sorted, filled on first use

    def needs(self, delete: DeleteFile) -> bool:
        if delete.numbered in self.deletes:
            return True
        if (named := delete.named_file) is not None:
            return self.has(normalise(named), delete)
        above = self.above_by_place.get((delete.kind, (delete.spec_id, delete.partition)))
        if delete.kind is DeleteKind.EQUALITY and not delete.partition:
            above = self.above
        return above is not None and delete.sequence_number > above

    def has(self, named: str, delete: DeleteFile) -> bool:
        """Whether the path is among the files or, if it comes from bounds, a path that begins with it.

        Only among those without a vector: one that applies is among `deletes`.
        """
        if delete.referenced_data_file is not None:
            return named in self.referenced and bool(self.is_free[self.files.ids_of([named])].any())
        if not self.ordered:
            paths = self.files.columns.paths_of(np.flatnonzero(self.is_free)).to_pylist()
            self.ordered[:] = sorted(map(normalise, paths))
        at = bisect_left(self.ordered, named)
        return at < len(self.ordered) and _goes_on(self.ordered[at], named)


def _outside(files: LiveFiles, stays: Mask, candidates: Iterable[DeleteFile]) -> _Outside:
    ids = np.flatnonzero(stays)
    numbers, carried_through = files.columns.numbers[ids], files.carried_through[ids]
    above = np.maximum(numbers, carried_through)
    by_place = {(DeleteKind.EQUALITY, place): least for place, least in _least(files, ids, above)}
    is_free = ~files.has_vector[ids]
    of_positions = np.maximum(numbers - 1, carried_through)[is_free]
    by_place |= {(DeleteKind.POSITION, place): least for place, least in _least(files, ids[is_free], of_positions)}
    named = files.ids_of(
        {normalise(item.referenced_data_file) for item in candidates if item.referenced_data_file is not None}
    )
    referenced = (files.columns.paths[at].as_py() for at in named[stays[named]].tolist())
    return _Outside(
        files,
        ids,
        int(above.min()) if len(ids) else None,
        by_place,
        frozenset(delete.numbered for delete in _needed(files, ids, stays)),
        frozenset(map(normalise, referenced)),
        stays & ~files.has_vector,
    )


def _least(files: LiveFiles, ids: Ids, numbers: Numbers) -> Iterator[tuple[Place, int]]:
    """The lowest sequence number of the files in each place that has some."""
    columns, highest = files.columns, numbers.max(initial=0)
    places_of = columns.place[ids]
    least = np.full(len(columns.places), highest, np.int64)
    np.minimum.at(least, places_of, numbers)
    places = np.flatnonzero(np.bincount(places_of, minlength=len(columns.places)))
    return ((columns.places[at], int(least[at])) for at in places.tolist())


def _needed(files: LiveFiles, ids: Ids, stays: Mask) -> Iterator[DeleteFile]:
    """The deletes that apply to any of the files and were not folded into its own position delete."""
    yield from files.newer_equality_deletes(ids, files.carried_through[ids])
    pairs = files.pairs
    is_named = np.array([delete.named_file is not None for delete in files.deletes], np.bool_)[pairs.deletes]
    number = np.array([delete_file.sequence_number for delete_file in files.deletes], np.int64)[pairs.deletes]
    is_needed = stays[pairs.files] & (is_named | (number > files.carried_through[pairs.files]))
    yield from (files.deletes[at] for at in np.unique(pairs.deletes[is_needed]).tolist())


def removable_deletes(landed: Iterable[Group], scan: TableScan, sequence_number: int) -> tuple[DeleteFile, ...]:
    """The deletes of the groups' inputs, and dangling ones, that no file needs once the groups are committed on `scan`.

    Decided over all live data files by sequence number and partition alone, never by bounds, which may be missing or
    wrong; except that a position delete with equal bounds names exactly that file, as for readers and the matcher. A
    file marked by one of our conversions needs no delete that was folded into it, one with a deletion vector, or with
    a new one, no position delete file. A delete above the plan's sequence number stays, but for vectors of rewritten
    files; one that is gone already is left out. Sorted by path; empty without groups.
    """
    groups = tuple(landed)
    if not groups:
        return ()
    rewritten = {given.data.path for group in groups for given in group.work.rewritten}
    folded = {
        given.data.path: {group.work.deletes[index].numbered for index in given.deletes}
        for group in groups
        for given in group.work.converted
    }
    vectors = (file for group in groups for file in group.output.delete_files if file.is_vector)
    converted = _Converted(folded, frozenset(normalise(vector.referenced_data_file or "") for vector in vectors))
    files = LiveFiles.of(scan.files)
    stays = np.ones(len(files), np.bool_)
    for at in files.ids_of((*rewritten, *folded)).tolist():
        data = files.columns.row(at)
        stays[at] = data.path not in folded and data.path not in rewritten
        if data.path in folded:
            converted.add(data)
    candidates = _candidates(groups, files, scan.dangling, sequence_number)
    # Vectors of rewritten files, of whatever number: whose rows follow into the outputs has read them.
    candidates |= {delete.numbered: delete for delete in files.deletes_of(files.ids_of(rewritten)) if delete.is_vector}
    outside = _outside(files, stays, candidates.values())
    going = {
        key: delete for key, delete in candidates.items() if not outside.needs(delete) and not converted.need(delete)
    }
    marked = files.rows(outside.ids[files.carried_through[outside.ids] >= 0])
    idle = (mark for scanned in marked for mark in _idle_marks(scanned, files.deletes, going))
    going |= {mark.numbered: mark for mark in idle}
    return tuple(going[key] for key in sorted(going))


def dangling_deletes(scan: TableScan) -> tuple[DeleteFile, ...]:
    """The deletes that no live data file needs, by the rules of `removable_deletes`. Sorted by path."""
    return _unneeded(scan, scan.dangling, ())


def deletes_without(scan: TableScan, removed: Iterable[str]) -> tuple[DeleteFile, ...]:
    """The deletes that no file needs once these data files are gone, as `removable_deletes` decides. Sorted by path."""
    files, paths = LiveFiles.of(scan.files), tuple(removed)
    return _unneeded(scan, files.deletes_of(files.ids_of(paths)), paths)


def needed_outside(files: LiveFiles, stays: Mask, deletes: Iterable[DeleteFile]) -> tuple[DeleteFile, ...]:
    """Those of the deletes that any of the files that stay would need, by the rules of `removable_deletes`."""
    delete_files = tuple(deletes)
    outside = _outside(files, stays, delete_files)
    return tuple(delete for delete in delete_files if outside.needs(delete))


def _unneeded(scan: TableScan, candidates: Iterable[DeleteFile], removed: Iterable[str]) -> tuple[DeleteFile, ...]:
    files, by_number = LiveFiles.of(scan.files), {delete.numbered: delete for delete in candidates}
    stays = np.ones(len(files), np.bool_)
    stays[files.ids_of(removed)] = False
    outside = _outside(files, stays, by_number.values())
    return tuple(by_number[key] for key in sorted(by_number) if not outside.needs(by_number[key]))


def _idle_marks(
    scanned: ScannedFile, deletes: Iterable[DeleteFile], going: Mapping[Numbered, DeleteFile]
) -> Iterator[DeleteFile]:
    """The file's own empty position deletes, once all deletes that they stand for are removed.

    An empty vector stands for all of the position delete files among `deletes` that would apply without it, too.
    """
    marks = [delete for delete in scanned.deletes if delete.is_converted and not delete.record_count]
    if not marks:
        return
    hidden: Iterable[DeleteFile] = ()
    if any(mark.is_vector for mark in marks):
        hidden = (delete for delete in deletes if _is_hidden(delete, scanned.data))
    # A delete that names a file is never folded into a mark.
    folded = (delete for delete in scanned.deletes if delete.named_file is None)
    carried = (delete for delete in folded if delete.sequence_number <= scanned.carried_through)
    if all(delete.numbered in going for delete in (*carried, *hidden)):
        yield from marks


def _is_hidden(delete: DeleteFile, data: DataFile) -> bool:
    """Whether the position delete file may apply to a data file that has a vector."""
    is_file = delete.kind is DeleteKind.POSITION and not delete.is_vector
    in_place = (delete.spec_id, delete.partition) == place_of(data)
    return is_file and in_place and _applies(delete, data.sequence_number) and _may_name(delete, data)


def _candidates(
    groups: Iterable[Group], files: LiveFiles, dangling: Iterable[DeleteFile], sequence_number: int
) -> dict[Numbered, DeleteFile]:
    planned = {delete.numbered for delete in _planned(groups) if delete.sequence_number <= sequence_number}
    live = (delete for delete in files.applied if delete.numbered in planned)
    # A newer dangling delete will apply to the outputs, which carry the plan's sequence number.
    older = (delete for delete in dangling if delete.sequence_number <= sequence_number)
    return {delete.numbered: delete for delete in (*live, *older)}


def _planned(groups: Iterable[Group]) -> Iterator[DeleteFile]:
    for group in groups:
        used = {index for given in (*group.work.rewritten, *group.work.converted) for index in given.deletes}
        yield from (group.work.deletes[index] for index in sorted(used))


@dataclass(slots=True)
class _Converted:
    """The converted files, which stay and still need each delete that was not folded into their new ones."""

    folded: Mapping[str, set[Numbered]]
    with_vector: Set[str]  # the normalised paths of those with a new vector, which holds all their positions
    by_place: dict[Place, list[DataFile]] = field(default_factory=dict)

    def add(self, data: DataFile) -> None:
        self.by_place.setdefault(place_of(data), []).append(data)

    def need(self, delete: DeleteFile) -> bool:
        is_global = delete.kind is DeleteKind.EQUALITY and not delete.partition
        is_file = delete.kind is DeleteKind.POSITION and not delete.is_vector
        places = self.by_place if is_global else ((delete.spec_id, delete.partition),)
        return any(
            _applies(delete, data.sequence_number) and delete.numbered not in self.folded[data.path]
            for place in places
            for data in self.by_place.get(place, ())
            if _may_name(delete, data) and not (is_file and normalise(data.path) in self.with_vector)
        )


def _may_name(delete: DeleteFile, data: DataFile) -> bool:
    named, path = delete.named_file, normalise(data.path)
    if named is None:
        return True
    if delete.referenced_data_file is not None:
        return normalise(named) == path
    return _goes_on(path, normalise(named))


def _goes_on(path: str, bound: str) -> bool:
    """Whether the bound is the path or a prefix: writers may truncate both bounds without rounding up the upper."""
    return path.startswith(bound)


def _applies(delete: DeleteFile, data_sequence_number: int) -> bool:
    if delete.kind is DeleteKind.EQUALITY:
        return data_sequence_number < delete.sequence_number
    return data_sequence_number <= delete.sequence_number


def place_of(file: DataFile) -> Place:
    """The spec and the partition of a file."""
    return file.spec_id, file.partition
