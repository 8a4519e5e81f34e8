"""Fair sharing of thread time among the tables of a group: the time each has used, relative to its share.

This is start-time fair queueing with time instead of bytes: a table's account grows by the time its tasks hold threads,
divided by its share, and the table with the least is served next. Accounts are compared only among tables that wait
at the same time: a table alone in its group borrows everything and owes nothing, and an idle one saves nothing up.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field
from datetime import datetime, timedelta

from amoro_core.records import record
from amoro_core.scheduling.quota import TaskRun

#: The minimum share of a table: one with a lower quota borrows what is left over, and never starves.
LEAST_SHARE = 0.01
#: The assumed run time of a task, in seconds, until one of the group has ended.
FIRST_GUESS_S = 60.0
_SMOOTHING = 8  # exponential smoothing: the latest task's time counts one eighth


@record
class Accounts:
    """The accounts of the tables of one group at one moment."""

    at: datetime
    #: Thread seconds per share, relative to the table that is furthest behind; a table not listed is level with it.
    ahead_s: Mapping[int, float] = field(default_factory=dict)
    typical_s: float = FIRST_GUESS_S  # how long a task holds a thread


def share_of(quota: float, threads: int) -> float:
    """The share of its group's threads that a quota means: above 1 it is a number of threads, else the share itself."""
    share = int(quota) / max(1, threads) if quota > 1 else quota
    return max(share, LEAST_SHARE)


def settled(
    accounts: Accounts,
    runs: Iterable[tuple[int, TaskRun]],
    shares: Mapping[int, float],
    waiting: Iterable[int],
    now: datetime,
) -> Accounts:
    """The accounts after the time since they were last settled; `runs` held a thread within it, by table.

    The table furthest behind among those that wait for threads sets the level; none is below it.
    """
    since = min(accounts.at, now)
    had, typical = dict(accounts.ahead_s), accounts.typical_s
    for table_id, run in runs:
        ended_at = min(run.ended_at or now, now)
        held = max(ended_at - max(run.started_at, since), timedelta()).total_seconds()
        had[table_id] = had.get(table_id, 0.0) + held * run.cores / shares.get(table_id, LEAST_SHARE)
        if run.ended_at is not None:
            took = max((run.ended_at - run.started_at).total_seconds(), 0.0)
            typical += (took - typical) / _SMOOTHING
    level = min((had.get(table_id, 0.0) for table_id in waiting), default=0.0)
    ahead = {table_id: seconds - level for table_id, seconds in sorted(had.items()) if seconds > level}
    return Accounts(now, ahead, typical)
