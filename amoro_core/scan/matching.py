"""Which delete applies to which data file (Iceberg specification, "Scan Planning"), for all files at once.

The deletes that apply by number are a suffix of a place's deletes sorted by number. Only position deletes are paired
with files; for equality deletes the highest number suffices until a row is requested.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from amoro_core.errors import TableRefused
from amoro_core.model.files import DataFile, DeleteFile, DeleteKind
from amoro_core.model.paths import normalise
from amoro_core.scan.columns import DataColumns, Ids, Mask, columns_of
from amoro_core.scan.live_files import EqualityIndex, LiveFiles, Ordered, paired

_Pair = tuple[int, int]  # the indexes of a file and of a delete


def match(
    data: DataColumns | Iterable[DataFile], deletes: Iterable[DeleteFile], unpartitioned_specs: frozenset[int]
) -> tuple[LiveFiles, tuple[DeleteFile, ...]]:
    """Every data file with the deletes that apply to it, and the deletes that apply to none.

    Sorted by sequence number, path and offset. `unpartitioned_specs` have no fields, or void transforms only. Raises
    TableRefused("position-delete-partition").
    """
    columns = data if isinstance(data, DataColumns) else columns_of(data)
    ordered = tuple(sorted(deletes, key=lambda item: (item.sequence_number, *item.identity[:2])))
    named = _without_replaced(ordered, _named(columns, ordered))
    _refuse_elsewhere(columns, ordered, named.tolist())
    pairs = paired(_without_replaced(ordered, named, *_unnamed(columns, ordered)))
    files = LiveFiles(columns, ordered, _equality(columns, ordered, unpartitioned_specs), pairs)
    applied = set(map(id, files.applied))
    return files, tuple(delete for delete in ordered if id(delete) not in applied)


def _equality(
    columns: DataColumns, deletes: Sequence[DeleteFile], unpartitioned_specs: frozenset[int]
) -> EqualityIndex:
    everywhere: list[int] = []
    by_place: dict[int, list[int]] = {}
    places = {place: at for at, place in enumerate(columns.places)}
    for at, delete in enumerate(deletes):
        if delete.kind is not DeleteKind.EQUALITY:
            continue
        if delete.spec_id in unpartitioned_specs:
            everywhere.append(at)
        elif (place := places.get((delete.spec_id, delete.partition))) is not None:
            by_place.setdefault(place, []).append(at)

    def ordered(ids: list[int]) -> Ordered:
        return Ordered(tuple(deletes[at].sequence_number for at in ids), tuple(ids))

    return EqualityIndex(ordered(everywhere), {place: ordered(some) for place, some in by_place.items()})


def _named(columns: DataColumns, deletes: Sequence[DeleteFile]) -> Ids:
    """The position deletes that name a single file, each with that file."""
    by_name: dict[str, list[int]] = {}
    for at, delete in enumerate(deletes):
        if delete.kind is DeleteKind.POSITION and (named := delete.named_file) is not None:
            by_name.setdefault(normalise(named), []).append(at)
    names = list(by_name)
    pairs: list[_Pair] = []
    for file, name in zip(*(ids.tolist() for ids in columns.names.find(names)), strict=True) if names else ():
        number = columns.numbers[file]
        pairs += [(file, at) for at in by_name[names[name]] if deletes[at].sequence_number >= number]
    return np.array(pairs, np.int64).reshape(-1, 2)


def _without_replaced(deletes: Sequence[DeleteFile], *parts: Ids) -> Ids:
    """The pairs without position delete files of data files that a vector applies to: it holds their positions."""
    pairs = np.concatenate((np.empty((0, 2), np.int64), *parts))
    is_vector = np.array([delete_file.is_vector for delete_file in deletes], np.bool_)
    if not is_vector.any():
        return pairs
    of_vector = is_vector[pairs[:, 1]]
    return pairs[of_vector | ~np.isin(pairs[:, 0], pairs[of_vector, 0])]


def _refuse_elsewhere(columns: DataColumns, deletes: Sequence[DeleteFile], pairs: Iterable[_Pair]) -> None:
    """Refuse deletes about which readers disagree: some go by the path they name, some by the partition."""
    elsewhere = [
        (int(columns.numbers[file]), columns.paths[file].as_py(), at)
        for file, at in pairs
        if columns.places[columns.place[file]] != (deletes[at].spec_id, deletes[at].partition)
    ]
    if not elsewhere:
        return
    _, path, at = min(elsewhere)
    raise TableRefused(
        f"position delete {deletes[at].path} names {path}, which lies in another partition",
        reason="position-delete-partition",
        hint="Rewrite the data file with the engine that wrote the delete, so that the delete goes.",
    )


def refuse_several_vectors(deletes: Iterable[DeleteFile]) -> None:
    """Raise TableRefused("deletion-vector") for two vectors of one data file, for which Java's readers fail."""
    seen: dict[str, DeleteFile] = {}
    for delete in sorted((item for item in deletes if item.is_vector), key=lambda vector: vector.numbered):
        if (named := delete.named_file) is None:
            continue
        if (other := seen.setdefault(normalise(named), delete)) is not delete:
            raise TableRefused(
                f"two deletion vectors name {named}: {_place_of(other)} and {_place_of(delete)}",
                reason="deletion-vector",
                hint="Rewrite the data file with the engine that wrote them, or roll the table back to a snapshot that"
                " has one.",
            )


