"""Space-filling curves: the place of points on them, whose coordinates are 16 bits."""

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from amoro_optimizer.cluster.values import Words

#: Of a coordinate: four make a word.
COORDINATE_BITS = 16
Coordinates = npt.NDArray[np.uint16]

#: Points that are worked on at once: their coordinates stay in the processor's cache.
_AT_ONCE = 1 << 14


def zorder(points: Sequence[Coordinates]) -> Words:
    """The bits of one to four coordinates by turns, the first one's highest bit first."""
    spread, count = _spread(len(points)), len(points)
    places = spread[points[0]] << np.uint64(count - 1)
    for number in range(1, count):
        places |= spread[points[number]] << np.uint64(count - 1 - number)
    return places


def hilbert(points: Sequence[Coordinates]) -> Words:
    """The place on Hilbert's curve, by Skilling's transpose (AIP Conference Proceedings 707, 2004)."""
    rows = len(points[0])
    places = np.empty(rows, np.uint64)
    for start in range(0, rows, _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        places[part] = zorder(_transposed([np.array(one[part]) for one in points]))
    return places


def _transposed(points: list[Coordinates]) -> list[Coordinates]:
    """What has the bits of the places by turns; the arrays are worked on in place."""
    first, last = points[0], points[-1]
    for bit in range(COORDINATE_BITS - 1, 0, -1):
        below = np.uint16((1 << bit) - 1)
        for point in points:
            # All ones below the bit where the coordinate has it: there the first is turned, else both are exchanged.
            turned = (point >> np.uint16(bit) & np.uint16(1)) * below
            exchanged = (first ^ point) & (below ^ turned)
            first ^= turned | exchanged
            if point is not first:
                point ^= exchanged
    for before, point in pairwise(points):
        point ^= before
    turns = np.zeros_like(last)
    for bit in range(COORDINATE_BITS - 1, 0, -1):
        turns ^= (last >> np.uint16(bit) & np.uint16(1)) * np.uint16((1 << bit) - 1)
    for point in points:
        point ^= turns
    return points


@cache
def _spread(count: int) -> Words:
    """Each coordinate with `count` − 1 zeros before each bit but the highest."""
    coordinates = np.arange(1 << COORDINATE_BITS, dtype=np.uint64)
    spread = np.zeros_like(coordinates)
    for bit in range(COORDINATE_BITS):
        spread |= (coordinates >> np.uint64(bit) & np.uint64(1)) << np.uint64(bit * count)
    return spread
