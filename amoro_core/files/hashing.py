"""Hashes of values: of keys, of Iceberg's buckets, and Theta sketches of distinct ones."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import mmh3
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
        hashes = _variable(column.cast(pa.binary()))
    elif pa.types.is_binary(kind):
        hashes = _variable(column)
    else:
        numbers = column.cast(pa.uint8()) if pa.types.is_boolean(kind) else column
        hashes = mixed(numbers.fill_null(0).to_numpy().astype(np.int64).view(np.uint64) + _GAMMA)
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = NULL_HASH
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


def bucket_hashes(array: pa.Array) -> npt.NDArray[np.uint32]:
    """MurmurHash3 x86-32 of each value's bytes, as Iceberg's buckets use it; of nulls, any."""
    return np.array([mmh3.hash(value, signed=False) for value in _values(array)], np.uint32)


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

    `apache-datasketches-theta-v1` of Puffin files: up to 4,096 distinct values, equal to that of Java's writers.
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
        union = np.concatenate([self.hashes, other.hashes])
        return _least(union[union < np.uint64(theta)], theta)

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
    distinct = np.unique(hashes)
    if len(distinct) <= NOMINAL:
        return ThetaSketch(distinct, theta)
    return ThetaSketch(distinct[:NOMINAL], int(distinct[NOMINAL]))


def value_hashes(array: pa.Array) -> Words:
    """The 63-bit hashes of values in single-value serialization; none of nulls and empty values, as in Java."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    array = array.drop_null()
    hashed = (mmh3.hash64(value, _SEED, signed=False)[0] for value in _values(array) if value)
    hashes = np.fromiter(hashed, np.uint64) >> np.uint64(1)
    return hashes[hashes > 0]


def _values(array: pa.Array) -> Iterator[bytes]:
    data, starts, lengths = stored_bytes(array)
    content = data.tobytes()
    return (content[at : at + size] for at, size in zip(starts.tolist(), lengths.tolist(), strict=True))


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
