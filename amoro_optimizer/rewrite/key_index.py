"""An index of deleted keys for many lookups: exact, vectorised, for any set of key columns."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from amoro_core.files.hashing import Hashes, key_hashes
from amoro_core.records import record

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


@record
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
