"""Blocks for a shuffle: all rows arrive, none is larger than told, and no more is held than the memory allows."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa
import pytest

from amoro_optimizer.backends.spark import blocks
from amoro_optimizer.backends.spark.blocks import Blocks, rows_of

ROW_BYTES = 8


def piece(first: int, rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"number": pa.array(range(first, first + rows), pa.int64())})


def test_rows_arrive_in_their_order_in_blocks_of_at_most_that_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 10 * ROW_BYTES)
    collected, sent = Blocks(1000 * ROW_BYTES), []
    for number in range(9):
        sent += collected.add(number % 2, piece(number * 4, 4))
    assert [partition for partition, _ in sent] == [0, 1, 0]
    sent += collected.drain()
    found: defaultdict[int, list[int]] = defaultdict(list)
    for partition, block in sent:
        numbers = [number for batch in rows_of(block) for number in batch.column("number").to_pylist()]
        assert len(numbers) <= 10
        found[partition] += numbers
    assert found == {
        partition: [first + at for first in range(4 * partition, 36, 8) for at in range(4)] for partition in (0, 1)
    }
    assert collected.sent_bytes == sum(len(block) for _, block in sent)


def test_a_piece_larger_than_a_block_is_a_block_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", ROW_BYTES)
    collected = Blocks(1000 * ROW_BYTES)
    sent = [*collected.add(0, piece(0, 3)), *collected.add(0, piece(3, 1)), *collected.drain()]
    assert [sum(batch.num_rows for batch in rows_of(block)) for _, block in sent] == [3, 1]


def test_few_rows_of_many_batches_do_not_keep_these_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 10 * ROW_BYTES)
    collected, waited = Blocks(100 * ROW_BYTES), 0
    for number in range(20):
        batch = piece(number * 11, 11)
        sent = [*collected.add(0, batch.slice(0, 1)), *collected.add(1, batch.slice(1))]
        waited = 0 if 0 in [partition for partition, _ in sent] else waited + 1
        assert waited * 11 <= 100, "a row for the first keeps each batch of the second"
