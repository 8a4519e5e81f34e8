"""What is kept of the past: attempts of tasks, events, what tables' files were like, and values over time."""

from datetime import timedelta
from difflib import get_close_matches

from amoro_core.admin.messages import journal as messages
from amoro_core.admin.messages.values import moment
from amoro_core.admin.services import Call, Services
from amoro_core.errors import InvalidArgument
from amoro_core.model.journal import EventFilter, EventKind
from amoro_core.model.paging import Window, page_limit
from amoro_core.model.series import SYSTEM_SERIES, TABLE_SERIES
from amoro_core.protocol import journal_pb2 as pb
from amoro_core.services.sampling import Range

#: Events on a page without a limit.
EVENTS = 100


def list_attempts(services: Services, request: pb.ListAttemptsRequest, call: Call) -> pb.ListAttemptsResponse:
    """Attempts of the process's tasks, by task and number."""
    window = Window(page_limit(request.limit), request.after)
    process_id, page = services.journal.attempts(request.process_id, window, request.task_id)
    shown = [messages.attempt(item) for item in page.items]
    return pb.ListAttemptsResponse(process_id=process_id, attempts=shown, next=page.next, total=page.total)


def get_table_digest(services: Services, request: pb.GetTableDigestRequest, call: Call) -> pb.TableDigest:
    """The table's files in figures, as they were last read."""
    identifier = services.catalogs.resolve(request.table)
    return messages.digest(identifier, services.journal.digest(identifier))


def list_events(services: Services, request: pb.ListEventsRequest, call: Call) -> pb.ListEventsResponse:
    """Events, the newest first; with `newer_than` in the order of storing."""
    wanted = EventFilter(
        kinds=tuple(_kind(text) for text in request.kinds),
        process_id=request.process_id,
        since=moment(request.since_ms) if request.since_ms else None,
    )
    table = services.catalogs.resolve(request.table) if request.table else None
    if request.newer_than:
        found = services.journal.events_after(request.newer_than, wanted, table, page_limit(request.limit))
    else:
        window = Window(page_limit(request.limit or EVENTS), request.after)
        found = services.journal.events(wanted, table, window)
    return pb.ListEventsResponse(
        events=[messages.event(item) for item in found.page.items],
        next=found.page.next,
        total=found.page.total,
        total_is_exact=found.total_is_exact,
        last_event_id=found.last_id,
    )


def get_series(services: Services, request: pb.GetSeriesRequest, call: Call) -> pb.GetSeriesResponse:
    """Values over time: of a table, or of the system and its groups."""
    until = moment(request.until_ms) if request.until_ms else services.sampling.now()
    since = moment(request.since_ms) if request.since_ms else until - timedelta(days=1)
    wanted = Range(since, until, request.step_s or None)
    if request.table:
        identifier = services.catalogs.resolve(request.table)
        return messages.series(services.sampling.read_table(identifier, request.names, wanted), TABLE_SERIES)
    found = services.sampling.read(request.names, request.label or None, wanted)
    return messages.series(found, SYSTEM_SERIES)


def _kind(text: str) -> EventKind:
    """Raises InvalidArgument, with the nearest of those known."""
    try:
        return EventKind(text.lower())
    except ValueError as error:
        known = [kind.value for kind in EventKind]
        near = get_close_matches(text.lower(), known, n=1)
        hint = f"Did you mean {near[0]}? One of: {', '.join(known)}." if near else f"One of: {', '.join(known)}."
        raise InvalidArgument(f"{text!r} is not a kind of event", hint=hint) from error
