"""Advancing and ending processes: decisions carried out, receipts, blockers, and what follows for the table."""

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime

from amoro_core.errors import AccessDenied, AmoroError, CatalogUnavailable, IllegalState, TableBlocked
from amoro_core.logger import get_logger
from amoro_core.metrics_registry import Meters
from amoro_core.model import metrics
from amoro_core.model.processes import (
    IN_NO_LANE,
    LAYOUT,
    CommitAttempt,
    CommitOutcome,
    Figure,
    OptimizingProcess,
    OptimizingTask,
    ProcessContext,
    ProcessStatus,
    Receipt,
    TaskStatus,
    uuid7,
)
from amoro_core.model.tables import LONGEST_HOLD, ActionRecord, BlockedOperation, Blocker, Saving, TableRuntime
from amoro_core.planning.optimizing import forecast
from amoro_core.state import backoff, process_decisions
from amoro_core.state import processes as process_machine
from amoro_core.state import tables as table_machine
from amoro_core.state import tasks as task_machine
from amoro_core.state.backoff import Outcome, backed_off, recovered
from amoro_core.state.process_decisions import NOTHING_SETTLED, Settled
from amoro_core.store import actions, pending_deletions, processes, queue_stats, table_stats, tables, tasks
from amoro_core.store.database import Connection
from amoro_core.transactions.journal import advance_task, keep_process, keep_record, keep_table

_AGAINST = frozenset({BlockedOperation.BATCH_WRITE})


def refuse_blocked(
    db: Connection, runtime: TableRuntime, against: Set[BlockedOperation], now: datetime, *, partly: bool = False
) -> None:
    """Raise TableBlocked for a blocker of any of these operations; `partly`: also for one of some partitions alone."""
    blocker = actions.find_blocker_against(db, runtime.table_id, against, now, partly=partly)
    if blocker is not None:
        raise TableBlocked(
            f"{runtime.identifier} is {blocker.words}",
            hint=f"Try again later, or release it: amoro table unblock {blocker.blocker_id}",
        )


def block_writers(db: Connection, runtime: TableRuntime, process: OptimizingProcess, now: datetime) -> Blocker:
    """Block batch writers that ask, for a day. Raises TableBlocked if another holder has such a blocker."""
    refuse_blocked(db, runtime, _AGAINST, now)
    blocker = Blocker(
        uuid7(now), runtime.table_id, _AGAINST, now, now + LONGEST_HOLD, LONGEST_HOLD, _block_reason(process)
    )
    return actions.add_blocker(db, blocker)


def renew_block(db: Connection, process: OptimizingProcess, now: datetime) -> bool:
    """Block for a day from now, anew where it expired meanwhile; False when another holder has such a blocker."""
    if own := _own_blockers(db, process, now):
        actions.save_blocker(db, replace(own[0], expires_at=now + LONGEST_HOLD))
    elif actions.find_blocker_against(db, process.table_id, _AGAINST, now) is None:
        block_writers(db, tables.get(db, process.table_id), process, now)
    else:
        return False
    return True


def block_needs_renewal(db: Connection, process: OptimizingProcess, now: datetime) -> bool:
    """Whether less than half a day of what the process has blocked is left."""
    ends = (blocker.expires_at for blocker in _own_blockers(db, process, now))
    return max(ends, default=now) - now < LONGEST_HOLD / 2


def _own_blockers(db: Connection, process: OptimizingProcess, now: datetime) -> list[Blocker]:
    return [item for item in actions.list_blockers(db, now, process.table_id) if item.reason == _block_reason(process)]


def _block_reason(process: OptimizingProcess) -> str:
    return f"process {process.process_id} orders rows"


def settled_groups(db: Connection, process: OptimizingProcess) -> Settled:
    """The groups that are dropped, and of a process that commits group by group those that are committed."""
    dropped = table_stats.list_dropped_groups(db, process.process_id)
    if not process.max_commits:
        return Settled(dropped=dropped) if dropped else NOTHING_SETTLED
    committed = committed_groups(processes.list_commits(db, process.process_id))
    return Settled(committed, {number: why for number, why in dropped.items() if number not in committed})


