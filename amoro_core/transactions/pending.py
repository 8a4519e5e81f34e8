"""What the order of pending tables goes by: the recent use of their groups."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Protocol

from amoro_core.scheduling.policy import PendingTable
from amoro_core.scheduling.quota import LOOK_BACK, TaskRun, quota_limit
from amoro_core.store import groups, optimizers, tasks
from amoro_core.store.database import Connection
from amoro_core.store.tasks import TaskHold


class Waits(Protocol):
    """A table that waits to be planned."""

    @property
    def table_id(self) -> int:
        """Its number."""

    @property
    def group(self) -> str:
        """The group that it names."""

    @property
    def quota(self) -> float:
        """Its share or number of threads."""

    @property
    def last_optimized_at(self) -> datetime | None:
        """When it was last optimized; None: never."""


def pending_of(
    db: Connection, pending: Sequence[Waits], now: datetime
) -> tuple[dict[str, str], dict[str, list[PendingTable]]]:
    """The policies of all groups, and the pending tables of each, groups sorted by name."""
    threads, runs = count_threads(db), runs_of(recent_holds(db, now))
    policies = {group.name: group.scheduling_policy for group in groups.list_groups(db)}
    waiting: dict[str, list[PendingTable]] = {name: [] for name in sorted({table.group for table in pending})}
    for table in pending:
        limit = quota_limit(table.quota, max(1, threads.get(table.group, 0)))
        used = runs.get((table.group, table.table_id), ())
        waiting[table.group].append(PendingTable(table.table_id, limit, used, table.last_optimized_at))
    return policies, waiting


def recent_holds(db: Connection, now: datetime) -> list[TaskHold]:
    """What holds a thread or has ended within the time that counts."""
    return tasks.list_holds(db, now - LOOK_BACK)


def runs_of(recent: Iterable[TaskHold]) -> dict[tuple[str, int], tuple[TaskRun, ...]]:
    """The periods in which tasks held a thread, by group and table."""
    runs: dict[tuple[str, int], list[TaskRun]] = {}
    for hold in recent:
        runs.setdefault((hold.group, hold.table_id), []).append(TaskRun(hold.since, hold.until))
    return {key: tuple(found) for key, found in runs.items()}


def count_threads(db: Connection) -> dict[str, int]:
    """The threads of all optimizers, by group."""
    counted: dict[str, int] = {}
    for optimizer in optimizers.list_optimizers(db):
        counted[optimizer.group] = counted.get(optimizer.group, 0) + optimizer.threads
    return counted
