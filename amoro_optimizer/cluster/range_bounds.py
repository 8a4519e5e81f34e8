"""Where words lie between sorted ones: told by their upper bits alone for most of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from amoro_core.files.hashing import Bytes, Lengths
from amoro_core.files.sketches import stored_bytes
from amoro_optimizer.cluster.sort_keys import Counts, Part, Words, part_of, taken

#: Fewer words are searched by halving: a table would not pay.
_LEAST_WORDS = 64
#: Buckets for each word, so that most buckets have one at most: then one comparison decides.
_BUCKETS_FOR_WORD = 4
_HIGHEST = np.uint64(2**64 - 1)


class Buckets:
    """Sorted, distinct words; buckets of equal width divide what lies between the first and the last one."""

    def __init__(self, words: Words) -> None:
        """At least one word."""
        self._words = words
        self._is_small = len(words) < _LEAST_WORDS
        if self._is_small:
            return
        span = int(words[-1]) - int(words[0])
        self._shift = np.uint64(max(0, span.bit_length() - (len(words) * _BUCKETS_FOR_WORD).bit_length()))
        count = (span >> int(self._shift)) + 1
        begins = words[0] + (np.arange(count, dtype=np.uint64) << self._shift)
        below = np.searchsorted(words, begins)
        self._below = below.astype(np.int32)
        self._is_crowded = np.diff(below, append=len(words)) > 1
        self._next = np.append(words, _HIGHEST)

    def count_up_to(self, wanted: Words) -> Counts:
        """For each of these how many words are at most as great."""
        if self._is_small:
            return np.searchsorted(self._words, wanted, side="right")
        first = self._words[0]
        buckets = np.minimum((np.maximum(wanted, first) - first) >> self._shift, np.uint64(len(self._below) - 1))
        places = buckets.astype(np.intp)
        below = self._below[places]
        counts: Counts = below + (wanted >= self._next[below]).astype(np.int64)
        crowded = np.flatnonzero(self._is_crowded[places])
        if len(crowded):
            counts[crowded] = np.searchsorted(self._words, wanted[crowded], side="right")
        # Behind the last word stands the highest one, which may be wanted itself.
        return np.minimum(counts, len(self._words))


_WORD = 8  # bytes, as a byte has bits
#: Combined codes of which each has its place in a table, at most.
_MOST_IN_TABLE = 1 << 17


class RangeBounds:
    """Rows of parts, ascending and each there once, between which other rows are found.

    A row is compared part by part with all points at once: after each part its code is odd where it has equalled a
    point so far, 2i + 1 for the i-th of the different ones, and even, 2i, where it lies below the i-th.
    """

    def __init__(self, parts: Sequence[Part], descending: Sequence[bool]) -> None:
        """The points as they come, in order; `descending` turns binary parts."""
        self.parts = tuple(parts)
        self.descending = tuple(descending)
        self._values = [_distinct(part) for part in self.parts]
        self._buckets = [Buckets(values) if _is_filled(values) else None for values in self._values]
        self._levels: list[_Level] = []  # of each part but the first
        if not len(self):
            return
        codes = self._own_codes(0, self.parts[0])
        for number in range(1, len(self.parts)):
            factor = 2 * len(self._values[number]) + 1
            combined = codes * factor + self._own_codes(number, self.parts[number])
            before = len(self._levels[-1].distinct) if self._levels else len(self._values[0])
            self._levels.append(_Level(np.unique(combined), factor, (2 * before + 1) * factor))
            codes = self._levels[-1].codes(combined)

    def __len__(self) -> int:
        return len(self.parts[0])

    def count_up_to(self, parts: Sequence[Part]) -> Counts:
        """For each row of these parts how many points are at most as great."""
        if not len(self):
            return np.zeros(len(parts[0]), np.int64)
        first = self._buckets[0]
        if len(self.parts) == 1 and first is not None and not self.descending[0]:
            return first.count_up_to(parts[0])
        codes = self._own_codes(0, parts[0])
        for number, level in enumerate(self._levels, 1):
            equal = np.flatnonzero(codes & 1)
            if len(equal) == len(codes):
                codes = level.codes(codes * level.factor + self._own_codes(number, parts[number]))
                continue
            # Those that equal no point so far stay between the same ones.
            highest = int(codes.max(initial=0))
            moved = 2 * np.searchsorted(level.distinct, np.arange(highest + 1) * level.factor)
            following: Counts = moved[codes]
            if len(equal):
                own = self._own_codes(number, taken(parts[number], equal))
                following[equal] = level.codes(codes[equal] * level.factor + own)
            codes = following
        counts: Counts = (codes + 1) // 2
        return counts

    def _own_codes(self, number: int, part: Part) -> Counts:
        values = self._values[number]
        buckets = self._buckets[number]
        if buckets is not None:
            counts = buckets.count_up_to(part)
            codes: Counts = 2 * counts - (values[np.maximum(counts - 1, 0)] == part) * (counts > 0)
        else:
            codes = _binary_codes(values, part)
        return 2 * len(values) - codes if self.descending[number] else codes


class _Level:
    """What codes of the parts so far, combined with those of the next part, become."""

    def __init__(self, distinct: Counts, factor: int, bound: int) -> None:
        """The combined codes of the points, sorted; codes are times `factor`, all combined ones below `bound`."""
        self.distinct = distinct
        self.factor = factor
        self._table = self._found(np.arange(bound)) if bound <= _MOST_IN_TABLE else None

    def codes(self, combined: Counts) -> Counts:
        """Odd where they are a point's, even between points."""
        return self._found(combined) if self._table is None else self._table[combined]

    def _found(self, combined: Counts) -> Counts:
        places = np.searchsorted(self.distinct, combined)
        codes: Counts = 2 * places + (self.distinct[np.minimum(places, len(self.distinct) - 1)] == combined)
        return codes


