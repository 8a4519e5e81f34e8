"""The history: attempts, events, late deletes, retention, the audit of calls, and answers to repeated requests."""

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from amoro_core.errors import (
    AmoroError,
    Conflict,
    MalformedRequest,
    NotAllowed,
    StoreFailed,
    TableNotFound,
    UnknownToken,
)
from amoro_core.formats.ports import OpenTable, Readable, Role, with_roles
from amoro_core.logger import get_logger
from amoro_core.metrics_registry import Meters
from amoro_core.model import metrics
from amoro_core.model.commits import rolled_back
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
from amoro_core.model.maintenance import LateDelete, application_of
from amoro_core.model.paging import Page, Window, cut, numbers
from amoro_core.model.plans import StoredDigest
from amoro_core.model.principals import StoredAnswer
from amoro_core.model.scan_stats import KEEP_SCANS
from amoro_core.model.tables import TableIdentifier, TableRuntime
from amoro_core.store import audit, events, processes, table_stats, tables, tasks, time_series
from amoro_core.store.connection import Row, from_ms, to_ms
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.journal import append_event

IN_REPORT = 20  # tables of each of its lists
#: How far events and calls are counted.
COUNTED = 10_000
_NEXT = "Give what `next` of the page before says."


@dataclass
class JournalService:
    """Reads attempts, events and kept figures of files."""

    store: Store

    def attempts(self, process_id: str, window: Window, task: int = 0) -> tuple[str, Page[TaskAttempt]]:
        """The id of the process, and attempts of its tasks by task and number, of one task where it is given.

        The id may be a unique prefix; `after` is TASK-ATTEMPT. Raises ProcessNotFound, InvalidArgument.
        """
        after = numbers(window.after, 2, "an attempt", "Write TASK-ATTEMPT, such as 3-2.") or (0, 0)

        def read(db: Connection) -> tuple[str, Page[TaskAttempt]]:
            process = processes.find_by_part(db, process_id).process_id
            attempts = tasks.list_attempts(db, process, task or None, (after[0], after[1]), window.limit + 1)
            total = tasks.count_attempts(db, process, task or None)
            return process, cut(
                attempts, window.limit, total, lambda item: f"{item.attempt.task_id.number}-{item.attempt.number}"
            )

        return self.store.read(read)

    def digest(self, table: TableIdentifier) -> StoredDigest | None:
        """The table's files in figures; None before they were read. No catalog is asked. Raises TableNotFound."""
        return self.store.read(lambda db: table_stats.find_digest(db, tables.get_by_name(db, table).table_id))

    def events(self, wanted: EventFilter, table: TableIdentifier | None, window: Window) -> tuple[Page[Event], int]:
        """Events, the newest first; of a table, also of one that is gone. And the number of the last event of all.

        The filter's process may be a unique prefix. Raises TableNotFound, ProcessNotFound, InvalidArgument.
        """
        most, before = window.limit, numbers(window.after, 2, "a place in the list of events", _NEXT)

        def read(db: Connection) -> tuple[Page[Event], int]:
            resolved = _resolved(db, wanted, table)
            place = (from_ms(before[0]), before[1]) if before else None
            newest = events.list_newest(db, resolved, place, most + 1)
            total = events.count(db, resolved, COUNTED + 1)
            page = cut(newest, most, total, lambda event: f"{to_ms(event.at)}-{event.event_id}", COUNTED)
            return page, events.last_id(db)

        return self.store.read(read)

    def events_after(
        self, event_id: int, wanted: EventFilter, table: TableIdentifier | None, limit: int
    ) -> tuple[Page[Event], int]:
        """As `events`, those that were stored after that one, in the order of storing."""

        def read(db: Connection) -> tuple[Page[Event], int]:
            later = events.list_stored_after(db, _resolved(db, wanted, table), event_id, limit)
            page = Page(tuple(later), len(later), total_is_exact=len(later) < limit)
            return page, events.last_id(db)

        return self.store.read(read)

    def report(
        self, since: datetime, until: datetime, table_ids: Collection[int] | None
    ) -> tuple[list[Row], list[Row], list[Row] | None]:
        """What was done in that time to these tables, or to all: sums by type and status, failures by code and table,
        and the tables that have got worse; None where this is not known."""
        period = processes.report_period(since, until, table_ids, IN_REPORT)

        def read(db: Connection) -> tuple[list[Row], list[Row], list[Row] | None]:
            failures, worse = processes.total_failures(db, period), time_series.list_worse(db, period)
            rows = (*failures, *(worse or ()))
            names = tables.names(db, {row["table_id"] for row in rows})
            for row in rows:
                row["table"] = names[row["table_id"]]
            return processes.total_ended(db, period), failures, worse

        return self.store.read(read)


