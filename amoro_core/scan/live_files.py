"""The live data files of a snapshot with their deletes: in columns, and as rows on access."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar, overload

import numpy as np
import numpy.typing as npt

from amoro_core.model.files import DeleteFile, DeleteIdentity, DeleteKind, ScannedFile
from amoro_core.model.paths import normalise
from amoro_core.model.plans import PartitionKey
from amoro_core.model.task_payload import InputFile, RewriteInput, TableContext
from amoro_core.scan.columns import DataColumns, Ids, Mask, Numbers, columns_of

T = TypeVar("T")

_NONE, _ABOVE_ALL = -1, 2**63 - 1


@dataclass(frozen=True, slots=True)
class Ordered:
    """Equality deletes sorted by sequence number: those that apply to a file are a suffix of the indexes."""

    numbers: tuple[int, ...] = ()
    ids: tuple[int, ...] = ()

    def newer_than(self, number: int) -> tuple[int, ...]:
        """The indexes of the deletes above that number."""
        return self.ids[bisect_right(self.numbers, number) :]

    @property
    def last(self) -> int:
        """The highest number."""
        return self.numbers[-1] if self.numbers else _NONE


@dataclass(frozen=True, slots=True)
class EqualityIndex:
    """Equality deletes by scope: global, or in one place, identified by its index."""

    everywhere: Ordered = Ordered()
    by_place: Mapping[int, Ordered] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.everywhere.ids or self.by_place)

    def newer_than(self, place: int, number: int) -> tuple[int, ...]:
        """The indexes of the deletes that apply to a file with that place and number."""
        result = self.everywhere.newer_than(number)
        here = self.by_place.get(place)
        return result if here is None else (*result, *here.newer_than(number))

    def newer_than_any(self, places: Sequence[int], numbers: Sequence[int]) -> Iterator[int]:
        """The distinct indexes of the deletes that apply to any file with one of the places and its number."""
        yield from self.everywhere.newer_than(min(numbers, default=_ABOVE_ALL))
        for place, number in zip(places, numbers, strict=True):
            if place in self.by_place:
                yield from self.by_place[place].newer_than(number)

    def last_of(self, columns: DataColumns) -> Numbers:
        """For each file the highest number of a delete that applies to it; −1 without any."""
        last = np.full(len(columns.places), self.everywhere.last, np.int64)
        for place, here in self.by_place.items():
            last[place] = max(last[place], here.last)
        numbers = last[columns.place]
        return np.where(numbers > columns.numbers, numbers, _NONE)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of a file and a delete that applies to it, by their indexes, in the order of the files."""

    files: npt.NDArray[np.int32]
    deletes: npt.NDArray[np.int32]

    def of(self, file: int) -> list[int]:
        """The indexes of the deletes paired with the file."""
        first, behind = np.searchsorted(self.files, (file, file + 1))
        result: list[int] = self.deletes[first:behind].tolist()
        return result


@dataclass(frozen=True, slots=True)
class ManifestIndex:
    """The manifests of files, by path: of each part of the columns, and of delete files."""

    parts: tuple[str, ...]
    deletes: Mapping[DeleteIdentity, tuple[str, ...]]


