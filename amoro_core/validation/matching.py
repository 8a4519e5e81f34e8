"""Which delete applies to which data file (Iceberg specification, "Scan Planning"), one file at a time.

Used by the check before a commit: `scan.matching`, which planning uses, must not certify itself.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from amoro_core.errors import TableRefused
from amoro_core.model.files import DataFile, DeleteFile, DeleteKind, Partition, ScannedFile
from amoro_core.model.paths import normalise

_Place = tuple[int, Partition]  # spec and partition


@dataclass(frozen=True, slots=True)
class _Ordered:
    """Deletes sorted by sequence number: those that apply to a data file by number are a suffix."""

    numbers: tuple[int, ...]
    deletes: tuple[DeleteFile, ...]

    def newer_than(self, number: int) -> tuple[DeleteFile, ...]:
        return self.deletes[bisect_right(self.numbers, number) :]

    def not_older_than(self, number: int) -> tuple[DeleteFile, ...]:
        return self.deletes[bisect_left(self.numbers, number) :]


_NONE = _Ordered((), ())


@dataclass(frozen=True, slots=True)
class _Index:
    everywhere: _Ordered  # equality deletes of unpartitioned specs
    equality: dict[_Place, _Ordered]
    position: dict[_Place, _Ordered]  # those that may name several files
    single: dict[str, _Ordered]  # those that name exactly one, by its path


def match(
    data: Sequence[DataFile], deletes: Sequence[DeleteFile], unpartitioned_specs: frozenset[int]
) -> tuple[tuple[ScannedFile, ...], tuple[DeleteFile, ...]]:
    """Every data file with the deletes that apply to it, and the deletes that apply to none.

    All are sorted by sequence number and path, vectors by their offset, too. `unpartitioned_specs` have no fields, or
    void transforms only. Raises TableRefused("position-delete-partition").
    """
    index = _index(deletes, unpartitioned_specs)
    files = tuple(ScannedFile(file, _applicable(file, index)) for file in sorted(data, key=_order))
    used = {id(delete) for file in files for delete in file.deletes}
    return files, tuple(delete for delete in sorted(deletes, key=_order) if id(delete) not in used)


def _order(file: DataFile | DeleteFile) -> tuple[int, str, int]:
    return file.sequence_number, file.path, 0 if isinstance(file, DataFile) else file.identity.offset


def _index(deletes: Iterable[DeleteFile], unpartitioned_specs: frozenset[int]) -> _Index:
    everywhere: list[DeleteFile] = []
    equality: dict[_Place, list[DeleteFile]] = {}
    position: dict[_Place, list[DeleteFile]] = {}
    single: dict[str, list[DeleteFile]] = {}
    for delete in sorted(deletes, key=_order):
        if delete.kind is DeleteKind.EQUALITY:
            if delete.spec_id in unpartitioned_specs:
                everywhere.append(delete)
            else:
                equality.setdefault(_place(delete), []).append(delete)
        elif (named := delete.named_file) is not None:
            single.setdefault(normalise(named), []).append(delete)
        else:
            position.setdefault(_place(delete), []).append(delete)
    return _Index(
        _ordered(everywhere),
        {place: _ordered(some) for place, some in equality.items()},
        {place: _ordered(some) for place, some in position.items()},
        {path: _ordered(some) for path, some in single.items()},
    )


def _ordered(deletes: Sequence[DeleteFile]) -> _Ordered:
    return _Ordered(tuple(delete.sequence_number for delete in deletes), tuple(deletes))


def _place(file: DataFile | DeleteFile) -> _Place:
    return file.spec_id, file.partition


def _applicable(file: DataFile, index: _Index) -> tuple[DeleteFile, ...]:
    place, number = _place(file), file.sequence_number
    deletes = [*index.everywhere.newer_than(number), *index.equality.get(place, _NONE).newer_than(number)]
    own = index.single.get(normalise(file.path), _NONE).not_older_than(number)
    vectors = [delete for delete in own if delete.is_vector]
    for delete in vectors or own:
        _refuse_elsewhere(file, delete)
    if vectors:
        # A vector holds all positions of its file: position delete files don't apply beside it.
        return tuple(sorted((*deletes, *vectors), key=_order))
    shared = index.position.get(place, _NONE).not_older_than(number)
    deletes += [*own, *(delete for delete in shared if _within(file.path, delete.path_bounds))]
    return tuple(sorted(deletes, key=_order))


def _refuse_elsewhere(file: DataFile, delete: DeleteFile) -> None:
    """Refuse a delete about which readers disagree: some go by the path it names, some by its partition."""
    if _place(file) != _place(delete):
        raise TableRefused(
            f"position delete {delete.path} names {file.path}, which lies in another partition",
            reason="position-delete-partition",
            hint="Rewrite the data file with the engine that wrote the delete, so that the delete goes.",
        )


def _within(path: str, bounds: tuple[str, str] | None) -> bool:
    """Whether the bounds admit the path, as spelled or normalised."""
    if bounds is None:
        return True
    low, high = bounds
    if _bytes(low) <= _bytes(path) <= _bytes(high):
        return True
    low, high = normalise(low), normalise(high)
    # Bounds of paths in several spellings may be out of order once normalised.
    return _bytes(low) > _bytes(high) or _bytes(low) <= _bytes(normalise(path)) <= _bytes(high)


def _bytes(text: str) -> bytes:
    """UTF-8 bytes, by which strings are compared; a truncated bound may end within a character."""
    return text.encode(errors="surrogateescape")
