"""Rows that bound ranges, and the range of each of other rows."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from amoro_optimizer.cluster.sort_keys import Counts, Part, is_constant, joined, part_of, sort_rows


class RangeBounds:
    """Rows of parts, ascending and distinct, between which other rows lie."""

    def __init__(self, parts: Sequence[Part], descending: Sequence[bool]) -> None:
        """`descending` turns binary parts."""
        self.parts = tuple(parts)
        self.descending = tuple(descending)

    def __len__(self) -> int:
        return len(self.parts[0])

    def count_up_to(self, parts: Sequence[Part]) -> Counts:
        """For each row of these parts the number of bounds that are not greater."""
        count = len(self)
        together = [joined(pair) for pair in zip(self.parts, parts, strict=True)]
        deciding = [part for part in together if not is_constant(part)]
        if not deciding or not count:
            return np.full(len(parts[0]), count, np.int64)
        if len(deciding) == 1 and isinstance(deciding[0], np.ndarray):
            return np.searchsorted(deciding[0][:count], deciding[0][count:], side="right")
        # Sorting keeps equal rows as they come: a bound before the rows that equal it.
        order = sort_rows(together, self.descending)
        is_bound = order < count
        counts = np.empty(len(parts[0]), np.int64)
        counts[order[~is_bound] - count] = np.cumsum(is_bound)[~is_bound]
        return counts


def points_of(columns: Sequence[pa.Array], descending: Sequence[bool]) -> RangeBounds:
    """The bounds whose parts are these arrays."""
    return RangeBounds([part_of(column) for column in columns], descending)
