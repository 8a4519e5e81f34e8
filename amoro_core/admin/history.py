"""Operations on attempts, events, digests and series."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from types import SimpleNamespace

from amoro_core.admin.context import Call, Services, as_message, milliseconds, moment, period, word
from amoro_core.model.history_events import Event, EventFilter, EventKind, TaskAttempt
from amoro_core.model.metrics import SYSTEM_SERIES, TABLE_SERIES, Series, SeriesFacts, Step
from amoro_core.model.paging import Window, cut, page_limit
from amoro_core.model.plans import BOUNDS, StoredDigest
from amoro_core.model.tables import TableIdentifier
from amoro_core.protocol import journal_pb2 as pb
from amoro_core.services.listeners import ListenerStatus
from amoro_core.services.time_series import Range


def _attempt(item: TaskAttempt) -> pb.AttemptInfo:
    """The attempt; of one that runs no end is set."""
    return as_message(
        pb.AttemptInfo,
        item,
        item.thread,
        task_id=item.attempt.task_id.number,
        attempt=item.attempt.number,
        started_ms=milliseconds(item.acked_at),
    )


def event_message(item: Event) -> pb.Event:
    """The event with its figures as texts."""
    data = {key: str(value) for key, value in item.data.items()}
    return as_message(pb.Event, item, item.about, happened_ms=milliseconds(item.at), data=data)


def _digest(table: TableIdentifier, stored: StoredDigest | None) -> pb.TableDigest:
    """The digest of the table; without one only its name is set."""
    if stored is None:
        return pb.TableDigest(table=str(table))
    digest = stored.digest
    histograms = (digest.data, digest.position_deletes, digest.equality_deletes)
    columns = [column for histogram in histograms for column in (histogram.files, histogram.sizes)]
    names = [field.name for field in pb.SizeBin.DESCRIPTOR.fields]
    bins = [pb.SizeBin(**dict(zip(names, row, strict=True))) for row in zip(BOUNDS, *columns, strict=True)]
    partitions = [as_message(pb.PartitionDigest, partition, due=partition.type) for partition in digest.partitions]
    return as_message(
        pb.TableDigest,
        digest,
        table=str(table),
        read_ms=milliseconds(stored.read_at),
        sizes=bins,
        partitions=partitions,
    )


def _series(stored: Iterable[Series], step: Step, facts: Mapping[str, SeriesFacts]) -> pb.GetSeriesResponse:
    series = [
        as_message(
            pb.Series,
            item,
            facts[item.name],
            points=[as_message(pb.SeriesPoint, point, from_ms=milliseconds(point.at)) for point in item.points],
        )
        for item in stored
    ]
    return pb.GetSeriesResponse(series=series, step_s=step.seconds)


HALF_A_DAY = timedelta(hours=12)  # the time of a report without a beginning
#: Events on a page without a limit.
EVENTS = 100


def list_attempts(services: Services, request: pb.ListAttemptsRequest, call: Call) -> pb.ListAttemptsResponse:
    """Attempts of the process's tasks, by task and number."""
    window = Window(page_limit(request.limit), request.after)
    process_id, page = services.journal.attempts(request.process_id, window, request.task_id)
    attempts = map(_attempt, page.items)
    return pb.ListAttemptsResponse(process_id=process_id, attempts=attempts, next=page.next, total=page.total)


def get_table_digest(services: Services, request: pb.GetTableDigestRequest, call: Call) -> pb.TableDigest:
    """The table's files in figures, as they were last read."""
    identifier = services.catalogs.resolve(request.table)
    return _digest(identifier, services.journal.digest(identifier))


def list_events(services: Services, request: pb.ListEventsRequest, call: Call) -> pb.ListEventsResponse:
    """Events, the newest first; with `newer_than` in the order of storing."""
    kinds = (word(EventKind, text, "kind of event") for text in request.kinds)
    since, until = period(request)
    event_filter = EventFilter(
        kinds=tuple(kind for kind in kinds if kind is not None), process_id=request.process_id, since=since, until=until
    )
    table = services.catalogs.resolve(request.table) if request.table else None
    if request.newer_than:
        page, last_id = services.journal.events_after(
            request.newer_than, event_filter, table, page_limit(request.limit)
        )
    else:
        window = Window(page_limit(request.limit or EVENTS), request.after)
        page, last_id = services.journal.events(event_filter, table, window)
    events = map(event_message, page.items)
    return as_message(pb.ListEventsResponse, page, events=events, last_event_id=last_id)


def list_listeners(services: Services, request: pb.ListListenersRequest, call: Call) -> pb.ListListenersResponse:
    """Every listener and how far it is."""
    listeners = sorted(map(_listener, services.listening.statuses()), key=lambda item: item.name)
    rest = [listener for listener in listeners if listener.name > request.after]
    page = cut(rest[: page_limit(request.limit) + 1], page_limit(request.limit), len(listeners), lambda item: item.name)
    return pb.ListListenersResponse(listeners=page.items, next=page.next, total=page.total)


def resume_listener(services: Services, request: pb.ResumeListenerRequest, call: Call) -> pb.Listener:
    """Send to the listener again at once, and forget its failures and losses."""
    return _listener(services.listening.resume(request.name))


def _listener(status: ListenerStatus) -> pb.Listener:
    cursor, listener = status.cursor, status.listener
    state = "paused" if cursor.is_paused else "failing" if cursor.failures else "ok"
    since = milliseconds(status.pending.at if status.pending else None)
    kinds = sorted(listener.kinds)
    return as_message(pb.Listener, cursor, listener, kinds=kinds, state=state, pending_ms=since)


def get_report(services: Services, request: pb.GetReportRequest, call: Call) -> pb.Report:
    """What was done in a time, what failed, and which tables have got worse."""
    now = services.sampling.now()
    since, until = period(request, now)
    until = until or now
    since = since or until - HALF_A_DAY
    table_ids = services.catalogs.select_ids(request.table) if request.table else None
    totals, failures, worse = services.journal.report(since, until, table_ids)
    by_code: dict[str, pb.CodeFailures] = {}
    for row in failures:
        of_code = pb.CodeFailures(code=row["code"], processes=row["code_processes"], tables_total=row["tables_total"])
        failed = as_message(pb.TableFailures, SimpleNamespace(**row))
        by_code.setdefault(row["code"], of_code).tables.append(failed)
    return pb.Report(
        began_ms=milliseconds(since),
        ended_ms=milliseconds(until),
        processes=sum(row["processes"] for row in totals),
        totals=[pb.ProcessTotals(**row) for row in totals],
        failures=by_code.values(),
        worse=[as_message(pb.WorseTable, SimpleNamespace(**row)) for row in worse or ()],
        worse_total=worse[0]["tables"] if worse else 0,
        is_worse_known=worse is not None,
    )


def get_series(services: Services, request: pb.GetSeriesRequest, call: Call) -> pb.GetSeriesResponse:
    """Values over time: of a table, or of the system and its groups."""
    until = moment(request.until_ms) if request.until_ms else services.sampling.now()
    since = moment(request.since_ms) if request.since_ms else until - timedelta(days=1)
    wanted = Range(since, until, request.step_s or None)
    if request.table:
        identifier = services.catalogs.resolve(request.table)
        return _series(*services.sampling.read_table(identifier, request.names, wanted), TABLE_SERIES)
    return _series(*services.sampling.read(request.names, request.label or None, wanted), SYSTEM_SERIES)
