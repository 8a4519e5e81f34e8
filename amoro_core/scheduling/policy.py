"""Which table is planned next, and whose task is handed out next."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import heapify, heappop, heappush

from amoro_core.errors import InvalidArgument
from amoro_core.scheduling.quota import TaskRun, occupation

_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PendingTable:
    """A table that waits to be planned."""

    table_id: int
    limit: int  # threads, as its quota says
    runs: tuple[TaskRun, ...] = ()
    last_optimized_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class CandidateTask:
    """A planned task that may be handed out."""

    process_id: str
    number: int
    table_id: int


def order_pending(tables: Sequence[PendingTable], policy: str, now: datetime) -> list[PendingTable]:
    """The tables in the order in which they are planned; ties go by the other policy, then by id.

    `quota`: the lowest occupation first; `balanced`: what was optimized longest ago, or never, first.
    Raises InvalidArgument for an unknown policy.
    """
    return sorted(tables, key=_order(policy, now))


def choose_tasks(
    candidates: Sequence[CandidateTask],
    running_by_table: Mapping[int, int],
    limits: Mapping[int, int],
    slots: int,
) -> list[CandidateTask]:
    """At most so many of the candidates, each from the table furthest below its share as the ones before it run.

    Tasks of one table keep their order; tables that stand equal go by their first candidate. A limit holds only
    while a table below its own has candidates: beyond it, threads are lent.
    """
    waiting: dict[int, deque[CandidateTask]] = {}
    for candidate in candidates:
        waiting.setdefault(candidate.table_id, deque()).append(candidate)
    running = {table: running_by_table.get(table, 0) for table in waiting}
    turn = [(_share(running[table], limits.get(table, 0)), place, table) for place, table in enumerate(waiting)]
    heapify(turn)
    chosen: list[CandidateTask] = []
    while turn and len(chosen) < slots:
        _, place, table = heappop(turn)
        chosen.append(waiting[table].popleft())
        running[table] += 1
        if waiting[table]:
            heappush(turn, (_share(running[table], limits.get(table, 0)), place, table))
    return chosen


def _share(running: int, limit: int) -> tuple[bool, float]:
    """How much of its share a table uses; those that reached it come after all others."""
    return running >= limit, running / limit if limit > 0 else float(running)


def _order(policy: str, now: datetime) -> Callable[[PendingTable], tuple[object, ...]]:
    match policy:
        case "quota":
            return lambda table: (occupation(table.runs, table.limit, now), _last(table), table.table_id)
        case "balanced":
            return lambda table: (_last(table), occupation(table.runs, table.limit, now), table.table_id)
    raise InvalidArgument(f"unknown scheduling policy {policy!r}", hint="Write quota or balanced.")


def _last(table: PendingTable) -> datetime:
    return table.last_optimized_at or _NEVER