def committed_groups(attempts: Iterable[CommitAttempt]) -> frozenset[int]:
    """The groups whose results the table has."""
    return frozenset(number for item in attempts if item.outcome is CommitOutcome.DONE for number in item.groups)


def _landed_attempts(db: Connection, process: OptimizingProcess) -> list[CommitAttempt]:
    """The attempts that have landed with results, in the order in which they were sent."""
    attempts = processes.list_commits(db, process.process_id)
    return [attempt for attempt in attempts if attempt.outcome is CommitOutcome.DONE and attempt.groups]


def receipt_of(db: Connection, process: OptimizingProcess) -> Receipt | None:
    """The receipt of all commits of a process that ends, other groups dropped; None if it has committed nothing."""
    landed = _landed_attempts(db, process)
    if not landed:
        return None
    groups = {task.task_id.number for task in tasks.list_for_process(db, process.process_id)}
    receipt = merged([attempt.receipt for attempt in landed])
    dropped = Figure("groups_dropped", len(groups - committed_groups(landed)), "groups")
    return replace(receipt, more=(*receipt.more, dropped))


def merged(receipts: Sequence[Receipt]) -> Receipt:
    """The receipt of several commits of one process: counts in sum, what holds of the table as the last one has it.

    Figures that end in `_before` or `_after` and are of no file, row or byte are those of the first and the last one.
    """
    return replace(
        receipts[-1],
        **{name: sum(getattr(receipt, name) for receipt in receipts) for name in _SUMMED},
        base_snapshot_id=receipts[0].base_snapshot_id,
        more=(*_figures(receipts), Figure("commits", len(receipts), "")),
    )


#: Counts of a receipt that several commits add up.
_SUMMED = (
    *("data_files_before", "data_files_after", "delete_files_before", "delete_files_after"),
    *("bytes_before", "bytes_after", "rows_before", "rows_after", "disputed_deletes"),
)
#: Units of figures that several commits add up.
_COUNTED = ("files", "rows", "bytes", "ms", "groups")


def _figures(receipts: Sequence[Receipt]) -> list[Figure]:
    figures: dict[str, Figure] = {}
    for receipt in receipts:
        for figure in receipt.more:
            earlier = figures.get(figure.name)
            if earlier is None or (figure.unit not in _COUNTED and figure.name.endswith("_after")):
                figures[figure.name] = figure
            elif figure.unit in _COUNTED:
                figures[figure.name] = replace(earlier, value=earlier.value + figure.value)
    return list(figures.values())


def partial_end(
    db: Connection, process: OptimizingProcess, code: str, reason: str
) -> process_machine.EndedPartly | None:
    """The end of a process that commits nothing more; None where nothing of it is committed."""
    receipt = receipt_of(db, process) if process.max_commits else None
    return None if receipt is None else process_machine.EndedPartly(receipt, code, reason)


def failure_of(
    db: Connection, process: OptimizingProcess, attempts: Sequence[CommitAttempt], error: AmoroError
) -> process_machine.ProcessEvent:
    """The event that ends the process; an attempt is still open only if the table is gone or was replaced."""
    text = error.full_text
    if any(attempt.is_open for attempt in attempts):
        unknown = f"{text}; whether a commit to it was applied is not known, and none of its files is removed"
        return process_machine.TableMissing(error.code, unknown)
    return partial_end(db, process, error.code, text) or process_machine.ProcessFailed(error.code, text)


log = get_logger("amoro.maintaining")

#: The action that deletes what was condemned.
EMPTYING = "empty-trash"


def move_process(
    db: Connection, process_id: str, event: process_machine.ProcessEvent, now: datetime
) -> OptimizingProcess:
    """Apply the event to the process and store it. Raises IllegalState for an edge that its machine lacks."""
    process = processes.get(db, process_id)
    return keep_process(db, process, process_machine.advance(process, event, now), now)


def is_partial(case: ProcessContext, attempt: CommitAttempt) -> bool:
    """Whether the attempt commits the results of only some of the tasks."""
    return len(attempt.groups) < case.tasks


def finish_text(process: OptimizingProcess, attempt: CommitAttempt | None) -> str:
    """What a process has done, as a phrase with the attempt that landed."""
    return f"{process.type} has ended" if attempt is None else f"{process.type} committed {attempt.words}"


