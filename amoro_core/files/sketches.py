"""Sketches of a column's number of distinct values: `apache-datasketches-theta-v1` of Iceberg's Puffin files.

A theta sketch is the set of the smallest hashes of the values, so parts merge by union, in any order. Java's writers
hash the same bytes in the same way, so up to 4,096 distinct values the sets are equal.
"""

import struct
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from amoro_core.files.hashing import Bytes, Lengths, Words, first_halves

#: Hashes to keep: the default of Java's sketches.
NOMINAL = 4096
_SEED = 9001
#: The theta of an exact sketch, above all hashes, which have 63 bits.
_ALL = 2**63 - 1

#: Serial version 3, family 3 (compact).
_VERSION = bytes((3, 3, 0, 0))
_READ_ONLY, _EMPTY, _COMPACT, _ORDERED, _SINGLE = 2, 4, 8, 16, 32
_USUAL = _READ_ONLY | _COMPACT | _ORDERED
#: Hash of the default seed 9001, little-endian.
_SEED_HASH = bytes((0xCC, 0x93))


@dataclass(frozen=True, slots=True, eq=False)
class ThetaSketch:
    """The smallest hashes of values, ascending, distinct, below `theta`, which falls so that `NOMINAL` are kept."""

    hashes: Words = field(default_factory=lambda: np.zeros(0, np.uint64))
    theta: int = _ALL

    def updated(self, hashes: Words) -> "ThetaSketch":
        """The sketch with these values added. Hashes may be unordered and repeated."""
        fresh = hashes[hashes < np.uint64(self.theta)]
        if not len(fresh):
            return self
        return _least(np.concatenate([self.hashes, fresh]), self.theta)

    def union(self, other: "ThetaSketch") -> "ThetaSketch":
        """The sketch of the values of both."""
        theta = min(self.theta, other.theta)
        every = np.concatenate([self.hashes, other.hashes])
        return _least(every[every < np.uint64(theta)], theta)

    @property
    def estimate(self) -> float:
        """The number of distinct values; exact as long as no hash was dropped."""
        return len(self.hashes) * (_ALL / self.theta)

    def serialized(self) -> bytes:
        """The compact ordered form that every library of Apache DataSketches reads."""
        count, is_exact = len(self.hashes), self.theta == _ALL
        stored = self.hashes.astype("<u8").tobytes()
        if is_exact and count <= 1:
            flags = _USUAL | (_SINGLE if count else _EMPTY)
            return bytes((1,)) + _VERSION + bytes((flags,)) + _SEED_HASH + stored
        words = 2 if is_exact else 3
        start = bytes((words,)) + _VERSION + bytes((_USUAL,)) + _SEED_HASH + struct.pack("<if", count, 1.0)
        return start + (b"" if is_exact else struct.pack("<q", self.theta)) + stored


def _least(hashes: Words, theta: int) -> ThetaSketch:
    every = np.unique(hashes)
    if len(every) <= NOMINAL:
        return ThetaSketch(every, theta)
    return ThetaSketch(every[:NOMINAL], int(every[NOMINAL]))


def value_hashes(array: pa.Array) -> Words:
    """The 63-bit hashes of a primitive column's values in single-value serialization.

    Nulls and empty values have none: Java's sketches skip both.
    """
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    array = array.drop_null()
    data, starts, lengths = stored_bytes(array)
    if not lengths.all():
        starts, lengths = starts[lengths > 0], lengths[lengths > 0]
    hashes = first_halves(data, starts, lengths, _SEED) >> np.uint64(1)
    return hashes[hashes > 0]


def stored_bytes(array: pa.Array) -> tuple[Bytes, Lengths, Lengths]:
    """The bytes of all values, and the offset and length of each value; of those that are null, any."""
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        offsets = np.frombuffer(array.buffers()[1] or bytes(4), np.int32)[array.offset :][: len(array) + 1]
        offsets = offsets.astype(np.int64)
        data = array.buffers()[2]
        used = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
        return used, offsets[:-1] - offsets[0], np.diff(offsets)
    rows, skipped = _rows(array)
    width = rows.shape[1]
    starts = np.arange(len(array), dtype=np.int64) * width + skipped
    return rows.reshape(-1), starts, width - skipped


def _rows(array: pa.Array) -> tuple[Bytes, Lengths]:
    """One row of bytes for each value, and the number of leading bytes to skip."""
    kind, count = array.type, len(array)
    none = np.zeros(count, np.int64)
    if pa.types.is_boolean(kind):
        return array.cast(pa.uint8()).to_numpy().reshape(count, 1), none
    width = kind.bit_width // 8
    data = array.buffers()[1]
    whole = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    rows = whole[array.offset * width :][: count * width].reshape(count, width)
    if pa.types.is_decimal(kind):
        return _unscaled(np.ascontiguousarray(rows[:, ::-1]))
    return rows, none


def _unscaled(rows: Bytes) -> tuple[Bytes, Lengths]:
    """Big-endian integers, and the number of redundant leading bytes, which Java's BigInteger does not write.

    A leading byte is redundant if it only repeats the sign of the byte that follows.
    """
    sign = np.where(rows[:, :1] >= 128, np.uint8(255), np.uint8(0))
    repeats = (rows[:, :-1] == sign) & ((rows[:, 1:] >= 128) == (sign >= 128))
    stays = np.concatenate([~repeats, np.ones((len(rows), 1), np.bool_)], axis=1)
    return rows, stays.argmax(axis=1).astype(np.int64)
