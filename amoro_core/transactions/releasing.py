"""Ending a process: its record, and the state of its action on the table."""

from dataclasses import replace
from datetime import datetime

from amoro_core.errors import AccessDenied, CatalogUnavailable
from amoro_core.events import get_logger
from amoro_core.model.actions import Case
from amoro_core.model.lanes import LAYOUT
from amoro_core.model.processes import CommitAttempt, OptimizingProcess
from amoro_core.model.tables import ActionRecord
from amoro_core.state import pausing
from amoro_core.state import processes as process_machine
from amoro_core.state import tables as table_machine
from amoro_core.state.backoff import backed_off
from amoro_core.state.pausing import Outcome
from amoro_core.store import actions, blobs, condemned, processes, tables
from amoro_core.store.database import Connection
from amoro_core.transactions.announcing import withdraw
from amoro_core.transactions.telling import keep_process, keep_record, keep_table

log = get_logger("amoro.maintaining")

#: The action that deletes what was condemned.
EMPTYING = "empty-trash"


def move(db: Connection, process_id: str, event: process_machine.ProcessEvent, now: datetime) -> OptimizingProcess:
    """Apply the event to the process and store it. Raises IllegalState for an edge that its machine lacks."""
    process = processes.get(db, process_id)
    return keep_process(db, process, process_machine.advance(process, event, now), now)


def is_partial(case: Case, attempt: CommitAttempt) -> bool:
    """Whether the attempt commits the results of only some of the tasks."""
    return len(attempt.groups) < case.tasks


def done_words(process: OptimizingProcess, landed: CommitAttempt | None) -> str:
    """What a process has done, as a phrase with the attempt that landed."""
    return f"{process.type} has ended" if landed is None else f"{process.type} committed {landed.words}"


def end(
    db: Connection, process: OptimizingProcess, event: process_machine.ProcessEvent, now: datetime
) -> OptimizingProcess:
    """End a process without a commit; the files it wrote are left over until they are removed.

    Files that it was about to condemn are not condemned.
    """
    condemned.remove_written(db, process.process_id)
    blobs.remove(db, process.process_id)
    return keep_process(db, process, replace(process_machine.advance(process, event, now), left_over=True), now)


def release(db: Connection, process: OptimizingProcess, reason: str, now: datetime, outcome: Outcome) -> None:
    """Update the table after a process that committed nothing; after a failure, back off."""
    if process.is_optimizing:
        before = tables.get(db, process.table_id)
        runtime = table_machine.advance(before, table_machine.ProcessEnded(reason), now)
        keep_table(db, before, backed_off(runtime, now) if outcome is Outcome.FAILED else runtime, now)
        return
    _look_again(db, process, now)
    known = replace(actions.get(db, process.table_id, process.action), reason=reason, next_at=now)
    keep_action(db, known, pausing.after(known, outcome, reason, now), now)


def keep_action(db: Connection, before: ActionRecord, known: ActionRecord, now: datetime) -> None:
    """Store the state of an action, and log it when it becomes paused."""
    keep_record(db, before, known, now)
    if known.paused_at is not None and before.paused_at is None:
        log.warning("action.paused", table=known.table_id, action=known.action, why=known.paused_for)


def planning_failed(db: Connection, table_id: int, action: str, error: Exception, now: datetime) -> None:
    """What is known of an action after the clock could not plan it. That a catalog is silent tells nothing of it."""
    why = f"planning failed: {str(error) or type(error).__name__}"
    is_outage = isinstance(error, CatalogUnavailable) and not isinstance(error, AccessDenied)
    before = replace(actions.get(db, table_id, action), reason=why)
    known = pausing.failed(before, why, now, is_outage=is_outage)
    keep_action(db, before, replace(known, next_at=None if known.paused_at else known.retry_at), now)


def _look_again(db: Connection, process: OptimizingProcess, now: datetime) -> None:
    """Files that a plan had beside optimizing are free: the next refresh evaluates the table with them."""
    if process.lane == LAYOUT:
        withdraw(db, process, now)
        tables.save(db, replace(tables.get(db, process.table_id), evaluated_snapshot_id=None))


def done(
    db: Connection,
    process: OptimizingProcess,
    reason: str,
    now: datetime,
    snapshot_id: int | None = None,
    outcome: Outcome = Outcome.DONE,
) -> None:
    """Update the table after a process that has done its work; `snapshot_id` is the committed one."""
    blobs.remove(db, process.process_id)
    if process.is_optimizing:
        runtime = table_machine.advance(tables.get(db, process.table_id), table_machine.ProcessEnded(reason), now)
        head = runtime.snapshot_id if snapshot_id is None else snapshot_id
        tables.save(db, replace(runtime, failures=0, retry_at=None, last_optimized_at=now, snapshot_id=head))
        return
    _look_again(db, process, now)
    known = actions.get(db, process.table_id, process.action)
    # Evaluate again at once: another period may be over already.
    known = replace(known, reason=reason, last_at=now, next_at=now, failures=0, retry_at=None)
    keep_action(db, known, pausing.after(known, outcome, reason, now), now)


def release_condemned(db: Connection, process: OptimizingProcess, now: datetime) -> None:
    """Start the waiting time of the files that a process has condemned; those due at once are deleted soon."""
    condemned.release(db, process.process_id)
    if condemned.due(db, process.table_id, now).batches and process.action != EMPTYING:
        known = actions.get(db, process.table_id, EMPTYING)
        actions.save(db, replace(known, last_at=None, next_at=now))
