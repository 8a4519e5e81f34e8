"""Paths as keys of eight bytes each instead of strings, in sorted arrays: a million of them take little memory."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from amoro_core.model.paths import looser_spellings

Keys = NDArray[np.uint64]
#: Scheme and authority.
Place = tuple[str, str]
NO_KEYS: Keys = np.empty(0, np.uint64)


def key_of(spelling: str) -> int:
    """The key of one spelling, the same on every machine. A collision can only keep a file, never delete one."""
    return int.from_bytes(blake2b(spelling.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def keys_of(paths: Iterable[str]) -> Keys:
    """The keys of all spellings of these paths, sorted and distinct."""
    spelled = _Spelled()
    return np.unique(np.fromiter((key for path in paths for key in spelled(path)), np.uint64))


def keys_in_ranges(paths: Iterable[str], cuts: Sequence[str]) -> dict[int, Keys]:
    """The keys of all spellings of these paths, by the range in which each spelling lies.

    Range `n` is after `cuts[n - 1]` and not after `cuts[n]`; the cuts are sorted.
    """
    spelled = _Spelled()
    found: defaultdict[int, list[int]] = defaultdict(list)
    for path in paths:
        for text in spelled.texts(path):
            found[bisect_left(cuts, text)].append(key_of(text))
    return {at: np.unique(np.array(keys, np.uint64)) for at, keys in found.items()}


def merged(parts: Iterable[Keys]) -> Keys:
    """The keys of all parts, sorted and distinct."""
    return np.unique(np.concatenate([NO_KEYS, *parts]))


def seeking(keys: Keys) -> Callable[[str], bool]:
    """A predicate: whether a path has one of the sorted keys, in any of its spellings."""
    spelled = _Spelled()

    def is_found(path: str) -> bool:
        return any(_holds(keys, key) for key in spelled(path))

    return is_found


def seeking_places(columns: Mapping[Place, Keys]) -> Callable[[Sequence[str]], list[frozenset[Place]]]:
    """A function that returns, for each of many paths, the places whose sorted keys include one of its spellings."""
    spelled = _Spelled()

    def places_of(paths: Sequence[str]) -> list[frozenset[Place]]:
        every = [(at, key) for at, path in enumerate(paths) for key in spelled(path)]
        asked = np.fromiter((key for _, key in every), np.uint64)
        answers = [_NOWHERE] * len(paths)
        for place, keys in columns.items():
            here = frozenset((place,))
            for hit in _held(keys, asked):
                at = every[hit][0]
                answers[at] = answers[at] | here if answers[at] else here
        return answers

    return places_of


class _Spelled:
    """The keys of a path's spellings; those of directories, of which there are few, are cached."""

    def __init__(self) -> None:
        self._directories: dict[str, tuple[str, ...]] = {}

    def __call__(self, path: str) -> list[int]:
        return [key_of(text) for text in self.texts(path)]

    def texts(self, path: str) -> Sequence[str]:
        """The spellings themselves: those of `looser_spellings`."""
        directory, _, name = path.rpartition("/")
        if not name.isascii() or "%" in name or name in ("", ".", ".."):
            return looser_spellings(path)
        known = self._directories.get(directory)
        if known is None:
            if len(self._directories) >= _DIRECTORIES:
                self._directories.clear()
            known = tuple(f"{one.rstrip('/')}/" for one in looser_spellings(directory or "/"))
            self._directories[directory] = known
        return [one + name for one in known]


#: The maximum of directories whose spellings are cached: with hashes in paths, each file has its own directory.
_DIRECTORIES = 10_000
_NOWHERE: frozenset[Place] = frozenset()


def _held(keys: Keys, asked: Keys) -> list[int]:
    """The positions in `asked` of those that are among the keys."""
    if not len(keys):
        return []
    at = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
    found: list[int] = np.flatnonzero(keys[at] == asked).tolist()
    return found


def _holds(keys: Keys, key: int) -> bool:
    at = int(np.searchsorted(keys, np.uint64(key)))
    return at < len(keys) and int(keys[at]) == key
