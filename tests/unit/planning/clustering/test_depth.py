"""How many files a point query meets, against a count file by file."""

from __future__ import annotations

import random

import numpy as np
import pytest

from amoro_core.model.clustering import Strategy
from amoro_core.model.files import ColumnMetrics, DataFile, FileFormat
from amoro_core.planning.clustering.depth import depth, ideal, ranges_of, units_of
from tests.tiers import count
from tests.unit.planning.clustering.world import key, number


def file(bounds: tuple[int, int] | None, rows: int = 1, *, nulls: bool = False, name: str = "f") -> DataFile:
    metrics = ColumnMetrics(value_counts={1: rows}, null_value_counts={1: rows if nulls else 0})
    if bounds is not None:
        metrics = ColumnMetrics(
            value_counts={1: rows},
            null_value_counts={1: 0},
            lower_bounds={1: number(bounds[0])},
            upper_bounds={1: number(bounds[1])},
        )
    return DataFile(f"/t/{name}", FileFormat.PARQUET, 0, (), rows, 1, 1, metrics)


def depth_of(files: list[DataFile], units: list[float] | None = None) -> float:
    rows = np.array([one.record_count for one in files], np.int64)
    return depth(ranges_of(files, 1, key), rows, None if units is None else np.array(units))


def counted(files: list[DataFile], units: list[float]) -> float:
    """The oracle: a query on each bound, file by file."""

    def bounds(one: DataFile) -> tuple[int, int] | None:
        lower = one.metrics.lower_bounds.get(1)
        return None if lower is None else (key(lower), key(one.metrics.upper_bounds[1]))

    def is_met(one: DataFile, value: int) -> bool:
        here = bounds(one)
        if here is None:
            return one.metrics.null_value_counts[1] < one.record_count
        return here[0] <= value <= here[1]

    total = weights = 0.0
    for one in files:
        here = bounds(one)
        for value in here or ():
            total += one.record_count * sum(unit for unit, it in zip(units, files, strict=True) if is_met(it, value))
            weights += one.record_count
    if not weights:
        return max(1.0, sum(unit for unit, it in zip(units, files, strict=True) if is_met(it, 0)))
    return max(1.0, total / weights)


@pytest.mark.parametrize("seed", range(count(12, 60)))
def test_depth_is_the_count_file_by_file(seed: int) -> None:
    choice = random.Random(seed)
    files = []
    for at in range(choice.randint(1, 30)):
        lower = choice.randint(-5, 20)
        bounds = None if choice.random() < 0.1 else (lower, lower + choice.choice([0, 0, 1, 5, 30]))
        files.append(file(bounds, choice.randint(1, 9), nulls=choice.random() < 0.5, name=str(at)))
    units = [choice.choice([1.0, 1.0, 2.5]) for _ in files]
    assert depth_of(files, units) == pytest.approx(counted(files, units))
    assert depth_of(files) == pytest.approx(counted(files, [1.0] * len(files)))


def test_files_side_by_side_have_depth_one_and_those_that_share_a_bound_are_both_met_there() -> None:
    assert depth_of([file((0, 1)), file((2, 3)), file((4, 5))]) == 1.0
    assert depth_of([file((0, 2)), file((2, 3))]) == 1.5


def test_a_file_without_bounds_is_met_by_each_query_and_one_of_nulls_by_none() -> None:
    assert depth_of([file((0, 1)), file(None), file(None)]) == 3.0
    assert depth_of([file(None), file(None)]) == 2.0
    assert depth_of([file((0, 1)), file(None, nulls=True)]) == 1.0
    assert depth_of([file(None, nulls=True)]) == 1.0


def test_rows_weigh_what_queries_ask_for() -> None:
    # Nine of ten rows lie in the file that overlaps with nothing.
    assert depth_of([file((0, 1), 18), file((5, 9), 1), file((5, 9), 1)]) == pytest.approx(1.1)


def test_bounds_that_are_no_values_or_stand_the_wrong_way_round_are_none() -> None:
    assert depth_of([file((9, 0)), file((5, 5))]) == 2.0
    ranges = ranges_of([file((1, 2))], 1, lambda bound: None)
    assert not ranges.is_known.any()


def test_one_value_in_all_files_is_told() -> None:
    assert ranges_of([file((7, 7)), file((7, 7))], 1, key).constant == 7
    assert ranges_of([file((7, 7)), file((7, 8))], 1, key).constant is None
    assert ranges_of([file((7, 7)), file(None)], 1, key).constant is None


def test_a_perfect_curve_meets_the_dth_root_of_the_files_on_each_column() -> None:
    assert ideal(Strategy.LINEAR, 256, 1) == 1.0
    assert ideal(Strategy.HILBERT, 256, 2) == pytest.approx(16)
    assert ideal(Strategy.ZORDER, 256, 4) == pytest.approx(64)
    assert ideal(Strategy.HILBERT, 0.1, 2) == 1.0


def test_a_file_above_the_target_is_read_like_several() -> None:
    assert units_of(np.array([1, 100, 350]), 100).tolist() == [1.0, 1.0, 3.5]
