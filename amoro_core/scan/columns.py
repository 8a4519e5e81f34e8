"""Columns of live files: paths, packed metrics, and an index of paths in any spelling."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from amoro_core.model.clustering import ENDING, is_mixed
from amoro_core.model.files import ColumnMetrics, DataFile, FileFormat, Partition
from amoro_core.model.paths import normalise

T = TypeVar("T")
Ids = npt.NDArray[np.int64]

#: Up to this many paths are examined one by one: an Arrow function takes as long to start.
FEW = 50


@dataclass(frozen=True, slots=True)
class Shape:
    """A summary of paths: their directories, which are few, and the paths with unusual names."""

    directories: tuple[str, ...]  # distinct, with the slash at their end; a path without one stands for itself
    odd: tuple[str, ...]  # paths without a directory, with the name "", "." or "..", or with a NUL
    mixed: int  # how many files are named as those of Amoro's Mixed format
    first_mixed: str | None  # the path of the first of them


class Paths:
    """Immutable paths with cached properties. For several threads."""

    def __init__(self, array: pa.Array) -> None:
        self.array = array
        self._answers: dict[Callable[[Any], Any], Any] = {}

    def once(self, ask: Callable[[pa.Array], T]) -> T:
        """The function's answer about the paths."""
        if ask not in self._answers:
            self._answers[ask] = ask(self.array)
        result: T = self._answers[ask]
        return result

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
        self._starts = np.cumsum([0, *(len(paths.array) for paths in self._parts)])

    def find(self, names: Sequence[str]) -> tuple[Ids, Ids]:
        """The indexes of the paths whose normalised form is among the distinct names, and the indexes of these."""
        numbers, order = self._sorted
        wanted = np.array([hash(name) for name in names], np.int64)
        first, behind = (np.searchsorted(numbers, wanted, side) for side in ("left", "right"))
        pairs = [
            (file, at)
            for at in np.flatnonzero(behind > first).tolist()
            for file in order[first[at] : behind[at]].tolist()
            if self._name(file) == names[at]
        ]
        both = np.array(pairs, np.int64).reshape(-1, 2)
        return both[:, 0], both[:, 1]

    def parts_of(self, ids: Ids) -> list[int]:
        """The indexes of the parts that have the paths at these indexes, each once."""
        result: list[int] = np.unique(np.searchsorted(self._starts, ids, "right") - 1).tolist()
        return result

    def repeated(self) -> str | None:
        """A name that occurs more than once; None without one."""
        numbers, order = self._sorted
        alike = np.flatnonzero(numbers[1:] == numbers[:-1])
        counts = Counter(self._name(int(order[at])) for at in sorted({*alike.tolist(), *(alike + 1).tolist()}))
        return next((name for name, count in counts.items() if count > 1), None)

    @cached_property
    def _sorted(self) -> tuple[Ids, Ids]:
        """The numbers of all names in ascending order, and the indexes of their paths."""
        runs = [part.sorted_numbers for part in self._parts]
        files = [rows + start for (_, rows), start in zip(runs, self._starts, strict=False)]
        numbers = np.concatenate([np.empty(0, np.int64), *(run for run, _ in runs)])
        order = np.argsort(numbers, kind="stable")  # merges what is sorted already
        return numbers[order], np.concatenate([np.empty(0, np.int64), *files])[order]

    def _name(self, at: int) -> str:
        part = int(np.searchsorted(self._starts, at, "right")) - 1
        return normalise(self._parts[part].array[at - int(self._starts[part])].as_py())


def numbered(paths: Paths) -> Ids:
    """A number for the normalised form of each path: two paths have the same if they name the same file, and hardly
    ever otherwise."""
    return np.fromiter(map(hash, map(normalise, paths.array.to_pylist())), np.int64, len(paths.array))


def shape_of(paths: pa.Array) -> Shape:
    """The shape of the paths."""
    rows = paths.to_pylist()
    directories = dict.fromkeys(path[: path.rfind("/") + 1] or path for path in rows)
    mixed = list(filter(is_mixed, rows))
    # The paths of a whole table of the Mixed format would be too many to keep.
    return Shape(tuple(directories), tuple(filter(_is_odd, rows)), len(mixed), next(iter(mixed), None))


def _is_odd(path: str) -> bool:
    return "/" not in path or path.rpartition("/")[2] in ("", ".", "..") or "\0" in path


