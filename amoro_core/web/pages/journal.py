"""What happened, who did what, and what waits: events, report, audit, queue."""

from starlette.routing import Route

from amoro_core.documents.formatting import change, format_bytes, iso_time
from amoro_core.model.history_events import AuditOutcome, EventKind
from amoro_core.protocol import audit_pb2 as audit
from amoro_core.protocol import journal_pb2 as journal
from amoro_core.protocol import queue_pb2 as queue
from amoro_core.web.pages.framework import Listed, Page, PageRequest, Site, command, group_names, page_of_list, times_of

ROWS = 100
_KINDS = tuple(kind.value for kind in EventKind)
_OUTCOMES = tuple(outcome.value for outcome in AuditOutcome)


def routes(site: Site) -> list[Route]:
    """The pages of events, report, audit and queue."""
    return [
        site.page("/events", show_events),
        site.page("/report", show_report),
        site.page("/audit", show_audit),
        site.page("/queue", show_queue),
    ]


async def show_events(visit: PageRequest) -> Page:
    """A hundred events, the newest first."""
    query = visit.query(kind=_KINDS, table=(), process=(), since=(), until=(), after=())
    request = journal.ListEventsRequest(
        kinds=filter(None, [query["kind"]]),
        table=query["table"],
        process_id=query["process"],
        **times_of(query),
        limit=ROWS,
        after=query["after"],
    )
    response = await visit.ask("ListEvents", request, journal.ListEventsResponse)
    listed = page_of_list("/events", "events", query, response, response.events)
    values = {
        "events": response.events,
        "list": listed,
        "kinds": _KINDS,
        "same": command("event", "list", *_options(listed)),
    }
    return Page("events.html", "Events", values, is_live=True)


async def show_report(visit: PageRequest) -> Page:
    """What was done in a time, what failed, and which tables have got worse; without a time in the last 12 hours."""
    query = visit.query(since=(), until=(), table=())
    request = journal.GetReportRequest(**times_of(query), table=query["table"])
    report = await visit.ask("GetReport", request, journal.Report)
    values = {
        "report": report,
        "query": query,
        "began": iso_time(report.began_ms),
        "ended": iso_time(report.ended_ms),
        "change": change,
        "format_bytes": format_bytes,
        "same": command("report", *(f"--{key}={value}" for key, value in query.items() if value)),
    }
    return Page("report.html", "Report", values)


async def show_audit(visit: PageRequest) -> Page:
    """A hundred calls that changed something, or were refused; the newest first."""
    query = visit.query(actor=(), operation=(), object=(), outcome=_OUTCOMES, after=())
    request = audit.ListAuditRequest(
        actor=query["actor"],
        operation=query["operation"],
        object=query["object"],
        outcome=query["outcome"],
        limit=ROWS,
        after=query["after"],
    )
    response = await visit.ask("ListAudit", request, audit.ListAuditResponse)
    listed = page_of_list("/audit", "calls", query, response, response.events)
    values = {
        "events": [(event, sorted(event.parameters.items())) for event in response.events],
        "list": listed,
        "outcomes": _OUTCOMES,
        "same": command("audit", "list", *_options(listed)),
    }
    return Page("audit.html", "Audit", values, is_live=True)


def _options(listed: Listed) -> list[str]:
    return [f"--{key}={value}" for key, value in listed.filters.items() if value]


async def show_queue(visit: PageRequest) -> Page:
    """The first hundred tables that wait for a plan, and processes that wait for a thread, in their order."""
    group = visit.query(group=())["group"]
    request = queue.ListQueueRequest(group=group, limit=ROWS)
    response = await visit.ask("ListQueue", request, queue.ListQueueResponse)
    values = {
        "pending": response.pending,
        "waiting": response.waiting,
        "pending_total": response.pending_total,
        "waiting_total": response.waiting_total,
        "group": group,
        "groups": await group_names(visit),
        "same": command("group", "queue", *filter(None, [group])),
    }
    return Page("queue.html", "Queue", values, is_live=True)
