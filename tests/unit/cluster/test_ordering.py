"""Rows in memory come in the order of all keys, whatever blocks and pieces they are moved by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, NestedField, StringType, UUIDType

from amoro_core.errors import AttemptAbandoned
from amoro_core.files.schema import arrow_schema
from amoro_core.model.clustering import Layout, LayoutKey, Strategy
from amoro_optimizer.cluster.cuts import Cuts, make_cuts
from amoro_optimizer.cluster.order import Order, flat
from amoro_optimizer.cluster.ordering import ordered
from amoro_optimizer.cluster.sample import Sample, place_hashes, places_of, sample_rows
from amoro_optimizer.cluster.values import sort_rows
from tests.unit.cluster.builders import curve, linear

SCHEMA = Schema(
    NestedField(1, "key", LongType(), required=False),
    NestedField(2, "text", StringType(), required=False),
    NestedField(3, "id", UUIDType(), required=False),
    NestedField(4, "several", ListType(5, LongType(), element_required=False), required=False),
)
#: Of about 60 bytes: they make many blocks and pieces.
ROWS = 160_000
LAYOUTS = [linear(1), linear(LayoutKey(2, descending=True), 1), curve(Strategy.HILBERT, 1, 2)]


def random_rows(rows: int) -> pa.RecordBatch:
    chance = np.random.default_rng(rows)
    keys = pa.array(chance.integers(0, 50_000, rows), mask=chance.random(rows) < 0.1)
    texts = pa.array([f"text {number:06}" for number in range(5000)]).take(pa.array(chance.integers(0, 5000, rows)))
    ids = pa.Array.from_buffers(pa.binary(16), rows, [None, pa.py_buffer(chance.bytes(16 * rows))])
    several = pa.ListArray.from_arrays(pa.array(np.arange(rows + 1) // 2, pa.int32()), pa.array(np.arange(rows // 2)))
    kind = arrow_schema(SCHEMA)
    arrays = [keys, texts, pa.ExtensionArray.from_storage(pa.uuid(), ids), several.cast(kind.field("several").type)]
    return pa.RecordBatch.from_arrays(arrays, schema=kind)


def tagged_rows(batch: pa.RecordBatch, layout: Layout, outputs: int) -> tuple[Cuts, pa.RecordBatch]:
    order, places = Order(SCHEMA, layout), places_of(0, np.arange(batch.num_rows))
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
@pytest.mark.parametrize("sizes", [(ROWS,), (40_000, 1, 0, 9000), (700,)], ids=["one", "uneven", "many"])
@pytest.mark.parametrize("is_shuffled", [False, True], ids=["as they stand", "in any order"])
def test_rows_come_in_the_order_of_their_keys_and_end_with_their_output(
    layout: Layout, sizes: tuple[int, ...], is_shuffled: bool
) -> None:
    cuts, tagged = tagged_rows(random_rows(ROWS), layout, 2)
    batches, steps = batches_of(tagged, sizes, is_shuffled), []
    expected = in_order(cuts, tagged)
    pieces = list(ordered(batches, cuts, lambda: steps.append(1)))
    assert batches == []
    assert len(pieces) > 2
    assert len(steps) >= len(pieces)
    assert pa.Table.from_batches([rows for _, rows in pieces]).equals(pa.Table.from_batches([cuts.untagged(expected)]))
    numbers = np.repeat([number for number, _ in pieces], [rows.num_rows for _, rows in pieces])
    assert numbers.tolist() == cuts.output_numbers(expected).tolist()


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_few_rows_come_as_they_are_to_come(rows: int) -> None:
    cuts, tagged = tagged_rows(random_rows(rows), linear(1), 3)
    batches = [tagged.slice(at, 1) for at in reversed(range(rows + 1))]  # the first of which is empty
    found = [batch for _, batch in ordered(batches, cuts, lambda: None)]
    expected = in_order(cuts, tagged)
    assert [batch.num_rows for batch in found] == [1] * rows
    assert pa.Table.from_batches(found, arrow_schema(SCHEMA)).equals(pa.Table.from_batches([cuts.untagged(expected)]))


def test_it_is_left_at_the_next_step_once_it_is_cancelled() -> None:
    cuts, tagged = tagged_rows(random_rows(ROWS), linear(1), 2)
    left = [3]

    def checkpoint() -> None:
        left[0] -= 1
        if not left[0]:
            raise AttemptAbandoned("it was cancelled")

    with pytest.raises(AttemptAbandoned):
        list(ordered(batches_of(tagged, [20_000], False), cuts, checkpoint))
    assert left == [0]
