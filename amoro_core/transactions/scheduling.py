"""Scheduling: which planned tasks the free threads of an optimizer get."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from amoro_core.events import get_logger
from amoro_core.model.processes import OptimizerThread, OptimizingTask, TaskId
from amoro_core.scheduling.policy import CandidateTask, Use, choose_tasks
from amoro_core.scheduling.quota import TaskRun, quota_limit
from amoro_core.scheduling.shares import Accounts, settled, share_of
from amoro_core.state import tasks as task_machine
from amoro_core.store import optimizers, tables, tasks
from amoro_core.store.database import Connection
from amoro_core.transactions.settling import Effects, take_back

log = get_logger("amoro.optimizing")


class TaskScheduler:
    """Remembers of each group what its tables have had of its threads; only the store's writer may use it."""

    def __init__(self) -> None:
        self._accounts: dict[str, Accounts] = {}

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
        for task in tasks.list_held(db, optimizer_id):
            # A thread that asks for work can't be executing: the answer to its last poll was lost.
            if task.thread is not None and task.thread.thread_id in thread_ids:
                reason = f"thread {task.thread.thread_id} asked for work again"
                take_back(db, task, reason, effects, now, lost=False)
        kinds = optimizers.get(db, optimizer_id).kinds
        planned = tasks.list_planned(db, group, kinds, per_process=len(thread_ids))
        uses = self._uses(db, group, {task.table_id for task in planned}, now)
        candidates = [CandidateTask(task.task_id.process_id, task.task_id.number, task.table_id) for task in planned]
        by_id = {task.task_id: task for task in planned}
        scheduled = []
        choices = choose_tasks(candidates, uses, len(thread_ids), self._accounts[group].typical_s)
        for thread_id, choice in zip(thread_ids, choices, strict=False):
            event = task_machine.Schedule(OptimizerThread(optimizer_id, thread_id))
            task = task_machine.advance(by_id[TaskId(choice.process_id, choice.number)], event, now)
            tasks.save(db, task)
            scheduled.append(task)
            log.info("task.scheduled", task=str(task.task_id), attempt=task.attempt, optimizer=optimizer_id)
        return scheduled

    def _uses(self, db: Connection, group: str, waiting: set[int], now: datetime) -> dict[int, Use]:
        """How the tables that wait for threads of the group stand, once its accounts are settled."""
        accounts = self._accounts.get(group, Accounts(now))
        held = [task for task in tasks.list_held(db) if task.group == group]
        ended = [task for task in tasks.list_ended_since(db, accounts.at) if task.group == group]
        threads = sum(item.threads for item in optimizers.list_optimizers(db, group))
        quotas = tables.quotas(db, waiting | {task.table_id for task in (*held, *ended)})
        shares = {table_id: share_of(quota, threads) for table_id, quota in quotas.items()}
        runs = [
            (task.table_id, TaskRun(task.scheduled_at, task.finished_at))
            for task in (*held, *ended)
            if task.scheduled_at is not None
        ]
        accounts = self._accounts[group] = settled(accounts, runs, shares, waiting, now)
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


def may_schedule(db: Connection, optimizer_id: str, group: str, thread_ids: Sequence[int]) -> bool:
    """Whether there may be something to schedule, or to take back; cheap, for every poll. Raises UnknownToken."""
    if tasks.list_planned(db, group, optimizers.get(db, optimizer_id).kinds, limit=1):
        return True
    held = tasks.list_held(db, optimizer_id)
    return any(task.thread is not None and task.thread.thread_id in thread_ids for task in held)
