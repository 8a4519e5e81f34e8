"""Acks and results of attempts, within the write that stores them."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from amoro_core.actions.contract import Action
from amoro_core.errors import IllegalState, InvalidArgument, StaleReport, TaskNotFound
from amoro_core.events import get_logger
from amoro_core.model.processes import Attempt, OptimizingTask, TaskId
from amoro_core.model.tables import TableIdentifier
from amoro_core.model.work import DELETE, WorkResult
from amoro_core.state import tasks as task_machine
from amoro_core.store import tables, tasks
from amoro_core.store.connection import Connection
from amoro_core.store.rows import as_stored
from amoro_core.transactions.handing import give_back
from amoro_core.transactions.late import condemn_late
from amoro_core.transactions.reports import Acks, Failure, Named, Refusal, Report, Reported
from amoro_core.transactions.scheduling import TaskScheduler
from amoro_core.transactions.settling import Effects, reported, settle_after, take_back
from amoro_core.transactions.telling import keep_tasks

log = get_logger("amoro.optimizing")


class Begins(Protocol):
    """Records that a deletion begins."""

    def begin(self, db: Connection, task: OptimizingTask) -> bool:
        """False if its work has changed meanwhile."""


class Reporting:
    """Stores what optimizers report. What is plain is stored for many at once, whatever else one by one."""

    def __init__(
        self,
        scheduler: TaskScheduler,
        guarding: Begins,
        find_action: Callable[[str], Action],
        clock: Callable[[], datetime],
    ) -> None:
        self._scheduler, self._guarding = scheduler, guarding
        self._find_action, self._clock = find_action, clock

    def ack(self, db: Connection, calls: Sequence[Acks]) -> list[Named]:
        """Accept the attempts of these calls; for each call their tables. Attempts that delete are left out."""
        known = self._read(db, {one.task_id for call in calls for one in call.attempts})
        changes: dict[TaskId, tuple[OptimizingTask, OptimizingTask]] = {}
        begun: list[dict[Attempt, int | None]] = []
        now = as_stored(self._clock())
        for call in calls:
            begun.append({})
            for one in call.attempts:
                task = known.get(one.task_id)
                if task is not None and task.kind == DELETE:
                    continue
                acked = self._acked(task, call.optimizer_id, one, now)
                begun[-1][one] = None if acked is None else acked.table_id
                if task is not None and acked is not None and acked is not task:
                    known[task.task_id] = acked
                    changes[task.task_id] = task, acked
        self._keep_all(db, list(changes.values()), now)
        names = tables.names(db, {after.table_id for after in known.values()})
        return [{one: None if at is None else names[at] for one, at in found.items()} for found in begun]

    def ack_alone(self, db: Connection, call: Acks) -> Named:
        """As `ack` for one call, by what the store says alone."""
        self._scheduler.board.forget()
        return self.ack(db, [call])[0]

    def _acked(
        self, task: OptimizingTask | None, optimizer_id: str, attempt: Attempt, now: datetime
    ) -> OptimizingTask | None:
        """The task after the ack, the same when the ack is repeated; None when it is stale."""
        event = task_machine.Ack(attempt.number, optimizer_id)
        try:
            if task is None:
                raise TaskNotFound(f"task {attempt.task_id} is not known")
            return task if task_machine.repeats(task, event) else task_machine.advance(task, event, now)
        except (StaleReport, IllegalState, TaskNotFound) as error:
            log.warning("ack.refused", attempt=str(attempt), optimizer=optimizer_id, why=error.message)
            return None

    def ack_guarded(
        self, db: Connection, optimizer_id: str, attempt: Attempt, effects: Effects, *, is_free: bool
    ) -> TableIdentifier | None:
        """Accept an attempt that deletes, if it could be guarded: its table, None when it is stale or taken back."""
        task, now = self._read(db, {attempt.task_id}).get(attempt.task_id), as_stored(self._clock())
        acked = self._acked(task, optimizer_id, attempt, now)
        if task is None or acked is None:
            return None
        name = tables.names(db, {task.table_id})[task.table_id]
        if acked is task:
            return name
        if not is_free or not self._guarding.begin(db, task):
            reason = "what it was to delete has changed" if is_free else "what it deletes could not be guarded yet"
            take_back(db, task, reason, effects, now, lost=False)
            return None
        self._keep_all(db, [(task, acked)], now)
        return name

    def complete_plain(self, db: Connection, calls: Sequence[Reported], effects: Effects) -> list[Reported]:
        """Accept the calls whose results all simply end the present attempt of their task; which they are.

        The others have changed nothing and are for `complete`.
        """
        self._scheduler.note()
        known = self._read(db, {one.attempt.task_id for call in calls for one in call.reports})
        changes: dict[TaskId, tuple[OptimizingTask, OptimizingTask]] = {}
        plain: list[Reported] = []
        now = as_stored(self._clock())
        for call in calls:
            ended = _succeeded(known, call, now)
            if ended is not None and changes.keys().isdisjoint(ended):
                plain.append(call)
                changes |= ended
        self._keep_all(db, list(changes.values()), now)
        results = ((one.attempt, one.result) for call in plain for one in call.reports)
        tasks.save_outputs(db, [(one, made.payload) for one, made in results if isinstance(made, WorkResult)])
        after = [ended for _, ended in changes.values()]
        self._ended(db, after, effects, now)
        return plain

    def complete(self, db: Connection, report: Report, effects: Effects) -> bool:
        """Accept a result; whether it counts. Raises InvalidArgument for one of another kind than the task's."""
        optimizer_id, attempt, result = report.optimizer_id, report.attempt, report.result
        now = as_stored(self._clock())
        if isinstance(result, Refusal):
            return give_back(db, optimizer_id, attempt, result, effects, now)
        self._scheduler.note()
        event = _event(report)
        try:
            task = tasks.get(db, attempt.task_id)
            if isinstance(result, WorkResult) and result.kind != task.kind:
                raise InvalidArgument(
                    f"attempt {attempt} has work of the kind {task.kind!r}, its result is of the kind {result.kind!r}"
                )
            if task_machine.repeats(task, event):
                if isinstance(result, Failure):
                    return True
                return tasks.read_output(db, task.task_id) == (attempt.number, result.payload)
            ended = task_machine.advance(task, event, now)
        except (StaleReport, IllegalState, TaskNotFound) as error:
            files = condemn_late(db, attempt, result, self._find_action, now)
            log.warning("result.absorbed", attempt=str(attempt), optimizer=optimizer_id, files=files, why=error.message)
            return False
        self._keep_all(db, [(task, ended)], now)
        if isinstance(result, WorkResult):
            tasks.save_output(db, task.task_id, attempt.number, result.payload)
        self._ended(db, [ended], effects, now)
        return True

    def _ended(self, db: Connection, ended: Sequence[OptimizingTask], effects: Effects, now: datetime) -> None:
        for task in ended:
            log.info("task.completed", task=str(task.task_id), attempt=task.attempt, status=task.status.value)
        effects.attempts += map(reported, ended)
        settle_after(db, ended, effects, now)

    def _read(self, db: Connection, task_ids: set[TaskId]) -> dict[TaskId, OptimizingTask]:
        """These tasks as the store has them; one that is not known is left out."""
        known = self._scheduler.board.held_whole(task_ids)
        return known | tasks.get_many(db, missing) if (missing := task_ids - known.keys()) else known

    def _keep_all(
        self, db: Connection, changes: Sequence[tuple[OptimizingTask, OptimizingTask]], now: datetime
    ) -> None:
        """Store tasks after a change, and tell scheduling, which need not read them again."""
        keep_tasks(db, changes, now)
        self._scheduler.board.keep([after for _, after in changes])


def may_be_plain(call: Reported) -> bool:
    """Whether all that the call says is that work was done."""
    return all(isinstance(one.result, WorkResult) for one in call.reports)


def _event(report: Report) -> task_machine.Succeed | task_machine.Fail:
    result, number = report.result, report.attempt.number
    if isinstance(result, Failure):
        return task_machine.Fail(number, report.optimizer_id, result.code, result.message[:4000])
    return task_machine.Succeed(number, report.optimizer_id)


def _succeeded(
    known: Mapping[TaskId, OptimizingTask], call: Reported, now: datetime
) -> dict[TaskId, tuple[OptimizingTask, OptimizingTask]] | None:
    """The tasks of the call before and after; None if one of its results does not simply end a present attempt."""
    changes: dict[TaskId, tuple[OptimizingTask, OptimizingTask]] = {}
    for one in call.reports:
        task = known.get(one.attempt.task_id)
        if task is None or not isinstance(one.result, WorkResult) or one.result.kind != task.kind:
            return None
        try:
            changes[task.task_id] = task, task_machine.advance(task, _event(one), now)
        except (StaleReport, IllegalState):
            return None
    return changes if len(changes) == len(call.reports) else None
