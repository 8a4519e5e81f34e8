"""The check before a commit, of the map that tells which rows a task left out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from amoro_core.errors import CheckFailed
from amoro_core.model.commits import PlanRecord
from amoro_core.model.rewrite import MAP_ENDING, LeftOutRows, PositionMap
from amoro_core.validating import check
from amoro_core.validating.check import check_maps
from tests.unit.test_check import CONVERTED, FACTS, OUT, SCANNED, data_output, delete_output, facts_of, output

MAP = f"file:///w/t/data/p-1-1-u1{MAP_ENDING}"


def left_out(*rows: tuple[int, int]) -> PlanRecord:
    """A task that left so many rows out of each of these inputs; ten in all were deleted, of 100 and of 50 rows."""
    told = tuple(LeftOutRows(at, 4 + 100 * at, 100, count) for at, count in rows)
    return output(position_map=PositionMap(MAP, 300, told))


@pytest.mark.parametrize("rows", [[(0, 10)], [(1, 10)], [(0, 4), (1, 6)]])
def test_a_map_of_as_many_rows_as_were_deleted_passes(rows: list[tuple[int, int]]) -> None:
    check(left_out(*rows), SCANNED, FACTS)


@pytest.mark.parametrize(
    ("rows", "figures"),
    [
        ([], "10 rows were deleted, the map of positions has 0"),
        ([(0, 9)], "10 rows were deleted, the map of positions has 9"),
        ([(0, 4), (1, 7)], "10 rows were deleted, the map of positions has 11"),
        ([(1, 6), (0, 4)], "the map of positions tells of the inputs [1, 0]"),
        ([(0, 6), (0, 4)], "the map of positions tells of the inputs [0, 0]"),
        ([(2, 10)], "the map of positions tells of the inputs [2]"),
        ([(-1, 10)], "the map of positions tells of the inputs [-1]"),
        ([(0, 110), (1, -100)], "the map of positions leaves 110 rows of input 0 out"),
        ([(0, 10), (1, 0)], "the map of positions leaves 0 rows of input 1 out"),
    ],
)
def test_a_map_that_does_not_add_up_is_refused(rows: list[tuple[int, int]], figures: str) -> None:
    with pytest.raises(CheckFailed) as failed:
        check(left_out(*rows), SCANNED, FACTS)
    assert failed.value.message == f"task p-1 fails the check left-out-rows: {figures}"


def test_outputs_of_other_rows_than_the_map_leaves_are_refused_before_rows_are_followed() -> None:
    record = left_out((0, 10))
    check_maps(record)
    one = next(group for group in record.groups if group.output.position_map is not None)
    fewer = replace(one.output, data_files=tuple(replace(file, record_count=1) for file in one.output.data_files))
    with pytest.raises(CheckFailed, match=r"left-out-rows: \d+ rows of the inputs are live by the map of positions"):
        check_maps(replace(record, groups=(replace(one, output=fewer),)))


@pytest.mark.parametrize("kind", ["data", "deletes"])
def test_an_output_that_is_named_as_a_map_is_refused(kind: str) -> None:
    """A file of such a name is deleted without asking whether a snapshot has it."""
    file, change = (OUT, data_output) if kind == "data" else (CONVERTED, delete_output)
    path = f"{file.path.removesuffix('.parquet')}{MAP_ENDING}"
    record = change(path=path)
    with pytest.raises(CheckFailed) as failed:
        check(record, SCANNED, facts_of(record))
    assert failed.value.message == f"task p-1 fails the check names: {path} has the name of a map of positions"
