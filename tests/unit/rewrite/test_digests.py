"""Checksums and comparisons of rows: the same for the same rows, in whatever files and order."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from amoro_core.errors import AttemptAbandoned, UnreadableFile
from amoro_core.files.deletes.row_matcher import row_hashes, same_rows
from amoro_optimizer.rewrite.engine import digest_of, digest_rows

from .builders import NS, NS_COLUMNS, access_to, context, data_file, equality_deletes, numbered, run, task

NESTED = pa.schema(
    [
        ("i", pa.int32()),
        ("s", pa.string()),
        ("f", pa.float64()),
        ("l", pa.list_(pa.string())),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("p", pa.struct([("x", pa.int64()), ("y", pa.list_(pa.bool_()))])),
        ("u", pa.uuid()),
    ]
)
ROW: dict[str, Any] = {
    "i": 7,
    "s": "seven",
    "f": 0.0,
    "l": ["a", "b"],
    "m": [("k", 1), ("j", 2)],
    "p": {"x": 1, "y": [True, False]},
    "u": b"0123456789abcdef",
}
OTHERS = [
    {"i": 8},
    {"i": None},
    {"s": ""},
    {"s": None},
    {"s": "x" * 1500 + "y" + "x" * 1499},
    {"f": -0.0},
    {"f": float("nan")},
    {"f": None},
    {"l": ["b", "a"]},
    {"l": ["a", "b", None]},
    {"l": []},
    {"l": None},
    {"m": [("k", 2), ("j", 1)]},
    {"m": []},
    {"m": None},
    {"p": {"x": None, "y": None}},
    {"p": None},
    {"u": b"0123456789abcdeg"},
]


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{**ROW, **one} for one in rows], NESTED)


def digest(root: Path, work: Any, **options: Any) -> Any:
    given = {"memory_limit_bytes": 2**26, "is_cancelled": lambda: False, "spill_root": str(root), **options}
    return digest_rows(work, access_to(root), **given)


def test_every_value_of_every_type_counts() -> None:
    digests = [digest_of(batch(one)) for one in ({}, *OTHERS)]
    assert len({one.checksum for one in digests}) == len(OTHERS) + 1
    assert {one.rows for one in digests} == {1}


def test_order_and_slices_are_no_matter_and_a_row_that_comes_twice_counts_twice() -> None:
    rows = [{"i": number, **other} for number, other in enumerate([{}, *OTHERS])]
    whole = digest_of(batch(*rows))
    shuffled = random.Random(1).sample(rows, len(rows))
    assert digest_of(batch(*shuffled)) == whole
    parts = batch({"i": -1}, *rows)
    assert digest_of(parts.slice(1, 5)) + digest_of(parts.slice(6)) == whole
    assert digest_of(batch({"m": [("j", 2), ("k", 1)]})) == digest_of(batch(ROW))
    twice = digest_of(batch(ROW, ROW))
    assert twice == digest_of(batch(ROW)) + digest_of(batch(ROW))
    assert twice != digest_of(batch(ROW))
    assert digest_of(batch()) + twice == twice


def test_a_rewrite_has_the_digest_of_the_live_rows_of_its_inputs(tmp_path: Path) -> None:
    files = [numbered(tmp_path, 500, start) for start in (0, 500)]
    delete = equality_deletes(tmp_path, [1], [NS_COLUMNS[0]], {"n": [3, 700]})
    work = task(context(tmp_path, NS), files, [delete], output_count=2)
    before = digest(tmp_path, work)
    outputs = run(work).data_files
    after = digest(tmp_path, task(context(tmp_path, NS), outputs))
    assert (before.rows, before) == (998, after)
    other = [n for n in range(1, 1001) if n not in (3, 700)]  # row 1000 in the place of row 0
    file = data_file(tmp_path, NS_COLUMNS, {"n": other, "s": list(map(str, other))})
    changed = digest(tmp_path, task(context(tmp_path, NS), [file]))
    assert (changed.rows, changed.checksum != before.checksum) == (998, True)


def test_a_file_with_other_rows_than_its_manifest_says_is_unreadable_and_reading_can_be_stopped(tmp_path: Path) -> None:
    file = numbered(tmp_path, 3)
    work = task(context(tmp_path, NS), [replace(file, record_count=4)])
    with pytest.raises(UnreadableFile, match="has 3 rows, but the manifest says 4"):
        digest(tmp_path, work)
    with pytest.raises(AttemptAbandoned):
        digest(tmp_path, task(context(tmp_path, NS), [file]), is_cancelled=lambda: True)


def test_only_a_row_itself_is_the_same_wherever_slices_begin_and_whatever_a_null_covers() -> None:
    rows = batch({}, *OTHERS)
    count = rows.num_rows
    left = rows.take(pa.array(np.repeat(np.arange(count), count)))
    right = rows.take(pa.array(np.tile(np.arange(count), count)))
    assert same_rows(left, right).reshape(count, count).tolist() == np.eye(count, dtype=bool).tolist()
    lists = pa.ListArray.from_arrays([0, 1, 3], pa.array(["a", "b", "c"]), mask=pa.array([False, True]))
    other = pa.ListArray.from_arrays([0, 1, 1], pa.array(["a"]), mask=pa.array([False, True]))
    assert same_rows(pa.record_batch([lists], ["l"]), pa.record_batch([other], ["l"])).tolist() == [True, True]
    nans = [np.frombuffer(bits, np.float64)[0] for bits in (b"\0" * 6 + b"\xf8\x7f", b"\1" + b"\0" * 5 + b"\xf8\xff")]
    left, right = (batch({"f": nan}) for nan in nans)
    assert same_rows(left, right).tolist() == [True]
    assert row_hashes(left).tolist() == row_hashes(right).tolist()
    assert same_rows(batch(), batch()).tolist() == []
    assert batch(ROW).schema.equals(NESTED)


def test_slices_are_compared_where_they_begin() -> None:
    chance = random.Random(1)
    order = [chance.randrange(len(OTHERS)) for _ in range(200)]
    rows = batch(*(OTHERS[at] for at in order))
    moved = batch({}, {}, *(OTHERS[at] for at in order)).slice(2)
    assert same_rows(rows, moved).all()
    expected = [order[at] == order[at + 1] for at in range(199)]
    assert same_rows(rows.slice(0, 199), rows.slice(1)).tolist() == expected