class LiveFiles(Sequence[ScannedFile]):
    """All live data files. As a sequence: rows sorted by sequence number and path, built on each access.

    `columns` has an order of its own, shared by all other arrays here.
    """

    def __init__(
        self,
        columns: DataColumns,
        deletes: tuple[DeleteFile, ...],
        equality: EqualityIndex,
        pairs: Pairs,
        *,
        by_rows: bool = False,
    ) -> None:
        self.columns = columns
        self.deletes = deletes
        self._equality = equality
        self.pairs = pairs
        self._by_rows = by_rows
        self.homes: ManifestIndex | None = None  # None: they are not known
        self._shared: dict[tuple[int, ...], tuple[DeleteFile, ...]] = {}

    @classmethod
    def of(cls, files: Sequence[ScannedFile]) -> "LiveFiles":
        """The files with the deletes that they carry; nothing is matched."""
        if isinstance(files, cls):
            return files
        deletes = dict.fromkeys(delete for file in files for delete in file.deletes)
        ordered = tuple(sorted(deletes, key=lambda item: (item.sequence_number, *item.identity[:2])))
        ids = {delete: at for at, delete in enumerate(ordered)}
        links = [(at, ids[delete]) for at, file in enumerate(files) for delete in file.deletes]
        pairs = paired(np.array(links, np.int64).reshape(-1, 2))
        return cls(columns_of(file.data for file in files), ordered, EqualityIndex(), pairs, by_rows=True)

    def __len__(self) -> int:
        return len(self.columns)

    @overload
    def __getitem__(self, at: int) -> ScannedFile: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[ScannedFile, ...]: ...

    def __getitem__(self, at: int | slice) -> ScannedFile | tuple[ScannedFile, ...]:
        if isinstance(at, slice):
            return tuple(self.rows(self._order[at]))
        return self.row(int(self._order[at]))

    def __iter__(self) -> Iterator[ScannedFile]:
        return self.rows(self._order)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(file == its for file, its in zip(self, other, strict=True))

    def row(self, at: int) -> ScannedFile:
        """The file at that index of the columns, with its deletes sorted by sequence number and path."""
        return next(self.rows(np.array([at])))

    def rows(self, ids: Ids) -> Iterator[ScannedFile]:
        """The files at those indexes of the columns, in the given order."""
        columns = self.columns
        facts = (ids, columns.place[ids], columns.numbers[ids], self.position_delete[ids], self.by_row[ids])
        for at, place, number, position, by_row in zip(*(column.tolist() for column in facts), strict=True):
            own = self.pairs.of(at) if by_row else [position] if position != _NONE else []
            yield ScannedFile(columns.row(at), self._deletes(self._equality.newer_than(place, number), own))

    def ids_of(self, paths: Iterable[str]) -> Ids:
        """The indexes of the files with one of the paths, however spelled, in the order of the files."""
        names = list(dict.fromkeys(map(normalise, paths)))
        return np.sort(self.columns.names.find(names)[0]) if names else np.empty(0, np.int64)

    def manifests_of(self, paths: Iterable[str], deletes: Iterable[DeleteIdentity]) -> frozenset[str] | None:
        """The manifests that hold data files with one of the paths, or one of the deletes; None: it is not known."""
        if self.homes is None:
            return None
        parts = self.columns.names.parts_of(self.ids_of(paths))
        by_key = self.homes.deletes
        return frozenset(
            (*(self.homes.parts[at] for at in parts), *(home for key in deletes for home in by_key.get(key, ())))
        )

    def newer_equality_deletes(self, ids: Ids, above: Numbers) -> Iterator[DeleteFile]:
        """The equality deletes that apply to any of the files and are above the corresponding number."""
        if self._equality:
            least = np.full(len(self.columns.places), _ABOVE_ALL, np.int64)
            np.minimum.at(least, self.columns.place[ids], np.maximum(above, self.columns.numbers[ids]))
            places = np.flatnonzero(least < _ABOVE_ALL)  # nothing is newer than the others
            newer = self._equality.newer_than_any(places.tolist(), least[places].tolist())
            yield from (self.deletes[at] for at in newer)
        if self._by_rows:
            for at, number in zip(ids.tolist(), above.tolist(), strict=True):
                own = (self.deletes[delete] for delete in self.pairs.of(at))
                yield from (item for item in own if item.kind is DeleteKind.EQUALITY and item.sequence_number > number)

    def deletes_of(self, ids: Ids) -> Iterator[DeleteFile]:
        """The deletes that apply to any of the files; some may repeat."""
        yield from self.newer_equality_deletes(ids, self.columns.numbers[ids])
        first, behind = (np.searchsorted(self.pairs.files, ids, side) for side in ("left", "right"))
        counts = behind - first
        of_pairs = np.repeat(behind - counts.cumsum(), counts) + np.arange(counts.sum())
        yield from (self.deletes[at] for at in np.unique(self.pairs.deletes[of_pairs]).tolist())

    @cached_property
    def applied(self) -> tuple[DeleteFile, ...]:
        """The distinct deletes that apply to any file, sorted by sequence number and path."""
        if not self.deletes:
            return ()
        newer = self.newer_equality_deletes(np.arange(len(self)), self.columns.numbers)
        paired_ones = (self.deletes[at] for at in np.unique(self.pairs.deletes).tolist())
        used = set(map(id, (*newer, *paired_ones)))
        return tuple(delete for delete in self.deletes if id(delete) in used)

    @cached_property
    def last_equality_delete(self) -> Numbers:
        """For each file the highest number of an equality delete that applies to it; −1 without one, or if `by_row`."""
        return self._equality.last_of(self.columns)

    @cached_property
    def position_delete(self) -> npt.NDArray[np.int32]:
        """For each file the index of its single position delete, naming it alone; −1 without one, or if `by_row`."""
        result = np.full(len(self.columns), _NONE, np.int32)
        result[self.pairs.files] = self.pairs.deletes
        result[self.by_row] = _NONE
        return result

    @cached_property
    def by_row(self) -> Mask:
        """The files whose deletes only rows have: with several position deletes, or one that may name other files."""
        result = np.zeros(len(self.columns), np.bool_)
        if self._by_rows:
            result[self.pairs.files] = True
            return result
        is_alone = [delete.kind is DeleteKind.POSITION and delete.named_file is not None for delete in self.deletes]
        result[self.pairs.files[~np.array(is_alone, np.bool_)[self.pairs.deletes]]] = True
        result[self.pairs.files[1:][np.diff(self.pairs.files) == 0]] = True
        return result

    @cached_property
    def has_vector(self) -> Mask:
        """The files that a deletion vector applies to: no position delete file does."""
        return self._with_deletes([delete_file.is_vector for delete_file in self.deletes])

    @cached_property
    def has_position_file(self) -> Mask:
        """The files that a position delete file applies to, which is no vector."""
        return self._with_deletes([item.kind is DeleteKind.POSITION and not item.is_vector for item in self.deletes])

    def _with_deletes(self, chosen: Sequence[bool]) -> Mask:
        result = np.zeros(len(self.columns), np.bool_)
        result[self.pairs.files[np.array(chosen, np.bool_)[self.pairs.deletes]]] = True
        return result

    @cached_property
    def carried_through(self) -> Numbers:
        """`ScannedFile.carried_through` for each file."""
        own = np.array([delete.sequence_number if delete.is_converted else _NONE for delete in self.deletes], np.int64)
        result = np.full(len(self.columns), _NONE, np.int64)
        np.maximum.at(result, self.pairs.files, own[self.pairs.deletes])
        return result

    @cached_property
    def _order(self) -> Ids:
        return self.columns.order()

    def _deletes(self, equality: tuple[int, ...], own: list[int]) -> tuple[DeleteFile, ...]:
        if own:
            return tuple(self.deletes[delete] for delete in sorted((*equality, *own)))
        # Many files have the same equality deletes: the tuples are shared.
        if equality not in self._shared:
            self._shared[equality] = tuple(self.deletes[delete] for delete in sorted(equality))
        return self._shared[equality]


