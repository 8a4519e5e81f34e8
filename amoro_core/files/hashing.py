"""Hashes of values: of keys, of Iceberg's buckets, and Theta sketches of distinct ones."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes = npt.NDArray[np.uint64]

_WORD = 8
#: Words at the start of a long value that are hashed, beside its last one and its length; equality is always
#: decided by the values themselves.
_MAX_WORDS = 32
# Odd constants of the splitmix64 generator: each step below can be undone, so 64-bit numbers never collide.
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
#: The hash of null, whatever the type.
NULL_HASH = np.uint64(0x6E756C6C6E756C6C)


def key_hashes(columns: Sequence[pa.Array]) -> Hashes:
    """One hash for each row of the columns, which are those of `amoro_core.files.deletes.delete_files`."""
    hashes = _column_hashes(columns[0])
    for column in columns[1:]:
        hashes = mixed(hashes * _GAMMA + _column_hashes(column))
    return hashes


def mixed(words: Hashes) -> Hashes:
    """The words with their bits well spread; no two words become the same."""
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    words = (words ^ (words >> np.uint64(27))) * _SECOND
    return words ^ (words >> np.uint64(31))


def _column_hashes(column: pa.Array) -> Hashes:
    kind = column.type
    if pa.types.is_fixed_size_binary(kind):
        hashes = _fixed(column)
    elif pa.types.is_binary(kind):
        hashes = _variable(column)
    else:
        numbers = column.cast(pa.uint8()) if pa.types.is_boolean(kind) else column
        hashes = mixed(numbers.fill_null(0).to_numpy().astype(np.int64).view(np.uint64) + _GAMMA)
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = NULL_HASH
    return hashes


def _fixed(column: pa.Array) -> Hashes:
    width, rows = column.type.byte_width, len(column)
    words = -(-width // _WORD)
    padded = np.zeros((rows, words * _WORD), np.uint8)
    if rows and width:
        stored = np.frombuffer(column.buffers()[1], np.uint8)[column.offset * width :][: rows * width]
        padded[:, :width] = stored.reshape(rows, width)
    hashes = np.full(rows, np.uint64(width), np.uint64)
    view = padded.view(np.uint64)
    for index in range(words):
        hashes = mixed(hashes * _GAMMA + view[:, index])
    return hashes


def _variable(column: pa.Array) -> Hashes:
    rows = len(column)
    if rows == 0:
        return np.zeros(0, np.uint64)
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: rows + 1].astype(np.int64)
    lengths = np.diff(offsets)
    hashes = mixed(lengths.astype(np.uint64) * _GAMMA)
    data = column.buffers()[2]
    if data is None or offsets[-1] == offsets[0]:
        return hashes
    used = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    padded = np.concatenate([used, np.zeros(_WORD, np.uint8)])
    # The word that begins at each byte, whatever its alignment.
    words = np.ndarray((len(used) + 1,), "<u8", padded, strides=(1,))
    starts = offsets[:-1] - offsets[0]
    left, chosen = lengths, np.arange(rows)
    for index in range(_MAX_WORDS):
        longer = left > 0
        if not longer.any():
            break
        if not longer.all():
            chosen, left = chosen[longer], left[longer]
        surplus = np.maximum(_WORD - left, 0).astype(np.uint64) * np.uint64(8)
        word = words[starts[chosen] + index * _WORD] << surplus
        hashes[chosen] = mixed(hashes[chosen] * _GAMMA + word)
        left = left - _WORD
    else:
        chosen = chosen[left > 0]
        hashes[chosen] = mixed(hashes[chosen] * _GAMMA + words[starts[chosen] + lengths[chosen] - _WORD])
    return hashes


Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Lengths = npt.NDArray[np.int64]

_BLOCK = 16
_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_FIVE, _ADD1, _ADD2 = np.uint64(5), np.uint64(0x52DCE729), np.uint64(0x38495AB5)
_MIX1, _MIX2, _SHIFT = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53), np.uint64(33)


def first_halves(data: Bytes, starts: Lengths, lengths: Lengths, seed: int) -> Words:
    """The first 64 bits of the hash of each value, which is `lengths` bytes of `data` beginning at `starts`."""
    padded = np.concatenate([data, np.zeros(_BLOCK, np.uint8)])
    # The word that begins at each byte, whatever its alignment.
    words = np.ndarray((len(data) + 9,), "<u8", padded, strides=(1,))
    h1, h2 = np.full(len(starts), seed, np.uint64), np.full(len(starts), seed, np.uint64)
    blocks = lengths // _BLOCK
    chosen = np.flatnonzero(blocks)
    block = 0
    while len(chosen):
        at = starts[chosen] + block * _BLOCK
        h1[chosen], h2[chosen] = _mixed_block(h1[chosen], h2[chosen], words[at], words[at + 8])
        block += 1
        chosen = chosen[blocks[chosen] > block]
    tails, left = starts + blocks * _BLOCK, lengths % _BLOCK
    h1 ^= _mixed_first(_cut(words[np.where(left > 0, tails, 0)], left))
    # The second word is read only where the tail reaches it: elsewhere it may lie beyond the data.
    h2 ^= _mixed_second(_cut(words[np.where(left > 8, tails + 8, 0)], left - 8))
    return _finished(h1, h2, lengths.astype(np.uint64))


def _mixed_block(h1: Words, h2: Words, k1: Words, k2: Words) -> tuple[Words, Words]:
    h1 = (_rotated(h1 ^ _mixed_first(k1), 27) + h2) * _FIVE + _ADD1
    h2 = (_rotated(h2 ^ _mixed_second(k2), 31) + h1) * _FIVE + _ADD2
    return h1, h2


def _mixed_first(words: Words) -> Words:
    return _rotated(words * _C1, 31) * _C2


def _mixed_second(words: Words) -> Words:
    return _rotated(words * _C2, 33) * _C1


def _finished(h1: Words, h2: Words, lengths: Words) -> Words:
    h1, h2 = h1 ^ lengths, h2 ^ lengths
    h1 = h1 + h2
    h2 = h2 + h1
    return _spread(h1) + _spread(h2)


def _spread(words: Words) -> Words:
    words = (words ^ (words >> _SHIFT)) * _MIX1
    words = (words ^ (words >> _SHIFT)) * _MIX2
    return words ^ (words >> _SHIFT)


def _rotated(words: Words, bits: int) -> Words:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def _cut(words: Words, lengths: Lengths) -> Words:
    """The words with only their first `lengths` bytes: none for lengths below 1, at most 8."""
    kept = np.clip(lengths, 0, 8)
    surplus = np.minimum((8 - kept) * 8, 56).astype(np.uint64)
    return np.where(kept > 0, (words << surplus) >> surplus, np.uint64(0))


_C1_32, _C2_32, _ADD_32 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593), np.uint32(0xE6546B64)
_MIX1_32, _MIX2_32 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)
_BLOCK_32 = 4


def hashes_32(data: Bytes, starts: Lengths, lengths: Lengths, seed: int) -> npt.NDArray[np.uint32]:
    """MurmurHash3 x86-32 of each value, as Iceberg's buckets use it: `lengths` bytes of `data` from `starts` on."""
    padded = np.concatenate([data, np.zeros(_BLOCK_32, np.uint8)])
    words = np.ndarray((len(data) + 1,), "<u4", padded, strides=(1,))
    hashes = np.full(len(starts), seed, np.uint32)
    blocks = lengths // _BLOCK_32
    chosen = np.flatnonzero(blocks)
    block = 0
    while len(chosen):
        word = _mixed_32(words[starts[chosen] + block * _BLOCK_32])
        hashes[chosen] = _rotated_32(hashes[chosen] ^ word, 13) * np.uint32(5) + _ADD_32
        block += 1
        chosen = chosen[blocks[chosen] > block]
    chosen = np.flatnonzero(lengths % _BLOCK_32)
    left = (lengths[chosen] % _BLOCK_32).astype(np.uint32)
    surplus = np.uint32(8) * (np.uint32(_BLOCK_32) - left)
    tails = words[starts[chosen] + blocks[chosen] * _BLOCK_32]
    hashes[chosen] ^= _mixed_32((tails << surplus) >> surplus)
    hashes ^= lengths.astype(np.uint32)
    hashes = (hashes ^ (hashes >> np.uint32(16))) * _MIX1_32
    hashes = (hashes ^ (hashes >> np.uint32(13))) * _MIX2_32
    return hashes ^ (hashes >> np.uint32(16))


def _mixed_32(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    return _rotated_32(words * _C1_32, 15) * _C2_32


def _rotated_32(words: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))


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
    """The smallest hashes of values, ascending, distinct, below `theta`, which falls so that `NOMINAL` are kept.

    `apache-datasketches-theta-v1` of Iceberg's Puffin files. Parts merge by union, in any order. Java's writers hash
    the same bytes in the same way, so up to 4,096 distinct values the sets are equal.
    """

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
