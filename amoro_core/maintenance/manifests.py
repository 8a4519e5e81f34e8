"""Which manifests are worth rewriting, the layout of their entries, and from which size work becomes tasks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from amoro_core.model.properties import boolean, declared, whole
from amoro_core.model.tables import SnapshotFacts, summary_count

#: The property that switches it on and off.
SWITCH = "maintenance.rewrite-manifests.enabled"
#: Maximum of entries that one process rewrites, in memory. The rest follows the next time.
MOST_ENTRIES = 100_000
#: Minimum of manifests of one content and spec for clustering: with fewer, readers gain nothing.
LEAST_CLUSTERED = 8
#: A manifest below this share of the target size is small; one with the maximum of entries is not, whatever its size.
_SMALL = 0.5
#: A new manifest ends with a partition once it is filled so far.
_FILLED = 0.7


@dataclass(frozen=True, slots=True)
class ManifestConfig:
    """The properties of a table for rewriting manifests, beside those of merging."""

    enabled: bool = declared(SWITCH, "true", boolean)
    min_count: int = declared("maintenance.rewrite-manifests.min-count", "100", whole(2))


#: A value of a partition field so that values compare: nulls first, NaN last, −0.0 below 0.0.
Key = tuple[Any, ...]
Point = tuple[Key, ...]  # a partition


@dataclass(frozen=True, slots=True)
class Box:
    """The lower and upper bound of each partition field, by which readers prune manifests."""

    low: Point
    high: Point


@dataclass(frozen=True, slots=True)
class Listed:
    """One manifest, as in the manifest list."""

    size_bytes: int
    entries: int  # of live files
    box: Box | None  # None: unpartitioned


def key_of(value: Any) -> Key:
    """The sort key of a value of a partition field."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (2,) if value != value else (1, value, float(np.copysign(1.0, value)))
    return (1, value)


def small_ones(listed: Sequence[Listed], target_bytes: int, min_count: int) -> tuple[int, ...]:
    """The indexes of small manifests, smallest first, if there are `min_count` of them and half as many suffice."""
    order = sorted(range(len(listed)), key=lambda at: (listed[at].size_bytes, at))
    small = [at for at in order if listed[at].size_bytes < target_bytes * _SMALL]
    chosen = _at_most(listed, small)
    needed = -(-sum(listed[at].size_bytes for at in chosen) // target_bytes)
    return chosen if len(small) >= min_count and 2 * needed <= len(chosen) else ()


def wide_ones(listed: Sequence[Listed], least: int) -> tuple[int, ...]:
    """The indexes of manifests whose bounds overlap enough to be worth reading, those with most corners first."""
    boxes = [manifest.box for manifest in listed if manifest.box is not None]
    if len(boxes) < max(least, 2) or len(boxes) < len(listed):
        return ()
    corners = sorted({corner for box in boxes for corner in (box.low, box.high)})
    within = _counts(boxes, corners)
    chosen = _at_most(listed, sorted(range(len(listed)), key=lambda at: (-int(within[at]), at)))
    return chosen if len(chosen) >= max(least, 2) and int(within.sum()) >= 2 * len(corners) else ()


def _at_most(listed: Sequence[Listed], order: Sequence[int]) -> tuple[int, ...]:
    """The first ones in `order`, up to the maximum of entries of one process."""
    room, chosen = MOST_ENTRIES, []
    for at in order:
        room -= listed[at].entries
        if room < 0:
            break
        chosen.append(at)
    return tuple(chosen)


def layout(points: Sequence[Point], most: int) -> list[tuple[int, int]]:
    """The ranges of new manifests in sorted entries, at most `most` each; one ends with a partition if nearly full."""
    done, start = [], 0
    while start < len(points):
        end = min(start + most, len(points))
        if end < len(points):
            earliest = start + max(1, int(most * _FILLED))
            end = next((at for at in range(end, earliest - 1, -1) if points[at] != points[at - 1]), end)
        done.append((start, end))
        start = end
    return done


def manifests_per_partition(boxes: Sequence[Box], partitions: Sequence[Point]) -> float:
    """The average number of manifests that a reader must read for one of the partitions."""
    return int(_counts(boxes, partitions).sum()) / len(partitions)


def box_of(points: Sequence[Point]) -> Box:
    """The bounds of these partitions."""
    fields = list(zip(*points, strict=True))
    return Box(tuple(min(keys) for keys in fields), tuple(max(keys) for keys in fields))


def is_halved(before: float, after: float) -> bool:
    """Whether clustering is worth it. A partition in which a manifest ends is in two, however well it is done."""
    return before > 2 and 2 * after <= before


def _counts(boxes: Sequence[Box], points: Sequence[Point]) -> npt.NDArray[np.int64]:
    """For each box, the number of points in it."""
    corners = [*(box.low for box in boxes), *(box.high for box in boxes), *points]
    ranks = np.array([_ranks(keys) for keys in zip(*corners, strict=True)], np.int64).T
    low, high, at = ranks[: len(boxes)], ranks[len(boxes) : 2 * len(boxes)], ranks[2 * len(boxes) :]
    return np.array([((at >= low[box]) & (at <= high[box])).all(axis=1).sum() for box in range(len(boxes))], np.int64)


def _ranks(keys: Sequence[Key]) -> list[int]:
    """The rank of each key; equal keys have equal ranks."""
    order = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    return [order[key] for key in keys]


#: Known files up to which the coordinator works itself.
LARGE = 50_000
_TOTALS = ("total-data-files", "total-delete-files")
_REMOVED = ("deleted-data-files", "removed-delete-files")


def is_large(snapshots: Iterable[SnapshotFacts]) -> bool:
    """Whether optimizers do what is to be done with all files of a table with these snapshots."""
    return count_files(snapshots) > LARGE


def count_files(snapshots: Iterable[SnapshotFacts]) -> int:
    """About how many files the snapshots name, by their summaries: those of the largest, and what others removed."""
    most, removed = 0, 0
    for snapshot in snapshots:
        most = max(most, sum(summary_count(snapshot.summary, key) or 0 for key in _TOTALS))
        removed += sum(summary_count(snapshot.summary, key) or 0 for key in _REMOVED)
    return most + removed
