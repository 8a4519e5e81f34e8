"""Which delete files a commit takes away: those that nothing needs that stays."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from amoro_core.model.commits import Group
from amoro_core.model.files import DataFile, DeleteFile, DeleteIdentity, DeleteKind, Partition, ScannedFile, TableScan
from amoro_core.model.paths import normalise

Place = tuple[int, Partition]
Numbered = tuple[DeleteIdentity, int]


@dataclass(slots=True)
class _Outside:
    """The live data files that the commit leaves as they are.

    What a file's own position delete carries, it does not need of others.
    """

    paths: set[str] = field(default_factory=set)  # normalised
    ordered: list[str] = field(default_factory=list)  # the paths in order, once somebody asks
    above: int | None = None  # equality deletes that hold everywhere are needed above this number
    above_by_place: dict[tuple[DeleteKind, Place], int] = field(default_factory=dict)  # others above these
    deletes: set[Numbered] = field(default_factory=set)  # that the matcher says apply to them
    converted: list[ScannedFile] = field(default_factory=list)  # those with a position delete of their own

    def add(self, scanned: ScannedFile) -> None:
        data, place, carried_through = scanned.data, _place(scanned.data), scanned.carried_through
        self.paths.add(normalise(data.path))
        above = max(data.sequence_number, carried_through)
        self.above = above if self.above is None else min(self.above, above)
        for kind in DeleteKind:
            from_ = above if kind is DeleteKind.EQUALITY else max(data.sequence_number - 1, carried_through)
            self.above_by_place[kind, place] = min(self.above_by_place.get((kind, place), from_), from_)
        self.deletes |= {delete.numbered for delete in scanned.deletes if not _is_carried(delete, carried_through)}
        if carried_through >= 0:
            self.converted.append(scanned)

    def needs(self, delete: DeleteFile) -> bool:
        if delete.numbered in self.deletes:
            return True
        if (named := delete.named_file) is not None:
            return self.has(normalise(named), is_referenced=delete.referenced_data_file is not None)
        above = self.above_by_place.get((delete.kind, (delete.spec_id, delete.partition)))
        if delete.kind is DeleteKind.EQUALITY and not delete.partition:
            above = self.above
        return above is not None and delete.sequence_number > above

    def has(self, named: str, *, is_referenced: bool) -> bool:
        """Whether that path is among the files, or, where bounds name it, one that goes on from it."""
        if is_referenced:
            return named in self.paths
        if len(self.ordered) < len(self.paths):
            self.ordered = sorted(self.paths)
        at = bisect_left(self.ordered, named)
        return at < len(self.ordered) and _goes_on(self.ordered[at], named)


def removable_deletes(kept: Iterable[Group], scan: TableScan, sequence_number: int) -> tuple[DeleteFile, ...]:
    """The deletes of the groups' inputs, and dangling ones, that nothing needs once the groups are committed there.

    Judged over all live data files by sequence number and partition alone, never by bounds, which may be missing
    or wrong; but a position delete with equal ones names that one file, as readers and the matcher take it. A file
    that a conversion of ours marked needs none that the conversion folded. A delete
    above the plan's sequence number stays, as does one that is gone already. Ordered by path; none without groups.
    """
    groups = tuple(kept)
    if not groups:
        return ()
    rewritten = {given.data.path for group in groups for given in group.work.rewritten}
    folded = {
        given.data.path: {group.work.deletes[index].numbered for index in given.deletes}
        for group in groups
        for given in group.work.converted
    }
    outside, converted = _Outside(), _Converted(folded)
    for scanned in scan.files:
        if scanned.data.path in folded:
            converted.add(scanned.data)
        elif scanned.data.path not in rewritten:
            outside.add(scanned)
    candidates = _candidates(groups, scan, sequence_number)
    going = {
        key: delete for key, delete in candidates.items() if not outside.needs(delete) and not converted.need(delete)
    }
    going |= {mark.numbered: mark for scanned in outside.converted for mark in _idle_marks(scanned, going)}
    return tuple(going[key] for key in sorted(going))


def _is_carried(delete: DeleteFile, carried_through: int) -> bool:
    """Whether a file with that number needs the delete no more; one that names it is never another's."""
    return delete.named_file is None and delete.sequence_number <= carried_through


def _idle_marks(scanned: ScannedFile, going: Mapping[Numbered, DeleteFile]) -> Iterator[DeleteFile]:
    """The file's own position deletes without positions, once all goes that they tell of."""
    if any(_is_carried(delete, scanned.carried_through) and delete.numbered not in going for delete in scanned.deletes):
        return
    yield from (delete for delete in scanned.deletes if delete.is_converted and not delete.record_count)


def _candidates(groups: Iterable[Group], scan: TableScan, sequence_number: int) -> dict[Numbered, DeleteFile]:
    planned = {delete.numbered for delete in _planned(groups) if delete.sequence_number <= sequence_number}
    live = (delete for scanned in scan.files for delete in scanned.deletes if delete.numbered in planned)
    # A newer one that dangles begins to apply to the outputs, which carry the plan's sequence number.
    dangling = (delete for delete in scan.dangling if delete.sequence_number <= sequence_number)
    return {delete.numbered: delete for delete in (*live, *dangling)}


def _planned(groups: Iterable[Group]) -> Iterator[DeleteFile]:
    for group in groups:
        used = {index for given in (*group.work.rewritten, *group.work.converted) for index in given.deletes}
        yield from (group.work.deletes[index] for index in sorted(used))


@dataclass(slots=True)
class _Converted:
    """The converted files, which stay and go on needing each delete that was not folded into their new ones."""

    folded: Mapping[str, set[Numbered]]
    by_place: dict[Place, list[DataFile]] = field(default_factory=dict)

    def add(self, data: DataFile) -> None:
        self.by_place.setdefault(_place(data), []).append(data)

    def need(self, delete: DeleteFile) -> bool:
        is_global = delete.kind is DeleteKind.EQUALITY and not delete.partition
        places = self.by_place if is_global else ((delete.spec_id, delete.partition),)
        return any(
            _applies(delete, data.sequence_number) and delete.numbered not in self.folded[data.path]
            for place in places
            for data in self.by_place.get(place, ())
            if _may_name(delete, data)
        )


def _may_name(delete: DeleteFile, data: DataFile) -> bool:
    named, path = delete.named_file, normalise(data.path)
    if named is None:
        return True
    if delete.referenced_data_file is not None:
        return normalise(named) == path
    return _goes_on(path, normalise(named))


def _goes_on(path: str, bound: str) -> bool:
    """Whether the bound is the path or its beginning: a writer may have cut both and not raised the upper one."""
    return path.startswith(bound)


def _applies(delete: DeleteFile, data_sequence_number: int) -> bool:
    if delete.kind is DeleteKind.EQUALITY:
        return data_sequence_number < delete.sequence_number
    return data_sequence_number <= delete.sequence_number


def _place(file: DataFile) -> Place:
    return file.spec_id, file.partition
