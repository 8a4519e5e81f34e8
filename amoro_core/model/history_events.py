"""The history: attempts of tasks that have ended, events, and the audit of calls."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from amoro_core.model.principals import Principal
from amoro_core.model.processes import Attempt, OptimizerThread, ProcessStatus

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
    ROLLED_BACK = "rolled-back"  # a snapshot that a process had committed is not in main's history any more
    BACKED_OFF = "backed-off"  # a table, or a commit that waits
    PAUSED = "paused"  # an action on a table
    RESUMED = "resumed"
    JOINED = "joined"  # an optimizer
    LOST = "lost"  # an optimizer, or an attempt of a task
    LEFT = "left"
    SCALED = "scaled"  # a group
    LEADER_CHANGED = "leader-changed"
    # Stored only where a listener asks for them.
    CONDITION_RAISED = "condition-raised"
    CONDITION_CLEARED = "condition-cleared"
    SCHEMA_CHANGED = "schema-changed"
    TABLE_CHANGED = "table-changed"


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
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class ProcessFilter:
    """Which processes are wanted; what is empty does not limit. They ended in that time, or `since` have not ended."""

    table_id: int | None = None
    status: ProcessStatus | None = None
    type: str = ""
    since: datetime | None = None
    until: datetime | None = None


ANY_PROCESS = ProcessFilter()


#: How long it is kept.
KEEP_AUDIT = timedelta(days=400)


#: Rows for refused calls of unknown callers, which anybody can send: at most this many within a minute and an hour.
STRANGERS_A_MINUTE, STRANGERS_AN_HOUR = 10, 60
_MINUTE, _HOUR = timedelta(minutes=1), timedelta(hours=1)


class AuditOutcome(StrEnum):
    """How a call ended."""

    BEGUN = "begun"  # it has not ended, or the coordinator was killed during it
    DONE = "done"
    REFUSED = "refused"  # the account may not do it
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Audited:
    """A call before its end."""

    principal: Principal
    operation: str
    object: str  # what it acts on, as the request names it
    parameters: Mapping[str, str] = field(default_factory=dict)  # without secrets
    is_dry_run: bool = False


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """A call, when it began, and its outcome with the code of its error."""

    event_id: int
    at: datetime
    call: Audited
    outcome: AuditOutcome = AuditOutcome.BEGUN
    code: str = ""


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which calls are asked for; empty: all."""

    actor: str = ""
    operation: str = ""
    object: str = ""
    outcome: AuditOutcome | None = None
    since: datetime | None = None


class UnknownCallerLog:
    """Decides which refused calls of unknown callers get a row; the next row has the count of the others."""

    def __init__(self) -> None:
        self._rows: deque[datetime] = deque()  # when rows were given, within an hour
        self._passed: Audited | None = None  # the last call without a row
        self._count = 0  # calls without a row since the last one

    def row(self, call: Audited, now: datetime) -> Audited | None:
        """The call as it is to be written down; None if it is only counted."""
        while self._rows and self._rows[0] <= now - _HOUR:
            self._rows.popleft()
        within_minute = sum(at > now - _MINUTE for at in self._rows)
        if within_minute >= STRANGERS_A_MINUTE or len(self._rows) >= STRANGERS_AN_HOUR:
            self._passed, self._count = call, self._count + 1
            return None
        self._rows.append(now)
        event, self._passed, self._count = _with_count(call, self._count), None, 0
        return event

    def flush(self) -> Audited | None:
        """The last call that was only counted, for a row of its own; None if no call is left."""
        call, count = self._passed, self._count
        self._passed, self._count = None, 0
        return _with_count(call, count - 1) if call else None


def _with_count(call: Audited, count: int) -> Audited:
    return replace(call, parameters={"refused_before": str(count)}) if count else call
