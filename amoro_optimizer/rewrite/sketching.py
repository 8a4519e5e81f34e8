"""Sketching the distinct values of columns over the live rows of data files."""

from collections.abc import Callable, Mapping

from amoro_core.files.io import FileAccess
from amoro_core.files.schema import FIELD_ID
from amoro_core.files.sketches import ThetaSketch, value_hashes
from amoro_core.model.rewrite import RewriteInput
from amoro_optimizer.rewrite.live_rows import live_batches


def sketch_rows(
    work: RewriteInput,
    access: FileAccess,
    columns: frozenset[int],
    *,
    memory_limit_bytes: int,
    is_cancelled: Callable[[], bool],
) -> Mapping[int, ThetaSketch]:
    """A sketch of each column; columns must be top-level, primitive and in the work's schema.

    Only these columns are read, and those that deletes compare. Raises like `rewrite` for what it reads.
    """
    sketches = dict.fromkeys(sorted(columns), ThetaSketch())
    batches = live_batches(
        work, access, memory_limit_bytes=memory_limit_bytes, is_cancelled=is_cancelled, columns=columns
    )
    for batch in batches:
        for field, values in zip(batch.schema, batch.columns, strict=True):
            field_id = int(field.metadata[FIELD_ID])
            sketches[field_id] = sketches[field_id].updated(value_hashes(values))
    return sketches
