"""Which delete files a commit takes away: those that nothing needs that stays."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from amoro_core.model.commits import Group
from amoro_core.model.files import DataFile, DeleteFile, DeleteKind, Partition, ScannedFile, TableScan
from amoro_core.model.paths import normalise

Place = tuple[int, Partition]
Identity = tuple[str, int]


@dataclass(slots=True)
class _Outside:
    """The live data files that the commit leaves as they are."""

    paths: set[str] = field(default_factory=set)  # normalised
    oldest: int | None = None  # data sequence number
    oldest_by_place: dict[Place, int] = field(default_factory=dict)
    deletes: set[Identity] = field(default_factory=set)  # that the matcher says apply to them

    def add(self, scanned: ScannedFile) -> None:
        data, place = scanned.data, _place(scanned.data)
        self.paths.add(normalise(data.path))
        self.oldest = data.sequence_number if self.oldest is None else min(self.oldest, data.sequence_number)
        self.oldest_by_place[place] = min(self.oldest_by_place.get(place, data.sequence_number), data.sequence_number)
        self.deletes |= {_identity(delete) for delete in scanned.deletes}

    def needs(self, delete: DeleteFile) -> bool:
        if _identity(delete) in self.deletes:
            return True
        if delete.referenced_data_file is not None:
            return normalise(delete.referenced_data_file) in self.paths
        if delete.kind is DeleteKind.EQUALITY and not delete.partition:
            return self.oldest is not None and _applies(delete, self.oldest)
        oldest = self.oldest_by_place.get((delete.spec_id, delete.partition))
        return oldest is not None and _applies(delete, oldest)


def removable_deletes(kept: Iterable[Group], scan: TableScan, sequence_number: int) -> tuple[DeleteFile, ...]:
    """The deletes of the groups' inputs, and dangling ones, that nothing needs once the groups are committed there.

    Judged over all live data files by sequence number and partition alone, never by bounds, which may be missing
    or wrong. A delete above the plan's sequence number stays, as does one that is gone already. Ordered by path;
    none without groups.
    """
    groups = tuple(kept)
    if not groups:
        return ()
    rewritten = {given.data.path for group in groups for given in group.work.rewritten}
    folded = {
        given.data.path: {_identity(group.work.deletes[index]) for index in given.deletes}
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
    return tuple(
        candidates[key]
        for key in sorted(candidates)
        if not outside.needs(candidates[key]) and not converted.need(candidates[key])
    )


def _candidates(groups: Iterable[Group], scan: TableScan, sequence_number: int) -> dict[Identity, DeleteFile]:
    planned = {_identity(delete) for delete in _planned(groups) if delete.sequence_number <= sequence_number}
    live = (delete for scanned in scan.files for delete in scanned.deletes if _identity(delete) in planned)
    # A newer one that dangles begins to apply to the outputs, which carry the plan's sequence number.
    dangling = (delete for delete in scan.dangling if delete.sequence_number <= sequence_number)
    return {_identity(delete): delete for delete in (*live, *dangling)}


def _planned(groups: Iterable[Group]) -> Iterator[DeleteFile]:
    for group in groups:
        used = {index for given in (*group.work.rewritten, *group.work.converted) for index in given.deletes}
        yield from (group.work.deletes[index] for index in sorted(used))


@dataclass(slots=True)
class _Converted:
    """The converted files, which stay and go on needing each delete that was not folded into their new ones."""

    folded: Mapping[str, set[Identity]]
    by_place: dict[Place, list[DataFile]] = field(default_factory=dict)

    def add(self, data: DataFile) -> None:
        self.by_place.setdefault(_place(data), []).append(data)

    def need(self, delete: DeleteFile) -> bool:
        is_global = delete.kind is DeleteKind.EQUALITY and not delete.partition
        places = self.by_place if is_global else ((delete.spec_id, delete.partition),)
        return any(
            _applies(delete, data.sequence_number) and _identity(delete) not in self.folded[data.path]
            for place in places
            for data in self.by_place.get(place, ())
            if _may_name(delete, data)
        )


def _may_name(delete: DeleteFile, data: DataFile) -> bool:
    named = delete.referenced_data_file
    return named is None or normalise(named) == normalise(data.path)


def _applies(delete: DeleteFile, data_sequence_number: int) -> bool:
    if delete.kind is DeleteKind.EQUALITY:
        return data_sequence_number < delete.sequence_number
    return data_sequence_number <= delete.sequence_number


def _place(file: DataFile) -> Place:
    return file.spec_id, file.partition


def _identity(delete: DeleteFile) -> Identity:
    return delete.path, delete.sequence_number
