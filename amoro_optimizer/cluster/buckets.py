"""Where words lie between sorted ones: told by their upper bits alone for most of them."""

from __future__ import annotations

import numpy as np

from amoro_optimizer.cluster.values import Counts, Words

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
