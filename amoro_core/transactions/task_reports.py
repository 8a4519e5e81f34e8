"""Attempts that go from one optimizer to another, or back."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from amoro_core.actions.action_api import Action
from amoro_core.errors import IllegalState, InvalidArgument, NotFound, StaleReport, TaskNotFound
from amoro_core.failpoints import failpoint
from amoro_core.logger import get_logger
from amoro_core.model.history_events import About, EventKind
from amoro_core.model.maintenance import Condemned, FileKind
from amoro_core.model.processes import Attempt, OptimizingTask, TaskId, TaskResult
from amoro_core.model.tables import TableIdentifier
from amoro_core.model.task_payload import DELETE, WorkResult
from amoro_core.state import tasks as task_machine
from amoro_core.store import optimizers, pending_deletions, tables, tasks
from amoro_core.store.column_codecs import as_stored
from amoro_core.store.database import Connection, Store
from amoro_core.store.pending_deletions import BatchStatus
from amoro_core.transactions.advance_process import Effects, reported, settle_after, take_back
from amoro_core.transactions.journal import append_event, keep_task, keep_tasks
from amoro_core.transactions.process_context import read_case
from amoro_core.transactions.task_handout import Assigned, Scheduling, TaskScheduler
from amoro_core.transactions.task_messages import (
    Acks,
    Failure,
    Named,
    Refusal,
    Report,
    ReportCall,
    ReportReply,
    ScheduledTask,
)

log = get_logger("amoro.optimizing")


def adopt(
    db: Connection, optimizer_id: str, previous_id: str, running: Sequence[Attempt], now: datetime
) -> list[Attempt]:
    """Move attempts that go on from an optimizer's earlier registration to its new one; returns them."""
    adopted: list[Attempt] = []
    if not previous_id:
        return adopted
    for task in tasks.list_held(db, previous_id):
        attempt = Attempt(task.task_id, task.attempt)
        if attempt not in running or task.thread is None:
            continue
        try:
            moved = task_machine.adopt(task, attempt.number, optimizer_id, task.thread.thread_id, now)
        except StaleReport:
            continue
        keep_task(db, task, moved, now)
        adopted.append(attempt)
    return adopted


def dismiss(db: Connection, optimizer_id: str, reason: str, effects: Effects, now: datetime, *, lost: bool) -> int:
    """Take back what the optimizer holds and end its registration, if it has one; how many tasks it held."""
    held = tasks.list_held(db, optimizer_id)
    for task in held:
        take_back(db, task, reason, effects, now, lost=lost)
    if (known := optimizers.find(db, optimizer_id)) is not None:
        kind = EventKind.LOST if lost else EventKind.LEFT
        words = f"optimizer {optimizer_id} {'was lost' if lost else 'left'}: {reason}"
        about = About(optimizer_id=optimizer_id, group=known.group)
        append_event(db, kind, words, about, now, {"threads": known.threads, "tasks": len(held)})
    optimizers.remove(db, optimizer_id)
    effects.lost_optimizers += lost
    return len(held)


def give_back(
    db: Connection, optimizer_id: str, attempt: Attempt, refusal: Refusal, effects: Effects, now: datetime
) -> bool:
    """Plan the task again, for another optimizer; it has neither failed nor been lost."""
    held = [task for task in tasks.list_held(db, optimizer_id) if Attempt(task.task_id, task.attempt) == attempt]
    log.warning("work.refused", attempt=str(attempt), optimizer=optimizer_id, kind=refusal.kind)
    if not held:
        return False
    optimizer = optimizers.get(db, optimizer_id)
    known = tuple(kind for kind in optimizer.kinds if kind != held[0].kind)
    optimizers.save(db, replace(optimizer, kinds=known))
    take_back(db, held[0], refusal.message[:4000], effects, now, lost=False)
    return True


late_log = get_logger("amoro.late")

#: How long such files are kept for inspection before they are deleted.
KEEP = timedelta(days=1)


def condemn_late(
    db: Connection, attempt: Attempt, result: object, find_action: Callable[[str], Action], now: datetime
) -> int:
    """Condemn the files of a result that was absorbed; returns their number.

    Only if no result of that attempt can be accepted any more, because its process has ended or a later attempt has
    begun: one sent under an earlier registration may be sent again. Only files named after the attempt, and none of an
    accepted result, so that a faulty optimizer can condemn nothing else. Does nothing for an unknown task, a failure,
    or an unreadable result.
    """
    if not isinstance(result, WorkResult):
        return 0
    process_id, number = attempt.task_id.process_id, attempt.task_id.number
    try:
        case, task = read_case(db, process_id), tasks.get(db, attempt.task_id)
        if case.process.is_active and task.attempt <= attempt.number:
            return 0
        late = TaskResult(number, result.kind, tasks.read_input(db, attempt.task_id), result.payload)
    except NotFound:
        return 0
    try:
        action = find_action(case.process.type)
        taken = action.outputs(case, frozenset(one.number for one in case.results))
        named = action.outputs(replace(case, results=(late,)), frozenset((number,)))
    except Exception as error:  # whatever decoding raises
        late_log.warning("result.unreadable", attempt=str(attempt), why=str(error))
        return 0
    known = pending_deletions.paths(db, case.process.table_id).union(taken)
    own = f"{attempt.task_id}-{attempt.number}-"
    files = [
        Condemned(path, FileKind.DATA, None, None, f"of the late result of attempt {attempt}")
        for path in named
        if path.rpartition("/")[2].startswith(own) and path not in known
    ]
    batches = pending_deletions.batches_of(
        files, process_id, case.process.table_id, case.process.table_uuid, now + KEEP
    )
    pending_deletions.add_many(db, [replace(one, status=BatchStatus.WAITING) for one in batches])
    return len(files)


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

    def complete_plain(self, db: Connection, calls: Sequence[ReportCall], effects: Effects) -> list[ReportCall]:
        """Accept the calls whose results all simply end the present attempt of their task; which they are.

        The others have changed nothing and are for `complete`.
        """
        self._scheduler.note()
        known = self._read(db, {one.attempt.task_id for call in calls for one in call.reports})
        changes: dict[TaskId, tuple[OptimizingTask, OptimizingTask]] = {}
        plain: list[ReportCall] = []
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


