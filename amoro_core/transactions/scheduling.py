"""Scheduling: assigning planned tasks to the free threads of an optimizer."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from amoro_core.events import get_logger
from amoro_core.model.processes import Attempt, OptimizerThread, OptimizingTask, TaskId
from amoro_core.scheduling.policy import CandidateTask, Use, choose_tasks
from amoro_core.scheduling.quota import TaskRun, quota_limit
from amoro_core.scheduling.shares import Accounts, settled, share_of
from amoro_core.state import tasks as task_machine
from amoro_core.store import optimizers, tables, tasks
from amoro_core.store.database import Connection
from amoro_core.transactions.settling import Effects, take_back
from amoro_core.transactions.telling import advance_task

log = get_logger("amoro.optimizing")


class TaskScheduler:
    """Keeps the thread accounts of each group's tables in memory; only the store's writer may schedule."""

    def __init__(self, core_ms: Callable[[], Mapping[Attempt, int]] = dict) -> None:
        """`core_ms` tells the CPU time that running attempts have taken so far."""
        self._told = core_ms
        self._accounts: dict[str, Accounts] = {}
        self._core_ms: dict[Attempt, int] = {}  # of attempts that tell it, until their tables are charged

    @property
    def accounts(self) -> Mapping[str, Accounts]:
        """The accounts of each group as they were last settled; any thread may ask."""
        return dict(self._accounts)

    def note(self) -> None:
        """Keep what attempts have taken of cores so far: that is charged, and not the one thread that waits."""
        self._core_ms.update(self._told())

    def schedule(
        self,
        db: Connection,
        optimizer_id: str,
        group: str,
        thread_ids: Sequence[int],
        effects: Effects,
        now: datetime,
    ) -> list[OptimizingTask]:
        """Schedule at most one planned task for each of these free threads. Raises UnknownToken."""
        self.note()
        for task in tasks.list_held(db, optimizer_id):
            # A thread that polls can't be executing: the answer to its last poll was lost.
            if task.thread is not None and task.thread.thread_id in thread_ids:
                reason = f"thread {task.thread.thread_id} asked for work again"
                take_back(db, task, reason, effects, now, lost=False)
        optimizer = optimizers.get(db, optimizer_id)
        planned = tasks.list_planned(
            db,
            group,
            optimizer.kinds,
            per_process=len(thread_ids),
            max_cluster_bytes=optimizer.max_cluster_bytes,
        )
        uses = self._uses(db, group, {task.table_id for task in planned}, now)
        candidates = [CandidateTask(task.task_id.process_id, task.task_id.number, task.table_id) for task in planned]
        by_id = {task.task_id: task for task in planned}
        scheduled = []
        choices = choose_tasks(candidates, uses, len(thread_ids), self._accounts[group].typical_s)
        for thread_id, choice in zip(thread_ids, choices, strict=False):
            event = task_machine.Schedule(OptimizerThread(optimizer_id, thread_id))
            task = advance_task(db, by_id[TaskId(choice.process_id, choice.number)], event, now)
            scheduled.append(task)
            log.info("task.scheduled", task=str(task.task_id), attempt=task.attempt, optimizer=optimizer_id)
        return scheduled

    def _uses(self, db: Connection, group: str, waiting: set[int], now: datetime) -> dict[int, Use]:
        """The standing of the tables that wait for threads of the group, after settling its accounts."""
        accounts = self._accounts.get(group, Accounts(now))
        held = [task for task in tasks.list_held(db) if task.group == group]
        ended = [task for task in tasks.list_ended_since(db, accounts.at) if task.group == group]
        threads = sum(item.threads for item in optimizers.list_optimizers(db, group))
        quotas = tables.quotas(db, waiting | {task.table_id for task in (*held, *ended)})
        shares = {table_id: share_of(quota, threads) for table_id, quota in quotas.items()}
        runs = [
            (task.table_id, self._run(task, task.scheduled_at, now))
            for task in (*held, *ended)
            if task.scheduled_at is not None
        ]
        accounts = self._accounts[group] = settled(accounts, runs, shares, waiting, now)
        for task in ended:
            self._core_ms.pop(Attempt(task.task_id, task.attempt), None)
        running = Counter(task.table_id for task in held)
        return {
            table_id: Use(
                running[table_id],
                quota_limit(quotas[table_id], max(1, threads)),
                shares[table_id],
                accounts.ahead_s.get(table_id, 0.0),
            )
            for table_id in sorted(waiting)
        }

    def _run(self, task: OptimizingTask, since: datetime, now: datetime) -> TaskRun:
        """The time for which the task held its thread, and how many cores it kept busy."""
        spent_ms = self._core_ms.get(Attempt(task.task_id, task.attempt), 0)
        held_ms = ((task.finished_at or now) - since).total_seconds() * 1000
        return TaskRun(since, task.finished_at, max(1.0, spent_ms / held_ms if held_ms > 0 else 1.0))


def may_schedule(db: Connection, optimizer_id: str, group: str, thread_ids: Sequence[int]) -> bool:
    """Whether there may be something to schedule, or to take back; cheap, for every poll. Raises UnknownToken."""
    optimizer = optimizers.get(db, optimizer_id)
    if tasks.list_planned(db, group, optimizer.kinds, limit=1, max_cluster_bytes=optimizer.max_cluster_bytes):
        return True
    held = tasks.list_held(db, optimizer_id)
    return any(task.thread is not None and task.thread.thread_id in thread_ids for task in held)
