"""Checksums of rows: equal for equal multisets of live rows, whatever their files."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from amoro_core.files.hashing import mixed
from amoro_core.files.io import FileAccess
from amoro_core.files.row_hashes import row_hashes
from amoro_core.model.rewrite import RewriteInput
from amoro_core.model.verification import RowsDigest
from amoro_optimizer.rewrite.live_rows import live_batches

_SECOND_SUM = np.uint64(0x5851F42D4C957F2D)


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
    hashes = row_hashes(batch)
    return RowsDigest(len(hashes), int(hashes.sum(dtype=np.uint64)), int(mixed(hashes ^ _SECOND_SUM).sum()))