def may_be_plain(call: ReportCall) -> bool:
    """Whether all that the call says is that work was done."""
    return all(isinstance(one.result, WorkResult) for one in call.reports)


def _event(report: Report) -> task_machine.Succeed | task_machine.Fail:
    result, number = report.result, report.attempt.number
    if isinstance(result, Failure):
        return task_machine.Fail(number, report.optimizer_id, result.code, result.message[:4000])
    return task_machine.Succeed(number, report.optimizer_id)


def _succeeded(
    known: Mapping[TaskId, OptimizingTask], call: ReportCall, now: datetime
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


class ReportIntake:
    """Takes what all calls of one moment say, acks before results: an error of one changes nothing for the others."""

    def __init__(
        self, store: Store, reporting: Reporting, scheduling: Scheduling, send: Callable[[Effects], None]
    ) -> None:
        """`send` carries effects out."""
        self._store, self._reporting, self._scheduling, self._send = store, reporting, scheduling, send

    def take(self, calls: Sequence[ReportCall]) -> list[ReportReply | BaseException]:
        """Accept the acks and results of these calls, then schedule for those that ask; for each its answer, or error.

        Acks and plain results share one write with what is scheduled for them; other calls come after them.
        """
        if any(call.reports for call in calls):
            failpoint("complete.before_store")
        together = self._take_together([call for call in calls if may_be_plain(call)])
        return [together[id(call)] if id(call) in together else self._take_alone(call) for call in calls]

    def _take_together(self, calls: Sequence[ReportCall]) -> dict[int, ReportReply | BaseException]:
        """The answers to those of these calls whose results are plain; none where something fails for all."""
        if not calls:
            return {}
        effects = Effects()
        try:
            named, plain, assigned = self._store.write(lambda db: self._store_together(db, calls, effects))
        except Exception as error:  # it may be the fault of one of them
            log.warning("reports.taken_alone", calls=len(calls), why=str(error))
            return {}
        _reach_stored(plain)
        self._send(effects)
        given = iter(self._scheduling.with_work(assigned))
        return {
            id(call): _answer([True for _ in call.reports], next(given) if call.asked else [], named.get(id(call), {}))
            for call in plain
        }

    def _store_together(
        self, db: Connection, calls: Sequence[ReportCall], effects: Effects
    ) -> tuple[dict[int, Named], list[ReportCall], list[Assigned]]:
        """What their acks name, those whose results were taken, and what was scheduled for those of them that ask."""
        acking = [(id(call), call.acks) for call in calls if call.acks]
        named = self._reporting.ack(db, [acks for _, acks in acking]) if acking else []
        plain = self._reporting.complete_plain(db, calls, effects)
        assigned = self._scheduling.assign(db, [call.asked for call in plain if call.asked], effects)
        return dict(zip((number for number, _ in acking), named, strict=True)), plain, assigned

    def _take_alone(self, call: ReportCall) -> ReportReply | BaseException:
        try:
            named = self._ack_alone(call.acks) if call.acks else {}
            accepted = self._complete_each(call.reports) if call.reports else []
            return _answer(accepted, self._scheduling.schedule([call.asked])[0] if call.asked else [], named)
        except Exception as error:
            return error

    def _ack_alone(self, acks: Acks) -> Named:
        named = self._store.write(lambda db: self._reporting.ack_alone(db, acks))
        failpoint("ack.after_store")
        return named

    def _complete_each(self, reports: Sequence[Report]) -> list[bool]:
        """Whether each of these results counts. Raises the error of the first that has one, once all are taken."""
        effects = [Effects() for _ in reports]
        writes = [
            partial(self._reporting.complete, report=one, effects=its)
            for one, its in zip(reports, effects, strict=True)
        ]
        stored = self._store.submit_all(writes)
        wait(stored)
        failpoint("complete.after_store")
        for future, its in zip(stored, effects, strict=True):
            if future.exception() is None:
                self._send(its)
        return [future.result() for future in stored]


def _reach_stored(calls: Sequence[ReportCall]) -> None:
    if any(call.acks for call in calls):
        failpoint("ack.after_store")
    if any(call.reports for call in calls):
        failpoint("complete.after_store")


def _answer(
    accepted: Sequence[bool], tasks: list[ScheduledTask] | BaseException, named: Named
) -> ReportReply | BaseException:
    return tasks if isinstance(tasks, BaseException) else ReportReply(tuple(accepted), tuple(tasks), named)