#: Reads the number or bytes at an offset, and returns it with the offset of its end.
Read = Callable[[bytes, int], tuple[Any, int]]

_NONE = b"\x00"
#: The continuation bit: set in all bytes of a number but the last.
_MORE = 0x80


class PackedMap(Mapping[int, Any]):
    """Numbers or bytes by field id, unpacked on each access."""

    __slots__ = ("_read", "packed")

    def __init__(self, packed: bytes, read: Read) -> None:
        self.packed = packed
        self._read = read

    def __getitem__(self, key: int) -> Any:
        return self._unpacked()[key]

    def __iter__(self) -> Iterator[int]:
        return iter(self._unpacked())

    def __len__(self) -> int:
        return len(self._unpacked())

    def __repr__(self) -> str:
        return repr(self._unpacked())

    def items(self) -> Any:
        """The pairs, unpacked once."""
        return self._unpacked().items()

    def _unpacked(self) -> dict[int, Any]:
        return _read_map(self.packed, 0, self._read)[0]


class PackedMetrics(ColumnMetrics):
    """Metrics that are unpacked all at once on first access."""

    __slots__ = ("packed",)
    packed: bytes

    def __init__(self, packed: bytes) -> None:
        object.__setattr__(self, "packed", packed)

    def __getattr__(self, name: str) -> Any:
        # Called while the fields are still slots without a value.
        if name not in _FIELDS:
            raise AttributeError(name)
        at = 0
        for name_, read in _FIELDS.items():
            values, at = _read_map(self.packed, at, read)
            object.__setattr__(self, name_, values)
        return object.__getattribute__(self, name)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ColumnMetrics):
            return NotImplemented
        return all(getattr(self, field) == getattr(other, field) for field in _FIELDS)

    __hash__ = ColumnMetrics.__hash__


def pack_metrics(metrics: ColumnMetrics) -> bytes:
    """The metrics in the form that `PackedMetrics` takes."""
    if isinstance(metrics, PackedMetrics):
        return metrics.packed
    return b"".join(pack_map(getattr(metrics, field)) for field in _FIELDS)


def pack_map(values: Mapping[int, Any] | None) -> bytes:
    """The map in the form that `PackedMap` takes; None is packed as an empty one."""
    if isinstance(values, PackedMap):
        return values.packed
    if not values:
        return _NONE
    pairs = (_number(key) + _value(value) for key, value in values.items())
    return b"".join((_number(len(values)), *pairs, _NONE))


def pack_numbers(numbers: Sequence[int]) -> bytes:
    """The numbers, packed one after the other."""
    return b"".join(map(_number, numbers))


def unpack_numbers(packed: bytes) -> tuple[int, ...]:
    """What `pack_numbers` packed."""
    if packed.isascii():  # each in one byte
        return tuple([(number >> 1) ^ -(number & 1) for number in packed])
    result, at = [], 0
    while at < len(packed):
        number, at = read_number(packed, at)
        result.append(number)
    return tuple(result)


def read_number(data: bytes, at: int) -> tuple[int, int]:
    """The number at that offset, in Avro's encoding, and the offset of its end."""
    value = shift = 0
    while data[at] >= _MORE:
        value |= (data[at] & ~_MORE) << shift
        shift += 7
        at += 1
    value |= data[at] << shift
    return (value >> 1) ^ -(value & 1), at + 1


def read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    """The length-prefixed bytes at that offset, and the offset of their end."""
    size, at = read_number(data, at)
    return data[at : at + size], at + size


def _read_map(data: bytes, at: int, read: Read) -> tuple[dict[int, Any], int]:
    result: dict[int, Any] = {}
    while True:
        count, at = read_number(data, at)
        if count == 0:
            return result, at
        if count < 0:  # the size of the block follows
            count = -count
            _, at = read_number(data, at)
        for _ in range(count):
            key, at = read_number(data, at)
            result[key], at = read(data, at)


def _value(value: int | bytes) -> bytes:
    return _number(value) if isinstance(value, int) else _number(len(value)) + value


def _number(value: int) -> bytes:
    rest = value << 1 if value >= 0 else ~value << 1 | 1
    done = bytearray()
    while rest >= _MORE:
        done.append(rest & ~_MORE & 0xFF | _MORE)
        rest >>= 7
    done.append(rest)
    return bytes(done)


