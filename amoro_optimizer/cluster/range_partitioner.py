"""Ranges of rows: samples, curves, cut points, and the range of each row."""

import hashlib
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from amoro_core.files.hashing import mixed
from amoro_core.model.clustering import Strategy
from amoro_optimizer.cluster.sort_keys import (
    Counts,
    Order,
    Part,
    Words,
    arrow_part,
    flat,
    is_constant,
    joined,
    part_of,
    sort_rows,
    take_rows,
)


class RangeBounds:
    """Rows of parts, ascending and distinct, between which other rows lie."""

    def __init__(self, parts: Sequence[Part], descending: Sequence[bool]) -> None:
        """`descending` turns binary parts."""
        self.parts = tuple(parts)
        self.descending = tuple(descending)

    def __len__(self) -> int:
        return len(self.parts[0])

    def count_up_to(self, parts: Sequence[Part]) -> Counts:
        """For each row of these parts the number of bounds that are not greater."""
        count = len(self)
        together = [joined(pair) for pair in zip(self.parts, parts, strict=True)]
        deciding = [part for part in together if not is_constant(part)]
        if not deciding or not count:
            return np.full(len(parts[0]), count, np.int64)
        if len(deciding) == 1 and isinstance(deciding[0], np.ndarray):
            return np.searchsorted(deciding[0][:count], deciding[0][count:], side="right")
        # Sorting keeps equal rows as they come: a bound before the rows that equal it.
        order = sort_rows(together, self.descending)
        is_bound = order < count
        counts = np.empty(len(parts[0]), np.int64)
        counts[order[~is_bound] - count] = np.cumsum(is_bound)[~is_bound]
        return counts


#: Rows of a sample: at least so many for each output, and in all.
ROWS_FOR_OUTPUT, LEAST_ROWS = 1000, 20_000
#: What the keys of a sample take at most.
MAX_SAMPLE_BYTES = 32 << 20

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
#: Bits of a row's position in its file; those above have the file's number.
_POSITION_BITS = 40
_HASH, _SAMPLE_PLACE, _LIMIT = "hash", "place", b"limit"


def sample_rows(outputs: int) -> int:
    """How many rows are to be sampled for so many outputs."""
    return max(LEAST_ROWS, ROWS_FOR_OUTPUT * outputs)


def places_of(file_number: int, positions: npt.NDArray[np.int64]) -> Words:
    """Where rows stand in the work: by the number of their file, then by their position in it."""
    return (positions + (file_number << _POSITION_BITS)).astype(np.uint64)


def row_hashes(path: str, positions: npt.NDArray[np.int64], seed: int) -> Words:
    """A hash of each row by its file, its position there, and the seed; no two rows of a file have the same."""
    stored = hashlib.blake2b(path.encode("utf-8", "surrogateescape"), digest_size=8, key=seed.to_bytes(8, "big"))
    return place_hashes(positions.astype(np.uint64), int.from_bytes(stored.digest(), "big"))


def place_hashes(places: Words, seed: int) -> Words:
    """A hash of each place, and the seed."""
    return mixed(places * _GAMMA + np.uint64(seed))


