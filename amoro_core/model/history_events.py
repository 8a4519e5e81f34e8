"""What is kept of what happened: attempts of tasks that have ended, and events."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from amoro_core.model.processes import Attempt, OptimizerThread

#: Attempts of one task that are kept; earlier ones are forgotten.
MOST_ATTEMPTS = 100

#: How long events are kept, and how many at most.
KEEP_EVENTS = timedelta(days=30)
MOST_EVENTS = 1_000_000


class AttemptOutcome(StrEnum):
    """What became of an attempt of a task; the values are stored and sent."""

    RUNNING = "running"  # an optimizer has it; never stored
    SUCCESS = "success"
    FAILED = "failed"
    LOST = "lost"  # its optimizer vanished, or was too slow
    RETURNED = "returned"  # its optimizer gave it back
    CANCELED = "canceled"  # its process needed it no longer


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """One attempt of a task, from when it was scheduled to its end."""

    attempt: Attempt
    thread: OptimizerThread
    outcome: AttemptOutcome
    scheduled_at: datetime
    acked_at: datetime | None = None
    finished_at: datetime | None = None  # None: it runs
    failure_code: str = ""
    failure: str = ""
    input_rows: int = 0  # of the data files of the task, deletes not subtracted
    input_bytes: int = 0


class EventKind(StrEnum):
    """What happened; the values are stored and sent."""

    FOUND = "found"  # a table is known from now on
    GONE = "gone"
    REPLACED = "replaced"  # its name belongs to another table
    REFUSED = "refused"
    ACCEPTED = "accepted"  # it is not refused any more
    ENABLED = "enabled"
    DISABLED = "disabled"
    PLANNED = "planned"
    STARTED = "started"  # what waited for a start or a confirmation goes on
    HELD = "held"
    COMMITTED = "committed"
    UNKNOWN = "unknown"  # whether a commit was applied
    FAILED = "failed"  # a process, or an attempt of a task
    CLOSED = "closed"
    LATE_DELETES = "late-deletes"  # another application deleted rows of files that a commit had replaced before
    BACKED_OFF = "backed-off"  # a table, or a commit that waits
    PAUSED = "paused"  # an action on a table
    RESUMED = "resumed"
    JOINED = "joined"  # an optimizer
    LOST = "lost"  # an optimizer, or an attempt of a task
    LEFT = "left"
    SCALED = "scaled"  # a group
    LEADER_CHANGED = "leader-changed"


@dataclass(frozen=True, slots=True)
class About:
    """What an event is about; "" and 0: of no such thing."""

    table_id: int = 0
    table: str = ""  # catalog.namespace.table, as it was named then
    process_id: str = ""
    optimizer_id: str = ""
    group: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, in words for people and in figures for programs."""

    kind: EventKind
    at: datetime
    text: str
    about: About = About()
    data: Mapping[str, str | int] = field(default_factory=dict)
    event_id: int = 0  # grows in the order in which events were stored; 0: not stored yet


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events are wanted; what is empty does not limit."""

    kinds: tuple[EventKind, ...] = ()
    table_id: int = 0
    process_id: str = ""
    since: datetime | None = None