def _resolved(db: Connection, wanted: EventFilter, table: TableIdentifier | None) -> EventFilter:
    if wanted.process_id:
        wanted = replace(wanted, process_id=processes.find_by_part(db, wanted.process_id).process_id)
    if table is None:
        return wanted
    runtime = tables.find(db, table)
    end = None if runtime is not None else events.last_end(db, str(table))
    table_id = runtime.table_id if runtime is not None else end.about.table_id if end is not None else 0
    if not table_id:
        raise TableNotFound(f"table {table} is not known, and no event tells of it", table=table)
    return replace(wanted, table_id=table_id)


log = get_logger("amoro.late_deletes")

#: Latest events of a table that are searched for an equal one.
_LATEST = 1000


@dataclass
class LateDeleteService:
    """Tells once of each snapshot of others that deletes rows of files which a commit of ours had replaced."""

    store: Store
    clock: Callable[[], datetime]
    meters: Meters
    #: By table id: UUID, and sequence number up to which it was searched.
    _searched: dict[int, tuple[str, int]] = field(init=False, default_factory=dict)

    def search(self, runtime: TableRuntime, table: Readable, scan: TableScan | None) -> None:
        """Search a table's new snapshots for late deletes; `scan` was just read. Unreadable ones are retried."""
        if scan is None or not runtime.table_id:
            return
        uuid, last = self._searched.get(runtime.table_id, ("", 0))
        # A catalog may set sequence numbers back with a commit that it rolls back (Polaris).
        since = last if uuid == table.facts.uuid and last <= scan.sequence_number else 0
        try:
            deletes = table.late_deletes(scan, since)
        except AmoroError as error:
            log.warning("late_deletes.not_looked", table=str(runtime.identifier), why=error.message)
            return
        if deletes:
            for late in self.store.write(lambda db: self._add_events(db, runtime, deletes)):
                self.meters.count(metrics.LATE_DELETES)
                log.error("rows.came_back", table=str(runtime.identifier), process=late.process_id, what=_words(late))
        self._searched[runtime.table_id] = table.facts.uuid, scan.sequence_number

    def _add_events(self, db: Connection, runtime: TableRuntime, deletes: tuple[LateDelete, ...]) -> list[LateDelete]:
        """Store an event for each late delete without one, also across restarts."""
        event_filter = EventFilter(kinds=(EventKind.LATE_DELETES,), table_id=runtime.table_id)
        stored_ids = {event.data.get("snapshot") for event in events.list_newest(db, event_filter, None, _LATEST)}
        new = [late for late in deletes if str(late.snapshot_id) not in stored_ids]
        for late in new:
            about = About(runtime.table_id, str(runtime.identifier), late.process_id)
            data: dict[str, str | int] = {
                "snapshot": str(late.snapshot_id),
                "application": late.application,
                "files": len(late.files),
                "replaced_by": str(late.replaced_by),
            }
            append_event(db, EventKind.LATE_DELETES, _words(late), about, self.clock(), data)
        return new


def _words(late: LateDelete) -> str:
    more = f" and {len(late.files) - 1} more" if len(late.files) > 1 else ""
    return (
        f"snapshot {late.snapshot_id} of {late.application} deletes rows of {late.files[0]}{more}, which snapshot"
        f" {late.replaced_by} had replaced before: unless deleted otherwise, these rows are still there"
    )


