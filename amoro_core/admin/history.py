"""Operations on attempts, events, digests and series."""

from collections.abc import Mapping
from datetime import timedelta
from difflib import get_close_matches

from amoro_core.admin.context import Call, Services, milliseconds, moment
from amoro_core.errors import InvalidArgument
from amoro_core.model.history_events import Event, EventFilter, EventKind, TaskAttempt
from amoro_core.model.metrics import SYSTEM_SERIES, TABLE_SERIES, SeriesFacts
from amoro_core.model.paging import Window, page_limit
from amoro_core.model.plans import BOUNDS, KeptDigest
from amoro_core.model.tables import TableIdentifier
from amoro_core.protocol import journal_pb2 as pb
from amoro_core.services.time_series import FoundSeries, Range


def attempt_message(item: TaskAttempt) -> pb.AttemptInfo:
    """The attempt; of one that runs no end is set."""
    return pb.AttemptInfo(
        task_id=item.attempt.task_id.number,
        attempt=item.attempt.number,
        optimizer_id=item.thread.optimizer_id,
        thread_id=item.thread.thread_id,
        outcome=item.outcome.value,
        scheduled_ms=milliseconds(item.scheduled_at),
        started_ms=milliseconds(item.acked_at),
        finished_ms=milliseconds(item.finished_at),
        failure_code=item.failure_code,
        failure=item.failure,
        input_rows=item.input_rows,
        input_bytes=item.input_bytes,
    )


def event_message(item: Event) -> pb.Event:
    """The event with its figures as texts."""
    return pb.Event(
        event_id=item.event_id,
        happened_ms=milliseconds(item.at),
        kind=item.kind.value,
        table=item.about.table,
        table_id=item.about.table_id,
        process_id=item.about.process_id,
        optimizer_id=item.about.optimizer_id,
        group=item.about.group,
        text=item.text,
        data={key: str(value) for key, value in item.data.items()},
    )


def digest_message(table: TableIdentifier, kept: KeptDigest | None) -> pb.TableDigest:
    """The digest of the table; without one only its name is set."""
    if kept is None:
        return pb.TableDigest(table=str(table))
    found = kept.digest
    histograms = (found.data, found.position_deletes, found.equality_deletes)
    columns = [column for one in histograms for column in (one.files, one.sizes)]
    bins = [
        pb.SizeBin(
            from_bytes=bound,
            data_files=data,
            data_bytes=data_bytes,
            position_delete_files=positions,
            position_delete_bytes=position_bytes,
            equality_delete_files=equalities,
            equality_delete_bytes=equality_bytes,
        )
        for bound, data, data_bytes, positions, position_bytes, equalities, equality_bytes in zip(
            BOUNDS, *columns, strict=True
        )
    ]
    partitions = [
        pb.PartitionDigest(
            path=one.path,
            health=one.health,
            due=one.type,
            reason=one.reason,
            data_files=one.data_files,
            data_bytes=one.data_bytes,
            records=one.records,
            small_files=one.small_files,
            position_delete_files=one.position_delete_files,
            equality_delete_files=one.equality_delete_files,
        )
        for one in found.partitions
    ]
    return pb.TableDigest(
        table=str(table),
        snapshot_id=found.snapshot_id or 0,
        read_ms=milliseconds(kept.read_at),
        target_bytes=found.target_bytes,
        sizes=bins,
        partitions=partitions,
        partitions_total=found.partitions_total,
    )


def series_message(found: FoundSeries, facts: Mapping[str, SeriesFacts]) -> pb.GetSeriesResponse:
    """The series with what they are."""
    shown = [
        pb.Series(
            name=one.name,
            label=one.label,
            kind=facts[one.name].kind.value,
            unit=facts[one.name].unit,
            meaning=facts[one.name].meaning,
            points=[
                pb.SeriesPoint(from_ms=milliseconds(at.at), n=at.n, sum=at.sum, min=at.min, max=at.max)
                for at in one.points
            ],
        )
        for one in found.series
    ]
    return pb.GetSeriesResponse(series=shown, step_s=found.step.seconds)


#: Events on a page without a limit.
EVENTS = 100


def list_attempts(services: Services, request: pb.ListAttemptsRequest, call: Call) -> pb.ListAttemptsResponse:
    """Attempts of the process's tasks, by task and number."""
    window = Window(page_limit(request.limit), request.after)
    process_id, page = services.journal.attempts(request.process_id, window, request.task_id)
    shown = [attempt_message(item) for item in page.items]
    return pb.ListAttemptsResponse(process_id=process_id, attempts=shown, next=page.next, total=page.total)


def get_table_digest(services: Services, request: pb.GetTableDigestRequest, call: Call) -> pb.TableDigest:
    """The table's files in figures, as they were last read."""
    identifier = services.catalogs.resolve(request.table)
    return digest_message(identifier, services.journal.digest(identifier))


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
        events=[event_message(item) for item in found.page.items],
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
        return series_message(services.sampling.read_table(identifier, request.names, wanted), TABLE_SERIES)
    found = services.sampling.read(request.names, request.label or None, wanted)
    return series_message(found, SYSTEM_SERIES)


def _kind(text: str) -> EventKind:
    """Raises InvalidArgument, with the nearest of those known."""
    try:
        return EventKind(text.lower())
    except ValueError as error:
        known = [kind.value for kind in EventKind]
        near = get_close_matches(text.lower(), known, n=1)
        hint = f"Did you mean {near[0]}? One of: {', '.join(known)}." if near else f"One of: {', '.join(known)}."
        raise InvalidArgument(f"{text!r} is not a kind of event", hint=hint) from error
