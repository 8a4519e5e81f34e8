"""Giving planned tasks with their inputs to optimizers that ask."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from amoro_core.errors import IllegalState, UnknownToken
from amoro_core.failpoints import failpoint
from amoro_core.model.processes import Attempt, OptimizingTask
from amoro_core.model.work import Work
from amoro_core.store import tables, tasks
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.reports import ScheduledTask
from amoro_core.transactions.scheduling import Asked, TaskScheduler
from amoro_core.transactions.settling import Effects


class Scheduling:
    """Schedules tasks for all who ask at one moment."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], datetime],
        core_ms: Callable[[], Mapping[Attempt, int]],
        send: Callable[[Effects], None],
    ) -> None:
        """`core_ms` tells the CPU time that running attempts have taken so far; `send` carries effects out."""
        self._store, self._clock, self._send = store, clock, send
        self.scheduler = TaskScheduler(core_ms)  # only the store's writer schedules
        if not store.only_reads:
            store.follow(self.scheduler.board)

    def may_give(self, asked: Asked) -> bool:
        """Whether there may be something to schedule, or to take back; costs no look into the store."""
        return self.scheduler.board.may_give(asked.optimizer_id, asked.group, asked.thread_ids)

    def schedule(self, asked: Sequence[Asked]) -> list[list[ScheduledTask] | UnknownToken]:
        """Schedule at most one planned task for each free thread of all who ask, all in one transaction.

        For each of them its tasks, or UnknownToken for an optimizer whose registration ended meanwhile.
        """
        effects = Effects()
        answers = self._store.write(lambda db: self.scheduler.schedule(db, asked, effects, self._clock()))
        if any(not isinstance(answer, UnknownToken) and answer for answer in answers):
            failpoint("poll.after_store")
        self._send(effects)
        return self._store.read(
            lambda db: [
                answer if isinstance(answer, UnknownToken) else [_scheduled(db, task) for task in answer]
                for answer in answers
            ]
        )


def _scheduled(db: Connection, task: OptimizingTask) -> ScheduledTask:
    if task.thread is None:
        raise IllegalState(f"task {task.task_id} is not scheduled")
    return ScheduledTask(
        attempt=Attempt(task.task_id, task.attempt),
        thread_id=task.thread.thread_id,
        table=tables.get(db, task.table_id).identifier,
        work=Work(task.kind, tasks.read_input(db, task.task_id)),
    )
