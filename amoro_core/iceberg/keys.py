"""Paths as keys: eight bytes each instead of a text, in sorted columns, so that a million of them are small."""

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from amoro_core.model.paths import looser_spellings

Keys = NDArray[np.uint64]
NO_KEYS: Keys = np.empty(0, np.uint64)


def key_of(spelling: str) -> int:
    """The key of one spelling, the same on every machine. Two that share a key count as one: it only keeps files."""
    return int.from_bytes(blake2b(spelling.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def keys_of(paths: Iterable[str]) -> Keys:
    """The keys of all spellings under which these paths are looked for, sorted, each once."""
    every = (key_of(spelling) for path in paths for spelling in looser_spellings(path))
    return np.unique(np.fromiter(every, np.uint64))


def merged(parts: Iterable[Keys]) -> Keys:
    """The keys of all parts, sorted, each once."""
    return np.unique(np.concatenate([NO_KEYS, *parts]))


def seeking(keys: Keys) -> Callable[[str], bool]:
    """Whether a path has one of the keys, in any of its spellings; `keys` are sorted."""

    def is_found(path: str) -> bool:
        return any(_holds(keys, key_of(spelling)) for spelling in looser_spellings(path))

    return is_found


def seeking_many(keys: Keys) -> Callable[[Sequence[str]], list[bool]]:
    """The same of many paths at a time."""

    def are_found(paths: Sequence[str]) -> list[bool]:
        spelled = [(at, key_of(spelling)) for at, path in enumerate(paths) for spelling in looser_spellings(path)]
        found = np.isin(np.fromiter((key for _, key in spelled), np.uint64), keys, kind="sort") if spelled else ()
        answers = [False] * len(paths)
        for (at, _), is_found in zip(spelled, found, strict=True):
            answers[at] = answers[at] or bool(is_found)
        return answers

    return are_found


def _holds(keys: Keys, key: int) -> bool:
    at = int(np.searchsorted(keys, np.uint64(key)))
    return at < len(keys) and int(keys[at]) == key
