"""Finding files by normalised path among paths in any spelling."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from amoro_core.model.paths import normalise

T = TypeVar("T")
Ids = npt.NDArray[np.int64]
#: The numbers of names in ascending order, and the indexes of their paths.
_Sorted = tuple[Ids, Ids]

#: So few paths are looked at one by one: a function of Arrow takes as long to begin.
FEW = 50
_SCHEMES = ("s3", "s3a", "s3n", "gs", "gcs", "oss", "abfs", "abfss", "wasb", "wasbs", "hdfs", "viewfs")
_LOCAL = r"(?:/(?:[^/.][^/]*|\.[^/]+))+"
#: The usual spellings of paths, by what they begin with: two paths in the same one name the same file only if they are
#: equal, and their normalised forms differ from them at the beginning alone.
_WAYS = {
    "": _LOCAL,
    "file:": f"file:{_LOCAL}",
    "file://": f"file://{_LOCAL}",
    **{f"{scheme}://": f"(?s:{scheme}://.*[^/])" for scheme in _SCHEMES},
}


class Paths:
    """Paths that never change, with answers about them that are looked for once. For several threads."""

    def __init__(self, array: pa.Array) -> None:
        self.array = array
        self._answers: dict[Callable[[Any], Any], Any] = {}

    def once(self, ask: Callable[[pa.Array], T]) -> T:
        """The function's answer about the paths."""
        if ask not in self._answers:
            self._answers[ask] = ask(self.array)
        found: T = self._answers[ask]
        return found


class Names:
    """Normalised paths of files in several parts, each part in any spelling."""

    def __init__(self, parts: Iterable[Paths]) -> None:
        self._parts = tuple(parts)
        self._starts = np.cumsum([0, *(len(one.array) for one in self._parts)])
        self._known: _Sorted | None = None

    def follow(self, before: "Names") -> None:
        """Take over how the paths of `before` are sorted, if its parts are all here, in a row at the beginning or the
        end; nothing else changes."""
        size = len(before._parts)
        shifts = (0, len(self._parts) - size)
        first = next((at for at in shifts if at >= 0 and self._parts[at : at + size] == before._parts), None)
        if first is None or before._known is None:
            return
        numbers, order = before._known
        new, files = self._merged((*range(first), *range(first + size, len(self._parts))))
        places = np.searchsorted(numbers, new)
        self._known = np.insert(numbers, places, new), np.insert(order + self._starts[first], places, files)

    def find(self, names: Sequence[str]) -> tuple[Ids, Ids]:
        """The indexes of the paths whose normalised form is among the distinct names, and the indexes of these."""
        numbers, order = self._sorted
        wanted = np.array([hash(name) for name in names], np.int64)
        first, behind = (np.searchsorted(numbers, wanted, side) for side in ("left", "right"))
        found = [
            (file, at)
            for at in np.flatnonzero(behind > first).tolist()
            for file in order[first[at] : behind[at]].tolist()
            if self._name(file) == names[at]
        ]
        both = np.array(found, np.int64).reshape(-1, 2)
        return both[:, 0], both[:, 1]

    def parts_of(self, ids: Ids) -> list[int]:
        """The indexes of the parts that have the paths at these indexes, each once."""
        found: list[int] = np.unique(np.searchsorted(self._starts, ids, "right") - 1).tolist()
        return found

    def repeated(self) -> str | None:
        """A name that occurs more than once; None without one."""
        numbers, order = self._sorted
        alike = np.flatnonzero(numbers[1:] == numbers[:-1])
        counts = Counter(self._name(int(order[at])) for at in sorted({*alike.tolist(), *(alike + 1).tolist()}))
        return next((name for name, count in counts.items() if count > 1), None)

    @property
    def _sorted(self) -> _Sorted:
        if self._known is None:
            self._known = self._merged(range(len(self._parts)))
        return self._known

    def _merged(self, parts: Iterable[int]) -> _Sorted:
        numbers, files = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for at in parts:
            run, rows = self._parts[at].once(_sorted_numbers)
            numbers.append(run)
            files.append(rows + self._starts[at])
        found = np.concatenate(numbers)
        order = np.argsort(found, kind="stable")  # merges what is sorted already
        return found[order], np.concatenate(files)[order]

    def _name(self, at: int) -> str:
        part = int(np.searchsorted(self._starts, at, "right")) - 1
        return normalise(self._parts[part].array[at - int(self._starts[part])].as_py())


def numbered(paths: pa.Array) -> Ids:
    """A number for the normalised form of each path: two paths have the same if they name the same file, and hardly
    ever otherwise."""
    way = None if len(paths) <= FEW else _way_of(paths)
    if way is None:
        return np.fromiter(map(hash, map(normalise, paths.to_pylist())), np.int64, len(paths))
    if (begin := "" if way.startswith("file:") else normalise(f"{way}x").removesuffix("x")) != way:
        paths = pc.binary_join_element_wise(begin, pc.utf8_slice_codeunits(paths, len(way)), "")
    return np.fromiter(map(hash, paths.to_pylist()), np.int64, len(paths))


def _sorted_numbers(paths: pa.Array) -> tuple[Ids, npt.NDArray[np.int32]]:
    """The numbers of paths in ascending order, and the indexes of their paths."""
    numbers = numbered(paths)
    order = np.argsort(numbers, kind="stable")
    return numbers[order], order.astype(np.int32)


def _way_of(paths: pa.Array) -> str | None:
    """What all of the paths begin with, if they are spelled in one of the usual ways."""
    first = paths[0].as_py() if len(paths) else None
    way = next((begin for begin, way in _WAYS.items() if first is not None and re.fullmatch(way, first)), None)
    if way is None or not pc.all(pc.match_substring_regex(paths, f"^{_WAYS[way]}$")).as_py():
        return None
    return way
