"""Reading the live rows of data files in a table's schema, with all deletes applied."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pyarrow as pa
from pyiceberg.schema import Schema

from amoro_core.errors import UnreadableFile
from amoro_core.files.io import FileAccess
from amoro_core.files.schema import parse_rows_schema
from amoro_core.model.processes import Attempt, TaskId
from amoro_core.model.rewrite import RewriteInput
from amoro_optimizer.rewrite.engine import Run, cancelled_first, live_rows_of
from amoro_optimizer.rewrite.marks import Marks
from amoro_optimizer.rewrite.memory import budget
from amoro_optimizer.rewrite.spilling import default_spill_root


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

    With `lineage` the two columns of `amoro_core.files.lineage` follow, if the table's format has them. Delete keys
    beyond the memory limit are spilled to files under `spill_root`. Raises like `rewrite` for what it reads.
    """
    attempt = Attempt(TaskId("reading", 1), 1)
    memory_bytes = budget(memory_limit_bytes)
    run = Run(work, access, attempt, lambda done, total: None, is_cancelled, memory_bytes)
    schema = run.schema if lineage else parse_rows_schema(work.table.schema_json)
    if columns is not None:
        schema = _only(schema, columns)
    with cancelled_first(run), ExitStack() as spills:
        marks = Marks(
            work,
            access,
            run.checkpoint,
            run.open,
            memory_bytes=memory_bytes,
            spill_root=spill_root or default_spill_root(),
            spills=spills,
        )
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
