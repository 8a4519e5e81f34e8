"""MurmurHash3 x64-128 of many values at once: its first half, as sketches of Apache DataSketches use it."""

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Lengths = npt.NDArray[np.int64]

_BLOCK = 16
_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_FIVE, _ADD1, _ADD2 = np.uint64(5), np.uint64(0x52DCE729), np.uint64(0x38495AB5)
_MIX1, _MIX2, _SHIFT = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53), np.uint64(33)


def first_halves(data: Bytes, starts: Lengths, lengths: Lengths, seed: int) -> Words:
    """The first 64 bits of the hash of each value: `lengths` bytes of `data` from `starts` on."""
    padded = np.concatenate([data, np.zeros(_BLOCK, np.uint8)])
    # A word from each byte on, whatever its alignment.
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
    """The words with only their first bytes: none where the length is not positive, at most 8."""
    kept = np.clip(lengths, 0, 8)
    surplus = np.minimum((8 - kept) * 8, 56).astype(np.uint64)
    return np.where(kept > 0, (words << surplus) >> surplus, np.uint64(0))
