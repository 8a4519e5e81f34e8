"""What optimizers report of their attempts: acks, results, losses."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum

from amoro_core.actions.action_api import Action
from amoro_core.errors import IllegalState, InvalidArgument, NotFound, StaleReport, TaskNotFound
from amoro_core.logger import get_logger
from amoro_core.model.history_events import About, EventKind
from amoro_core.model.maintenance import Condemned, FileKind
from amoro_core.model.processes import Attempt, OptimizingTask, TaskResult, TaskStatus
from amoro_core.model.tables import TableIdentifier
from amoro_core.model.task_payload import DELETE, WorkResult
from amoro_core.state import tasks as task_machine
from amoro_core.store import groups, pending_deletions, tables, tasks
from amoro_core.store.connection import as_stored
from amoro_core.store.database import Connection
from amoro_core.store.pending_deletions import BatchStatus
from amoro_core.transactions.advance_process import Effects, ended_attempt, settle_after, take_back
from amoro_core.transactions.journal import append_event, keep_task
from amoro_core.transactions.process_context import read_context
from amoro_core.transactions.task_queue import ScheduledTask

log = get_logger("amoro.optimizing")
late_log = get_logger("amoro.late")

#: How long files of late results are kept for inspection before they are deleted.
KEEP = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed, in the optimizer's words."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """The optimizer does not know that kind of work: nothing has begun."""

    kind: str
    message: str


Outcome = WorkResult | Failure | Refusal


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of an attempt, as its optimizer reports it."""

    optimizer_id: str
    attempt: Attempt
    result: Outcome


class Admission(Enum):
    """Whether an attempt that deletes may begin."""

    FREE = "free"
    LATER = "later"  # not known yet: ask again
    REFUSED = "refused"  # the optimizer no longer holds it


@dataclass(frozen=True, slots=True)
class ReportReply:
    """Whether each result of a call counts, and the tasks that were scheduled afterwards."""

    accepted: tuple[bool, ...] = ()
    tasks: tuple[ScheduledTask, ...] = ()


def adopt(
    db: Connection, optimizer_id: str, previous_id: str, running: Sequence[Attempt], now: datetime
) -> list[Attempt]:
    """Move attempts that go on from an optimizer's earlier registration to its new one; returns them."""
    adopted: list[Attempt] = []
    if not previous_id:
        return adopted
    for task in tasks.list_assigned(db, previous_id):
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
    assigned = tasks.list_assigned(db, optimizer_id)
    for task in assigned:
        take_back(db, task, reason, effects, now, lost=lost)
    if (dismissed := groups.find_optimizer(db, optimizer_id)) is not None:
        kind = EventKind.LOST if lost else EventKind.LEFT
        words = f"optimizer {optimizer_id} {'was lost' if lost else 'left'}: {reason}"
        about = About(optimizer_id=optimizer_id, group=dismissed.group)
        append_event(db, kind, words, about, now, {"threads": dismissed.threads, "tasks": len(assigned)})
    groups.remove_optimizer(db, optimizer_id)
    effects.lost_optimizers += lost
    return len(assigned)


def return_task(
    db: Connection, optimizer_id: str, attempt: Attempt, refusal: Refusal, effects: Effects, now: datetime
) -> bool:
    """Plan the task again, for another optimizer; it has neither failed nor been lost."""
    lost = [task for task in tasks.list_assigned(db, optimizer_id) if Attempt(task.task_id, task.attempt) == attempt]
    log.warning("work.refused", attempt=str(attempt), optimizer=optimizer_id, kind=refusal.kind)
    if not lost:
        return False
    optimizer = groups.get_optimizer(db, optimizer_id)
    kinds = tuple(kind for kind in optimizer.kinds if kind != lost[0].kind)
    groups.save_optimizer(db, replace(optimizer, kinds=kinds))
    take_back(db, lost[0], refusal.message[:4000], effects, now, lost=False)
    return True


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
        case, task = read_context(db, process_id), tasks.get(db, attempt.task_id)
        if case.process.is_active and task.attempt <= attempt.number:
            return 0
        late = TaskResult(number, result.kind, tasks.read_input(db, attempt.task_id), result.payload)
    except NotFound:
        return 0
    try:
        action = find_action(case.process.type)
        outputs = action.outputs(case, frozenset(task_result.number for task_result in case.results))
        named = action.outputs(replace(case, results=(late,)), frozenset((number,)))
    except Exception as error:  # whatever decoding raises
        late_log.warning("result.unreadable", attempt=str(attempt), why=str(error))
        return 0
    used = pending_deletions.paths(db, case.process.table_id).union(outputs)
    own = f"{attempt.task_id}-{attempt.number}-"
    files = [
        Condemned(path, FileKind.DATA, None, None, f"of the late result of attempt {attempt}")
        for path in named
        if path.rpartition("/")[2].startswith(own) and path not in used
    ]
    batches = pending_deletions.batches_of(
        files, process_id, case.process.table_id, case.process.table_uuid, now + KEEP
    )
    pending_deletions.add_many(db, [replace(batch, status=BatchStatus.WAITING) for batch in batches])
    return len(files)