def end_process(
    db: Connection, process: OptimizingProcess, event: process_machine.ProcessEvent, now: datetime
) -> OptimizingProcess:
    """End a process without a commit: its files are left over, and nothing of its plan is condemned."""
    pending_deletions.remove_written(db, process.process_id)
    tasks.remove_blobs(db, process.process_id)
    return keep_process(db, process, replace(process_machine.advance(process, event, now), left_over=True), now)


def release_table(
    db: Connection, process: OptimizingProcess, reason: str, now: datetime, outcome: Outcome, code: str = ""
) -> None:
    """Update the table after a process that committed nothing; after a failure, with its code, back off."""
    if process.is_optimizing:
        before = tables.get(db, process.table_id)
        runtime = table_machine.advance(before, table_machine.ProcessEnded(reason), now)
        keep_table(db, before, backed_off(runtime, code, now) if outcome is Outcome.FAILED else runtime, now)
        return
    _evaluate_again(db, process, now)
    record = replace(actions.get(db, process.table_id, process.action), reason=reason, next_at=now)
    keep_action(db, record, backoff.after(record, outcome, reason, now, code), now)


def keep_action(db: Connection, before: ActionRecord, record: ActionRecord, now: datetime) -> None:
    """Store the state of an action, and log it when it becomes paused."""
    keep_record(db, before, record, now)
    if record.paused_at is not None and before.paused_at is None:
        log.warning("action.paused", table=record.table_id, action=record.action, why=record.paused_for)


def planning_failed(db: Connection, table_id: int, action: str, error: Exception, now: datetime) -> None:
    """Update an action after a scheduled plan failed; an unavailable catalog does not count towards a pause."""
    why = f"planning failed: {str(error) or type(error).__name__}"
    is_outage = isinstance(error, CatalogUnavailable) and not isinstance(error, AccessDenied)
    before = replace(actions.get(db, table_id, action), reason=why)
    code = error.code if isinstance(error, AmoroError) else AmoroError.code
    record = backoff.failed(before, code, why, now, is_outage=is_outage)
    keep_action(db, before, replace(record, next_at=None if record.paused_at else record.retry_at), now)


def _evaluate_again(db: Connection, process: OptimizingProcess, now: datetime) -> None:
    """Files reserved by a layout plan become available: the next refresh evaluates the table with them."""
    if process.lane == LAYOUT:
        for blocker in _own_blockers(db, process, now):
            actions.remove_blocker(db, blocker.blocker_id)
        tables.save(db, replace(tables.get(db, process.table_id), evaluated_snapshot_id=None))


def finish_table(
    db: Connection,
    process: OptimizingProcess,
    reason: str,
    now: datetime,
    snapshot_id: int | None = None,
    outcome: Outcome = Outcome.DONE,
    parent_id: int | None = None,
) -> None:
    """Update the table after a process that has done its work; `snapshot_id` is the committed one, on `parent_id`."""
    tasks.remove_blobs(db, process.process_id)
    if process.is_optimizing:
        runtime = table_machine.advance(tables.get(db, process.table_id), table_machine.ProcessEnded(reason), now)
        # Commits of others that no refresh has seen stay to be seen by the next one.
        is_next = snapshot_id is not None and (runtime.refreshed_at is None or parent_id == runtime.snapshot_id)
        head = snapshot_id if is_next else runtime.snapshot_id
        done = replace(recovered(runtime), pending_type=None, saving=Saving(), value=0.0)
        measured_ms = processes.note_measured(db, process.process_id)
        done = replace(done, rate=forecast.learned(done.rate, process.predicted_ms, measured_ms))
        if not process.detail:  # else a part of the plan is left, and what it was due for still counts
            done = replace(done, planned_snapshot_id=process.snapshot_id, planned_sequence=process.sequence_number)
        tables.save(db, replace(done, last_optimized_at=now, snapshot_id=head))
        return
    _evaluate_again(db, process, now)
    if process.lane == LAYOUT:
        tables.save(db, replace(tables.get(db, process.table_id), last_optimized_at=now))
    before = actions.get(db, process.table_id, process.action)
    # Evaluate again immediately: another period may be over already.
    record = replace(recovered(before), reason=reason, last_at=now, next_at=now)
    keep_action(db, before, backoff.after(record, outcome, reason, now), now)