class Sample:
    """The rows with the least hashes of all that were added; samples of parts, joined, are the sample of all."""

    def __init__(self, rows: int, most_bytes: int = MAX_SAMPLE_BYTES) -> None:
        """At least one row is kept, however large."""
        self._rows = rows
        self._most_bytes = most_bytes
        self._kept: list[pa.Table] = []
        self._kept_rows = 0
        self._kept_bytes = 0
        self._limit = np.uint64(2**64 - 1)  # of the first row that was left out

    def wanted(self, hashes: Words) -> npt.NDArray[np.int64]:
        """Which of the rows that are chosen by these may be in the sample."""
        return np.flatnonzero(hashes <= self._limit)

    def add(self, hashes: Words, places: Words, parts: Sequence[Part]) -> None:
        """Rows: what each is chosen by, its place, which no other has, and its parts."""
        chosen = self.wanted(hashes)
        if len(chosen):
            columns = [hashes[chosen], places[chosen], *(take_rows(part, chosen) for part in parts)]
            self.join(_table(columns))

    def join(self, other: pa.Table) -> None:
        """The rows of another sample."""
        stored = (other.schema.metadata or {}).get(_LIMIT)
        if stored is not None:
            self._limit = min(self._limit, np.uint64(int(stored)))
        self._kept.append(other.replace_schema_metadata())
        self._kept_rows += other.num_rows
        self._kept_bytes += other.nbytes
        if self._kept_rows > 2 * self._rows or self._kept_bytes > 2 * self._most_bytes:
            self._shrink()

    def table(self) -> pa.Table | None:
        """The sample, by hash: columns hash, place and the parts; None where no row was added."""
        if not self._kept:
            return None
        self._shrink()
        return self._kept[0].replace_schema_metadata({_LIMIT: str(self._limit)})

    def _shrink(self) -> None:
        rows = pa.concat_tables(self._kept)
        hashes, places = rows.column(_HASH).to_numpy(), rows.column(_SAMPLE_PLACE).to_numpy()
        order = np.lexsort((places, hashes))
        order = order[hashes[order] <= self._limit]
        widths = np.cumsum(np.sum([_widths(column) for column in rows.columns], axis=0)[order[: self._rows]])
        count = max(1, int(np.searchsorted(widths, self._most_bytes, side="right")))
        if count < len(order):
            self._limit = hashes[order[count]]
        chosen = rows.take(pa.array(order[:count])).combine_chunks()
        self._kept, self._kept_rows, self._kept_bytes = [chosen], chosen.num_rows, chosen.nbytes


def sampled_parts(table: pa.Table) -> tuple[list[pa.ChunkedArray], pa.ChunkedArray]:
    """The parts of a sample's rows, and their places."""
    return table.columns[2:], table.column(_SAMPLE_PLACE)


def _table(columns: Sequence[Part]) -> pa.Table:
    names = [_HASH, _SAMPLE_PLACE, *(f"part_{number}" for number in range(len(columns) - 2))]
    return pa.table([arrow_part(column) for column in columns], names=names)


