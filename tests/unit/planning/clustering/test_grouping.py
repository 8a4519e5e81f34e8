"""How deep files lie, and which are put in order together."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from amoro_core.model.clustering import Layout, LayoutKey, Strategy
from amoro_core.model.files import ColumnMetrics, DataFile, FileFormat, ScannedFile
from amoro_core.planning.clustering.grouping import (
    MOST_MESSAGE_BYTES,
    Candidates,
    Ranges,
    depth,
    fitting,
    grouped,
    ideal,
    merging_tiers,
    message_bytes,
    ranges_of,
    units_of,
)
from amoro_core.planning.clustering.layouts import GroupFiles, Sealing
from amoro_core.planning.clustering.model import GroupBy, GroupState
from tests.tiers import count
from tests.unit.planning.builders import data, equality_delete
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


def test_bounds_that_are_no_values_are_none_and_one_value_in_all_files_is_told() -> None:
    assert depth_of([file((9, 0)), file((5, 5))]) == 2.0
    ranges = ranges_of([file((1, 2))], 1, lambda bound: None)
    assert not ranges.is_known.any()
    assert ranges_of([file((7, 7)), file((7, 7))], 1, key).constant == 7
    assert ranges_of([file((7, 7)), file((7, 8))], 1, key).constant is None
    assert ranges_of([file((7, 7)), file(None)], 1, key).constant is None


def test_a_perfect_curve_meets_the_dth_root_of_the_files_and_large_files_are_read_like_several() -> None:
    assert ideal(Strategy.LINEAR, 256, 1) == 1.0
    assert ideal(Strategy.HILBERT, 256, 2) == pytest.approx(16)
    assert ideal(Strategy.ZORDER, 256, 4) == pytest.approx(64)
    assert ideal(Strategy.HILBERT, 0.1, 2) == 1.0
    assert units_of(np.array([1, 100, 350]), 100).tolist() == [1.0, 1.0, 3.5]


LAYOUT = Layout(Strategy.LINEAR, (LayoutKey(1),))


def candidates(spans: Sequence[tuple[int, int] | None], sizes: Sequence[int] | None = None) -> Candidates:
    known = np.array([one is not None for one in spans])
    bounds = np.array([(-1, -1) if one is None else one for one in spans], np.int64)
    ranges = Ranges(bounds[:, 0], bounds[:, 1], known, np.ones(len(spans), np.bool_))
    return Candidates(ranges, np.array(sizes or [1] * len(spans), np.int64), np.arange(len(spans))[::-1].copy())


def groups(found: Sequence[np.ndarray]) -> list[list[int]]:
    return [sorted(one.tolist()) for one in found]


def test_overlapping_ranges_are_a_group_cut_where_the_fewest_cross_and_there_are_other_ways_to_group() -> None:
    some = candidates([(0, 5), (10, 12), (5, 7), (20, 21), (11, 30)])
    assert groups(grouped(some, GroupBy.OVERLAP, 100)) == [[0, 2], [1, 3, 4]]
    some = candidates([(0, 3), (1, 3), (2, 9), (4, 9), (5, 9), (6, 9)])
    assert groups(grouped(some, GroupBy.OVERLAP, 4)) == [[0, 1, 2], [3, 4, 5]]
    some = candidates([(0, 1), (5, 6), (2, 3), (7, 8)], [3, 3, 3, 3])
    assert groups(grouped(some, GroupBy.KEY_RANGE, 6)) == [[0, 2], [1, 3]]
    assert groups(grouped(some, GroupBy.TIME, 6)) == [[2, 3], [0, 1]]
    assert groups(grouped(candidates([(0, 1)] * 4, [5, 1, 5, 1]), GroupBy.ANY, 6)) == [[0, 1], [2, 3]]


@pytest.mark.parametrize("group_by", list(GroupBy))
def test_each_file_is_in_one_group_and_no_group_is_too_large(group_by: GroupBy) -> None:
    for seed in range(count(12, 40)):
        choice = random.Random(seed)
        lows = [choice.randint(0, 60) for _ in range(choice.randint(1, 50))]
        spans = [None if choice.random() < 0.05 else (low, low + choice.choice([0, 3, 20])) for low in lows]
        sizes = [choice.randint(1, 12) for _ in lows]
        most = choice.randint(8, 60)
        found = groups(grouped(candidates(spans, sizes), group_by, most))
        assert sorted(at for one in found for at in one) == list(range(len(lows)))
        for one in found:
            assert len(one) == 1 or sum(sizes[at] for at in one) <= most
        if group_by is GroupBy.OVERLAP and sum(sizes) <= most:
            assert len(found) == components(spans)


def components(spans: Sequence[tuple[int, int] | None]) -> int:
    """The oracle: ranges joined one by one."""
    if None in spans:
        return 1
    parts: list[tuple[int, int]] = []
    for low, high in (one for one in spans if one is not None):
        joined = [one for one in parts if one[0] <= high and low <= one[1]]
        parts = [one for one in parts if one not in joined]
        parts.append((min([low, *(one[0] for one in joined)]), max([high, *(one[1] for one in joined)])))
    return len(parts)


def test_what_is_too_large_for_a_message_is_halved_and_a_delete_counted_once() -> None:
    long = [ScannedFile(replace(data(str(at), 1), path="/" + str(at) + "x" * 3000)) for at in range(9000)]
    parts = list(fitting(long))
    assert [len(one) for one in parts] == [4500, 4500]
    assert [file for part in parts for file in part] == long
    assert all(message_bytes(one) <= MOST_MESSAGE_BYTES for one in parts)
    assert list(fitting(long[:3])) == [long[:3]]
    delete = equality_delete("e" * 1000)
    one, two = ScannedFile(data("a", 1), (delete,)), ScannedFile(data("b", 1), (delete,))
    assert message_bytes([one, two]) < message_bytes([one]) + message_bytes([two]) - 3000


def sealed(*groups: tuple[int, int, int]) -> tuple[list[GroupFiles], dict[str, tuple[int, int]]]:
    """Groups as (lower, upper, bytes), with their spans."""
    found, spans = [], {}
    for at, (lower, upper, size) in enumerate(groups):
        name = f"{at:012x}"
        found.append(GroupFiles(GroupState(name, LAYOUT, True, False, SEALING.tier(size), 1, size), np.array([at])))
        spans[name] = (lower, upper)
    return found, spans


SEALING = Sealing(100, 4)


def merged(*groups: tuple[int, int, int], most: int = 10**6, sealing: Sealing = SEALING) -> list[list[int]]:
    found, spans = sealed(*groups)
    stored = np.array([size for _, _, size in groups], np.int64)
    made = merging_tiers(found, lambda one: spans[one.group.group_id], stored, sealing, most)
    return [[int(one.group.group_id, 16) for one in parts] for parts in made]


def test_as_many_sealed_groups_of_one_tier_that_overlap_become_one() -> None:
    four = [(0, 9, 100)] * 4
    assert merged(*four) == [[0, 1, 2, 3]]
    assert merged(*four[:3]) == []
    assert merged(*four, *four[:3]) == [[0, 1, 2, 3]]
    assert merged(*four, most=399) == []
    assert merged(*four, sealing=Sealing(100, 0)) == []
    assert merged((0, 1, 100), (2, 3, 100), (4, 5, 100), (6, 7, 100)) == []
    assert merged((0, 9, 100), (0, 9, 100), (0, 9, 100), (0, 9, 400)) == []
    assert merged((0, 9, 100), (1, 2, 100), (3, 4, 100), (5, 6, 100)) == [[0, 1, 2, 3]]  # the first reaches over all
    assert merged(*[(0, 9, 400)] * 3, *[(0, 9, 100)] * 4) == [[0, 1, 2, 3, 4, 5, 6]]
    assert merged(*[(40, 60, 400)] * 3, *[(0, 9, 100)] * 3, (0, 50, 100)) == [[0, 1, 2, 3, 4, 5, 6]]
    assert merged(*[(0, 20, 400)] * 3, *[(40, 60, 100)] * 3, (10, 60, 100)) == [[0, 1, 2, 3, 4, 5, 6]]


def test_tiers_grow_by_the_fanout_and_a_group_is_open_until_it_is_large_enough() -> None:
    assert [SEALING.tier(size) for size in (100, 200, 319, 320, 400, 1279, 1280, 5120)] == [0, 0, 0, 1, 1, 1, 2, 3]
    assert [Sealing(100, 2).tier(size) for size in (100, 159, 160, 319, 320)] == [0, 0, 1, 1, 2]
    assert SEALING.is_open(99, 99)
    assert not SEALING.is_open(100, 50)
    assert SEALING.is_open(100, 49)
