"""The digest of a table's files: bins, figures, and which partitions come first."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from amoro_core.model.digests import BOUNDS, FileDigest, PartitionDigest, SizeHistogram
from amoro_core.planning.digest import histogram
from amoro_core.store import digests


@pytest.mark.parametrize(
    ("size", "lower"),
    [
        (0, 0),
        (1, 0),
        (1023, 0),
        (1024, 1024),
        (2047, 1024),
        (2048, 2048),
        (2**27 - 1, 2**26),
        (2**27, 2**27),
        (2**33 - 1, 2**32),
        (2**33, 2**33),
        (2**62 - 1, 2**33),
    ],
)
def test_a_file_is_in_the_bin_whose_bounds_hold_it(size: int, lower: int) -> None:
    found = histogram(np.array([size], np.int64))
    place = BOUNDS.index(lower)
    assert found.files == tuple(int(at == place) for at in range(len(BOUNDS)))
    assert found.sizes == tuple(size if at == place else 0 for at in range(len(BOUNDS)))


def test_bins_sum_up_to_all_files_and_bytes_exactly() -> None:
    sizes = np.array([2**40 + number for number in range(9000)] + [3] * 500, np.int64)
    found = histogram(sizes)
    assert (sum(found.files), sum(found.sizes)) == (9500, int(sizes.sum()))
    assert histogram(np.zeros(0, np.int64)) == SizeHistogram()


def test_bounds_go_from_nothing_by_powers_of_two_to_8_gb() -> None:
    assert (BOUNDS[0], BOUNDS[1], BOUNDS[-1], len(BOUNDS)) == (0, 1024, 8 * 1024**3, 25)


def test_what_is_stored_is_small_however_long_names_are() -> None:
    drawn = Random(1)
    names = ["".join(chr(drawn.randrange(0x4E00, 0x9FFF)) for _ in range(200)) for _ in range(200)]
    many = tuple(PartitionDigest(name, 50, "minor", name, 1, 2, 3, 4, 5, 6) for name in names)
    document = digests.packed(FileDigest(7, 1, partitions=many, partitions_total=5000))
    assert 4000 < len(document) <= digests.LARGEST
    days = [(f"day=2026-01-{n:03}", 50, "minor", f"{n} fragments", n, n, n, n, n, n) for n in range(200)]
    ordinary = tuple(PartitionDigest(*one) for one in days)
    assert len(digests.packed(FileDigest(7, 1, partitions=ordinary))) < 6000
