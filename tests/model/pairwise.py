"""Few of many cases, in which each two values that may meet do so at least once."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence
from itertools import combinations
from typing import TypeVar

C = TypeVar("C")


def pairwise(cases: Sequence[C], *views: Callable[[C], Sequence[Hashable]]) -> list[C]:
    """Cases in their order, always the same ones. A view gives values of a case, each two of which are to meet.

    First those that add the most pairs are taken, then those that add fewer, in an order by chance: what no view asks
    for is spread.
    """
    numbers: dict[Hashable, int] = {}
    pairs = []
    for case in cases:
        met = [(at, pair) for at, view in enumerate(views) for pair in combinations(enumerate(view(case)), 2)]
        pairs.append(sum(1 << numbers.setdefault(pair, len(numbers)) for pair in met))
    order = random.Random(0).sample(range(len(pairs)), len(pairs))
    chosen: set[int] = set()
    missing = (1 << len(numbers)) - 1
    for least in range(max((one.bit_count() for one in pairs), default=0), 0, -1):
        for at in order:
            own = pairs[at]
            if (own & missing).bit_count() >= least:
                chosen.add(at)
                missing &= ~own
    return [cases[at] for at in sorted(chosen)]