def release_condemned(db: Connection, process: OptimizingProcess, now: datetime) -> None:
    """Start the waiting time of the files that a process has condemned; those without one are deleted soon."""
    pending_deletions.release(db, process.process_id)
    if pending_deletions.due(db, process.table_id, now).batches and process.action != EMPTYING:
        record = actions.get(db, process.table_id, EMPTYING)
        actions.save(db, replace(record, last_at=None, next_at=now))


settling_log = get_logger("amoro.optimizing")


@dataclass(frozen=True, slots=True)
class EndedAttempt:
    """How an attempt ended, one of ATTEMPT_OUTCOMES, and how long it ran since its ack; None: it was not acked."""

    kind: str
    outcome: str
    duration_s: float | None = None


@dataclass(slots=True)
class Effects:
    """Effects of a transaction, to be carried out once it is committed."""

    work: bool = False
    commits: list[tuple[str, str]] = field(default_factory=list)  # processes, each with its table's catalog
    left_over: list[tuple[str, str]] = field(default_factory=list)
    attempts: list[EndedAttempt] = field(default_factory=list)
    lost_optimizers: int = 0


def ended_attempt(task: OptimizingTask) -> EndedAttempt:
    """The attempt of a task that has succeeded or failed."""
    took = task.finished_at - task.acked_at if task.finished_at and task.acked_at else None
    return EndedAttempt(task.kind, task.status.value, took.total_seconds() if took else None)


@dataclass(frozen=True, slots=True)
class Signals:
    """What is called after a change is committed to the store."""

    work_planned: Callable[[], None]
    commit_due: Callable[[str, str], None]  # a process is COMMITTING; its id and its table's catalog
    left_over: Callable[[str, str], None]  # a process ended without a commit: its outputs must be removed
    changed: Callable[[], None]  # any process or task changed
    meters: Meters

    def announce(self, effects: Effects) -> None:
        """Count what has ended, signal the effects, and that something changed."""
        self.send(effects)
        self.changed()

    def send(self, effects: Effects) -> None:
        """As `announce`, where the change itself is signalled otherwise."""
        for ended in effects.attempts:
            self.meters.count(metrics.TASK_ATTEMPTS, ended.outcome)
            if ended.duration_s is not None:
                self.meters.observe(metrics.TASK_TIME, ended.duration_s, ended.kind)
        if effects.lost_optimizers:
            self.meters.count(metrics.OPTIMIZERS_LOST, by=effects.lost_optimizers)
        if effects.work:
            self.work_planned()
        for process_id, catalog in effects.commits:
            self.commit_due(process_id, catalog)
        for process_id, catalog in effects.left_over:
            self.left_over(process_id, catalog)


def settle_after(db: Connection, ended: OptimizingTask, effects: Effects, now: datetime) -> None:
    """As `advance_process` for the process of a task that has just ended, at a cost that does not grow with its tasks.

    A success changes no other task: while one is open, and nothing is committed of a part, what was decided before
    holds, and that was to wait.
    """
    process_id = ended.task_id.process_id
    if ended.status is not TaskStatus.SUCCESS or queue_stats.list_quiet(db, [(process_id, ended.group)]):
        advance_process(db, process_id, effects, now)


def advance_process(db: Connection, process_id: str, effects: Effects, now: datetime) -> None:
    """Carry out the decisions of `decide` on a process until nothing is left to do."""
    while True:
        process = processes.get(db, process_id)
        settled = settled_groups(db, process)
        match process_decisions.decide(process, tasks.list_for_process(db, process_id), settled):
            case process_decisions.Wait():
                return
            case process_decisions.RetryTask(task_id):
                advance_task(db, tasks.get(db, task_id), task_machine.Retry(), now)
                effects.work = True
            case process_decisions.GiveUpTask(task_id, reason):
                advance_task(db, tasks.get(db, task_id), task_machine.Cancel(reason), now)
            case process_decisions.StartCommit():
                keep_process(db, process, process_machine.advance(process, process_machine.BeginCommit(), now), now)
                if process.is_optimizing:
                    runtime = tables.get(db, process.table_id)
                    tables.save(db, table_machine.advance(runtime, table_machine.BeginCommit(process.reason), now))
                effects.commits.append(_with_catalog(db, process))
                return
            case process_decisions.EndCommitted(code, reason):
                _end_committed(db, process, code, reason, now)
                effects.left_over.append(_with_catalog(db, process))
                return
            case process_decisions.EndWork():
                effects.commits.append(_with_catalog(db, process))
                return
            case process_decisions.FailProcess(code, reason):
                _fail(db, process, code, reason, now)
                effects.left_over.append(_with_catalog(db, process))
                return