def _widths(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    if not pa.types.is_binary(column.type):
        return np.full(len(column), 8, np.int64)
    lengths: npt.NDArray[np.int64] = pc.binary_length(column).to_numpy().astype(np.int64)
    return lengths + 8


#: Of a coordinate: four make a word.
COORDINATE_BITS = 16
Coordinates = npt.NDArray[np.uint16]


def zorder(points: Sequence[Coordinates]) -> Words:
    """The bits of one to four coordinates by turns, the first one's highest bit first."""
    spread, count = _spread_bits(len(points)), len(points)
    places = spread[points[0]] << np.uint64(count - 1)
    for number in range(1, count):
        places |= spread[points[number]] << np.uint64(count - 1 - number)
    return places


def hilbert(points: Sequence[Coordinates]) -> Words:
    """The place on Hilbert's curve, by Skilling's transpose (AIP Conference Proceedings 707, 2004)."""
    return zorder(_transposed([np.array(point) for point in points]))


def _transposed(points: list[Coordinates]) -> list[Coordinates]:
    """What has the bits of the places by turns; the arrays are worked on in place."""
    first, last = points[0], points[-1]
    for bit in range(COORDINATE_BITS - 1, 0, -1):
        below = np.uint16((1 << bit) - 1)
        for point in points:
            # All ones below the bit where the coordinate has it: there the first is turned, else both are exchanged.
            turned = (point >> np.uint16(bit) & np.uint16(1)) * below
            exchanged = (first ^ point) & (below ^ turned)
            first ^= turned | exchanged
            if point is not first:
                point ^= exchanged
    for before, point in pairwise(points):
        point ^= before
    turns = np.zeros_like(last)
    for bit in range(COORDINATE_BITS - 1, 0, -1):
        turns ^= (last >> np.uint16(bit) & np.uint16(1)) * np.uint16((1 << bit) - 1)
    for point in points:
        point ^= turns
    return points


@cache
def _spread_bits(count: int) -> Words:
    """Each coordinate with `count` − 1 zeros before each bit but the highest."""
    coordinates = np.arange(1 << COORDINATE_BITS, dtype=np.uint64)
    spread = np.zeros_like(coordinates)
    for bit in range(COORDINATE_BITS):
        spread |= (coordinates >> np.uint64(bit) & np.uint64(1)) << np.uint64(bit * count)
    return spread


#: Ranks of a column, at most: its values are told apart so finely.
MOST_RANKS = 4096
#: The factor by which the rows of a curve's output may differ from the mean so that the output ends with a cell.
UNEVENNESS = 1.5
#: What all values of one kind of cut points may take: longer binary ones are cut, which leaves them in order.
MOST_BYTES = 2 << 20
_LEAST_WIDTH = 64
_HIGHEST = (1 << COORDINATE_BITS) - 1
_KEY, _PLACE = "amoro_key", "amoro_place"
#: What the tags of a row take at most.
TAG_BYTES = 16


class Ranks(NamedTuple):
    """Values of a column between which others are told apart, and the coordinates of those between two of them."""

    bounds: RangeBounds
    coordinates: Coordinates  # one more than bounds


class Cuts:
    """How the rows of a group are keyed and split. Of an order, in which rows that are equal go by their place.

    A tagged batch has the table's columns, then for curves the place on the curve, then the row's place in the work.
    """

    def __init__(self, order: Order, ranks: Sequence[Ranks], outputs: RangeBounds) -> None:
        """`ranks` of each column of a curve; the rows from one of `outputs` to the next make a file."""
        self.order = order
        self.ranks = tuple(ranks)
        self.outputs = outputs
        self._tags = [pa.field(_KEY, pa.uint64()), pa.field(_PLACE, pa.uint64())][not order.is_curve :]

    @property
    def descending(self) -> tuple[bool, ...]:
        """Of each part of a key, whether it orders from the greatest value on."""
        return _key_descending(self.order)

    def tagged(self, batch: pa.RecordBatch, places: Words) -> pa.RecordBatch:
        """The rows of the table with what orders them."""
        keys = _keys(self.order.parts(batch), self.order, self.ranks) if self.order.is_curve else []
        tags = [*keys, places]
        arrays = [*batch.columns, *(arrow_part(tag) for tag in tags)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.tagged_schema(batch.schema))

    def tagged_schema(self, schema: pa.Schema) -> pa.Schema:
        """The schema of tagged batches of the table's."""
        return pa.schema([*schema, *self._tags])

    def untagged(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The table's columns alone."""
        return batch.select(list(range(batch.num_columns - len(self._tags))))

    def tagged_keys(self, batch: pa.RecordBatch) -> list[Part]:
        """What rows of a tagged batch are compared by, their places last: no two are equal."""
        places = part_of(batch.column(batch.num_columns - 1))
        if self.order.is_curve:
            return [part_of(batch.column(batch.num_columns - 2)), places]
        return [*flat(self.order.parts(batch)), places]

    def output_numbers(self, batch: pa.RecordBatch) -> Counts:
        """The output of each row of a tagged batch, from 0."""
        return self.outputs.count_up_to(self.tagged_keys(batch))

    def serialized(self) -> bytes:
        """The cut points as an Arrow stream of one row; the same bytes for the same points."""
        columns = {
            **{
                f"rank_{number}_{part}": values
                for number, ranks in enumerate(self.ranks)
                for part, values in enumerate((*ranks.bounds.parts, ranks.coordinates.astype(np.uint64)))
            },
            **{f"cut_{part}": values for part, values in enumerate(self.outputs.parts)},
        }
        arrays = [
            pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), arrow_part(values))
            for values in columns.values()
        ]
        row = pa.RecordBatch.from_arrays(arrays, names=list(columns))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, row.schema) as stream:
            stream.write_batch(row)
        return bytes(sink.getvalue())


