"""Which table is planned next, and whose task is scheduled next."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from heapq import heapify, heappop, heappush
from types import MappingProxyType
from typing import Any, NamedTuple

from amoro_core.errors import InvalidArgument
from amoro_core.records import record
from amoro_core.scheduling.quota import TaskRun, occupation
from amoro_core.scheduling.shares import LEAST_SHARE

_NEVER = datetime.min.replace(tzinfo=UTC)


@record
class PendingTable:
    """A table that waits to be planned."""

    table_id: int
    limit: int  # threads, as its quota says
    runs: tuple[TaskRun, ...] = ()
    last_optimized_at: datetime | None = None


#: The sort key of a pending table at a time, a pure function: the table with the least key is planned first.
Policy = Callable[[PendingTable, datetime], Any]


@record
class CandidateTask:
    """A planned task that may be scheduled."""

    process_id: str
    number: int
    table_id: int


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
    candidates: Sequence[CandidateTask], uses: Mapping[int, Use], slots: int, typical_s: float
) -> list[CandidateTask]:
    """At most `slots` of the candidates, each from the table whose turn it is once those before it run.

    It is the turn of the table with the least thread time per share, counting what its running tasks will typically
    take. A limit holds only while a table below its own limit has candidates: otherwise threads are lent. Tasks of one
    table keep their order; ties go by the tables' first candidates.
    """
    waiting: dict[int, deque[CandidateTask]] = {}
    for candidate in candidates:
        waiting.setdefault(candidate.table_id, deque()).append(candidate)
    stand = {table: uses.get(table, Use()) for table in waiting}
    turn = [(*standing(stand[table], typical_s), place, table) for place, table in enumerate(waiting)]
    heapify(turn)
    chosen: list[CandidateTask] = []
    while turn and len(chosen) < slots:
        *_, place, table = heappop(turn)
        chosen.append(waiting[table].popleft())
        stand[table] = stand[table]._replace(running=stand[table].running + 1)
        if waiting[table]:
            heappush(turn, (*standing(stand[table], typical_s), place, table))
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


#: The built-in policies; others can be plugged in (docs/design.md).
POLICIES: Mapping[str, Policy] = MappingProxyType({"quota": by_quota, "balanced": balanced})
DEFAULT_POLICY = "quota"


def find_policy(policies: Mapping[str, Policy], name: str) -> Policy:
    """The policy of that name. Raises InvalidArgument, naming the known ones."""
    if name not in policies:
        known = ", ".join(policies)
        raise InvalidArgument(f"unknown scheduling policy {name!r}", hint=f"Known policies: {known}.")
    return policies[name]
