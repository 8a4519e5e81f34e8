"""Rows put in order in memory, or range by range on disk where they are too many, and written."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from amoro_core.errors import StorageFull
from amoro_optimizer.cluster.range_partitioner import Cuts, RangeBounds, Sample, keyed_points, place_hashes, sample_rows
from amoro_optimizer.cluster.sort_keys import Counts, Part, joined, sort_rows, take_rows
from amoro_optimizer.rewrite.output_files import Outputs
from amoro_optimizer.rewrite.spilling import COMPRESSED, SpillFiles, give_back

T = TypeVar("T")

#: Files that are open at once at most; ranges that are too large are split again.
MOST_RANGES = 256


def free_disk(directory: str) -> int:
    """The bytes that are free where the directory is, or is to be."""
    place = Path(directory)
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def require_free(directory: str, needed: int, free: int) -> None:
    """Raise StorageFull, with what is needed and what is free, where that is less."""
    if free < needed:
        raise StorageFull(
            f"sorting needs about {needed:,} bytes of spill in {directory}, and {free:,} are free",
            hint="Free some space there, point TMPDIR elsewhere, give the optimizer more --memory, or lower"
            " self-optimizing.cluster.max-group-bytes.",
        )


def spilled_size(batches: Sequence[pa.RecordBatch]) -> int:
    """What the batches take on disk."""
    if not batches:
        return 0
    sink = pa.MockOutputStream()
    with pa.ipc.new_file(sink, batches[0].schema, options=COMPRESSED) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return int(sink.size())


#: Rows written at once: the bytes that they may take, and their maximum number.
_PIECE_BYTES, _MOST_ROWS = 8 << 20, 1 << 16


def ordered(
    batches: list[pa.RecordBatch], cuts: Cuts, checkpoint: Callable[[], None]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of tagged batches, at least one, in order and without tags: pieces, each with the number of its output.

    `batches` is emptied. `checkpoint` is called for each piece, and may raise.
    """
    rows, nbytes = sum(batch.num_rows for batch in batches), sum(batch.nbytes for batch in batches)
    keys = [joined(parts) for parts in zip(*map(cuts.tagged_keys, batches), strict=True)]
    order = _sorted(keys, cuts.descending)
    starts = _starts(keys, order, cuts.outputs)
    del keys
    edges = _edges(starts, rows, max(1, min(_MOST_ROWS, _PIECE_BYTES * rows // max(1, nbytes))))
    outputs = np.searchsorted(starts, edges, side="right").tolist()
    whole = _combined(batches, cuts)
    for number, (low, high) in zip(outputs, pairwise(edges.tolist()), strict=False):
        checkpoint()
        yield number, whole.take(pa.array(order[low:high]))


def _combined(batches: list[pa.RecordBatch], cuts: Cuts) -> pa.RecordBatch:
    """All rows without tags as one batch; `batches` is emptied, and each column released once it is copied."""
    table = pa.Table.from_batches(list(map(cuts.untagged, batches)))
    batches.clear()
    schema, arrays = table.schema, []
    while table.num_columns:
        arrays.append(pa.concat_arrays(table.column(0).chunks))
        table = table.remove_column(0)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _sorted(keys: list[Part], descending: tuple[bool, ...]) -> Counts:
    """The rows in order: by their keys, equal ones by their places, of which no two are equal."""
    by_place = np.argsort(np.asarray(keys[-1]))
    return by_place[sort_rows([take_rows(part, by_place) for part in keys[:-1]], descending)]


def _starts(keys: list[Part], order: Counts, points: RangeBounds) -> Counts:
    """For each point the first of the ordered rows that is not below it, found by halving for all points at once."""
    count, rows = len(points), len(order)
    low, high = np.zeros(count, np.int64), np.full(count, rows, np.int64)
    wanted = np.arange(1, count + 1)
    while (low < high).any():
        middle = np.minimum((low + high) // 2, rows - 1)
        reached = points.count_up_to([take_rows(part, order[middle]) for part in keys]) >= wanted
        is_open = low < high
        high = np.where(is_open & reached, middle, high)
        low = np.where(is_open & ~reached, middle + 1, low)
    return low


def _edges(starts: Counts, rows: int, size: int) -> Counts:
    """Where pieces of at most so many rows begin, and the last one ends; none has rows of two outputs."""
    outputs = pairwise([0, *starts.tolist(), rows])
    return np.concatenate([*(np.arange(low, high, size) for low, high in outputs), [rows]])


#: Of what a range may take ranges that are split are to have so much, in hundredths: samples are not exact.
_FILLED = 60
_LEAST_SHARE = 4096
#: What is held of rows that are sorted at once: an array of Arrow has less than 2 GiB of texts.
_MOST_HELD = (2 << 30) - (64 << 20)


class RangeWriter:
    """Sorts ranges one after the other, ascending, and writes the files into which the cuts divide them.

    What does not fit into `share_bytes` is split into files of a directory that `spill` opens, each sorted alone.
    """

    def __init__(
        self,
        cuts: Cuts,
        sink: Outputs,
        *,
        share_bytes: int,
        spill: Callable[[], AbstractContextManager[Path]],
        checkpoint: Callable[[], None],
        on_rows: Callable[[int], None] = lambda rows: None,
    ) -> None:
        """`checkpoint` is called for each batch, and may raise; `on_rows` is told the rows that were written."""
        self.spilled_bytes = 0
        self._cuts = cuts
        self._sink = sink
        self._share_bytes = max(sort_bytes(share_bytes), _LEAST_SHARE)
        self._spill = spill
        self._checkpoint = checkpoint
        self._on_rows = on_rows
        self._output = -1  # the file that is open

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write the tagged batches of one range, which come in any order, behind those of the ranges before.

        The order of what is written depends on the rows alone. Raises StorageFull, and what the sink raises.
        """
        first, rest = collected(batches, lambda batch: int(batch.nbytes), self._share_bytes)
        if rest is None:
            self._write_sorted(first)
            return
        schema = first[0].schema
        with self._spill() as directory:
            files = SpillFiles(directory, "all", schema)
            sample = Sample(sample_rows(MOST_RANGES))
            size = 0
            for batch in drained(first, rest):
                self._checkpoint()
                *keys, places = self._cuts.tagged_keys(batch)
                sample.add(place_hashes(np.asarray(places), 0), np.asarray(places), keys)
                files.add(batch, np.zeros(batch.num_rows, np.int64))
                size += batch.nbytes
            files.close()
            self.spilled_bytes += files.spilled_bytes
            points = keyed_points(self._cuts, sample.table(), self.pieces(size))
            if len(points):
                self._write_split(files.batches(0), schema, points, directory)
            else:  # one row, or keys so large that there is no second one to compare with
                self._write_sorted(list(files.batches(0)))

    def write_split(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, points: RangeBounds) -> None:
        """Write tagged batches that are too many for the memory: split by the points, then range by range."""
        with self._spill() as directory:
            self._write_split(batches, schema, points, directory)

    def pieces(self, size: int) -> int:
        """Into how many ranges so many bytes of tagged batches are to be split."""
        return max(2, min(MOST_RANGES, -(-size * 100 // (self._share_bytes * _FILLED))))

    def finish(self) -> None:
        """End the last file."""
        self._sink.finish_file()

    def _write_split(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, points: RangeBounds, directory: Path
    ) -> None:
        ranges = SpillFiles(directory, "range", schema)
        for batch in batches:
            self._checkpoint()
            ranges.add(batch, points.count_up_to(self._cuts.tagged_keys(batch)))
        ranges.close()
        self.spilled_bytes += ranges.spilled_bytes
        for number in ranges.numbers():
            self._checkpoint()
            give_back()
            self.write(ranges.batches(number))

    def _write_sorted(self, batches: list[pa.RecordBatch]) -> None:
        if not batches:
            return
        for number, rows in ordered(batches, self._cuts, self._checkpoint):
            if number != self._output:
                self._sink.finish_file()
                self._output = number
            self._sink.write(rows)
            self._on_rows(rows.num_rows)


def sort_bytes(share_bytes: int) -> int:
    """How much of the share is for rows that are sorted at once."""
    return min(share_bytes, _MOST_HELD)


def collected(items: Iterable[T], size: Callable[[T], int], most_bytes: int) -> tuple[list[T], Iterator[T] | None]:
    """Items that take at most about `most_bytes`, and the others still to come; None where these are all."""
    first: list[T] = []
    total = 0
    waiting = iter(items)
    for item in waiting:
        first.append(item)
        total += size(item)
        if total > most_bytes:
            return first, waiting
    return first, None


def drained(items: list[T], rest: Iterable[T] | None) -> Iterator[T]:
    """All of both; each of `items` is released once it was given."""
    items.reverse()
    while items:
        yield items.pop()
    yield from rest or ()
