"""What the end of a process leaves behind: its record, and what is known of its action on the table."""

from dataclasses import replace
from datetime import datetime

from amoro_core.model.actions import Case
from amoro_core.model.processes import CommitAttempt, OptimizingProcess
from amoro_core.state import processes as process_machine
from amoro_core.state import tables as table_machine
from amoro_core.state.backoff import backed_off
from amoro_core.store import actions, condemned, processes, tables
from amoro_core.store.database import Connection

#: The action that deletes what was condemned.
EMPTYING = "empty-trash"


def move(db: Connection, process_id: str, event: process_machine.ProcessEvent, now: datetime) -> OptimizingProcess:
    """The process after the event, stored. Raises IllegalState for an edge that its machine lacks."""
    return processes.save(db, process_machine.advance(processes.get(db, process_id), event, now))


def is_partial(case: Case, attempt: CommitAttempt) -> bool:
    """Whether the attempt commits the results of a part of the tasks alone."""
    return len(attempt.groups) < case.tasks


def done_words(process: OptimizingProcess, landed: CommitAttempt | None) -> str:
    """What a process has done, with the attempt that landed."""
    return f"{process.type} has ended" if landed is None else f"{process.type} committed {landed.words}"


def end(
    db: Connection, process: OptimizingProcess, event: process_machine.ProcessEvent, now: datetime
) -> OptimizingProcess:
    """End a process without a commit; what it has written is left over until it was removed.

    What it was about to condemn is not condemned.
    """
    condemned.remove_written(db, process.process_id)
    return processes.save(db, replace(process_machine.advance(process, event, now), left_over=True))


def release(db: Connection, process: OptimizingProcess, reason: str, now: datetime, *, backs_off: bool = False) -> None:
    """The table after a process that has committed nothing. `backs_off`: it failed, and would fail again."""
    if process.is_optimizing:
        runtime = table_machine.advance(tables.get(db, process.table_id), table_machine.ProcessEnded(reason), now)
        tables.save(db, backed_off(runtime, now) if backs_off else runtime)
        return
    record = replace(actions.get(db, process.table_id, process.action), reason=reason, next_at=now)
    actions.save(db, backed_off(record, now) if backs_off else record)


def done(
    db: Connection, process: OptimizingProcess, reason: str, now: datetime, snapshot_id: int | None = None
) -> None:
    """The table after a process that has done its work; `snapshot_id` is the one that it committed."""
    if process.is_optimizing:
        runtime = table_machine.advance(tables.get(db, process.table_id), table_machine.ProcessEnded(reason), now)
        head = runtime.snapshot_id if snapshot_id is None else snapshot_id
        tables.save(db, replace(runtime, failures=0, retry_at=None, last_optimized_at=now, snapshot_id=head))
        return
    known = actions.get(db, process.table_id, process.action)
    # Evaluated again at once: another period may be over already.
    actions.save(db, replace(known, reason=reason, last_at=now, next_at=now, failures=0, retry_at=None))


def release_condemned(db: Connection, process: OptimizingProcess, now: datetime) -> None:
    """What a process has condemned waits from now on, and what is due at once is deleted soon."""
    condemned.release(db, process.process_id)
    if condemned.due(db, process.table_id, now).batches and process.action != EMPTYING:
        known = actions.get(db, process.table_id, EMPTYING)
        actions.save(db, replace(known, last_at=None, next_at=now))
