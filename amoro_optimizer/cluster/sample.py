"""A sample of live rows that depends on the rows alone: not on batches, nor on the order in which they come."""

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from amoro_core.files.hashing import mixed
from amoro_optimizer.cluster.values import Part, Words, arrow_part, taken

#: Rows of a sample: at least so many for each output, and in all.
ROWS_FOR_OUTPUT, LEAST_ROWS = 1000, 20_000
#: What the keys of a sample take at most.
MOST_BYTES = 32 << 20

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
#: Bits of a row's position in its file; those above have the file's number.
_POSITION_BITS = 40
_HASH, _PLACE, _LIMIT = "hash", "place", b"limit"


def sample_rows(outputs: int) -> int:
    """How many rows are to be sampled for so many outputs."""
    return max(LEAST_ROWS, ROWS_FOR_OUTPUT * outputs)


def places_of(file_number: int, positions: npt.NDArray[np.int64]) -> Words:
    """Where rows stand in the work: by the number of their file, then by their position in it."""
    return (positions + (file_number << _POSITION_BITS)).astype(np.uint64)


def row_hashes(path: str, positions: npt.NDArray[np.int64], seed: int) -> Words:
    """A hash of each row by its file, its position there, and the seed; no two rows of a file have the same."""
    told = hashlib.blake2b(path.encode("utf-8", "surrogateescape"), digest_size=8, key=seed.to_bytes(8, "big"))
    return _spread(positions.astype(np.uint64), int.from_bytes(told.digest(), "big"))


def place_hashes(places: Words, seed: int) -> Words:
    """A hash of each place, and the seed."""
    return _spread(places, seed)


def _spread(numbers: Words, base: int) -> Words:
    return mixed(numbers * _GAMMA + np.uint64(base))


class Sample:
    """Of all rows that were added those with the least hashes: as many as are wanted, and as the bytes allow.

    Samples of parts of the rows, joined, are the sample of all.
    """

    def __init__(self, rows: int, most_bytes: int = MOST_BYTES) -> None:
        """At least one row is kept, however large."""
        self._rows = rows
        self._most_bytes = most_bytes
        self._kept: list[pa.Table] = []
        self._kept_rows = 0
        self._kept_bytes = 0
        self._limit = np.uint64(2**64 - 1)  # of the first row that was left out

    def wanted(self, hashes: Words) -> npt.NDArray[np.int64]:
        """Which of the rows that are chosen by these may be in the sample."""
        return np.flatnonzero(hashes <= self._limit)

    def add(self, hashes: Words, places: Words, parts: Sequence[Part]) -> None:
        """Rows: what each is chosen by, its place, which no other has, and its parts."""
        chosen = self.wanted(hashes)
        if len(chosen):
            columns = [hashes[chosen], places[chosen], *(taken(part, chosen) for part in parts)]
            self.join(_table(columns))

    def join(self, other: pa.Table) -> None:
        """The rows of another sample."""
        told = (other.schema.metadata or {}).get(_LIMIT)
        if told is not None:
            self._limit = min(self._limit, np.uint64(int(told)))
        self._kept.append(other.replace_schema_metadata())
        self._kept_rows += other.num_rows
        self._kept_bytes += other.nbytes
        if self._kept_rows > 2 * self._rows or self._kept_bytes > 2 * self._most_bytes:
            self._shrink()

    def table(self) -> pa.Table | None:
        """The sample, by hash: columns hash, place and the parts; None where no row was added."""
        if not self._kept:
            return None
        self._shrink()
        return self._kept[0].replace_schema_metadata({_LIMIT: str(self._limit)})

    def _shrink(self) -> None:
        every = pa.concat_tables(self._kept)
        hashes, places = every.column(_HASH).to_numpy(), every.column(_PLACE).to_numpy()
        order = np.lexsort((places, hashes))
        order = order[hashes[order] <= self._limit]
        widths = np.cumsum(np.sum([_widths(column) for column in every.columns], axis=0)[order[: self._rows]])
        count = max(1, int(np.searchsorted(widths, self._most_bytes, side="right")))
        if count < len(order):
            self._limit = hashes[order[count]]
        kept = every.take(pa.array(order[:count])).combine_chunks()
        self._kept, self._kept_rows, self._kept_bytes = [kept], kept.num_rows, kept.nbytes


def sampled_parts(table: pa.Table) -> tuple[list[pa.ChunkedArray], pa.ChunkedArray]:
    """The parts of a sample's rows, and their places."""
    return table.columns[2:], table.column(_PLACE)


def _table(columns: Sequence[Part]) -> pa.Table:
    names = [_HASH, _PLACE, *(f"part_{number}" for number in range(len(columns) - 2))]
    return pa.table([arrow_part(column) for column in columns], names=names)


def _widths(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    if not pa.types.is_binary(column.type):
        return np.full(len(column), 8, np.int64)
    lengths: npt.NDArray[np.int64] = pc.binary_length(column).to_numpy().astype(np.int64)
    return lengths + 8
