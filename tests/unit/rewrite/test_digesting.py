"""Checksums of rows: the same for the same rows, in whatever files and order; another for any other rows."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from amoro_core.errors import AttemptAbandoned, UnreadableFile
from amoro_core.model.verification import RowsDigest
from amoro_optimizer.rewrite.digesting import digest_of, digest_rows

from .builders import access_to, col, context, data_file, equality_deletes, run, task

SCHEMA = Schema(NestedField(1, "n", LongType()), NestedField(2, "s", StringType()))
COLUMNS = [col("n", pa.int64(), 1), col("s", pa.string(), 2)]
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
    {"s": "Seven"},
    {"s": ""},
    {"s": None},
    {"s": "x" * 3000},
    {"s": "x" * 1500 + "y" + "x" * 1499},
    {"f": -0.0},
    {"f": float("nan")},
    {"f": None},
    {"l": ["b", "a"]},
    {"l": ["a", "b", None]},
    {"l": ["ab"]},
    {"l": []},
    {"l": None},
    {"m": [("k", 2), ("j", 1)]},
    {"m": []},
    {"m": None},
    {"p": {"x": 1, "y": [False, True]}},
    {"p": {"x": None, "y": None}},
    {"p": None},
    {"u": b"0123456789abcdeg"},
]


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{**ROW, **one} for one in rows], NESTED)


def numbers(root: Path, values: list[int]) -> Any:
    return data_file(root, COLUMNS, {"n": values, "s": [f"row {value}" for value in values]})


def digest(root: Path, work: Any, **options: Any) -> RowsDigest:
    given = {"memory_limit_bytes": 2**26, "is_cancelled": lambda: False, "spill_root": str(root), **options}
    return digest_rows(work, access_to(root), **given)


def test_every_value_of_every_type_counts() -> None:
    digests = [digest_of(batch(one)) for one in ({}, *OTHERS)]
    assert len({one.checksum for one in digests}) == len(OTHERS) + 1
    assert {one.rows for one in digests} == {1}


def test_order_of_rows_and_of_map_entries_and_slices_are_no_matter() -> None:
    rows = [{"i": number, **other} for number, other in enumerate([{}, *OTHERS])]
    whole = digest_of(batch(*rows))
    shuffled = random.Random(1).sample(rows, len(rows))
    assert digest_of(batch(*shuffled)) == whole
    parts = batch({"i": -1}, *rows)
    assert digest_of(parts.slice(1, 5)) + digest_of(parts.slice(6)) == whole
    assert digest_of(batch({"m": [("j", 2), ("k", 1)]})) == digest_of(batch(ROW))


def test_a_row_that_comes_twice_counts_twice() -> None:
    twice = digest_of(batch(ROW, ROW))
    assert twice == digest_of(batch(ROW)) + digest_of(batch(ROW))
    assert twice != digest_of(batch(ROW))
    assert digest_of(batch()) == RowsDigest()


def test_a_rewrite_has_the_digest_of_the_live_rows_of_its_inputs(tmp_path: Path) -> None:
    files = [numbers(tmp_path, list(range(start, start + 500))) for start in (0, 500)]
    delete = equality_deletes(tmp_path, [1], [COLUMNS[0]], {"n": [3, 700]})
    work = task(context(tmp_path, SCHEMA), files, [delete], output_count=2)
    before = digest(tmp_path, work)
    outputs = run(work).data_files
    after = digest(tmp_path, task(context(tmp_path, SCHEMA), outputs))
    assert (before.rows, before) == (998, after)
    other = [n for n in range(1000) if n not in (3, 700)]
    other[0] = 1000  # another row in the place of row 0
    changed = digest(tmp_path, task(context(tmp_path, SCHEMA), [numbers(tmp_path, other)]))
    assert (changed.rows, changed.checksum != before.checksum) == (998, True)


def test_a_file_with_other_rows_than_its_manifest_says_is_unreadable_and_reading_can_be_stopped(tmp_path: Path) -> None:
    file = numbers(tmp_path, [1, 2, 3])
    work = task(context(tmp_path, SCHEMA), [replace(file, record_count=4)])
    with pytest.raises(UnreadableFile, match="has 3 rows, but the manifest says 4"):
        digest(tmp_path, work)
    with pytest.raises(AttemptAbandoned):
        digest(tmp_path, task(context(tmp_path, SCHEMA), [file]), is_cancelled=lambda: True)
