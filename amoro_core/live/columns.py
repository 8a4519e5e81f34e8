"""Data files in columnar form; a row is made on access."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from amoro_core.live.packing import PackedMetrics, pack_metrics, pack_numbers, unpack_numbers
from amoro_core.live.spelling import Names, Paths, Shape
from amoro_core.model.copied_files import ENDING
from amoro_core.model.files import DataFile, FileFormat, Partition

Place = tuple[int, Partition]  # spec and partition
Numbers = npt.NDArray[np.int64]
Ids = npt.NDArray[np.int64]  # indexes into columns
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
        found = [part.once(_copied) for part in self.parts]
        return np.concatenate([np.empty(0, np.bool_), *found])

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
        which = np.searchsorted(starts, ids, "right") - 1
        order = np.argsort(which, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(which[order])) + 1) if len(ids) else []
        chunks = [(int(which[group[0]]), group) for group in groups]
        taken = [self.paths.chunk(at).take(pa.array(ids[group] - starts[at])) for at, group in chunks]
        back = np.empty(len(ids), np.int64)
        back[order] = np.arange(len(ids))
        return pa.chunked_array(taken, pa.string()).take(pa.array(back))

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
    shape: Shape | None = None  # of the paths, if it is known

    @cached_property
    def columns(self) -> Mapping[str, pa.Array]:
        """The columns by name."""
        return {one.name: self.batch.column(one.name) for one in SCHEMA}

    @cached_property
    def paths(self) -> Paths:
        """The files' paths."""
        return Paths(self.columns["paths"], self.shape)

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
        arrays = [pa.array(getattr(self, one.name), one.type) for one in SCHEMA]
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
            codes = np.array([self._codes.setdefault(one, len(self._codes)) for one in part.places], np.int32)
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
        packed = {one.name: pa.chunked_array([part[one.name] for part in parts], one.type) for one in SCHEMA}
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