def tell_rolled_back(db: Connection, table: TableRuntime, loaded: OpenTable, now: datetime) -> str:
    """Store an event for each commit of ours that was rolled back: by a person, or by Polaris for a writer that would
    have lost to it. The newest in words, "" where none is new."""
    processes_of = {added: of for of, added in processes.list_added(db, table.table_id, table.uuid)}
    if not processes_of:
        return ""
    snapshots = with_roles(loaded, (Role.READ,), "history").snapshots()
    removed = rolled_back(list(processes_of), snapshots, table.snapshot_id)
    by = next((application_of(item.summary) for item in snapshots if item.snapshot_id == table.snapshot_id), "")
    wanted = EventFilter(kinds=(EventKind.ROLLED_BACK,), table_id=table.table_id)
    stored_ids = {event.data.get("snapshot") for event in events.list_newest(db, wanted, None, _LATEST)}
    words = ""
    for added in (snapshot for snapshot in reversed(removed) if str(snapshot.snapshot_id) not in stored_ids):
        words = (
            f"snapshot {added.snapshot_id} of process {processes_of[added]} was rolled back: the table's history leads"
            f" to snapshot {table.snapshot_id} of {by} without it"
        )
        about = About(table.table_id, str(table.identifier), processes_of[added])
        data: dict[str, str | int] = {"snapshot": str(added.snapshot_id), "head": str(table.snapshot_id)}
        append_event(db, EventKind.ROLLED_BACK, words, about, now, data)
        log.warning("commit.rolled_back", table=about.table, process=about.process_id, snapshot=added.snapshot_id)
    return words


history_log = get_logger("amoro.history")

#: Processes deleted in one write: other writes wait for it, and each may have thousands of tasks with payloads.
CHUNK = 20
#: Small rows deleted in one write.
ROWS = 1000


@dataclass
class HistoryService:
    """Deletes processes, with their tasks and attempts, after their retention, old events, values and scans."""

    store: Store
    clock: Callable[[], datetime]
    keep: timedelta

    def trim(self) -> int:
        """Delete what is past its retention; returns the number of processes. Active ones stay, however old."""
        before = self.clock() - self.keep
        forgotten = 0
        while removed := self.store.write(lambda db: processes.remove_ended(db, before, CHUNK)):
            forgotten += removed
        old = self.clock() - KEEP_EVENTS
        while self.store.write(lambda db: events.trim(db, old, ROWS)):
            pass
        for series_id in self.store.read(time_series.list_ids):
            while self.store.write(partial(time_series.trim, series_id=series_id, now=self.clock(), limit=ROWS)):
                pass
        oldest = (self.clock() - KEEP_SCANS).date()
        self.store.write(lambda db: table_stats.forget_scans_before(db, oldest))
        if forgotten:
            history_log.info("history.trimmed", processes=forgotten, ended_before=before.isoformat())
        return forgotten


audit_log = get_logger("amoro.audit")


