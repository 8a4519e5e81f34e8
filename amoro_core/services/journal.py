"""What is kept of the past: attempts of tasks, events, and what tables' files were like."""

from dataclasses import replace

from amoro_core.errors import InvalidArgument, TableNotFound
from amoro_core.model.digests import KeptDigest
from amoro_core.model.journal import Event, EventFilter, TaskAttempt
from amoro_core.model.paging import Page, Window, cut
from amoro_core.model.tables import TableIdentifier
from amoro_core.records import record
from amoro_core.store import attempts, digests, events, processes, tables
from amoro_core.store.database import Connection, Store
from amoro_core.store.rows import from_ms, to_ms

#: How far events are counted.
COUNTED = 10_000


@record
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
            found = attempts.list_page(db, process, task or None, after, most + 1)
            return process, cut(found, most, attempts.count(db, process, task or None), _name)

        return self._store.read(read)

    def digest(self, table: TableIdentifier) -> KeptDigest | None:
        """The table's files in figures; None before they were read. No catalog is asked. Raises TableNotFound."""

        def read(db: Connection) -> KeptDigest | None:
            known = tables.find(db, table)
            if known is None:
                raise TableNotFound(f"table {table} is not known", table=table)
            return digests.find(db, known.table_id)

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
