"""Deleted keys by their hashes: exact whatever the hashes are."""

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from amoro_core.files.hashing import key_hashes
from amoro_optimizer.rewrite.key_index import ABSENT, HashFilter, KeyIndex, build_index

TYPES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [None, True, False]),
    (pa.int32(), [None, 0, 1, -1, 2**31 - 1, -(2**31)]),
    (pa.int64(), [None, 0, 1, -1, 2**63 - 1, -(2**63)]),
    (pa.binary(), [None, b"", b"\0", b"\0\0", b"a", b"a" * 8, b"a" * 9, b"a" * 3000, b"a" * 2999 + b"b"]),
    (pa.binary(3), [None, b"\0\0\0", b"abc"]),
    (pa.binary(16), [None, b"\0" * 16, b"\0" * 15 + b"\1", b"x" * 16]),
]


@pytest.mark.parametrize("seed", range(30))
def test_levels_are_those_of_a_plain_dictionary(seed: int) -> None:
    chance = random.Random(seed)
    chosen = chance.sample(TYPES, chance.randint(1, 3))
    keys = [[chance.choice(values) for _, values in chosen] for _ in range(chance.choice([1, 5, 60]))]
    rows = [[chance.choice(values) for _, values in chosen] for _ in range(200)]
    levels = [chance.randrange(3) for _ in keys]
    lowest: dict[Any, int] = {}
    for key, level in zip(keys, levels, strict=True):
        lowest[tuple(key)] = min(level, lowest.get(tuple(key), level))

    index = build_index(_columns(keys, chosen), np.array(levels, np.int32), 1 << 20)

    absent = int(ABSENT)
    assert index.levels_of(_columns(rows, chosen)).tolist() == [lowest.get(tuple(row), absent) for row in rows]
    assert len(lowest) <= len(index.hashes) <= len(keys)


def _columns(rows: list[list[Any]], chosen: list[tuple[pa.DataType, list[Any]]]) -> list[pa.Array]:
    """The columns as slices of longer arrays, as batches often are."""
    padded = [rows[0], *rows, rows[0]]
    return [
        pa.array([row[index] for row in padded], kind).slice(1, len(rows)) for index, (kind, _) in enumerate(chosen)
    ]


def test_different_keys_with_one_hash_are_told_apart_by_their_values() -> None:
    found = HashFilter(3, 1024)
    zeros = np.zeros(3, np.uint64)
    found.add(zeros)
    index = KeyIndex(zeros, np.array([4, 5, 6], np.int32), (pa.array([10, None, 30]),), found)

    levels = index.levels_of([pa.array([30, 10, 20, None])], np.zeros(4, np.uint64))

    assert levels.tolist() == [6, 4, ABSENT, 5]


def test_a_filter_far_too_small_still_holds_what_was_put_in() -> None:
    hashes = key_hashes([pa.array(range(100_000))])
    found = HashFilter(len(hashes), 1000)
    found.add(hashes)

    assert found.nbytes == 1024
    assert found.may_hold(hashes).all()


def test_most_absent_hashes_are_told_from_present_ones() -> None:
    hashes = key_hashes([pa.array(range(100_000))])
    found = HashFilter(50_000, 1 << 20)
    found.add(hashes[:50_000])

    assert 0 < found.may_hold(hashes[50_000:]).mean() < 0.1


@pytest.mark.parametrize(("kind", "values"), TYPES)
def test_different_values_have_different_hashes(kind: pa.DataType, values: list[Any]) -> None:
    assert len(set(key_hashes([pa.array(values, kind)]).tolist())) == len(values)
