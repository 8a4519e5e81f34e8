"""Persists a change with its ended attempt, event and time series in one write."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from amoro_core.model.history_events import About, Event, EventKind
from amoro_core.model.processes import OptimizingProcess, OptimizingTask
from amoro_core.model.tables import ActionRecord, TableRuntime
from amoro_core.model.text_sanitizing import briefly, without_secrets
from amoro_core.state import tasks as task_machine
from amoro_core.state.transition_events import (
    action_event,
    attempt_event,
    ended_attempt,
    process_event,
    process_samples,
    table_events,
)
from amoro_core.store import actions, events, processes, table_listing, tables, tasks, time_series
from amoro_core.store.database import Connection

#: Characters of an event's text.
LONGEST_TEXT = 1000
_NOTHING: Mapping[str, str | int] = {}


def append_event(
    db: Connection, kind: EventKind, text: str, about: About, now: datetime, data: Mapping[str, str | int] = _NOTHING
) -> None:
    """Keep an event. Secrets are taken out of its text."""
    events.add(db, Event(kind, now, without_secrets(briefly(text, LONGEST_TEXT)), about, data))


def about_table(db: Connection, table_id: int, process_id: str = "", optimizer_id: str = "", group: str = "") -> About:
    """The table by its present name, and what else the event is about."""
    name = tables.names(db, {table_id}).get(table_id, "")
    return About(table_id, str(name), process_id, optimizer_id, group)


def advance_task(db: Connection, task: OptimizingTask, event: task_machine.TaskEvent, now: datetime) -> OptimizingTask:
    """The task after the event, stored. Raises StaleReport, IllegalState."""
    return keep_task(db, task, task_machine.advance(task, event, now), now)


def keep_task(db: Connection, before: OptimizingTask, after: OptimizingTask, now: datetime) -> OptimizingTask:
    """Store the task after a change; an attempt that ended with it is written down."""
    keep_tasks(db, [(before, after)], now)
    return after


def keep_tasks(db: Connection, changes: Sequence[tuple[OptimizingTask, OptimizingTask]], now: datetime) -> None:
    """As `keep_task` for different tasks, each as the store has it and as it is now."""
    tasks.change_many(db, changes)
    begun = {after.task_id.process_id for before, after in changes if after.acked_at and not before.acked_at}
    if begun:
        processes.note_start(db, begun, now)
    ended = [attempt for before, after in changes if (attempt := ended_attempt(before, after, now)) is not None]
    if not ended:
        return
    tasks.add_attempts(db, ended)
    of_task = {after.task_id: after for _, after in changes}
    for end in ended:
        if (event := attempt_event(end)) is not None:
            task_id, task = end.attempt.task_id, of_task[end.attempt.task_id]
            about = about_table(db, task.table_id, task_id.process_id, end.thread.optimizer_id, task.group)
            data = {"task": task_id.number, "attempt": end.attempt.number}
            append_event(db, event.kind, event.text, about, now, data)


def keep_process(
    db: Connection, before: OptimizingProcess | None, after: OptimizingProcess, now: datetime
) -> OptimizingProcess:
    """Store the process after a change, or a new one (`before` None). Raises TableBusy, ProcessNotFound."""
    if before is None:
        processes.add(db, after)
    else:
        processes.save(db, after)
    time_series.add(db, process_samples(before, after), now)
    if (event_text := process_event(before, after)) is not None:
        append_event(db, event_text.kind, event_text.text, about_table(db, after.table_id, after.process_id), now)
    return after


def keep_table(db: Connection, before: TableRuntime, after: TableRuntime, now: datetime) -> TableRuntime:
    """Store the table's runtime after a change. Raises TableNotFound."""
    saved = tables.save(db, after)
    for event in table_events(before, after):
        append_event(db, event.kind, event.text, About(after.table_id, str(after.identifier)), now)
    return saved


def keep_record(db: Connection, before: ActionRecord, after: ActionRecord, now: datetime) -> None:
    """Store what is known of an action on a table."""
    actions.save(db, after)
    if before.failures != after.failures:
        table_listing.save(db, tables.get(db, after.table_id))
    if (event_text := action_event(before, after)) is not None:
        append_event(db, event_text.kind, event_text.text, about_table(db, after.table_id), now)