#: The metrics in the order in which they are packed.
_FIELDS: dict[str, Read] = {
    "column_sizes": read_number,
    "value_counts": read_number,
    "null_value_counts": read_number,
    "nan_value_counts": read_number,
    "lower_bounds": read_bytes,
    "upper_bounds": read_bytes,
}


Place = tuple[int, Partition]  # spec and partition
Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

#: The columns of a part.
SCHEMA = pa.schema(
    [
        ("paths", pa.string()),
        ("place", pa.int32()),
        ("records", pa.int64()),
        ("sizes", pa.int64()),
        ("numbers", pa.int64()),
        ("formats", pa.int8()),
        ("layouts", pa.binary()),
        ("metrics", pa.binary()),
    ]
)
_FORMATS = tuple(FileFormat)
#: Stands for no sort order and for no first row id.
NONE = -1


def format_code(file_format: FileFormat) -> int:
    """How the column `formats` names the format."""
    return _FORMATS.index(file_format)


@dataclass(frozen=True)
class DataColumns:
    """The columns that matching and planning need of every data file, all of equal length."""

    paths: pa.ChunkedArray  # of strings
    places: tuple[Place, ...]  # distinct
    place: npt.NDArray[np.int32]  # the index of the file's place
    records: Numbers
    sizes: Numbers
    numbers: Numbers  # data sequence numbers
    row: Callable[[int], DataFile]
    parts: tuple[Paths, ...]  # the paths, part by part

    def __len__(self) -> int:
        return len(self.place)

    @cached_property
    def names(self) -> Names:
        """The files by their normalised paths."""
        return Names(self.parts)

    @cached_property
    def by_place(self) -> tuple[Ids, Numbers]:
        """The files' indexes by place, those of one place in their order; where each place begins, and the end."""
        order = np.argsort(self.place, kind="stable")
        return order, np.searchsorted(self.place[order], np.arange(len(self.places) + 1))

    @cached_property
    def copied(self) -> Mask:
        """Which files are named as copies of small row groups."""
        copied = [part.once(_copied) for part in self.parts]
        return np.concatenate([np.empty(0, np.bool_), *copied])

    @cached_property
    def _starts(self) -> Numbers:
        """The index of the first path of each chunk, and the end."""
        return np.cumsum([0, *map(len, self.paths.chunks)])

    def paths_of(self, ids: Ids) -> pa.ChunkedArray:
        """The paths at those indexes, in that order."""
        if 2 * len(ids) >= len(self):
            return self.paths.take(pa.array(ids))
        # Arrow takes from many chunks by copying all of them first.
        starts = self._starts
        owners = np.searchsorted(starts, ids, "right") - 1
        order = np.argsort(owners, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(owners[order])) + 1) if len(ids) else []
        chunks = [(int(owners[group[0]]), group) for group in groups]
        values = [self.paths.chunk(at).take(pa.array(ids[group] - starts[at])) for at, group in chunks]
        back = np.empty(len(ids), np.int64)
        back[order] = np.arange(len(ids))
        return pa.chunked_array(values, pa.string()).take(pa.array(back))

    def order(self) -> npt.NDArray[np.int64]:
        """The files' indexes by sequence number and path."""
        table = pa.table({"number": self.numbers, "path": self.paths})
        by = [("number", "ascending"), ("path", "ascending")]
        return np.asarray(pc.sort_indices(table, sort_keys=by), np.int64)


def _copied(paths: pa.Array) -> Mask:
    return np.asarray(pc.ends_with(paths, ENDING), np.bool_)


def columns_of(files: Iterable[DataFile]) -> DataColumns:
    """The columns of existing rows, which are kept."""
    rows = tuple(files)
    codes: dict[Place, int] = {}
    place = [codes.setdefault((file.spec_id, file.partition), len(codes)) for file in rows]
    paths = pa.array([file.path for file in rows], pa.string())
    return DataColumns(
        paths=pa.chunked_array([paths]),
        places=tuple(codes),
        place=np.array(place, np.int32),
        records=np.array([file.record_count for file in rows], np.int64),
        sizes=np.array([file.size_bytes for file in rows], np.int64),
        numbers=np.array([file.sequence_number for file in rows], np.int64),
        row=rows.__getitem__,
        parts=(Paths(paths),),
    )


