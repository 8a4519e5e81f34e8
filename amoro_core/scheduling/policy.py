"""Order of tables and tasks by quota or balance, fair shares of threads, and intervals of refreshing."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from heapq import heapify, heappop, heappush
from math import ceil, isqrt
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from amoro_core.errors import InvalidArgument
from amoro_core.model.group_config import DEFAULT_AGING
from amoro_core.model.optimizing_config import OptimizingConfig
from amoro_core.model.tables import DEFAULT_PRIORITY, TableRuntime

REFRESH_INTERVAL = timedelta(seconds=60)
REFRESH_INTERVAL_MAX = timedelta(minutes=5)
#: A table whose catalog says that it has not changed is refreshed all the same once in a time between these.
RESTING_LEAST = timedelta(hours=3)
RESTING_MOST = timedelta(hours=6)
_MS = timedelta(milliseconds=1)


def next_refresh(runtime: TableRuntime, refreshed_at: datetime, config: OptimizingConfig) -> datetime:
    """When a table that was just refreshed is refreshed again: soon after changes, later while nothing changes.

    An enabled table is also refreshed when an interval trigger comes due, but not more often than the base interval.
    """
    changed_at = max(runtime.status_since, runtime.evaluated_at or runtime.status_since)
    usual = refreshed_at + refresh_interval(refreshed_at - changed_at, config)
    if not runtime.enabled or runtime.next_due_at is None:
        return usual
    return min(usual, max(runtime.next_due_at, refreshed_at + REFRESH_INTERVAL))


def refresh_interval(
    quiet: timedelta,
    config: OptimizingConfig,
    base: timedelta = REFRESH_INTERVAL,
    longest: timedelta = REFRESH_INTERVAL_MAX,
) -> timedelta:
    """The interval until the next refresh of a table that last changed, or needed work, `quiet` ago.

    It begins with the base and grows with every refresh by `self-optimizing.refresh-table.adaptive.increase-step-ms`,
    up to `max-interval-ms` if the table has one, else to `longest`. It is never below the base.
    """
    most = max(base, config.refresh_max_interval or longest)
    step = config.refresh_increase_step
    looks = _looks(max(quiet, timedelta()) // _MS, base // _MS, step // _MS)
    return min(base + min(looks, (most - base) // step + 1) * step, most)


def rests_until(
    table_id: int, refreshed_at: datetime, moments: Iterable[datetime | None], now: datetime
) -> datetime | None:
    """When a table that has not changed since its refresh is refreshed next; None: it is time, by the clock.

    `moments` are those at which something comes due; those that its refresh has seen do not count. Tables that rest
    are spread over hours by their ids, so that they are not all refreshed at once.
    """
    spread = (RESTING_MOST - RESTING_LEAST) // _MS
    until = refreshed_at + RESTING_LEAST + table_id * 1009 % spread * _MS
    coming = [moment for moment in moments if moment is not None and moment > refreshed_at]
    earliest = min((until, *coming))
    return earliest if earliest > now else None


def _looks(quiet: int, base: int, step: int) -> int:
    """How many intervals of base, base + step, base + 2 × step, … fit into the quiet time.

    The first n take n × base + n × (n − 1) / 2 × step, which is solved for n.
    """
    half = 2 * base - step
    return (isqrt(half * half + 8 * step * quiet) - half) // (2 * step)


Candidate = TypeVar("Candidate")

#: Only run time within this period before now counts (Amoro's constant).
LOOK_BACK = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
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


#: The minimum share of a table: one with a lower quota borrows what is left over, and never starves.
LEAST_SHARE = 0.01
#: The assumed run time of a task, in seconds, until one of the group has ended.
FIRST_GUESS_S = 60.0
_SMOOTHING = 8  # exponential smoothing: the latest task's time counts one eighth


@dataclass(frozen=True, slots=True)
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
    """The accounts after the time since they were settled; the waiting table furthest behind sets the level."""
    since = min(accounts.at, now)
    had, typical = dict(accounts.ahead_s), accounts.typical_s
    for table_id, run in runs:
        seconds = _within(run, since, now).total_seconds()
        had[table_id] = had.get(table_id, 0.0) + seconds * run.cores / shares.get(table_id, LEAST_SHARE)
        if run.ended_at is not None:
            took = max((run.ended_at - run.started_at).total_seconds(), 0.0)
            typical += (took - typical) / _SMOOTHING
    level = min((had.get(table_id, 0.0) for table_id in waiting), default=0.0)
    ahead = {table_id: seconds - level for table_id, seconds in sorted(had.items()) if seconds > level}
    return Accounts(now, ahead, typical)


_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PendingTable:
    """A table that waits to be planned."""

    table_id: int
    limit: int  # threads, as its quota says
    runs: tuple[TaskRun, ...] = ()
    last_optimized_at: datetime | None = None
    since: datetime = _NEVER  # when it began to wait
    priority: int = DEFAULT_PRIORITY  # 0 to 9, 0 first
    value: float = 0.0  # files saved × scans a day ÷ predicted thread seconds
    aging: timedelta = DEFAULT_AGING  # after each such wait it counts as of the next higher class


#: The sort key of a pending table at a time, a pure function: the table with the least key is planned first.
Policy = Callable[[PendingTable, datetime], Any]


class Use(NamedTuple):
    """A table's standing in its group when threads are assigned to tasks."""

    running: int = 0  # tasks that hold a thread
    limit: int = 0  # threads, as its quota says
    share: float = LEAST_SHARE  # of the group's threads
    ahead_s: float = 0.0  # as in Accounts


