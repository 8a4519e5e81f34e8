"""The history: attempts, events, late deletes, retention, the audit of calls, and answers to repeated requests."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from amoro_core.errors import (
    AmoroError,
    Conflict,
    InvalidArgument,
    MalformedRequest,
    NotAllowed,
    StoreFailed,
    TableNotFound,
    UnknownToken,
)
from amoro_core.formats.ports import Readable
from amoro_core.logger import get_logger
from amoro_core.metrics_registry import Meters
from amoro_core.model import metrics
from amoro_core.model.files import TableScan
from amoro_core.model.history_events import (
    KEEP_AUDIT,
    KEEP_EVENTS,
    About,
    Audited,
    AuditEvent,
    AuditFilter,
    AuditOutcome,
    Event,
    EventFilter,
    EventKind,
    TaskAttempt,
    UnknownCallerLog,
)
from amoro_core.model.maintenance import LateDelete
from amoro_core.model.paging import Page, Window, cut
from amoro_core.model.plans import StoredDigest
from amoro_core.model.principals import StoredAnswer
from amoro_core.model.scan_stats import KEEP_SCANS
from amoro_core.model.tables import TableIdentifier, TableRuntime
from amoro_core.store import audit, events, processes, table_stats, tables, tasks, time_series
from amoro_core.store.connection import from_ms, to_ms
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.journal import append_event

#: How far events are counted.
COUNTED = 10_000


@dataclass(frozen=True, slots=True)
class EventPage:
    """Some events; the total is counted up to 10,000."""

    page: Page[Event]
    total_is_exact: bool
    last_id: int  # of all events, whatever was asked for


class JournalService:
    """Reads what was written down as it happened."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def attempts(self, process_id: str, window: Window, task: int = 0) -> tuple[str, Page[TaskAttempt]]:
        """The id of the process, and attempts of its tasks by task and number, of one task where it is given.

        The id may be a unique prefix; the window has a limit, and its `after` is TASK-ATTEMPT. Raises
        ProcessNotFound, InvalidArgument.
        """
        most, after = window.limit, _pair(window.after)

        def read(db: Connection) -> tuple[str, Page[TaskAttempt]]:
            process = processes.find_by_prefix(db, process_id).process_id
            found = tasks.list_attempts(db, process, task or None, after, most + 1)
            return process, cut(found, most, tasks.count_attempts(db, process, task or None), _name)

        return self._store.read(read)

    def digest(self, table: TableIdentifier) -> StoredDigest | None:
        """The table's files in figures; None before they were read. No catalog is asked. Raises TableNotFound."""

        def read(db: Connection) -> StoredDigest | None:
            known = tables.find(db, table)
            if known is None:
                raise TableNotFound(f"table {table} is not known", table=table)
            return table_stats.find_digest(db, known.table_id)

        return self._store.read(read)

    def events(self, wanted: EventFilter, table: TableIdentifier | None, window: Window) -> EventPage:
        """Events, the newest first; of a table, also of one that is gone.

        The window has a limit; the filter's process may be a unique prefix. Raises TableNotFound, ProcessNotFound,
        InvalidArgument.
        """
        most, before = window.limit, _cursor(window.after)

        def read(db: Connection) -> EventPage:
            known = _resolved(db, wanted, table)
            found = events.list_newest(db, known, before and (from_ms(before[0]), before[1]), most + 1)
            total = events.count(db, known, COUNTED + 1)
            page = cut(found, most, min(total, COUNTED), lambda event: f"{to_ms(event.at)}-{event.event_id}")
            return EventPage(page, total <= COUNTED, events.last_id(db))

        return self._store.read(read)

    def events_after(self, event_id: int, wanted: EventFilter, table: TableIdentifier | None, limit: int) -> EventPage:
        """Events that were stored after that one, in the order of storing. Raises as `events`."""

        def read(db: Connection) -> EventPage:
            found = events.list_stored_after(db, _resolved(db, wanted, table), event_id, limit)
            return EventPage(Page(tuple(found), len(found)), len(found) < limit, events.last_id(db))

        return self._store.read(read)


def _resolved(db: Connection, wanted: EventFilter, table: TableIdentifier | None) -> EventFilter:
    if wanted.process_id:
        wanted = replace(wanted, process_id=processes.find_by_prefix(db, wanted.process_id).process_id)
    if table is None:
        return wanted
    known = tables.find(db, table)
    table_id = known.table_id if known is not None else events.table_of(db, str(table))
    if not table_id:
        raise TableNotFound(f"table {table} is not known, and no event tells of it", table=table)
    return replace(wanted, table_id=table_id)


def _name(item: TaskAttempt) -> str:
    return f"{item.attempt.task_id.number}-{item.attempt.number}"


def _pair(text: str) -> tuple[int, int]:
    """The task and the attempt in a text such as 3-2; (0, 0) for "". Raises InvalidArgument."""
    return _numbers(text, "an attempt", "Write TASK-ATTEMPT, such as 3-2.") or (0, 0)


