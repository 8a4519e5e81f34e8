"""Whether rows are the same: every value of every type counts, as its bits, and nested values as a whole."""

import random

import numpy as np
import pyarrow as pa

from amoro_core.files.row_hashes import row_hashes, same_rows
from tests.unit.rewrite.test_digesting import NESTED, OTHERS, ROW, batch


def test_only_a_row_itself_is_the_same() -> None:
    rows = batch({}, *OTHERS)
    count = rows.num_rows
    left = rows.take(pa.array(np.repeat(np.arange(count), count)))
    right = rows.take(pa.array(np.tile(np.arange(count), count)))
    assert same_rows(left, right).reshape(count, count).tolist() == np.eye(count, dtype=bool).tolist()


def test_slices_are_compared_where_they_begin() -> None:
    chance = random.Random(1)
    order = [chance.randrange(len(OTHERS)) for _ in range(200)]
    rows = batch(*(OTHERS[at] for at in order))
    moved = batch({}, {}, *(OTHERS[at] for at in order)).slice(2)
    assert same_rows(rows, moved).all()
    expected = [order[at] == order[at + 1] for at in range(199)]
    assert same_rows(rows.slice(0, 199), rows.slice(1)).tolist() == expected


def test_what_a_null_covers_does_not_count() -> None:
    lists = pa.ListArray.from_arrays([0, 1, 3], pa.array(["a", "b", "c"]), mask=pa.array([False, True]))
    other = pa.ListArray.from_arrays([0, 1, 1], pa.array(["a"]), mask=pa.array([False, True]))
    assert same_rows(pa.record_batch([lists], ["l"]), pa.record_batch([other], ["l"])).tolist() == [True, True]


def test_rows_that_are_the_same_have_one_hash() -> None:
    nans = [np.frombuffer(bits, np.float64)[0] for bits in (b"\0" * 6 + b"\xf8\x7f", b"\1" + b"\0" * 5 + b"\xf8\xff")]
    left, right = (batch({"f": nan}) for nan in nans)
    assert same_rows(left, right).tolist() == [True]
    assert row_hashes(left).tolist() == row_hashes(right).tolist()
    assert same_rows(batch(), batch()).tolist() == []
    assert batch(ROW).schema.equals(NESTED)