def parse_cuts(order: Order, content: bytes) -> Cuts:
    """The cut points of an order that `serialized` wrote."""
    with pa.ipc.open_stream(content) as stream:
        row = stream.read_next_batch()
    result = {name: column.values for name, column in zip(row.schema.names, row.columns, strict=True)}

    def points(prefix: str, descending: Sequence[bool]) -> RangeBounds:
        return RangeBounds([part_of(result[f"{prefix}_{part}"]) for part in range(len(descending))], descending)

    ranks = [
        Ranks(points(f"rank_{number}", down), np.asarray(part_of(result[f"rank_{number}_{len(down)}"]), np.uint16))
        for number, down in enumerate(order.descending if order.is_curve else ())
    ]
    return Cuts(order, ranks, points("cut", (*_key_descending(order), False)))


def make_cuts(order: Order, sample: pa.Table | None, outputs: int) -> Cuts:
    """The cut points, by a sample with the parts of all columns: for outputs as even as possible; none without rows."""
    parts, places = _sampled(order, sample)
    ranks = [_ranks(column, down) for column, down in zip(parts, order.descending, strict=True)]
    if not len(places):
        return Cuts(order, ranks if order.is_curve else [], _quantiles(order, [], outputs))
    if not order.is_curve:
        return Cuts(order, [], _quantiles(order, [*flat(parts), places], outputs))
    return Cuts(order, ranks, _cells(np.asarray(_keys(parts, order, ranks)[0]), places, outputs))


def split_points(cuts: Cuts, sample: pa.Table | None, pieces: int) -> RangeBounds:
    """Points that split the rows that the sample stands for into so many even pieces."""
    parts, places = _sampled(cuts.order, sample)
    return _quantiles(cuts.order, [*_keys(parts, cuts.order, cuts.ranks), places], pieces)


def keyed_points(cuts: Cuts, sample: pa.Table | None, pieces: int) -> RangeBounds:
    """Points that split rows into so many even pieces; the sample has keys, as `tagged_keys` tells them."""
    if sample is None:
        return cuts.outputs
    columns, places = sampled_parts(sample)
    return _quantiles(cuts.order, [part_of(column) for column in (*columns, places)], pieces)


def _sampled(order: Order, sample: pa.Table | None) -> tuple[list[list[Part]], Words]:
    if sample is None:
        return [[np.zeros(0, np.uint64) for _ in down] for down in order.descending], np.zeros(0, np.uint64)
    columns, places = sampled_parts(sample)
    parts = iter([part_of(column) for column in columns])
    return [[next(parts) for _ in down] for down in order.descending], np.asarray(part_of(places))