@dataclass(frozen=True)
class ColumnPart:
    """The files of one part in columns, as `SCHEMA` has them; the column `place` holds indexes of `places`."""

    places: tuple[Place, ...]
    batch: pa.RecordBatch

    @cached_property
    def columns(self) -> Mapping[str, pa.Array]:
        return {field.name: self.batch.column(field.name) for field in SCHEMA}

    @cached_property
    def paths(self) -> Paths:
        return Paths(self.columns["paths"])

    @cached_property
    def size_bytes(self) -> int:
        """How much memory the columns take."""
        return int(self.batch.nbytes)


@dataclass(slots=True)
class OpenPart:
    """Files that are gathered for a part."""

    codes: dict[Place, int] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)
    place: list[int] = field(default_factory=list)
    records: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    formats: list[int] = field(default_factory=list)
    layouts: list[bytes] = field(default_factory=list)  # sort order, first row id, then split offsets
    metrics: list[bytes] = field(default_factory=list)

    def ended(self) -> ColumnPart:
        """The files in columns, a few hundred bytes each."""
        arrays = [pa.array(getattr(self, field.name), field.type) for field in SCHEMA]
        return ColumnPart(tuple(self.codes), pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))


class Gathering:
    """Gathers columns from rows that are not kept, one part after the other."""

    def __init__(self) -> None:
        self._codes: dict[Place, int] = {}
        self._last: tuple[tuple[Place, ...], npt.NDArray[np.int32]] = (), np.empty(0, np.int32)
        self._part = OpenPart()
        self._done: list[dict[str, pa.Array]] = []
        self._paths: list[Paths] = []

    def add(self, file: DataFile) -> None:
        """Add a file; packed metrics stay packed."""
        part = self._part
        part.paths.append(file.path)
        part.place.append(part.codes.setdefault((file.spec_id, file.partition), len(part.codes)))
        part.records.append(file.record_count)
        part.sizes.append(file.size_bytes)
        part.numbers.append(file.sequence_number)
        part.formats.append(format_code(file.file_format))
        order = NONE if file.sort_order_id is None else file.sort_order_id
        row_id = NONE if file.first_row_id is None else file.first_row_id
        part.layouts.append(pack_numbers((order, row_id, *file.split_offsets)))
        part.metrics.append(pack_metrics(file.metrics))

    def end_part(self) -> ColumnPart:
        """Convert the files since the last part to columns, a few hundred bytes each; returns the part."""
        part, self._part = self._part, OpenPart()
        ended = part.ended()
        self.take(ended)
        return ended

    def take(self, part: ColumnPart) -> None:
        """Add all files of a part."""
        places, codes = self._last
        if places is not part.places:  # parts that come one after the other may share them
            codes = np.array([self._codes.setdefault(place, len(self._codes)) for place in part.places], np.int32)
            self._last = part.places, codes
        place = pa.array(codes[part.columns["place"].to_numpy()], pa.int32())
        self._done.append({**part.columns, "place": place})
        self._paths.append(part.paths)

    def columns(self) -> DataColumns:
        """The columns of all files added."""
        if self._part.paths:
            self.end_part()
        parts, self._done = self._done, []
        paths, self._paths = tuple(self._paths), []
        packed = {field.name: pa.chunked_array([part[field.name] for part in parts], field.type) for field in SCHEMA}
        numbers = {name: packed.pop(name).to_numpy() for name in ("place", "records", "sizes", "numbers")}
        formats = packed.pop("formats").to_numpy()
        places = tuple(self._codes)

        def row(at: int) -> DataFile:
            spec_id, partition = places[numbers["place"][at]]
            order, row_id, *offsets = unpack_numbers(packed["layouts"][at].as_py())
            return DataFile(
                path=packed["paths"][at].as_py(),
                file_format=_FORMATS[formats[at]],
                spec_id=spec_id,
                partition=partition,
                record_count=int(numbers["records"][at]),
                size_bytes=int(numbers["sizes"][at]),
                sequence_number=int(numbers["numbers"][at]),
                metrics=PackedMetrics(packed["metrics"][at].as_py()),
                sort_order_id=None if order == NONE else order,
                first_row_id=None if row_id == NONE else row_id,
                split_offsets=tuple(offsets),
            )

        return DataColumns(paths=packed["paths"], places=places, row=row, parts=paths, **numbers)