def _cursor(text: str) -> tuple[int, int] | None:
    return _numbers(text, "a place in the list of events", "Give what `next` of the page before says.")


def _numbers(text: str, what: str, hint: str) -> tuple[int, int] | None:
    if not text:
        return None
    first, _, second = text.partition("-")
    if not all(part.isascii() and part.isdecimal() and len(part) < 14 for part in (first, second)):
        raise InvalidArgument(f"{text!r} is not {what}", hint=hint)
    return int(first), int(second)


log = get_logger("amoro.late_deletes")

#: Events of a table that are looked through for what was told before.
_LATEST = 1000


class LateDeleteService:
    """Tells once of each snapshot of others that deletes rows of files which a commit of ours had replaced."""

    def __init__(self, store: Store, clock: Callable[[], datetime], meters: Meters) -> None:
        self._store = store
        self._clock = clock
        self._meters = meters
        self._looked: dict[int, tuple[str, int]] = {}  # by table id: UUID and sequence number up to which it was looked

    def look(self, runtime: TableRuntime, table: Readable, scan: TableScan | None) -> None:
        """Search a table's new snapshots for late deletes; `scan` was just read. Unreadable ones are retried."""
        if scan is None or not runtime.table_id:
            return
        uuid, known = self._looked.get(runtime.table_id, ("", 0))
        since = known if uuid == table.facts.uuid else 0
        try:
            found = table.late_deletes(scan, since)
        except AmoroError as error:
            log.warning("late_deletes.not_looked", table=str(runtime.identifier), why=error.message)
            return
        if found:
            for late in self._store.write(lambda db: self._new(db, runtime, found)):
                self._meters.count(metrics.LATE_DELETES)
                log.error("rows.came_back", table=str(runtime.identifier), process=late.process_id, what=_words(late))
        self._looked[runtime.table_id] = table.facts.uuid, scan.sequence_number

    def _new(self, db: Connection, runtime: TableRuntime, found: tuple[LateDelete, ...]) -> list[LateDelete]:
        """Store an event for each late delete without one, also across restarts."""
        wanted = EventFilter(kinds=(EventKind.LATE_DELETES,), table_id=runtime.table_id)
        stored_ids = {event.data.get("snapshot") for event in events.list_newest(db, wanted, None, _LATEST)}
        new = [late for late in found if str(late.snapshot_id) not in stored_ids]
        for late in new:
            about = About(runtime.table_id, str(runtime.identifier), late.process_id)
            data: dict[str, str | int] = {
                "snapshot": str(late.snapshot_id),
                "application": late.application,
                "files": len(late.files),
                "replaced_by": str(late.replaced_by),
            }
            append_event(db, EventKind.LATE_DELETES, _words(late), about, self._clock(), data)
        return new


def _words(late: LateDelete) -> str:
    more = f" and {len(late.files) - 1} more" if len(late.files) > 1 else ""
    return (
        f"snapshot {late.snapshot_id} of {late.application} deletes rows of {late.files[0]}{more}, which snapshot"
        f" {late.replaced_by} had replaced before: unless deleted otherwise, these rows are still there"
    )


history_log = get_logger("amoro.history")

#: Processes deleted in one write: other writes wait for it, and each may have thousands of tasks with payloads.
CHUNK = 20

#: Small rows deleted in one write.
ROWS = 1000


class HistoryService:
    """Deletes processes, with their tasks and attempts, after their retention, old events, values and scans."""

    def __init__(self, store: Store, clock: Callable[[], datetime], keep: timedelta) -> None:
        self._store = store
        self._clock = clock
        self._keep = keep

    def trim(self) -> int:
        """Delete what is past its retention; returns the number of processes. Active ones stay, however old."""
        before = self._clock() - self._keep
        forgotten = 0
        while removed := self._store.write(lambda db: processes.remove_ended(db, before, CHUNK)):
            forgotten += removed
        old = self._clock() - KEEP_EVENTS
        while self._store.write(lambda db: events.trim(db, old, ROWS)):
            pass
        for series_id in self._store.read(time_series.list_ids):
            while self._store.write(partial(self._trim_series, series_id=series_id)):
                pass
        oldest = (self._clock() - KEEP_SCANS).date()
        self._store.write(lambda db: table_stats.forget_scans_before(db, oldest))
        if forgotten:
            history_log.info("history.trimmed", processes=forgotten, ended_before=before.isoformat())
        return forgotten

    def _trim_series(self, db: Connection, series_id: int) -> int:
        return time_series.trim(db, series_id, self._clock(), ROWS)


audit_log = get_logger("amoro.audit")

#: How far calls are counted.
COUNTED_CALLS = 10_000
#: Rows deleted in one write.
AUDIT_ROWS = 1000


