"""Events, ended attempts and time-series samples derived from a change of a task, process, table or action."""

from dataclasses import dataclass
from datetime import datetime

from amoro_core.documents.formatting import many
from amoro_core.model.history_events import AttemptOutcome, EventKind, TaskAttempt
from amoro_core.model.metrics import Sample, TableFigures
from amoro_core.model.processes import Attempt, OptimizingProcess, OptimizingTask, ProcessStatus, TaskStatus
from amoro_core.model.tables import ActionRecord, OptimizingStatus, TableRuntime


@dataclass(frozen=True, slots=True)
class EventText:
    """The kind and the words of an event."""

    kind: EventKind
    text: str


_ENDS = {
    TaskStatus.SUCCESS: AttemptOutcome.SUCCESS,
    TaskStatus.FAILED: AttemptOutcome.FAILED,
    TaskStatus.CANCELED: AttemptOutcome.CANCELED,
}


def ended_attempt(before: OptimizingTask, after: OptimizingTask, now: datetime) -> TaskAttempt | None:
    """The attempt that ended between the two; None: none did."""
    if before.thread is None or after.thread is not None:
        return None
    lost = after.lost_attempts > before.lost_attempts
    outcome = _ENDS.get(after.status, AttemptOutcome.LOST if lost else AttemptOutcome.RETURNED)
    return TaskAttempt(
        Attempt(before.task_id, before.attempt),
        before.thread,
        outcome,
        before.scheduled_at or now,
        before.acked_at,
        now,
        after.failure_code,
        after.failure,
        before.input_rows,
        before.input_bytes,
    )


def attempt_event(ended: TaskAttempt) -> EventText | None:
    """The event of an attempt that failed or was lost; None for others."""
    name = f"attempt {ended.attempt.number} of task {ended.attempt.task_id.number}"
    code = f"[{ended.failure_code}] " if ended.failure_code else ""
    match ended.outcome:
        case AttemptOutcome.FAILED:
            return EventText(EventKind.FAILED, f"{name} failed: {code}{ended.failure}")
        case AttemptOutcome.LOST:
            return EventText(EventKind.LOST, f"{name} was lost: {ended.failure}")
    return None


def process_event(before: OptimizingProcess | None, after: OptimizingProcess) -> EventText | None:
    """The event of a process that is new (`before` None) or changed; None: this step has no event."""
    if before is not None and before.status == after.status:
        return _event_in_same_status(before, after)
    code = f"[{after.failure_code}] " if after.failure_code else ""
    match after.status:
        case ProcessStatus.RUNNING if before is not None and before.status in _WAITED:
            return EventText(EventKind.STARTED, f"{after.type} was started")
        case ProcessStatus.RUNNING | ProcessStatus.REQUESTED if before is None:
            return EventText(EventKind.PLANNED, f"{after.type} planned: {after.reason}")
        case ProcessStatus.HELD:
            return EventText(EventKind.HELD, f"{after.type} is held: {after.failure}")
        case ProcessStatus.SUCCESS:
            return EventText(EventKind.COMMITTED, _done(after))
        case ProcessStatus.PARTIAL:
            return EventText(EventKind.COMMITTED, f"a part of {_done(after)}: {code}{after.failure}")
        case ProcessStatus.COMMIT_UNKNOWN:
            return EventText(EventKind.UNKNOWN, f"whether {after.type} was committed is unknown: {after.failure}")
        case ProcessStatus.FAILED:
            return EventText(EventKind.FAILED, f"{after.type} failed: {code}{after.failure}")
        case ProcessStatus.CLOSED:
            return EventText(EventKind.CLOSED, f"{after.type} was ended: {after.failure}")
    return None


_WAITED = (ProcessStatus.HELD, ProcessStatus.REQUESTED)


def _event_in_same_status(before: OptimizingProcess, after: OptimizingProcess) -> EventText | None:
    if after.status == ProcessStatus.HELD and before.failure != after.failure:
        return EventText(EventKind.HELD, f"{after.type} is held: {after.failure}")
    # A commit that waits has one event for each cause, whatever the number of tries.
    if after.delay is not None and (before.delay is None or before.delay.code != after.delay.code):
        return EventText(EventKind.BACKED_OFF, f"{after.type} waits: [{after.delay.code}] {after.delay.reason}")
    return None


def _done(process: OptimizingProcess) -> str:
    receipt = process.receipt
    if receipt is None:
        return f"{process.type} has ended"
    if receipt.words:
        return f"{process.type}: {receipt.words}"
    files = f"{many(receipt.data_files_before, 'data file')} became {receipt.data_files_after}"
    return f"{process.type} committed snapshot {receipt.snapshot_id}: {files}, {many(receipt.rows_after, 'row')}"


def process_samples(before: OptimizingProcess | None, after: OptimizingProcess) -> list[Sample]:
    """Samples that the end of a process adds to time series; none for other steps."""
    if after.is_active or (before is not None and not before.is_active):
        return []
    samples = [Sample("processes-ended", 1, str(after.status))]
    if (receipt := after.receipt) is not None and not receipt.words:
        files = receipt.data_files_before + receipt.delete_files_before
        fewer = files - receipt.data_files_after - receipt.delete_files_after
        samples += [
            Sample("bytes-rewritten", receipt.bytes_before),
            Sample("files-removed", fewer),
            Sample("rows-rewritten", receipt.rows_after),
        ]
    return samples


def figures_of(before: TableRuntime, after: TableRuntime) -> TableFigures | None:
    """The numbers of the table, if an evaluation has changed them; None: they are as before, or of a serviced table."""
    if before.summary == after.summary or after.summary.health_score < 0:
        return None
    summary = after.summary
    return TableFigures(
        health=summary.health_score,
        data_files=summary.data_files,
        small_files=summary.fragment_files + summary.undersized_files,
        delete_files=summary.position_delete_files + summary.equality_delete_files,
        data_bytes=summary.data_bytes,
        records=summary.records,
    )


def table_events(before: TableRuntime, after: TableRuntime) -> list[EventText]:
    """The events of a table whose runtime changed."""
    events = []
    refused = OptimizingStatus.REFUSED
    if after.status is refused and (before.status, before.status_reason) != (refused, after.status_reason):
        events.append(EventText(EventKind.REFUSED, f"refused ({after.refusal}): {after.status_reason}"))
    elif before.status is refused and after.status is not refused:
        events.append(EventText(EventKind.ACCEPTED, "it is not refused any more"))
    # The catalog's default for a table that was never refreshed is not a decision about this table.
    is_decision = before.refreshed_at is not None or after.enabled_override is not None
    if is_decision and before.enabled != after.enabled:
        kind = EventKind.ENABLED if after.enabled else EventKind.DISABLED
        events.append(EventText(kind, f"{kind.value} by {after.enabled_origin}"))
    if after.failures > before.failures and after.retry_at is not None:
        until = f"{after.retry_at:%Y-%m-%d %H:%M:%S} UTC"
        events.append(
            EventText(EventKind.BACKED_OFF, f"{many(after.failures, 'failure')} in a row: tried again at {until}")
        )
    return events


def action_event(before: ActionRecord, after: ActionRecord) -> EventText | None:
    """The event of an action that was paused on a table, or goes on there."""
    if after.paused_at is not None and before.paused_at is None:
        return EventText(EventKind.PAUSED, f"{after.action} is paused: {after.paused_for}")
    if after.paused_at is None and before.paused_at is not None:
        return EventText(EventKind.RESUMED, f"{after.action} goes on; it was paused: {before.paused_for}")
    return None