def paired(*parts: Ids) -> Pairs:
    """The pairs of a file and a delete, from arrays with two columns, in any order."""
    both = np.concatenate((np.empty((0, 2), np.int64), *parts)).astype(np.int32)
    order = np.lexsort((both[:, 1], both[:, 0]))
    return Pairs(both[order, 0], both[order, 1])


#: Data that is read with one set of decoded deletes.
_CHUNK_BYTES = 2**30


def by_partition(files: Iterable[ScannedFile]) -> Mapping[PartitionKey, list[ScannedFile]]:
    """The files of each partition of each spec."""
    result: dict[PartitionKey, list[ScannedFile]] = {}
    for file in files:
        result.setdefault(PartitionKey(file.data.spec_id, file.data.partition), []).append(file)
    return result


def reading_works(context: TableContext, files: Sequence[ScannedFile]) -> Iterator[RewriteInput]:
    """Inputs for reading one partition's files, each of at most 1 GiB or one file, with each delete once."""
    return (_work(context, chunk) for chunk in runs_within(files, lambda file: file.data.size_bytes, _CHUNK_BYTES))


def runs_within(items: Iterable[T], weight: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """The items in their order, in runs of at most that weight; at least one in each."""
    run: list[T] = []
    total = 0
    for item in items:
        if run and total + weight(item) > most:
            yield run
            run, total = [], 0
        run.append(item)
        total += weight(item)
    if run:
        yield run


def _work(context: TableContext, files: Sequence[ScannedFile]) -> RewriteInput:
    deletes = tuple({delete.identity: delete for file in files for delete in file.deletes}.values())
    numbers = {delete.identity: number for number, delete in enumerate(deletes)}
    inputs = tuple(InputFile(file.data, tuple(numbers[delete.identity] for delete in file.deletes)) for file in files)
    return RewriteInput(context, inputs, (), deletes, 0, 0, 1)