def _with_catalog(db: Connection, process: OptimizingProcess) -> tuple[str, str]:
    """The process's id with the catalog of its table."""
    return process.process_id, tables.get(db, process.table_id).identifier.catalog


def _end_committed(db: Connection, process: OptimizingProcess, code: str, reason: str, now: datetime) -> None:
    """End a process that has committed group by group; files of other groups are left over."""
    receipt = receipt_of(db, process)
    if receipt is None:
        raise IllegalState(f"process {process.process_id} has committed nothing")
    event = process_machine.EndedPartly(receipt, code, reason) if reason else process_machine.Committed(receipt)
    ended = replace(process_machine.advance(process, event, now), left_over=True)
    keep_process(db, process, ended, now)
    cancel_open_tasks(db, process.process_id, reason, now)
    last = _landed_attempts(db, process)[-1]
    finish_table(db, process, finish_text(process, last), now, last.snapshot_id)
    settling_log.info(
        "process.committed", process=process.process_id, rows=receipt.rows_after, partial=bool(reason), why=reason
    )


def has_ended_work(db: Connection, process: OptimizingProcess) -> bool:
    """Whether a running process is to commit nothing and none of its tasks is open."""
    return isinstance(
        process_decisions.decide(process, tasks.list_for_process(db, process.process_id)), process_decisions.EndWork
    )


def take_back(
    db: Connection, task: OptimizingTask, reason: str, effects: Effects, now: datetime, *, lost: bool
) -> None:
    """Plan a held task again, and settle its process. `lost` counts towards the poison rule."""
    settling_log.warning("task.reset", task=str(task.task_id), attempt=task.attempt, reason=reason)
    advance_task(db, task, task_machine.Reset(reason, lost), now)
    effects.work = True
    effects.attempts.append(EndedAttempt(task.kind, "lost" if lost else "given_back"))
    advance_process(db, task.task_id.process_id, effects, now)


def cancel_open_tasks(db: Connection, process_id: str, reason: str, now: datetime) -> None:
    """Cancel the planned and held tasks of a process that ends."""
    for task in tasks.list_for_process(db, process_id):
        if task.status in (TaskStatus.PLANNED, TaskStatus.SCHEDULED, TaskStatus.ACKED):
            advance_task(db, task, task_machine.Cancel(reason), now)


def _fail(db: Connection, process: OptimizingProcess, code: str, reason: str, now: datetime) -> None:
    end_process(db, process, partial_end(db, process, code, reason) or process_machine.ProcessFailed(code, reason), now)
    cancel_open_tasks(db, process.process_id, "the process failed", now)
    release_table(db, process, f"{process.type} failed: {reason}", now, Outcome.FAILED, code)
    settling_log.warning("process.failed", process=process.process_id, code=code, reason=reason)


def committing(db: Connection, now: datetime | None = None) -> list[tuple[str, str]]:
    """Committing processes, oldest first; with `now`, without those that are retried later."""
    return [
        _with_catalog(db, process)
        for process in processes.list_active(db)
        if process.status not in IN_NO_LANE
        and (process.status is not ProcessStatus.RUNNING or (not process.commits and has_ended_work(db, process)))
        and (now is None or process.delay is None or process.delay.retry_at <= now)
    ]


def list_leftover(db: Connection) -> list[tuple[str, str]]:
    """Processes that ended without a commit and whose files are not removed yet."""
    return [_with_catalog(db, process) for process in processes.list_uncleaned(db)]
