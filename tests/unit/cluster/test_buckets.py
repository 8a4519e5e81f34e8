"""Words between sorted words are counted as a search by halving counts them."""

from __future__ import annotations

import numpy as np
import pytest

from amoro_optimizer.cluster.buckets import Buckets
from amoro_optimizer.cluster.values import Words

HIGHEST = 2**64 - 1


def spread(chance: np.random.Generator, count: int) -> Words:
    return chance.integers(0, HIGHEST, count, np.uint64, endpoint=True)


def crowded(chance: np.random.Generator, count: int) -> Words:
    """Half of them side by side, the others far away."""
    return np.concatenate([np.arange(count // 2, dtype=np.uint64) + np.uint64(2**63), spread(chance, count)])


def at_both_ends(chance: np.random.Generator, count: int) -> Words:
    return np.concatenate([spread(chance, count), np.array([0, HIGHEST], np.uint64)])


def narrow(chance: np.random.Generator, count: int) -> Words:
    return np.arange(count, dtype=np.uint64) + np.uint64(2**63 - count // 2)


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 500, 4096])
@pytest.mark.parametrize("made", [spread, crowded, at_both_ends, narrow])
def test_words_are_counted_as_a_search_by_halving_counts_them(made, count: int) -> None:
    chance = np.random.default_rng(count)
    words = np.unique(made(chance, count))
    around = np.concatenate([words, words + np.uint64(1), words - np.uint64(1)])
    wanted = chance.permutation(np.concatenate([around, spread(chance, 2000), np.array([0, HIGHEST], np.uint64)]))
    found = Buckets(words).count_up_to(wanted)
    assert found.tolist() == np.searchsorted(words, wanted, side="right").tolist()
