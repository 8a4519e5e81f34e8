"""One range of rows, in any order and of any size, written in the order of its cuts."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from amoro_optimizer.cluster.cuts import Cuts, keyed_points
from amoro_optimizer.cluster.order import Order
from amoro_optimizer.cluster.ordering import ordered
from amoro_optimizer.cluster.points import Points
from amoro_optimizer.cluster.ranges import MOST_RANGES, Ranges
from amoro_optimizer.cluster.sample import Sample, place_hashes, sample_rows
from amoro_optimizer.rewrite.memory import give_back

#: Of what a range may take ranges that are split are to have so much, in hundredths: samples are not exact.
_FILLED = 60
_LEAST_SHARE = 4096
#: What is held of rows that are compared by texts: an array of Arrow has less than 2 GiB of them.
_MOST_OF_TEXTS = (2 << 30) - (64 << 20)


class Sink(Protocol):
    """What takes rows in their order: files."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows of the table's schema to the open file, or to a new one."""

    def finish_file(self) -> None:
        """End the open file, if there is one."""


class RangeWriter:
    """Sorts ranges one after the other, ascending, and writes the files into which the cuts divide them.

    What does not fit into `share_bytes` is split into files of a directory that `spill` opens, each sorted alone.
    """

    def __init__(
        self,
        cuts: Cuts,
        sink: Sink,
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
        self._share_bytes = max(held_bytes(cuts.order, share_bytes), _LEAST_SHARE)
        self._spill = spill
        self._checkpoint = checkpoint
        self._on_rows = on_rows
        self._output = -1  # the file that is open

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write the tagged batches of one range, which come in any order, behind those of the ranges before.

        The order of what is written depends on the rows alone. Raises StorageFull, and what the sink raises.
        """
        held, rest = collected(batches, self._share_bytes)
        if rest is None:
            self._write_held(held)
            return
        schema = held[0].schema
        with self._spill() as directory:
            every = Ranges(directory, "all", schema)
            sample = Sample(sample_rows(MOST_RANGES))
            size = 0
            for batch in _drained(held, rest):
                self._checkpoint()
                *keys, places = self._cuts.tagged_keys(batch)
                sample.add(place_hashes(np.asarray(places), 0), np.asarray(places), keys)
                every.add(batch, np.zeros(batch.num_rows, np.int64))
                size += batch.nbytes
            every.close()
            self.spilled_bytes += every.spilled_bytes
            points = keyed_points(self._cuts, sample.table(), self.pieces(size))
            if len(points):
                self._write_split(every.batches(0), schema, points, directory)
            else:  # one row, or keys so large that there is no second one to compare with
                self._write_held(list(every.batches(0)))

    def write_split(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, points: Points) -> None:
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
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, points: Points, directory: Path
    ) -> None:
        ranges = Ranges(directory, "range", schema)
        for batch in batches:
            self._checkpoint()
            ranges.add(batch, points.count_up_to(self._cuts.tagged_keys(batch)))
        ranges.close()
        self.spilled_bytes += ranges.spilled_bytes
        for number in ranges.numbers():
            self._checkpoint()
            give_back()
            self.write(ranges.batches(number))

    def _write_held(self, held: list[pa.RecordBatch]) -> None:
        if not held:
            return
        for number, rows in ordered(held, self._cuts, self._checkpoint):
            if number != self._output:
                self._sink.finish_file()
                self._output = number
            self._sink.write(rows)
            self._on_rows(rows.num_rows)


def held_bytes(order: Order, share_bytes: int) -> int:
    """How much of the share is for rows that are sorted at once."""
    return min(share_bytes, _MOST_OF_TEXTS) if order.compares_texts else share_bytes


def collected(
    batches: Iterable[pa.RecordBatch], share_bytes: int
) -> tuple[list[pa.RecordBatch], Iterator[pa.RecordBatch] | None]:
    """Batches that take at most about so many bytes, and the others still to come; None where these are all."""
    held: list[pa.RecordBatch] = []
    size = 0
    waiting = iter(batches)
    for batch in waiting:
        held.append(batch)
        size += batch.nbytes
        if size > share_bytes:
            return held, waiting
    return held, None


def _drained(held: list[pa.RecordBatch], rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All of both; what was held is let go as it goes."""
    held.reverse()
    while held:
        yield held.pop()
    yield from rest