def read_piece(db: Connection, optimizer_id: str, attempt: Attempt, sha256: str, piece: int) -> bytes | None:
    """A piece of a blob, from 0; None after the last. Raises TaskNotFound unless the optimizer runs the attempt."""
    assigned = (task for task in tasks.list_assigned(db, optimizer_id) if task.status is TaskStatus.ACKED)
    is_acked = any(Attempt(task.task_id, task.attempt) == attempt for task in assigned)
    result = tasks.find_blob_piece(db, attempt.task_id.process_id, sha256, piece) if is_acked else None
    if result is None and (piece == 0 or not is_acked):
        raise TaskNotFound(f"attempt {attempt} of optimizer {optimizer_id} has no blob {sha256}")
    return result


@dataclass(frozen=True, slots=True)
class Reporting:
    """Stores what optimizers report."""

    begin_deletion: Callable[[Connection, OptimizingTask], bool]  # False if the task's work has changed meanwhile
    find_action: Callable[[str], Action]
    clock: Callable[[], datetime]

    def ack(
        self, db: Connection, optimizer_id: str, attempts: Iterable[Attempt]
    ) -> dict[Attempt, TableIdentifier | None]:
        """Accept attempts; their tables, None for a stale one. Attempts that delete are left out: see `ack_guarded`."""
        now = as_stored(self.clock())
        by_id = tasks.get_many(db, {attempt.task_id for attempt in attempts})
        table_ids: dict[Attempt, int | None] = {}
        for attempt in attempts:
            task = by_id.get(attempt.task_id)
            if task is not None and task.kind == DELETE:
                continue
            acked = _acked(task, optimizer_id, attempt, now)
            table_ids[attempt] = None if acked is None else acked.table_id
            if task is not None and acked is not None and acked is not task:
                by_id[task.task_id] = keep_task(db, task, acked, now)
        names = tables.names(db, {table_id for table_id in table_ids.values() if table_id is not None})
        return {attempt: None if table_id is None else names[table_id] for attempt, table_id in table_ids.items()}

    def ack_guarded(
        self, db: Connection, optimizer_id: str, attempt: Attempt, effects: Effects, *, is_free: bool
    ) -> TableIdentifier | None:
        """Accept an attempt that deletes, if it could be guarded: its table, None when it is stale or taken back."""
        task, now = tasks.get_many(db, {attempt.task_id}).get(attempt.task_id), as_stored(self.clock())
        acked = _acked(task, optimizer_id, attempt, now)
        if task is None or acked is None:
            return None
        if acked is not task:
            if not is_free or not self.begin_deletion(db, task):
                reason = "what it was to delete has changed" if is_free else "what it deletes could not be guarded yet"
                take_back(db, task, reason, effects, now, lost=False)
                return None
            keep_task(db, task, acked, now)
        return tables.names(db, {task.table_id})[task.table_id]

    def complete(self, db: Connection, report: Report, effects: Effects) -> bool:
        """Accept a result; whether it counts. Raises InvalidArgument for one of another kind than the task's."""
        optimizer_id, attempt, result = report.optimizer_id, report.attempt, report.result
        now = as_stored(self.clock())
        if isinstance(result, Refusal):
            return return_task(db, optimizer_id, attempt, result, effects, now)
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
            files = condemn_late(db, attempt, result, self.find_action, now)
            log.warning("result.absorbed", attempt=str(attempt), optimizer=optimizer_id, files=files, why=error.message)
            return False
        keep_task(db, task, ended, now)
        if isinstance(result, WorkResult):
            tasks.save_output(db, task.task_id, attempt.number, result.payload)
        log.info("task.completed", task=str(ended.task_id), attempt=ended.attempt, status=ended.status.value)
        effects.attempts.append(ended_attempt(ended))
        settle_after(db, ended, effects, now)
        return True


def _acked(task: OptimizingTask | None, optimizer_id: str, attempt: Attempt, now: datetime) -> OptimizingTask | None:
    """The task after the ack, the same when the ack is repeated; None when it is stale."""
    event = task_machine.Ack(attempt.number, optimizer_id)
    try:
        if task is None:
            raise TaskNotFound(f"task {attempt.task_id} is not known")
        return task if task_machine.repeats(task, event) else task_machine.advance(task, event, now)
    except (StaleReport, IllegalState, TaskNotFound) as error:
        log.warning("ack.refused", attempt=str(attempt), optimizer=optimizer_id, why=error.message)
        return None


def _event(report: Report) -> task_machine.Succeed | task_machine.Fail:
    result, number = report.result, report.attempt.number
    if isinstance(result, Failure):
        return task_machine.Fail(number, report.optimizer_id, result.code, result.message[:4000])
    return task_machine.Succeed(number, report.optimizer_id)
