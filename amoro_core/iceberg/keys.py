"""Paths as keys: eight bytes each instead of a text, in sorted columns, so that a million of them are small."""

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
    """The key of one spelling, the same on every machine. Two that share a key count as one: it only keeps files."""
    return int.from_bytes(blake2b(spelling.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def keys_of(paths: Iterable[str]) -> Keys:
    """The keys of all spellings under which these paths are looked for, sorted, each once."""
    spelled = _Spelled()
    return np.unique(np.fromiter((key for path in paths for key in spelled(path)), np.uint64))


def merged(parts: Iterable[Keys]) -> Keys:
    """The keys of all parts, sorted, each once."""
    return np.unique(np.concatenate([NO_KEYS, *parts]))


def seeking(keys: Keys) -> Callable[[str], bool]:
    """Whether a path has one of the keys, in any of its spellings; `keys` are sorted."""
    spelled = _Spelled()

    def is_found(path: str) -> bool:
        return any(_holds(keys, key) for key in spelled(path))

    return is_found


def seeking_places(columns: Mapping[Place, Keys]) -> Callable[[Sequence[str]], list[frozenset[Place]]]:
    """In which of the places' keys, which are sorted, each of many paths has one, in any of its spellings."""
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
    """The keys of a path's spellings; those of its directory are kept, of which there are few."""

    def __init__(self) -> None:
        self._directories: dict[str, tuple[str, ...]] = {}

    def __call__(self, path: str) -> list[int]:
        directory, _, name = path.rpartition("/")
        if not name.isascii() or "%" in name or name in ("", ".", ".."):
            return [key_of(spelling) for spelling in looser_spellings(path)]
        known = self._directories.get(directory)
        if known is None:
            if len(self._directories) >= _DIRECTORIES:
                self._directories.clear()
            known = tuple(f"{one.rstrip('/')}/" for one in looser_spellings(directory or "/"))
            self._directories[directory] = known
        return [key_of(one + name) for one in known]


#: Directories of which the spellings are kept: with hashes in their paths, files have one each.
_DIRECTORIES = 10_000
_NOWHERE: frozenset[Place] = frozenset()


def _held(keys: Keys, asked: Keys) -> list[int]:
    """The positions of those asked for that are among the keys."""
    if not len(keys):
        return []
    at = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
    found: list[int] = np.flatnonzero(keys[at] == asked).tolist()
    return found


def _holds(keys: Keys, key: int) -> bool:
    at = int(np.searchsorted(keys, np.uint64(key)))
    return at < len(keys) and int(keys[at]) == key
