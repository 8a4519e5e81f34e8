"""Which manifests are written anew, and how their entries are laid out."""

from __future__ import annotations

import random

from amoro_core.maintenance import manifests
from amoro_core.maintenance.manifests import (
    Box,
    Listed,
    box_of,
    is_halved,
    key_of,
    layout,
    manifests_per_partition,
    small_ones,
    wide_ones,
)
from tests.tiers import count

TARGET = 1000


def listed(size: int, entries: int = 10, low: int | None = None, high: int | None = None) -> Listed:
    box = None if low is None or high is None else Box((key_of(low),), (key_of(high),))
    return Listed(size, entries, box)


def points(*values: int) -> list[manifests.Point]:
    return [(key_of(value),) for value in values]


def test_so_many_small_ones_are_due_and_one_fewer_is_not() -> None:
    some = [listed(100)] * 4 + [listed(499), listed(500), listed(2000)]
    assert small_ones(some, TARGET, 5) == (0, 1, 2, 3, 4)
    assert small_ones(some, TARGET, 6) == ()


def test_small_ones_that_would_stay_as_many_are_left_alone() -> None:
    assert small_ones([listed(499)] * 2, TARGET, 2) == (0, 1)  # one will do
    assert small_ones([listed(499)] * 3, TARGET, 2) == ()  # two would


def test_a_process_takes_no_more_than_100_000_entries_and_is_due_all_the_same() -> None:
    many = 40_000
    some = [listed(30, many), listed(10, many), listed(20, many), listed(5, many)]
    assert small_ones(some, TARGET, 4) == (3, 1)
    wide = [listed(100, many, 0, 9), listed(100, many, 0, 20), listed(100, many, 0, 30)]
    assert wide_ones(wide, 2) == (2, 1)


def test_wide_are_those_that_hold_most_corners_where_they_overlap() -> None:
    assert wide_ones([listed(100, 10, 0, 1), listed(100, 10, 0, 9), listed(100, 10, 0, 5)], 3) == (1, 2, 0)
    assert wide_ones([listed(100, 10, at, at) for at in range(9)], 3) == ()
    assert wide_ones([listed(100, 10, 0, 9)] * 2, 3) == ()
    assert wide_ones([listed(100, 10, 0, 9)] * 3 + [listed(100)], 3) == ()  # bounds are missing


def test_a_new_manifest_ends_with_a_partition_where_it_is_full_enough() -> None:
    assert layout(points(1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3), 10) == [(0, 9), (9, 11)]
    assert layout(points(1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2), 10) == [(0, 10), (10, 11)]  # at 2 it would be too empty
    assert layout(points(1, 1, 2), 3) == [(0, 3)]
    assert layout(points(*[1] * 7), 3) == [(0, 3), (3, 6), (6, 7)]
    assert layout([], 3) == []


def test_every_layout_takes_all_entries_once_in_manifests_that_are_not_too_full() -> None:
    chance = random.Random(7)
    for _ in range(count(40, 200)):
        some = points(*sorted(chance.randrange(chance.randint(1, 30)) for _ in range(chance.randint(0, 200))))
        most = chance.randint(1, 40)
        found = layout(some, most)
        assert [at for start, end in found for at in range(start, end)] == list(range(len(some)))
        assert all(0 < end - start <= most for start, end in found)
        assert all(end - start >= max(1, int(most * 0.7)) for start, end in found[:-1])


def test_how_many_manifests_a_reader_of_one_partition_opens() -> None:
    boxes = [
        Box((key_of(0), key_of(None)), (key_of(9), key_of("b"))),
        Box((key_of(5), key_of("a")), (key_of(5), key_of("z"))),
    ]
    some = [(key_of(5), key_of("b")), (key_of(5), key_of("c")), (key_of(5), key_of(None)), (key_of(7), key_of("a"))]
    assert manifests_per_partition(boxes, some) == (2 + 1 + 1 + 1) / 4


def test_bounds_have_nulls_first_and_nan_last_and_tell_zeros_apart() -> None:
    values = [float("nan"), 1.5, -0.0, 0.0, None, -1.0]
    assert sorted(map(key_of, values)) == [key_of(value) for value in (None, -1.0, -0.0, 0.0, 1.5, float("nan"))]
    assert box_of([(key_of(2), key_of("b")), (key_of(None), key_of("a"))]) == Box(
        (key_of(None), key_of("a")), (key_of(2), key_of("b"))
    )


def test_clustering_is_worth_it_where_it_halves_what_readers_open_beyond_two() -> None:
    assert is_halved(4, 2)
    assert not is_halved(3.9, 2)
    assert not is_halved(2, 1)  # as a partition lies across the end of a manifest
