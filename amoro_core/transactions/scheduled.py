"""Giving planned tasks with their inputs to optimizers that ask."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from amoro_core.errors import UnknownToken
from amoro_core.events import get_logger
from amoro_core.failpoints import failpoint
from amoro_core.model.processes import Attempt, OptimizingTask, TaskId
from amoro_core.model.work import Work
from amoro_core.store import tables, tasks
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.reports import Asked, ScheduledTask
from amoro_core.transactions.scheduling import Assigned, TaskScheduler
from amoro_core.transactions.settling import Effects

log = get_logger("amoro.optimizing")


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

    def schedule(self, asked: Sequence[Asked]) -> list[list[ScheduledTask] | BaseException]:
        """Schedule at most one planned task for each free thread of all who ask, all in one transaction.

        For each of them its tasks, or its error: UnknownToken for an optimizer whose registration ended meanwhile. An
        error of one changes nothing for the others.
        """
        try:
            return [*self._schedule(asked)]
        except Exception as error:  # it may be the fault of one of them
            if len(asked) == 1:
                return [error]
            log.warning("polls.served_alone", polls=len(asked), why=str(error))
            return [answer for one in asked for answer in self.schedule([one])]

    def _schedule(self, asked: Sequence[Asked]) -> list[list[ScheduledTask] | UnknownToken]:
        effects = Effects()
        assigned = self._store.write(lambda db: self.assign(db, asked, effects))
        self._send(effects)
        return self.with_work(assigned)

    def assign(self, db: Connection, asked: Sequence[Asked], effects: Effects) -> list[Assigned]:
        """As `schedule` within a write, but raises an error of one; its result is for `with_work`, after the commit."""
        return self.scheduler.schedule(db, asked, effects, self._clock()) if asked else []

    def with_work(self, assigned: Sequence[Assigned]) -> list[list[ScheduledTask] | UnknownToken]:
        """What was assigned, with its work."""
        given = [task for one in assigned if not isinstance(one, UnknownToken) for task in one]
        if not given:
            return [one if isinstance(one, UnknownToken) else [] for one in assigned]
        failpoint("poll.after_store")
        works = self._store.read(lambda db: _works(db, given))
        return [one if isinstance(one, UnknownToken) else [works[task.task_id] for task in one] for one in assigned]


def _works(db: Connection, given: Sequence[OptimizingTask]) -> dict[TaskId, ScheduledTask]:
    inputs = tasks.read_inputs(db, (task.task_id for task in given))
    names = tables.names(db, {task.table_id for task in given})
    return {
        task.task_id: ScheduledTask(
            Attempt(task.task_id, task.attempt),
            task.thread.thread_id,
            names[task.table_id],
            Work(task.kind, inputs[task.task_id]),
        )
        for task in given
        if task.thread is not None
    }
