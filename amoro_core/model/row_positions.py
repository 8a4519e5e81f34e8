"""Sets of row positions of a data file, compressed."""

from array import array
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

#: Positions that are taken out at once.
_AT_ONCE = 1 << 22


class PositionSet:
    """A set of row positions of one file, each from 0 to below its number of rows; never changed in place."""

    __slots__ = ("_bitmap",)

    def __init__(self, bitmap: BitMap64) -> None:
        self._bitmap = bitmap

    @classmethod
    def of(cls, positions: Iterable[int] | NDArray[np.integer]) -> "PositionSet":
        """The set of these, in any order, repeated or not."""
        if isinstance(positions, np.ndarray):
            return cls(BitMap64(array("Q", positions.astype(np.uint64).tobytes())))  # four times as fast as an ndarray
        return cls(BitMap64(positions))

    @classmethod
    def first(cls, count: int) -> "PositionSet":
        """All positions below `count`."""
        bitmap = BitMap64()
        bitmap.add_range(0, count)
        return cls(bitmap)

    def ascending(self) -> NDArray[np.int64]:
        """The positions in ascending order; shape (len,)."""
        return np.frombuffer(self._bitmap.to_array(), dtype=np.uint64).astype(np.int64)

    def mask(self, rows: int) -> NDArray[np.bool_]:
        """Whether each row of a file with that many rows is in the set; shape (rows,).

        Positions are taken out piece by piece: one takes eight bytes.
        """
        mask = np.zeros(rows, np.bool_)
        if len(self) <= _AT_ONCE:
            mask[self.ascending()] = True
            return mask
        for start in range(0, rows, _AT_ONCE):
            piece = BitMap64()
            piece.add_range(start, start + _AT_ONCE)
            mask[PositionSet(self._bitmap & piece).ascending()] = True
        return mask

    def __len__(self) -> int:
        return len(self._bitmap)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PositionSet) and self._bitmap == other._bitmap

    def __hash__(self) -> int:
        return hash((len(self), self.last))

    def __or__(self, other: "PositionSet") -> "PositionSet":
        return PositionSet(self._bitmap | other._bitmap)

    def __sub__(self, other: "PositionSet") -> "PositionSet":
        return PositionSet(self._bitmap - other._bitmap)

    def __le__(self, other: "PositionSet") -> bool:
        return bool(self._bitmap.issubset(other._bitmap))

    def __repr__(self) -> str:
        return f"PositionSet({len(self)}, last {self.last})"

    @property
    def last(self) -> int:
        """The greatest position; −1 of an empty set."""
        return int(self._bitmap.max()) if len(self._bitmap) else -1

    def serialized(self) -> bytes:
        """The set in Roaring's portable format for 64 bits, with runs where they are smaller."""
        compact = self._bitmap.copy()
        compact.run_optimize()
        return bytes(compact.serialize())

    @classmethod
    def deserialized(cls, content: bytes) -> "PositionSet":
        """The set of such bytes. Raises ValueError."""
        try:
            return cls(BitMap64.deserialize(content))
        except Exception as error:  # the library's own kinds
            raise ValueError(str(error)) from error


NO_POSITIONS = PositionSet.of(())
