"""Live rows of data files, with all deletes applied; their checksums and sketches."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from amoro_core.errors import UnreadableFile
from amoro_core.files.deletes.row_matcher import row_hashes
from amoro_core.files.hashing import ThetaSketch, mixed, value_hashes
from amoro_core.files.schema.schemas import FIELD_ID, parse_rows_schema
from amoro_core.files.storage.io import FileAccess
from amoro_core.model.processes import Attempt, TaskId
from amoro_core.model.task_payload import RewriteInput
from amoro_core.model.verification import RowsDigest
from amoro_optimizer.rewrite.engine import RewriteRun, cancelled_first, live_rows_of
from amoro_optimizer.rewrite.spilling import budget


def live_batches(
    work: RewriteInput,
    access: FileAccess,
    *,
    memory_limit_bytes: int,
    is_cancelled: Callable[[], bool],
    columns: frozenset[int] | None = None,
    lineage: bool = False,
    spill_root: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """The live rows of the work's rewritten files, file by file; `columns` are ids of top-level columns, None: all.

    With `lineage` the two columns of row lineage follow, if the table's format has them. Delete keys
    beyond the memory limit are spilled to files under `spill_root`. Raises like `rewrite` for what it reads.
    """
    attempt = Attempt(TaskId("reading", 1), 1)
    run = RewriteRun(work, access, attempt, lambda done, total: None, is_cancelled, budget(memory_limit_bytes))
    schema = run.schema if lineage else parse_rows_schema(work.table.schema_json)
    if columns is not None:
        schema = _only(schema, columns)
    with cancelled_first(run), ExitStack() as spills:
        marks = run.delete_filter(spills, spill_root)
        for file in work.rewritten:
            with run.open(file) as source:
                deleted = marks.of(file, source)
                projection = run.bound(source, schema)
                rows = 0
                for first, batch in source.batches(projection.columns):
                    rows = first + batch.num_rows
                    yield live_rows_of(batch, first, deleted[first:rows], projection, file.data)
                    run.checkpoint()
                if rows != file.data.record_count:
                    raise UnreadableFile(f"{source.path} ends after {rows} of {file.data.record_count} rows")


def _only(schema: Schema, columns: frozenset[int]) -> Schema:
    return Schema(*(field for field in schema.fields if field.field_id in columns))


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
