"""Hashes of whole rows, nested values too, and whether rows are the same: every value of every column counts."""

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from amoro_core.files.hashing import NULL_HASH, Hashes, key_hashes, mixed
from amoro_core.files.keys import comparable

#: Values up to this length are hashed whole by `key_hashes`.
_LONG = 256

Offsets = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def row_hashes(batch: pa.RecordBatch) -> Hashes:
    """One hash for each row: equal rows have equal hashes."""
    return _combined([value_hashes(column) for column in batch.columns], batch.num_rows)


def same_rows(left: pa.RecordBatch, right: pa.RecordBatch) -> Mask:
    """For each row, whether it is the same on both sides, which have the same columns and as many rows.

    Null equals null, NaN equals NaN, −0.0 differs from 0.0, and maps are compared in the order of their entries.
    """
    same = np.ones(left.num_rows, np.bool_)
    for one, other in zip(left.columns, right.columns, strict=True):
        same &= same_values(one, other)
    return same


def same_values(left: pa.Array, right: pa.Array) -> Mask:
    """For each value, nested ones too, whether it is the same in both arrays, which have one type and length."""
    if isinstance(left.type, pa.BaseExtensionType):
        return same_values(left.storage, right.storage)
    missing = left.is_null().to_numpy(zero_copy_only=False), right.is_null().to_numpy(zero_copy_only=False)
    both = ~(missing[0] | missing[1])
    same: Mask = missing[0] & missing[1]
    if not both.any():
        return same
    if not both.all():
        left, right = left.filter(pa.array(both)), right.filter(pa.array(both))
    same[both] = _same_present(left, right)
    return same


def _same_present(left: pa.Array, right: pa.Array) -> Mask:
    if pa.types.is_struct(left.type):
        same = np.ones(len(left), np.bool_)
        for one, other in zip(left.flatten(), right.flatten(), strict=True):
            same &= same_values(one, other)
        return same
    if pa.types.is_map(left.type) or pa.types.is_list(left.type) or pa.types.is_large_list(left.type):
        lengths = np.diff(left.offsets.to_numpy())
        as_long: Mask = lengths == np.diff(right.offsets.to_numpy())
        if not as_long.all():
            left, right, lengths = left.filter(pa.array(as_long)), right.filter(pa.array(as_long)), lengths[as_long]
        within = np.ones(len(lengths), np.bool_)
        for one, other in zip(_elements(left), _elements(right), strict=True):
            within[np.repeat(np.arange(len(lengths)), lengths)[~same_values(one, other)]] = False
        as_long[as_long] = within
        return as_long
    found: Mask = pc.equal(comparable(left), comparable(right)).to_numpy(zero_copy_only=False)
    return found


def _elements(array: pa.Array) -> list[pa.Array]:
    """The values within lists or maps that have no null, one after the other."""
    offsets = array.offsets.to_numpy().astype(np.int64)
    parts = (array.keys, array.items) if pa.types.is_map(array.type) else (array.values,)
    return [_within(part, offsets) for part in parts]


def value_hashes(array: pa.Array) -> Hashes:
    """One hash for each value, also nested ones: equal values have equal hashes, whatever the order within maps."""
    if isinstance(array.type, pa.BaseExtensionType):
        return value_hashes(array.storage)
    if pa.types.is_struct(array.type):
        hashes = _combined([value_hashes(child) for child in array.flatten()], len(array))
    elif pa.types.is_map(array.type):
        offsets = array.offsets.to_numpy().astype(np.int64)
        inner = [value_hashes(_within(child, offsets)) for child in (array.keys, array.items)]
        hashes = _sums(mixed(_combined(inner, len(inner[0]))), offsets)
    elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        offsets = array.offsets.to_numpy().astype(np.int64)
        values = value_hashes(_within(array.values, offsets))
        places = np.arange(len(values), dtype=np.int64) - np.repeat(offsets[:-1] - offsets[0], np.diff(offsets))
        hashes = _sums(mixed(values + mixed(places.astype(np.uint64))), offsets)
    else:
        return _primitive(comparable(array))
    if array.null_count:
        hashes[array.is_null().to_numpy(zero_copy_only=False)] = NULL_HASH
    return hashes


def _primitive(column: pa.Array) -> Hashes:
    hashes = key_hashes([column])
    if pa.types.is_binary(column.type) or pa.types.is_fixed_size_binary(column.type):
        lengths = pc.fill_null(pc.binary_length(column), 0).to_numpy()
        for row in np.flatnonzero(lengths > _LONG):
            hashes[row] = int.from_bytes(blake2b(column[row].as_buffer(), digest_size=8).digest())
    return hashes


def _combined(columns: Sequence[Hashes], rows: int) -> Hashes:
    hashes = np.zeros(rows, np.uint64)
    for column in columns:
        hashes = _pair(hashes, column)
    return hashes


def _pair(left: Hashes, right: Hashes) -> Hashes:
    """The hashes of pairs, in this order."""
    return mixed(mixed(left + np.uint64(1)) + right)


def _within(child: pa.Array, offsets: Offsets) -> pa.Array:
    """The part of a list's values that its offsets refer to."""
    return child.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))


def _sums(hashes: Hashes, offsets: Offsets) -> Hashes:
    """For each list the hash of the sum of its elements' hashes and of its length."""
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(hashes, dtype=np.uint64)])
    places = offsets - offsets[0]
    return mixed(sums[places[1:]] - sums[places[:-1]] + mixed(np.diff(offsets).astype(np.uint64)))