class AuditService:
    """Calls that change something, from before they begin; a call that can't be written down is not made."""

    def __init__(self, store: Store, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._clock = clock
        self._strangers = UnknownCallerLog()
        self._lock = threading.Lock()

    def begin(self, call: Audited) -> Callable[[BaseException | None], None]:
        """Write down that the call begins; what is returned takes its error, None for none, and writes its outcome.

        Without a coordinator nothing is written: what runs then changes nothing, a dry run included. Raises
        StoreFailed: then the call is not to be made.
        """
        if self._store.only_reads:
            return lambda error: None
        number = self._store.write(lambda db: audit.add(db, call, self._clock()))

        def end(error: BaseException | None) -> None:
            outcome, code = _outcome(error)
            try:
                self._store.write(lambda db: audit.end(db, number, outcome, code))
            except StoreFailed as failure:
                # The call was made: its row stays as begun.
                audit_log.error(
                    "audit.failed", row=number, operation=call.operation, outcome=outcome, why=failure.message
                )

        return end

    def note(self, call: Audited, error: BaseException | None) -> None:
        """Write down a call that has ended. Raises StoreFailed."""
        outcome, code = _outcome(error)
        self._store.write(lambda db: audit.add(db, call, self._clock(), outcome, code))

    def refuse_stranger(self, call: Audited, error: BaseException) -> None:
        """Record refused calls of unknown callers, a few a minute; the others are counted.

        Raises nothing for a store that fails: the refusal is the answer.
        """
        if self._store.only_reads:
            return
        with self._lock:
            event = self._strangers.row(call, self._clock())
        if event is not None:
            try:
                self.note(event, error)
            except StoreFailed as failure:
                audit_log.error(
                    "audit.failed", operation=call.operation, outcome=AuditOutcome.REFUSED, why=failure.message
                )

    def list_events(self, wanted: AuditFilter, window: Window) -> tuple[Page[AuditEvent], bool]:
        """Calls, the newest first, and whether their total is exact; the window has a limit. Raises InvalidArgument."""
        before, most = _number(window.after), window.limit

        def read(db: Connection) -> tuple[Page[AuditEvent], bool]:
            total = audit.count(db, wanted, COUNTED_CALLS + 1)
            found = audit.list_newest(db, wanted, before, most + 1)
            return cut(found, most, min(total, COUNTED_CALLS), lambda item: str(item.event_id)), total <= COUNTED_CALLS

        return self._store.read(read)

    def trim(self) -> int:
        """Forget what is past its retention; how many. Calls of strangers that were only counted get one row."""
        with self._lock:
            left = self._strangers.flush()
        if left is not None:
            self.note(left, UnknownToken("the token is not known"))
        before, forgotten = self._clock() - KEEP_AUDIT, 0
        while removed := self._store.write(lambda db: audit.trim(db, before, AUDIT_ROWS)):
            forgotten += removed
        return forgotten


def _outcome(error: BaseException | None) -> tuple[AuditOutcome, str]:
    if error is None:
        return AuditOutcome.DONE, ""
    code = error.code if isinstance(error, AmoroError) else AmoroError.code
    return AuditOutcome.REFUSED if isinstance(error, NotAllowed | UnknownToken) else AuditOutcome.FAILED, code


def _number(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise InvalidArgument(f"{text!r} is not a place in the audit", hint="Give what `next` of the page before says.")
    return int(text)


KEPT_FOR = timedelta(hours=24)


class RepeatingService:
    """Keys of requests for a day. They are written down before anything is done, so that a kill doubles nothing."""

    def __init__(self, store: Store, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._clock = clock

    def begin(self, key_hash: str, request_hash: str) -> StoredAnswer | None:
        """None for a new key, whose request may be done now; else the answer that was kept.

        Raises Conflict while the first request with the key has not ended, or when it is not known how it ended, and
        MalformedRequest when that was another request.
        """
        now = self._clock()

        def look(db: Connection) -> StoredAnswer | None:
            audit.remove_older_requests(db, now - KEPT_FOR)
            known = audit.find_answer(db, key_hash)
            if known is None:
                audit.add_request(db, key_hash, request_hash, now)
                return None
            if known.request_hash != request_hash:
                raise MalformedRequest(
                    "the Idempotency-Key was sent with another request", hint="Give each request a key of its own."
                )
            if known.answer is None:
                raise Conflict(
                    "the first request with this Idempotency-Key has not ended, or the coordinator was stopped amid it",
                    hint="Ask again later; after a stop look at what was done, and use another key.",
                )
            return known.answer

        return self._store.write(look)

    def finish(self, key_hash: str, answer: StoredAnswer) -> None:
        """Keep the answer of the request with the key."""
        self._store.write(lambda db: audit.save_answer(db, key_hash, answer))

    def forget(self, key_hash: str) -> None:
        """Let the key be used again: its request did nothing."""
        self._store.write(lambda db: audit.remove_request(db, key_hash))