def _place_of(vector: DeleteFile) -> str:
    return f"{vector.path} at {vector.identity.offset}"


def _unnamed(columns: DataColumns, deletes: Sequence[DeleteFile]) -> Iterator[Ids]:
    """The position deletes that may name several files of their place, with the files that their bounds admit."""
    places = {place: at for at, place in enumerate(columns.places)}
    by_place: dict[int, list[int]] = {}
    for at, delete in enumerate(deletes):
        place = places.get((delete.spec_id, delete.partition))
        if delete.kind is DeleteKind.POSITION and delete.named_file is None and place is not None:
            by_place.setdefault(place, []).append(at)
    if not by_place:
        return
    order, ends = columns.by_place
    for place, some in by_place.items():
        files = order[ends[place] : ends[place + 1]]
        names = _Names([columns.paths[at].as_py() for at in files.tolist()])
        numbers = columns.numbers[files]
        for at in some:
            chosen = files[names.within(deletes[at].path_bounds) & (numbers <= deletes[at].sequence_number)]
            yield np.column_stack((chosen, np.full(len(chosen), at)))


class _Names:
    """The paths of a place, as spelled and normalised, both sorted."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._count = len(paths)
        normal = [normalise(path) for path in paths]
        self._spellings = [_sorted(paths)] if normal == list(paths) else [_sorted(paths), _sorted(normal)]

    def within(self, bounds: tuple[str, str] | None) -> Mask:
        """Which paths the bounds admit, as spelled or normalised."""
        if bounds is None:
            return np.ones(self._count, np.bool_)
        low, high = (_bytes(normalise(bound)) for bound in bounds)
        # Bounds of paths in several spellings may be out of order once normalised.
        result = np.full(self._count, low > high)
        self._mark(result, self._spellings[0], _bytes(bounds[0]), _bytes(bounds[1]))
        self._mark(result, self._spellings[-1], low, high)
        return result

    @staticmethod
    def _mark(mask: Mask, spelling: tuple[list[bytes], Ids], low: bytes, high: bytes) -> None:
        names, order = spelling
        mask[order[bisect_left(names, low) : bisect_right(names, high)]] = True


def _sorted(paths: Sequence[str]) -> tuple[list[bytes], Ids]:
    names = [_bytes(path) for path in paths]
    order = sorted(range(len(names)), key=names.__getitem__)
    return [names[at] for at in order], np.array(order, np.int64)


def _bytes(text: str) -> bytes:
    """UTF-8 bytes, by which strings are compared; a truncated bound may end within a character."""
    return text.encode(errors="surrogateescape")
