"""What share of its group's threads a table has, and how much of it was used lately."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil

#: Runs count as far as they lie within this time before now (Amoro's constant).
LOOK_BACK = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class TaskRun:
    """The time a task held a thread; `ended_at` None: it still does."""

    started_at: datetime
    ended_at: datetime | None = None


def quota_limit(quota: float, threads: int) -> int:
    """The number of threads that a quota stands for: above 1 a number of threads, else a share, rounded up."""
    if quota > 1:
        return int(quota)
    # 0.07 × 100 is 7.000000000000001, which is no reason for an eighth thread.
    return ceil(round(quota * threads, 9))


def occupation(runs: Iterable[TaskRun], limit: int, now: datetime) -> float:
    """Which part of its limit a table used in the last hour; infinite for a table without limit that ran at all."""
    since = now - LOOK_BACK
    used = sum((_within(run, since, now) for run in runs), timedelta())
    if not used:
        return 0.0
    return used / LOOK_BACK / limit if limit > 0 else float("inf")


def _within(run: TaskRun, since: datetime, now: datetime) -> timedelta:
    ended_at = min(run.ended_at or now, now)
    return max(ended_at - max(run.started_at, since), timedelta())
