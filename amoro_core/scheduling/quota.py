"""A table's quota of its group's threads, and its recent use."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from math import ceil

from amoro_core.records import record

#: Only run time within this period before now counts (Amoro's constant).
LOOK_BACK = timedelta(hours=1)


@record
class TaskRun:
    """The time for which a task held a thread; `ended_at` None: it still does."""

    started_at: datetime
    ended_at: datetime | None = None
    cores: float = 1.0  # that it kept busy, on average


def quota_limit(quota: float, threads: int) -> int:
    """The threads that a quota allows: above 1 it is a number of threads, else a share of `threads`, rounded up."""
    if quota > 1:
        return int(quota)
    # 0.07 × 100 is 7.000000000000001, which must not round up to 8.
    return ceil(round(quota * threads, 9))


def occupation(runs: Iterable[TaskRun], limit: int, now: datetime) -> float:
    """The part of its limit that a table used in the last hour; infinite for one with limit 0 that ran at all."""
    since = now - LOOK_BACK
    used = sum((_within(run, since, now) for run in runs), timedelta())
    if not used:
        return 0.0
    return used / LOOK_BACK / limit if limit > 0 else float("inf")


def _within(run: TaskRun, since: datetime, now: datetime) -> timedelta:
    ended_at = min(run.ended_at or now, now)
    return max(ended_at - max(run.started_at, since), timedelta())
