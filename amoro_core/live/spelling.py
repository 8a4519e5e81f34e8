"""Finding files by normalised path among paths in any spelling."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from amoro_core.model import mixed_files
from amoro_core.model.mixed_files import is_mixed
from amoro_core.model.paths import normalise
from amoro_core.records import record

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

#: Names that need a look.
_TOLD = rf"^(?:\.{{0,2}}|{mixed_files.NAME})$"


@record
class Shape:
    """What tells most about paths: their directories, which are few, and the few whose names need a look."""

    directories: tuple[str, ...]  # distinct, with the slash at their end; a path without one stands for itself
    odd: tuple[str, ...]  # paths without a directory, with the name "", "." or "..", or with a NUL
    mixed: int  # how many files are named as those of Amoro's Mixed format
    first_mixed: str | None  # the path of the first of them
    way: str | None  # what all paths begin with if they are spelled in one of the usual ways


class Paths:
    """Paths that never change, with answers about them that are looked for once. For several threads."""

    def __init__(self, array: pa.Array, shape: Shape | None = None) -> None:
        """`shape`: how they are spelled, if that is known."""
        self.array = array
        self._answers: dict[Callable[[Any], Any], Any] = {} if shape is None else {shape_of: shape}

    def once(self, ask: Callable[[pa.Array], T]) -> T:
        """The function's answer about the paths."""
        if ask not in self._answers:
            self._answers[ask] = ask(self.array)
        found: T = self._answers[ask]
        return found

    @property
    def shape(self) -> Shape:
        """How the paths are spelled."""
        return self.once(shape_of)

    @cached_property
    def sorted_numbers(self) -> tuple[Ids, npt.NDArray[np.int32]]:
        """The numbers of the paths in ascending order, and the indexes of their paths."""
        numbers = numbered(self)
        order = np.argsort(numbers, kind="stable")
        return numbers[order], order.astype(np.int32)


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
            run, rows = self._parts[at].sorted_numbers
            numbers.append(run)
            files.append(rows + self._starts[at])
        found = np.concatenate(numbers)
        order = np.argsort(found, kind="stable")  # merges what is sorted already
        return found[order], np.concatenate(files)[order]

    def _name(self, at: int) -> str:
        part = int(np.searchsorted(self._starts, at, "right")) - 1
        return normalise(self._parts[part].array[at - int(self._starts[part])].as_py())


def numbered(paths: Paths) -> Ids:
    """A number for the normalised form of each path: two paths have the same if they name the same file, and hardly
    ever otherwise."""
    names: Iterable[str] = paths.array.to_pylist()
    way = paths.shape.way
    if way is None:
        names = map(normalise, names)
    elif (begin := "" if way.startswith("file:") else normalise(f"{way}x").removesuffix("x")) != way:
        cut = len(way)  # in a third of the time that Arrow's functions take
        names = [begin + name[cut:] for name in names]
    return np.fromiter(map(hash, names), np.int64, len(paths.array))


def shape_of(paths: pa.Array) -> Shape:
    """How the paths are spelled; for few paths, or with odd ones, the way is not looked for."""
    cut = None if len(paths) <= FEW else pc.split_pattern(paths, "/", max_splits=1, reverse=True)
    if cut is None or pc.min(pc.list_value_length(cut)).as_py() < 2:
        rows = paths.to_pylist()
        return _shape(dict.fromkeys(path[: path.rfind("/") + 1] or path for path in rows), rows, None)
    directories = pc.unique(pc.list_element(cut, 0))
    told = paths if _has_nul(paths) else paths.filter(pc.match_substring_regex(pc.list_element(cut, 1), _TOLD))
    return _shape((f"{one}/" for one in directories.to_pylist()), told.to_pylist(), _way_of(directories))


def _shape(directories: Iterable[str], told: Sequence[str], way: str | None) -> Shape:
    """The shape of paths in these directories, told by those that need a look; their way if none of them is odd."""
    odd, mixed = tuple(filter(_is_odd, told)), tuple(filter(is_mixed, told))
    # The paths of a whole table of the Mixed format would be too many to keep.
    return Shape(tuple(directories), odd, len(mixed), next(iter(mixed), None), None if odd else way)


def _is_odd(path: str) -> bool:
    return "/" not in path or path.rpartition("/")[2] in ("", ".", "..") or "\0" in path


def _has_nul(paths: pa.Array) -> bool:
    _, ends, text = paths.buffers()
    places = np.frombuffer(ends, np.int32)[paths.offset : paths.offset + len(paths) + 1]
    return not np.frombuffer(text, np.uint8)[places[0] : places[-1]].all()


def _way_of(directories: pa.Array) -> str | None:
    """What all directories begin with, if paths in them are spelled in one of the usual ways."""
    files = pc.binary_join_element_wise(directories, "x", "/")
    first = files[0].as_py()
    way = next((begin for begin, way in _WAYS.items() if re.fullmatch(way, first)), None)
    if way is None or not pc.all(pc.match_substring_regex(files, f"^{_WAYS[way]}$")).as_py():
        return None
    return way
