"""Bin packing in which no two bins fit into one."""

from bisect import bisect_left, insort
from collections.abc import Sequence


def pack(weights: Sequence[int], capacity: int) -> list[list[int]]:
    """Indexes of the weights in bins of the capacity, the heaviest first into the fullest bin that has room.

    A weight above the capacity gets a bin of its own. Any two bins together exceed the capacity, so that packing the
    result again changes nothing. Bins and their indexes are in ascending order.
    """
    bins: list[list[int]] = []
    room: list[tuple[int, int]] = []  # (what is left, bin), ascending
    for index in sorted(range(len(weights)), key=weights.__getitem__, reverse=True):
        weight = weights[index]
        at = bisect_left(room, (weight, -1))
        if at < len(room):
            left, number = room.pop(at)
            bins[number].append(index)
        else:
            left, number = capacity, len(bins)
            bins.append([index])
        if left >= weight:
            insort(room, (left - weight, number))
    return sorted((sorted(bin_) for bin_ in bins), key=lambda bin_: bin_[0])


def spread(weights: Sequence[int], count: int) -> list[list[int]]:
    """Indexes of the weights in at most `count` non-empty runs of nearly equal weight."""
    total = sum(weights)
    runs: list[list[int]] = [[]]
    done = 0
    for index, weight in enumerate(weights):
        # End the run if this weight would exceed its share by more than leaving it out falls short.
        if runs[-1] and len(runs) < count and (2 * done + weight) * count >= 2 * total * len(runs):
            runs.append([])
        runs[-1].append(index)
        done += weight
    return [run for run in runs if run]


def pack_evenly(weights: Sequence[int], capacity: int) -> list[list[int]]:
    """Like `pack`, but with bins of nearly equal weight, if the same number of them keeps the promises of `pack`."""
    packed = pack(weights, capacity)
    alone = [bin_ for bin_ in packed if len(bin_) == 1]
    if len(alone) == len(packed):
        return packed
    shared = sorted(index for bin_ in packed if len(bin_) > 1 for index in bin_)
    runs = spread([weights[index] for index in shared], len(packed) - len(alone))
    even = sorted([*alone, *([shared[at] for at in run] for run in runs)], key=lambda bin_: bin_[0])
    loads = [sum(weights[index] for index in bin_) for bin_ in even if len(bin_) > 1]
    smallest = sorted(sum(weights[index] for index in bin_) for bin_ in even)[:2]
    keeps = len(even) == len(packed) and max(loads, default=0) <= capacity
    return even if keeps and (len(smallest) < 2 or sum(smallest) > capacity) else packed
