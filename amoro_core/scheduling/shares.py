"""How thread time is shared by the tables of a group that all want it: what each had, measured by its share.

The idea is start-time fair queueing with time for bytes: a table's account grows by the time its tasks hold threads,
divided by its share, and who has the least is served next. Time is compared only among tables that wait at the same
time: a table alone in its group borrows everything and owes nothing, and one that was idle has saved nothing up.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from amoro_core.scheduling.quota import TaskRun

#: The share of a table whose quota is less: it borrows what is left over, and is never forgotten.
LEAST_SHARE = 0.01
#: How long a task holds a thread as long as none of the group has ended, in seconds.
FIRST_GUESS_S = 60.0
_SMOOTHING = 8  # a task's time counts one eighth, the earlier ones' seven


@dataclass(frozen=True, slots=True)
class Accounts:
    """What the tables of one group had, as of one moment."""

    at: datetime
    #: Seconds of threads per share, beyond the table that is furthest behind; who is not named is level with it.
    ahead_s: Mapping[int, float] = field(default_factory=dict)
    typical_s: float = FIRST_GUESS_S  # how long a task holds a thread


def share_of(quota: float, threads: int) -> float:
    """The part of its group's threads that a quota stands for: above 1 a number of threads, else the part itself."""
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

    Of the tables that wait for threads the one furthest behind sets the level, and nobody is below it.
    """
    since = min(accounts.at, now)
    had, typical = dict(accounts.ahead_s), accounts.typical_s
    for table_id, run in runs:
        ended_at = min(run.ended_at or now, now)
        held = max(ended_at - max(run.started_at, since), timedelta()).total_seconds()
        had[table_id] = had.get(table_id, 0.0) + held / shares.get(table_id, LEAST_SHARE)
        if run.ended_at is not None:
            took = max((run.ended_at - run.started_at).total_seconds(), 0.0)
            typical += (took - typical) / _SMOOTHING
    level = min((had.get(table_id, 0.0) for table_id in waiting), default=0.0)
    ahead = {table_id: seconds - level for table_id, seconds in sorted(had.items()) if seconds > level}
    return Accounts(now, ahead, typical)
