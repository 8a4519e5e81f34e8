"""Equality deletes of a task arranged so that one lookup serves files with different deletes."""

from collections.abc import Iterable, Mapping

from amoro_core.model.files import DeleteFile, DeleteKind
from amoro_core.model.rewrite import InputFile, RewriteInput
from amoro_core.records import record


@record
class Chain:
    """Deletes with one set of ids, each with a level: a file of class c is subject to those with levels up to c.

    The deletes of a file are a suffix of all by sequence number, so the sets of two files are nested and one chain
    suffices for all; sets that are not nested are in further chains.
    """

    ids: tuple[int, ...]
    levels: tuple[tuple[int, int], ...]  # index of the delete and its level, sorted by level
    classes: Mapping[str, int]  # of each file subject to any of them, by its path


def chains_of(work: RewriteInput) -> tuple[Chain, ...]:
    """The chains of all equality deletes that apply to a file of the task."""
    by_ids: dict[tuple[int, ...], dict[str, frozenset[int]]] = {}
    for file in (*work.rewritten, *work.converted):
        for ids, indexes in _equality_deletes(file, work.deletes).items():
            by_ids.setdefault(ids, {})[file.data.path] = indexes
    return tuple(_chain(ids, sets, chosen) for ids, sets in by_ids.items() for chosen in _nested(sets.values()))


def _equality_deletes(file: InputFile, deletes: tuple[DeleteFile, ...]) -> dict[tuple[int, ...], frozenset[int]]:
    found: dict[tuple[int, ...], set[int]] = {}
    for index in file.deletes:
        if deletes[index].kind is DeleteKind.EQUALITY:
            found.setdefault(tuple(sorted(set(deletes[index].equality_ids))), set()).add(index)
    return {ids: frozenset(indexes) for ids, indexes in found.items()}


def _nested(sets: Iterable[frozenset[int]]) -> list[list[frozenset[int]]]:
    """The distinct sets, in lists in which each contains the one before it."""
    lists: list[list[frozenset[int]]] = []
    for one in sorted(set(sets), key=lambda found: (len(found), sorted(found))):
        fitting = next((other for other in lists if other[-1] <= one), None)
        if fitting is None:
            lists.append([one])
        else:
            fitting.append(one)
    return lists


def _chain(ids: tuple[int, ...], sets: Mapping[str, frozenset[int]], chosen: list[frozenset[int]]) -> Chain:
    levels: dict[int, int] = {}
    for level, one in enumerate(chosen):
        for index in sorted(one):
            levels.setdefault(index, level)
    places = {one: level for level, one in enumerate(chosen)}
    return Chain(ids, tuple(levels.items()), {path: places[one] for path, one in sets.items() if one in places})
