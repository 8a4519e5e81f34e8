"""The live rows of a group with their places: where each stands in its file, and in which file."""

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from amoro_core.errors import CheckFailed, UnreadableFile
from amoro_core.files.parquet import ParquetInput
from amoro_core.records import record
from amoro_optimizer.cluster.order import Order, flat
from amoro_optimizer.cluster.sample import Sample, places_of, row_hashes
from amoro_optimizer.cluster.values import Positions
from amoro_optimizer.rewrite.engine import Packed, Run, live_rows_of


def placed_batches(
    run: Run,
    masks: Mapping[int, Packed],
    *,
    schema: Schema | None = None,
    piece: "Piece | None" = None,
) -> Iterator[tuple[int, Positions, pa.RecordBatch]]:
    """The live rows of the work's rewritten files, batch by batch: the file's number, their positions in it, they.

    In the table's schema or in another; of a piece of the only file where that is given. `masks` has the deleted rows
    of each file by its number. Raises AttemptAbandoned, DataFileMissing, UnreadableFile.
    """
    for number, file in enumerate(run.work.rewritten):
        deleted = np.unpackbits(masks[number], count=file.data.record_count).astype(np.bool_)
        with run.open(file) as source:
            projection = run.bound(source, schema)
            groups = None if piece is None else piece.row_groups
            expected = file.data.record_count if piece is None else piece.rows
            rows = 0
            for first, batch in source.batches(projection.columns, groups):
                rows += batch.num_rows
                gone = deleted[first : first + batch.num_rows]
                yield number, np.flatnonzero(~gone) + first, live_rows_of(batch, first, gone, projection, file.data)
                run.checkpoint()
            if rows != expected:
                raise UnreadableFile(f"{source.path} ends after {rows} of {expected} rows")


@record
class Piece:
    """Row groups of a Parquet file."""

    row_groups: tuple[int, ...]
    rows: int


def piece_of(run: Run, number: int, pieces: int) -> Piece:
    """One of so many pieces of the work's only file, counted from 0. Raises DataFileMissing, UnreadableFile."""
    (file,) = run.work.rewritten
    with run.open(file) as source:
        if not isinstance(source, ParquetInput):
            raise CheckFailed(f"{source.path} is no Parquet file: it is read as a whole")
        groups, rows = source.piece(number, pieces)
    return Piece(tuple(groups), rows)


def sample_rows_of(
    sample: Sample, run: Run, order: Order, seed: int, number: int, positions: Positions, batch: pa.RecordBatch
) -> None:
    """Add live rows of a file, in the columns of the order, to the sample."""
    hashes = row_hashes(run.work.rewritten[number].data.path, positions, seed)
    rows = sample.wanted(hashes)
    if len(rows):  # what orders the others is not asked for
        chosen = batch.take(pa.array(rows))
        sample.add(hashes[rows], places_of(number, positions[rows]), flat(order.parts(chosen)))