def _quantiles(order: Order, keys: list[Part], pieces: int) -> RangeBounds:
    """The keys of which each begins a piece, in their order."""
    descending = (*_key_descending(order), False)
    if not keys:
        return RangeBounds([np.zeros(0, np.uint64) for _ in descending], (False,) * len(descending))
    ordered = sort_rows(keys, descending)
    rows = len(ordered)
    begins = np.unique([number * rows // pieces for number in range(1, pieces)]).astype(np.int64)
    chosen = _shortened([take_rows(part, ordered[begins[begins > 0]]) for part in keys])
    again = sort_rows(chosen, descending)  # what was shortened may be equal now
    return RangeBounds([take_rows(part, again) for part in chosen], descending)


def _cells(keys: Words, places: Words, pieces: int) -> RangeBounds:
    """Where outputs begin on a curve: with its largest cells, if rows are split about evenly there, else at quantiles.

    All rows of a cell, which is a box, come one after the other. A file of parts of two cells can be as wide as both.
    """
    order = np.lexsort((places, keys))
    keys, places = keys[order], places[order]
    share, bounds, ranges = len(keys) / pieces, [], [(0, len(keys), pieces)]
    while ranges:
        begin, end, count = ranges.pop()
        if min(count, end - begin) < 2:
            continue
        first = count // 2
        at = max(begin + 1, begin + (end - begin) * first // count)
        point = int(keys[at]), int(places[at])
        below = max(0, int(keys[begin] ^ keys[end - 1]).bit_length() - 1)
        # The last key with all bits but those that both keys share, and one.
        cell = int(keys[end - 1]) >> below << below
        middle = begin + int(np.searchsorted(keys[begin:end], np.uint64(cell)))
        before = round(count * (middle - begin) / (end - begin))
        if 0 < before < count:
            sizes = (middle - begin) / before / share, (end - middle) / (count - before) / share
            if max(sizes) <= UNEVENNESS and min(sizes) >= 1 / UNEVENNESS:
                first, at, point = before, middle, (cell, 0)
        bounds.append(point)
        ranges += [(begin, at, first), (at, end, count - first)]
    points = np.array(sorted(bounds), np.uint64).reshape(-1, 2)
    return RangeBounds([points[:, 0].copy(), points[:, 1].copy()], (False, False))


def _ranks(parts: list[Part], descending: Sequence[bool]) -> Ranks:
    """The ranks of a column: between all of a few values, else between those at quantiles.

    A coordinate is the share of the rows with lower values, and half of those with the same: values of which there are
    few lie close together, and beside a value with a quarter of the rows an eighth of the axis is free on both sides.
    """
    rows = len(parts[0])
    ordered = sort_rows(parts, descending)
    parts = [take_rows(part, ordered) for part in parts]
    begins = np.flatnonzero(_differs(parts)) if rows else np.zeros(0, np.int64)
    begins = begins[1:]
    if len(begins) > MOST_RANKS:
        wanted = np.arange(1, MOST_RANKS) * rows // MOST_RANKS
        begins = np.unique(begins[np.searchsorted(begins, wanted, side="right").clip(1) - 1])
    chosen = _shortened([take_rows(part, begins) for part in parts])
    distinct = np.flatnonzero(_differs(chosen)) if len(begins) else begins
    edges = np.concatenate(([0], begins[distinct], [rows]))
    coordinates = (edges[:-1] + edges[1:]) * _HIGHEST // max(1, 2 * rows)
    return Ranks(RangeBounds([take_rows(part, distinct) for part in chosen], descending), coordinates.astype(np.uint16))


def _differs(parts: Sequence[Part]) -> npt.NDArray[np.bool_]:
    """Of sorted rows, whether each is another than the one before."""
    differs = np.zeros(len(parts[0]), np.bool_)
    differs[0] = True
    for part in parts:
        if isinstance(part, np.ndarray):
            differs[1:] |= part[1:] != part[:-1]
        else:
            differs[1:] |= pc.not_equal(part[1:], part[:-1]).to_numpy(zero_copy_only=False)
    return differs


def _shortened(parts: list[Part]) -> list[Part]:
    return [
        part
        if isinstance(part, np.ndarray) or part.nbytes <= MOST_BYTES
        else pc.binary_slice(part, 0, max(_LEAST_WIDTH, MOST_BYTES // len(part)))
        for part in parts
    ]


def _keys(parts: list[list[Part]], order: Order, ranks: Sequence[Ranks]) -> list[Part]:
    if not order.is_curve:
        return flat(parts)
    points = [part.coordinates[part.bounds.count_up_to(column)] for column, part in zip(parts, ranks, strict=True)]
    return [(hilbert if order.layout.strategy is Strategy.HILBERT else zorder)(points)]


def _key_descending(order: Order) -> tuple[bool, ...]:
    return (False,) if order.is_curve else tuple(down for column in order.descending for down in column)