def _is_filled(values: Part) -> bool:
    return isinstance(values, np.ndarray) and len(values) > 0


def _distinct(part: Part) -> Part:
    if isinstance(part, np.ndarray):
        return np.unique(part)
    values = pc.unique(part)
    return values.take(pc.sort_indices(values))


def _binary_codes(values: pa.Array, wanted: pa.Array) -> Counts:
    """By the eight bytes behind what all values begin with; where those don't decide, by whole values."""
    shared = _shared(values[0].as_py(), values[-1].as_py())  # of sorted values: by all
    data, starts, lengths = stored_bytes(wanted)
    words = prefix_words(data, starts + shared, lengths - shared)
    known = prefix_words(*_behind(values, shared))
    low, high = np.searchsorted(known, words), np.searchsorted(known, words, side="right")
    undecided = low < high
    if shared:
        undecided |= ~pc.starts_with(wanted, values[0].as_py()[:shared]).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(undecided)
    codes: Counts = 2 * low
    if len(rows):
        encoded = wanted.take(pa.array(rows)).dictionary_encode()
        codes[rows] = _halved(values, encoded.dictionary)[encoded.indices.to_numpy()]
    return codes


def _shared(first: bytes, last: bytes) -> int:
    """How many bytes both begin with."""
    pairs = zip(first, last, strict=False)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(first), len(last)))


def _behind(values: pa.Array, skipped: int) -> tuple[Bytes, Lengths, Lengths]:
    data, starts, lengths = stored_bytes(values)
    return data, starts + skipped, lengths - skipped


def prefix_words(data: Bytes, starts: Lengths, lengths: Lengths) -> Words:
    """The first eight bytes of each value, the first one highest, shorter ones with zeros behind."""
    padded = np.concatenate([data, np.zeros(_WORD, np.uint8)])
    words = np.ndarray((len(data) + 1,), ">u8", padded, strides=(1,))[np.minimum(starts, len(data))].astype(np.uint64)
    kept = np.clip(lengths, 0, _WORD)
    surplus = np.minimum((_WORD - kept) * _WORD, 63).astype(np.uint64)
    return np.where(kept > 0, (words >> surplus) << surplus, np.uint64(0))


def _halved(values: pa.Array, wanted: pa.Array) -> Counts:
    last = len(values) - 1
    low, high = np.zeros(len(wanted), np.int64), np.full(len(wanted), len(values), np.int64)
    for _ in range(len(values).bit_length()):
        middle = (low + high) >> 1
        below = pc.less(values.take(pa.array(np.minimum(middle, last))), wanted).to_numpy(zero_copy_only=False)
        below &= low < high
        low, high = np.where(below, middle + 1, low), np.where(below, high, middle)
    equal = pc.equal(values.take(pa.array(np.minimum(low, last))), wanted).to_numpy(zero_copy_only=False)
    codes: Counts = 2 * low + equal
    return codes


def points_of(columns: Sequence[pa.Array], descending: Sequence[bool]) -> RangeBounds:
    """The points whose parts are these arrays."""
    return RangeBounds([part_of(column) for column in columns], descending)
