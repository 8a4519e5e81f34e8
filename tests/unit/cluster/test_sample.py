"""The sample depends on the rows alone, and rows are put in order alike in whatever order their batches come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, NestedField, StringType, UUIDType

from amoro_core.files.schema.schemas import arrow_schema
from amoro_core.model.clustering import Layout, LayoutKey, Strategy
from amoro_optimizer.cluster.range_partitioner import (
    MOST_RANKS,
    Cuts,
    Sample,
    make_cuts,
    parse_cuts,
    place_hashes,
    places_of,
    row_hashes,
    sample_rows,
)
from amoro_optimizer.cluster.sort_keys import Order, flat, sort_rows
from amoro_optimizer.cluster.writing import RangeWriter, ordered

from .builders import curve, files_of, group, linear, run, table_of

SCHEMA = Schema(NestedField(1, "key", LongType(), required=False), NestedField(2, "text", StringType(), required=False))
ROWS = 30_000


def batch_of(seed: int = 1) -> pa.RecordBatch:
    chance = np.random.default_rng(seed)
    keys = [None if one < 3 else int(one) for one in chance.integers(0, 50, ROWS)]
    texts = [f"{one:05}" * (40 if one % 100 == 0 else 1) for one in chance.integers(0, 9000, ROWS)]
    (batch,) = table_of(SCHEMA, [keys, texts]).to_batches()
    return batch


def sampled(batch: pa.RecordBatch, pieces: list[np.ndarray], rows: int, most_bytes: int, joined: bool) -> pa.Table:
    """The sample of the rows that come in these pieces, in one or as one of samples of each."""
    order = Order(SCHEMA, linear(1, 2))
    whole = Sample(rows, most_bytes)
    for positions in pieces:
        one = Sample(rows, most_bytes) if joined else whole
        parts = flat(order.parts(batch.take(pa.array(positions))))
        one.add(row_hashes("file", positions, 7), places_of(3, positions), parts)
        if joined:
            found = one.table()
            assert found is not None
            whole.join(found)
    table = whole.table()
    assert table is not None
    return table


@pytest.mark.parametrize("most_bytes", [1 << 30, 60_000, 1], ids=["of rows", "of bytes", "of one row"])
@pytest.mark.parametrize("joined", [False, True], ids=["one after the other", "joined"])
def test_the_sample_is_that_of_the_rows_however_they_come(most_bytes: int, joined: bool) -> None:
    batch = batch_of()
    positions = np.arange(ROWS)
    expected = sampled(batch, [positions], 2000, most_bytes, False)
    assert expected.num_rows == 2000 if most_bytes == 1 << 30 else 1 <= expected.num_rows < 2000
    hashes = row_hashes("file", positions, 7)
    least = np.argsort(hashes)[: expected.num_rows]
    assert expected.column("place").to_pylist() == places_of(3, least).tolist()
    for seed in range(3):
        shuffled = np.random.default_rng(seed).permutation(ROWS)
        pieces = np.array_split(shuffled, [10, 500, 501, 9000])
        assert sampled(batch, pieces, 2000, most_bytes, joined).equals(expected)


def test_a_row_that_did_not_fit_ends_the_sample_of_the_other_parts_too() -> None:
    """Whoever has all rows in one sample stops at it as well."""
    kept, wide, behind = ([number] for number in (1, 2, 3))
    texts = {1: b"a", 2: b"b" * 500, 3: b"c"}

    def add(sample: Sample, hashes: list[int]) -> None:
        numbers = np.array(hashes, np.uint64)
        sample.add(numbers, numbers, [pa.array([texts[one] for one in hashes], pa.binary())])

    whole, one, other = Sample(10, 100), Sample(10, 100), Sample(10, 100)
    add(whole, [*behind, *kept, *wide])
    add(one, [*kept, *wide])
    add(other, behind)
    part = one.table()
    assert part is not None
    other.join(part)
    for sample in (whole, one, other):
        found = sample.table()
        assert found is not None
        assert found.column("hash").to_pylist() == kept


def test_rows_are_sampled_by_file_position_and_seed() -> None:
    positions = np.arange(1000)
    found = {row_hashes(path, positions, seed).tobytes() for path in ("a", "b") for seed in (1, 2)}
    assert len(found) == 4
    assert len(np.unique(row_hashes("a", positions, 1))) == 1000
    assert sample_rows(1) == 20_000
    assert sample_rows(512) == 512_000


def cuts_of(batch: pa.RecordBatch, layout: Layout, outputs: int) -> Cuts:
    order, positions = Order(SCHEMA, layout), np.arange(batch.num_rows)
    sample = Sample(sample_rows(outputs))
    sample.add(row_hashes("file", positions, 7), places_of(0, positions), flat(order.parts(batch)))
    return make_cuts(order, sample.table(), outputs)


class Files:
    """Rows of files, in order."""

    def __init__(self) -> None:
        self.files: list[list[pa.RecordBatch]] = []
        self._is_open = False

    def write(self, batch: pa.RecordBatch) -> None:
        if not self._is_open:
            self.files.append([])
        self._is_open = True
        self.files[-1].append(batch)

    def finish_file(self) -> None:
        self._is_open = False

    def rows(self) -> list[list[tuple[object, ...]]]:
        tables = [pa.Table.from_batches(batches) for batches in self.files]
        return [list(zip(*table.to_pydict().values(), strict=True)) for table in tables]


@pytest.mark.parametrize("share_bytes", [1 << 30, 300_000, 1], ids=["held", "split", "split row by row"])
@pytest.mark.parametrize("layout", [linear(1), curve(Strategy.ZORDER, 1, 2)], ids=str)
def test_a_range_is_written_alike_in_whatever_order_its_batches_come(
    tmp_path: Path, share_bytes: int, layout: Layout
) -> None:
    """As blocks of a shuffle do: equal rows go by their places, and two workers agree."""
    batch = batch_of().slice(0, 600 if share_bytes == 1 else ROWS)
    cuts = cuts_of(batch, layout, 4)
    tagged = cuts.tagged(batch, places_of(0, np.arange(batch.num_rows)))

    @contextmanager
    def spill() -> Iterator[Path]:
        directory = tmp_path / str(len(list(tmp_path.iterdir())))
        directory.mkdir()
        yield directory
        assert not list(directory.iterdir())

    found = []
    for seed in range(3):
        shuffled = np.random.default_rng(seed).permutation(batch.num_rows)
        pieces = [tagged.take(pa.array(piece)) for piece in np.array_split(shuffled, 7)]
        files = Files()
        writer = RangeWriter(
            parse_cuts(cuts.order, cuts.serialized()),
            files,
            share_bytes=share_bytes,
            spill=spill,
            checkpoint=lambda: None,
        )
        writer.write(pieces if seed else [tagged])
        writer.finish()
        assert (writer.spilled_bytes > 0) == (share_bytes != 1 << 30)
        three = 3 * (max(share_bytes, 4096) * 6 // 10)  # ranges are planned to fill six tenths of the share
        assert [writer.pieces(size) for size in (1, three, three + 3, 10**15)] == [2, 3, 4, 256]
        found.append(files.rows())
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 4
    assert sorted(map(repr, chain.from_iterable(found[0]))) == sorted(
        map(repr, zip(*batch.to_pydict().values(), strict=True))
    )


def test_a_row_that_is_larger_than_the_memory_is_written_all_the_same(tmp_path: Path) -> None:
    texts = ["b" * 9000, "a" * 9000, "c" * 9000]
    work = group(tmp_path, SCHEMA, linear(2), files_of(tmp_path, SCHEMA, table_of(SCHEMA, [[1, 2, 3], texts]), 1))
    output = run(work, memory_limit_bytes=1)
    assert output.rewrite.rows_written == 3
    assert output.spill_bytes > 0


def test_a_value_has_the_coordinate_in_the_middle_of_its_rows_or_of_its_quantile() -> None:
    batch = table_of(SCHEMA, [[5, 1, 5, 1, 3, 5], ["x"] * 6]).to_batches()[0]
    keys, texts = cuts_of(batch, curve(Strategy.ZORDER, 1, 2), 2).ranks
    assert (len(keys.bounds), len(texts.bounds)) == (2, 0)
    assert [round(one * 12 / (2**16 - 1)) for one in keys.coordinates.tolist()] == [2, 5, 9]
    assert texts.coordinates.tolist() == [2**15 - 1]
    count = 2 * MOST_RANKS
    batch = table_of(SCHEMA, [range(count), ["x"] * count]).to_batches()[0]
    ((bounds, coordinates), _) = cuts_of(batch, curve(Strategy.ZORDER, 1, 2), 2).ranks
    assert (np.asarray(bounds.parts[-1]) - (np.uint64(1) << np.uint64(63))).tolist() == list(range(2, count, 2))
    assert coordinates.tolist() == [(4 * number + 2) * (2**16 - 1) // (2 * count) for number in range(MOST_RANKS)]


NUMBERS = Schema(*(NestedField(number, f"c{number}", LongType(), required=False) for number in (1, 2, 3, 4)))


def skewed(name: str, rows: int) -> np.ndarray:
    """Numbers of a column of which some are far more frequent than others."""
    chance = np.random.default_rng(5)
    places = {"lowest": -1, "in the middle": 500_000, "highest": 2_000_000}
    match name.split(maxsplit=1):
        case ["quarter", where]:
            return np.where(chance.random(rows) < 0.25, places[where], chance.integers(0, 1_000_000, rows))
        case ["zipf"]:
            return np.minimum(chance.zipf(1.3, rows), 10_000_000)
    near, far = chance.normal(1000, 30, rows), chance.normal(1_000_000, 200, rows)
    return np.where(chance.random(rows) < 0.5, near, far).astype(np.int64)


SKEWED = ["quarter lowest", "quarter in the middle", "quarter highest", "zipf", "clusters"]
#: How much more than in a perfect layout: of four columns the last is hardly split before there are 16 files.
MOST_MET = {2: 1.5, 3: 1.5, 4: 1.7}


@pytest.mark.parametrize("outputs", [8, 61, 90])
@pytest.mark.parametrize("strategy", [Strategy.HILBERT, Strategy.ZORDER])
@pytest.mark.parametrize(
    ("name", "count"), [*((name, 2) for name in SKEWED), ("quarter in the middle", 3), ("zipf", 3), ("zipf", 4)]
)
def test_a_point_meets_few_files_however_skewed_a_column_is(
    name: str, count: int, strategy: Strategy, outputs: int
) -> None:
    """On each column about as many as in a perfect layout; a heavy value is in its share of the files at least."""
    rows, ideal, most = 60_000, outputs ** (-1 / count), MOST_MET[count]
    even = [np.random.default_rng(seed).integers(0, 10**9, rows) for seed in (1, 2, 3)]
    columns = [even[0], skewed(name, rows), *even[1:]]
    batch = table_of(NUMBERS, columns).to_batches()[0]
    order, places = Order(NUMBERS, curve(strategy, *range(1, count + 1))), places_of(0, np.arange(rows))
    sample = Sample(sample_rows(outputs))
    sample.add(place_hashes(places, 7), places, flat(order.parts(batch)))
    cuts = make_cuts(order, sample.table(), outputs)
    cuts = parse_cuts(order, cuts.serialized())
    numbers = cuts.output_numbers(cuts.tagged(batch, places))
    sizes = np.bincount(numbers) * outputs / rows
    assert len(sizes) == outputs
    assert 0.6 < sizes.min() <= sizes.max() < 1.7
    for column in columns[:count]:
        ends = [np.sort([end(column[numbers == one]) for one in range(outputs)]) for end in (np.min, np.max)]
        values, counts = np.unique(column, return_counts=True)
        met = (np.searchsorted(ends[0], values, "right") - np.searchsorted(ends[1], values, "left")) / outputs
        shares = counts / rows
        is_heavy = shares > ideal / 2
        assert np.average(met[~is_heavy], weights=counts[~is_heavy]) <= most * ideal
        assert all(met[is_heavy] <= shares[is_heavy] + most * ideal)


WIDE = Schema(
    NestedField(1, "key", LongType(), required=False),
    NestedField(2, "text", StringType(), required=False),
    NestedField(3, "id", UUIDType(), required=False),
    NestedField(4, "several", ListType(5, LongType(), element_required=False), required=False),
)
#: Of about 60 bytes: they make many blocks and pieces.
MANY = 160_000
LAYOUTS = [linear(1), linear(LayoutKey(2, descending=True), 1), curve(Strategy.HILBERT, 1, 2)]


def random_rows(rows: int) -> pa.RecordBatch:
    chance = np.random.default_rng(rows)
    keys = pa.array(chance.integers(0, 50_000, rows), mask=chance.random(rows) < 0.1)
    texts = pa.array([f"text {number:06}" for number in range(5000)]).take(pa.array(chance.integers(0, 5000, rows)))
    ids = pa.Array.from_buffers(pa.binary(16), rows, [None, pa.py_buffer(chance.bytes(16 * rows))])
    several = pa.ListArray.from_arrays(pa.array(np.arange(rows + 1) // 2, pa.int32()), pa.array(np.arange(rows // 2)))
    kind = arrow_schema(WIDE)
    arrays = [keys, texts, pa.ExtensionArray.from_storage(pa.uuid(), ids), several.cast(kind.field("several").type)]
    return pa.RecordBatch.from_arrays(arrays, schema=kind)


def tagged_rows(batch: pa.RecordBatch, layout: Layout, outputs: int) -> tuple[Cuts, pa.RecordBatch]:
    order, places = Order(WIDE, layout), places_of(0, np.arange(batch.num_rows))
    sample = Sample(sample_rows(outputs))
    sample.add(place_hashes(places, 7), places, flat(order.parts(batch)))
    cuts = make_cuts(order, sample.table(), outputs)
    return cuts, cuts.tagged(batch, places)


def in_order(cuts: Cuts, tagged: pa.RecordBatch) -> pa.RecordBatch:
    """Rows that come in the order of their places."""
    return tagged.take(pa.array(sort_rows(cuts.tagged_keys(tagged)[:-1], cuts.descending)))


def batches_of(tagged: pa.RecordBatch, sizes: Sequence[int], is_shuffled: bool) -> list[pa.RecordBatch]:
    """Batches of these sizes by turns."""
    rows = np.arange(tagged.num_rows)
    if is_shuffled:
        np.random.default_rng(1).shuffle(rows)
    found, start = [], 0
    while start < len(rows):
        size = sizes[len(found) % len(sizes)]
        found.append(tagged.take(pa.array(rows[start : start + size])))
        start += size
    return found


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("sizes", [(MANY,), (40_000, 1, 0, 9000), (700,)], ids=["one", "uneven", "many"])
@pytest.mark.parametrize("is_shuffled", [False, True], ids=["as they stand", "in any order"])
def test_rows_come_in_the_order_of_their_keys_and_end_with_their_output(
    layout: Layout, sizes: tuple[int, ...], is_shuffled: bool
) -> None:
    cuts, tagged = tagged_rows(random_rows(MANY), layout, 2)
    batches, steps = batches_of(tagged, sizes, is_shuffled), []
    expected = in_order(cuts, tagged)
    pieces = list(ordered(batches, cuts, lambda: steps.append(1)))
    assert batches == []
    assert len(pieces) > 2
    assert len(steps) >= len(pieces)
    assert pa.Table.from_batches([rows for _, rows in pieces]).equals(pa.Table.from_batches([cuts.untagged(expected)]))
    numbers = np.repeat([number for number, _ in pieces], [rows.num_rows for _, rows in pieces])
    assert numbers.tolist() == cuts.output_numbers(expected).tolist()
