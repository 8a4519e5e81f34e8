"""64-bit hashes of keys, vectorised: equal keys have equal hashes, in every process and for every file."""

from collections.abc import Sequence

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
    """One hash for each row of the columns, which are those of `amoro_core.files.keys`."""
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