def order_pending(tables: Sequence[PendingTable], policy: Policy, now: datetime) -> list[PendingTable]:
    """The tables in the order in which they are planned: by the policy's key, ties by id."""
    return [table for _, table in rank_pending(tables, policy, now)]


def rank_pending(tables: Sequence[PendingTable], policy: Policy, now: datetime) -> list[tuple[Any, PendingTable]]:
    """The same, each table with its key."""
    return sorted(((policy(table, now), table) for table in tables), key=lambda pair: (pair[0], pair[1].table_id))


def choose_tasks(
    waiting: Collection[int],
    tasks_of: Callable[[int], Iterable[Candidate]],
    uses: Mapping[int, Use],
    slots: int,
    typical_s: float,
) -> list[Candidate]:
    """At most `slots` tasks of the waiting tables, each from the table whose turn it is once those before it run.

    It is the turn of the table with the least thread time per share, counting what its running tasks will typically
    take. A limit holds only while a table below its own limit has candidates: otherwise threads are lent. Tasks of one
    table keep their order, and are read only at its turn; ties go by the order of the tables.
    """
    candidates: dict[int, Iterator[Candidate]] = {}
    stand = {table: uses.get(table, Use()) for table in waiting}
    turn = [(*standing(stand[table], typical_s), place, table) for place, table in enumerate(waiting)]
    heapify(turn)
    chosen: list[Candidate] = []
    while turn and len(chosen) < slots:
        *_, place, table = heappop(turn)
        if table not in candidates:
            candidates[table] = iter(tasks_of(table))
        for task in candidates[table]:
            chosen.append(task)
            stand[table] = stand[table]._replace(running=stand[table].running + 1)
            heappush(turn, (*standing(stand[table], typical_s), place, table))
            break
    return chosen


def standing(use: Use, typical_s: float) -> tuple[bool, float]:
    """The sort key of a table: tables that have reached their limit come last."""
    return use.running >= use.limit, use.ahead_s + use.running * typical_s / use.share


def by_quota(table: PendingTable, now: datetime) -> tuple[float, datetime]:
    """Lowest occupation first, then least recently optimized, or never."""
    return occupation(table.runs, table.limit, now), _last(table)


def balanced(table: PendingTable, now: datetime) -> tuple[datetime, float]:
    """Least recently optimized, or never, first, then lowest occupation."""
    return _last(table), occupation(table.runs, table.limit, now)


def _last(table: PendingTable) -> datetime:
    return table.last_optimized_at or _NEVER


def aged_class(priority: int, since: datetime, aging: timedelta, now: datetime) -> int:
    """The class, 0 to 9, of what has waited since then: one higher for each `aging`, so that nothing waits for ever.

    In class 0 what began to wait first comes first, so class 9 waits at most nine times `aging` for what came later.
    """
    return max(0, priority - max(now - since, timedelta()) // aging)


def first_come(table: PendingTable, now: datetime) -> tuple[datetime]:
    """What waits longest first."""
    return (table.since,)


def by_priority(table: PendingTable, now: datetime) -> tuple[int, datetime]:
    """The lowest class first, then what waits longest."""
    return aged_class(table.priority, table.since, table.aging, now), table.since


def by_value(table: PendingTable, now: datetime) -> tuple[int, float, datetime]:
    """The lowest class first, then what saves most for the work."""
    return aged_class(table.priority, table.since, table.aging, now), -table.value, table.since


#: Policies by which tasks are assigned to threads, too; with others each table gets its share of threads.
ORDERED: Mapping[str, Policy] = MappingProxyType({"fifo": first_come, "priority": by_priority, "value": by_value})
#: The built-in policies; others can be plugged in (docs/design.md).
POLICIES: Mapping[str, Policy] = MappingProxyType({"quota": by_quota, "balanced": balanced, **ORDERED})
DEFAULT_POLICY = "quota"


def find_policy(policies: Mapping[str, Policy], name: str) -> Policy:
    """The policy of that name. Raises InvalidArgument, naming the known ones."""
    if name not in policies:
        names = ", ".join(policies)
        raise InvalidArgument(f"unknown scheduling policy {name!r}", hint=f"Known policies: {names}.")
    return policies[name]