@dataclass
class AuditService:
    """Calls that change something, stored before they begin; a call that can't be stored is not made."""

    store: Store
    clock: Callable[[], datetime]
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _unknown_callers: UnknownCallerLog = field(init=False, default_factory=UnknownCallerLog)

    @contextmanager
    def audited(self, call: Audited) -> Iterator[None]:
        """Store that the call, which is the block, begins, and its outcome. Read-only commands store nothing.

        Raises StoreFailed before the block: then the call is not to be made.
        """
        if self.store.only_reads:
            yield
            return
        number = self.store.write(lambda db: audit.add(db, call, self.clock()))
        try:
            yield
        except BaseException as error:
            self._end(number, call, error)
            raise
        self._end(number, call, None)

    def _end(self, number: int, call: Audited, error: BaseException | None) -> None:
        outcome, code = _outcome(error)
        try:
            self.store.write(lambda db: audit.end(db, number, outcome, code))
        except StoreFailed as failure:  # the call was made: its row stays as begun
            audit_log.error("audit.failed", row=number, operation=call.operation, outcome=outcome, why=failure.message)

    def note(self, call: Audited, error: BaseException | None) -> None:
        """Store a call that has ended. Raises StoreFailed."""
        outcome, code = _outcome(error)
        self.store.write(lambda db: audit.add(db, call, self.clock(), outcome, code))

    def refuse_unknown(self, call: Audited, error: BaseException) -> None:
        """Record refused calls of unknown callers, a few a minute; the others are counted.

        Raises nothing for a store that fails: the refusal is the answer.
        """
        if self.store.only_reads:
            return
        with self._lock:
            event = self._unknown_callers.row(call, self.clock())
        if event is not None:
            try:
                self.note(event, error)
            except StoreFailed as failure:
                audit_log.error(
                    "audit.failed", operation=call.operation, outcome=AuditOutcome.REFUSED, why=failure.message
                )

    def list_events(self, wanted: AuditFilter, window: Window) -> Page[AuditEvent]:
        """Calls, the newest first; the window has a limit. Raises InvalidArgument."""
        before, most = numbers(window.after, 1, "a place in the audit", _NEXT), window.limit

        def read(db: Connection) -> Page[AuditEvent]:
            total = audit.count(db, wanted, COUNTED + 1)
            entries = audit.list_newest(db, wanted, before[0] if before else None, most + 1)
            return cut(entries, most, total, lambda item: str(item.event_id), COUNTED)

        return self.store.read(read)

    def trim(self) -> int:
        """Forget what is past its retention; how many. Unknown callers that were only counted get one row."""
        with self._lock:
            rest = self._unknown_callers.flush()
        if rest is not None:
            self.note(rest, UnknownToken("the token is not known"))
        before, forgotten = self.clock() - KEEP_AUDIT, 0
        while removed := self.store.write(lambda db: audit.trim(db, before, ROWS)):
            forgotten += removed
        return forgotten


def _outcome(error: BaseException | None) -> tuple[AuditOutcome, str]:
    if error is None:
        return AuditOutcome.DONE, ""
    code = error.code if isinstance(error, AmoroError) else AmoroError.code
    return AuditOutcome.REFUSED if isinstance(error, NotAllowed | UnknownToken) else AuditOutcome.FAILED, code


KEPT_FOR = timedelta(hours=24)


@dataclass
class RepeatingService:
    """Keys of requests for a day. They are stored before anything is done, so that a kill doubles nothing."""

    store: Store
    clock: Callable[[], datetime]

    def begin(self, key_hash: str, request_hash: str) -> StoredAnswer | None:
        """None for a new key, whose request may be done now; else the answer that was kept.

        Raises Conflict while the first request with the key has not ended, or when it is not known how it ended, and
        MalformedRequest when that was another request.
        """
        now = self.clock()

        def look(db: Connection) -> StoredAnswer | None:
            audit.remove_older_requests(db, now - KEPT_FOR)
            keyed_request = audit.find_answer(db, key_hash)
            if keyed_request is None:
                audit.add_request(db, key_hash, request_hash, now)
                return None
            if keyed_request.request_hash != request_hash:
                raise MalformedRequest(
                    "the Idempotency-Key was sent with another request", hint="Give each request a key of its own."
                )
            if keyed_request.answer is None:
                raise Conflict(
                    "the first request with this Idempotency-Key has not ended, or the coordinator was stopped amid it",
                    hint="Ask again later; after a stop look at what was done, and use another key.",
                )
            return keyed_request.answer

        return self.store.write(look)

    def finish(self, key_hash: str, answer: StoredAnswer) -> None:
        """Keep the answer of the request with the key."""
        self.store.write(lambda db: audit.save_answer(db, key_hash, answer))

    def forget(self, key_hash: str) -> None:
        """Let the key be used again: its request did nothing."""
        self.store.write(lambda db: audit.remove_request(db, key_hash))
