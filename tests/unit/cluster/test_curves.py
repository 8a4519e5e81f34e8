"""Places on curves: those of another implementation, each cell once, and on Hilbert's one step from the last."""

import numpy as np
import pytest
from hilbert import encode

from amoro_optimizer.cluster.curves import Coordinates, hilbert, zorder


def random_points(count: int, rows: int) -> list[Coordinates]:
    chance = np.random.default_rng(count)
    return [chance.integers(0, 1 << 16, rows).astype(np.uint16) for _ in range(count)]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_hilbert_is_that_of_another_implementation(count: int) -> None:
    points = random_points(count, 40_000)  # more than are worked on at once
    assert (hilbert(points) == encode(np.stack(points, axis=1).astype(np.uint64), count, 16).astype(np.uint64)).all()


@pytest.mark.parametrize(("count", "bits"), [(1, 10), (2, 5), (3, 4), (4, 3)])
def test_hilbert_meets_each_cell_once_by_steps_of_one(count: int, bits: int) -> None:
    """The cells of the highest bits."""
    side = 1 << bits
    cells = np.stack(np.meshgrid(*[np.arange(side)] * count, indexing="ij"), axis=-1).reshape(-1, count)
    places = hilbert([np.ascontiguousarray(cells[:, axis] << (16 - bits)).astype(np.uint16) for axis in range(count)])
    cubes = places >> np.uint64(count * (16 - bits))
    assert sorted(cubes.tolist()) == list(range(side**count))
    steps = np.abs(np.diff(cells[np.argsort(cubes)], axis=0)).sum(axis=1)
    assert set(steps.tolist()) == {1}


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_zorder_takes_the_bits_by_turns(count: int) -> None:
    points = random_points(count, 500)
    bits = ["".join(f"{point[row]:016b}"[at] for at in range(16) for point in points) for row in range(500)]
    assert zorder(points).tolist() == [int(one, 2) for one in bits]


def test_points_are_left_as_they_were() -> None:
    points = random_points(3, 100)
    before = [point.copy() for point in points]
    hilbert(points)
    assert all((one == other).all() for one, other in zip(points, before, strict=True))
