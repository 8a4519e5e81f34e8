"""An index of deleted keys for many lookups: exact, vectorised, for any set of key columns."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from amoro_core.files.deletes.delete_files import KeyTable
from amoro_core.files.hashing import Hashes, key_hashes
from amoro_optimizer.rewrite.spilling import Partitions, spill_directory

Mask = npt.NDArray[np.bool_]
Levels = npt.NDArray[np.int32]
KeyColumns = Sequence[pa.Array]
#: Minimum and maximum of each key column; None if it has nulls or is not numeric.
Ranges = Sequence[tuple[int, int] | None]

#: The level of a row whose key is not among the deleted ones.
ABSENT = np.int32(np.iinfo(np.int32).max)

#: From this size on, sorting the rows first is cheaper than random access to the keys.
_SORT_FROM = 4096


class HashFilter:
    """A Bloom filter of hashes with a fixed size: false positives are possible, false negatives are not."""

    def __init__(self, expected: int, most_bytes: int) -> None:
        wanted = 1 << max(10, int(expected).bit_length() + 1)  # bytes: 16 to 32 bits for each hash
        size = min(wanted, 1 << max(10, int(most_bytes).bit_length() - 1))
        self._bits = np.zeros(size, np.uint8)
        self._shift = np.uint64(64 - (size.bit_length() - 1))

    @property
    def nbytes(self) -> int:
        """The size of the filter."""
        return int(self._bits.nbytes)

    def add(self, hashes: Hashes) -> None:
        """Add hashes."""
        place, bit = self._places(hashes)
        np.bitwise_or.at(self._bits, place, bit)

    def may_hold(self, hashes: Hashes) -> Mask:
        """For each hash, whether it may have been added."""
        place, bit = self._places(hashes)
        found: Mask = (self._bits[place] & bit) != 0
        return found

    def _places(self, hashes: Hashes) -> tuple[Hashes, npt.NDArray[np.uint8]]:
        # The lowest bits are those of partitions, the highest make the place.
        bit = np.left_shift(np.uint8(1), ((hashes >> np.uint64(8)) & np.uint64(7)).astype(np.uint8))
        return hashes >> self._shift, bit


@dataclass(frozen=True, slots=True)
class KeyIndex:
    """Keys sorted by hash; among equal keys the one with the lowest level comes first."""

    hashes: Hashes
    levels: Levels
    columns: tuple[pa.Array, ...]
    filter: HashFilter
    ranges: Ranges = ()

    def levels_of(self, rows: KeyColumns, hashes: Hashes | None = None) -> Levels:
        """The lowest level of each row's key, `ABSENT` where the key is not deleted. Null equals null.

        Each column of `rows` has the type of the same column of the keys; `hashes` are theirs, where known.
        """
        found: Levels = np.full(len(rows[0]), ABSENT, np.int32)
        if len(self.hashes) == 0 or len(found) == 0:
            return found
        own = key_hashes(rows) if hashes is None else hashes
        candidates = np.flatnonzero(self.filter.may_hold(own))
        if len(candidates) == 0:
            return found
        wanted = own[candidates]
        if len(candidates) >= _SORT_FROM:
            order = np.argsort(wanted)
            candidates, wanted = candidates[order], wanted[order]
        places = np.searchsorted(self.hashes, wanted)
        while len(candidates):
            within = places < len(self.hashes)
            within[within] = self.hashes[places[within]] == wanted[within]
            candidates, wanted, places = candidates[within], wanted[within], places[within]
            if len(candidates) == 0:
                break
            equal = self._equal(rows, candidates, places)
            found[candidates[equal]] = self.levels[places[equal]]
            # Different keys with the same hash are adjacent.
            candidates, wanted, places = candidates[~equal], wanted[~equal], places[~equal] + 1
        return found

    def _equal(self, rows: KeyColumns, candidates: npt.NDArray[np.intp], places: npt.NDArray[np.intp]) -> Mask:
        equal = np.ones(len(candidates), np.bool_)
        for row_column, key_column in zip(rows, self.columns, strict=True):
            left, right = row_column.take(pa.array(candidates)), key_column.take(pa.array(places))
            same = pc.fill_null(pc.equal(left, right), False)
            if left.null_count and right.null_count:
                same = pc.or_(same, pc.and_(left.is_null(), right.is_null()))
            equal &= same.to_numpy(zero_copy_only=False)
        return equal


def build_index(columns: KeyColumns, levels: Levels, most_filter_bytes: int) -> KeyIndex:
    """The index of keys with their levels; equal keys in the order of the sort are kept once."""
    hashes = key_hashes(columns)
    order = np.lexsort((levels, hashes))
    sorted_hashes, sorted_levels = hashes[order], levels[order]
    taken = tuple(column.take(pa.array(order)) for column in columns)
    first = _first_of_equals(sorted_hashes, taken)
    if not first.all():
        sorted_hashes, sorted_levels = sorted_hashes[first], sorted_levels[first]
        kept = pa.array(first)
        taken = tuple(column.filter(kept) for column in taken)
    found = HashFilter(len(sorted_hashes), most_filter_bytes)
    found.add(sorted_hashes)
    return KeyIndex(sorted_hashes, sorted_levels, taken, found, tuple(_range(column) for column in taken))


def _range(column: pa.Array) -> tuple[int, int] | None:
    if column.null_count or len(column) == 0 or not pa.types.is_integer(column.type):
        return None
    bounds = pc.min_max(column).as_py()
    return bounds["min"], bounds["max"]


def _first_of_equals(hashes: Hashes, columns: KeyColumns) -> Mask:
    """Where a key differs from the one before it; different keys with one hash are all kept."""
    first = np.ones(len(hashes), np.bool_)
    if len(hashes) < 2:
        return first
    repeated = hashes[1:] == hashes[:-1]
    places = np.flatnonzero(repeated) + 1
    if len(places) == 0:
        return first
    equal = np.ones(len(places), np.bool_)
    for column in columns:
        left, right = column.take(pa.array(places)), column.take(pa.array(places - 1))
        same = pc.fill_null(pc.equal(left, right), False)
        same = pc.or_(same, pc.and_(left.is_null(), right.is_null()))
        equal &= same.to_numpy(zero_copy_only=False)
    first[places[equal]] = False
    return first


#: Memory of an index and its construction for each key, beside twice the key itself: hashes, order, levels, filter.
_BYTES_BY_KEY = 48
_MOST_PARTITIONS = 256

#: Keys with their level, in the columns of `amoro_core.files.deletes.delete_files`.
KeyParts = Iterable[tuple[KeyColumns, int]]


class _Keys:
    """Collected keys, with the estimated size of their index."""

    def __init__(self) -> None:
        self.rows = self.nbytes = 0
        self._parts: list[tuple[KeyColumns, Levels]] = []

    def add(self, columns: KeyColumns, levels: Levels) -> None:
        if len(levels) == 0:
            return
        self._parts.append((columns, levels))
        self.rows += len(levels)
        self.nbytes += sum(2 * int(column.nbytes) for column in columns) + _BYTES_BY_KEY * len(levels)

    def index(self, most_filter_bytes: int) -> KeyIndex:
        columns = tuple(_joined(chunks) for chunks in zip(*(part for part, _ in self._parts), strict=True))
        return build_index(columns, np.concatenate([levels for _, levels in self._parts]), most_filter_bytes)

    def distinct(self) -> "_Keys":
        """Each key once, with its lowest level."""
        index, found = self.index(0), _Keys()
        found.add(index.columns, index.levels)
        return found

    def drain(self) -> Iterator[tuple[KeyColumns, Levels]]:
        """The parts, each released when the next is requested."""
        while self._parts:
            yield self._parts.pop(0)


@dataclass(frozen=True, slots=True)
class SpilledKeys:
    """Keys that did not fit into memory, and a filter of all their hashes."""

    partitions: Partitions
    filter: HashFilter
    directory: Path
    memory_bytes: int

    def row_partitions(self, more: list[pa.Field]) -> Partitions:
        """Files for rows beside those for keys: the key columns, then `more`."""
        kinds = list(self.partitions.schema)[:-1]
        return Partitions(self.directory, "rows", pa.schema([*kinds, *more]), self.partitions.count)

    def index(self, partition: int) -> KeyIndex | None:
        """The keys of one partition; None when it has none. Each partition can be read once.

        Repeated keys share a partition, so it may have far more rows than distinct keys.
        """
        keys, most_bytes = _Keys(), self.memory_bytes
        for batch in self.partitions.batches(partition):
            *columns, levels = batch.columns
            keys.add(columns, levels.to_numpy())
            if keys.nbytes > most_bytes:
                keys = keys.distinct()
                most_bytes = max(most_bytes, 2 * keys.nbytes)
        return keys.index(self.filter.nbytes) if keys.rows else None


def gather(
    parts: KeyParts, expected_rows: int, memory_bytes: int, spill_root: str, spills: ExitStack
) -> KeyIndex | SpilledKeys | None:
    """The keys as an index within `memory_bytes`, or in a directory under `spill_root` that `spills` removes.

    None when there is no key. Raises StorageFull, and what `parts` raises.
    """
    source = iter(parts)
    held, seen = _Keys(), 0
    for columns, level in source:
        held.add(columns, _same_level(columns, level))
        seen += len(columns[0])
        if held.nbytes > memory_bytes:
            before, held = held.rows, held.distinct()
            if 2 * held.rows > before:  # otherwise keys repeat, and are kept in memory
                wanted = held.nbytes * max(1, -(-expected_rows // seen))
                return _spilled(held, source, _partition_count(wanted, memory_bytes), memory_bytes, spill_root, spills)
    return held.index(memory_bytes) if held.rows else None


def parts_of(table: KeyTable, level: int) -> Iterator[tuple[KeyColumns, int]]:
    """The keys of a decoded delete file, with its level."""
    if table.rows:
        yield from ((chunks, level) for chunks in zip(*(column.chunks for column in table.columns), strict=True))


def _same_level(columns: KeyColumns, level: int) -> Levels:
    return np.full(len(columns[0]), level, np.int32)


def _partition_count(wanted_bytes: int, memory_bytes: int) -> int:
    """Enough for each to fit with room to spare, a power of two."""
    wanted = -(-3 * wanted_bytes // (2 * max(1, memory_bytes)))
    return min(_MOST_PARTITIONS, 1 << max(1, (wanted - 1).bit_length()))


def _spilled(
    held: _Keys, rest: KeyParts, count: int, memory_bytes: int, spill_root: str, spills: ExitStack
) -> SpilledKeys:
    directory = spills.enter_context(spill_directory(spill_root))
    partitions: Partitions | None = None
    known = HashFilter(1 << 62, memory_bytes // 4)
    for columns, levels in chain(held.drain(), ((columns, _same_level(columns, level)) for columns, level in rest)):
        if partitions is None:
            kinds = [pa.field(f"k{number}", column.type) for number, column in enumerate(columns)]
            partitions = Partitions(directory, "keys", pa.schema([*kinds, ("level", pa.int32())]), count)
        hashes = key_hashes(columns)
        known.add(hashes)
        partitions.add(hashes, [*columns, pa.array(levels)])
    if partitions is None:
        raise ValueError("no key to spill")
    partitions.close()
    return SpilledKeys(partitions, known, directory, memory_bytes)


def _joined(chunks: Iterable[pa.Array]) -> pa.Array:
    parts = list(chunks)
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
