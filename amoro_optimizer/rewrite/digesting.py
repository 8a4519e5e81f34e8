"""Checksums of rows: equal for equal multisets of live rows, whatever their files."""

from collections.abc import Callable, Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from amoro_core.files.io import FileAccess
from amoro_core.files.keys import comparable
from amoro_core.model.rewrite import RewriteInput
from amoro_core.model.verification import RowsDigest
from amoro_optimizer.rewrite.hashing import NULL_HASH, Hashes, key_hashes, mixed
from amoro_optimizer.rewrite.live_rows import live_batches

#: Values up to this length are hashed whole by `key_hashes`.
_LONG = 256
_SECOND_SUM = np.uint64(0x5851F42D4C957F2D)

Offsets = npt.NDArray[np.int64]


def digest_rows(
    work: RewriteInput,
    access: FileAccess,
    *,
    memory_limit_bytes: int,
    is_cancelled: Callable[[], bool],
    lineage: bool = False,
    spill_root: str | None = None,
) -> RowsDigest:
    """The digest of the live rows of the rewritten files, read under the schema of the work; with their `lineage` also.

    Every value of every column is read and hashed; neither statistics nor reports of a rewrite are used. Delete keys
    beyond the memory limit are spilled to files under `spill_root`. Raises like `rewrite` for what it reads.
    """
    digest = RowsDigest()
    for batch in live_batches(
        work,
        access,
        memory_limit_bytes=memory_limit_bytes,
        is_cancelled=is_cancelled,
        lineage=lineage,
        spill_root=spill_root,
    ):
        digest += digest_of(batch)
    return digest


def digest_of(batch: pa.RecordBatch) -> RowsDigest:
    """The digest of the batch's rows."""
    hashes = _combined([row_hashes(column) for column in batch.columns], batch.num_rows)
    return RowsDigest(len(hashes), int(hashes.sum(dtype=np.uint64)), int(mixed(hashes ^ _SECOND_SUM).sum()))


def row_hashes(array: pa.Array) -> Hashes:
    """One hash for each value, also nested ones: equal values have equal hashes, whatever the order within maps."""
    if isinstance(array.type, pa.BaseExtensionType):
        return row_hashes(array.storage)
    if pa.types.is_struct(array.type):
        hashes = _combined([row_hashes(child) for child in array.flatten()], len(array))
    elif pa.types.is_map(array.type):
        offsets = array.offsets.to_numpy().astype(np.int64)
        inner = [row_hashes(_within(child, offsets)) for child in (array.keys, array.items)]
        hashes = _sums(mixed(_combined(inner, len(inner[0]))), offsets)
    elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        offsets = array.offsets.to_numpy().astype(np.int64)
        values = row_hashes(_within(array.values, offsets))
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
