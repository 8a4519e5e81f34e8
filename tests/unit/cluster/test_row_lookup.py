"""Rows of a group's inputs are found in its outputs, each another one; what can't be told apart is not found."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    UUIDType,
)

from amoro_core.errors import TableRefused
from amoro_core.files.deletes import row_matcher
from amoro_core.files.deletes.row_matcher import RowPosition, RowsMissing, look_up
from amoro_core.files.schema.schemas import arrow_schema
from amoro_core.model.clustering import ClusterInput, ClusterOutput, Layout, Strategy
from amoro_core.model.row_positions import NO_POSITIONS, PositionSet
from amoro_core.model.task_payload import InputFile
from tests.tiers import seeds
from tests.unit.cluster.builders import curve, files_of, group, linear, run, table_of
from tests.unit.rewrite.builders import access_to, col, equality_deletes, position_deletes

_ELEMENTS = StructType(NestedField(13, "x", DoubleType()), NestedField(14, "y", StringType()))
SCHEMA = Schema(
    NestedField(1, "n", LongType()),
    NestedField(2, "s", StringType()),
    NestedField(3, "f", DoubleType()),
    NestedField(4, "d", DecimalType(38, 4)),
    NestedField(5, "day", DateType()),
    NestedField(6, "at", TimestamptzType()),
    NestedField(7, "u", UUIDType()),
    NestedField(8, "b", BinaryType()),
    NestedField(9, "yes", BooleanType()),
    NestedField(10, "i", IntegerType()),
    NestedField(11, "l", ListType(12, _ELEMENTS, element_required=False)),
    NestedField(15, "m", MapType(16, StringType(), 17, DoubleType(), value_required=False)),
)
_NAN, _ODD_NAN = float("nan"), -float("nan")
VALUES: tuple[list[Any], ...] = (
    [None, -(2**63), -1, 0, 1, 2**63 - 1],
    [None, "", "a", "x" * 40, "x" * 40 + "é", "😀", "￿"],
    [None, 0.0, -0.0, _NAN, _ODD_NAN, float("inf"), -float("inf"), 5e-324],
    [None, Decimal(0), Decimal("-0.0001"), Decimal(10**30)],
    [None, 0, -719162, 2932896],
    [None, 0, -1, 2**62],
    [None, b"\0" * 16, b"\xff" * 16],
    [None, b"", b"\xff" * 20, b"\xff" * 20 + b"\0"],
    [None, True, False],
    [None, 0, -(2**31), 2**31 - 1],
    [None, [], [None], [{"x": -0.0, "y": None}], [{"x": 0.0, "y": None}], [{"x": _NAN, "y": "z"}, None]],
    [None, [], [("k", None)], [("k", 0.0)], [("k", -0.0)], [("k", 1.0), ("j", 2.0)], [("j", 2.0), ("k", 1.0)]],
)


LAYOUTS = [linear(1), linear(2, 3), linear(9), curve(Strategy.HILBERT, 1, 3), curve(Strategy.ZORDER, 4, 6, 8)]


def rows_by_chance(chance: random.Random, count: int, variety: int) -> pa.Table:
    """So many rows, of at most so many kinds."""
    kinds = [[chance.choice(values) for values in VALUES] for _ in range(variety)]
    columns = list(zip(*(chance.choice(kinds) for _ in range(count)), strict=True))
    numbers = {4: pa.int32(), 5: pa.int64()}  # beyond Python's dates
    made = [
        pa.array(column, numbers[at]).cast(kind.type) if at in numbers else list(column)
        for at, (column, kind) in enumerate(zip(columns, arrow_schema(SCHEMA), strict=True))
    ]
    return table_of(SCHEMA, made)


def told(path: str) -> list[str]:
    """The rows of a file as text: all that is stored in them."""
    table = pq.read_table(path)
    columns = [
        column.cast(pa.int32() if pa.types.is_date(column.type) else pa.int64())
        if pa.types.is_temporal(column.type)
        else column
        for column in table.columns
    ]
    return [repr(row).replace("-nan", "nan") for row in zip(*(column.to_pylist() for column in columns), strict=True)]


def found(
    work: ClusterInput, made: ClusterOutput, wanted: Mapping[int, PositionSet], **more: Any
) -> dict[RowPosition, RowPosition]:
    keys = [key.field_id for key in work.layout.keys]
    access = access_to(Path(work.rewrite.table.location))
    return look_up(access, work.rewrite, made.rewrite.data_files, keys, wanted, more.get("taken", {}))


def some_of(chance: random.Random, work: ClusterInput) -> dict[int, PositionSet]:
    counts = [one.data.record_count for one in work.rewrite.rewritten]
    chosen = [(at, chance.sample(range(count), chance.randint(0, count))) for at, count in enumerate(counts)]
    return {at: PositionSet.of(positions) for at, positions in chosen if positions}


def places(positions: Mapping[int, PositionSet]) -> set[RowPosition]:
    return {(at, one) for at, some in positions.items() for one in some.ascending().tolist()}


@pytest.mark.parametrize("seed", seeds(4, 8))
def test_each_row_is_found_by_its_values_whatever_their_types(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    rows = rows_by_chance(chance, chance.randint(20, 150), chance.choice([1, 5, 150]))
    layout: Layout = chance.choice(LAYOUTS)
    files = files_of(tmp_path, SCHEMA, rows, 3, row_group_size=chance.choice([7, 1000]))
    work = group(tmp_path, SCHEMA, layout, files, outputs=chance.choice([1, 4]))
    made = run(work)
    wanted = some_of(chance, work)
    got = found(work, made, wanted)
    assert got.keys() == places(wanted)
    assert len(set(got.values())) == len(got)
    before, after = ([told(file.path) for file in some] for some in (files, made.rewrite.data_files))
    assert all(before[at][one] == after[there][other] for (at, one), (there, other) in got.items())
    # What others have been found for is not found again.
    every = {at: PositionSet.first(file.record_count) for at, file in enumerate(files)}
    rest = {at: positions - wanted.get(at, NO_POSITIONS) for at, positions in every.items()}
    taken = {at: PositionSet.of([one for there, one in got.values() if there == at]) for at in range(len(after))}
    more = found(work, made, rest, taken=taken)
    assert more.keys() == places(rest)
    assert set(more.values()).isdisjoint(got.values())
    assert len(set(more.values())) == len(more)


# Few columns, where it does not matter of which types

FEW = Schema(NestedField(1, "n", LongType()), NestedField(2, "s", StringType()))
COLUMNS = [col("n", pa.int64(), 1), col("s", pa.string(), 2)]


def few(root: Path, numbers: list[int], *, outputs: int = 1, **more: Any) -> ClusterInput:
    """Two files of these numbers, each with itself as text."""
    rows = table_of(FEW, [numbers, [f"row {one}" for one in numbers]])
    return group(root, FEW, linear(1), files_of(root, FEW, rows, 2, row_group_size=3), outputs=outputs, **more)


def in_format_3(work: ClusterInput, first_ids: tuple[int | None, ...]) -> ClusterInput:
    inputs = tuple(
        replace(one, data=replace(one.data, first_row_id=first_id))
        for one, first_id in zip(work.rewrite.rewritten, first_ids, strict=True)
    )
    table = replace(work.rewrite.table, format_version=3)
    return replace(work, rewrite=replace(work.rewrite, table=table, rewritten=inputs))


def test_of_equal_rows_as_many_are_found_as_were_deleted(tmp_path: Path) -> None:
    work = few(tmp_path, [5, 5, 1, 5, 2, 5])
    made = run(work)
    got = found(work, made, {0: PositionSet.of([1, 2]), 1: PositionSet.of([0])})
    assert (got[0, 2], {got[0, 1], got[1, 0]}) == ((0, 0), {(0, 2), (0, 3)})
    again = found(work, made, {1: PositionSet.of([2])}, taken={0: PositionSet.of([2, 3])})
    assert again == {(1, 2): (0, 4)}


def test_a_row_that_an_equality_delete_of_the_plan_hit_is_not_looked_for(tmp_path: Path) -> None:
    """An equal row that it does not apply to is live: it must not be taken for the dead one."""
    dropped = NestedField(7, "gone", LongType())
    deletes = [
        equality_deletes(tmp_path, [1], COLUMNS, {"n": [4, 9], "s": ["", ""]}),
        equality_deletes(tmp_path, [7], [col("gone", pa.int64(), 7)], {"gone": [3]}),
    ]
    work = few(tmp_path, [3, 4, 6, 4, 7, 8], deletes=deletes, applicable={0: [0, 1]})
    table = replace(work.rewrite.table, dropped_fields_json=(dropped.model_dump_json(),))
    work = replace(work, rewrite=replace(work.rewrite, table=table))
    made = run(work)
    assert made.rewrite.rows_deleted == 1
    assert found(work, made, {0: PositionSet.of([0, 1, 2])}) == {(0, 0): (0, 0), (0, 2): (0, 2)}
    assert found(work, made, {0: PositionSet.of([1])}) == {}


def test_rows_are_found_by_their_ids_where_they_have_ids(tmp_path: Path) -> None:
    """Which of equal rows it is matters then."""
    work = in_format_3(few(tmp_path, [5, 5, 1, 5, 2, 5], outputs=2), (100, 500))
    made = run(work)
    stored = [pq.read_table(file.path).column("_row_id").to_pylist() for file in made.rewrite.data_files]
    assert len(stored) == 2
    got = found(work, made, {0: PositionSet.of([0, 1, 2]), 1: PositionSet.of([2])})
    assert {place: stored[at][one] for place, (at, one) in got.items()} == {
        (0, 0): 100,
        (0, 1): 101,
        (0, 2): 102,
        (1, 2): 502,
    }
    # Found again by what is stored.
    after = in_format_3(few(tmp_path, [0, 0]), (None, None))
    inputs = tuple(InputFile(file) for file in made.rewrite.data_files)
    after = replace(after, rewrite=replace(after.rewrite, rewritten=inputs, output_count=1))
    again = run(after)
    ids = pq.read_table(again.rewrite.data_files[0].path).column("_row_id").to_pylist()
    got = found(after, again, {1: PositionSet.first(3)})
    assert [ids[one] for _, one in got.values()] == stored[1]


@pytest.mark.parametrize("version", [2, 3])
def test_rows_are_found_that_are_ordered_by_a_column_within_a_struct(tmp_path: Path, version: int) -> None:
    schema = Schema(
        NestedField(1, "n", LongType()),
        NestedField(2, "p", StructType(NestedField(3, "x", StringType()), NestedField(4, "y", LongType()))),
    )
    rows = [[1, 2, 3, 4], [{"x": "a", "y": 7}, None, {"x": "b", "y": None}, {"x": "c", "y": -7}]]
    work = group(tmp_path, schema, linear(4), files_of(tmp_path, schema, table_of(schema, rows), 2), outputs=2)
    if version == 3:
        work = in_format_3(work, (0, 10))
    made = run(work)
    written = [pq.read_table(file.path).column("n").to_pylist() for file in made.rewrite.data_files]
    got = found(work, made, {0: PositionSet.first(2), 1: PositionSet.first(2)})
    assert {place: written[at][one] for place, (at, one) in got.items()} == {(0, 0): 1, (0, 1): 2, (1, 0): 3, (1, 1): 4}


def test_rows_without_ids_are_not_found_in_format_3(tmp_path: Path) -> None:
    work = in_format_3(few(tmp_path, [1, 2, 3, 4]), (100, None))
    made = run(work)
    with pytest.raises(RowsMissing, match="1 of 2 have no id yet"):
        found(work, made, {0: PositionSet.of([0]), 1: PositionSet.of([0])})


@pytest.mark.parametrize("version", [2, 3])
def test_a_row_that_is_in_no_output_is_told(tmp_path: Path, version: int) -> None:
    work, other = few(tmp_path, [1, 2, 3, 4]), few(tmp_path, [1, 2, 2, 5])
    if version == 3:
        work, other = in_format_3(work, (0, 10)), in_format_3(other, (20, 10))
    made = run(other)
    path = work.rewrite.rewritten[1].data.path
    wanted = {1: PositionSet.of([0, 1])} if version == 2 else {0: PositionSet.of([1]), 1: PositionSet.of([0, 1])}
    lost = f"row 0 of {path}" if version == 2 else f"row 1 of {work.rewrite.rewritten[0].data.path}"
    with pytest.raises(RowsMissing, match=f"of {1 + version - 1} are in none, as {lost}"):
        found(work, made, wanted)


def test_too_many_bytes_and_too_many_keys_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deletes = [equality_deletes(tmp_path, [1], COLUMNS, {"n": [9, 8], "s": ["", ""]})]
    work = few(tmp_path, [1, 2, 3, 4], deletes=deletes)
    made, wanted = run(work), {0: PositionSet.of([0, 1]), 1: PositionSet.of([0, 1])}
    assert len(found(work, made, wanted)) == 4
    monkeypatch.setattr(row_matcher, "MOST_KEYS", 1)
    with pytest.raises(RowsMissing, match="has 2 keys, of which at most 1 are read"):
        found(work, made, wanted)
    monkeypatch.undo()
    monkeypatch.setattr(row_matcher, "MOST_BYTES", 60)  # the two of one file take fewer
    with pytest.raises(RowsMissing, match=r"2 rows of .* take more than"):
        found(work, made, wanted)
    assert len(found(work, made, {0: wanted[0]})) == 2


def test_keys_without_field_ids_are_read_by_the_name_mapping_and_positions_are_no_keys(tmp_path: Path) -> None:
    deletes = [
        position_deletes(tmp_path, [("another file", 0)]),
        equality_deletes(tmp_path, [1], [pa.field("old", pa.int64())], {"old": [2]}),
    ]
    work = few(tmp_path, [1, 2, 3, 4], deletes=deletes)
    table = replace(work.rewrite.table, name_mapping_json='[{"field-id": 1, "names": ["n", "old"]}]')
    work = replace(work, rewrite=replace(work.rewrite, table=table))
    made = run(work)
    assert found(work, made, {0: PositionSet.of([0, 1])}) == {(0, 0): (0, 0)}
    assert found(work, made, {0: PositionSet.of([1])}) == {}


def test_keys_that_lie_where_the_table_may_not_read_are_not_read(tmp_path: Path) -> None:
    ours, foreign = tmp_path / "ours", tmp_path / "foreign"
    deletes = [equality_deletes(foreign, [1], COLUMNS, {"n": [1], "s": [""]})]
    work, made = few(ours, [1, 2, 3, 4], deletes=deletes), run(few(ours, [1, 2, 3, 4]))
    with pytest.raises(TableRefused) as refused:
        found(work, made, {0: PositionSet.of([0])})
    assert refused.value.reason == "location"


@pytest.mark.parametrize("version", [2, 3])
def test_outputs_whose_bounds_leave_a_row_out_are_not_read(tmp_path: Path, version: int) -> None:
    work = few(tmp_path, list(range(40)), outputs=4)
    if version == 3:
        work = in_format_3(work, (0, 20))
    made = run(work)
    wanted = {1: PositionSet.of([19])}
    got = found(work, made, wanted)
    assert [number for number, _ in got.values()] == [3]
    for file in made.rewrite.data_files[:3]:
        Path(file.path).unlink()
    assert found(work, made, wanted) == got


def test_rows_that_differ_and_have_one_hash_are_not_taken_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = few(tmp_path, [1, 1, 2, 3])
    inputs = files_of(tmp_path, FEW, table_of(FEW, [[1, 1], ["another", "row 1"]]), 1)
    made = run(replace(work, rewrite=replace(work.rewrite, rewritten=(InputFile(inputs[0]),))))
    monkeypatch.setattr(row_matcher, "row_hashes", lambda batch: np.zeros(batch.num_rows, np.uint64))
    with pytest.raises(RowsMissing, match="different rows have one hash"):
        found(work, made, {0: PositionSet.of([0, 1])})


def test_keys_that_differ_from_a_row_and_have_its_hash_do_not_delete_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deletes = [equality_deletes(tmp_path, [1], COLUMNS, {"n": [9], "s": [""]})]
    work = few(tmp_path, [1, 2, 3, 4], deletes=deletes)
    made = run(work)
    monkeypatch.setattr(row_matcher, "key_hashes", lambda columns: np.zeros(len(columns[0]), np.uint64))
    with pytest.raises(RowsMissing, match="different keys have one hash"):
        found(work, made, {0: PositionSet.of([0])})
